/*
 * result.c - the arrays of an answer: sized before any work, tied to the engine's job, kept in one
 * arena.
 */
#include "api/handles.h"

#include <stdio.h>

np_status push_answers(struct arena *arena, const struct answer *answers, size_t n, size_t n_alike,
                       np_error *err)
{
    size_t total_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        if (!answers[i].wanted) continue;
        if (__builtin_mul_overflow(answers[i].count, answers[i].size_bytes, &bytes) ||
            __builtin_add_overflow(total_bytes, bytes, &total_bytes))
            total_bytes = SIZE_MAX;
        if (total_bytes == SIZE_MAX) break;
    }
    if (__builtin_mul_overflow(total_bytes, n_alike, &total_bytes)) total_bytes = SIZE_MAX;
    if (total_bytes > MAX_ANSWER_BYTES) {
        error_set(err, NP_ELIMIT, "top", NO_OFFSET,
                  "an answer may have %zu bytes; ask for fewer rows, candidates or top tokens",
                  MAX_ANSWER_BYTES);
        return error_given(err, NP_ELIMIT, "%zu bytes", total_bytes);
    }
    for (size_t i = 0; i < n; i++) {
        if (!answers[i].wanted) continue;
        void *memory =
            arena_push_array(arena, answers[i].count ? answers[i].count : 1, answers[i].size_bytes);
        if (!memory) return error_nomem(err, "answer", total_bytes);
        memcpy(answers[i].place, &memory, sizeof memory);
    }
    return NP_OK;
}

np_status result_init(np_result *result, const struct plan *plan, struct job *job,
                      struct arena *arena, np_error *err)
{
    size_t rows = plan->n_rows, top = 0, cells = 0;
    job->plan = plan;
    if (__builtin_mul_overflow(rows, plan->n_top, &top) ||
        __builtin_mul_overflow(rows, plan->n_candidates, &cells))
        return error_set(err, NP_ELIMIT, "top", NO_OFFSET, "the answer has too many values");
    const struct answer answers[] = {
        {plan->want & NP_WANT_LOGPROB, plan->n_scored, sizeof(float), &job->logprobs},
        {plan->want & NP_WANT_RANK, plan->n_scored, sizeof(int32_t), &job->ranks},
        {plan->want & NP_WANT_ENTROPY, rows, sizeof(float), &job->entropies},
        {plan->want & NP_WANT_MASS, rows, sizeof(float), &job->mass},
        {plan->want & NP_WANT_TAIL, rows, sizeof(float), &job->tail},
        {plan->n_top > 0, top, sizeof(int32_t), &job->top_ids},
        {plan->n_top > 0, top, sizeof(float), &job->top_logprobs},
        {plan->n_candidates > 0, cells, sizeof(float), &job->scores}};
    TRY(push_answers(arena, answers, sizeof answers / sizeof *answers, 1, err));
    result->start = plan->start;
    result->n_rows = rows;
    result->n_scored = plan->n_scored;
    result->n_top = plan->n_top;
    result->n_candidates = plan->n_candidates;
    result->logprobs = job->logprobs;
    result->ranks = job->ranks;
    result->entropies = job->entropies;
    result->mass = job->mass;
    result->tail = job->tail;
    result->top_ids = job->top_ids;
    result->top_logprobs = job->top_logprobs;
    result->scores = job->scores;
    return NP_OK;
}

np_error result_settle(np_result *result)
{
    size_t n_works;
    struct work *works = result_works(result, &n_works);
    np_error error = {0};
    for (size_t i = 0; i < n_works; i++) {
        if (error.status == NP_OK) error = works[i].job.error;
        result->n_computed += works[i].job.n_computed;
        if (works[i].out) following_tell(&works[i]);
    }
    return error;
}

void result_finish(np_result *result)
{
    np_error error = result_settle(result);
    if (error.status == NP_OK) return;
    np_result_free(result);
    result->error = error;
}

void np_result_free(np_result *result)
{
    if (!result) return;
    struct answer_memory *memory = result->memory;
    if (memory) {
        for (size_t i = 0; i < memory->n_works; i++) watch_free(&memory->works[i].watch);
        arena_free(&memory->arena);
        mem_free(memory);
    }
    memset(result, 0, sizeof *result);
}
