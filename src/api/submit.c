/*
 * submit.c - a request becomes a plan and a job; every error of a user ends here.
 *
 * All memory of a request (ids, plan, answers) is one arena that the result keeps: a request that
 * fails gives back everything at once, and its neighbours never notice.
 */
#include "api/handles.h"

/* Ids and spans as arrays of the result. */
static np_status take_encoding(const struct encoding *encoding, np_result *result,
                               struct arena *arena, np_error *err)
{
    size_t n = encoding->n_tokens;
    result->n_tokens = n;
    result->token_ids = arena_push_array(arena, n, sizeof(int32_t));
    result->begin = arena_push_array(arena, n, sizeof(size_t));
    result->end = arena_push_array(arena, n, sizeof(size_t));
    if (!result->token_ids || !result->begin || !result->end)
        return error_nomem(err, "token ids", n * sizeof(size_t));
    for (size_t i = 0; i < n; i++) {
        result->token_ids[i] = encoding->tokens[i].id;
        result->begin[i] = encoding->tokens[i].begin;
        result->end[i] = encoding->tokens[i].end;
    }
    return NP_OK;
}

static np_status take_ids(const np_engine *engine, const np_request *request, np_result *result,
                          struct arena *arena, np_error *err)
{
    struct encoding encoding;
    if (!request->token_ids == !request->text)
        return error_set(err, NP_EINPUT, "prompt", NO_OFFSET,
                         "either a text or token ids are expected");
    if (request->text) {
        TRY(encode_request(engine->model, request, &encoding, err));
        np_status status = take_encoding(&encoding, result, arena, err);
        encoding_free(&encoding);
        return status;
    }
    size_t n = request->n_tokens;
    result->n_tokens = n;
    if (n > engine_n_context(engine->engine)) return NP_OK; /* plan_init refuses them, unread */
    result->token_ids = arena_push_array(arena, n, sizeof(int32_t));
    if (!result->token_ids) return error_nomem(err, "token ids", n * sizeof(int32_t));
    memcpy(result->token_ids, request->token_ids, n * sizeof(int32_t));
    return NP_OK;
}

np_status submit_request(const np_engine *engine, const np_request *request, struct plan *plan,
                         struct job *job, np_result *result)
{
    np_error *err = &result->error;
    struct arena *arena = mem_alloc(1, sizeof *arena);
    np_status status;
    if (!arena) return error_nomem(err, "request", sizeof *arena);
    arena_init(arena, SIZE_MAX);
    result->memory = arena;
    status = take_ids(engine, request, result, arena, err);
    if (status == NP_OK)
        status = plan_init(plan, request, result->token_ids, result->n_tokens,
                           engine->model->model->config.n_vocab, engine_n_context(engine->engine),
                           arena, err);
    if (status == NP_OK) status = result_init(result, plan, job, arena, err);
    if (status == NP_OK) return NP_OK;
    np_error error = *err;
    np_result_free(result);
    result->error = error;
    return status;
}

np_status np_run(np_engine *engine, const np_request *requests, size_t n_requests,
                 np_result *results, void (*progress)(void *user, size_t done, size_t total),
                 void *progress_user, np_error *err)
{
    if (n_requests) TRY(need_pointer(results, "results", err));
    if (n_requests) memset(results, 0, n_requests * sizeof *results);
    TRY(need_pointer(engine, "engine", err));
    if (n_requests) TRY(need_pointer(requests, "requests", err));
    struct plan *plans = mem_alloc(n_requests ? n_requests : 1, sizeof *plans);
    struct job *jobs = mem_alloc(n_requests ? n_requests : 1, sizeof *jobs);
    size_t *owner = mem_alloc(n_requests ? n_requests : 1, sizeof *owner), n_jobs = 0;
    np_status status = NP_OK;
    if (err) memset(err, 0, sizeof *err);
    if (!plans || !jobs || !owner) {
        status = error_nomem(err, "requests", n_requests * sizeof *plans);
        for (size_t i = 0; i < n_requests; i++) error_nomem(&results[i].error, "requests", 0);
        goto done;
    }
    for (size_t i = 0; i < n_requests; i++) {
        if (submit_request(engine, &requests[i], &plans[i], &jobs[n_jobs], &results[i]) != NP_OK)
            continue;
        owner[n_jobs++] = i;
    }
    status = engine_run(engine->engine, jobs, n_jobs, progress, progress_user, err);
    for (size_t k = 0; k < n_jobs; k++) result_finish(&results[owner[k]], &jobs[k]);
done:
    mem_free(plans);
    mem_free(jobs);
    mem_free(owner);
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
