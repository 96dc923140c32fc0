/*
 * POST /generate as SGLang has it: a text or ids, what follows, and triples [log-probability, id,
 * text]. SGLang counts by the token that is scored: entry i of its lists belongs to token
 * logprob_start_len + i, and the first of them is null, though a row before it exists.
 *
 *     token      s      s+1     s+2                  s = logprob_start_len
 *     row               s       s+1
 *     entry      null   [..]    [..]
 *
 * Events of a stream tell the whole state of a choice each time; that is what its clients read.
 */
#include "ask_fields.h"
#include "inside.h"
#include "logprobs.h"
#include "replies.h"
#include "routes.h"

static const struct field sampling_fields[] = {
    NUMBERS("max_new_tokens", FIELD_INT, max_tokens, 0, COUNT_MAX, "128", "SGLang", NULL,
            "At most so many tokens follow; 0: none."),
    NUMBERS("min_new_tokens", FIELD_INT, min_tokens, 0, COUNT_MAX, "0", "SGLang",
            "sampling.min_tokens", "Nothing ends a choice before it has so many tokens."),
    ROW("sampling_seed", FIELD_SEED, seed, "null", "SGLang", NULL, "The same as seed."),
    ROW("no_stop_trim", FIELD_FLAG, include_stop, "false", "SGLang", NULL,
        "Leaves in the text what ended it."),
    ONLY("stop_regex", "[[]]", "SGLang", "Texts end at texts and tokens alone."),
    ONLY("json_schema", "[]", "SGLang", "Texts are not bound to a grammar."),
    ONLY("regex", "[]", "SGLang", "Texts are not bound to a grammar."),
    ONLY("ebnf", "[]", "SGLang", "Texts are not bound to a grammar."),
    ONLY("structural_tag", "[]", "SGLang", "Texts are not bound to a grammar."),
    ONLY("beam_width", "[1]", "SGLang", "Beams are not searched."),
    ONLY("custom_params", "[{}]", "SGLang", "There are no further parameters."),
    IGNORED("stream_interval", "SGLang", "Events come as tokens do."),
    LAST_ROW};
static const struct field *const sampling_groups[] = {sampling_fields, drawing_fields, NULL};

static const struct field sglang_fields[] = {
    ROW("text", FIELD_PROMPT, prompts, NULL, "SGLang", NULL, "The prompt, or a list of prompts."),
    ROW("input_ids", FIELD_ID_LISTS, prompts, NULL, "SGLang", "token_ids",
        "The prompt as ids, used as they are; or a list of such lists."),
    OBJECT("sampling_params", sampling_groups, "SGLang", "What follows."),
    ROW("rid", FIELD_WORD, request_id, NULL, "SGLang", NULL, "Told back, and logged."),
    ROW("return_logprob", FIELD_FLAG, wants_logprobs, "false", "SGLang", NULL,
        "Tells log-probabilities, of the prompt from logprob_start_len on."),
    {"logprob_start_len", FIELD_INTS, ASK(starts), -1, 1e15, NULL, NULL, "SGLang",
     "The first token of the prompt that is told, with null; its successors have numbers. -1: "
     "none. "
     "Or one per prompt.",
     NULL, false},
    {"top_logprobs_num", FIELD_INTS, ASK(tops), 0, COUNT_MAX, NULL, NULL, "SGLang",
     "So many likeliest tokens beside each. Or one per prompt.", NULL, false},
    ROW("token_ids_logprob", FIELD_CANDIDATES, targets, NULL, "SGLang", "candidate_ids",
        "Ids scored at every token of the prompt that is told, and at the next; or a list per "
        "prompt."),
    ROW("token_ids_logprob_positions", FIELD_CANDIDATES, target_positions, NULL, "SGLang", NULL,
        "Ids per token of the prompt, empty where none are scored; or such lists per prompt."),
    ROW("return_text_in_logprobs", FIELD_FLAG, return_text, "false", "SGLang", NULL,
        "Tells the text of each token."),
    ROW("return_flat_raw_top_logprobs", FIELD_FLAG, flat, "false", "SGLang", NULL,
        "The prompt's likeliest tokens as two flat lists and a shape."),
    ROW("return_flat_raw_top_logprobs_b64", FIELD_FLAG, flat_base64, "false", "SGLang", NULL,
        "The two lists in base64: float32 and int32, little-endian, -inf as it is."),
    ROW("return_prompt_token_ids", FIELD_FLAG, return_token_ids, "false", "SGLang", NULL,
        "Tells the ids of the prompt too."),
    ONLY("input_embeds", "[]", "SGLang", "Prompts are texts or ids."),
    ONLY("image_data", "[[]]", "SGLang", "There are no images."),
    ONLY("video_data", "[[]]", "SGLang", "There are no videos."),
    ONLY("audio_data", "[[]]", "SGLang", "There is no sound."),
    ONLY("session_params", "[{}]", "SGLang", "Requests stand alone."),
    ONLY("lora_path", "[]", "SGLang", "There are no adapters."),
    ONLY("custom_logit_processor", "[]", "SGLang", "Code of others is not run."),
    ONLY("return_hidden_states", "[false]", "SGLang", "Hidden states are not told."),
    ONLY("return_routed_experts", "[false]", "SGLang", "There are no experts."),
    ONLY("return_sampling_mask", "[false]", "SGLang", "Masks are not told."),
    ONLY("return_entropy", "[false]", "SGLang", "Use /nepit/v1/score."),
    ONLY("return_bytes", "[false]", "SGLang", "There are no images."),
    ONLY("background", "[false]", "SGLang", "Answers come at once."),
    ONLY("require_reasoning", "[false]", "SGLang", "Tokens are not forced."),
    ONLY("max_thinking_tokens", "[]", "SGLang", "Tokens are not forced."),
    ONLY("multi_item_delimiter_indices", "[]", "SGLang", "Use /nepit/v1/choose."),
    ONLY("bootstrap_host", "[]", "SGLang", "Keys and values stay here."),
    ONLY("extra_key", "[]", "SGLang", "Use cache_salt."),
    IGNORED("modalities", "SGLang", "There are texts alone."),
    IGNORED("session_id", "SGLang", "What is shared is found by its tokens."),
    IGNORED("log_metrics", "SGLang", "Metrics hold no texts."),
    IGNORED("no_logs", "SGLang", "Logs hold no texts unless the server was told so."),
    IGNORED("custom_labels", "SGLang", "Labels of metrics."),
    IGNORED("routed_dp_rank", "SGLang", "There is one engine."),
    IGNORED("external_trace_header", "SGLang", "Requests are not traced."),
    LAST_ROW};
const struct field *const sglang_groups[] = {sglang_fields, scoring_fields, identity_fields,
                                             stream_fields, running_fields, special_fields,
                                             NULL};

/* What is told of one prompt. */
struct wanted {
    bool inputs;  /* its tokens from `start` on */
    bool outputs; /* targets at the next token */
    size_t start;
    const int32_t *targets; /* as the request has them; NULL: none */
};

/* ---- asking ---------------------------------------------------------------------------------- */

static np_status check_one_per_prompt(const struct ask *ask, const char *where,
                                      const struct ints *ints, np_error *err)
{
    if (!ints->many || ints->n == ask->prompts.n) return NP_OK;
    error_set(err, NP_EINPUT, where, NO_OFFSET, "one for each of %zu prompts is expected",
              ask->prompts.n);
    return error_given(err, NP_EINPUT, "%zu", ints->n);
}

static bool is_sent(const struct exchange *exchange, const char *name)
{
    const json_t *value = json_object_get(exchange->json, name);
    return value && !json_is_null(value);
}

/* Fields that mean nothing, or two things, beside others. */
static np_status check_company(const struct exchange *exchange, np_error *err)
{
    const struct ask *ask = &exchange->ask;
    bool scored = ask->candidates || ask->prompt_logprobs != NOT_GIVEN;
    const struct {
        bool wrong;
        const char *where, *why;
    } rules[] = {
        {!ask->prompts.at, "text", "text or input_ids is required"},
        {is_sent(exchange, "text") && is_sent(exchange, "input_ids"), "input_ids",
         "not together with text"},
        {ask->flat_base64 && !ask->flat, "return_flat_raw_top_logprobs_b64",
         "needs return_flat_raw_top_logprobs"},
        {ask->wants_logprobs && scored, "return_logprob",
         "not together with prompt_logprobs or prompt_logprob_token_ids"},
        {ask->targets && !ask->wants_logprobs, "token_ids_logprob", "needs return_logprob"},
        {ask->target_positions && !ask->wants_logprobs, "token_ids_logprob_positions",
         "needs return_logprob"},
        {ask->targets && ask->target_positions, "token_ids_logprob_positions",
         "not together with token_ids_logprob"},
        {ask->targets && ask->max_tokens != 0 && ask->max_tokens != 1, "token_ids_logprob",
         "ids are scored up to the next token: max_new_tokens must be 0 or 1"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].wrong)
            return error_set(err, NP_EINPUT, rules[i].where, NO_OFFSET, "%s", rules[i].why);
    return NP_OK;
}

static np_status check_fields(const struct exchange *exchange, np_error *err)
{
    const struct ask *ask = &exchange->ask;
    TRY(check_company(exchange, err));
    TRY(check_one_per_prompt(ask, "logprob_start_len", &ask->starts, err));
    return check_one_per_prompt(ask, "top_logprobs_num", &ask->tops, err);
}

static int64_t one_of(const struct ints *ints, size_t i, int64_t absent)
{
    return ints->at ? ints->at[ints->many ? i : 0] : absent;
}

/* The part of `value` that is for prompt i: lists of `depth` levels, one more for many prompts. */
static const json_t *part_of(const struct ask *ask, const json_t *value, int depth, size_t i,
                             const char *name, char where[80], np_error *err)
{
    int levels = 0;
    for (const json_t *at = value; json_is_array(at) && levels <= depth; at = json_array_get(at, 0))
        levels++;
    snprintf(where, 80, "%s", name);
    if (levels <= depth) return value;
    snprintf(where, 80, "%s[%zu]", name, i);
    if (json_array_size(value) == ask->prompts.n) return json_array_get(value, i);
    error_set(err, NP_EINPUT, name, NO_OFFSET, "lists for %zu prompts are expected",
              ask->prompts.n);
    error_given(err, NP_EINPUT, "%zu", json_array_size(value));
    return NULL;
}

static np_status take_targets(struct exchange *exchange, size_t i, struct wanted *wanted,
                              np_error *err)
{
    struct ask *ask = &exchange->ask;
    np_request *request = &exchange->requests[i];
    char where[80];
    np_ids ids;
    const json_t *value = part_of(ask, ask->targets, 1, i, "token_ids_logprob", where, err);
    if (!value) return NP_EINPUT;
    TRY(value_ids(&ask->values, where, value, &ids, err));
    if (ids.n == 0) return NP_OK;
    wanted->targets = request->candidate_ids = ids.ids;
    request->n_candidates = ids.n;
    wanted->outputs = true;
    request->next = 1;
    if (!wanted->inputs) request->start = request->n_tokens - 1;
    return NP_OK;
}

static np_status check_position(const struct exchange *exchange, const char *where, size_t row,
                                size_t column, int32_t id, np_error *err)
{
    int32_t n_vocab = exchange_info(exchange)->n_vocab;
    char place[128];
    if (id >= -1 && id < n_vocab) return NP_OK;
    snprintf(place, sizeof place, "%s[%zu][%zu]", where, row, column);
    error_set(err, NP_EINPUT, place, NO_OFFSET, "an id must lie in 0 to %d (vocabulary %d)",
              (int)n_vocab - 1, (int)n_vocab);
    return error_given(err, NP_EINPUT, "%d", (int)id);
}

/* The ids of token t are scored by row t-1. */
static np_status take_positions(struct exchange *exchange, size_t i, struct wanted *wanted,
                                np_error *err)
{
    struct ask *ask = &exchange->ask;
    np_request *request = &exchange->requests[i];
    struct candidates list;
    char where[80];
    const json_t *value =
        part_of(ask, ask->target_positions, 2, i, "token_ids_logprob_positions", where, err);
    if (!value) return NP_EINPUT;
    TRY(value_candidates(&ask->values, where, value, &list, err));
    if (list.n_rows != request->n_tokens) {
        error_set(err, NP_EINPUT, where, NO_OFFSET, "a list for each of the %zu tokens is expected",
                  request->n_tokens);
        return error_given(err, NP_EINPUT, "%zu", list.n_rows);
    }
    for (size_t row = 0; row < list.n_rows; row++)
        for (size_t k = 0; k < list.n_candidates; k++)
            TRY(check_position(exchange, where, row, k, list.ids[row * list.n_candidates + k],
                               err));
    if (!wanted->inputs || wanted->start + 1 >= request->n_tokens) return NP_OK;
    wanted->targets = list.ids + (wanted->start + 1) * list.n_candidates;
    request->candidate_ids = wanted->targets;
    request->n_candidates = list.n_candidates;
    request->n_candidate_rows = request->n_tokens - 1 - wanted->start;
    return NP_OK;
}

/* The tokens of the prompt, in the words of every route. */
static np_status take_inputs(struct exchange *exchange, size_t i, struct wanted *wanted,
                             np_error *err)
{
    struct ask *ask = &exchange->ask;
    np_request *request = &exchange->requests[i];
    int64_t start = one_of(&ask->starts, i, -1), top = one_of(&ask->tops, i, 0);
    wanted->inputs = start >= 0;
    wanted->start = start < 0 ? 0 : (size_t)start;
    ask->prompt_logprobs = wanted->inputs ? top : NOT_GIVEN;
    ask->start = wanted->inputs ? start : NOT_GIVEN;
    ask->logprobs = top;
    np_status status = prepare_prompt(exchange, i, err);
    if (status != NP_OK && strstr(err->where, "logprobs"))
        snprintf(err->where, sizeof err->where, "top_logprobs_num");
    if (status != NP_OK || wanted->start < request->n_tokens) return status;
    if (wanted->start > request->n_tokens) {
        error_set(err, NP_EINPUT, "logprob_start_len", NO_OFFSET, "the input has %zu tokens",
                  request->n_tokens);
        return error_given(err, NP_EINPUT, "%zu", wanted->start);
    }
    /* At the very end there is nothing to tell, and no row to ask for. */
    wanted->inputs = false;
    request->want = 0;
    request->start = 0;
    request->top = 0;
    return NP_OK;
}

static np_status prepare_one(struct exchange *exchange, size_t i, struct wanted *wanted,
                             np_error *err)
{
    enum { TRIPLE_BYTES = 60 };
    const struct ask *ask = &exchange->ask;
    const np_request *request = &exchange->requests[i];
    if (!ask->wants_logprobs) return prepare_prompt(exchange, i, err);
    TRY(take_inputs(exchange, i, wanted, err));
    if (request->n_tokens == 0) return NP_OK;
    if (ask->targets) TRY(take_targets(exchange, i, wanted, err));
    if (ask->target_positions) TRY(take_positions(exchange, i, wanted, err));
    double n_rows = (double)(request->n_tokens - request->start);
    return ask_expect(exchange, n_rows * (double)request->n_candidates * TRIPLE_BYTES, err);
}

np_status sglang_prepare(struct exchange *exchange, np_error *err)
{
    size_t n = exchange->ask.prompts.n;
    TRY(check_fields(exchange, err));
    struct wanted *wanted = arena_push_array(&exchange->arena, n, sizeof *wanted);
    if (!wanted) return error_nomem(err, "request", n * sizeof *wanted);
    exchange->extra = wanted;
    TRY(exchange_requests(exchange, n, err));
    for (size_t i = 0; i < n; i++) TRY(prepare_one(exchange, i, &wanted[i], err));
    return NP_OK;
}

/* ---- triples --------------------------------------------------------------------------------- */

static void tell_triple(struct exchange *exchange, const float *logprob, int32_t id)
{
    struct json *json = &exchange->writer;
    json_begin(json, '[');
    if (logprob)
        json_float(json, *logprob);
    else
        json_nil(json);
    json_int(json, id);
    if (exchange->ask.return_text)
        tell_token(exchange, id, false);
    else
        json_nil(json);
    json_end(json, ']');
}

/* A row of triples, up to the first id below 0. */
static void tell_triples(struct exchange *exchange, const int32_t *ids, const float *logprobs,
                         size_t n)
{
    json_begin(&exchange->writer, '[');
    for (size_t k = 0; k < n && ids[k] >= 0; k++) tell_triple(exchange, &logprobs[k], ids[k]);
    json_end(&exchange->writer, ']');
}

static void tell_inputs(struct exchange *exchange, const struct wanted *wanted,
                        const np_result *result)
{
    struct json *json = &exchange->writer;
    json_key(json, "input_token_logprobs");
    json_begin(json, '[');
    if (wanted->inputs) tell_triple(exchange, NULL, result->token_ids[wanted->start]);
    for (size_t j = 0; wanted->inputs && j < result->n_scored; j++)
        tell_triple(exchange, &result->logprobs[j], result->token_ids[wanted->start + j + 1]);
    json_end(json, ']');
}

static void tell_input_tops(struct exchange *exchange, const struct wanted *wanted,
                            const np_result *result)
{
    struct json *json = &exchange->writer;
    json_key(json, "input_top_logprobs");
    json_begin(json, '[');
    if (wanted->inputs) json_nil(json);
    for (size_t j = 0; wanted->inputs && j < result->n_scored; j++)
        tell_triples(exchange, result->top_ids + j * result->n_top,
                     result->top_logprobs + j * result->n_top, result->n_top);
    json_end(json, ']');
}

static void tell_flat_lists(struct exchange *exchange, const np_result *result, size_t n)
{
    struct json *json = &exchange->writer;
    json_key(json, "input_top_logprobs_val_flat");
    json_begin(json, '[');
    for (size_t i = 0; i < n; i++) json_float(json, result->top_logprobs[i]);
    json_end(json, ']');
    json_key(json, "input_top_logprobs_idx_flat");
    json_begin(json, '[');
    for (size_t i = 0; i < n; i++) json_int(json, result->top_ids[i]);
    json_end(json, ']');
}

static void tell_flat(struct exchange *exchange, const struct wanted *wanted,
                      const np_result *result, size_t n_top)
{
    struct json *json = &exchange->writer;
    size_t n_rows = wanted->inputs ? result->n_scored : 0, n = n_rows * result->n_top;
    if (exchange->ask.flat_base64) {
        json_key(json, "input_top_logprobs_val_flat_b64");
        tell_base64(exchange, result->top_logprobs, n * sizeof(float));
        json_key(json, "input_top_logprobs_idx_flat_b64");
        tell_base64(exchange, result->top_ids, n * sizeof(int32_t));
        json_key(json, "input_top_logprobs_val_flat_b64_dtype");
        json_str(json, "float32");
        json_key(json, "input_top_logprobs_idx_flat_b64_dtype");
        json_str(json, "int32");
    } else {
        tell_flat_lists(exchange, result, n);
    }
    json_key(json, "input_top_logprobs_shape");
    json_begin(json, '[');
    json_int(json, (int64_t)n_rows + wanted->inputs);
    json_int(json, (int64_t)n_top);
    json_end(json, ']');
    json_key(json, "input_top_logprobs_null_prefix");
    json_int(json, wanted->inputs);
}

static void tell_target_row(struct exchange *exchange, size_t request, const struct wanted *wanted,
                            const np_result *result, size_t row)
{
    size_t n = result->n_candidates;
    bool per_row = exchange->requests[request].n_candidate_rows > 0;
    tell_triples(exchange, wanted->targets + (per_row ? row * n : 0), result->scores + row * n, n);
}

static void tell_targets(struct exchange *exchange, size_t request, const struct wanted *wanted,
                         const np_result *result)
{
    struct json *json = &exchange->writer;
    json_key(json, "input_token_ids_logprobs");
    json_begin(json, '[');
    if (wanted->inputs) json_nil(json);
    for (size_t j = 0; wanted->inputs && wanted->targets && j < result->n_scored; j++)
        tell_target_row(exchange, request, wanted, result, j);
    json_end(json, ']');
    json_key(json, "output_token_ids_logprobs");
    json_begin(json, '[');
    if (wanted->outputs) tell_target_row(exchange, request, wanted, result, result->n_scored);
    json_end(json, ']');
}

/* ---- a choice -------------------------------------------------------------------------------- */

static void tell_outputs(struct exchange *exchange, const np_generated *choice, bool top)
{
    struct json *json = &exchange->writer;
    json_key(json, "output_token_logprobs");
    json_begin(json, '[');
    for (size_t i = 0; i < choice->n_tokens; i++)
        tell_triple(exchange, &choice->logprobs[i], choice->token_ids[i]);
    json_end(json, ']');
    if (!top) return;
    json_key(json, "output_top_logprobs");
    json_begin(json, '[');
    for (size_t i = 0; i < choice->n_tokens; i++)
        tell_triples(exchange, choice->top_ids + i * choice->n_top,
                     choice->top_logprobs + i * choice->n_top, choice->n_top);
    json_end(json, ']');
}

static void tell_logprobs(struct exchange *exchange, size_t request, const np_result *result,
                          const np_generated *choice)
{
    const struct wanted *wanted = (const struct wanted *)exchange->extra + request;
    const struct ask *ask = &exchange->ask;
    int64_t top = one_of(&ask->tops, request, 0);
    tell_inputs(exchange, wanted, result);
    if (top && ask->flat)
        tell_flat(exchange, wanted, result, (size_t)top);
    else if (top)
        tell_input_tops(exchange, wanted, result);
    tell_outputs(exchange, choice, top > 0);
    if (ask->targets || ask->target_positions) tell_targets(exchange, request, wanted, result);
}

static void tell_reason(struct exchange *exchange, const np_generated *choice)
{
    struct json *json = &exchange->writer;
    json_key(json, "finish_reason");
    if (choice->finish == NP_NOT_FINISHED) {
        json_nil(json);
        return;
    }
    json_begin(json, '{');
    json_key(json, "type");
    tell_finish(exchange, choice->finish);
    if (choice->finish == NP_FINISH_LENGTH) {
        json_key(json, "length");
        json_int(json, (int64_t)choice->n_tokens);
    } else {
        json_key(json, "matched");
        if (choice->finish == NP_FINISH_TEXT)
            tell_stop_reason(exchange, choice);
        else
            json_int(json, choice->token_ids[choice->n_tokens - 1]);
    }
    json_end(json, '}');
}

static void tell_meta(struct exchange *exchange, size_t request, size_t index,
                      const np_result *result, const np_generated *choice, size_t n_cached)
{
    struct json *json = &exchange->writer;
    const struct ask *ask = &exchange->ask;
    const char *id = ask->request_id ? ask->request_id : exchange->request_id;
    bool many = ask->prompts.many || ask->n > 1;
    char name[160];
    snprintf(name, sizeof name, many ? "%.100s_%zu" : "%.100s", id, index);
    json_key(json, "meta_info");
    json_begin(json, '{');
    json_key(json, "id");
    json_str(json, many ? name : id);
    tell_reason(exchange, choice);
    json_key(json, "prompt_tokens");
    json_int(json, (int64_t)result->n_tokens);
    json_key(json, "completion_tokens");
    json_int(json, (int64_t)choice->n_tokens);
    json_key(json, "cached_tokens");
    json_int(json, (int64_t)n_cached);
    json_key(json, "e2e_latency");
    json_double(json, (double)(clock_ns() - exchange->began_ns) / 1e9);
    if (ask->return_token_ids) {
        json_key(json, "prompt_token_ids");
        tell_ids(exchange, result->token_ids, result->n_tokens);
    }
    if (ask->wants_logprobs) tell_logprobs(exchange, request, result, choice);
    tell_meaning(exchange);
    json_end(json, '}');
}

static bool asks_of_prompts(const struct ask *ask)
{
    return !ask->wants_logprobs && (ask->candidates || ask->prompt_logprobs != NOT_GIVEN);
}

static void tell_output_ids(struct exchange *exchange, const np_generated *choice)
{
    json_key(&exchange->writer, "output_ids");
    tell_ids(exchange, choice->token_ids, choice->n_tokens);
}

np_status sglang_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    bool many = exchange->ask.prompts.many || exchange->ask.n > 1;
    if (asks_of_prompts(&exchange->ask) && reply_npy(exchange)) return NP_OK;
    if (many) json_begin(json, '[');
    for (size_t i = 0; i < exchange->n_requests; i++)
        for (size_t k = 0; k < n_choices_of(exchange, i); k++) {
            const np_result *result = &exchange->results[i];
            const np_generated *choice = choice_of(exchange, i, k);
            json_begin(json, '{');
            json_key(json, "text");
            json_text(json, choice->text ? choice->text : "", choice->n_text_bytes);
            tell_output_ids(exchange, choice);
            tell_meta(exchange, i, choice_index(exchange, i, k), result, choice,
                      cached_tokens(result, result->choices));
            if (asks_of_prompts(&exchange->ask) && k == 0) tell_prompt(exchange, i);
            json_end(json, '}');
        }
    if (many) json_end(json, ']');
    return NP_OK;
}

/* ---- streams --------------------------------------------------------------------------------- */

static void tell_state(struct exchange *exchange, const struct heard *heard, size_t request,
                       size_t k, const np_generated *choice, size_t n_text_bytes)
{
    struct json *json = &exchange->writer;
    struct buf text;
    size_t index = choice_index(exchange, request, k);
    buf_init(&text, SIZE_MAX);
    if (n_text_bytes) exchange_text(exchange, request, k, 0, n_text_bytes, &text);
    exchange_event(exchange);
    json_begin(json, '{');
    json_key(json, "text");
    json_text(json, text.data ? text.data : "", text.n_bytes);
    tell_output_ids(exchange, choice);
    tell_meta(exchange, request, index, &heard->result, choice,
              heard->finished ? cached_tokens(&heard->result, heard->choices) : 0);
    json_key(json, "index");
    json_int(json, (int64_t)index);
    json_end(json, '}');
    exchange_event_end(exchange);
    if (text.failed) exchange->out.failed = true;
    buf_free(&text);
}

np_status sglang_event(struct exchange *exchange, const struct heard *heard,
                       const struct part *part, np_error *err)
{
    static const np_generated nothing = {.finish = NP_FINISH_LENGTH, .stop_index = -1};
    if (part->kind == PART_CHOICE) {
        np_generated choice = heard[part->request].choices[part->choice];
        choice.n_tokens = part->to;
        if (!part->last) choice.finish = NP_NOT_FINISHED;
        tell_state(exchange, &heard[part->request], part->request, part->choice, &choice,
                   part->text_to);
    } else if (part->kind == PART_ROWS && asks_of_prompts(&exchange->ask)) {
        exchange_event(exchange);
        json_begin(&exchange->writer, '{');
        tell_prompt_part(exchange, &heard[part->request].result, part);
        json_end(&exchange->writer, '}');
        exchange_event_end(exchange);
    } else if (part->kind == PART_END && exchange->ask.max_tokens == 0) {
        for (size_t i = 0; i < exchange->n_requests; i++)
            for (size_t k = 0; k < n_choices_of(exchange, i); k++)
                tell_state(exchange, &heard[i], i, k, &nothing, 0);
    }
    return NP_OK;
}
