/*
 * engine.h - who runs when. Owns the threads, the KV memory and the work space of one model.
 *
 * Concurrency, all of it: engine_run takes the lock at the door, so one call runs at a time. Inside
 * it one thread, the caller's, makes every decision and owns the KV; the pool's threads only
 * compute what they are handed, and are idle between two regions. engine_cancel stores one flag,
 * from anywhere. The model is never written, so any number of engines may share it.
 *
 * Jobs are put into steps of up to chunk_rows rows, in their order: short sequences share a step, a
 * long one is cut. After each step its wanted rows go through the head, and their answers into the
 * arrays of their jobs. The composition of a step never changes a bit of an answer.
 *
 *   jobs    |aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa|bbbbb|cc|dddddddddddddddd|
 *   steps   |--- chunk_rows ---|--- chunk_rows ---|--- chunk_rows ---|
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "model/model.h"
#include "score/head.h"

#define ENGINE_CHUNK_ROWS 512 /* default; a chunk streams every weight once */
#define ENGINE_MAX_CHUNK_ROWS 8192

struct engine;

struct engine_limits {
    int n_threads;      /* 0: one per core */
    bool oversubscribe; /* allow more threads than cores */
    size_t n_context;   /* tokens; 0: the model's own */
    size_t chunk_rows;  /* 0: ENGINE_CHUNK_ROWS */
    size_t max_memory;  /* bytes for weights, KV and work space; 0: no limit */
};

/* Plans the memory first: NP_ELIMIT with the sum when a sequence of n_context would not fit. */
np_status engine_open(const struct model *model, const struct engine_limits *limits,
                      struct engine **out, np_error *err);
void engine_close(struct engine *engine);
void engine_cancel(struct engine *engine); /* async-signal-safe */
size_t engine_n_context(const struct engine *engine);

/* One sequence to be answered: arrays of the whole plan, indexed by row (NULL where not wanted). */
struct job {
    const struct plan *plan;
    float *logprobs;     /* [n_scored] */
    int32_t *ranks;      /* [n_scored] */
    float *entropies;    /* [n_rows] */
    float *mass, *tail;  /* [n_rows] */
    int32_t *top_ids;    /* [n_rows][n_top] */
    float *top_logprobs; /* [n_rows][n_top] */
    float *scores;       /* [n_rows][n_candidates] */
    np_error error;      /* out: NP_OK, or why this job failed */
    size_t n_computed;   /* out: tokens that went through the model */
};

typedef void engine_progress(void *user, size_t done, size_t total);

/* Runs all jobs. NP_OK also when single jobs failed; else (cancelled) every job that was not done
 * holds the error. progress (may be NULL) is told rows of the forward pass. */
np_status engine_run(struct engine *engine, struct job *jobs, size_t n_jobs,
                     engine_progress *progress, void *user, np_error *err);

#endif
