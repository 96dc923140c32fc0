/*
 * server.c - begin and end. Everything is freed in the order in which it could still be used: the
 * listening socket closes first, what runs ends by itself, then the threads.
 */
#include "inside.h"
#include "routes.h"

#include <time.h>

#define OR(value, fallback) ((value) ? (value) : (fallback))

static void fill_defaults(struct server_options *options)
{
    options->host = OR(options->host, "127.0.0.1");
    options->port = OR(options->port, 8000);
    options->max_body_bytes = OR(options->max_body_bytes, (size_t)256 << 20);
    options->max_answer_bytes = OR(options->max_answer_bytes, (size_t)1 << 30);
    options->max_concurrency = OR(options->max_concurrency, 1024);
    options->max_per_key = OR(options->max_per_key, options->max_concurrency);
    options->max_connections = OR(options->max_connections, 4096);
    options->receive_ms = OR(options->receive_ms, 60000);
    options->n_workers = OR(options->n_workers, 4);
}

np_status server_open(const struct server_options *options, struct server **out, np_error *err)
{
    *out = NULL;
    struct server *server = mem_alloc(1, sizeof *server);
    if (!server) return error_nomem(err, "server", sizeof *server);
    server->options = *options;
    fill_defaults(&server->options);
    server->watch_fd = server->end_fd = server->log_fd = -1;
    server->opened_ns = clock_ns();
    server->opened_s = (uint64_t)time(NULL);
    arena_init(&server->arena, (size_t)64 << 20);
    buf_init(&server->reported, (size_t)1 << 16);
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->tasks, NULL);
    pthread_cond_init(&server->idle, NULL);
    sem_init(&server->stop, 0, 0);
    np_status status = access_begin(server, err);
    if (status == NP_OK) status = log_begin(server, err);
    if (status == NP_OK) status = work_begin(server, err);
    if (status == NP_OK) status = clients_begin(server, err);
    if (status == NP_OK) status = http_begin(server, err);
    if (status != NP_OK)
        server_close(server);
    else
        *out = server;
    return status;
}

const char *server_address(const struct server *server)
{
    return server->address;
}

bool server_name(const struct server *server, size_t i, char out[256])
{
    const char *names = server->options.served_model_name, *path = server->info.path;
    const char *last = strrchr(path, '/');
    if (!names) snprintf(out, 256, "%s", last && last[1] ? last + 1 : path);
    if (!names) return i == 0;
    for (names += strspn(names, ", "); i > 0; i--) {
        names += strcspn(names, ",");
        names += strspn(names, ", ");
    }
    snprintf(out, 256, "%.*s", (int)strcspn(names, ","), names);
    return *names != 0;
}

void server_ready(struct server *server, np_model *model, np_engine *engine, size_t n_context,
                  const char *fingerprint)
{
    server->model = model;
    server->engine = engine;
    server->info = np_model_info(model);
    server->n_context = n_context;
    (void)server_name(server, 0, server->model_name);
    snprintf(server->fingerprint, sizeof server->fingerprint, "%s-%s-%s", fingerprint,
             server->info.profile, np_numerics());
    server->state = SERVER_READY;
}

void server_failed(struct server *server, const char *why)
{
    snprintf(server->failure, sizeof server->failure, "%s", why);
    server->state = SERVER_FAILED;
}

void server_stop(struct server *server)
{
    sem_post(&server->stop);
}

void server_wait(struct server *server)
{
    while (sem_wait(&server->stop) != 0) {
    }
}

void server_close(struct server *server)
{
    if (!server) return;
    server->state = SERVER_STOPPING;
    http_pause(server);
    pthread_mutex_lock(&server->lock);
    while (server->n_open > 0) pthread_cond_wait(&server->idle, &server->lock);
    pthread_mutex_unlock(&server->lock);
    http_end(server);
    clients_end(server);
    work_end(server);
    log_end(server);
    buf_free(&server->reported);
    arena_free(&server->arena);
    sem_destroy(&server->stop);
    pthread_cond_destroy(&server->idle);
    pthread_cond_destroy(&server->tasks);
    pthread_mutex_destroy(&server->lock);
    mem_free(server);
}
