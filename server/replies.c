/*
 * replies.c - see replies.h.
 */
#include "replies.h"
#include "inside.h"
#include "logprobs.h"

#include <time.h>

np_status prepare_prompt(struct exchange *exchange, size_t i, np_error *err)
{
    char place[sizeof err->where];
    np_status status = ask_request(exchange, i, &exchange->requests[i], err);
    if (status == NP_OK) return NP_OK;
    snprintf(place, sizeof place, "requests[%zu].%.150s", i, err->where);
    memcpy(err->where, place, sizeof place);
    return status;
}

np_status prepare_prompts(struct exchange *exchange, np_error *err)
{
    size_t n = exchange->ask.prompts.n;
    TRY(exchange_requests(exchange, n, err));
    for (size_t i = 0; i < n; i++) TRY(prepare_prompt(exchange, i, err));
    return NP_OK;
}

void tell_head(struct exchange *exchange, const char *id_key, const char *object)
{
    struct json *json = &exchange->writer;
    const struct server *server = exchange->server;
    json_key(json, id_key);
    json_str(json, exchange->ask.request_id ? exchange->ask.request_id : exchange->request_id);
    if (object) {
        json_key(json, "object");
        json_str(json, object);
    }
    json_key(json, "created");
    json_int(json,
             (int64_t)(server->opened_s + (exchange->began_ns - server->opened_ns) / 1000000000));
    json_key(json, "model");
    json_str(json, server->model_name);
    json_key(json, "system_fingerprint");
    json_str(json, server->fingerprint);
}

void tell_ranked(struct exchange *exchange, int32_t token_id, float logprob, int64_t rank)
{
    struct json *json = &exchange->writer;
    json_key(json, "token_id");
    json_int(json, token_id);
    json_key(json, "logprob");
    json_float(json, logprob);
    json_key(json, "rank");
    rank > 0 ? json_int(json, rank) : json_nil(json);
}

/* ---- prompts --------------------------------------------------------------------------------- */

enum member { PROMPT_LOGPROBS, PROMPT_SCORES, PROMPT_TAIL, PROMPT_MASS, PROMPT_IDS, N_MEMBERS };
static const char *const member_names[N_MEMBERS] = {"prompt_logprobs", "prompt_token_id_logprobs",
                                                    "prompt_logprob_tail", "prompt_logprob_mass",
                                                    "prompt_token_ids"};

static bool member_wanted(const struct exchange *exchange, enum member member)
{
    const struct ask *ask = &exchange->ask;
    bool wanted[N_MEMBERS] = {ask_told(ask) != NOT_GIVEN, ask->candidates != NULL, ask->tail,
                              ask->mass, ask->return_token_ids};
    return wanted[member];
}

static void tell_member(struct exchange *exchange, enum member member, const np_result *result,
                        size_t from, size_t to, bool first)
{
    switch (member) {
    case PROMPT_LOGPROBS: tell_prompt_logprobs(exchange, result, from, to, first); break;
    case PROMPT_SCORES: tell_scores(exchange, result, from, to); break;
    case PROMPT_TAIL: tell_values(exchange, result->tail, from, to); break;
    case PROMPT_MASS: tell_values(exchange, result->mass, from, to); break;
    case PROMPT_IDS: tell_ids(exchange, result->token_ids, result->n_tokens); break;
    case N_MEMBERS: break;
    }
}

void tell_meaning(struct exchange *exchange)
{
    static const char *const raw[] = {"raw_logprobs", "raw_logits", "raw_logprobs", "raw_logits"};
    const struct ask *ask = &exchange->ask;
    struct json *json = &exchange->writer;
    bool prompt = ask_told(ask) != NOT_GIVEN || ask->candidates || ask->score_final_message;
    if (!prompt && ask->logprobs == NOT_GIVEN) return;
    int mode =
        ask->logprobs_mode ? ask->logprobs_mode - 1 : exchange_options(exchange)->logprobs_mode;
    json_key(json, "logprobs_mode");
    json_str(json, prompt ? raw[mode] : server_modes[mode]);
    json_key(json, "profile");
    json_str(json, exchange_info(exchange)->profile);
    json_key(json, "numerics");
    json_str(json, np_numerics());
}

void tell_prompts(struct exchange *exchange)
{
    struct json *json = &exchange->writer;
    bool many = exchange->ask.prompts.many;
    for (int member = 0; member < N_MEMBERS; member++) {
        json_key(json, member_names[member]);
        if (!member_wanted(exchange, (enum member)member)) {
            json_nil(json);
            continue;
        }
        if (many) json_begin(json, '[');
        for (size_t i = 0; i < exchange->n_requests; i++)
            tell_member(exchange, (enum member)member, &exchange->results[i], 0,
                        member == PROMPT_LOGPROBS ? exchange->results[i].n_scored
                                                  : exchange->results[i].n_rows,
                        true);
        if (many) json_end(json, ']');
    }
    tell_meaning(exchange);
}

void tell_prompt(struct exchange *exchange, size_t request)
{
    const np_result *result = &exchange->results[request];
    for (int member = 0; member < N_MEMBERS; member++) {
        json_key(&exchange->writer, member_names[member]);
        if (member_wanted(exchange, (enum member)member))
            tell_member(exchange, (enum member)member, result, 0,
                        member == PROMPT_LOGPROBS ? result->n_scored : result->n_rows, true);
        else
            json_nil(&exchange->writer);
    }
}

void tell_prompt_part(struct exchange *exchange, const np_result *result, const struct part *part)
{
    struct json *json = &exchange->writer;
    json_key(json, "prompt_index");
    json_int(json, (int64_t)part->request);
    json_key(json, "prompt_logprob_start");
    json_int(json, (int64_t)(result->start + part->from));
    for (int member = 0; member < N_MEMBERS; member++) {
        if (!member_wanted(exchange, (enum member)member)) continue;
        if (member == PROMPT_IDS && !part->first) continue;
        size_t to = part->to;
        if (member == PROMPT_LOGPROBS && to > result->n_scored) to = result->n_scored;
        json_key(json, member_names[member]);
        tell_member(exchange, (enum member)member, result, part->from, to, part->first);
    }
}

/* ---- parts of a stream ----------------------------------------------------------------------- */

void tell_text_part(struct exchange *exchange, const struct part *part)
{
    struct buf text;
    buf_init(&text, SIZE_MAX);
    exchange_text(exchange, part->request, part->choice, part->text_from, part->text_to, &text);
    json_key(&exchange->writer, "text");
    json_text(&exchange->writer, text.data ? text.data : "", text.n_bytes);
    buf_free(&text);
}

void tell_usage_part(struct exchange *exchange, const struct part *part)
{
    size_t n_prompt = 0, n_generated = 0;
    bool wanted =
        exchange->ask.continuous_usage || (part->kind == PART_END && exchange->ask.include_usage);
    if (!wanted) return;
    for (size_t i = 0; i < exchange->n_requests; i++) {
        const struct told *told = &exchange->told[i];
        n_prompt += exchange->requests[i].n_tokens;
        for (size_t k = 0; told->choices && k < n_choices_of(exchange, i); k++)
            n_generated += told->choices[k].n_tokens;
    }
    json_key(&exchange->writer, "usage");
    tell_usage(exchange, n_prompt, n_generated);
}

size_t n_choices_of(const struct exchange *exchange, size_t request)
{
    return exchange->ask.n > 1 ? (size_t)exchange->ask.n : 1;
}

const np_generated *choice_of(const struct exchange *exchange, size_t request, size_t choice)
{
    static const np_generated nothing = {.finish = NP_FINISH_LENGTH, .stop_index = -1};
    const np_result *result = &exchange->results[request];
    return choice < result->n_choices ? &result->choices[choice] : &nothing;
}

size_t cached_tokens(const np_result *result, const np_generated *choices)
{
    size_t n_needed = result->n_tokens - 1;
    for (size_t k = 0; choices && k < result->n_choices; k++) n_needed += choices[k].n_tokens;
    if (n_needed <= result->n_computed) return 0;
    n_needed -= result->n_computed;
    return n_needed < result->n_tokens ? n_needed : result->n_tokens;
}

size_t choice_index(const struct exchange *exchange, size_t request, size_t choice)
{
    return request * n_choices_of(exchange, request) + choice;
}

/* ---- one array ------------------------------------------------------------------------------- */

bool reply_npy(struct exchange *exchange)
{
    const np_result *result = exchange->results;
    if (!exchange->accepts_npy || exchange->n_requests != 1 || !result->n_candidates) return false;
    exchange->form = BODY_NPY;
    put_scores_npy(result, 0, result->n_rows, &exchange->out);
    return true;
}
