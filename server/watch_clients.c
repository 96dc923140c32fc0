/*
 * watch_clients.c - clients that leave, and clients that dawdle.
 *
 * While a connection is suspended libmicrohttpd does not look at it: its socket is watched here for
 * the end of the other side (a FIN counts: who closes for writing has left). And libmicrohttpd's
 * own timeout starts anew with every byte, so whoever sends one byte a second holds a connection
 * for ever: here a request has one total time, counted from its first byte (tcp_info tells when
 * that came), and a second more for each MiB. Nor does libmicrohttpd see a FIN that came with the
 * last bytes before it. Who takes no byte of an answer for as long is cut off too.
 */
#include "inside.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define IDLE_NS ((uint64_t)300 * 1000000000) /* between two requests */
#define TICK_MS 500
/* A state of the kernel's; its name stands in a header that excludes linux/tcp.h. */
#define CLOSE_WAIT 8

/* ---- connections ----------------------------------------------------------------------------- */

static struct tcp_info look_into(int socket)
{
    struct tcp_info info;
    socklen_t n_bytes = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &n_bytes) != 0)
        memset(&info, 0, sizeof info);
    return info;
}

void client_opened(struct server *server, int socket, void **out)
{
    struct client *client = mem_alloc(1, sizeof *client);
    *out = client;
    if (!client) return; /* then nobody watches it but libmicrohttpd */
    client->server = server;
    client->socket = socket;
    client->since_ns = clock_ns();
    pthread_mutex_lock(&server->lock);
    client->next = server->clients;
    if (client->next) client->next->previous = client;
    server->clients = client;
    server->n_clients++;
    pthread_mutex_unlock(&server->lock);
}

void client_closed(struct client *client)
{
    if (!client) return;
    struct server *server = client->server;
    pthread_mutex_lock(&server->lock);
    if (client->next) client->next->previous = client->previous;
    if (client->previous)
        client->previous->next = client->next;
    else
        server->clients = client->next;
    server->n_clients--;
    pthread_mutex_unlock(&server->lock);
    mem_free(client);
}

void client_turn(struct client *client, bool request)
{
    struct server *server = client->server;
    uint64_t received = request ? 0 : look_into(client->socket).tcpi_bytes_received;
    pthread_mutex_lock(&server->lock);
    if (request) {
        if (!client->began_ns) client->began_ns = clock_ns();
    } else {
        client->since_ns = clock_ns();
        client->began_ns = 0;
        client->working = false;
        client->n_received = received;
    }
    pthread_mutex_unlock(&server->lock);
}

void client_received(struct client *client)
{
    pthread_mutex_lock(&client->server->lock);
    client->working = true;
    client->taken_ns = clock_ns();
    pthread_mutex_unlock(&client->server->lock);
}

/* Whether the other side has closed, and libmicrohttpd has not heard of it since the last look. */
static bool has_left(struct client *client, const struct tcp_info *info)
{
    bool left = client->leaves && info->tcpi_state == CLOSE_WAIT;
    client->leaves = info->tcpi_state == CLOSE_WAIT;
    return left;
}

/* Whether a request comes in too slowly, or none does for too long. */
static bool dawdles(struct client *client, const struct tcp_info *info, uint64_t limit_ns,
                    uint64_t now_ns)
{
    uint64_t received = info->tcpi_bytes_received;
    if (!client->began_ns && received > client->n_received) client->began_ns = now_ns;
    limit_ns += (received - client->n_received) / 1048576 * 1000000000;
    if (client->began_ns) return now_ns - client->began_ns > limit_ns;
    return now_ns - client->since_ns > IDLE_NS;
}

/* Whether there is something for it to take, and it takes nothing. */
static bool reads_nothing(struct client *client, const struct tcp_info *info, uint64_t limit_ns,
                          uint64_t now_ns)
{
    if (info->tcpi_notsent_bytes == 0 || info->tcpi_bytes_acked != client->n_taken) {
        client->n_taken = info->tcpi_bytes_acked;
        client->taken_ns = now_ns;
    }
    return now_ns - client->taken_ns > limit_ns;
}

static void look_at(struct server *server, struct client *client, uint64_t now_ns)
{
    uint64_t limit_ns = (uint64_t)server->options.receive_ms * 1000000;
    if (client->dead) return;
    struct tcp_info info = look_into(client->socket);
    bool late = client->working ? reads_nothing(client, &info, limit_ns, now_ns)
                                : dawdles(client, &info, limit_ns, now_ns);
    if (!has_left(client, &info) && !late) return;
    client->dead = true;
    shutdown(client->socket, SHUT_RDWR);
}

static void look_at_all(struct server *server)
{
    pthread_mutex_lock(&server->lock);
    uint64_t now_ns = clock_ns(); /* behind every time that is noted */
    for (struct client *client = server->clients; client; client = client->next)
        look_at(server, client, now_ns);
    pthread_mutex_unlock(&server->lock);
}

/* ---- suspended ones -------------------------------------------------------------------------- */

void client_watch(struct exchange *exchange)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT,
                                .data = {.u64 = exchange->serial}};
    if (exchange->socket >= 0)
        (void)epoll_ctl(exchange->server->watch_fd, EPOLL_CTL_ADD, exchange->socket, &event);
}

void client_unwatch(struct exchange *exchange)
{
    struct epoll_event unused = {0};
    if (exchange->socket >= 0)
        (void)epoll_ctl(exchange->server->watch_fd, EPOLL_CTL_DEL, exchange->socket, &unused);
}

static void client_left(struct server *server, uint64_t serial)
{
    pthread_mutex_lock(&server->lock);
    struct exchange *exchange = server->exchanges;
    while (exchange && exchange->serial != serial) exchange = exchange->next;
    if (exchange) exchange_abandon(exchange);
    pthread_mutex_unlock(&server->lock);
}

static void *watch(void *user)
{
    struct server *server = user;
    struct epoll_event events[64];
    uint64_t last_ns = clock_ns();
    for (;;) {
        int n = epoll_wait(server->watch_fd, events, 64, TICK_MS);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == 0) return NULL; /* clients_end */
            client_left(server, events[i].data.u64);
        }
        uint64_t now_ns = clock_ns();
        if (now_ns - last_ns < (uint64_t)TICK_MS * 1000000) continue;
        last_ns = now_ns;
        look_at_all(server);
    }
}

np_status clients_begin(struct server *server, np_error *err)
{
    struct epoll_event end = {.events = EPOLLIN, .data = {.u64 = 0}};
    server->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    server->end_fd = eventfd(0, EFD_CLOEXEC);
    bool good = server->watch_fd >= 0 && server->end_fd >= 0 &&
                epoll_ctl(server->watch_fd, EPOLL_CTL_ADD, server->end_fd, &end) == 0 &&
                pthread_create(&server->watcher, NULL, watch, server) == 0;
    if (!good) return error_set(err, NP_EIO, "watcher", NO_OFFSET, "no thread could be made");
    server->has_watcher = true;
    return NP_OK;
}

void clients_end(struct server *server)
{
    uint64_t one = 1;
    if (server->has_watcher && write(server->end_fd, &one, sizeof one) == sizeof one)
        pthread_join(server->watcher, NULL);
    server->has_watcher = false;
    if (server->watch_fd >= 0) close(server->watch_fd);
    if (server->end_fd >= 0) close(server->end_fd);
    server->watch_fd = server->end_fd = -1;
}
