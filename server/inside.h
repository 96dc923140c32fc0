/*
 * inside.h - what the files of the server share: its state, the workers' queue, counters.
 */
#ifndef SERVER_INSIDE_H
#define SERVER_INSIDE_H

#include "exchange.h"
#include "metrics.h"

#include <microhttpd.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

enum server_state { SERVER_LOADING, SERVER_READY, SERVER_FAILED, SERVER_STOPPING };

#define MAX_KEYS 64
#define MAX_KEY_BYTES 512
#define MAX_JSON_DEPTH 64
#define MAX_JSON_BYTES ((size_t)1 << 30) /* of one body, in memory */

/* One connection: what the watcher must know of it. */
struct client {
    struct server *server;
    int socket;
    uint64_t since_ns;   /* when its last answer was over, or it was opened */
    uint64_t began_ns;   /* when the request that comes in began; 0: none does */
    uint64_t n_received; /* bytes, at `since` */
    uint64_t n_taken;    /* bytes of answers, when the watcher last saw it take any */
    uint64_t taken_ns;   /* when that was */
    bool working;        /* its request is whole: receiving it has no deadline any more */
    bool leaves;         /* the watcher has seen that it sends nothing more */
    bool dead;           /* shut down by the watcher */
    struct client *next, *previous;
};

struct server {
    struct server_options options; /* with their defaults */
    char address[96], model_name[256], fingerprint[96];
    np_string keys[MAX_KEYS];
    size_t n_keys;
    struct arena arena; /* keys, names */
    uint64_t opened_ns, opened_s;

    np_model *model;
    np_engine *engine;
    np_info info;
    size_t n_context;

    struct MHD_Daemon *daemon;
    sem_t stop; /* posted by server_stop */
    pthread_t watcher, *workers;
    int n_workers;
    bool has_watcher;
    int watch_fd, end_fd; /* epoll: sockets of suspended connections */
    int log_fd;           /* -1: none */

    pthread_mutex_t lock;
    pthread_cond_t tasks, idle; /* idle: an exchange is over */
    _Atomic int state;          /* enum server_state */
    bool closing;               /* workers end when there is no task */
    char failure[256];
    struct exchange *first_task, *last_task, *exchanges;
    struct client *clients;
    int n_clients, n_open;         /* n_open: exchanges */
    int n_running;                 /* exchanges that count against max_concurrency */
    int key_running[MAX_KEYS + 1]; /* the last one: without a key */
    uint64_t n_exchanges;          /* so far */
    size_t n_body_bytes;           /* of all bodies that are in memory */
    struct buf reported;           /* unknown fields that the log has told, "\n" around each */
    struct metrics metrics;
};

/* ---- server.c -------------------------------------------------------------------------------- */

/* The i-th name that the model is served under; false: it has fewer. */
bool server_name(const struct server *server, size_t i, char out[256]);

/* ---- work.c ---------------------------------------------------------------------------------- */

np_status work_begin(struct server *server, np_error *err);
void work_end(struct server *server);
/* The lock is held. */
void work_queue(struct exchange *exchange);

/* ---- http.c ---------------------------------------------------------------------------------- */

np_status http_begin(struct server *server, np_error *err);
void http_pause(struct server *server); /* no new connections */
void http_end(struct server *server);
/* Its turn to send, if it waits for it. The lock is not held. */
void http_resume(struct exchange *exchange);

/* ---- watch_clients.c ------------------------------------------------------------------------- */

np_status clients_begin(struct server *server, np_error *err);
void clients_end(struct server *server);
void client_opened(struct server *server, int socket, void **client);
void client_closed(struct client *client);
/* A request's first line is there (true), or its answer is over. */
void client_turn(struct client *client, bool request);
/* The body is whole. */
void client_received(struct client *client);
/* While a connection is suspended nobody reads it: is its other end still there? */
void client_watch(struct exchange *exchange);
void client_unwatch(struct exchange *exchange);

/* ---- access.c -------------------------------------------------------------------------------- */

np_status access_begin(struct server *server, np_error *err); /* keys */
/* Who may ask what: 0, or a status of HTTP and why. */
int access_check(struct exchange *exchange, const char **why);
void access_headers(struct exchange *exchange, struct MHD_Response *response);

/* ---- accesslog.c ----------------------------------------------------------------------------- */

np_status log_begin(struct server *server, np_error *err);
void log_end(struct server *server);
void log_exchange(struct exchange *exchange);

/* ---- reply.c --------------------------------------------------------------------------------- */

/* An error becomes the answer: status, type and field of HTTP. */
void reply_error(struct exchange *exchange, const np_error *err);
void reply_refuse(struct exchange *exchange, int status, const char *field, const char *message);
/* What of a stream cannot become a status any more: an event. */
void reply_error_event(struct exchange *exchange, const np_error *err);
/* Hands `out` to libmicrohttpd as the answer; its thread alone. */
enum MHD_Result reply_send(struct exchange *exchange);
void reply_squeeze(struct exchange *exchange); /* gzip or zstd, where it is worth it */
/* What a client takes, by its Accept-Encoding (NULL allowed). */
enum squeeze squeeze_for(const char *accepted);

uint64_t clock_ns(void);

#endif
