/*
 * steps.h - the inside of an engine, shared by engine.c (opening) and steps.c (running).
 */
#ifndef ENGINE_STEPS_H
#define ENGINE_STEPS_H

#include "engine/engine.h"

#include <pthread.h>
#include <stdatomic.h>

_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler stores the cancel flag");

struct engine {
    const struct model *model;
    int n_threads;
    size_t n_context, chunk_rows, max_pages;
    atomic_int cancel;
    pthread_mutex_t door;
    struct pool *pool;
    struct kv_pool kv;
    struct workspace *workspace;
    struct head_space *head_space;
    struct arena arena;
    /* of the step at hand */
    int32_t *ids;     /* [chunk_rows] */
    struct run *runs; /* [chunk_rows] */
    size_t *run_jobs; /* [chunk_rows] job of each run */
    struct kv_seq
        *seqs;     /* [chunk_rows] one per run of the step; [0] is carried over by a cut job */
    float *hidden; /* [chunk_rows][dim] */
    struct head_row *head_rows; /* [chunk_rows] */
    size_t *row_jobs;           /* [chunk_rows] job of each head row */
    int32_t *bad;               /* [chunk_rows] */
};

#endif
