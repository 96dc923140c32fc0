/*
 * server.h - the HTTP server: what trainers, evaluation harnesses and OpenAI clients already send,
 * answered by one engine with exact numbers.
 *
 *   server_open    listens; /health answers 503 until a model is there
 *   server_ready   hands over model and engine: from here on requests are answered
 *   server_stop    takes no new requests; those that run end (any thread, a signal handler too)
 *   server_close   waits for them and frees everything
 *
 * Threads. libmicrohttpd's one thread moves bytes and nothing else (http.c). A few workers parse,
 * check, submit and write answers (work.c). The engine's own thread computes, and tells what is
 * ready (exchange.c). One more watches for clients that leave or dawdle (watch_clients.c). A
 * request is a `struct exchange`, which one worker at a time touches; what threads share of it is
 * guarded by the server's one lock, which nobody holds while working.
 *
 *   http.c      bytes of a request come in    routes.c   the table: which file answers a path
 *   work.c      the workers' queue            bodyfields.c the table's fields -> struct ask
 *   exchange.c  the stations of a request     ask.c      struct ask -> np_request
 *   reply.c     errors and answers go out     route_*.c  one family of routes each
 *
 * A new route: one row in routes.c, its fields and two functions in a route_*.c.
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "nepit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct server;

/* Zeros are the defaults. Texts are borrowed until server_close. */
struct server_options {
    const char *host;              /* NULL: 127.0.0.1 */
    int port;                      /* 0: 8000; -1: any free one */
    const char *served_model_name; /* several by commas; NULL: the last part of the model's path */
    const char *chat_template;     /* text, in place of the model's own; NULL: that */
    const char *api_keys;          /* a key per line; NULL: nobody needs one */
    const char *allowed_hosts;     /* further names for the Host header, by commas; "*": any */
    const char *allowed_origins;   /* of browsers, by commas; "*": any; NULL: none */
    const char *access_log;        /* a file; NULL: none; "-": standard error */
    bool log_texts;                /* prompts and answers too */
    int logprobs_mode;             /* place in server_modes; 0: raw_logprobs */
    int64_t max_logprobs;          /* most tokens told per row; 0: no limit */
    size_t max_body_bytes;         /* 0: 256 MiB */
    size_t max_answer_bytes;       /* 0: 1 GiB */
    int max_concurrency;           /* requests at a time, those that wait included; 0: 1024 */
    int max_per_key;               /* of one key, or of all without one; 0: max_concurrency */
    int max_connections;           /* 0: 4096, cut to what the system allows */
    int64_t timeout_ms;            /* of a request, from its last byte on; 0: none */
    int64_t receive_ms;            /* for its headers and body; 0: 60 s */
    int n_workers;                 /* 0: 4 */
};

/* raw_logprobs, raw_logits, processed_logprobs, processed_logits; ends with NULL. */
extern const char *const server_modes[];

np_status server_open(const struct server_options *options, struct server **out, np_error *err);
/* "127.0.0.1:8000", as it listens. */
const char *server_address(const struct server *server);
/* Both stay open until server_close. fingerprint: of the model's files; told, and compared when
 * asked. */
void server_ready(struct server *server, np_model *model, np_engine *engine, size_t n_context,
                  const char *fingerprint);
void server_failed(struct server *server, const char *why); /* /health tells it */
void server_stop(struct server *server);                    /* async-signal-safe */
void server_wait(struct server *server);                    /* until server_stop was called */
void server_close(struct server *server); /* waits for the requests that run; NULL allowed */

#endif
