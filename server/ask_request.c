/*
 * ask_request.c - struct ask -> np_request, the same way for every route. What only the library can
 * know (ids, rows, lengths) it checks itself; here is what the server adds: its own limits, words
 * that become ids, candidates that mean something only beside the prompts.
 */
#include "exchange.h"
#include "words.h"

#include <math.h>

/* What lives as long as the request. */
struct drawing {
    np_sampling sampling;
    float temperature, score_temperature;
    uint64_t seed;
};

int64_t ask_told(const struct ask *ask)
{
    int64_t told = ask->prompt_logprobs, echoed = ask->echo ? ask->logprobs : NOT_GIVEN;
    if (told == -1 || echoed == -1) return -1;
    return told > echoed ? told : echoed;
}

static np_status too_many(const char *where, int64_t given, int64_t most, np_error *err)
{
    error_set(err, NP_EINPUT, where, NO_OFFSET, "at most %lld tokens are told per row here",
              (long long)most);
    return error_given(err, NP_EINPUT, "%lld", (long long)given);
}

static np_status check_told(const struct exchange *exchange, const char *where, int64_t given,
                            np_error *err)
{
    int64_t most = exchange_options(exchange)->max_logprobs;
    int64_t n_vocab = exchange_info(exchange)->n_vocab;
    if (given == NOT_GIVEN) return NP_OK;
    if (most <= 0 || most > n_vocab) most = n_vocab;
    return (given < 0 ? n_vocab : given) > most ? too_many(where, given, most, err) : NP_OK;
}

static int mode_of(const struct exchange *exchange)
{
    int asked = exchange->ask.logprobs_mode;
    return asked ? asked - 1 : exchange_options(exchange)->logprobs_mode;
}

static np_status take_sampling(struct exchange *exchange, struct drawing *drawing, np_error *err)
{
    const struct ask *ask = &exchange->ask;
    np_sampling *sampling = &drawing->sampling;
    drawing->temperature = (float)ask->temperature;
    drawing->seed = words_seed(ask->seed);
    *sampling = (np_sampling){.temperature = &drawing->temperature,
                              .top_k = (int32_t)ask->top_k,
                              .top_p = (float)ask->top_p,
                              .min_p = (float)ask->min_p,
                              .presence_penalty = (float)ask->presence_penalty,
                              .frequency_penalty = (float)ask->frequency_penalty,
                              .repetition_penalty = (float)ask->repetition_penalty,
                              .seed = &drawing->seed,
                              .logit_bias = ask->biases.at,
                              .n_logit_bias = ask->biases.n,
                              .allowed_token_ids = ask->allowed_ids,
                              .stop_token_ids = ask->stop_ids,
                              .stop = ask->stop.at,
                              .n_stop = ask->stop.n,
                              .include_stop = ask->include_stop,
                              .min_tokens = (size_t)ask->min_tokens,
                              .ignore_eos = ask->ignore_eos,
                              .keep_special = !ask->skip_special,
                              .n = (int32_t)ask->n,
                              .processed = mode_of(exchange) >= 2};
    sampling->candidate_ids = ask->logprob_ids;
    if (ask->logprob_ids.n) sampling->want = NP_WANT_LOGPROB | NP_WANT_RANK;
    if (ask->logprobs != NOT_GIVEN) {
        TRY(check_told(exchange, "logprobs", ask->logprobs, err));
        sampling->want = NP_WANT_LOGPROB | NP_WANT_RANK;
        sampling->top = (int32_t)ask->logprobs;
    }
    return words_encode(exchange_model(exchange), ask->bad_words.at, ask->bad_words.n,
                        &exchange->arena, sampling, err);
}

/* Nested candidates of several prompts have one more level. */
static np_status take_candidates(struct exchange *exchange, size_t prompt, np_request *request,
                                 np_error *err)
{
    static const char where[] = "prompt_logprob_token_ids";
    struct ask *ask = &exchange->ask;
    const json_t *value = ask->candidates, *first = json_array_get(value, 0);
    bool deep = json_is_array(first) && json_is_array(json_array_get(first, 0));
    char place[80];
    struct candidates candidates;
    snprintf(place, sizeof place, deep ? "%s[%zu]" : "%s", where, prompt);
    if (deep && json_array_size(value) != ask->prompts.n) {
        error_set(err, NP_EINPUT, where, NO_OFFSET, "lists for %zu prompts are expected",
                  ask->prompts.n);
        return error_given(err, NP_EINPUT, "%zu", json_array_size(value));
    }
    if (!deep && json_is_array(first) && ask->prompts.n > 1)
        return error_set(err, NP_EINPUT, where, NO_OFFSET,
                         "for several prompts, lists per row stand in one list per prompt");
    if (json_is_array(value) && !first)
        return error_set(err, NP_EINPUT, where, NO_OFFSET, "at least one id is needed");
    TRY(value_candidates(&ask->values, place, deep ? json_array_get(value, prompt) : value,
                         &candidates, err));
    request->candidate_ids = candidates.ids;
    request->n_candidates = candidates.n_candidates;
    request->n_candidate_rows = candidates.n_rows;
    return NP_OK;
}

np_status ask_encode(struct exchange *exchange, np_string text, np_choice add_special, bool bos,
                     struct encoded *out, np_error *err)
{
    struct arena *arena = &exchange->arena;
    int32_t bos_id = exchange_info(exchange)->bos_id;
    np_tokens tokens;
    if (!exchange_info(exchange)->has_tokenizer)
        return error_set(err, NP_EUNSUPPORTED, "token_ids", NO_OFFSET,
                         "the model has no tokenizer: give token ids in place of a text");
    if (bos && bos_id < 0)
        return error_set(err, NP_EINPUT, "condition", NO_OFFSET,
                         "the model has no beginning-of-sequence token");
    TRY(np_tokenize(exchange_model(exchange), text.bytes, text.n_bytes, add_special,
                    (np_choice)exchange->ask.parse_special, &tokens, err));
    size_t n = tokens.n_tokens + bos;
    int32_t *ids = arena_push_array(arena, n + 1, sizeof *ids);
    size_t *begin = arena_push_array(arena, n + 1, sizeof *begin);
    size_t *end = arena_push_array(arena, n + 1, sizeof *end);
    if (ids && begin && end) {
        ids[0] = bos_id;
        begin[0] = end[0] = 0;
        memcpy(ids + bos, tokens.token_ids, tokens.n_tokens * sizeof *ids);
        memcpy(begin + bos, tokens.begin, tokens.n_tokens * sizeof *begin);
        memcpy(end + bos, tokens.end, tokens.n_tokens * sizeof *end);
    }
    np_tokens_free(&tokens);
    *out = (struct encoded){.ids = ids, .n = n, .begin = begin, .end = end};
    return ids && begin && end ? NP_OK : error_nomem(err, "prompt", n * sizeof *begin);
}

/* Texts become ids here, so that lengths are known before anything is promised. */
static np_status encode(struct exchange *exchange, const struct prompt *from,
                        struct encoded *encoded, np_error *err)
{
    const struct ask *ask = &exchange->ask;
    if (from->ids.ids) {
        encoded->ids = from->ids.ids;
        encoded->n = from->ids.n;
        return NP_OK;
    }
    if (ask->condition && ask->add_special != NP_DEFAULT)
        return error_set(err, NP_EINPUT, "condition", NO_OFFSET,
                         "not together with add_special_tokens: they say the same");
    return ask_encode(exchange, from->text, ask->condition ? NP_NO : (np_choice)ask->add_special,
                      ask->condition == NP_CONDITION_BOS, encoded, err);
}

/* The last tokens of a prompt that is too long. */
static np_status truncate(const struct exchange *exchange, struct encoded *encoded, np_error *err)
{
    int64_t most = exchange->ask.truncate;
    if (most == NOT_GIVEN) return NP_OK;
    if (most < 0) {
        most = (int64_t)exchange_context(exchange);
        if (exchange->ask.max_tokens > 0 && exchange->ask.max_tokens < most)
            most -= exchange->ask.max_tokens;
    }
    if (most == 0)
        return error_set(err, NP_EINPUT, "truncate_prompt_tokens", NO_OFFSET,
                         "-1 or at least 1 is expected");
    if (encoded->n <= (size_t)most) return NP_OK;
    size_t n_dropped = encoded->n - (size_t)most;
    encoded->ids += n_dropped;
    if (encoded->begin) {
        encoded->begin += n_dropped;
        encoded->end += n_dropped;
    }
    encoded->n = (size_t)most;
    encoded->n_dropped = n_dropped;
    return NP_OK;
}

static np_status take_scoring(struct exchange *exchange, size_t prompt, struct drawing *drawing,
                              np_request *request, np_error *err)
{
    const struct ask *ask = &exchange->ask;
    int64_t told = ask_told(ask);
    int mode = mode_of(exchange);
    if (told != NOT_GIVEN) {
        TRY(check_told(exchange, told == ask->prompt_logprobs ? "prompt_logprobs" : "logprobs",
                       told, err));
        request->want |= NP_WANT_LOGPROB | NP_WANT_RANK;
        request->top = (int32_t)told;
    }
    if (ask->candidates) TRY(take_candidates(exchange, prompt, request, err));
    if (ask->start != NOT_GIVEN) {
        if (told == NOT_GIVEN && !ask->candidates)
            return error_set(err, NP_EINPUT, "start", NO_OFFSET,
                             "needs prompt_logprobs or prompt_logprob_token_ids");
        request->start = (size_t)ask->start;
    }
    if (ask->tail) {
        if (!ask->candidates)
            return error_set(err, NP_EINPUT, "tail", NO_OFFSET, "needs prompt_logprob_token_ids");
        request->want |= NP_WANT_TAIL;
    }
    if (ask->mass) {
        if (told == NOT_GIVEN || told == 0)
            return error_set(err, NP_EINPUT, "prompt_logprob_mass", NO_OFFSET,
                             "needs prompt_logprobs of 1 or more");
        request->want |= NP_WANT_MASS;
    }
    request->logprobs_mode = mode == 1 || mode == 3 ? NP_RAW_LOGITS : NP_RAW_LOGPROBS;
    if (!isnan(ask->score_temperature)) {
        drawing->score_temperature = (float)ask->score_temperature;
        request->score_temperature = &drawing->score_temperature;
    }
    return NP_OK;
}

/* As many tokens as are asked for, or as there is room for; with no room at all the library says
 * what is missing. */
static size_t room_for(const struct exchange *exchange, size_t n_tokens)
{
    int64_t asked = exchange->ask.max_tokens;
    size_t n_context = exchange_context(exchange);
    if (n_tokens >= n_context) return asked == NOT_GIVEN ? 1 : (size_t)asked;
    size_t room = n_context - n_tokens;
    return asked == NOT_GIVEN || (size_t)asked > room ? room : (size_t)asked;
}

/* What the answer takes, from above: it is refused before any work if that is too much. */
static np_status check_answer(struct exchange *exchange, const np_request *request, np_error *err)
{
    enum { TOKEN_BYTES = 120, SCORE_BYTES = 24, ROW_BYTES = 40 };
    double n_vocab = exchange_info(exchange)->n_vocab;
    double n_rows = request->n_tokens > request->start + 1
                        ? (double)(request->n_tokens - request->start - 1)
                        : 0;
    double n_told = request->want & NP_WANT_LOGPROB ? 1 : 0;
    n_told += request->top < 0 ? n_vocab : request->top;
    double bytes =
        n_rows * (ROW_BYTES + n_told * TOKEN_BYTES + (double)request->n_candidates * SCORE_BYTES);
    if (request->sampling) {
        const np_sampling *sampling = request->sampling;
        double n_beside = sampling->want ? 1 : 0;
        n_beside += sampling->top < 0 ? n_vocab : sampling->top;
        bytes += sampling->n * (double)request->max_tokens * (ROW_BYTES + n_beside * TOKEN_BYTES);
    }
    return ask_expect(exchange, bytes, err);
}

np_status ask_expect(struct exchange *exchange, double n_bytes, np_error *err)
{
    size_t most = exchange_options(exchange)->max_answer_bytes;
    exchange->n_expected_bytes += n_bytes;
    if (exchange->n_expected_bytes <= (double)most) return NP_OK;
    error_set(err, NP_ELIMIT, "", NO_OFFSET,
              "the answer would take up to %.0f bytes; at most %zu are sent (--max-answer)",
              exchange->n_expected_bytes, most);
    return NP_ELIMIT;
}

void ask_running(const struct exchange *exchange, np_request *request)
{
    const struct ask *ask = &exchange->ask;
    int64_t timeout_ms = exchange_options(exchange)->timeout_ms;
    if (ask->timeout_ms != NOT_GIVEN && (timeout_ms <= 0 || ask->timeout_ms < timeout_ms))
        timeout_ms = ask->timeout_ms;
    request->timeout_ms = timeout_ms;
    request->priority = (int32_t)ask->priority;
    request->cache_salt = ask->cache_salt;
    request->skip_reading_prefix_cache = ask->skip_cache;
}

np_status ask_request(struct exchange *exchange, size_t prompt, np_request *request, np_error *err)
{
    const struct ask *ask = &exchange->ask;
    const struct prompt *from = &ask->prompts.at[prompt];
    struct drawing *drawing = arena_push_array(&exchange->arena, 1, sizeof *drawing);
    if (!drawing) return error_nomem(err, "request", sizeof *drawing);
    struct encoded *encoded = &exchange->encoded[prompt];
    TRY(encode(exchange, from, encoded, err));
    TRY(truncate(exchange, encoded, err));
    request->token_ids = encoded->ids;
    request->n_tokens = encoded->n;
    TRY(take_scoring(exchange, prompt, drawing, request, err));
    if (ask->max_tokens != 0) {
        TRY(take_sampling(exchange, drawing, err));
        request->sampling = &drawing->sampling;
        request->max_tokens = room_for(exchange, encoded->n);
    }
    ask_running(exchange, request);
    return check_answer(exchange, request, err);
}
