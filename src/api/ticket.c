/*
 * ticket.c - requests that are not waited for. A ticket is a caller of its own, whose jobs are the
 * works of all its requests.
 *
 * A request is told as finished as soon as its own works are. Its memory then is the result's
 * alone, and cancelling what is left must not touch it: the lock stands between these two.
 */
#include "api/handles.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

/* One request. */
struct part {
    np_ticket *ticket;
    np_result result;
    np_result failed; /* arrays that `ready` has told of before the request failed */
    size_t n_left;    /* works: engine's thread */
    bool finished;    /* its jobs are gone */
};
struct np_ticket {
    struct caller caller;
    np_engine *engine;
    np_ready *ready;
    void *user;
    struct part *parts; /* [n_parts] */
    size_t n_parts;
    size_t n_left; /* parts: engine's thread */
    pthread_mutex_t lock;
    pthread_cond_t end;
    bool ended;
};

/* Who was told of arrays may be reading them: they stay until np_wait. */
static void part_finish(struct part *part)
{
    np_error error = result_settle(&part->result);
    part->finished = true;
    if (error.status == NP_OK) return;
    part->failed = part->result;
    part->result = (np_result){.error = error};
}

static void ticket_event(struct job *job)
{
    struct part *part = job->user;
    np_ticket *ticket = part->ticket;
    np_result *result = &part->result;
    size_t n_works, n_rows;
    struct work *works = result_works(result, &n_works);
    for (size_t i = 0; i < n_works; i++)
        if (works[i].out) following_tell(&works[i]);
    part->n_left -= job->finished;
    bool finished = part->n_left == 0;
    if (finished) {
        pthread_mutex_lock(&ticket->lock);
        part_finish(part);
        n_rows = result->n_rows; /* none where it failed */
        pthread_mutex_unlock(&ticket->lock);
    } else {
        n_rows = works->job.n_answered;
    }
    if (ticket->ready)
        ticket->ready(ticket->user, (size_t)(part - ticket->parts), result, n_rows, finished);
    ticket->n_left -= finished;
    if (ticket->n_left) return;
    pthread_mutex_lock(&ticket->lock);
    ticket->ended = true;
    pthread_cond_broadcast(&ticket->end);
    pthread_mutex_unlock(&ticket->lock);
}

static void ticket_free(np_ticket *ticket)
{
    for (size_t i = 0; i < ticket->n_parts; i++) {
        np_result_free(&ticket->parts[i].result);
        np_result_free(&ticket->parts[i].failed);
    }
    pthread_cond_destroy(&ticket->end);
    pthread_mutex_destroy(&ticket->lock);
    mem_free(ticket->parts);
    mem_free(ticket);
}

static np_status ticket_new(size_t n_requests, np_ticket **out, np_error *err)
{
    np_ticket *ticket = mem_alloc(1, sizeof *ticket);
    struct part *parts = ticket ? mem_alloc(n_requests, sizeof *parts) : NULL;
    if (!parts) {
        mem_free(ticket);
        return error_nomem(err, "ticket", sizeof *ticket);
    }
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_mutex_init(&ticket->lock, NULL);
    pthread_cond_init(&ticket->end, &steady);
    pthread_condattr_destroy(&steady);
    ticket->parts = parts;
    ticket->n_parts = ticket->n_left = n_requests;
    *out = ticket;
    return NP_OK;
}

/* The error of one of many: its field is one of requests[i]. */
static void tell_refusal(const np_error *refusal, size_t place, size_t n_requests, np_error *err)
{
    if (!err) return;
    *err = *refusal;
    if (n_requests > 1)
        snprintf(err->where, sizeof err->where, "requests[%zu]%s%.150s", place,
                 refusal->where[0] ? "." : "", refusal->where);
}

/* The works of all requests as one list of jobs. */
static np_status ticket_fill(np_ticket *ticket, const np_request *requests, struct job **last,
                             np_error *err)
{
    for (size_t i = 0; i < ticket->n_parts; i++) {
        struct part *part = &ticket->parts[i];
        np_status status = submit_request(ticket->engine, &requests[i], &part->result);
        if (status != NP_OK) {
            tell_refusal(&part->result.error, i, ticket->n_parts, err);
            return status;
        }
        struct work *works = result_works(&part->result, &part->n_left);
        part->ticket = ticket;
        for (size_t w = 0; w < part->n_left; w++) {
            struct job *job = &works[w].job;
            job->caller = &ticket->caller;
            job->event = ticket_event;
            job->user = part;
            *last = job;
            last = &job->next;
        }
    }
    return NP_OK;
}

np_status np_submit(np_engine *engine, const np_request *requests, size_t n_requests,
                    np_ready *ready, void *user, np_ticket **out, np_error *err)
{
    struct job *jobs = NULL;
    np_ticket *ticket = NULL;
    TRY(need_pointer(out, "out", err));
    *out = NULL;
    TRY(need_pointer(engine, "engine", err));
    TRY(need_pointer(requests, "requests", err));
    if (n_requests == 0)
        return error_set(err, NP_EINPUT, "n_requests", NO_OFFSET, "at least one request is needed");
    if (err) memset(err, 0, sizeof *err);
    TRY(ticket_new(n_requests, &ticket, err));
    ticket->engine = engine;
    ticket->ready = ready;
    ticket->user = user;
    np_status status = ticket_fill(ticket, requests, &jobs, err);
    *out = ticket; /* before anybody can ask */
    if (status == NP_OK) status = engine_submit(engine->engine, jobs, err);
    if (status == NP_OK) return NP_OK;
    *out = NULL;
    ticket_free(ticket);
    return status;
}

void np_cancel(np_ticket *ticket)
{
    if (!ticket) return;
    pthread_mutex_lock(&ticket->lock);
    for (size_t i = 0; i < ticket->n_parts; i++) {
        size_t n_works;
        if (ticket->parts[i].finished) continue;
        struct work *works = result_works(&ticket->parts[i].result, &n_works);
        for (size_t w = 0; w < n_works; w++)
            engine_cancel_job(ticket->engine->engine, &works[w].job);
    }
    pthread_mutex_unlock(&ticket->lock);
}

int np_poll(np_ticket *ticket, int64_t timeout_ms)
{
    struct timespec until;
    if (!ticket) return 1;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)(timeout_ms > 0 ? timeout_ms % 1000 : 0) * 1000000;
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(timeout_ms > 0 ? timeout_ms / 1000 : 0) + (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&ticket->lock);
    int late = timeout_ms == 0;
    while (!ticket->ended && !late)
        late = timeout_ms < 0 ? pthread_cond_wait(&ticket->end, &ticket->lock)
                              : pthread_cond_timedwait(&ticket->end, &ticket->lock, &until);
    bool ended = ticket->ended;
    pthread_mutex_unlock(&ticket->lock);
    return ended;
}

np_status np_wait(np_ticket *ticket, np_result *results, np_error *err)
{
    np_error first = {0};
    TRY(need_pointer(ticket, "ticket", err));
    pthread_mutex_lock(&ticket->lock);
    while (!ticket->ended) pthread_cond_wait(&ticket->end, &ticket->lock);
    pthread_mutex_unlock(&ticket->lock);
    for (size_t i = 0; i < ticket->n_parts; i++) {
        np_result *result = &ticket->parts[i].result;
        if (first.status == NP_OK) first = result->error;
        if (!results) continue;
        results[i] = *result;
        result->memory = NULL; /* its owner has changed */
    }
    if (err) *err = first;
    ticket_free(ticket);
    return first.status;
}
