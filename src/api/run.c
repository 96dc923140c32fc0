/*
 * run.c - calls that wait: many requests as one caller of the engine, and the one-request words.
 *
 * The engine's thread tells of progress; the calling thread alone calls back into the program.
 */
#include "api/handles.h"

#include <pthread.h>

struct call {
    pthread_mutex_t lock;
    pthread_cond_t news;
    size_t n_left, done, total;
    struct caller caller;
};
/* What is known of one job; it never runs backwards, a job that was preempted does. */
struct part {
    struct call *call;
    size_t told; /* tokens */
};

/* Tokens of a job that does all that it may. */
static size_t most_tokens(const struct job *job)
{
    if (job->generation) return job->plan->n_tokens + job->generation->max_tokens;
    return job->plan->n_rows ? job->plan->start + job->plan->n_rows : 0;
}

static void part_event(struct job *job)
{
    struct part *part = job->user;
    struct call *call = part->call;
    pthread_mutex_lock(&call->lock);
    size_t at = job->finished ? most_tokens(job) : job->at;
    if (at > part->told) {
        call->done += at - part->told;
        part->told = at;
    }
    call->n_left -= job->finished;
    pthread_cond_signal(&call->news);
    pthread_mutex_unlock(&call->lock);
}

static void wait_for(struct call *call, void (*progress)(void *user, size_t done, size_t total),
                     void *user)
{
    size_t told = 0;
    pthread_mutex_lock(&call->lock);
    while (call->n_left) {
        pthread_cond_wait(&call->news, &call->lock);
        size_t done = call->done;
        if (!progress || done == told) continue;
        pthread_mutex_unlock(&call->lock);
        progress(user, told = done, call->total);
        pthread_mutex_lock(&call->lock);
    }
    size_t done = call->done;
    pthread_mutex_unlock(&call->lock);
    if (progress && done != told) progress(user, done, call->total);
}

/* Hands in all works of the results at once; where none is taken, each is finished with the error.
 * */
static void submit_all(np_engine *engine, np_result *results, size_t n_requests, struct part *parts,
                       struct call *call)
{
    struct job *first = NULL, **last = &first;
    np_error err;
    for (size_t i = 0, k = 0; i < n_requests; i++) {
        size_t n_works;
        struct work *works = result_works(&results[i], &n_works);
        for (size_t w = 0; w < n_works; w++) {
            struct job *job = &works[w].job;
            parts[k].call = call;
            job->caller = &call->caller;
            job->event = part_event;
            job->user = &parts[k++];
            *last = job;
            last = &job->next;
        }
    }
    if (engine_submit(engine->engine, first, &err) == NP_OK) return;
    for (struct job *job = first; job; job = job->next) {
        job->error = err;
        job->finished = true;
        part_event(job);
    }
}

/* Fails the requests that are not refused already. */
static void fail_all(np_result *results, size_t n_requests)
{
    for (size_t i = 0; i < n_requests; i++) {
        if (results[i].error.status != NP_OK) continue;
        np_result_free(&results[i]);
        error_nomem(&results[i].error, "requests", 0);
    }
}

np_status np_run(np_engine *engine, const np_request *requests, size_t n_requests,
                 np_result *results, void (*progress)(void *user, size_t done, size_t total),
                 void *progress_user, np_error *err)
{
    if (n_requests) TRY(need_pointer(results, "results", err));
    if (n_requests) memset(results, 0, n_requests * sizeof *results);
    TRY(need_pointer(engine, "engine", err));
    if (n_requests) TRY(need_pointer(requests, "requests", err));
    if (err) memset(err, 0, sizeof *err);
    struct call call = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};
    for (size_t i = 0; i < n_requests; i++) {
        size_t n_works;
        if (submit_request(engine, &requests[i], &results[i]) != NP_OK) continue;
        const struct work *works = result_works(&results[i], &n_works);
        for (size_t w = 0; w < n_works; w++) call.total += most_tokens(&works[w].job);
        call.n_left += n_works;
    }
    struct part *parts = mem_alloc(call.n_left + 1, sizeof *parts);
    if (!parts) {
        fail_all(results, n_requests);
        return error_nomem(err, "requests", call.n_left * sizeof *parts);
    }
    submit_all(engine, results, n_requests, parts, &call);
    wait_for(&call, progress, progress_user);
    np_status status = NP_OK;
    for (size_t i = 0; i < n_requests; i++) {
        if (!results[i].memory) continue; /* refused */
        result_finish(&results[i]);
        if (results[i].error.status != NP_ECANCELLED || status != NP_OK) continue;
        status = NP_ECANCELLED;
        if (err) *err = results[i].error;
    }
    mem_free(parts);
    return status;
}

/* One request; its own error is the call's, and stays in the emptied result. */
static np_status run_one(np_engine *engine, const np_request *request, np_result *out,
                         np_error *err)
{
    np_error error;
    TRY(need_pointer(out, "out", err));
    np_status status = np_run(engine, request, 1, out, NULL, NULL, &error);
    if (status == NP_OK) error = out->error;
    if (err) *err = error;
    if (error.status == NP_OK) return NP_OK;
    np_result_free(out);
    out->error = error;
    return error.status;
}

np_status np_score(np_engine *engine, const char *text, size_t n_bytes, np_result *out,
                   np_error *err)
{
    np_request request = {.text = text, .n_bytes = n_bytes, .want = NP_WANT_LOGPROB | NP_WANT_RANK};
    return run_one(engine, &request, out, err);
}

np_status np_next(np_engine *engine, const char *text, size_t n_bytes, int32_t top, np_result *out,
                  np_error *err)
{
    np_request request = {.text = text,
                          .n_bytes = n_bytes,
                          .start = SIZE_MAX,
                          .next = 1,
                          .top = top,
                          .want = NP_WANT_ENTROPY | NP_WANT_MASS};
    return run_one(engine, &request, out, err);
}

np_status np_gather(np_engine *engine, const int32_t *token_ids, size_t n_tokens, size_t start,
                    const int32_t *candidate_ids, size_t n_candidates, np_result *out,
                    np_error *err)
{
    np_request request = {.token_ids = token_ids,
                          .n_tokens = n_tokens,
                          .start = start,
                          .candidate_ids = candidate_ids,
                          .n_candidates = n_candidates};
    return run_one(engine, &request, out, err);
}

np_status np_generate(np_engine *engine, const char *text, size_t n_bytes, size_t max_tokens,
                      const np_sampling *sampling, np_result *out, np_error *err)
{
    np_request request = {
        .text = text, .n_bytes = n_bytes, .max_tokens = max_tokens, .sampling = sampling};
    TRY(need_pointer(out, "out", err));
    memset(out, 0, sizeof *out);
    if (max_tokens == 0) {
        error_set(&out->error, NP_EINPUT, "max_tokens", NO_OFFSET, "at least 1 is needed");
        if (err) *err = out->error;
        return NP_EINPUT;
    }
    return run_one(engine, &request, out, err);
}
