/*
 * POST /nepit/v1/perplexity: one text of any length, by windows and strides, with the numbers of
 * np_perplexity (nepit.h has the rules). Its windows are requests of one ticket; a row's next token
 * is asked for as its only candidate, so that a window of W rows runs W tokens.
 *
 *   W = 4, S = 2     rows 0 1 2 3 4 5 6 7          # scored   . only context
 *   window 0              # # # #
 *   window 1                  . . # #
 *   window 2                      . . # #
 */
#include "ownroutes.h"

#include <math.h>

#define MOST_WINDOWS 65536

static const double LN2 = 0.69314718055994530942;

static const struct field perplexity_fields[] = {
    REQUIRED("text", FIELD_TEXT, context, "nepit", NULL, "What is scored."),
    NUMBERS("window", FIELD_INT, window, 1, COUNT_MAX, "null", "nepit", NULL,
            "Rows of one window, at most the context; null: the context."),
    NUMBERS("stride", FIELD_INT, stride, 1, COUNT_MAX, "null", "nepit", NULL,
            "Rows from one window to the next, at most the window; null: the window."),
    LAST_ROW};
const struct field *const own_perplexity_groups[] = {perplexity_fields, own_text_fields,
                                                     identity_fields, running_fields, NULL};

struct document {
    struct encoded encoded;
    size_t window, stride;
};

static np_status check_sizes(struct exchange *exchange, struct document *document, np_error *err)
{
    const struct ask *ask = &exchange->ask;
    size_t n_context = exchange_context(exchange);
    document->window = ask->window == NOT_GIVEN ? n_context : (size_t)ask->window;
    document->stride = ask->stride == NOT_GIVEN ? document->window : (size_t)ask->stride;
    if (document->window > n_context) {
        error_set(err, NP_EINPUT, "window", NO_OFFSET, "must be at most the context of %zu tokens",
                  n_context);
        return error_given(err, NP_EINPUT, "%zu", document->window);
    }
    if (document->stride > document->window) {
        error_set(err, NP_EINPUT, "stride", NO_OFFSET,
                  "must be at most the window of %zu: else tokens would be left out",
                  document->window);
        return error_given(err, NP_EINPUT, "%zu", document->stride);
    }
    return NP_OK;
}

static np_status encode(struct exchange *exchange, struct document *document, np_error *err)
{
    const struct ask *ask = &exchange->ask;
    if (ask->condition && ask->add_special != NP_DEFAULT)
        return error_set(err, NP_EINPUT, "condition", NO_OFFSET,
                         "not together with add_special_tokens: they say the same");
    return ask_encode(exchange, ask->context, ask->condition ? NP_NO : (np_choice)ask->add_special,
                      ask->condition == NP_CONDITION_BOS, &document->encoded, err);
}

static size_t count_windows(size_t n_rows, size_t window, size_t stride)
{
    if (n_rows == 0) return 0;
    return n_rows <= window ? 1 : 1 + (n_rows - window + stride - 1) / stride;
}

np_status own_perplexity_prepare(struct exchange *exchange, np_error *err)
{
    struct document *document = arena_push_array(&exchange->arena, 1, sizeof *document);
    if (!document) return error_nomem(err, "text", sizeof *document);
    exchange->extra = document;
    TRY(check_sizes(exchange, document, err));
    TRY(encode(exchange, document, err));
    size_t n_rows = document->encoded.n ? document->encoded.n - 1 : 0, n_scored = 0;
    size_t n = count_windows(n_rows, document->window, document->stride);
    exchange->ask.prompt_logprobs = 0;
    if (n > MOST_WINDOWS) {
        error_set(err, NP_ELIMIT, "stride", NO_OFFSET,
                  "the text takes %zu windows; at most %d are run here, and nepit perplexity has "
                  "no limit",
                  n, MOST_WINDOWS);
        return NP_ELIMIT;
    }
    if (n == 0) return NP_OK;
    TRY(exchange_requests(exchange, n, err));
    for (size_t i = 0; i < n; i++) {
        size_t begin = i * document->stride, length = n_rows - begin, n_before = n_scored - begin;
        if (length > document->window) length = document->window;
        const int32_t *ids = document->encoded.ids + begin;
        np_request *request = &exchange->requests[i];
        *request = (np_request){.token_ids = ids,
                                .n_tokens = length,
                                .start = n_before,
                                .next = 1,
                                .candidate_ids = ids + n_before + 1,
                                .n_candidates = 1,
                                .n_candidate_rows = length - n_before};
        ask_running(exchange, request);
        /* No other sequence begins in the middle of this text. */
        if (begin > 0) request->skip_reading_prefix_cache = 1;
        n_scored = begin + length;
    }
    return NP_OK;
}

np_status own_perplexity_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    const struct document *document = exchange->extra;
    const struct encoded *encoded = &document->encoded;
    double total = 0;
    size_t n_scored = 0, n_scored_bytes = 0;
    for (size_t i = 0; i < exchange->n_requests; i++)
        for (size_t j = 0; j < exchange->results[i].n_rows; j++) {
            n_scored++;
            total += own_value(exchange->results[i].scores[j]);
            n_scored_bytes += encoded->end[n_scored] - encoded->begin[n_scored];
        }
    json_begin(json, '{');
    tell_head(exchange, "request_id", NULL);
    own_tell_double(json, "total", total);
    own_tell_double(json, "mean", total / (double)n_scored);
    own_tell_double(json, "perplexity", exp(-total / (double)n_scored));
    own_tell_double(json, "bits_per_byte", -total / LN2 / (double)n_scored_bytes);
    own_tell_count(json, "n_tokens", encoded->n);
    own_tell_count(json, "n_scored", n_scored);
    own_tell_count(json, "n_bytes", exchange->ask.context.n_bytes);
    own_tell_count(json, "n_scored_bytes", n_scored_bytes);
    own_tell_count(json, "n_windows", exchange->n_requests);
    own_tell_count(json, "n_computed", exchange->n_computed);
    own_tell_count(json, "window", document->window);
    own_tell_count(json, "stride", document->stride);
    own_tell_conditioning(exchange, encoded->ids, encoded->n);
    tell_meaning(exchange);
    json_key(json, "usage");
    tell_usage(exchange, encoded->n, 0);
    json_end(json, '}');
    return NP_OK;
}
