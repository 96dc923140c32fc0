/*
 * state.h - the inside of an engine. Opening: engine.c; jobs in and out: queue.c; what goes into a
 * step: schedule.c; running it: steps.c. Except for what stands under `lock`, everything belongs to
 * the engine's thread.
 */
#ifndef ENGINE_STATE_H
#define ENGINE_STATE_H

#include "engine/engine.h"
#include "engine/tree.h"

#include <pthread.h>

/* Something that the engine's thread does between two steps, for a thread that waits. */
struct errand {
    np_status (*go)(struct engine *engine, const char *path, np_error *err);
    const char *path;
    np_error *err;
    np_status status;
    bool done;
    struct errand *next;
};

#define DRAW_ROWS 16

_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler stores the cancel flag");

struct engine {
    const struct model *model;
    int n_threads;
    size_t n_context, chunk_rows, max_pages, max_cached;
    size_t deep, max_cost; /* of a step; see add_rows */
    struct pool *pool;
    struct workspace *workspace;
    struct head_space *head_space;
    struct arena arena;
    atomic_int cancel; /* all jobs */

    pthread_mutex_t lock;
    pthread_cond_t work, errand_done;
    pthread_t thread;
    bool has_thread;
    /* under lock */
    struct job *arrived, *arrived_last;
    struct errand *errands;
    bool closing, look; /* look: a job was cancelled */
    struct engine_stats stats;

    struct tree tree;
    struct caller *callers; /* with jobs */
    size_t n_jobs;
    uint64_t next_deadline_ns; /* 0: none */
    uint64_t n_numbers, n_preempted, n_steps, n_computed, n_tokens, n_generated, busy_ns;

    /* the step at hand; all arrays [chunk_rows] */
    struct step step;
    int32_t *ids;
    bool *wanted;
    struct run *runs;
    struct job **run_jobs; /* of each run */
    struct page_copy *copies;
    struct node **copy_nodes; /* [2 chunk_rows] from, to */
    struct job **members;     /* jobs that take part */
    size_t n_members, n_asked, step_cost;
    uint64_t n_plans;
    bool no_page; /* a job of this plan found none */
    struct head_row *head_rows;
    struct job **row_jobs;   /* of each head row */
    struct node **row_nodes; /* that hold their hidden rows */
    int32_t *bad;

    /* generate.c: rows of logits that tokens are drawn from, DRAW_ROWS at a time */
    struct draw *draws;
    float *logits;         /* [DRAW_ROWS][ld_logits] */
    float *drawn;          /* [n_threads][ld_logits] the row at hand, processed */
    uint8_t *sample_space; /* [n_threads][sample_bytes] */
    size_t ld_logits, sample_bytes;
};

/* schedule.c: fills engine->step from the jobs that there are. Jobs that cannot go on fail. */
void schedule_step(struct engine *engine);
/* Lets go of the pages of a job; it would begin anew. */
void schedule_release(struct engine *engine, struct job *job);

/* steps.c: runs the step, writes answers. On NP_ECANCELLED no job of it has advanced. */
np_status step_run(struct engine *engine, np_error *err);
void step_bad_logit(struct job *job, float temperature, size_t position, int32_t id);

/* generate.c: a token for every job of the step that draws one. */
size_t generate_bytes(size_t n_vocab, int n_threads);
np_status generate_open(struct engine *engine, np_error *err);
void generate_tokens(struct engine *engine);

/* queue.c: the engine's thread; and the end of a job. */
void *queue_thread(void *engine);

/* cachefile.c: as engine_save_cache and engine_load_cache, on the engine's thread. */
np_status cache_save(struct engine *engine, const char *path, np_error *err);
np_status cache_load(struct engine *engine, const char *path, np_error *err);

/* The first error of a job stays. */
void job_fail(struct job *job, np_status status, const char *where, const char *message);

/* Tokens that must be in pages: up to the last row that is wanted, or drawn from. */
static inline size_t job_length(const struct job *job)
{
    if (job->generation) return job->plan->n_tokens + job->generation->n_generated;
    return job->plan->n_rows ? job->plan->start + job->plan->n_rows : 0;
}
/* The same, at most ever. */
static inline size_t job_most(const struct job *job)
{
    return job_length(job) +
           (job->generation ? job->generation->max_tokens - job->generation->n_generated : 0);
}

#endif
