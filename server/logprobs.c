/*
 * logprobs.c - see logprobs.h.
 */
#include "logprobs.h"
#include "base/npy.h"

const char *token_text(const struct exchange *exchange, int32_t token_id, size_t *n_bytes)
{
    const char *bytes = "";
    *n_bytes = 0;
    if (token_id < 0 || !exchange_info(exchange)->has_tokenizer) return bytes;
    if (np_token_bytes(exchange_model(exchange), token_id, &bytes, n_bytes, NULL) != NP_OK) {
        *n_bytes = 0;
        return "";
    }
    return bytes;
}

void tell_token(struct exchange *exchange, int32_t token_id, bool as_id)
{
    size_t n_bytes;
    char name[32];
    if (!as_id && exchange_info(exchange)->has_tokenizer) {
        const char *bytes = token_text(exchange, token_id, &n_bytes);
        json_text(&exchange->writer, bytes, n_bytes);
        return;
    }
    snprintf(name, sizeof name, "token_id:%d", (int)token_id);
    json_str(&exchange->writer, name);
}

void tell_ids(struct exchange *exchange, const int32_t *ids, size_t n)
{
    json_begin(&exchange->writer, '[');
    for (size_t i = 0; i < n; i++) json_int(&exchange->writer, ids[i]);
    json_end(&exchange->writer, ']');
}

/* ---- rows ------------------------------------------------------------------------------------ */

struct told_row row_of_prompt(const np_result *result, size_t row)
{
    struct told_row told = {.id = -1, .n_top = result->n_top};
    if (row < result->n_scored) {
        told.id = result->token_ids[result->start + row + 1];
        if (result->logprobs) told.logprob = result->logprobs[row];
        if (result->ranks) told.rank = result->ranks[row];
    }
    if (result->n_top) {
        told.top_ids = result->top_ids + row * result->n_top;
        told.top_logprobs = result->top_logprobs + row * result->n_top;
    }
    return told;
}

struct told_row row_of_choice(const np_generated *choice, size_t token)
{
    struct told_row told = {.id = choice->token_ids[token], .n_top = choice->n_top};
    if (choice->logprobs) told.logprob = choice->logprobs[token];
    if (choice->ranks) told.rank = choice->ranks[token];
    if (choice->n_candidates) {
        told.chosen = true;
        told.n_top = choice->n_candidates;
        told.top_ids = choice->candidate_ids;
        told.top_logprobs = choice->scores + token * choice->n_candidates;
    } else if (choice->n_top) {
        told.top_ids = choice->top_ids + token * choice->n_top;
        told.top_logprobs = choice->top_logprobs + token * choice->n_top;
    }
    return told;
}

int64_t rank_in(const struct told_row *row, size_t k)
{
    return row->chosen ? 0 : (int64_t)k + 1;
}

static void tell_prompt_token(struct exchange *exchange, int32_t id, float logprob, int64_t rank)
{
    struct json *json = &exchange->writer;
    char key[16];
    snprintf(key, sizeof key, "%d", (int)id);
    json_key(json, key);
    json_begin(json, '{');
    json_key(json, "logprob");
    json_float(json, logprob);
    json_key(json, "rank");
    json_int(json, rank);
    json_key(json, "decoded_token");
    if (exchange_info(exchange)->has_tokenizer)
        tell_token(exchange, id, exchange->ask.tokens_as_ids);
    else
        json_nil(json);
    json_end(json, '}');
}

void tell_prompt_logprobs(struct exchange *exchange, const np_result *result, size_t from,
                          size_t to, bool first)
{
    struct json *json = &exchange->writer;
    int64_t asked = exchange->ask.prompt_logprobs; /* an echo may have asked for more */
    size_t n_most = asked >= 0 ? (size_t)asked : SIZE_MAX;
    json_begin(json, '[');
    for (size_t i = 0; first && i <= result->start && i < result->n_tokens; i++) json_nil(json);
    for (size_t row = from; row < to; row++) {
        struct told_row told = row_of_prompt(result, row);
        json_begin(json, '{');
        tell_prompt_token(exchange, told.id, told.logprob, told.rank);
        for (size_t k = 0; k < told.n_top && k < n_most; k++)
            if (told.top_ids[k] != told.id)
                tell_prompt_token(exchange, told.top_ids[k], told.top_logprobs[k], (int64_t)k + 1);
        json_end(json, '}');
    }
    json_end(json, ']');
}

/* ---- candidates ------------------------------------------------------------------------------ */

bool put_scores_npy(const np_result *result, size_t from, size_t to, struct buf *out)
{
    uint64_t shape[2] = {to - from, result->n_candidates};
    size_t n_bytes = (to - from) * result->n_candidates * sizeof(float);
    if (!npy_header(out, NPY_F32, shape, 2)) return false;
    return n_bytes == 0 || buf_push(out, result->scores + from * result->n_candidates, n_bytes);
}

/* Standard alphabet, padded (RFC 4648). */
static void put_base64(const void *bytes, size_t n_bytes, struct buf *out)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *at = bytes;
    char *to = buf_extend(out, (n_bytes + 2) / 3 * 4);
    if (!to) return;
    for (size_t i = 0; i < n_bytes; i += 3) {
        size_t n = n_bytes - i;
        uint32_t bits = (uint32_t)at[i] << 16;
        if (n > 1) bits |= (uint32_t)at[i + 1] << 8;
        if (n > 2) bits |= at[i + 2];
        *to++ = alphabet[bits >> 18];
        *to++ = alphabet[bits >> 12 & 63];
        *to++ = n > 1 ? alphabet[bits >> 6 & 63] : '=';
        *to++ = n > 2 ? alphabet[bits & 63] : '=';
    }
}

void tell_base64(struct exchange *exchange, const void *bytes, size_t n_bytes)
{
    json_raw(&exchange->writer, "\"", 1);
    put_base64(bytes, n_bytes, &exchange->out);
    buf_puts(&exchange->out, "\"");
}

static void tell_score_lists(struct exchange *exchange, const np_result *result, size_t from,
                             size_t to)
{
    struct json *json = &exchange->writer;
    json_begin(json, '[');
    for (size_t row = from; row < to; row++) {
        json_begin(json, '[');
        for (size_t k = 0; k < result->n_candidates; k++)
            json_float(json, result->scores[row * result->n_candidates + k]);
        json_end(json, ']');
    }
    json_end(json, ']');
}

void tell_scores(struct exchange *exchange, const np_result *result, size_t from, size_t to)
{
    struct buf file;
    if (exchange->ask.score_format == SCORES_LIST) {
        tell_score_lists(exchange, result, from, to);
        return;
    }
    buf_init(&file, SIZE_MAX);
    if (put_scores_npy(result, from, to, &file))
        tell_base64(exchange, file.data, file.n_bytes);
    else
        exchange->out.failed = true;
    buf_free(&file);
}

void tell_values(struct exchange *exchange, const float *values, size_t from, size_t to)
{
    json_begin(&exchange->writer, '[');
    for (size_t row = from; row < to; row++) json_float(&exchange->writer, values[row]);
    json_end(&exchange->writer, ']');
}

/* ---- what stands around them ----------------------------------------------------------------- */

void tell_usage(struct exchange *exchange, size_t n_prompt, size_t n_generated)
{
    struct json *json = &exchange->writer;
    json_begin(json, '{');
    json_key(json, "prompt_tokens");
    json_int(json, (int64_t)n_prompt);
    json_key(json, "completion_tokens");
    json_int(json, (int64_t)n_generated);
    json_key(json, "total_tokens");
    json_int(json, (int64_t)(n_prompt + n_generated));
    json_key(json, "prompt_tokens_details");
    json_begin(json, '{');
    json_key(json, "cached_tokens");
    json_int(json, (int64_t)(exchange->n_cached < n_prompt ? exchange->n_cached : n_prompt));
    json_end(json, '}');
    json_end(json, '}');
}

void tell_finish(struct exchange *exchange, np_finish finish)
{
    static const char *const names[] = {NULL, "length", "stop", "stop"};
    json_str(&exchange->writer, names[finish]);
}

void tell_stop_reason(struct exchange *exchange, const np_generated *choice)
{
    struct json *json = &exchange->writer;
    const struct ask *ask = &exchange->ask;
    if (choice->finish == NP_FINISH_TEXT && choice->stop_index >= 0 &&
        (size_t)choice->stop_index < ask->stop.n) {
        const np_string *stop = &ask->stop.at[choice->stop_index];
        json_text(json, stop->bytes, stop->n_bytes);
        return;
    }
    int32_t last = choice->n_tokens ? choice->token_ids[choice->n_tokens - 1] : -1;
    for (size_t i = 0; choice->finish == NP_FINISH_TOKEN && i < ask->stop_ids.n; i++)
        if (ask->stop_ids.ids[i] == last) {
            json_int(json, last);
            return;
        }
    json_nil(json);
}
