/*
 * submit.c - a request becomes plans and jobs; every error of a user ends here.
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

/* When it runs, and what it shares. */
static np_status take_terms(const np_request *request, struct job *job, np_error *err)
{
    if (request->timeout_ms < 0 || request->timeout_ms > INT64_MAX / 1000000) {
        error_set(err, NP_EINPUT, "timeout_ms", NO_OFFSET, "0 (none) to %lld are allowed",
                  (long long)(INT64_MAX / 1000000));
        return error_given(err, NP_EINPUT, "%lld", (long long)request->timeout_ms);
    }
    size_t n_salt_bytes = request->cache_salt ? strlen(request->cache_salt) : 0;
    if (n_salt_bytes > MAX_SALT_BYTES) {
        error_set(err, NP_EINPUT, "cache_salt", NO_OFFSET, "at most %d bytes are allowed",
                  MAX_SALT_BYTES);
        return error_given(err, NP_EINPUT, "%zu bytes", n_salt_bytes);
    }
    job->priority = request->priority;
    if (request->timeout_ms)
        job->deadline_ns = monotonic_ns() + (uint64_t)request->timeout_ms * 1000000;
    job->salt = request->cache_salt;
    job->n_salt_bytes = n_salt_bytes;
    job->skip_cache = request->skip_reading_prefix_cache != 0;
    return NP_OK;
}

/* Whether anything is asked of the rows of the sequence itself. */
static bool asks_of_rows(const np_request *request)
{
    return request->want || request->top || request->next || request->candidate_ids ||
           request->n_candidates || request->n_candidate_rows;
}

static np_status make_works(const np_engine *engine, const np_request *request, np_result *result,
                            struct answer_memory *memory, np_error *err)
{
    const struct model_config *config = &engine->model->model->config;
    struct arena *arena = &memory->arena;
    size_t n = 1;
    if (request->max_tokens && request->sampling && request->sampling->n > 1)
        n = (size_t)request->sampling->n; /* checked by submit_choices */
    TRY(take_ids(engine, request, result, arena, err));
    struct work *works = n <= MAX_CHOICES ? arena_push_array(arena, n, sizeof *works) : NULL;
    if (!works && n <= MAX_CHOICES) return error_nomem(err, "request", n * sizeof *works);
    if (!works)
        return error_given(err,
                           error_set(err, NP_EINPUT, "n", NO_OFFSET,
                                     "at most %d choices are allowed", MAX_CHOICES),
                           "%zu", n);
    memory->works = works;
    TRY(plan_init(&works->plan, request, result->token_ids, result->n_tokens, config->n_vocab,
                  engine_n_context(engine->engine), arena, err));
    if (request->max_tokens && !asks_of_rows(request))
        works->plan.n_rows = works->plan.n_scored = 0;
    TRY(result_init(result, &works->plan, &works->job, arena, err));
    for (size_t i = 1; i < n; i++) {
        works[i].plan = works->plan;
        works[i].plan.n_rows = works[i].plan.n_scored = 0;
        works[i].job.plan = &works[i].plan;
    }
    for (size_t i = 0; i < n; i++) TRY(take_terms(request, &works[i].job, err));
    memory->n_works = n;
    return request->max_tokens ? submit_choices(engine, request, result, memory, err) : NP_OK;
}

np_status submit_request(const np_engine *engine, const np_request *request, np_result *result)
{
    struct answer_memory *memory = mem_alloc(1, sizeof *memory);
    if (!memory) return error_nomem(&result->error, "request", sizeof *memory);
    arena_init(&memory->arena, SIZE_MAX);
    result->memory = memory;
    np_error error = {0};
    np_status status = make_works(engine, request, result, memory, &error);
    if (status == NP_OK) return NP_OK;
    np_result_free(result);
    result->error = error;
    return status;
}
