/*
 * POST /completion as llama.cpp's server has it: a text, ids, or both mixed, and what follows, with
 * n_probs likeliest tokens beside each token.
 *
 * Its defaults draw (temperature 0.8, top_k 40, top_p 0.95, min_p 0.05), and are kept here; the
 * order in which they are applied is ours, with temperature first. Its penalties look at the last
 * tokens of the prompt too: those are refused rather than taken for OpenAI's.
 */
#include "ask_fields.h"
#include "logprobs.h"
#include "openai.h"
#include "inside.h"
#include "replies.h"
#include "routes.h"

#include <math.h>

#define USUAL_SAMPLERS                                                                            \
    "[[],[\"penalties\",\"dry\",\"top_n_sigma\",\"top_k\",\"typ_p\",\"top_p\",\"min_p\",\"xtc\"," \
    "\"temperature\"],[\"dry\",\"top_k\",\"typ_p\",\"top_p\",\"min_p\",\"xtc\",\"temperature\"]," \
    "[\"top_k\",\"top_p\",\"min_p\",\"temperature\"]]"

static const struct field completion_fields[] = {
    REQUIRED("prompt", FIELD_PIECES, pieces, "llama.cpp", "token_ids",
             "A text; ids; a list of both mixed; {\"prompt_string\": text}; or a list of those."),
    NUMBERS("n_predict", FIELD_INT, max_tokens, -2, COUNT_MAX, "-1", "llama.cpp", NULL,
            "At most so many tokens follow; 0: none; -1, -2: to the end of the context."),
    NUMBERS("max_tokens", FIELD_INT, max_tokens, -2, COUNT_MAX, NULL, "llama.cpp", NULL,
            "The same as n_predict."),
    NUMBERS("n_cmpl", FIELD_INT, n, 1, 128, NULL, "llama.cpp", NULL, "Choices per prompt."),
    NUMBERS("n_probs", FIELD_INT, logprobs, 0, COUNT_MAX, "0", "llama.cpp", "logprobs",
            "So many likeliest tokens beside each generated one; 0: no probabilities."),
    ROW("post_sampling_probs", FIELD_FLAG, sampled_probs, "false", "llama.cpp", NULL,
        "Tells probabilities after temperature and masks in place of log-probabilities before."),
    ROW("return_tokens", FIELD_FLAG, return_token_ids, "false", "llama.cpp", NULL,
        "Tells ids of what was generated."),
    ROW("cache_prompt", FIELD_FLAG, cache_prompt, "true", "llama.cpp", NULL,
        "Whether what is cached is used. The numbers are the same."),
    NUMBERS("temperature", FIELD_NUMBER, temperature, 0, 2, "0.8", "llama.cpp", NULL,
            "Divides the logits before a token is drawn; 0: always the likeliest."),
    NUMBERS("top_k", FIELD_INT, top_k, -1, COUNT_MAX, "40", "llama.cpp", NULL,
            "Draws from the k likeliest tokens; 0 and -1: from all."),
    NUMBERS("top_p", FIELD_ABOVE0, top_p, 0, 1, "0.95", "llama.cpp", NULL,
            "Draws from the likeliest tokens that hold this mass."),
    NUMBERS("min_p", FIELD_NUMBER, min_p, 0, 1, "0.05", "llama.cpp", NULL,
            "No token below this times the likeliest one's probability."),
    ONLY("samplers", USUAL_SAMPLERS, "llama.cpp", "The order is one: NUMERICS.md."),
    ONLY("repeat_penalty", "[1]", "llama.cpp", "It would look at the last tokens alone."),
    ONLY("presence_penalty", "[0]", "llama.cpp", "It would look at tokens of the prompt."),
    ONLY("frequency_penalty", "[0]", "llama.cpp", "It would look at tokens of the prompt."),
    ONLY("dynatemp_range", "[0]", "llama.cpp", "The temperature stays."),
    ONLY("typical_p", "[1]", "llama.cpp", "Use top_p."),
    ONLY("top_n_sigma", "[-1,0]", "llama.cpp", "Use top_p."),
    ONLY("dry_multiplier", "[0]", "llama.cpp", "There is no such penalty."),
    ONLY("xtc_probability", "[0]", "llama.cpp", "No token is left out at random."),
    ONLY("mirostat", "[0]", "llama.cpp", "Use top_p."),
    ONLY("adaptive_target", "[-1]", "llama.cpp", "Use top_p."),
    ONLY("min_keep", "[0]", "llama.cpp", "Masks are what they say."),
    ONLY("grammar", "[\"\"]", "llama.cpp", "Texts are not bound to a grammar."),
    ONLY("json_schema", "[]", "llama.cpp", "Texts are not bound to a grammar."),
    ONLY("n_indent", "[0]", "llama.cpp", "Lines are as long as they are."),
    ONLY("t_max_predict_ms", "[0]", "llama.cpp", "Use timeout_ms."),
    ONLY("lora", "[[]]", "llama.cpp", "There are no adapters."),
    IGNORED("repeat_last_n", "llama.cpp", "Of a penalty that is not there."),
    IGNORED("dynatemp_exponent", "llama.cpp", "The temperature stays."),
    IGNORED("dry_base", "llama.cpp", "Of a penalty that is not there."),
    IGNORED("dry_allowed_length", "llama.cpp", "Of a penalty that is not there."),
    IGNORED("dry_penalty_last_n", "llama.cpp", "Of a penalty that is not there."),
    IGNORED("dry_sequence_breakers", "llama.cpp", "Of a penalty that is not there."),
    IGNORED("xtc_threshold", "llama.cpp", "No token is left out at random."),
    IGNORED("mirostat_tau", "llama.cpp", "Use top_p."),
    IGNORED("mirostat_eta", "llama.cpp", "Use top_p."),
    IGNORED("n_keep", "llama.cpp", "Nothing is shifted out of the context."),
    IGNORED("n_cache_reuse", "llama.cpp", "What is cached is found by its tokens."),
    IGNORED("id_slot", "llama.cpp", "There are no slots."),
    IGNORED("timings_per_token", "llama.cpp", "Timings stand in the last event."),
    IGNORED("return_progress", "llama.cpp", "Events come as tokens do."),
    IGNORED("sse_ping_interval", "llama.cpp", "Events come as tokens do."),
    IGNORED("response_fields", "llama.cpp", "All fields are told."),
    LAST_ROW};
const struct field *const llamacpp_groups[] = {
    completion_fields, drawing_fields, scoring_fields, identity_fields,
    stream_fields,     running_fields, special_fields, NULL};

/* ---- prompts --------------------------------------------------------------------------------- */

static bool is_mixed(const json_t *list)
{
    size_t n_texts = 0, n_numbers = 0, n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        n_texts += json_is_string(json_array_get(list, i));
        n_numbers += json_is_number(json_array_get(list, i));
    }
    return n_numbers > 0 && n_texts + n_numbers == n;
}

/* Texts and ids of a list, one behind the other; special tokens are added before the first piece
 * alone, if that is a text. */
static np_status join_pieces(struct exchange *exchange, const char *where, const json_t *list,
                             struct prompt *prompt, np_error *err)
{
    struct ask *ask = &exchange->ask;
    struct buf ids;
    np_status status = NP_OK;
    buf_init(&ids, (size_t)1 << 30);
    for (size_t i = 0; status == NP_OK && i < json_array_size(list); i++) {
        const json_t *piece = json_array_get(list, i);
        char path[80];
        int64_t id = 0;
        np_tokens tokens = {0};
        snprintf(path, sizeof path, "%.60s[%zu]", where, i);
        if (json_is_string(piece))
            status =
                np_tokenize(exchange_model(exchange), json_string_value(piece),
                            json_string_length(piece), i > 0 ? NP_NO : (np_choice)ask->add_special,
                            (np_choice)ask->parse_special, &tokens, err);
        else if (!value_whole(&ask->values, piece, &id) || id != (int32_t)id)
            status = value_wrong(path, "a text or a token id", piece, err);
        if (status == NP_OK && !json_is_string(piece))
            buf_push(&ids, &(int32_t){(int32_t)id}, sizeof(int32_t));
        if (tokens.n_tokens) buf_push(&ids, tokens.token_ids, tokens.n_tokens * sizeof(int32_t));
        np_tokens_free(&tokens);
    }
    size_t n = ids.n_bytes / sizeof(int32_t);
    int32_t *kept = arena_push_array(&exchange->arena, n + 1, sizeof *kept);
    if (status == NP_OK && (ids.failed || !kept)) status = error_nomem(err, where, ids.n_bytes);
    if (status == NP_OK) {
        if (n) memcpy(kept, ids.data, n * sizeof *kept);
        prompt->ids = (np_ids){kept, n};
    }
    buf_free(&ids);
    return status;
}

static np_status read_prompt(struct exchange *exchange, const char *where, const json_t *value,
                             struct prompt *prompt, np_error *err)
{
    struct ask *ask = &exchange->ask;
    const json_t *text = json_object_get(value, "prompt_string");
    if (json_is_string(value)) return value_string(&ask->values, where, value, &prompt->text, err);
    if (json_is_object(value)) {
        const json_t *media = json_object_get(value, "multimodal_data");
        if (json_array_size(media))
            return error_set(err, NP_EUNSUPPORTED, where, NO_OFFSET,
                             "multimodal_data is not served here");
        if (!json_is_string(text))
            return value_wrong(where, "an object with a text in prompt_string", value, err);
        return value_string(&ask->values, where, text, &prompt->text, err);
    }
    if (!json_is_array(value))
        return value_wrong(where, "a text, a list of ids and texts, or {\"prompt_string\": text}",
                           value, err);
    if (json_array_size(value) == 0)
        return error_set(err, NP_EINPUT, where, NO_OFFSET, "the prompt is empty");
    return join_pieces(exchange, where, value, prompt, err);
}

static np_status read_prompts(struct exchange *exchange, np_error *err)
{
    struct ask *ask = &exchange->ask;
    const json_t *value = ask->pieces;
    bool many = json_is_array(value) && json_array_size(value) > 0 && !is_mixed(value);
    size_t n = many ? json_array_size(value) : 1;
    struct prompt *list = arena_push_array(&exchange->arena, n, sizeof *list);
    if (!list) return error_nomem(err, "prompt", n * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        char where[32];
        snprintf(where, sizeof where, many ? "prompt[%zu]" : "prompt", i);
        TRY(read_prompt(exchange, where, many ? json_array_get(value, i) : value, &list[i], err));
    }
    ask->prompts = (struct prompts){.at = list, .n = n, .many = many};
    return NP_OK;
}

np_status llamacpp_prepare(struct exchange *exchange, np_error *err)
{
    struct ask *ask = &exchange->ask;
    TRY(read_prompts(exchange, err));
    if (ask->max_tokens < 0) ask->max_tokens = NOT_GIVEN;
    if (ask->logprobs == 0) ask->logprobs = NOT_GIVEN;
    if (!ask->cache_prompt) ask->skip_cache = 1;
    TRY(prepare_prompts(exchange, err));
    for (size_t i = 0; ask->sampled_probs && ask->max_tokens != 0 && i < ask->prompts.n; i++) {
        /* What was prepared is ours until it is submitted. */
        np_sampling *sampling = (np_sampling *)(uintptr_t)exchange->requests[i].sampling;
        sampling->processed = 1;
        exchange->requests[i].logprobs_mode = NP_RAW_LOGPROBS;
    }
    return NP_OK;
}

/* ---- probabilities --------------------------------------------------------------------------- */

static void tell_probability(struct exchange *exchange, int32_t id, float logprob)
{
    struct json *json = &exchange->writer;
    bool sampled = exchange->ask.sampled_probs;
    json_key(json, "id");
    json_int(json, id);
    json_key(json, "token");
    tell_token(exchange, id, false);
    json_key(json, "bytes");
    tell_token_bytes(exchange, id);
    json_key(json, sampled ? "prob" : "logprob");
    json_float(json, sampled ? (float)exp((double)logprob) : logprob);
}

static void tell_probabilities(struct exchange *exchange, const np_generated *choice, size_t from,
                               size_t to)
{
    struct json *json = &exchange->writer;
    bool sampled = exchange->ask.sampled_probs;
    json_key(json, "completion_probabilities");
    json_begin(json, '[');
    for (size_t i = from; i < to; i++) {
        struct told_row row = row_of_choice(choice, i);
        json_begin(json, '{');
        tell_probability(exchange, row.id, row.logprob);
        json_key(json, sampled ? "top_probs" : "top_logprobs");
        json_begin(json, '[');
        for (size_t k = 0; k < row.n_top && row.top_ids[k] >= 0; k++) {
            if (sampled && isinf(row.top_logprobs[k])) continue;
            json_begin(json, '{');
            tell_probability(exchange, row.top_ids[k], row.top_logprobs[k]);
            json_end(json, '}');
        }
        json_end(json, ']');
        json_end(json, '}');
    }
    json_end(json, ']');
}

/* ---- answers --------------------------------------------------------------------------------- */

static void tell_settings(struct exchange *exchange, const np_generated *choice)
{
    struct json *json = &exchange->writer;
    const struct ask *ask = &exchange->ask;
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"temperature", ask->temperature}, {"top_p", ask->top_p}, {"min_p", ask->min_p}};
    const struct {
        const char *key;
        int64_t value;
    } integers[] = {{"top_k", ask->top_k},
                    {"n_predict", ask->max_tokens == NOT_GIVEN ? -1 : ask->max_tokens},
                    {"n_probs", ask->logprobs == NOT_GIVEN ? 0 : ask->logprobs},
                    {"seed", choice->n_tokens ? (int64_t)choice->seed : ask->seed}};
    json_key(json, "generation_settings");
    json_begin(json, '{');
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        json_key(json, numbers[i].key);
        json_double(json, numbers[i].value);
    }
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        json_key(json, integers[i].key);
        json_int(json, integers[i].value);
    }
    json_key(json, "post_sampling_probs");
    json_bool(json, ask->sampled_probs);
    json_end(json, '}');
}

static void tell_timings(struct exchange *exchange, size_t n_prompt, size_t n_generated)
{
    struct json *json = &exchange->writer;
    uint64_t now_ns = clock_ns(), first_ns = exchange->first_token_ns;
    if (!first_ns) first_ns = now_ns;
    double prompt_ms = (double)(first_ns - exchange->submitted_ns) / 1e6;
    double predicted_ms = (double)(now_ns - first_ns) / 1e6;
    json_key(json, "timings");
    json_begin(json, '{');
    json_key(json, "prompt_n");
    json_int(json, (int64_t)n_prompt);
    json_key(json, "prompt_ms");
    json_double(json, prompt_ms);
    json_key(json, "predicted_n");
    json_int(json, (int64_t)n_generated);
    json_key(json, "predicted_ms");
    json_double(json, predicted_ms);
    json_key(json, "predicted_per_second");
    json_double(json, predicted_ms > 0 ? (double)n_generated * 1e3 / predicted_ms : 0);
    json_end(json, '}');
}

static void tell_stop(struct exchange *exchange, const np_generated *choice)
{
    static const char *const types[] = {"none", "limit", "eos", "word"};
    struct json *json = &exchange->writer;
    json_key(json, "stop_type");
    json_str(json, types[choice->finish]);
    json_key(json, "stopping_word");
    if (choice->finish == NP_FINISH_TEXT)
        tell_stop_reason(exchange, choice);
    else
        json_str(json, "");
}

/* What the last event of a choice, and a plain answer, say behind the text. */
static void tell_rest(struct exchange *exchange, const np_result *result,
                      const np_generated *choice, size_t n_cached)
{
    struct json *json = &exchange->writer;
    char *prompt = NULL;
    size_t n_bytes = 0;
    json_key(json, "model");
    json_str(json, exchange_model_name(exchange));
    tell_settings(exchange, choice);
    json_key(json, "prompt");
    if (np_detokenize(exchange_model(exchange), result->token_ids, result->n_tokens, &prompt,
                      &n_bytes, NULL) == NP_OK)
        json_text(json, prompt, n_bytes);
    else
        json_nil(json);
    np_free(prompt);
    json_key(json, "has_new_line");
    json_bool(json, choice->n_text_bytes && memchr(choice->text, '\n', choice->n_text_bytes));
    json_key(json, "truncated");
    json_bool(json, false);
    tell_stop(exchange, choice);
    json_key(json, "tokens_cached");
    json_int(json, (int64_t)n_cached);
    tell_timings(exchange, result->n_tokens, choice->n_tokens);
    tell_meaning(exchange);
}

/* Tokens [from, to) of a choice, and the counts so far. */
static void tell_tokens(struct exchange *exchange, size_t index, const np_result *result,
                        const np_generated *choice, size_t from, size_t to, bool stop)
{
    struct json *json = &exchange->writer;
    bool ids = exchange->ask.return_token_ids || exchange->ask.stream;
    json_key(json, "index");
    json_int(json, (int64_t)index);
    json_key(json, "tokens");
    tell_ids(exchange, choice->token_ids + from, ids ? to - from : 0);
    json_key(json, "id_slot");
    json_int(json, 0);
    json_key(json, "stop");
    json_bool(json, stop);
    json_key(json, "tokens_predicted");
    json_int(json, (int64_t)to);
    json_key(json, "tokens_evaluated");
    json_int(json, (int64_t)result->n_tokens);
    if (choice->logprobs) tell_probabilities(exchange, choice, from, to);
}

static bool asks_of_prompts(const struct ask *ask)
{
    return ask->candidates || ask->prompt_logprobs != NOT_GIVEN;
}

np_status llamacpp_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    bool many = exchange->ask.prompts.many || exchange->ask.n > 1;
    if (reply_npy(exchange)) return NP_OK;
    if (many) json_begin(json, '[');
    for (size_t i = 0; i < exchange->n_requests; i++)
        for (size_t k = 0; k < n_choices_of(exchange, i); k++) {
            const np_result *result = &exchange->results[i];
            const np_generated *choice = choice_of(exchange, i, k);
            json_begin(json, '{');
            json_key(json, "content");
            json_text(json, choice->text ? choice->text : "", choice->n_text_bytes);
            tell_tokens(exchange, choice_index(exchange, i, k), result, choice, 0, choice->n_tokens,
                        true);
            tell_rest(exchange, result, choice, cached_tokens(result, result->choices));
            if (asks_of_prompts(&exchange->ask) && k == 0) tell_prompt(exchange, i);
            json_end(json, '}');
        }
    if (many) json_end(json, ']');
    return NP_OK;
}

/* ---- streams --------------------------------------------------------------------------------- */

static void tell_content(struct exchange *exchange, const struct part *part, struct buf *text)
{
    buf_init(text, SIZE_MAX);
    if (part->text_to > part->text_from)
        exchange_text(exchange, part->request, part->choice, part->text_from, part->text_to, text);
    json_key(&exchange->writer, "content");
    json_text(&exchange->writer, text->data ? text->data : "", text->n_bytes);
    if (text->failed) exchange->out.failed = true;
    buf_free(text);
}

np_status llamacpp_event(struct exchange *exchange, const struct heard *heard,
                         const struct part *part, np_error *err)
{
    static const np_generated nothing = {.finish = NP_FINISH_LENGTH, .stop_index = -1};
    struct json *json = &exchange->writer;
    const struct heard *mine = &heard[part->request];
    struct buf text;
    bool ends = part->kind == PART_END && exchange->ask.max_tokens == 0;
    if (part->kind == PART_ROWS && asks_of_prompts(&exchange->ask)) {
        exchange_event(exchange);
        json_begin(json, '{');
        tell_prompt_part(exchange, &mine->result, part);
        json_end(json, '}');
        exchange_event_end(exchange);
    }
    if (part->kind == PART_CHOICE) {
        np_generated choice = mine->choices[part->choice];
        choice.n_tokens = part->to;
        choice.text = NULL;
        choice.n_text_bytes = 0;
        exchange_event(exchange);
        json_begin(json, '{');
        tell_content(exchange, part, &text);
        tell_tokens(exchange, choice_index(exchange, part->request, part->choice), &mine->result,
                    &choice, part->from, part->to, part->last);
        if (part->last)
            tell_rest(exchange, &mine->result, &choice,
                      mine->finished ? cached_tokens(&mine->result, mine->choices) : 0);
        json_end(json, '}');
        exchange_event_end(exchange);
    }
    for (size_t i = 0; ends && i < exchange->n_requests; i++) {
        exchange_event(exchange);
        json_begin(json, '{');
        json_key(json, "content");
        json_str(json, "");
        tell_tokens(exchange, i, &heard[i].result, &nothing, 0, 0, true);
        tell_rest(exchange, &heard[i].result, &nothing, cached_tokens(&heard[i].result, NULL));
        json_end(json, '}');
        exchange_event_end(exchange);
    }
    return NP_OK;
}
