/*
 * following.c - what is to follow a sequence: a request's choices become generations, and what the
 * engine draws becomes text.
 *
 * The engine knows ids only. After each token it asks `stops`, which adds the token's bytes to the
 * choice's text and looks for the texts that end it.
 */
#include "api/handles.h"

#include <sys/random.h>

/* Options with their defaults filled in; borrowed arrays have the same layout. */
static np_status take_sampling(const np_model *model, const np_sampling *asked, struct arena *arena,
                               struct sampling *out, np_error *err)
{
    _Static_assert(sizeof(np_bias) == sizeof(struct token_bias), "passed on as they are");
    _Static_assert(sizeof(np_ids) == sizeof(struct token_list), "passed on as they are");
    *out = sampling_defaults();
    if (asked->temperature) out->temperature = *asked->temperature;
    out->top_k = asked->top_k;
    if (asked->top_p != 0) out->top_p = asked->top_p;
    out->min_p = asked->min_p;
    out->presence_penalty = asked->presence_penalty;
    out->frequency_penalty = asked->frequency_penalty;
    if (asked->repetition_penalty != 0) out->repetition_penalty = asked->repetition_penalty;
    out->biases = (const struct token_bias *)(const void *)asked->logit_bias;
    out->n_biases = asked->n_logit_bias;
    out->allowed = (struct token_list){asked->allowed_token_ids.ids, asked->allowed_token_ids.n};
    out->bad_words = (const struct token_list *)(const void *)asked->bad_words;
    out->n_bad_words = asked->n_bad_words;
    out->stop_ids = (struct token_list){asked->stop_token_ids.ids, asked->stop_token_ids.n};
    out->min_tokens = asked->min_tokens;
    out->ignore_eos = asked->ignore_eos != 0;
    int32_t eos = model->tokenizer ? tokenizer_eos(model->tokenizer) : -1;
    if (eos >= 0 && (size_t)eos < model->model->config.n_vocab) {
        int32_t *ids = arena_push_array(arena, 1, sizeof *ids);
        if (!ids) return error_nomem(err, "sampling", sizeof *ids);
        *ids = eos;
        out->eos_ids = (struct token_list){ids, 1};
    }
    if (asked->seed)
        out->seed = *asked->seed;
    else if (getrandom(&out->seed, sizeof out->seed, 0) != sizeof out->seed)
        out->seed = monotonic_ns();
    return sampling_check(out, model->model->config.n_vocab, err);
}

static np_status check_stops(const np_model *model, const np_sampling *asked, np_error *err)
{
    if (asked->n_stop == 0) return NP_OK;
    if (!asked->stop)
        return error_set(err, NP_EINPUT, "stop", NO_OFFSET, "a length is given, but no list");
    if (!model->tokenizer)
        return error_set(err, NP_EUNSUPPORTED, "stop", NO_OFFSET,
                         "the model has no tokenizer: use stop_token_ids");
    if (asked->n_stop > MAX_STOPS) {
        error_set(err, NP_EINPUT, "stop", NO_OFFSET, "at most %d texts are allowed", MAX_STOPS);
        return error_given(err, NP_EINPUT, "%zu texts", asked->n_stop);
    }
    for (size_t i = 0; i < asked->n_stop; i++) {
        char where[32];
        if (asked->stop[i].bytes && asked->stop[i].n_bytes) continue;
        snprintf(where, sizeof where, "stop[%zu]", i);
        return error_set(err, NP_EINPUT, where, NO_OFFSET, "an empty text ends nothing");
    }
    return NP_OK;
}

/* Room for what follows. */
static np_status check_length(const np_engine *engine, const np_request *request,
                              const np_sampling *asked, size_t n_tokens, size_t *max_tokens,
                              np_error *err)
{
    size_t n_context = engine_n_context(engine->engine), left = n_context - n_tokens;
    *max_tokens = request->max_tokens == SIZE_MAX ? left : request->max_tokens;
    if (*max_tokens == 0 || *max_tokens > left) {
        error_set(err, NP_ELIMIT, "max_tokens", NO_OFFSET,
                  "%zu tokens are given and the context has %zu: at most %zu can follow", n_tokens,
                  n_context, left);
        return error_given(err, NP_ELIMIT, "%zu", *max_tokens);
    }
    if (asked->min_tokens > *max_tokens) {
        error_set(err, NP_EINPUT, "min_tokens", NO_OFFSET, "at most max_tokens (%zu) is allowed",
                  *max_tokens);
        return error_given(err, NP_EINPUT, "%zu", asked->min_tokens);
    }
    if (asked->n < 0) {
        error_set(err, NP_EINPUT, "n", NO_OFFSET, "1 to %d choices are allowed", MAX_CHOICES);
        return error_given(err, NP_EINPUT, "%d", (int)asked->n);
    }
    if (asked->want & ~(NP_WANT_LOGPROB | NP_WANT_RANK | NP_WANT_ENTROPY)) {
        error_set(err, NP_EINPUT, "sampling.want", NO_OFFSET,
                  "only logprob, rank and entropy are told of a generated token");
        return error_given(err, NP_EINPUT, "%#x", asked->want);
    }
    if (asked->top < -1) {
        error_set(err, NP_EINPUT, "sampling.top", NO_OFFSET,
                  "must be -1 (the whole vocabulary) or at least 0");
        return error_given(err, NP_EINPUT, "%d", asked->top);
    }
    return NP_OK;
}

/* Engine's thread: the last token becomes text. */
static bool work_stops(struct job *job, bool ended)
{
    struct work *work = (struct work *)job;
    struct generation *g = &work->generation;
    np_generated *out = work->out;
    int32_t id = g->token_ids[job->plan->n_tokens + g->n_generated - 1];
    size_t n_bytes = 0;
    const char *bytes = NULL;
    bool shown = work->keep_special || !tokenizer_is_special(work->tokenizer, id);
    shown = shown && (!ended || work->watch.include_stop);
    if (shown) bytes = tokenizer_bytes(work->tokenizer, id, &n_bytes);
    bool stopped = bytes && watch_push(&work->watch, bytes, n_bytes,
                                       g->n_generated > work->sampling.min_tokens ||
                                           work->sampling.min_tokens == 0);
    if (work->watch.text.failed) error_nomem(&job->error, "generated text", n_bytes);
    size_t end = out->text_end[g->n_generated - 1] = work->watch.text.n_bytes;
    /* A stop text may have begun some tokens before. */
    for (size_t i = g->n_generated - 1; i > 0 && out->text_end[i - 1] > end; i--)
        out->text_end[i - 1] = end;
    return stopped;
}

void following_tell(struct work *work)
{
    static const np_finish finishes[] = {[FINISH_NOT_YET] = NP_NOT_FINISHED,
                                         [FINISH_LENGTH] = NP_FINISH_LENGTH,
                                         [FINISH_STOP_ID] = NP_FINISH_TOKEN,
                                         [FINISH_STOP_TEXT] = NP_FINISH_TEXT};
    struct generation *g = &work->generation;
    np_generated *out = work->out;
    out->n_tokens = g->n_generated;
    out->finish = finishes[g->finish];
    out->stop_index = work->watch.stop_index;
    if (!work->tokenizer) return;
    if (g->finish) watch_end(&work->watch);
    out->text = work->watch.text.data ? work->watch.text.data : (char *)"";
    out->n_text_bytes = work->watch.n_final;
}

/* What a row must have of candidates; checked as those of a request are. */
static np_status take_candidates(const np_engine *engine, const np_sampling *asked,
                                 struct arena *arena, struct generation *g, np_error *err)
{
    const np_request row = {.candidate_ids = asked->candidate_ids.ids,
                            .n_candidates = asked->candidate_ids.n};
    const int32_t any = 0;
    char where[sizeof err->where];
    struct plan plan;
    if (row.n_candidates == 0) return NP_OK;
    np_status status =
        plan_init(&plan, &row, &any, 1, engine->model->model->config.n_vocab, 1, arena, err);
    if (status != NP_OK) {
        snprintf(where, sizeof where, "sampling.%.150s", err->where);
        memcpy(err->where, where, sizeof where);
        return status;
    }
    g->candidate_ids = row.candidate_ids;
    g->wanted = plan.wanted;
    g->n_candidates = row.n_candidates;
    return NP_OK;
}

/* The arrays of one choice. */
static np_status choice_init(const np_engine *engine, const np_sampling *asked, struct work *work,
                             size_t n_works, struct arena *arena, np_error *err)
{
    struct generation *g = &work->generation;
    size_t n = g->max_tokens, n_vocab = engine->model->model->config.n_vocab, top = 0;
    size_t n_tokens = work->plan.n_tokens, scores = 0;
    bool all = asked->top < 0 || (size_t)asked->top > n_vocab;
    g->n_top = all ? n_vocab : (size_t)asked->top;
    if (__builtin_mul_overflow(n, g->n_top, &top)) top = SIZE_MAX;
    if (__builtin_mul_overflow(n, g->n_candidates, &scores)) scores = SIZE_MAX;
    void *history = NULL;
    size_t n_history =
        sampling_wants_history(&work->sampling) ? history_bytes(n_tokens + n, n_vocab) : 0;
    const struct answer answers[] = {
        {true, n_tokens + n, sizeof(int32_t), &g->token_ids},
        {n_history > 0, n_history, 1, &history},
        {asked->want & NP_WANT_LOGPROB, n, sizeof(float), &g->logprobs},
        {asked->want & NP_WANT_RANK, n, sizeof(int32_t), &g->ranks},
        {asked->want & NP_WANT_ENTROPY, n, sizeof(float), &g->entropies},
        {g->n_top > 0, top, sizeof(int32_t), &g->top_ids},
        {g->n_top > 0, top, sizeof(float), &g->top_logprobs},
        {g->n_candidates > 0, scores, sizeof(float), &g->scores},
        {work->tokenizer != NULL, n, sizeof(size_t), &work->out->text_end}};
    TRY(push_answers(arena, answers, sizeof answers / sizeof *answers, n_works, err));
    memcpy(g->token_ids, work->plan.token_ids, n_tokens * sizeof(int32_t));
    work->plan.token_ids = g->token_ids;
    if (n_history) {
        history_init(&g->history, history, n_history);
        if (!history_prompt(&g->history, g->token_ids, n_tokens))
            return error_set(err, NP_EINTERNAL, "sampling", NO_OFFSET, "the history is too small");
    }
    np_generated *out = work->out;
    out->token_ids = g->token_ids + n_tokens;
    out->logprobs = g->logprobs;
    out->ranks = g->ranks;
    out->entropies = g->entropies;
    out->n_top = g->n_top;
    out->top_ids = g->top_ids;
    out->top_logprobs = g->top_logprobs;
    out->candidate_ids = g->candidate_ids;
    out->n_candidates = g->n_candidates;
    out->scores = g->scores;
    out->stop_index = -1;
    out->seed = work->sampling.seed;
    return NP_OK;
}

np_status submit_choices(const np_engine *engine, const np_request *request, np_result *result,
                         struct answer_memory *memory, np_error *err)
{
    static const np_sampling defaults;
    const np_sampling *asked = request->sampling ? request->sampling : &defaults;
    const np_model *model = engine->model;
    struct sampling sampling;
    size_t max_tokens;
    TRY(check_length(engine, request, asked, result->n_tokens, &max_tokens, err));
    TRY(check_stops(model, asked, err));
    TRY(take_sampling(model, asked, &memory->arena, &sampling, err));
    if (!stops_init(&memory->stops, asked->stop, asked->n_stop, &memory->arena))
        return error_nomem(err, "stop", asked->n_stop);
    result->choices = arena_push_array(&memory->arena, memory->n_works, sizeof *result->choices);
    if (!result->choices) return error_nomem(err, "choices", sizeof *result->choices);
    result->n_choices = memory->n_works;
    for (size_t i = 0; i < memory->n_works; i++) {
        struct work *work = &memory->works[i];
        work->sampling = sampling;
        work->tokenizer = model->tokenizer;
        work->keep_special = asked->keep_special != 0;
        work->out = &result->choices[i];
        work->generation = (struct generation){.sampling = &work->sampling,
                                               .choice = i,
                                               .max_tokens = max_tokens,
                                               .stops = model->tokenizer ? work_stops : NULL,
                                               .processed = asked->processed != 0};
        work->job.generation = &work->generation;
        if (!watch_init(&work->watch, &memory->stops, asked->include_stop != 0, &memory->arena))
            return error_nomem(err, "stop", asked->n_stop);
        TRY(take_candidates(engine, asked, &memory->arena, &work->generation, err));
        TRY(choice_init(engine, asked, work, memory->n_works, &memory->arena, err));
    }
    return NP_OK;
}
