/*
 * POST /nepit/v1/score and /nepit/v1/gather: what the commands of these names tell, for one prompt
 * or many. Sums are added in double, in order, from the float32 that are told.
 */
#include "ownroutes.h"
#include "rows.h"

#include <math.h>

static const double LN2 = 0.69314718055994530942;

static const char *const condition_names[] = {"bos", "none", NULL};

const struct field own_text_fields[] = {
    ROW("add_special_tokens", FIELD_CHOICE, add_special, NULL, "vLLM", "add_special",
        "Whether BOS and EOS are added to a text as the tokenizer does."),
    ROW("parse_special", FIELD_CHOICE, parse_special, NULL, "llama.cpp", NULL,
        "Whether the text of a special token is that token; true by default."),
    NAMES("condition", condition, condition_names, NULL, "nepit",
          "What stands before a text: BOS, or nothing; by default as the tokenizer does."),
    LAST_ROW};

const struct field own_numbers_fields[] = {
    NUMBERS("score_temperature", FIELD_ABOVE0, score_temperature, 0, FLT_MAX, "null", "nepit", NULL,
            "Divides logits before the softmax; null: 1."),
    NUMBERS("prompt_logprobs_temperature", FIELD_ABOVE0, score_temperature, 0, FLT_MAX, NULL,
            "vLLM", NULL, "The same as score_temperature."),
    NAMES("logprobs_mode", logprobs_mode, server_modes, NULL, "vLLM",
          "Log-probabilities or logits; the processed ones are the raw ones here."),
    LAST_ROW};

static const struct field score_fields[] = {
    ROW("prompt", FIELD_PROMPT, prompts, NULL, "nepit", NULL,
        "What is scored: a text or ids, or a list of such."),
    ROW("prompts", FIELD_PROMPT, prompts, NULL, "nepit", NULL, "The same as prompt."),
    ROW("token_ids", FIELD_ID_LISTS, prompts, NULL, "nepit", "token_ids",
        "Ids, used as they are; or a list of such lists."),
    NUMBERS("start", FIELD_INT, start, 0, 1e15, "null", "nepit", NULL,
            "The first row; row r scores token r+1. Entries before it are null."),
    NUMBERS("prompt_logprob_start", FIELD_INT, start, 0, 1e15, NULL, "vLLM", NULL,
            "The same as start."),
    NUMBERS("top", FIELD_COUNT, prompt_logprobs, -1, COUNT_MAX, "0", "nepit", "prompt_logprobs",
            "So many likeliest tokens of each row; -1: the whole vocabulary."),
    NUMBERS("prompt_logprobs", FIELD_COUNT, prompt_logprobs, -1, COUNT_MAX, NULL, "vLLM", NULL,
            "The same as top."),
    ROW("entropy", FIELD_FLAG, entropy, "false", "nepit", NULL, "Of the whole row, in nats."),
    ROW("mass", FIELD_FLAG, mass, "false", "nepit", "prompt_logprob_mass",
        "Log of the probability that the top tokens leave; needs top."),
    LAST_ROW};
const struct field *const own_score_groups[] = {
    score_fields, own_text_fields, own_numbers_fields, identity_fields, running_fields, NULL};

static const struct field gather_fields[] = {
    ROW("prompt", FIELD_PROMPT, prompts, NULL, "nepit", NULL,
        "A text or ids, or a list of such; the rows are those of the response, if there is one."),
    ROW("token_ids", FIELD_ID_LISTS, prompts, NULL, "nepit", "token_ids",
        "Ids, used as they are; or a list of such lists."),
    ROW("response", FIELD_PROMPT, response, NULL, "nepit", NULL,
        "What follows the prompt, encoded by itself: a text or ids, one per prompt."),
    ROW("candidates", FIELD_CANDIDATES, candidates, NULL, "nepit", "candidate_ids",
        "Ids scored at every row: one list for all, or a list per row (ragged, -1 pads), or base64 "
        "of a .npy. For several prompts with lists per row, one more level."),
    ROW("prompt_logprob_token_ids", FIELD_CANDIDATES, candidates, NULL, "vLLM", NULL,
        "The same as candidates."),
    NUMBERS("start", FIELD_INT, start, 0, 1e15, "null", "nepit", NULL,
            "The first row; row r scores token r+1. By default that of the response."),
    NUMBERS("prompt_logprob_start", FIELD_INT, start, 0, 1e15, NULL, "vLLM", NULL,
            "The same as start."),
    ROW("tail", FIELD_FLAG, tail, "false", "nepit", "tail",
        "Per row, the log of the probability that its distinct candidates leave."),
    ROW("prompt_logprob_tail", FIELD_FLAG, tail, NULL, "nepit", NULL, "The same as tail."),
    NAMES("format", score_format, score_format_names, "\"base64\"", "nepit",
          "How scores are told: base64 of a .npy file, or lists of numbers."),
    NAMES("prompt_logprob_format", score_format, score_format_names, NULL, "nepit",
          "The same as format."),
    LAST_ROW};
const struct field *const own_gather_groups[] = {
    gather_fields, own_text_fields, own_numbers_fields, identity_fields, running_fields, NULL};

/* ---- shared ---------------------------------------------------------------------------------- */

/* Whether a field was sent, and is not null. */
static bool was_sent(const struct exchange *exchange, const char *name)
{
    const json_t *value = json_object_get(exchange->json, name);
    return value && !json_is_null(value);
}

np_status own_check_ids(const struct exchange *exchange, const char *where, np_ids ids,
                        np_error *err)
{
    int32_t n_vocab = exchange_info(exchange)->n_vocab;
    size_t n_context = exchange_context(exchange);
    char place[96];
    if (ids.n == 0)
        return error_set(err, NP_EINPUT, where, NO_OFFSET, "at least one token is needed");
    if (ids.n > n_context) {
        error_set(err, NP_ELIMIT, where, NO_OFFSET,
                  "%zu tokens do not fit the context of %zu tokens", ids.n, n_context);
        return error_given(err, NP_ELIMIT, "%zu tokens", ids.n);
    }
    for (size_t i = 0; i < ids.n; i++) {
        if (ids.ids[i] >= 0 && ids.ids[i] < n_vocab) continue;
        snprintf(place, sizeof place, "%.64s[%zu]", where, i);
        error_set(err, NP_EINPUT, place, NO_OFFSET,
                  "a token id must lie in 0 to %d (vocabulary %d)", (int)n_vocab - 1, (int)n_vocab);
        return error_given(err, NP_EINPUT, "%d", (int)ids.ids[i]);
    }
    return NP_OK;
}

np_status own_bos(const struct exchange *exchange, bool *bos, np_error *err)
{
    const struct ask *ask = &exchange->ask;
    if (ask->condition && ask->add_special != NP_DEFAULT)
        return error_set(err, NP_EINPUT, "condition", NO_OFFSET,
                         "not together with add_special_tokens: they say the same");
    *bos = ask->condition == NP_CONDITION_BOS ||
           (!ask->condition && ask->add_special != NP_NO && exchange_info(exchange)->adds_bos);
    return NP_OK;
}

/* Bytes that token i covers: of the text, or where ids were given those of the token. */
static size_t token_bytes(const struct exchange *exchange, const struct encoded *encoded, size_t i)
{
    size_t n_bytes;
    if (encoded->begin) return encoded->end[i] - encoded->begin[i];
    (void)token_text(exchange, encoded->ids[i], &n_bytes);
    return n_bytes;
}

void own_tell_conditioning(struct exchange *exchange, const int32_t *ids, size_t n)
{
    int32_t bos_id = exchange_info(exchange)->bos_id;
    json_key(&exchange->writer, "conditioning");
    json_str(&exchange->writer, n > 0 && bos_id >= 0 && ids[0] == bos_id ? "bos" : "none");
}

void own_tell_double(struct json *json, const char *key, double value)
{
    json_key(json, key);
    if (isfinite(value))
        json_double(json, value);
    else
        json_nil(json);
}

void own_tell_count(struct json *json, const char *key, size_t count)
{
    json_key(json, key);
    json_int(json, (int64_t)count);
}

double own_value(float logprob)
{
    return isinf(logprob) ? -9999.0 : (double)logprob;
}

static const char *const prompt_names[] = {"prompt", "prompts", "token_ids"};

static np_status check_prompts(const struct exchange *exchange, np_error *err)
{
    size_t n_sent = 0;
    for (size_t i = 0; i < 3; i++) n_sent += was_sent(exchange, prompt_names[i]);
    if (n_sent == 1) return NP_OK;
    return error_set(err, NP_EINPUT, "prompt", NO_OFFSET,
                     n_sent ? "not together with another of prompt, prompts and token_ids"
                            : "prompt or token_ids is required");
}

/* "prompts[1]", as the client called it; ids have their number from the core. */
static void name_prompt(const struct exchange *exchange, size_t i, char name[48])
{
    size_t k = 0;
    while (k < 2 && !was_sent(exchange, prompt_names[k])) k++;
    if (k == 2)
        snprintf(name, 48, "requests[%zu].token_ids", i);
    else
        snprintf(name, 48, exchange->ask.prompts.many ? "%s[%zu]" : "%s", prompt_names[k], i);
}

static np_status prepare_named(struct exchange *exchange, np_error *err)
{
    size_t n = exchange->ask.prompts.n;
    char name[48];
    TRY(exchange_requests(exchange, n, err));
    for (size_t i = 0; i < n; i++) {
        TRY(prepare_prompt(exchange, i, err));
        name_prompt(exchange, i, name);
        TRY(own_check_ids(exchange, name,
                          (np_ids){exchange->encoded[i].ids, exchange->encoded[i].n}, err));
    }
    return NP_OK;
}

/* ---- score ----------------------------------------------------------------------------------- */

np_status own_score_prepare(struct exchange *exchange, np_error *err)
{
    enum { TOKEN_BYTES = 120 };
    struct ask *ask = &exchange->ask;
    TRY(check_prompts(exchange, err));
    if (ask->prompt_logprobs == NOT_GIVEN) ask->prompt_logprobs = 0;
    ask->max_tokens = 0;
    TRY(prepare_named(exchange, err));
    for (size_t i = 0; i < exchange->n_requests; i++) {
        if (ask->entropy) exchange->requests[i].want |= NP_WANT_ENTROPY;
        TRY(ask_expect(exchange, (double)exchange->requests[i].n_tokens * TOKEN_BYTES, err));
    }
    return NP_OK;
}

/* An entry per token, null where no row scores it. */
static void tell_column(struct exchange *exchange, const np_result *result, const char *key,
                        const float *values, const int32_t *ranks)
{
    struct json *json = &exchange->writer;
    if (!values && !ranks) return;
    json_key(json, key);
    json_begin(json, '[');
    for (size_t i = 0; i < result->n_tokens; i++) {
        int64_t row = row_of(result, i);
        if (row < 0)
            json_nil(json);
        else if (ranks)
            json_int(json, ranks[row]);
        else
            json_float(json, values[row]);
    }
    json_end(json, ']');
}

static void tell_top_of(struct exchange *exchange, const np_result *result, size_t row,
                        const char *value_key)
{
    struct json *json = &exchange->writer;
    json_begin(json, '[');
    for (size_t k = 0; k < result->n_top; k++) {
        size_t cell = row * result->n_top + k;
        json_begin(json, '{');
        json_key(json, "token_id");
        json_int(json, result->top_ids[cell]);
        json_key(json, "token");
        tell_token(exchange, result->top_ids[cell], false);
        json_key(json, value_key);
        json_float(json, result->top_logprobs[cell]);
        json_key(json, "rank");
        json_int(json, (int64_t)k + 1);
        json_end(json, '}');
    }
    json_end(json, ']');
}

static void tell_tops(struct exchange *exchange, const np_result *result, bool logits)
{
    struct json *json = &exchange->writer;
    if (!result->top_ids) return;
    json_key(json, logits ? "top_logits" : "top_logprobs");
    json_begin(json, '[');
    for (size_t i = 0; i < result->n_tokens; i++) {
        int64_t row = row_of(result, i);
        if (row < 0)
            json_nil(json);
        else
            tell_top_of(exchange, result, (size_t)row, logits ? "logit" : "logprob");
    }
    json_end(json, ']');
}

static void tell_tokens(struct exchange *exchange, const struct encoded *encoded)
{
    struct json *json = &exchange->writer;
    json_key(json, "token_ids");
    tell_ids(exchange, encoded->ids, encoded->n);
    json_key(json, "tokens");
    json_begin(json, '[');
    for (size_t i = 0; i < encoded->n; i++) tell_token(exchange, encoded->ids[i], false);
    json_end(json, ']');
    if (!encoded->begin) return;
    json_key(json, "offsets");
    json_begin(json, '[');
    for (size_t i = 0; i < encoded->n; i++) {
        json_begin(json, '[');
        json_int(json, (int64_t)encoded->begin[i]);
        json_int(json, (int64_t)encoded->end[i]);
        json_end(json, ']');
    }
    json_end(json, ']');
}

static void tell_sums(struct exchange *exchange, size_t request, const np_result *result,
                      bool logits)
{
    struct json *json = &exchange->writer;
    const struct encoded *encoded = &exchange->encoded[request];
    double total = 0, count = (double)result->n_scored;
    size_t n_bytes = exchange->ask.prompts.at[request].text.n_bytes, n_scored_bytes = 0;
    for (size_t j = 0; j < result->n_scored; j++) {
        total += own_value(result->logprobs[j]);
        n_scored_bytes += token_bytes(exchange, encoded, result->start + j + 1);
    }
    for (size_t i = 0; !encoded->begin && i < encoded->n; i++)
        n_bytes += token_bytes(exchange, encoded, i);
    if (!logits) {
        own_tell_double(json, "total", total);
        own_tell_double(json, "mean", total / count);
        own_tell_double(json, "perplexity", exp(-(total / count)));
        own_tell_double(json, "bits_per_byte", -total / LN2 / (double)n_scored_bytes);
    }
    own_tell_count(json, "n_tokens", result->n_tokens);
    own_tell_count(json, "n_scored", result->n_scored);
    own_tell_count(json, "n_bytes", n_bytes);
    own_tell_count(json, "n_scored_bytes", n_scored_bytes);
}

/* Behind the list of results. */
static void end_results(struct exchange *exchange)
{
    struct json *json = &exchange->writer;
    json_end(json, ']');
    tell_meaning(exchange);
    json_key(json, "usage");
    tell_usage(exchange, exchange->n_prompt_tokens, 0);
    json_end(json, '}');
}

np_status own_score_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    json_begin(json, '{');
    tell_head(exchange, "request_id", NULL);
    json_key(json, "results");
    json_begin(json, '[');
    for (size_t i = 0; i < exchange->n_requests; i++) {
        const np_result *result = &exchange->results[i];
        bool logits = exchange->requests[i].logprobs_mode == NP_RAW_LOGITS;
        json_begin(json, '{');
        tell_tokens(exchange, &exchange->encoded[i]);
        tell_column(exchange, result, logits ? "logits" : "logprobs", result->logprobs, NULL);
        tell_column(exchange, result, "ranks", NULL, result->ranks);
        tell_column(exchange, result, "entropies", result->entropies, NULL);
        tell_tops(exchange, result, logits);
        tell_column(exchange, result, "log_mass_not_listed", result->mass, NULL);
        tell_sums(exchange, i, result, logits);
        own_tell_conditioning(exchange, result->token_ids, result->n_tokens);
        json_end(json, '}');
    }
    end_results(exchange);
    return NP_OK;
}

/* ---- gather ---------------------------------------------------------------------------------- */

/* A prompt or a response as ids, without what a tokenizer would add but for BOS. */
static np_status encode_part(struct exchange *exchange, const struct prompt *from, bool bos,
                             const char *where, np_ids *out, np_error *err)
{
    struct encoded encoded;
    *out = from->ids;
    if (!from->ids.ids) {
        TRY(ask_encode(exchange, from->text, NP_NO, bos, &encoded, err));
        *out = (np_ids){encoded.ids, encoded.n};
    }
    return own_check_ids(exchange, where, *out, err);
}

/* Prompt and response i as one sequence; *start: the first row of the response. */
static np_status join(struct exchange *exchange, size_t i, struct prompt *joined, int64_t *start,
                      np_error *err)
{
    struct ask *ask = &exchange->ask;
    np_ids prompt, response;
    bool bos = false;
    char name[48];
    TRY(own_bos(exchange, &bos, err));
    name_prompt(exchange, i, name);
    TRY(encode_part(exchange, &ask->prompts.at[i], bos, name, &prompt, err));
    snprintf(name, sizeof name, ask->response.many ? "response[%zu]" : "response", i);
    TRY(encode_part(exchange, &ask->response.at[i], false, name, &response, err));
    if (prompt.n + response.n > exchange_context(exchange)) {
        error_set(err, NP_ELIMIT, name, NO_OFFSET,
                  "%zu tokens with the prompt do not fit the context of %zu tokens",
                  prompt.n + response.n, exchange_context(exchange));
        return NP_ELIMIT;
    }
    int32_t *ids = arena_push_array(&exchange->arena, prompt.n + response.n, sizeof *ids);
    if (!ids) return error_nomem(err, "prompt", (prompt.n + response.n) * sizeof *ids);
    memcpy(ids, prompt.ids, prompt.n * sizeof *ids);
    memcpy(ids + prompt.n, response.ids, response.n * sizeof *ids);
    *joined = (struct prompt){.ids = {ids, prompt.n + response.n}};
    *start = (int64_t)prompt.n - 1;
    return NP_OK;
}

static np_status prepare_joined(struct exchange *exchange, np_error *err)
{
    struct ask *ask = &exchange->ask;
    size_t n = ask->prompts.n;
    int64_t given = ask->start;
    struct prompt *joined = arena_push_array(&exchange->arena, n, sizeof *joined);
    int64_t *starts = arena_push_array(&exchange->arena, n, sizeof *starts);
    if (!joined || !starts) return error_nomem(err, "prompt", n * sizeof *joined);
    if (ask->response.n != n) {
        error_set(err, NP_EINPUT, "response", NO_OFFSET, "%zu are expected, one per prompt", n);
        return error_given(err, NP_EINPUT, "%zu", ask->response.n);
    }
    for (size_t i = 0; i < n; i++) TRY(join(exchange, i, &joined[i], &starts[i], err));
    ask->prompts.at = joined;
    TRY(exchange_requests(exchange, n, err));
    for (size_t i = 0; i < n; i++) {
        ask->start = given == NOT_GIVEN ? starts[i] : given;
        TRY(prepare_prompt(exchange, i, err));
    }
    return NP_OK;
}

np_status own_gather_prepare(struct exchange *exchange, np_error *err)
{
    struct ask *ask = &exchange->ask;
    TRY(check_prompts(exchange, err));
    if (!ask->candidates)
        return error_set(err, NP_EINPUT, "candidates", NO_OFFSET, "this field is required");
    ask->max_tokens = 0;
    np_status status =
        ask->response.at ? prepare_joined(exchange, err) : prepare_named(exchange, err);
    char *place = status == NP_OK ? NULL : strstr(err->where, "prompt_logprob_token_ids");
    if (place && was_sent(exchange, "candidates")) {
        char rest[sizeof err->where];
        snprintf(rest, sizeof rest, "%s", place + strlen("prompt_logprob_token_ids"));
        snprintf(place, 160, "candidates%.140s", rest);
    }
    return status;
}

np_status own_gather_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    if (reply_npy(exchange)) return NP_OK;
    json_begin(json, '{');
    tell_head(exchange, "request_id", NULL);
    json_key(json, "results");
    json_begin(json, '[');
    for (size_t i = 0; i < exchange->n_requests; i++) {
        const np_result *result = &exchange->results[i];
        json_begin(json, '{');
        own_tell_count(json, "start", result->start);
        json_key(json, "row_token_ids");
        tell_ids(exchange, result->token_ids + (result->n_rows ? result->start + 1 : 0),
                 result->n_rows);
        json_key(json, "scores");
        tell_scores(exchange, result, 0, result->n_rows);
        if (result->tail) {
            json_key(json, "tail");
            tell_values(exchange, result->tail, 0, result->n_rows);
        }
        own_tell_count(json, "n_tokens", result->n_tokens);
        if (exchange->ask.response.at) {
            json_key(json, "split");
            json_str(json, "separate");
        }
        json_end(json, '}');
    }
    end_results(exchange);
    return NP_OK;
}

/* ---- the reranker's route -------------------------------------------------------------------- */

static const struct field reranker_fields[] = {
    IGNORED("text_1", "vLLM", "Of a reranker."),  IGNORED("text_2", "vLLM", "Of a reranker."),
    IGNORED("queries", "vLLM", "Of a reranker."), IGNORED("documents", "vLLM", "Of a reranker."),
    IGNORED("model", "vLLM", "Of a reranker."),   LAST_ROW};
const struct field *const reranker_groups[] = {reranker_fields, NULL};

np_status reranker_prepare(struct exchange *exchange, np_error *err)
{
    return error_set(err, NP_EUNSUPPORTED, was_sent(exchange, "text_1") ? "text_1" : "", NO_OFFSET,
                     "this is the route of a reranker, which compares two texts; log-probabilities "
                     "of a text are told by /nepit/v1/score");
}
