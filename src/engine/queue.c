/*
 * queue.c - jobs in and out, and the loop of the engine's thread.
 *
 * Jobs arrive in one list under the lock; the thread moves them to their callers between two steps.
 * A job leaves by one function, whatever became of it, so that it is told exactly once.
 */
#include "engine/state.h"

#include "base/arena.h"

#include <time.h>

uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- from any thread ------------------------------------------------------------------------- */

np_status engine_submit(struct engine *engine, struct job *jobs, np_error *err)
{
    pthread_mutex_lock(&engine->lock);
    bool closing = engine->closing;
    if (!closing && jobs) {
        *(engine->arrived ? &engine->arrived_last->next : &engine->arrived) = jobs;
        for (; jobs; jobs = jobs->next) {
            engine->arrived_last = jobs;
            engine->stats.n_jobs++;
            engine->stats.n_waiting++;
        }
        pthread_cond_signal(&engine->work);
    }
    pthread_mutex_unlock(&engine->lock);
    return closing ? error_set(err, NP_ECANCELLED, NULL, NO_OFFSET, "the engine is closing")
                   : NP_OK;
}

void engine_cancel_job(struct engine *engine, struct job *job)
{
    atomic_store(&job->cancel, 1);
    pthread_mutex_lock(&engine->lock);
    engine->look = true;
    pthread_cond_signal(&engine->work);
    pthread_mutex_unlock(&engine->lock);
}

void engine_cancel(struct engine *engine)
{
    atomic_store(&engine->cancel, 1);
}

struct engine_stats engine_stats(struct engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    struct engine_stats stats = engine->stats;
    pthread_mutex_unlock(&engine->lock);
    return stats;
}

static np_status send_errand(struct engine *engine,
                             np_status (*go)(struct engine *, const char *, np_error *),
                             const char *path, np_error *err)
{
    struct errand errand = {.go = go, .path = path, .err = err};
    pthread_mutex_lock(&engine->lock);
    errand.next = engine->errands;
    engine->errands = &errand;
    pthread_cond_signal(&engine->work);
    while (!errand.done) pthread_cond_wait(&engine->errand_done, &engine->lock);
    pthread_mutex_unlock(&engine->lock);
    return errand.status;
}

static np_status cache_clear(struct engine *engine, const char *path, np_error *err)
{
    tree_clear(&engine->tree);
    return NP_OK;
}

void engine_clear_cache(struct engine *engine)
{
    send_errand(engine, cache_clear, NULL, NULL);
}

np_status engine_save_cache(struct engine *engine, const char *path, np_error *err)
{
    return send_errand(engine, cache_save, path, err);
}

np_status engine_load_cache(struct engine *engine, const char *path, np_error *err)
{
    return send_errand(engine, cache_load, path, err);
}

/* ---- arriving and leaving -------------------------------------------------------------------- */

/* Behind the caller's jobs of the same priority. A caller that was away starts with the least that
 * any other has had, so that it neither pays for nor profits from its absence. */
static void job_arrive(struct engine *engine, struct job *job)
{
    struct caller *caller = job->caller;
    if (!caller->first) {
        uint64_t least = UINT64_MAX;
        for (struct caller *other = engine->callers; other; other = other->next)
            least = other->served < least ? other->served : least;
        if (engine->callers && caller->served < least) caller->served = least;
        caller->next = engine->callers;
        engine->callers = caller;
    }
    struct job *before = caller->last;
    while (before && before->priority > job->priority) before = before->previous;
    job->previous = before;
    job->next = before ? before->next : caller->first;
    *(before ? &before->next : &caller->first) = job;
    *(job->next ? &job->next->previous : &caller->last) = job;

    job->number = engine->n_numbers++;
    engine->n_jobs++;
    engine->n_tokens += job->plan->n_tokens;
    if (job->deadline_ns &&
        (!engine->next_deadline_ns || job->deadline_ns < engine->next_deadline_ns))
        engine->next_deadline_ns = job->deadline_ns;
}

/* What others see of the engine's own figures; under lock. */
static void update_stats(struct engine *engine)
{
    struct engine_stats *stats = &engine->stats;
    stats->n_tokens = engine->n_tokens;
    stats->n_computed = engine->n_computed;
    stats->n_generated = engine->n_generated;
    stats->busy_ns = engine->busy_ns;
    stats->n_steps = engine->n_steps;
    stats->n_preempted = engine->n_preempted;
    stats->n_evicted = engine->tree.n_evicted;
    stats->n_pages = engine->tree.n_pages;
    stats->n_cached = engine->tree.n_cached;
    stats->n_running = engine->n_jobs;
}

static void job_leave(struct engine *engine, struct job *job)
{
    struct caller *caller = job->caller, **at = &engine->callers;
    *(job->previous ? &job->previous->next : &caller->first) = job->next;
    *(job->next ? &job->next->previous : &caller->last) = job->previous;
    if (!caller->first) {
        while (*at != caller) at = &(*at)->next;
        *at = caller->next;
    }
    engine->n_jobs--;
    schedule_release(engine, job);
    if (job->root) tree_unpin(&engine->tree, job->root);
    mem_free(job->path);
    job->root = NULL;
    job->path = NULL;
    pthread_mutex_lock(&engine->lock);
    update_stats(engine); /* whoever hears of the end finds it counted */
    pthread_mutex_unlock(&engine->lock);
    job->finished = true;
    job->event(job); /* from here on it may be gone */
}

static bool job_done(const struct job *job)
{
    if (job->error.status != NP_OK) return true;
    if (job->generation && !job->generation->finish) return false;
    return job->n_answered == job->plan->n_rows;
}

/* Cancelled jobs, and those whose time is over. */
static void look_at_jobs(struct engine *engine, bool all)
{
    uint64_t now = monotonic_ns(), next_deadline = 0;
    for (struct caller *caller = engine->callers, *next; caller; caller = next) {
        next = caller->next;
        for (struct job *job = caller->first, *after; job; job = after) {
            after = job->next;
            if (all || atomic_load(&job->cancel))
                job_fail(job, NP_ECANCELLED, NULL, "cancelled");
            else if (job->deadline_ns && job->deadline_ns <= now)
                job_fail(job, NP_ETIMEOUT, "timeout", "not done in the time that was given");
            else if (job->deadline_ns && (!next_deadline || job->deadline_ns < next_deadline))
                next_deadline = job->deadline_ns;
            if (job_done(job)) job_leave(engine, job);
        }
    }
    engine->next_deadline_ns = next_deadline;
}

/* After a step: members hear what is new, and leave where nothing follows. A step without any would
 * be repeated for ever: a fault of the memory plan, which ends a job. */
static void tell_members(struct engine *engine)
{
    if (engine->n_members == 0) {
        engine->members[engine->n_members++] = engine->callers->first;
        job_fail(engine->members[0], NP_EINTERNAL, "max_memory", "no page can be had");
    }
    for (size_t i = 0; i < engine->n_members; i++) {
        struct job *job = engine->members[i];
        if (job->error.status == NP_OK) job->n_answered = job->n_asked;
        job->busy = false;
        if (job_done(job))
            job_leave(engine, job);
        else
            job->event(job);
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void run_errands(struct engine *engine, struct errand *errands)
{
    if (!errands) return;
    for (struct errand *errand = errands; errand; errand = errand->next)
        errand->status = errand->go(engine, errand->path, errand->err);
    pthread_mutex_lock(&engine->lock);
    for (struct errand *next; errands; errands = next) { /* done: it may be gone */
        next = errands->next;
        errands->done = true;
    }
    pthread_cond_broadcast(&engine->errand_done);
    pthread_mutex_unlock(&engine->lock);
}

/* What has come in, to the engine's thread. */
struct mail {
    struct job *arrived;
    struct errand *errands;
    bool look, closing;
};

/* Sleeps until there is something to do. */
static struct mail wait_for_work(struct engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    update_stats(engine);
    while (!engine->n_jobs && !engine->arrived && !engine->closing && !engine->errands)
        pthread_cond_wait(&engine->work, &engine->lock);
    struct mail mail = {engine->arrived, engine->errands, engine->look, engine->closing};
    engine->arrived = NULL;
    engine->errands = NULL;
    engine->look = false;
    engine->stats.n_waiting = 0;
    pthread_mutex_unlock(&engine->lock);
    return mail;
}

static void take_arrived(struct engine *engine, struct job *arrived)
{
    while (arrived) {
        struct job *job = arrived;
        arrived = job->next;
        job_arrive(engine, job);
        if (job_done(job)) job_leave(engine, job); /* no rows */
    }
}

/* Not inlined: no arithmetic may move across fpenv_enter. */
__attribute__((noinline)) static void loop(struct engine *engine)
{
    struct mail mail;
    do {
        mail = wait_for_work(engine);
        take_arrived(engine, mail.arrived);
        run_errands(engine, mail.errands);
        bool late = engine->next_deadline_ns && engine->next_deadline_ns <= monotonic_ns();
        bool all = mail.closing || (engine->n_jobs && atomic_exchange(&engine->cancel, 0));
        if (all || mail.look || late) look_at_jobs(engine, all);
        if (!engine->n_jobs) continue;
        schedule_step(engine);
        (void)fpenv_enter(); /* an event may have left another mode behind */
        uint64_t begin = monotonic_ns();
        np_status status = step_run(engine, NULL);
        engine->busy_ns += monotonic_ns() - begin;
        if (status == NP_OK) {
            tell_members(engine);
        } else {
            atomic_store(&engine->cancel, 0);
            look_at_jobs(engine, true);
        }
    } while (!mail.closing);
}

void *queue_thread(void *engine)
{
    fpenv_enter();
    loop(engine);
    return NULL;
}
