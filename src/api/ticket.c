/*
 * ticket.c - requests that are not waited for. A ticket is a caller of its own, with one job.
 */
#include "api/handles.h"

#include <pthread.h>

struct np_ticket {
    struct caller caller;
    np_engine *engine;
    np_result result;
    np_ready *ready;
    void *user;
    size_t n_left; /* works: engine's thread */
    pthread_mutex_t lock;
    pthread_cond_t end;
    bool finished, ended; /* finished: its jobs are gone */
};

static void ticket_event(struct job *job)
{
    np_ticket *ticket = job->user;
    size_t n_works, n_rows = ticket->result.n_rows;
    struct work *works = result_works(&ticket->result, &n_works);
    for (size_t i = 0; i < n_works; i++)
        if (works[i].out) following_tell(&works[i]);
    ticket->n_left -= job->finished;
    bool finished = ticket->n_left == 0;
    if (finished) {
        pthread_mutex_lock(&ticket->lock);
        result_finish(&ticket->result);
        n_rows = ticket->result.n_rows; /* none where it failed */
        ticket->finished = true;
        pthread_mutex_unlock(&ticket->lock);
    } else {
        n_rows = works->job.n_answered;
    }
    if (ticket->ready) ticket->ready(ticket->user, &ticket->result, n_rows, finished);
    if (!finished) return;
    pthread_mutex_lock(&ticket->lock);
    ticket->ended = true;
    pthread_cond_signal(&ticket->end);
    pthread_mutex_unlock(&ticket->lock);
}

static void ticket_free(np_ticket *ticket)
{
    pthread_cond_destroy(&ticket->end);
    pthread_mutex_destroy(&ticket->lock);
    mem_free(ticket);
}

np_status np_submit(np_engine *engine, const np_request *request, np_ready *ready, void *user,
                    np_ticket **out, np_error *err)
{
    TRY(need_pointer(out, "out", err));
    *out = NULL;
    TRY(need_pointer(engine, "engine", err));
    TRY(need_pointer(request, "request", err));
    if (err) memset(err, 0, sizeof *err);
    np_ticket *ticket = mem_alloc(1, sizeof *ticket);
    if (!ticket) return error_nomem(err, "ticket", sizeof *ticket);
    pthread_mutex_init(&ticket->lock, NULL);
    pthread_cond_init(&ticket->end, NULL);
    np_status status = submit_request(engine, request, &ticket->result);
    if (status != NP_OK) {
        if (err) *err = ticket->result.error;
        ticket_free(ticket);
        return status;
    }
    size_t n_works;
    struct work *works = result_works(&ticket->result, &n_works);
    ticket->engine = engine;
    ticket->ready = ready;
    ticket->user = user;
    ticket->n_left = n_works;
    *out = ticket; /* before anybody can ask */
    for (size_t i = 0; i < n_works; i++) {
        works[i].job.caller = &ticket->caller;
        works[i].job.event = ticket_event;
        works[i].job.user = ticket;
        works[i].job.next = i + 1 < n_works ? &works[i + 1].job : NULL;
    }
    if ((status = engine_submit(engine->engine, &works->job, err)) == NP_OK) return NP_OK;
    *out = NULL;
    np_result_free(&ticket->result);
    ticket_free(ticket);
    return status;
}

void np_cancel(np_ticket *ticket)
{
    if (!ticket) return;
    pthread_mutex_lock(&ticket->lock);
    if (!ticket->finished) {
        size_t n_works;
        struct work *works = result_works(&ticket->result, &n_works);
        for (size_t i = 0; i < n_works; i++)
            engine_cancel_job(ticket->engine->engine, &works[i].job);
    }
    pthread_mutex_unlock(&ticket->lock);
}

np_status np_wait(np_ticket *ticket, np_result *out, np_error *err)
{
    TRY(need_pointer(ticket, "ticket", err));
    pthread_mutex_lock(&ticket->lock);
    while (!ticket->ended) pthread_cond_wait(&ticket->end, &ticket->lock);
    pthread_mutex_unlock(&ticket->lock);
    np_status status = ticket->result.error.status;
    if (err) *err = ticket->result.error;
    if (out)
        *out = ticket->result;
    else
        np_result_free(&ticket->result);
    ticket_free(ticket);
    return status;
}
