/*
 * test_engine.c - the same bits whatever the company, the cut and the threads; allocations counted
 * and made to fail; cancelling; a request that overflows beside one that does not.
 */
#include "tinymodel.h"

#include "engine/engine.h"

#define N_REQUESTS 9
#define MAX_TOKENS 150
#define N_TOP 5
#define N_CANDIDATES 7

/* A mixed batch: lengths from 1 token to several chunks, starts, next rows, flat candidates. */
struct batch {
    int32_t ids[N_REQUESTS][MAX_TOKENS];
    int32_t candidates[N_CANDIDATES];
    np_request requests[N_REQUESTS];
    np_result results[N_REQUESTS];
};

static struct batch *make_batch(const np_model *model)
{
    np_info info = np_model_info(model);
    int32_t n_vocab = info.n_vocab;
    size_t n_context = (size_t)info.n_context;
    static const size_t lengths[N_REQUESTS] = {150, 1, 2, 63, 64, 65, 129, 17, 100};
    static const size_t starts[N_REQUESTS] = {0, 0, 0, 5, 62, 0, 100, 16, 98};
    struct batch *batch = mem_alloc(1, sizeof *batch);
    fill_ids(batch->candidates, N_CANDIDATES, n_vocab, 99);
    batch->candidates[3] = batch->candidates[1]; /* duplicates are allowed */
    for (size_t i = 0; i < N_REQUESTS; i++) {
        fill_ids(batch->ids[i], MAX_TOKENS, n_vocab, (uint32_t)i);
        batch->requests[i] = (np_request){
            .token_ids = batch->ids[i],
            .n_tokens = lengths[i] < n_context ? lengths[i] : n_context,
            .start = starts[i],
            .next = i % 2 == 0,
            .want = NP_WANT_LOGPROB | NP_WANT_RANK | NP_WANT_ENTROPY | NP_WANT_TAIL | NP_WANT_MASS,
            .top = N_TOP,
            .candidate_ids = batch->candidates,
            .n_candidates = N_CANDIDATES};
    }
    return batch;
}

static void run_batch(np_engine *engine, struct batch *batch)
{
    np_error err;
    char line[700];
    if (np_run(engine, batch->requests, N_REQUESTS, batch->results, NULL, NULL, &err) != NP_OK)
        fail_msg("%s", np_error_line(&err, line, sizeof line));
}

static void free_batch(struct batch *batch)
{
    for (size_t i = 0; i < N_REQUESTS; i++) np_result_free(&batch->results[i]);
}

static void same_bits(const np_result *a, const np_result *b)
{
    assert_int_equal(a->error.status, NP_OK);
    assert_int_equal(b->error.status, NP_OK);
    assert_int_equal(a->n_rows, b->n_rows);
    assert_memory_equal(a->logprobs, b->logprobs, a->n_scored * sizeof(float));
    assert_memory_equal(a->ranks, b->ranks, a->n_scored * sizeof(int32_t));
    assert_memory_equal(a->entropies, b->entropies, a->n_rows * sizeof(float));
    assert_memory_equal(a->tail, b->tail, a->n_rows * sizeof(float));
    assert_memory_equal(a->mass, b->mass, a->n_rows * sizeof(float));
    assert_memory_equal(a->top_ids, b->top_ids, a->n_rows * N_TOP * sizeof(int32_t));
    assert_memory_equal(a->top_logprobs, b->top_logprobs, a->n_rows * N_TOP * sizeof(float));
    assert_memory_equal(a->scores, b->scores, a->n_rows * N_CANDIDATES * sizeof(float));
}

/* C011, C012, C041: chunks, threads and company change no bit. */
static void C041_same_bits_in_any_company(void **state)
{
    static const char *const paths[] = {TINY("llama-mixed.gguf"), TINY("qwen2-tied-f32"),
                                        TINY("gpt2-plain")};
    static const size_t chunks[] = {1, 7, 16, 64, 512};
    static const int threads[] = {1, 2, 3, 5, 8};
    for (size_t m = 0; m < 3; m++) {
        np_model *model = open_model(paths[m]);
        struct batch *first = make_batch(model);
        np_engine *engine = open_engine(model, 1, 512);
        run_batch(engine, first);
        np_engine_close(engine);
        for (size_t c = 0; c < 5; c++)
            for (size_t t = 0; t < 5; t++) {
                struct batch *again = make_batch(model);
                engine = open_engine(model, threads[t], chunks[c]);
                run_batch(engine, again);
                for (size_t i = 0; i < N_REQUESTS; i++)
                    same_bits(&first->results[i], &again->results[i]);
                free_batch(again);
                mem_free(again);
                np_engine_close(engine);
            }
        free_batch(first);
        mem_free(first);
        np_model_close(model);
    }
}

/* C014, C016, C042: alone, again, and in every other order. */
static void C016_order_never_changes_a_value(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *engine = open_engine(model, 2, 64);
    struct batch *batch = make_batch(model);
    run_batch(engine, batch);
    for (size_t shift = 0; shift < N_REQUESTS; shift++) {
        np_request requests[N_REQUESTS];
        np_result results[N_REQUESTS], alone;
        np_error err;
        for (size_t i = 0; i < N_REQUESTS; i++)
            requests[i] = batch->requests[(i * 2 + shift) % N_REQUESTS];
        assert_int_equal(np_run(engine, requests, N_REQUESTS, results, NULL, NULL, &err), NP_OK);
        for (size_t i = 0; i < N_REQUESTS; i++) {
            same_bits(&batch->results[(i * 2 + shift) % N_REQUESTS], &results[i]);
            np_result_free(&results[i]);
        }
        assert_int_equal(np_run(engine, &batch->requests[shift], 1, &alone, NULL, NULL, &err),
                         NP_OK);
        same_bits(&batch->results[shift], &alone);
        np_result_free(&alone);
    }
    free_batch(batch);
    mem_free(batch);
    np_engine_close(engine);
    np_model_close(model);
}

/* C002, C119: every start from 0 to P+1, flat and per row, against the whole-vocabulary rows. */
static void C002_every_start(void **state)
{
    enum { P = 12, K = 3 };
    np_model *model = open_model(TINY("qwen2-mixed-v2.gguf"));
    np_engine *engine = open_engine(model, 2, 8);
    int32_t n_vocab = np_model_info(model).n_vocab, ids[P], flat[K], nested[P * K];
    np_result all, got;
    np_error err;
    fill_ids(ids, P, n_vocab, 5);
    fill_ids(flat, K, n_vocab, 6);
    fill_ids(nested, P * K, n_vocab, 7);
    int32_t *vocabulary = mem_alloc((size_t)n_vocab, sizeof *vocabulary);
    for (int32_t i = 0; i < n_vocab; i++) vocabulary[i] = i;
    assert_int_equal(np_gather(engine, ids, P, 0, vocabulary, (size_t)n_vocab, &all, &err), NP_OK);
    assert_int_equal(all.n_rows, P - 1);
    for (size_t start = 0; start <= P + 1; start++) {
        size_t rows = start < P - 1 ? P - 1 - start : 0;
        assert_int_equal(np_gather(engine, ids, P, start, flat, K, &got, &err), NP_OK);
        assert_int_equal(got.n_rows, rows);
        for (size_t j = 0; j < rows; j++)
            for (size_t c = 0; c < K; c++)
                assert_memory_equal(&got.scores[j * K + c],
                                    &all.scores[(start + j) * (size_t)n_vocab + (size_t)flat[c]],
                                    4);
        np_result_free(&got);
        np_request request = {.token_ids = ids,
                              .n_tokens = P,
                              .start = start,
                              .candidate_ids = nested,
                              .n_candidates = K,
                              .n_candidate_rows = rows ? rows : 1};
        assert_int_equal(np_run(engine, &request, 1, &got, NULL, NULL, &err), NP_OK);
        assert_int_equal(got.error.status, rows ? NP_OK : NP_EINPUT);
        for (size_t j = 0; j < rows; j++)
            for (size_t c = 0; c < K; c++)
                assert_memory_equal(
                    &got.scores[j * K + c],
                    &all.scores[(start + j) * (size_t)n_vocab + (size_t)nested[j * K + c]], 4);
        np_result_free(&got);
    }
    np_result_free(&all);
    mem_free(vocabulary);
    np_engine_close(engine);
    np_model_close(model);
}

/* A bad request fails alone, with its own error; too long, too short, out of range. */
static void bad_requests_harm_nobody(void **state)
{
    np_model *model = open_model(TINY("gpt2-plain"));
    np_engine *engine = open_engine(model, 2, 16);
    np_info info = np_model_info(model);
    size_t n_long = (size_t)info.n_context + 1;
    int32_t *ids = mem_alloc(n_long, sizeof *ids), bad[3] = {1, info.n_vocab, 2};
    np_result results[5];
    np_error err;
    fill_ids(ids, n_long, info.n_vocab, 1);
    np_request requests[5] = {{.token_ids = ids, .n_tokens = 9, .want = NP_WANT_LOGPROB},
                              {.token_ids = ids, .n_tokens = n_long, .want = NP_WANT_LOGPROB},
                              {.token_ids = bad, .n_tokens = 3, .want = NP_WANT_LOGPROB},
                              {.token_ids = ids, .n_tokens = 0, .want = NP_WANT_LOGPROB},
                              {.token_ids = ids, .n_tokens = 9, .want = NP_WANT_LOGPROB}};
    assert_int_equal(np_run(engine, requests, 5, results, NULL, NULL, &err), NP_OK);
    assert_int_equal(results[0].error.status, NP_OK);
    assert_int_equal(results[1].error.status, NP_ELIMIT);
    assert_int_equal(results[2].error.status, NP_EINPUT);
    assert_string_equal(results[2].error.where, "token_ids[1]");
    assert_int_equal(results[3].error.status, NP_EINPUT);
    assert_memory_equal(results[0].logprobs, results[4].logprobs, 8 * sizeof(float));
    for (size_t i = 0; i < 5; i++) np_result_free(&results[i]);
    mem_free(ids);
    np_engine_close(engine);
    np_model_close(model);
}

struct cancel_after {
    np_engine *engine;
    size_t calls;
};

static void cancel_half_way(void *user, size_t done, size_t total)
{
    struct cancel_after *cancel = user;
    assert_true(done <= total);
    if (done > total / 2 && cancel->calls++ == 0) np_engine_cancel(cancel->engine);
}

/* What was done before the cancel stays; the rest says so; the engine goes on. */
static void cancel_keeps_what_is_done(void **state)
{
    np_model *model = open_model(TINY("llama-mixed.gguf"));
    np_engine *engine = open_engine(model, 2, 1); /* so that half of it takes long enough */
    struct batch *batch = make_batch(model);
    struct cancel_after cancel = {engine, 0};
    np_error err;
    size_t n_done = 0;
    assert_int_equal(
        np_run(engine, batch->requests, N_REQUESTS, batch->results, cancel_half_way, &cancel, &err),
        NP_ECANCELLED);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        if (batch->results[i].error.status == NP_OK)
            n_done++;
        else
            assert_int_equal(batch->results[i].error.status, NP_ECANCELLED);
    }
    assert_true(n_done > 0 && n_done < N_REQUESTS);
    free_batch(batch);
    run_batch(engine, batch);
    for (size_t i = 0; i < N_REQUESTS; i++) assert_int_equal(batch->results[i].error.status, NP_OK);
    free_batch(batch);
    mem_free(batch);
    np_engine_close(engine);
    np_model_close(model);
}

/* What cannot be is refused before it is read: an array may be shorter than its announced
 * length. */
static void refuses_before_it_reads(void **state)
{
    static const size_t lengths[] = {513, (size_t)1 << 20, SIZE_MAX / 4, SIZE_MAX};
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *engine = open_engine(model, 1, 64);
    int32_t *ids = mem_alloc(1, sizeof *ids);
    np_tokens tokens;
    np_result result;
    np_error err;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_int_equal(np_gather(engine, ids, lengths[i], 0, ids, 1, &result, &err), NP_ELIMIT);
        assert_string_equal(err.where, "token_ids");
        assert_null(result.memory);
    }
    mem_free(ids);
    np_request request = {.text = "a", .n_bytes = 1, .condition = (np_condition)3};
    assert_int_equal(np_run(engine, &request, 1, &result, NULL, NULL, &err), NP_OK);
    assert_int_equal(result.error.status, NP_EINPUT);
    assert_string_equal(result.error.where, "condition");
    assert_int_equal(np_tokenize(model, "a", 1, (np_choice)3, NP_NO, &tokens, &err), NP_EINPUT);
    assert_int_equal(np_tokenize(model, "a", 1, NP_NO, (np_choice)3, &tokens, &err), NP_EINPUT);
    np_engine_close(engine);
    np_model_close(model);
}

/* A pointer that must be given is an error where it is NULL; a failed call of one request keeps its
 * error in the result too. */
static void refuses_missing_pointers(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *engine = open_engine(model, 1, 64), *none;
    const char *bytes;
    char *text;
    size_t n_bytes;
    np_tokens tokens;
    np_result result;
    np_error err;
    assert_int_equal(np_engine_open(model, NULL, NULL, &err), NP_EINPUT);
    assert_string_equal(err.where, "out");
    assert_int_equal(np_engine_open(NULL, NULL, &none, NULL), NP_EINPUT);
    assert_int_equal(np_tokenize(model, "a", 1, NP_NO, NP_NO, NULL, &err), NP_EINPUT);
    assert_int_equal(np_tokenize(model, NULL, 1, NP_NO, NP_NO, &tokens, &err), NP_EINPUT);
    assert_int_equal(np_token_bytes(model, 0, NULL, &n_bytes, &err), NP_EINPUT);
    assert_int_equal(np_token_bytes(model, 0, &bytes, NULL, &err), NP_EINPUT);
    assert_int_equal(np_detokenize(model, NULL, 0, NULL, &n_bytes, &err), NP_EINPUT);
    assert_int_equal(np_detokenize(model, NULL, 1, &text, &n_bytes, &err), NP_EINPUT);
    assert_int_equal(np_run(engine, NULL, 1, &result, NULL, NULL, &err), NP_EINPUT);
    assert_int_equal(np_run(engine, NULL, 1, NULL, NULL, NULL, NULL), NP_EINPUT);
    assert_int_equal(np_score(engine, "a", 1, NULL, &err), NP_EINPUT);
    assert_int_equal(np_score(NULL, "a", 1, &result, NULL), NP_EINPUT);
    assert_int_equal(np_score(engine, NULL, 0, &result, &err), NP_EINPUT);
    assert_string_equal(err.where, "prompt");
    assert_memory_equal(&result.error, &err, sizeof err);
    assert_null(result.memory);
    np_engine_close(engine);
    np_model_close(model);
}

/* A cancel with no call running ends the next one, and only that. */
static void cancel_before_a_call(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *engine = open_engine(model, 2, 64);
    np_result result;
    np_error err;
    np_engine_cancel(engine);
    assert_int_equal(np_score(engine, "a text", 6, &result, &err), NP_ECANCELLED);
    assert_int_equal(np_score(engine, "a text", 6, &result, &err), NP_OK);
    np_result_free(&result);
    np_engine_close(engine);
    np_model_close(model);
}

/* C104, memory: refused up front with the sum; with just enough, everything runs, to equal
 * bits. */
static void memory_plan(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine_options options = {.n_threads = 1, .max_memory = 1 << 20};
    np_engine *engine;
    np_error err;
    assert_int_equal(np_engine_open(model, &options, &engine, &err), NP_ELIMIT);
    assert_null(engine);
    assert_non_null(strstr(err.message, "1048576 bytes are allowed; needed are"));
    size_t needed = strtoull(strrchr(err.message, '=') + 1, NULL, 10);
    options.max_memory = needed;
    assert_int_equal(np_engine_open(model, &options, &engine, &err), NP_OK);
    struct batch *tight = make_batch(model);
    struct batch *wide = make_batch(model);
    run_batch(engine, tight);
    np_engine_close(engine);
    engine = open_engine(model, 1, 0);
    run_batch(engine, wide);
    for (size_t i = 0; i < N_REQUESTS; i++) same_bits(&tight->results[i], &wide->results[i]);
    options = (np_engine_options){.n_context = 1u << 30};
    np_engine *none;
    assert_int_equal(np_engine_open(model, &options, &none, &err), NP_EINPUT);
    free_batch(tight);
    free_batch(wide);
    mem_free(tight);
    mem_free(wide);
    np_engine_close(engine);
    np_model_close(model);
}

/* Steps of a warm engine allocate nothing: two runs of different length need the same number of
 * calls. */
static void steps_allocate_nothing(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *engine =
        open_engine_how(model, (np_engine_options){.n_threads = 2, .chunk_rows = 8, .no_cache = 1});
    int32_t ids[MAX_TOKENS];
    uint64_t calls[2];
    fill_ids(ids, MAX_TOKENS, np_model_info(model).n_vocab, 3);
    for (size_t warm = 0; warm < 2; warm++)
        for (size_t i = 0; i < 2; i++) {
            np_request request = {
                .token_ids = ids, .n_tokens = i ? 128 : 72, .want = NP_WANT_LOGPROB};
            np_result result;
            np_error err;
            uint64_t before = alloc_count();
            assert_int_equal(np_run(engine, &request, 1, &result, NULL, NULL, &err), NP_OK);
            calls[i] = alloc_count() - before;
            np_result_free(&result);
        }
    assert_int_equal(calls[0], calls[1]); /* 9 steps and 16 steps */
    np_engine_close(engine);
    np_model_close(model);
}

/* Every allocation of an engine's opening and of a run fails once: an error, and the next answer is
 * right. */
static void failing_allocations(void **state)
{
    np_model *model = open_model(TINY("qwen2-tied-f32"));
    struct batch *batch = make_batch(model);
    np_error err;
    np_engine *engine = NULL;
    for (uint64_t n = 1; !engine && n < 10000; n++) {
        np_engine_options options = {.n_threads = 2, .oversubscribe = 1, .chunk_rows = 32};
        alloc_fail_after(n);
        np_status status = np_engine_open(model, &options, &engine, &err);
        alloc_fail_after(0);
        assert_true(status == NP_OK || status == NP_ENOMEM);
    }
    assert_non_null(engine);
    np_result right[N_REQUESTS];
    run_batch(engine, batch);
    memcpy(right, batch->results, sizeof right);
    bool clean = false;
    for (uint64_t n = 1; !clean && n < 10000; n++) {
        np_engine_close(engine);
        engine = open_engine(model, 2, 32); /* a cold engine: pages are taken in the run */
        alloc_fail_after(n);
        np_status status =
            np_run(engine, batch->requests, N_REQUESTS, batch->results, NULL, NULL, &err);
        alloc_fail_after(0);
        clean = status == NP_OK;
        for (size_t i = 0; i < N_REQUESTS; i++) {
            clean = clean && batch->results[i].error.status == NP_OK;
            if (batch->results[i].error.status == NP_OK)
                same_bits(&right[i], &batch->results[i]);
            else
                assert_int_equal(batch->results[i].error.status, NP_ENOMEM);
        }
        free_batch(batch);
        run_batch(engine, batch);
        for (size_t i = 0; i < N_REQUESTS; i++) same_bits(&right[i], &batch->results[i]);
        free_batch(batch);
    }
    assert_true(clean);
    memcpy(batch->results, right, sizeof right);
    free_batch(batch);
    mem_free(batch);
    np_engine_close(engine);
    np_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C041_same_bits_in_any_company),
        cmocka_unit_test(C016_order_never_changes_a_value),
        cmocka_unit_test(C002_every_start),
        cmocka_unit_test(bad_requests_harm_nobody),
        cmocka_unit_test(cancel_keeps_what_is_done),
        cmocka_unit_test(cancel_before_a_call),
        cmocka_unit_test(refuses_before_it_reads),
        cmocka_unit_test(refuses_missing_pointers),
        cmocka_unit_test(memory_plan),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
