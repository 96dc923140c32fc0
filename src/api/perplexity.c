/*
 * perplexity.c - documents of any size through np_run, window by window.
 *
 *   pieces --> ids |doc 0 ......|doc 1 ......................| --windows--> np_run --> sums
 *
 * Windows are queued over as many documents as it takes to fill a call, so that short texts run
 * together; sums are added in the order of the tokens, so they do not depend on that.
 *
 * The surprise: a row's next token is asked for as its only candidate. Then a window of W rows runs
 * W tokens, the token behind the last row is never run, and W may be the whole context.
 */
#include "api/handles.h"
#include "api/pieces.h"
#include "score/strides.h"

#include <inttypes.h>
#include <math.h>

/* One call of np_run: chunks of 512 rows are full but for one in eight. */
#define MAX_QUEUED_ROWS 4096
#define MAX_QUEUED_WINDOWS 64

struct queued {
    size_t document, at; /* index of its first token in `ids` */
    struct window window;
};

struct reading {
    np_engine *engine;
    const np_document *documents;
    np_perplexity_options options;
    np_perplexity_result *results;
    size_t n_finished; /* documents of which `finished` was told */
    /* tokens of the documents in the queue and of the one that is read */
    int32_t *ids;         /* [n_allocated] */
    uint32_t *span_bytes; /* [n_allocated] bytes of the text that a token covers */
    size_t n_ids, n_allocated;
    struct queued queue[MAX_QUEUED_WINDOWS];
    size_t n_queued, n_queued_rows;
    /* the document that is read */
    size_t document, base; /* ids[base] is its token number `first` */
    uint64_t first;
    struct strides strides;
    struct pieces pieces;
    /* progress, in bytes */
    size_t total_bytes, done_bytes, queued_bytes;
};

/* ---- tokens ------------------------------------------------------------------------------- */

static np_status make_room(struct reading *reading, size_t n, np_error *err)
{
    size_t needed = reading->n_ids + n, n_new = reading->n_allocated ? reading->n_allocated : 4096;
    if (needed <= reading->n_allocated) return NP_OK;
    while (n_new < needed) n_new *= 2;
    int32_t *ids = mem_resize(reading->ids, n_new * sizeof *ids);
    if (ids) reading->ids = ids;
    uint32_t *spans = mem_resize(reading->span_bytes, n_new * sizeof *spans);
    if (spans) reading->span_bytes = spans;
    if (!ids || !spans) return error_nomem(err, "the tokens of a document", n_new * sizeof *ids);
    reading->n_allocated = n_new;
    return NP_OK;
}

static void push_token(struct reading *reading, int32_t id, size_t n_bytes)
{
    np_perplexity_result *result = &reading->results[reading->document];
    int32_t bos_id = tokenizer_bos(reading->engine->model->tokenizer);
    if (result->n_tokens++ == 0) result->has_bos = bos_id >= 0 && id == bos_id;
    reading->ids[reading->n_ids] = id;
    reading->span_bytes[reading->n_ids++] = (uint32_t)n_bytes;
}

/* BOS, EOS as the options say. */
static np_status push_edge(struct reading *reading, bool behind, np_error *err)
{
    const struct tokenizer *tokenizer = reading->engine->model->tokenizer;
    np_condition condition = reading->options.condition;
    size_t n = 0;
    int32_t bos_id = tokenizer_bos(tokenizer);
    const int32_t *ids = tokenizer_edge(tokenizer, behind, &n);
    if (condition != NP_CONDITION_DEFAULT || reading->options.add_special == NP_NO) n = 0;
    if (condition == NP_CONDITION_BOS && !behind) {
        ids = &bos_id;
        n = 1;
    }
    TRY(make_room(reading, n, err));
    for (size_t i = 0; i < n; i++) push_token(reading, ids[i], 0);
    return NP_OK;
}

static np_status push_piece(struct reading *reading, np_error *err)
{
    np_perplexity_result *result = &reading->results[reading->document];
    struct encoding encoding;
    np_status status = pieces_next(&reading->pieces, &encoding, err);
    result->n_bytes = reading->pieces.text_begin;
    if (status == NP_OK) status = make_room(reading, encoding.n_tokens, err);
    for (size_t i = 0; status == NP_OK && i < encoding.n_tokens; i++) {
        const struct token_span *token = &encoding.tokens[i];
        push_token(reading, token->id, token->end - token->begin);
    }
    encoding_free(&encoding);
    return status == NP_OK && reading->pieces.ended ? push_edge(reading, true, err) : status;
}

/* Forgets the tokens that no window needs any more. */
static void drop_tokens(struct reading *reading)
{
    uint64_t n_known = reading->first + (reading->n_ids - reading->base);
    uint64_t keep = reading->strides.begin < n_known ? reading->strides.begin : n_known;
    size_t from = reading->base + (size_t)(keep - reading->first), n = reading->n_ids - from;
    if (n) memmove(reading->ids, reading->ids + from, n * sizeof *reading->ids);
    if (n) memmove(reading->span_bytes, reading->span_bytes + from, n * sizeof(uint32_t));
    reading->n_ids = n;
    reading->base = 0;
    reading->first = keep;
}

/* ---- running the queue -------------------------------------------------------------------- */

static void tell_progress(void *user, size_t done, size_t total)
{
    struct reading *reading = user;
    double part = total ? (double)reading->queued_bytes * (double)done / (double)total : 0;
    if (reading->options.progress)
        reading->options.progress(reading->options.user, reading->done_bytes + (size_t)part,
                                  reading->total_bytes);
}

static np_request ask(const struct reading *reading, const struct queued *queued)
{
    const struct window *window = &queued->window;
    const int32_t *ids = reading->ids + queued->at;
    return (np_request){.token_ids = ids,
                        .n_tokens = window->n_rows,
                        .start = window->n_before,
                        .next = 1,
                        .candidate_ids = ids + window->n_before + 1,
                        .n_candidates = 1,
                        .n_candidate_rows = window->n_rows - window->n_before,
                        /* no other sequence begins in the middle of this text */
                        .skip_reading_prefix_cache = window->begin > 0};
}

/* The error of a window names a token of the document, not of the window. */
static void fail(struct reading *reading, size_t document, const np_error *why, uint64_t begin)
{
    np_error *error = &reading->results[document].error;
    uint64_t token;
    if (error->status != NP_OK) return;
    *error = *why;
    if (sscanf(why->where, "token_ids[%" SCNu64 "]", &token) == 1)
        snprintf(error->where, sizeof error->where, "token %" PRIu64, begin + token);
}

static void take(struct reading *reading, const struct queued *queued, const np_result *answer)
{
    const struct window *window = &queued->window;
    np_perplexity_result *result = &reading->results[queued->document];
    const uint32_t *spans = reading->span_bytes + queued->at + window->n_before + 1;
    if (answer->error.status != NP_OK)
        fail(reading, queued->document, &answer->error, window->begin);
    if (result->error.status != NP_OK) return;
    result->n_windows++;
    result->n_computed += answer->n_computed;
    result->n_scored += answer->n_rows;
    for (size_t j = 0; j < answer->n_rows; j++) {
        result->total += isinf(answer->scores[j]) ? -9999.0 : (double)answer->scores[j];
        result->n_scored_bytes += spans[j];
    }
}

static void finish(np_perplexity_result *result)
{
    static const double LN2 = 0.69314718055994530942;
    double n = (double)result->n_scored, n_bytes = (double)result->n_scored_bytes;
    result->perplexity = result->n_scored ? exp64(-result->total / n) : NAN;
    result->bits_per_byte = result->n_scored_bytes ? -result->total / LN2 / n_bytes : NAN;
}

/* Runs what is queued; then documents [0, n_complete) are finished, up to one that the end of the
 * call met half done. */
static np_status run_queue(struct reading *reading, size_t n_complete, np_error *err)
{
    np_request requests[MAX_QUEUED_WINDOWS];
    np_result answers[MAX_QUEUED_WINDOWS];
    size_t n = reading->n_queued;
    np_status status = NP_OK;
    for (size_t i = 0; i < n; i++) requests[i] = ask(reading, &reading->queue[i]);
    if (n) {
        status = np_run(reading->engine, requests, n, answers, tell_progress, reading, err);
        for (size_t i = 0; i < n; i++) {
            take(reading, &reading->queue[i], &answers[i]);
            np_result_free(&answers[i]);
        }
    }
    reading->done_bytes += reading->queued_bytes;
    reading->n_queued = reading->n_queued_rows = reading->queued_bytes = 0;
    for (; reading->n_finished < n_complete; reading->n_finished++) {
        np_perplexity_result *result = &reading->results[reading->n_finished];
        if (status != NP_OK && result->error.status == status) break;
        finish(result);
        if (reading->options.finished)
            reading->options.finished(reading->options.user, reading->n_finished);
    }
    drop_tokens(reading);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------ */

static np_status queue_window(struct reading *reading, const struct window *window, np_error *err)
{
    size_t at = reading->base + (size_t)(window->begin - reading->first);
    size_t n_left = MAX_QUEUED_ROWS - reading->n_queued_rows;
    reading->queue[reading->n_queued++] =
        (struct queued){.document = reading->document, .at = at, .window = *window};
    reading->n_queued_rows += window->n_rows;
    for (size_t r = window->n_before; r < window->n_rows; r++)
        reading->queued_bytes += reading->span_bytes[at + r + 1];
    if (window->n_rows < n_left && reading->n_queued < MAX_QUEUED_WINDOWS) return NP_OK;
    return run_queue(reading, reading->document, err);
}

/* Queues all windows of the document. *why: its own fault; the status: that of the call. */
static np_status read_windows(struct reading *reading, np_error *why, np_error *err)
{
    const np_perplexity_result *result = &reading->results[reading->document];
    struct window window;
    if (push_edge(reading, false, why) != NP_OK) return NP_OK;
    for (;;) {
        bool ended = reading->pieces.ended;
        uint64_t n_rows = result->n_tokens ? result->n_tokens - 1 : 0;
        while (strides_next(&reading->strides, n_rows, ended, &window)) {
            TRY(queue_window(reading, &window, err));
            if (result->error.status != NP_OK) return NP_OK;
        }
        if (ended || push_piece(reading, why) != NP_OK) return NP_OK;
    }
}

static np_status read_document(struct reading *reading, np_error *err)
{
    const np_perplexity_options *options = &reading->options;
    np_error why = {0};
    reading->strides = strides_start(options->window, options->stride);
    reading->base = reading->n_ids;
    reading->first = 0;
    pieces_begin(&reading->pieces, reading->engine->model->tokenizer,
                 &reading->documents[reading->document], options->parse_special != NP_NO,
                 PIECES_BLOCK_BYTES);
    np_status status = read_windows(reading, &why, err);
    pieces_end(&reading->pieces);
    if (status != NP_OK || why.status == NP_OK) return status;
    /* What is queued of it still counts. */
    status = run_queue(reading, reading->document, err);
    fail(reading, reading->document, &why, 0);
    if (status != NP_OK || why.status != NP_ECANCELLED) return status;
    if (err) *err = why;
    return NP_ECANCELLED;
}

static np_status read_documents(struct reading *reading, size_t n_documents, np_error *err)
{
    for (size_t i = 0; i < n_documents; i++) {
        reading->document = i;
        TRY(read_document(reading, err));
    }
    return run_queue(reading, n_documents, err);
}

/* ---- the call ----------------------------------------------------------------------------- */

static np_status check_sizes(np_perplexity_options *options, size_t n_context, np_error *err)
{
    if (options->window == 0) options->window = n_context;
    if (options->stride == 0) options->stride = options->window;
    if (options->window > n_context) {
        error_set(err, NP_EINPUT, "window", NO_OFFSET, "must be at most the context of %zu tokens",
                  n_context);
        return error_given(err, NP_EINPUT, "%zu", options->window);
    }
    if (options->stride > options->window) {
        error_set(err, NP_EINPUT, "stride", NO_OFFSET,
                  "must be at most the window of %zu: else tokens would be left out",
                  options->window);
        return error_given(err, NP_EINPUT, "%zu", options->stride);
    }
    return NP_OK;
}

/* An empty text meets every check of the special tokens. */
static np_status check_special(const np_model *model, const np_perplexity_options *options,
                               np_error *err)
{
    np_request request = {.text = "",
                          .add_special = options->add_special,
                          .parse_special = options->parse_special,
                          .condition = options->condition};
    struct encoding encoding;
    TRY(encode_request(model, &request, &encoding, err));
    encoding_free(&encoding);
    return NP_OK;
}

static np_status check_documents(const np_document *documents, size_t n, np_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!documents[i].read && documents[i].n_bytes)
            TRY(need_pointer(documents[i].text, "documents.text", err));
    return NP_OK;
}

/* Of all documents; nothing where one size is not known. */
static size_t sum_bytes(const np_document *documents, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (documents[i].n_bytes == 0 && documents[i].read) return 0;
        if (documents[i].n_bytes > SIZE_MAX / 2 - sum) return 0;
        sum += documents[i].n_bytes;
    }
    return (size_t)sum;
}

/* Not inlined: no arithmetic may move across fpenv_enter and fpenv_leave. */
__attribute__((noinline)) static np_status run_documents(struct reading *reading,
                                                         size_t n_documents, np_error *err)
{
    np_error why = {0};
    np_status status = read_documents(reading, n_documents, &why);
    for (size_t i = reading->n_finished; status != NP_OK && i < n_documents; i++) {
        finish(&reading->results[i]);
        fail(reading, i, &why, 0);
    }
    if (err) *err = why;
    mem_free(reading->ids);
    mem_free(reading->span_bytes);
    return status;
}

np_status np_perplexity(np_engine *engine, const np_document *documents, size_t n_documents,
                        const np_perplexity_options *options, np_perplexity_result *results,
                        np_error *err)
{
    if (n_documents) TRY(need_pointer(results, "results", err));
    if (n_documents) memset(results, 0, n_documents * sizeof *results);
    TRY(need_pointer(engine, "engine", err));
    if (n_documents) TRY(need_pointer(documents, "documents", err));
    if (err) memset(err, 0, sizeof *err);
    struct reading *reading = mem_alloc(1, sizeof *reading);
    if (!reading) return error_nomem(err, "documents", sizeof *reading);
    *reading = (struct reading){.engine = engine, .documents = documents, .results = results};
    if (options) reading->options = *options;
    np_status status = check_documents(documents, n_documents, err);
    if (status == NP_OK) status = check_special(engine->model, &reading->options, err);
    if (status == NP_OK)
        status = check_sizes(&reading->options, engine_n_context(engine->engine), err);
    if (status == NP_OK) {
        for (size_t i = 0; i < n_documents; i++) {
            results[i].window = reading->options.window;
            results[i].stride = reading->options.stride;
        }
        reading->total_bytes = sum_bytes(documents, n_documents);
        struct fpenv saved = fpenv_enter();
        status = run_documents(reading, n_documents, err);
        fpenv_leave(saved);
    }
    mem_free(reading);
    return status;
}
