/*
 * http.c - between libmicrohttpd and exchanges: bytes of a request come in, bytes of an answer go
 * out, and nothing here waits or computes.
 *
 * A body is kept until it is whole; then the connection is suspended and a worker has the exchange.
 * What libmicrohttpd is lenient about and a proxy in front may read otherwise (two lengths, a
 * length beside chunks) is refused, and the connection closed.
 */
#include "inside.h"
#include "routes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *header(struct exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

static struct client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* ---- what the headers say -------------------------------------------------------------------- */

/* Who reads the other one of two has another request before him. */
enum { LENGTH, ENCODING, HOST, N_SINGLE };
struct framing {
    int n[N_SINGLE];
    bool odd; /* "Content-Length : 5", a line that goes on in the next one, a bare CR */
};

static enum MHD_Result look_at_header(void *user, enum MHD_ValueKind kind, const char *name,
                                      const char *value)
{
    static const char *const names[] = {"Content-Length", "Transfer-Encoding", "Host"};
    struct framing *framing = user;
    for (int i = 0; i < N_SINGLE; i++) framing->n[i] += strcasecmp(name, names[i]) == 0;
    for (; *name; name++) framing->odd |= *name <= ' ' || *name == 127;
    for (; value && *value; value++)
        framing->odd |= ((unsigned char)*value < ' ' && *value != '\t') || *value == 127;
    return MHD_YES;
}

/* A request whose end, or whose Host, could be read in two ways. */
static bool is_ambiguous(struct exchange *exchange)
{
    struct framing framing = {.odd = false};
    const char *encoding = header(exchange, "Transfer-Encoding");
    const char *length = header(exchange, "Content-Length");
    MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND, look_at_header, &framing);
    return framing.odd || framing.n[LENGTH] + framing.n[ENCODING] > 1 || framing.n[HOST] > 1 ||
           (encoding && strcasecmp(encoding, "chunked") != 0) ||
           (length && (!*length || length[strspn(length, "0123456789")]));
}

static void note_peer(struct exchange *exchange)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info) exchange->socket = info->connect_fd;
    info = MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (!info || !info->client_addr) return;
    bool six = info->client_addr->sa_family == AF_INET6;
    getnameinfo(info->client_addr, six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
                exchange->peer, sizeof exchange->peer, NULL, 0, NI_NUMERICHOST);
}

/* The client's own, where it can stand in a header and a log. */
static void note_id(struct exchange *exchange)
{
    const char *id = header(exchange, "X-Request-Id");
    size_t n = id ? strlen(id) : 0;
    bool plain = n > 0 && n < sizeof exchange->request_id;
    for (size_t i = 0; i < n; i++) plain = plain && id[i] > ' ' && id[i] < 127;
    snprintf(exchange->request_id, sizeof exchange->request_id, "%s", plain ? id : "");
    if (!plain)
        snprintf(exchange->request_id, sizeof exchange->request_id, "np-%llx-%llu",
                 (unsigned long long)exchange->server->opened_s,
                 (unsigned long long)exchange->serial);
}

static bool header_has(struct exchange *exchange, const char *name, const char *word)
{
    const char *value = header(exchange, name);
    return value && strstr(value, word);
}

static void note_client(struct exchange *exchange)
{
    note_peer(exchange);
    note_id(exchange);
    exchange->accepts_npy = header_has(exchange, "Accept", "application/octet-stream") ||
                            header_has(exchange, "Accept", "application/x-npy");
    exchange->squeeze = squeeze_for(header(exchange, "Accept-Encoding"));
}

/* One more that runs: 0, or why not. */
static int admit(struct exchange *exchange, const char **why)
{
    struct server *server = exchange->server;
    int key = exchange->key < 0 ? MAX_KEYS : exchange->key, status = 0;
    pthread_mutex_lock(&server->lock);
    if (server->n_running >= server->options.max_concurrency) {
        *why = "too many requests are running and waiting (--max-concurrency); try again soon";
        status = 429;
    } else if (server->key_running[key] >= server->options.max_per_key) {
        *why = "too many requests of this key are running and waiting (--max-per-key)";
        status = 429;
    } else {
        exchange->counted = true;
        server->n_running++;
        server->key_running[key]++;
    }
    pthread_mutex_unlock(&server->lock);
    return status;
}

static int check_state(const struct exchange *exchange, const char **why)
{
    const struct server *server = exchange->server;
    int state = server->state;
    if (exchange->route->flags & ROUTE_LOADING || state == SERVER_READY) return 0;
    *why = state == SERVER_LOADING  ? "the model is being loaded"
           : state == SERVER_FAILED ? server->failure
                                    : "the server is stopping";
    return 503;
}

static int check_route(struct exchange *exchange, const char *method, const char **why)
{
    char allowed[64];
    exchange->route = route_find(method, exchange->path, allowed);
    if (exchange->route) return 0;
    if (allowed[0] && strcmp(method, "OPTIONS") == 0) return 204; /* what browsers ask first */
    if (allowed[0]) {
        *why = "this path takes another method; the header Allow lists them";
        return 405;
    }
    char near[64], text[160] = "";
    const char *meant = route_near(exchange->path, near);
    if (meant) snprintf(text, sizeof text, "there is no such path; did you mean %s?", meant);
    const char *told = meant ? exchange_copy(exchange, text, strlen(text)) : NULL;
    *why = told ? told : "there is no such path; /openapi.json lists them";
    return 404;
}

/* Everything that can be said before the body: 0, or a status and why. */
static int check_headers(struct exchange *exchange, const char *method, const char **why)
{
    const char *length = header(exchange, "Content-Length");
    int status;
    if (is_ambiguous(exchange)) {
        *why = "one Host, and one Content-Length or Transfer-Encoding: chunked, are expected";
        return 400;
    }
    if ((status = access_check(exchange, why))) return status;
    if ((status = check_route(exchange, method, why))) return status;
    if ((status = check_state(exchange, why))) return status;
    const char *encoding = header(exchange, "Content-Encoding");
    if (encoding && strcasecmp(encoding, "identity") != 0) {
        *why = "the body must not be compressed";
        return 415;
    }
    if (exchange->route->fields && !length && !header(exchange, "Transfer-Encoding")) {
        *why = "the body has neither Content-Length nor Transfer-Encoding: chunked";
        return 411;
    }
    if (length && strtoull(length, NULL, 10) > exchange->server->options.max_body_bytes) {
        *why = "the body is too large (--max-body)";
        return 413;
    }
    return exchange->route->fields ? admit(exchange, why) : 0;
}

/* ---- the body -------------------------------------------------------------------------------- */

/* A body that will not be used. */
static void drop_body(struct exchange *exchange)
{
    struct server *server = exchange->server;
    pthread_mutex_lock(&server->lock);
    server->n_body_bytes -= exchange->body.n_bytes;
    pthread_mutex_unlock(&server->lock);
    buf_free(&exchange->body);
}

static bool take_bytes(struct exchange *exchange, const char *bytes, size_t n_bytes)
{
    struct server *server = exchange->server;
    if (exchange->status || exchange->body_too_large) {
        exchange->n_dropped_bytes += n_bytes;
        return exchange->n_dropped_bytes < (64u << 20); /* who goes on is cut off */
    }
    bool fits = exchange->body.n_bytes + n_bytes <= server->options.max_body_bytes;
    pthread_mutex_lock(&server->lock);
    bool good = fits && server->n_body_bytes + n_bytes <= 4 * server->options.max_body_bytes &&
                buf_push(&exchange->body, bytes, n_bytes);
    if (good) server->n_body_bytes += n_bytes;
    pthread_mutex_unlock(&server->lock);
    if (good) return true;
    drop_body(exchange);
    exchange->body_too_large = !fits;
    if (fits) reply_refuse(exchange, 429, NULL, "there is no memory for one more body; try again");
    return true;
}

/* The body is whole: a worker's turn. */
static enum MHD_Result hand_over(struct exchange *exchange)
{
    struct server *server = exchange->server;
    struct client *client = client_of(exchange->connection);
    exchange->read_ns = clock_ns();
    if (client) client_received(client);
    if (exchange->body_too_large)
        reply_refuse(exchange, 413, NULL, "the body is too large (--max-body)");
    if (exchange->status) return reply_send(exchange);
    if (exchange->route->flags & ROUTE_INLINE) {
        exchange_work(exchange);
        return reply_send(exchange);
    }
    MHD_suspend_connection(exchange->connection);
    client_watch(exchange);
    pthread_mutex_lock(&server->lock);
    exchange->suspended = true;
    work_queue(exchange);
    pthread_mutex_unlock(&server->lock);
    return MHD_YES;
}

static enum MHD_Result begin(struct server *server, struct MHD_Connection *connection,
                             const char *url, const char *method, void **mine)
{
    struct exchange *exchange = exchange_new(server);
    const char *why = "";
    if (!exchange) return MHD_NO;
    *mine = exchange;
    exchange->connection = connection;
    exchange->method = exchange_copy(exchange, method, strlen(method));
    exchange->path = exchange_copy(exchange, url, strlen(url));
    if (!exchange->path || !exchange->method) return MHD_NO;
    note_client(exchange);
    int status = check_headers(exchange, method, &why);
    if (!status) return MHD_YES;
    if (status == 204)
        exchange->status = status;
    else
        reply_refuse(exchange, status, NULL, why);
    /* A small body is read first, or the client may never see the answer; one that is still to be
     * asked for, or that is too large, is not. */
    bool at_once =
        status == 411 || status == 413 || header(exchange, "Expect") || is_ambiguous(exchange);
    exchange->close = at_once;
    return at_once ? reply_send(exchange) : MHD_YES;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *n_bytes, void **mine)
{
    struct exchange *exchange = *mine;
    if (!exchange) return begin(user, connection, url, method, mine);
    if (*n_bytes) {
        bool good = take_bytes(exchange, bytes, *n_bytes);
        *n_bytes = 0;
        return good ? MHD_YES : MHD_NO;
    }
    if (exchange->status) return reply_send(exchange);
    return hand_over(exchange);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void release(struct exchange *exchange)
{
    struct server *server = exchange->server;
    if (!exchange->counted) return;
    server->n_running--;
    server->key_running[exchange->key < 0 ? MAX_KEYS : exchange->key]--;
}

static void on_completed(void *user, struct MHD_Connection *connection, void **mine,
                         enum MHD_RequestTerminationCode why)
{
    struct exchange *exchange = *mine;
    struct client *client = client_of(connection);
    *mine = NULL;
    if (client) client_turn(client, false);
    if (!exchange) return;
    struct server *server = exchange->server;
    pthread_mutex_lock(&server->lock);
    exchange->aborted = exchange->gone || why != MHD_REQUEST_TERMINATED_COMPLETED_OK;
    pthread_mutex_unlock(&server->lock);
    log_exchange(exchange);
    pthread_mutex_lock(&server->lock);
    exchange->over = true;
    release(exchange);
    metrics_add(&server->metrics, exchange);
    exchange_abandon(exchange);
    pthread_mutex_unlock(&server->lock);
    exchange_drop(exchange);
}

static void on_connection(void *user, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        client_opened(user, info ? info->connect_fd : -1, context);
    else
        client_closed(*context);
}

/* The first line of a request is there. */
static void *on_first_line(void *user, const char *uri, struct MHD_Connection *connection)
{
    struct client *client = client_of(connection);
    if (client) client_turn(client, true);
    return NULL;
}

void http_resume(struct exchange *exchange)
{
    struct server *server = exchange->server;
    pthread_mutex_lock(&server->lock);
    bool waits = exchange->suspended;
    exchange->suspended = false;
    pthread_mutex_unlock(&server->lock);
    if (!waits) return;
    client_unwatch(exchange);
    MHD_resume_connection(exchange->connection);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static void no_log(void *user, const char *fmt, va_list args) {}

/* Each connection needs a descriptor; some are the program's own. */
static unsigned connection_limit(int asked)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 512;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
    rlim_t most = limit.rlim_cur > 128 ? limit.rlim_cur - 64 : 64;
    return (rlim_t)asked < most ? (unsigned)asked : (unsigned)most;
}

static np_status listen_on(struct server *server, const struct addrinfo *address, np_error *err)
{
    unsigned flags = MHD_USE_EPOLL_INTERNALLY | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    if (address->ai_family == AF_INET6) flags |= MHD_USE_IPv6;
    errno = 0;
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, no_log, NULL,
        MHD_OPTION_SOCK_ADDR, address->ai_addr, MHD_OPTION_CONNECTION_LIMIT,
        connection_limit(server->options.max_connections), MHD_OPTION_CONNECTION_TIMEOUT, 600u,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)65536, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, server, MHD_OPTION_NOTIFY_CONNECTION, on_connection, server,
        MHD_OPTION_URI_LOG_CALLBACK, on_first_line, server, MHD_OPTION_LISTEN_BACKLOG_SIZE, 4096u,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    if (server->daemon) return NP_OK;
    return error_set(err, NP_EIO, server->options.host, NO_OFFSET,
                     "cannot listen on port %d (--port; 0: any free one): %s", server->options.port,
                     strerror(errno ? errno : EADDRINUSE));
}

np_status http_begin(struct server *server, np_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char port[16];
    int asked = server->options.port;
    snprintf(port, sizeof port, "%d", asked < 0 ? 0 : asked);
    int failed = getaddrinfo(server->options.host, port, &hints, &found);
    if (failed)
        return error_set(err, NP_EINPUT, server->options.host, NO_OFFSET, "no such address: %s",
                         gai_strerror(failed));
    np_status status = listen_on(server, found, err);
    bool six = found->ai_family == AF_INET6;
    freeaddrinfo(found);
    if (status != NP_OK) return status;
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
    snprintf(server->address, sizeof server->address, six ? "[%s]:%d" : "%s:%d",
             server->options.host, info ? info->port : asked);
    return NP_OK;
}

void http_pause(struct server *server)
{
    MHD_socket listening = server->daemon ? MHD_quiesce_daemon(server->daemon) : MHD_INVALID_SOCKET;
    if (listening != MHD_INVALID_SOCKET) close(listening);
}

void http_end(struct server *server)
{
    if (server->daemon) MHD_stop_daemon(server->daemon);
    server->daemon = NULL;
}
