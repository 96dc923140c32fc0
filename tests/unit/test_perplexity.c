/*
 * test_perplexity.c - documents by windows and strides give the sums of the same windows run one by
 * one, in pieces of any size, in any company; whatever goes wrong stays with its document.
 */
#include "tinymodel.h"

#include "api/handles.h"
#include "api/pieces.h"

#include <math.h>

#define MAX_TEXT 6000

/* A tiny model has few tokens: words of a small language, with digits, spaces and lines. */
static size_t make_text(char *text, size_t n, uint32_t seed)
{
    static const char letters[] = "etaoin shrdlu  the and\n of 12 ,. '";
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        text[i] = letters[(seed >> 10) % (sizeof letters - 1)];
    }
    return n;
}

struct world {
    np_model *model;
    np_engine *engine;
    size_t n_context;
    char text[MAX_TEXT];
    np_tokens tokens;
};

static void world_open(struct world *world, size_t n_bytes)
{
    world->model = open_model(TINY("llama-tied-f32.gguf"));
    world->engine = open_engine(world->model, 1, 0);
    world->n_context = (size_t)np_model_info(world->model).n_context;
    make_text(world->text, n_bytes, 1);
    assert_int_equal(np_tokenize(world->model, world->text, n_bytes, NP_DEFAULT, NP_DEFAULT,
                                 &world->tokens, NULL),
                     NP_OK);
}

static void world_close(struct world *world)
{
    np_tokens_free(&world->tokens);
    np_engine_close(world->engine);
    np_model_close(world->model);
}

static np_perplexity_result run_one(np_engine *engine, const np_document *document, size_t window,
                                    size_t stride)
{
    np_perplexity_options options = {.window = window, .stride = stride};
    np_perplexity_result result;
    np_error err;
    char line[700];
    if (np_perplexity(engine, document, 1, &options, &result, &err) != NP_OK)
        fail_msg("%s", np_error_line(&err, line, sizeof line));
    return result;
}

/* The window's scores by the plainest request: W + 1 tokens, of which the last is only scored. */
static double sum_of_window(struct world *world, size_t begin, size_t n_rows, size_t n_before,
                            double total)
{
    np_request request = {.token_ids = world->tokens.token_ids + begin,
                          .n_tokens = n_rows + 1,
                          .start = n_before,
                          .want = NP_WANT_LOGPROB};
    np_result answer;
    assert_int_equal(np_run(world->engine, &request, 1, &answer, NULL, NULL, NULL), NP_OK);
    assert_int_equal(answer.error.status, NP_OK);
    assert_int_equal(answer.n_scored, n_rows - n_before);
    for (size_t j = 0; j < answer.n_scored; j++) total += (double)answer.logprobs[j];
    np_result_free(&answer);
    return total;
}

static void check_strides(struct world *world, size_t n_bytes, size_t window, size_t stride)
{
    np_document document = {.text = world->text, .n_bytes = n_bytes};
    np_perplexity_result result = run_one(world->engine, &document, window, stride);
    size_t n_rows = world->tokens.n_tokens - 1, n_windows = 0, scored = 0;
    double total = 0;
    for (size_t begin = 0; scored < n_rows; begin += stride, n_windows++) {
        size_t n = n_rows - begin < window ? n_rows - begin : window;
        total = sum_of_window(world, begin, n, scored - begin, total);
        scored = begin + n;
    }
    assert_true(result.total == total);
    assert_int_equal(result.n_scored, n_rows);
    assert_int_equal(result.n_tokens, n_rows + 1);
    assert_int_equal(result.n_windows, n_windows);
    assert_int_equal(result.n_bytes, n_bytes);
    assert_int_equal(result.n_scored_bytes, n_bytes - world->tokens.end[0]);
    assert_true(fabs(log(result.perplexity) * (double)n_rows / -total - 1) < 1e-12);
    assert_true(fabs(result.bits_per_byte * log(2) * (double)result.n_scored_bytes / -total - 1) <
                1e-12);
    assert_int_equal(result.window, window);
    assert_int_equal(result.stride, stride);
}

static void every_stride_C081(void **state)
{
    static struct world world;
    world_open(&world, 400);
    size_t n = world.tokens.n_tokens, half = 2 * (n - 1) / 5; /* 2.5 windows */
    check_strides(&world, 400, half, half);
    check_strides(&world, 400, half, half / 2);
    check_strides(&world, 400, half, 1);
    check_strides(&world, 400, half, 13);
    check_strides(&world, 400, 1, 1);
    check_strides(&world, 400, 7, 5);
    world_close(&world);
}

/* One window for a text that fits, at the whole context too: the sum of np_score, bit for bit. */
static void a_text_that_fits_is_one_window(void **state)
{
    static struct world world;
    world_open(&world, 100);
    np_result score;
    double total = 0;
    assert_int_equal(np_score(world.engine, world.text, 100, &score, NULL), NP_OK);
    for (size_t j = 0; j < score.n_scored; j++) total += (double)score.logprobs[j];
    const size_t windows[] = {0, score.n_scored, world.n_context};
    np_document document = {.text = world.text, .n_bytes = 100};
    for (size_t i = 0; i < 3; i++) {
        np_perplexity_result result = run_one(world.engine, &document, windows[i], 0);
        assert_true(result.total == total);
        assert_int_equal(result.n_windows, 1);
        assert_int_equal(result.n_scored, score.n_scored);
        assert_true(result.n_computed <= result.n_scored);
    }
    np_result_free(&score);
    world_close(&world);
}

/* ---- documents that are read --------------------------------------------------------------- */

struct reader {
    const char *text;
    size_t n, at, most; /* at most so many bytes at once; 0: any number */
    size_t fails_at;
    np_status how;
    np_engine *cancels;
};

static int64_t read_on(void *user, char *out, size_t n_bytes, np_error *err)
{
    struct reader *reader = user;
    size_t n = reader->n - reader->at;
    if (reader->fails_at && reader->at >= reader->fails_at) {
        if (reader->cancels) np_engine_cancel(reader->cancels);
        return error_set(err, reader->how, NULL, NO_OFFSET, "no more"), -1;
    }
    if (n > n_bytes) n = n_bytes;
    if (reader->most && n > reader->most) n = reader->most;
    memcpy(out, reader->text + reader->at, n);
    reader->at += n;
    return (int64_t)n;
}

static void same_sums(const np_perplexity_result *a, const np_perplexity_result *b)
{
    np_perplexity_result one = *a, other = *b;
    one.n_computed = other.n_computed = 0; /* what was shared is not computed */
    assert_memory_equal(&one, &other, sizeof one);
}

static void chunks_threads_and_reads_change_nothing(void **state)
{
    static struct world world;
    world_open(&world, MAX_TEXT);
    np_document whole = {.text = world.text, .n_bytes = MAX_TEXT};
    np_perplexity_result expected = run_one(world.engine, &whole, 50, 20);
    static const size_t chunks[] = {1, 7, 64, 100}, most[] = {0, 1, 100, 5000};
    for (size_t i = 0; i < 4; i++) {
        np_engine *engine = open_engine(world.model, (int)i + 1, chunks[i]);
        struct reader reader = {.text = world.text, .n = MAX_TEXT, .most = most[i]};
        np_document document = {.read = read_on, .read_user = &reader};
        np_perplexity_result result = run_one(engine, &document, 50, 20);
        same_sums(&result, &expected);
        np_engine_close(engine);
    }
    world_close(&world);
}

struct order {
    const np_perplexity_result *results;
    size_t n, seen[8];
    size_t done, total;
};

static void note_finished(void *user, size_t document)
{
    struct order *order = user;
    assert_true(order->n < 8);
    order->seen[order->n++] = document;
}

static void note_progress(void *user, size_t done, size_t total)
{
    struct order *order = user;
    assert_true(done >= order->done && (total == 0 || done <= total));
    order->done = done;
    order->total = total;
}

static void one_bad_document_harms_no_other(void **state)
{
    static struct world world;
    world_open(&world, 2000);
    struct reader fails = {.text = world.text, .n = 2000, .fails_at = 1, .how = NP_EIO};
    struct reader lies = {.text = world.text, .n = 2000, .fails_at = 1};
    np_document documents[8] = {{.text = world.text, .n_bytes = 2000},
                                {.read = read_on, .read_user = &fails},
                                {.text = world.text + 7, .n_bytes = 30},
                                {.text = "", .n_bytes = 0},
                                {.n_bytes = 0},
                                {.text = world.text + 9, .n_bytes = 1},
                                {.read = read_on, .read_user = &lies},
                                {.text = world.text + 11, .n_bytes = 1500}};
    np_perplexity_result results[8];
    struct order order = {.results = results};
    np_perplexity_options options = {.window = 40,
                                     .stride = 30,
                                     .progress = note_progress,
                                     .finished = note_finished,
                                     .user = &order};
    np_error err;
    assert_int_equal(np_perplexity(world.engine, documents, 8, &options, results, &err), NP_OK);
    assert_int_equal(err.status, NP_OK);
    assert_int_equal(order.n, 8);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(order.seen[i], i);
        if (i == 1 || i == 6) continue;
        np_perplexity_result alone = run_one(world.engine, &documents[i], 40, 30);
        /* NaN is NaN: compared as bytes */
        same_sums(&results[i], &alone);
    }
    assert_int_equal(results[1].error.status, NP_EIO);
    assert_string_equal(results[1].error.message, "no more");
    assert_int_equal(results[6].error.status, NP_EIO); /* it failed and did not say why */
    assert_int_equal(results[3].n_tokens, 0);
    assert_true(isnan(results[3].perplexity) && isnan(results[3].bits_per_byte));
    assert_int_equal(results[5].n_scored, results[5].n_tokens - 1);
    world_close(&world);
}

static void what_stands_before_the_first_token_C074(void **state)
{
    static struct world world;
    world_open(&world, 60);
    np_info info = np_model_info(world.model);
    np_document document = {.text = world.text, .n_bytes = 60};
    np_perplexity_options options = {.window = 10, .condition = NP_CONDITION_BOS};
    np_perplexity_result result;
    assert_int_equal(np_perplexity(world.engine, &document, 1, &options, &result, NULL), NP_OK);
    assert_true(result.has_bos);
    assert_int_equal(result.n_scored, world.tokens.n_tokens);
    assert_int_equal(result.n_scored_bytes, 60);
    np_tokens tokens = world.tokens; /* the same with BOS before the first window alone */
    int32_t *ids = mem_alloc(tokens.n_tokens + 1, sizeof *ids);
    ids[0] = info.bos_id;
    memcpy(ids + 1, tokens.token_ids, tokens.n_tokens * sizeof *ids);
    world.tokens.token_ids = ids;
    double total = 0;
    for (size_t begin = 0; begin < tokens.n_tokens; begin += 10) {
        size_t n = tokens.n_tokens - begin < 10 ? tokens.n_tokens - begin : 10;
        total = sum_of_window(&world, begin, n, 0, total);
    }
    assert_true(result.total == total);
    world.tokens = tokens;
    mem_free(ids);
    options.condition = NP_CONDITION_NONE;
    assert_int_equal(np_perplexity(world.engine, &document, 1, &options, &result, NULL), NP_OK);
    assert_false(result.has_bos);
    assert_int_equal(result.n_scored, world.tokens.n_tokens - 1);
    world_close(&world);
}

static void refused(np_engine *engine, np_perplexity_options options, const char *where)
{
    np_document document = {.text = "a b", .n_bytes = 3};
    np_perplexity_result result;
    np_error err;
    assert_int_equal(np_perplexity(engine, &document, 1, &options, &result, &err), NP_EINPUT);
    assert_string_equal(err.where, where);
    assert_int_equal(result.n_tokens, 0);
}

static void options_that_are_refused(void **state)
{
    static struct world world;
    world_open(&world, 60);
    np_document missing = {.n_bytes = 3};
    np_perplexity_result result;
    np_error err;
    refused(world.engine, (np_perplexity_options){.window = world.n_context + 1}, "window");
    refused(world.engine, (np_perplexity_options){.window = 8, .stride = 9}, "stride");
    refused(world.engine, (np_perplexity_options){.condition = 9}, "condition");
    refused(world.engine,
            (np_perplexity_options){.condition = NP_CONDITION_BOS, .add_special = NP_NO},
            "condition");
    assert_int_equal(np_perplexity(NULL, &missing, 1, NULL, &result, &err), NP_EINPUT);
    assert_int_equal(np_perplexity(world.engine, NULL, 1, NULL, &result, &err), NP_EINPUT);
    assert_int_equal(np_perplexity(world.engine, &missing, 1, NULL, NULL, &err), NP_EINPUT);
    assert_int_equal(np_perplexity(world.engine, &missing, 1, NULL, &result, &err), NP_EINPUT);
    assert_string_equal(err.where, "documents.text");
    assert_int_equal(np_perplexity(world.engine, NULL, 0, NULL, NULL, &err), NP_OK);
    world_close(&world);
    np_model *model = open_model(TINY("llama-head10-bf16"));
    np_engine *engine = open_engine(model, 1, 0);
    np_document document = {.text = "a", .n_bytes = 1};
    assert_int_equal(np_perplexity(engine, &document, 1, NULL, &result, &err), NP_EUNSUPPORTED);
    np_engine_close(engine);
    np_model_close(model);
}

/* Documents that were done stay, the others hold the error and what was summed. */
static void a_cancelled_call_keeps_what_is_done(void **state)
{
    static struct world world;
    static char text[200000];
    world_open(&world, 2000);
    make_text(text, sizeof text, 5);
    struct reader reader = {
        .text = text, .n = sizeof text, .most = 1000, .fails_at = 1, .how = NP_ECANCELLED};
    reader.fails_at = sizeof text;
    np_document documents[3] = {{.text = world.text, .n_bytes = 2000},
                                {.read = read_on, .read_user = &reader},
                                {.text = world.text, .n_bytes = 2000}};
    np_perplexity_options options = {.window = 20};
    np_perplexity_result results[3], alone = run_one(world.engine, documents, 20, 20);
    np_error err;
    for (int engine_too = 0; engine_too < 2; engine_too++) {
        reader.at = 0;
        reader.cancels = engine_too ? world.engine : NULL;
        assert_int_equal(np_perplexity(world.engine, documents, 3, &options, results, &err),
                         NP_ECANCELLED);
        assert_int_equal(err.status, NP_ECANCELLED);
        assert_int_equal(results[1].error.status, NP_ECANCELLED);
        assert_int_equal(results[2].error.status, NP_ECANCELLED);
        assert_int_equal(results[2].n_scored, 0);
        if (engine_too) continue;
        same_sums(&results[0], &alone);
    }
    world_close(&world);
}

/* Each allocation in turn: an error, nothing lost, and the next call gives the right sums. */
static void every_failed_allocation_is_an_error(void **state)
{
    static struct world world;
    world_open(&world, 300);
    np_document document = {.text = world.text, .n_bytes = 300};
    np_perplexity_options options = {.window = 16, .stride = 9};
    np_perplexity_result expected = run_one(world.engine, &document, 16, 9), result;
    np_error err = {.status = NP_ENOMEM};
    uint64_t n = 1;
    for (; n < 10000; n++) {
        alloc_fail_after(n);
        np_status status = np_perplexity(world.engine, &document, 1, &options, &result, &err);
        alloc_fail_after(0);
        if (status == NP_OK && result.error.status == NP_OK) break;
        assert_int_equal(status == NP_OK ? result.error.status : status, NP_ENOMEM);
        if (n % 50 == 1) {
            result = run_one(world.engine, &document, 16, 9);
            same_sums(&result, &expected);
        }
    }
    assert_true(n > 10);
    same_sums(&result, &expected);
    world_close(&world);
}

/* ---- pieces -------------------------------------------------------------------------------- */

static void ids_of_pieces_are_those_of_the_whole(void **state)
{
    static const char *const models[] = {TINY("llama-tied-f32.gguf"), TINY("qwen2-tied-f32"),
                                         TINY("gpt2-plain")};
    static const size_t blocks[] = {1, 2, 5, 64, 4096};
    static char text[MAX_TEXT];
    make_text(text, MAX_TEXT, 3);
    memset(text + 1000, ' ', 300);
    memset(text + 2000, 'a', 300);
    memset(text + 3000, '\n', 300);
    for (size_t m = 0; m < 3; m++) {
        np_model *model = open_model(models[m]);
        np_tokens whole;
        assert_int_equal(np_tokenize(model, text, MAX_TEXT, NP_NO, NP_DEFAULT, &whole, NULL),
                         NP_OK);
        for (size_t b = 0; b < 5; b++) {
            np_document document = {.text = text, .n_bytes = MAX_TEXT};
            struct pieces pieces;
            size_t n = 0, n_pieces = 0;
            pieces_begin(&pieces, model->tokenizer, &document, true, blocks[b]);
            for (; !pieces.ended; n_pieces++) {
                struct encoding encoding;
                assert_int_equal(pieces_next(&pieces, &encoding, NULL), NP_OK);
                for (size_t i = 0; i < encoding.n_tokens; i++, n++)
                    assert_int_equal(encoding.tokens[i].id, whole.token_ids[n]);
                encoding_free(&encoding);
            }
            assert_int_equal(n, whole.n_tokens);
            assert_int_equal(pieces.text_begin, MAX_TEXT);
            assert_true(n_pieces > 1);
            pieces_end(&pieces);
        }
        np_tokens_free(&whole);
        np_model_close(model);
    }
}

struct endless {
    uint64_t left;
};

static int64_t read_words(void *user, char *out, size_t n_bytes, np_error *err)
{
    struct endless *endless = user;
    size_t n = endless->left < n_bytes ? (size_t)endless->left : n_bytes;
    for (size_t i = 0; i < n; i++) out[i] = " the"[(i + endless->left) % 4];
    endless->left -= n;
    return (int64_t)n;
}

/* 16 MiB go by; what is kept is a block and a rest. */
static void memory_of_pieces_is_bounded(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    struct endless endless = {.left = 16 << 20};
    np_document document = {.read = read_words, .read_user = &endless};
    struct pieces pieces;
    size_t most_tokens = 0;
    pieces_begin(&pieces, model->tokenizer, &document, true, PIECES_BLOCK_BYTES);
    while (!pieces.ended) {
        struct encoding encoding;
        assert_int_equal(pieces_next(&pieces, &encoding, NULL), NP_OK);
        if (encoding.n_tokens > most_tokens) most_tokens = encoding.n_tokens;
        encoding_free(&encoding);
    }
    assert_int_equal(pieces.text_begin, 16 << 20);
    assert_true(pieces.text.capacity <= 4 * PIECES_BLOCK_BYTES);
    assert_true(most_tokens <= PIECES_BLOCK_BYTES);
    pieces_end(&pieces);
    np_model_close(model);
}

/* One word of 8 MiB is refused with its place; what stands before it was handed out. */
static void a_word_without_end_is_refused(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    size_t n = 3 * PIECES_MAX_BYTES;
    char *text = mem_alloc(n, 1);
    memset(text, 'a', n);
    memcpy(text, "one two ", 8);
    np_document document = {.text = text, .n_bytes = n};
    struct pieces pieces;
    struct encoding encoding;
    np_error err;
    pieces_begin(&pieces, model->tokenizer, &document, true, PIECES_BLOCK_BYTES);
    np_status status;
    while ((status = pieces_next(&pieces, &encoding, &err)) == NP_OK) {
        encoding_free(&encoding);
        assert_false(pieces.ended);
    }
    assert_int_equal(status, NP_ELIMIT);
    assert_int_equal(err.offset, 7);
    encoding_free(&encoding);
    pieces_end(&pieces);
    mem_free(text);
    np_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stride_C081),
        cmocka_unit_test(a_text_that_fits_is_one_window),
        cmocka_unit_test(chunks_threads_and_reads_change_nothing),
        cmocka_unit_test(one_bad_document_harms_no_other),
        cmocka_unit_test(what_stands_before_the_first_token_C074),
        cmocka_unit_test(options_that_are_refused),
        cmocka_unit_test(a_cancelled_call_keeps_what_is_done),
        cmocka_unit_test(every_failed_allocation_is_an_error),
        cmocka_unit_test(ids_of_pieces_are_those_of_the_whole),
        cmocka_unit_test(memory_of_pieces_is_bounded),
        cmocka_unit_test(a_word_without_end_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
