/*
 * engine.h - who runs when. Owns the threads, the KV memory and the work space of one model.
 *
 * One call runs at a time (a lock at the door); inside it, one thread, the caller's, owns the KV and all
 * decisions, and the pool only computes. Jobs are put into steps of up to chunk_rows rows: short sequences
 * share a step, long ones are cut. After each step the wanted rows go through the head and their answers
 * into the jobs' arrays. The composition of a step never changes a bit.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "model/model.h"
#include "score/head.h"

struct engine;

struct engine_limits { int n_threads; size_t n_context, chunk_rows, kv_bytes; };

np_status engine_open(const struct model *model, const struct engine_limits *limits, struct engine **out,
                      np_error *err);
void engine_close(struct engine *engine);
void engine_cancel(struct engine *engine);
size_t engine_n_context(const struct engine *engine);

/* One sequence to be answered: `out` are full arrays of the plan, indexed by row (NULL where not wanted). */
struct job {
    const struct plan *plan;
    float *logprobs, *entropies, *mass, *tail, *top_logprobs, *scores;
    int32_t *ranks, *top_ids;
    np_error error;       /* NP_OK when done */
    size_t n_computed;
};

typedef void engine_progress(void *user, size_t done, size_t total);
np_status engine_run(struct engine *engine, struct job *jobs, size_t n_jobs, engine_progress *progress,
                     void *user, np_error *err);

#endif
