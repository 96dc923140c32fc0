/*
 * POST /inference/v1/generate: token ids in, token ids and their numbers out, as vLLM's route of
 * that name has it; with teacher scoring from the prefix cache, streamed, and never null.
 */
#include "ask_fields.h"
#include "logprobs.h"
#include "replies.h"
#include "routes.h"

static const char *const output_modes[] = {"tokens", "text", NULL};
enum { OUTPUT_TEXT = 2 };

static const struct field sampling_fields[] = {
    NUMBERS("max_tokens", FIELD_INT, max_tokens, 0, COUNT_MAX, "null", "vLLM", NULL,
            "At most so many tokens follow; 0: none; null: to the end of the context."),
    NUMBERS("logprobs", FIELD_COUNT, logprobs, -1, COUNT_MAX, "null", "vLLM", "sampling.top",
            "Beside each generated token its log-probability and the likeliest ones."),
    LOGPROB_TOKEN_IDS,
    IGNORED("flat_logprobs", "vLLM", "A form of vLLM's Python."),
    ROW("skip_reading_prefix_cache", FIELD_FLAG, skip_cache, "false", "vLLM", NULL,
        "Computes everything anew. The numbers are the same."),
    ONLY("extra_args", "[{}]", "vLLM", "There are no further arguments."),
    LAST_ROW};
static const struct field *const sampling_groups[] = {sampling_fields, drawing_fields,
                                                      scoring_fields, NULL};

static const struct field generate_fields[] = {
    REQUIRED("token_ids", FIELD_ID_LISTS, prompts, "vLLM", NULL,
             "The prompt as ids, used as they are; or a list of such lists (nepit)."),
    OBJECT("sampling_params", sampling_groups, "vLLM", "What follows, and what is scored."),
    ROW("return_token_ids", FIELD_FLAG, return_token_ids, "false", "vLLM", NULL,
        "Tells the ids of the prompt too."),
    NAMES("output_mode", output_mode, output_modes, "\"tokens\"", "vLLM",
          "\"text\" adds the text of each choice."),
    IGNORED("features", "vLLM", "Of images; there are none."),
    LAST_ROW};
const struct field *const generate_groups[] = {generate_fields, identity_fields, stream_fields,
                                               running_fields, NULL};

np_status generate_prepare(struct exchange *exchange, np_error *err)
{
    return prepare_prompts(exchange, err);
}

static void tell_content(struct exchange *exchange, const np_generated *choice, size_t from,
                         size_t to)
{
    struct json *json = &exchange->writer;
    json_begin(json, '{');
    json_key(json, "content");
    json_begin(json, '[');
    for (size_t i = from; i < to; i++) {
        struct told_row row = row_of_choice(choice, i);
        json_begin(json, '{');
        tell_ranked(exchange, row.id, row.logprob, row.rank);
        json_key(json, "top_logprobs");
        json_begin(json, '[');
        for (size_t k = 0; k < row.n_top && row.top_ids[k] >= 0; k++) {
            json_begin(json, '{');
            tell_ranked(exchange, row.top_ids[k], row.top_logprobs[k], rank_in(&row, k));
            json_end(json, '}');
        }
        json_end(json, ']');
        json_end(json, '}');
    }
    json_end(json, ']');
    json_end(json, '}');
}

/* Tokens [from, to) of a choice, within its braces. */
static void tell_choice(struct exchange *exchange, size_t index, const np_generated *choice,
                        size_t from, size_t to, bool finished)
{
    struct json *json = &exchange->writer;
    json_key(json, "index");
    json_int(json, (int64_t)index);
    json_key(json, "token_ids");
    tell_ids(exchange, choice->token_ids + from, to - from);
    json_key(json, "logprobs");
    if (choice->logprobs)
        tell_content(exchange, choice, from, to);
    else
        json_nil(json);
    json_key(json, "finish_reason");
    tell_finish(exchange, finished ? choice->finish : NP_NOT_FINISHED);
    json_key(json, "stop_reason");
    if (finished)
        tell_stop_reason(exchange, choice);
    else
        json_nil(json);
}

np_status generate_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    if (reply_npy(exchange)) return NP_OK;
    json_begin(json, '{');
    tell_head(exchange, "request_id", NULL);
    json_key(json, "choices");
    json_begin(json, '[');
    for (size_t i = 0, index = 0; i < exchange->n_requests; i++)
        for (size_t k = 0; k < n_choices_of(exchange, i); k++, index++) {
            const np_generated *choice = choice_of(exchange, i, k);
            json_begin(json, '{');
            tell_choice(exchange, index, choice, 0, choice->n_tokens, true);
            if (exchange->ask.output_mode == OUTPUT_TEXT) {
                json_key(json, "text");
                json_text(json, choice->text ? choice->text : "", choice->n_text_bytes);
            }
            json_end(json, '}');
        }
    json_end(json, ']');
    tell_prompts(exchange);
    json_key(json, "kv_transfer_params");
    json_nil(json);
    json_key(json, "usage");
    tell_usage(exchange, exchange->n_prompt_tokens, exchange->n_generated);
    json_end(json, '}');
    return NP_OK;
}

np_status generate_event(struct exchange *exchange, const struct heard *heard,
                         const struct part *part, np_error *err)
{
    struct json *json = &exchange->writer;
    const struct heard *mine = &heard[part->request];
    if (part->kind == PART_END && !exchange->ask.include_usage) return NP_OK;
    exchange_event(exchange);
    json_begin(json, '{');
    tell_head(exchange, "request_id", NULL);
    json_key(json, "choices");
    json_begin(json, '[');
    if (part->kind == PART_CHOICE) {
        const np_generated *choice = &mine->choices[part->choice];
        json_begin(json, '{');
        tell_choice(exchange, choice_index(exchange, part->request, part->choice), choice,
                    part->from, part->to, part->last);
        if (exchange->ask.output_mode == OUTPUT_TEXT) tell_text_part(exchange, part);
        json_end(json, '}');
    }
    json_end(json, ']');
    if (part->kind == PART_ROWS) tell_prompt_part(exchange, &mine->result, part);
    tell_usage_part(exchange, part);
    json_end(json, '}');
    exchange_event_end(exchange);
    return NP_OK;
}
