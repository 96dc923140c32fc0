/*
 * engine.h - who runs when. Owns the threads, the pages and the work space of one model.
 *
 * Concurrency, all of it:
 *   Jobs are submitted from any thread; submitting takes the lock, appends to a list and wakes the
 *   engine's own thread. That thread alone decides, owns the tree of pages and everything of a job
 *   until it is finished; between two steps it takes the lock once, to move new jobs over. The
 *   pool's threads only compute what it hands them and are idle between two regions. A job tells
 *   its caller by its event function, called on the engine's thread without the lock: it may lock
 *   something of the caller's own, and must not wait. Cancelling stores one flag of the job, or of
 *   the engine, from anywhere. The model is never written: any number of engines may share it.
 *
 * Time is cut into steps: one pass of up to chunk_rows rows through the model, and of fewer where
 * they stand so far on in their texts that attention costs more than matrices. All rows of a step,
 * of whatever jobs, pass each matrix together; what is asked of their last hidden rows follows.
 *
 *   job a   |aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ...
 *   job b          |bbbbb|                            arrives, shares a's first pages, computes the
 * rest
 *   steps   |-- a --|- a a b -|-- a --| ...
 *
 * Callers share a step evenly: rows are dealt by pages (64) to whoever had the least so far, of the
 * jobs with the lowest priority number. So with n callers a job waits for the step that is running,
 * and from then on gets one n-th of the rows of the next steps, however long the others' texts are.
 *
 * Whatever is computed goes into the tree of pages (tree.h), where every job looks before it
 * computes: shared beginnings are computed once, in a batch, across steps and after the job. A job
 * that finds no page is helped by evicting cached ones, then by preempting later jobs, which start
 * again: their answered rows stay. No bit of an answer depends on any of this.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "engine/generation.h"
#include "model/model.h"
#include "score/head.h"

#define ENGINE_CHUNK_ROWS 512 /* default; a chunk streams every weight once */
#define ENGINE_MAX_CHUNK_ROWS 8192
#define ENGINE_CACHE_BYTES ((size_t)256 << 20)

struct engine;

struct engine_limits {
    int n_threads;       /* 0: one per core */
    bool oversubscribe;  /* allow more threads than cores */
    size_t n_context;    /* tokens; 0: the model's own */
    size_t chunk_rows;   /* 0: ENGINE_CHUNK_ROWS */
    size_t max_memory;   /* bytes for weights, pages and work space; 0: see engine.c */
    size_t cache_memory; /* bytes of pages kept when no job uses them; 0: ENGINE_CACHE_BYTES */
    bool no_cache;       /* keep none */
};

/* Plans the memory first: NP_ELIMIT with the sum when a sequence of n_context would not fit. */
np_status engine_open(const struct model *model, const struct engine_limits *limits,
                      struct engine **out, np_error *err);
/* Jobs that are not finished are cancelled, and told so. */
void engine_close(struct engine *engine);
size_t engine_n_context(const struct engine *engine);

/* Whoever shares an engine with others: all zeros, and alive as long as its jobs. */
struct caller {
    uint64_t served; /* rows; never behind whoever had least when it came */
    struct job *first, *last, *at;
    struct caller *next;
};

/* One sequence to be answered. Everything is the caller's memory and is left alone until the event
 * that says `finished`; from then on the engine does not touch it. */
struct job {
    const struct plan *plan;
    struct generation *generation; /* NULL: none */
    struct caller *caller;
    int priority;         /* lower goes first, before any fairness */
    uint64_t deadline_ns; /* of CLOCK_MONOTONIC; 0: none. NP_ETIMEOUT where it is not met */
    const char *salt;     /* sees only pages that came with the same salt; NULL: "" */
    size_t n_salt_bytes;
    bool skip_cache;                /* neither reads pages of others nor leaves any */
    void (*event)(struct job *job); /* rows are ready, or it is finished; engine's thread */
    void *user;

    /* Arrays of the whole plan, indexed by row (NULL where not wanted). */
    float *logprobs;     /* [n_scored] */
    int32_t *ranks;      /* [n_scored] */
    float *entropies;    /* [n_rows] */
    float *mass, *tail;  /* [n_rows] */
    int32_t *top_ids;    /* [n_rows][n_top] */
    float *top_logprobs; /* [n_rows][n_top] */
    float *scores;       /* [n_rows][n_candidates] */

    /* Out. */
    np_error error;    /* NP_OK, or why this job failed */
    bool finished;     /* nothing follows */
    size_t n_answered; /* rows of the arrays that are final, from the first on */
    size_t n_computed; /* tokens that went through the model for it */
    size_t at;         /* tokens whose keys and values are there: progress */

    /* The engine's own. */
    atomic_int cancel;
    uint64_t number; /* of arrival */
    struct job *previous, *next;
    struct node *root, **path; /* [kv_pages(length)]; nodes of tokens [0, at) */
    float **pages;             /* theirs */
    size_t n_path, n_asked, n_sound;
    uint64_t seen; /* number of the plan that saw it last */
    size_t run;    /* its run in that step that ends at `at`, or SIZE_MAX */
    bool busy;     /* a member of the step: that computes or asks rows of its pages, or it failed */
};

uint64_t monotonic_ns(void); /* the clock of deadlines */

/* Takes jobs over, a list by `next`: the next step sees all of them. NP_ECANCELLED, and none is
 * taken: the engine is closing. */
np_status engine_submit(struct engine *engine, struct job *jobs, np_error *err);

/* Ends one job before its next step: NP_ECANCELLED. It must not be finished yet. */
void engine_cancel_job(struct engine *engine, struct job *job);
/* Ends all jobs within a layer; those that are done stay. With none there it ends the next ones.
 * Async-signal-safe. */
void engine_cancel(struct engine *engine);

struct engine_stats {
    uint64_t n_jobs;      /* taken so far */
    uint64_t n_tokens;    /* of them: those that were asked about */
    uint64_t n_computed;  /* rows that went through the model */
    uint64_t n_generated; /* tokens */
    uint64_t busy_ns;     /* in steps, without the planning of them */
    uint64_t n_steps, n_evicted, n_preempted;
    size_t n_waiting, n_running;    /* jobs */
    size_t n_pages, n_cached;       /* that exist; of them used by no job */
    size_t page_bytes, cache_bytes; /* of one; the cache's limit */
};
struct engine_stats engine_stats(struct engine *engine);

/* These wait until the step that runs is over, and for each other. clear: forgets every cached
 * page. save, load: cachefile.c; what a load finds beyond the limit of the cache it leaves out. */
void engine_clear_cache(struct engine *engine);
np_status engine_save_cache(struct engine *engine, const char *path, np_error *err);
np_status engine_load_cache(struct engine *engine, const char *path, np_error *err);

#endif
