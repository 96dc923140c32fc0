/*
 * openai.c - see openai.h.
 */
#include "openai.h"
#include "ask_fields.h"

const struct field openai_fields[] = {
    ROW("return_token_ids", FIELD_FLAG, return_token_ids, "false", "vLLM", NULL,
        "Tells the ids of the prompt and of what was generated."),
    ROW("return_tokens_as_token_ids", FIELD_FLAG, tokens_as_ids, "false", "vLLM", NULL,
        "Tokens are written as \"token_id:N\" in place of their texts."),
    ONLY("response_format", "[{\"type\":\"text\"}]", "OpenAI", "Texts are not bound to a grammar."),
    LOGPROB_TOKEN_IDS,
    ONLY("truncation_side", "[\"left\"]", "vLLM", "The last tokens of a prompt are those kept."),
    ONLY("watermarking", "[false]", "vLLM", "Texts are not marked."),
    ONLY("repetition_detection", "[]", "vLLM", "Use max_tokens or stop."),
    ONLY("ec_transfer_params", "[{}]", "vLLM", "There is no other machine."),
    IGNORED("flat_logprobs", "vLLM", "A form of vLLM's Python."),
    IGNORED("stream_interval", "vLLM", "Events come as tokens do."),
    IGNORED("session_id", "vLLM", "Requests that begin alike share what is cached anyway."),
    IGNORED("store", "OpenAI", "Nothing is stored."),
    IGNORED("service_tier", "OpenAI", "There is one; see priority."),
    LAST_ROW};

np_status openai_begin(struct exchange *exchange, const char *prefix, np_error *err)
{
    struct ask *ask = &exchange->ask;
    if (ask->logprob_ids.n && ask->logprobs == NOT_GIVEN)
        return error_set(err, NP_EINPUT, "logprob_token_ids", NO_OFFSET, "needs logprobs");
    const char *own = ask->request_id ? ask->request_id : exchange->request_id;
    size_t n_bytes = strlen(prefix) + strlen(own) + 1;
    char *name = arena_push(&exchange->arena, n_bytes);
    if (!name) return error_nomem(err, "request_id", n_bytes);
    snprintf(name, n_bytes, "%s%s", prefix, own);
    ask->request_id = name;
    return NP_OK;
}

/* ---- warnings -------------------------------------------------------------------------------- */

/* What is odd about the beginning of a prompt; NULL: nothing. It is scored as it is. */
static const char *oddity(const struct exchange *exchange, const struct encoded *encoded)
{
    const np_info *info = exchange_info(exchange);
    const int32_t *ids = encoded->ids;
    if (info->bos_id < 0 || encoded->n == 0) return NULL;
    if (encoded->n > 1 && ids[0] == info->bos_id && ids[1] == info->bos_id)
        return "begins with two BOS tokens: a text that has one gets another unless "
               "add_special_tokens is false";
    if (info->adds_bos && ids[0] != info->bos_id)
        return "does not begin with BOS, which this model expects there";
    return NULL;
}

void tell_warnings(struct exchange *exchange)
{
    struct json *json = &exchange->writer;
    bool many = exchange->ask.prompts.many, begun = false;
    for (size_t i = 0; i < exchange->n_requests; i++) {
        char line[200];
        const char *what = oddity(exchange, &exchange->encoded[i]);
        if (!what) continue;
        if (!begun) {
            json_key(json, "warnings");
            json_begin(json, '[');
        }
        begun = true;
        snprintf(line, sizeof line, "prompt[%zu] %s", i, what);
        if (!many) snprintf(line, sizeof line, "the prompt %s", what);
        json_str(json, line);
    }
    if (begun) json_end(json, ']');
}

void tell_ending(struct exchange *exchange, const np_generated *choice, bool finished)
{
    struct json *json = &exchange->writer;
    json_key(json, "finish_reason");
    tell_finish(exchange, finished ? choice->finish : NP_NOT_FINISHED);
    json_key(json, "stop_reason");
    if (finished)
        tell_stop_reason(exchange, choice);
    else
        json_nil(json);
}
