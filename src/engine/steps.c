/*
 * steps.c - jobs in, steps through the model and the head, answers out.
 *
 * Jobs begin in their order and at most one is ever half done: the one that the last step cut. So
 * the state between steps is two numbers (the next job, how far it is) and that job's pages.
 */
#include "engine/steps.h"

struct progress_state {
    size_t done, total;
    engine_progress *tell;
    void *user;
};

/* Tokens that must go through the model: up to the last row that is wanted. */
static size_t job_length(const struct job *job)
{
    return job->plan->n_rows ? job->plan->start + job->plan->n_rows : 0;
}

static size_t clamp(size_t value, size_t low, size_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Adds tokens [first, first + n) of a job to the step. */
static void add_run(struct engine *engine, struct step *step, const struct job *job,
                    size_t job_index, size_t first, size_t n)
{
    const struct plan *plan = job->plan;
    struct run *run = &engine->runs[step->n_runs];
    size_t last = first + n, end = plan->start + plan->n_rows;
    *run = (struct run){
        .seq = &engine->seqs[step->n_runs], .first = first, .n_rows = n, .row = step->n_rows};
    run->want_begin = clamp(plan->start, first, last) - first;
    run->want_end = clamp(end, first, last) - first;
    memcpy(engine->ids + step->n_rows, plan->token_ids + first, n * sizeof(int32_t));
    engine->run_jobs[step->n_runs++] = job_index;
    step->n_rows += n;
    step->n_wanted += run->want_end - run->want_begin;
}

static struct head_row head_row_of(const struct job *job, size_t row, const float *hidden)
{
    const struct plan *plan = job->plan;
    size_t j = row - plan->start;
    struct head_row out = {.plan = plan, .hidden = hidden, .j = j, .target = -1};
    if (j < plan->n_scored) {
        if (job->logprobs) out.logprob = job->logprobs + j;
        if (job->ranks) out.rank = job->ranks + j;
        if (job->logprobs || job->ranks) out.target = plan->token_ids[row + 1];
    }
    if (job->entropies) out.entropy = job->entropies + j;
    if (job->mass) out.mass = job->mass + j;
    if (job->tail) out.tail = job->tail + j;
    if (job->top_ids) out.top_ids = job->top_ids + j * plan->n_top;
    if (job->top_logprobs) out.top_logprobs = job->top_logprobs + j * plan->n_top;
    if (job->scores) out.scores = job->scores + j * plan->n_candidates;
    return out;
}

static void fail_job(struct job *job, np_status status, size_t position, const char *what)
{
    char where[48];
    if (job->error.status != NP_OK) return;
    snprintf(where, sizeof where, "token_ids[%zu]", position);
    error_set(&job->error, status, where, NO_OFFSET, "%s", what);
    error_given(&job->error, status, "%d", (int)job->plan->token_ids[position]);
}

/* The wanted rows of a step that has run: through the head, into the jobs. */
static void answer_rows(struct engine *engine, const struct step *step, struct job *jobs)
{
    const struct model *model = engine->model;
    char what[160];
    size_t n = 0;
    for (size_t i = 0; i < step->n_runs; i++) {
        const struct run *run = &step->runs[i];
        struct job *job = &jobs[engine->run_jobs[i]];
        if (run->bad != SIZE_MAX)
            fail_job(
                job, NP_ENUMERIC, run->bad,
                "a key or value of this token is not a finite number: the model overflows here");
        for (size_t r = run->want_begin; r < run->want_end; r++, n++) {
            engine->row_jobs[n] = engine->run_jobs[i];
            engine->head_rows[n] =
                head_row_of(job, run->first + r, engine->hidden + n * model->config.dim);
        }
    }
    if (n == 0) return;
    head_answer(engine->pool, model->kernels, model_head(model), engine->head_space,
                engine->head_rows, n, engine->bad);
    for (size_t i = 0; i < n; i++) {
        if (engine->bad[i] < 0) continue;
        const struct plan *plan = engine->head_rows[i].plan;
        /* Below 1 it is the temperature that makes logits large, and that came with the request. */
        np_status status = plan->temperature < 1 ? NP_EINPUT : NP_ENUMERIC;
        snprintf(
            what, sizeof what, "the logit of token %d after this token is not a finite number%s",
            (int)engine->bad[i],
            plan->temperature != 1 ? " (the logits are divided by the score temperature)" : "");
        fail_job(&jobs[engine->row_jobs[i]], status, plan->start + engine->head_rows[i].j, what);
    }
}

/* Fills a step from job *next, token *at on; moves both on. seqs[0] belongs to the job that was
 * cut. */
static void fill_step(struct engine *engine, struct step *step, struct job *jobs, size_t n_jobs,
                      size_t *next, size_t *at)
{
    *step = (struct step){.ids = engine->ids, .runs = engine->runs};
    while (*next < n_jobs && step->n_rows < engine->chunk_rows) {
        struct job *job = &jobs[*next];
        size_t length = job_length(job), left = length - *at;
        size_t room = engine->chunk_rows - step->n_rows, n = left < room ? left : room;
        np_error err = {0};
        if (length == 0 || job->error.status != NP_OK) {
            (*next)++;
            continue;
        }
        /* Another sequence's pages may fill the memory: then this one waits for the next step. */
        if (kv_reserve(&engine->kv, &engine->seqs[step->n_runs], *at + n, &err) != NP_OK) {
            if (step->n_runs > 0) {
                kv_release(&engine->kv, &engine->seqs[step->n_runs]);
                return;
            }
            job->error = err;
            kv_release(&engine->kv, &engine->seqs[0]);
            (*next)++;
            *at = 0;
            continue;
        }
        add_run(engine, step, job, *next, *at, n);
        job->n_computed += n;
        *at += n;
        if (*at < length) return;
        (*next)++;
        *at = 0;
    }
}

/* Gives back the pages of every sequence of the step but the one that was cut, which moves to
 * seqs[0]. */
static void end_step(struct engine *engine, const struct step *step, struct job *jobs, size_t next,
                     size_t *at)
{
    for (size_t i = 0; i < step->n_runs; i++) {
        bool cut = engine->run_jobs[i] == next && *at > 0;
        if (cut && jobs[next].error.status == NP_OK) {
            if (i > 0) engine->seqs[0] = engine->seqs[i];
            if (i > 0) memset(&engine->seqs[i], 0, sizeof engine->seqs[i]);
            continue;
        }
        if (cut) *at = 0; /* it failed: fill_step passes over it */
        kv_release(&engine->kv, &engine->seqs[i]);
    }
}

/* Not inlined: no arithmetic may move across fpenv_enter and fpenv_leave. */
__attribute__((noinline)) static np_status run_steps(struct engine *engine, struct job *jobs,
                                                     size_t n_jobs, struct progress_state *progress,
                                                     np_error *err)
{
    struct step step;
    size_t next = 0, at = 0;
    for (;;) {
        fill_step(engine, &step, jobs, n_jobs, &next, &at);
        if (step.n_runs == 0) return NP_OK;
        np_status status = model_forward(engine->model, engine->workspace, engine->pool,
                                         &engine->kv, &step, engine->hidden, &engine->cancel, err);
        if (status != NP_OK) {
            for (size_t i = 0; i < step.n_runs; i++) {
                kv_release(&engine->kv, &engine->seqs[i]);
                error_set(&jobs[engine->run_jobs[i]].error, status, NULL, NO_OFFSET, "cancelled");
            }
            for (; next < n_jobs; next++)
                if (jobs[next].error.status == NP_OK && job_length(&jobs[next]) > 0)
                    error_set(&jobs[next].error, status, NULL, NO_OFFSET, "cancelled");
            return status;
        }
        answer_rows(engine, &step, jobs);
        end_step(engine, &step, jobs, next, &at);
        progress->done += step.n_rows;
        if (progress->tell) progress->tell(progress->user, progress->done, progress->total);
    }
}

np_status engine_run(struct engine *engine, struct job *jobs, size_t n_jobs,
                     engine_progress *progress, void *user, np_error *err)
{
    struct progress_state state = {.tell = progress, .user = user};
    for (size_t i = 0; i < n_jobs; i++) state.total += job_length(&jobs[i]);
    pthread_mutex_lock(&engine->door);
    struct fpenv saved = fpenv_enter();
    np_status status = run_steps(engine, jobs, n_jobs, &state, err);
    atomic_store(&engine->cancel, 0);
    fpenv_leave(saved);
    pthread_mutex_unlock(&engine->door);
    return status;
}
