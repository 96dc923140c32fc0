/*
 * work.c - the workers and their queue. Tasks are served in the order in which they came; each
 * holds a reference to its exchange, which one worker has at a time.
 */
#include "inside.h"

void work_queue(struct exchange *exchange)
{
    struct server *server = exchange->server;
    exchange->queued = true;
    exchange->n_references++;
    exchange->next_task = NULL;
    if (server->last_task)
        server->last_task->next_task = exchange;
    else
        server->first_task = exchange;
    server->last_task = exchange;
    pthread_cond_signal(&server->tasks);
}

static void *worker(void *user)
{
    struct server *server = user;
    pthread_mutex_lock(&server->lock);
    for (;;) {
        struct exchange *exchange = server->first_task;
        if (!exchange && server->closing) break;
        if (!exchange) {
            pthread_cond_wait(&server->tasks, &server->lock);
            continue;
        }
        server->first_task = exchange->next_task;
        if (!server->first_task) server->last_task = NULL;
        pthread_mutex_unlock(&server->lock);
        exchange_work(exchange);
        pthread_mutex_lock(&server->lock);
        exchange->queued = false;
        if (exchange_wants_work(exchange)) work_queue(exchange);
        pthread_mutex_unlock(&server->lock);
        exchange_drop(exchange);
        pthread_mutex_lock(&server->lock);
    }
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

np_status work_begin(struct server *server, np_error *err)
{
    int n = server->options.n_workers;
    server->workers = arena_push_array(&server->arena, (size_t)n, sizeof *server->workers);
    if (!server->workers) return error_nomem(err, "workers", (size_t)n);
    for (; server->n_workers < n; server->n_workers++)
        if (pthread_create(&server->workers[server->n_workers], NULL, worker, server) != 0)
            return error_set(err, NP_ENOMEM, "workers", NO_OFFSET, "no thread could be made");
    return NP_OK;
}

void work_end(struct server *server)
{
    pthread_mutex_lock(&server->lock);
    server->closing = true;
    pthread_cond_broadcast(&server->tasks);
    pthread_mutex_unlock(&server->lock);
    for (int i = 0; i < server->n_workers; i++) pthread_join(server->workers[i], NULL);
    server->n_workers = 0;
}
