/*
 * POST /generative_scoring as vLLM has it: the probability of a label as the next token behind a
 * query and each of several items. Query and item are encoded separately. The prompts share the
 * query in the engine; what does not fit the context is refused, where vLLM cuts it.
 */
#include "openai.h"
#include "ownroutes.h"

#include <math.h>

static const struct field scoring_route_fields[] = {
    REQUIRED("query", FIELD_PROMPT, query, "vLLM", NULL, "A text or ids."),
    REQUIRED("items", FIELD_PROMPT, prompts, "vLLM", "token_ids",
             "Texts or lists of ids, each joined to the query."),
    REQUIRED("label_token_ids", FIELD_IDS, tokens, "vLLM", "candidate_ids",
             "The score is the probability of the first of these."),
    ROW("apply_softmax", FIELD_FLAG, apply_softmax, "true", "vLLM", NULL,
        "Among the labels; false: among the whole vocabulary."),
    ROW("item_first", FIELD_FLAG, item_first, "false", "vLLM", NULL,
        "Items stand before the query."),
    ROW("add_special_tokens", FIELD_CHOICE, add_special, NULL, "vLLM", "add_special",
        "Whether BOS and EOS are added to the query as the tokenizer does."),
    NUMBERS("score_temperature", FIELD_ABOVE0, score_temperature, 0, FLT_MAX, "null", "nepit", NULL,
            "Divides logits before the softmax; null: 1."),
    LAST_ROW};
const struct field *const scoring_groups[] = {scoring_route_fields, identity_fields, running_fields,
                                              NULL};

static np_status ids_of(struct exchange *exchange, const struct prompt *from, np_choice add_special,
                        const char *where, np_ids *out, np_error *err)
{
    struct encoded encoded;
    *out = from->ids;
    if (from->ids.ids) return own_check_ids(exchange, where, *out, err);
    TRY(ask_encode(exchange, from->text, add_special, false, &encoded, err));
    *out = (np_ids){encoded.ids, encoded.n};
    return NP_OK;
}

static np_status join(struct exchange *exchange, np_ids query, size_t i, struct prompt *joined,
                      np_error *err)
{
    const struct ask *ask = &exchange->ask;
    char where[32];
    np_ids item;
    snprintf(where, sizeof where, "items[%zu]", i);
    TRY(ids_of(exchange, &ask->prompts.at[i], NP_NO, where, &item, err));
    if (query.n + item.n == 0)
        return error_set(err, NP_EINPUT, where, NO_OFFSET, "query and item are both empty");
    int32_t *ids = arena_push_array(&exchange->arena, query.n + item.n, sizeof *ids);
    if (!ids) return error_nomem(err, where, (query.n + item.n) * sizeof *ids);
    np_ids first = ask->item_first ? item : query, second = ask->item_first ? query : item;
    if (first.n) memcpy(ids, first.ids, first.n * sizeof *ids);
    if (second.n) memcpy(ids + first.n, second.ids, second.n * sizeof *ids);
    *joined = (struct prompt){.ids = {ids, query.n + item.n}};
    return NP_OK;
}

np_status scoring_prepare(struct exchange *exchange, np_error *err)
{
    struct ask *ask = &exchange->ask;
    size_t n = ask->prompts.n;
    np_ids query;
    if (ask->query.many)
        return error_set(err, NP_EINPUT, "query", NO_OFFSET, "one text or list of ids is expected");
    if (!ask->prompts.many)
        return error_set(err, NP_EINPUT, "items", NO_OFFSET,
                         "must be a list of texts, or of lists of ids");
    if (ask->tokens.n == 0)
        return error_set(err, NP_EINPUT, "label_token_ids", NO_OFFSET, "at least one id is needed");
    TRY(openai_begin(exchange, "generative-scoring-", err));
    TRY(ids_of(exchange, ask->query.at, (np_choice)ask->add_special, "query", &query, err));
    struct prompt *joined = arena_push_array(&exchange->arena, n, sizeof *joined);
    if (!joined) return error_nomem(err, "items", n * sizeof *joined);
    for (size_t i = 0; i < n; i++) TRY(join(exchange, query, i, &joined[i], err));
    ask->prompts.at = joined;
    ask->max_tokens = 0;
    TRY(exchange_requests(exchange, n, err));
    for (size_t i = 0; i < n; i++) {
        np_request *request = &exchange->requests[i];
        TRY(prepare_prompt(exchange, i, err));
        request->logprobs_mode = NP_RAW_LOGPROBS;
        request->start = request->n_tokens - 1;
        request->next = 1;
        request->candidate_ids = ask->tokens.ids;
        request->n_candidates = ask->tokens.n;
        TRY(ask_expect(exchange, 24 * (double)ask->tokens.n + 80, err));
    }
    return NP_OK;
}

/* The probability of the first label; repeated labels count once. */
static double score_of(const struct ask *ask, const float *logprobs)
{
    double highest = -INFINITY, sum = 0;
    if (!ask->apply_softmax) return exp((double)logprobs[0]);
    for (size_t k = 0; k < ask->tokens.n; k++)
        if ((double)logprobs[k] > highest) highest = (double)logprobs[k];
    if (isinf(highest)) return 0;
    for (size_t k = 0; k < ask->tokens.n; k++) {
        bool again = false;
        for (size_t j = 0; j < k && !again; j++) again = ask->tokens.ids[j] == ask->tokens.ids[k];
        if (!again) sum += exp((double)logprobs[k] - highest);
    }
    return exp((double)logprobs[0] - highest) / sum;
}

np_status scoring_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    json_begin(json, '{');
    tell_head(exchange, "id", "list");
    json_key(json, "data");
    json_begin(json, '[');
    for (size_t i = 0; i < exchange->n_requests; i++) {
        const np_result *result = &exchange->results[i];
        json_begin(json, '{');
        json_key(json, "index");
        json_int(json, (int64_t)i);
        json_key(json, "object");
        json_str(json, "score");
        json_key(json, "score");
        json_double(json, score_of(&exchange->ask, result->scores));
        json_key(json, "label_logprobs");
        tell_values(exchange, result->scores, 0, result->n_candidates);
        json_end(json, '}');
    }
    json_end(json, ']');
    json_key(json, "usage");
    tell_usage(exchange, exchange->n_prompt_tokens, 0);
    json_end(json, '}');
    return NP_OK;
}
