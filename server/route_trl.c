/*
 * TRL's own server: the log-probabilities of given sequences, from each one's prompt on, as lists
 * or as flat arrays in base64. Position p of a sequence is scored by row p-1; position 0, where a
 * prompt is empty, by none.
 *
 * The surprise: `temperature` is refused unless it is 1. TRL means the teacher's softmax by it, and
 * hands it to a parameter of vLLM that never touches such scores.
 */
#include "ask_fields.h"
#include "logprobs.h"
#include "replies.h"
#include "routes.h"

#include <math.h>

static const char *const response_formats[] = {"json", "binary", NULL};
enum { FORMAT_BINARY = 2 };

static const struct field sequences_fields[] = {
    REQUIRED("sequences", FIELD_ID_LISTS, prompts, "TRL", "token_ids",
             "Lists of token ids, each a prompt and what follows it; used as they are."),
    {"prompt_lengths", FIELD_INTS, ASK(lengths), 0, COUNT_MAX, NULL, NULL, "TRL",
     "Tokens of each sequence that are its prompt: what follows is scored.", NULL, true},
    NUMBERS("top_logprobs", FIELD_COUNT, prompt_logprobs, -1, COUNT_MAX, "100", "TRL",
            "prompt_logprobs", "So many likeliest tokens per position; -1: the whole vocabulary."),
    NUMBERS("temperature", FIELD_NUMBER, temperature, 0, FLT_MAX, "1", "TRL", NULL,
            "Only 1; score_temperature divides the logits before the softmax."),
    NAMES("response_format", response_format, response_formats, "\"json\"", "TRL",
          "\"binary\": base64 of float32 and int32 arrays, little-endian, padded to one shape."),
    NUMBERS("score_temperature", FIELD_ABOVE0, score_temperature, 0, FLT_MAX, "null", "nepit", NULL,
            "Divides logits before the softmax; null: 1."),
    NAMES("logprobs_mode", logprobs_mode, server_modes, NULL, "nepit",
          "Log-probabilities or logits; the processed ones are the raw ones here."),
    ONLY("images", "[[]]", "TRL", "There are no images."),
    LAST_ROW};
const struct field *const sequences_groups[] = {sequences_fields, identity_fields, running_fields,
                                                NULL};

/* ---- asking ---------------------------------------------------------------------------------- */

static size_t completion_length(const struct exchange *exchange, size_t i)
{
    return exchange->ask.prompts.at[i].ids.n - (size_t)exchange->ask.lengths.at[i];
}

static np_status check_lengths(const struct ask *ask, np_error *err)
{
    char where[48];
    if (!ask->prompts.many)
        return error_set(err, NP_EINPUT, "sequences[0]", NO_OFFSET,
                         "must be a list of token ids: sequences is a list of lists");
    if (!ask->lengths.many || ask->lengths.n != ask->prompts.n) {
        error_set(err, NP_EINPUT, "prompt_lengths", NO_OFFSET,
                  "a list of %zu lengths is expected, one per sequence", ask->prompts.n);
        return error_given(err, NP_EINPUT, "%zu", ask->lengths.n);
    }
    for (size_t i = 0; i < ask->prompts.n; i++) {
        if ((uint64_t)ask->lengths.at[i] <= ask->prompts.at[i].ids.n) continue;
        snprintf(where, sizeof where, "prompt_lengths[%zu]", i);
        error_set(err, NP_EINPUT, where, NO_OFFSET, "the sequence has %zu tokens",
                  ask->prompts.at[i].ids.n);
        return error_given(err, NP_EINPUT, "%lld", (long long)ask->lengths.at[i]);
    }
    return NP_OK;
}

/* Tokens told per position. */
static size_t n_told(const struct exchange *exchange)
{
    int64_t asked = exchange->ask.prompt_logprobs;
    return asked < 0 ? (size_t)exchange_info(exchange)->n_vocab : (size_t)asked;
}

static size_t longest_completion(const struct exchange *exchange)
{
    size_t longest = 0;
    for (size_t i = 0; i < exchange->ask.prompts.n; i++)
        if (completion_length(exchange, i) > longest) longest = completion_length(exchange, i);
    return longest;
}

np_status sequences_prepare(struct exchange *exchange, np_error *err)
{
    struct ask *ask = &exchange->ask;
    size_t n = ask->prompts.n;
    TRY(check_lengths(ask, err));
    if (ask->temperature != 1) {
        error_set(err, NP_EUNSUPPORTED, "temperature", NO_OFFSET,
                  "must be 1: a sampling temperature does not touch scores of given tokens; "
                  "score_temperature divides the logits before the softmax");
        return error_given(err, NP_EUNSUPPORTED, "%g", ask->temperature);
    }
    if (ask->prompt_logprobs == NOT_GIVEN) ask->prompt_logprobs = 0;
    ask->max_tokens = 0;
    if (ask->response_format == FORMAT_BINARY)
        TRY(ask_expect(exchange,
                       (double)n * (double)longest_completion(exchange) *
                           ((double)n_told(exchange) + 1) * 11,
                       err));
    TRY(exchange_requests(exchange, n, err));
    for (size_t i = 0; i < n; i++) {
        ask->start = ask->lengths.at[i] > 0 ? ask->lengths.at[i] - 1 : 0;
        TRY(prepare_prompt(exchange, i, err));
    }
    return NP_OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* What a list holds of one position. */
typedef void position_fn(struct json *json, const np_result *result, size_t row);

static void top_values(struct json *json, const np_result *result, size_t row)
{
    for (size_t k = 0; k < result->n_top; k++)
        json_float(json, result->top_logprobs[row * result->n_top + k]);
}

static void top_ids(struct json *json, const np_result *result, size_t row)
{
    for (size_t k = 0; k < result->n_top; k++)
        json_int(json, result->top_ids[row * result->n_top + k]);
}

static void own_value(struct json *json, const np_result *result, size_t row)
{
    json_float(json, result->logprobs[row]);
}

static void own_id(struct json *json, const np_result *result, size_t row)
{
    json_int(json, result->token_ids[result->start + row + 1]);
}

static void tell_lists(struct exchange *exchange, const char *key, position_fn *position)
{
    struct json *json = &exchange->writer;
    json_key(json, key);
    json_begin(json, '[');
    for (size_t i = 0; i < exchange->n_requests; i++) {
        const np_result *result = &exchange->results[i];
        json_begin(json, '[');
        if (exchange->ask.lengths.at[i] == 0) json_raw(json, "[]", 2);
        for (size_t row = 0; row < result->n_scored; row++) {
            json_begin(json, '[');
            position(json, result, row);
            json_end(json, ']');
        }
        json_end(json, ']');
    }
    json_end(json, ']');
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* [B, longest, K] and [B, longest, 1]; -inf and id 0 where there is nothing. */
struct arrays {
    size_t n_positions, n_top;
    float *values, *own_values;
    int32_t *ids, *own_ids;
};

static void fill_arrays(const struct exchange *exchange, const struct arrays *arrays, size_t i)
{
    const np_result *result = &exchange->results[i];
    size_t position = i * arrays->n_positions + (exchange->ask.lengths.at[i] == 0);
    for (size_t row = 0; row < result->n_scored; row++, position++) {
        size_t cell = position * arrays->n_top, from = row * result->n_top;
        for (size_t k = 0; k < result->n_top; k++) {
            arrays->values[cell + k] = result->top_logprobs[from + k];
            arrays->ids[cell + k] = result->top_ids[from + k];
        }
        arrays->own_values[position] = result->logprobs[row];
        arrays->own_ids[position] = result->token_ids[result->start + row + 1];
    }
}

static void tell_array(struct exchange *exchange, const char *key, const void *bytes,
                       size_t n_bytes)
{
    json_key(&exchange->writer, key);
    tell_base64(exchange, bytes, n_bytes);
}

static np_status tell_arrays(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    struct arena *arena = &exchange->arena;
    size_t n_longest = longest_completion(exchange), n = exchange->n_requests * n_longest;
    struct arrays arrays = {.n_positions = n_longest, .n_top = n_told(exchange)};
    size_t n_cells = n * arrays.n_top;
    arrays.values = arena_push_array(arena, n_cells + 1, sizeof(float));
    arrays.ids = arena_push_array(arena, n_cells + 1, sizeof(int32_t));
    arrays.own_values = arena_push_array(arena, n + 1, sizeof(float));
    arrays.own_ids = arena_push_array(arena, n + 1, sizeof(int32_t));
    if (!arrays.values || !arrays.ids || !arrays.own_values || !arrays.own_ids)
        return error_nomem(err, "the answer", n_cells * sizeof(float));
    for (size_t i = 0; i < n_cells; i++) arrays.values[i] = -INFINITY;
    for (size_t i = 0; i < n; i++) arrays.own_values[i] = -INFINITY;
    for (size_t i = 0; i < exchange->n_requests; i++) fill_arrays(exchange, &arrays, i);
    tell_array(exchange, "logprobs_b64", arrays.values, n_cells * sizeof(float));
    tell_array(exchange, "token_ids_b64", arrays.ids, n_cells * sizeof(int32_t));
    tell_array(exchange, "actual_logprobs_b64", arrays.own_values, n * sizeof(float));
    tell_array(exchange, "actual_token_ids_b64", arrays.own_ids, n * sizeof(int32_t));
    json_key(json, "shape");
    json_begin(json, '[');
    json_int(json, (int64_t)exchange->n_requests);
    json_int(json, (int64_t)n_longest);
    json_int(json, (int64_t)arrays.n_top);
    json_end(json, ']');
    json_key(json, "completion_lengths");
    json_begin(json, '[');
    for (size_t i = 0; i < exchange->n_requests; i++)
        json_int(json, (int64_t)completion_length(exchange, i));
    json_end(json, ']');
    return NP_OK;
}

/* ---- answers --------------------------------------------------------------------------------- */

np_status sequences_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    np_status status = NP_OK;
    json_begin(json, '{');
    if (exchange->ask.response_format == FORMAT_BINARY) {
        status = tell_arrays(exchange, err);
    } else {
        tell_lists(exchange, "logprobs", top_values);
        tell_lists(exchange, "logprob_token_ids", top_ids);
        tell_lists(exchange, "actual_logprobs", own_value);
        tell_lists(exchange, "actual_token_ids", own_id);
    }
    json_key(json, "model");
    json_str(json, exchange_model_name(exchange));
    tell_meaning(exchange);
    json_end(json, '}');
    return status;
}

np_status world_size_reply(struct exchange *exchange, np_error *err)
{
    json_begin(&exchange->writer, '{');
    json_key(&exchange->writer, "world_size");
    json_int(&exchange->writer, 1);
    json_end(&exchange->writer, '}');
    return NP_OK;
}
