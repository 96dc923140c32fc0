/*
 * metrics.h - what the server counts. Guarded by the server's lock.
 */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "base/buf.h"

enum { N_BUCKETS = 16 };

struct histogram {
    uint64_t counts[N_BUCKETS + 1]; /* the last one: above all bounds */
    double sum;
    uint64_t n;
};

/* How a request ended; the order of metrics.c's names. */
enum outcome { ENDED_STOP, ENDED_LENGTH, ENDED_ABORT, ENDED_ERROR, ENDED_SCORED, N_OUTCOMES };

struct metrics {
    uint64_t outcomes[N_OUTCOMES];
    uint64_t statuses[600]; /* answers by status of HTTP */
    uint64_t n_prompt_tokens, n_generated_tokens, n_cached_tokens;
    struct histogram first_token_s, whole_s, queue_s, answer_bytes;
};

struct server;
struct exchange;
/* An exchange is over; the lock is held. */
void metrics_add(struct metrics *metrics, const struct exchange *exchange);
/* The text that Prometheus reads. */
void metrics_write(struct server *server, struct buf *out);

#endif
