/*
 * test_cachefile.c - the prefix cache on disk: what was saved answers without the model, to the
 * same bits; whatever is wrong with a file is an error that leaves the engine as it was.
 */
#include "tinymodel.h"

#include "engine/engine.h"

#include <sys/stat.h>

#define P 150
#define N_TEXTS 6

struct world {
    np_model *model;
    np_engine *engine;
    int32_t ids[N_TEXTS][P];
    char path[64];
};

static np_request request_of(const struct world *w, size_t i)
{
    return (np_request){.token_ids = w->ids[i],
                        .n_tokens = P - i,
                        .next = 1,
                        .want = NP_WANT_LOGPROB | NP_WANT_ENTROPY,
                        .candidate_ids = w->ids[0],
                        .n_candidates = 3,
                        .cache_salt = i % 3 == 2 ? "salt" : NULL};
}

static np_result run(np_engine *engine, np_request request)
{
    np_result result;
    np_error err;
    assert_int_equal(np_run(engine, &request, 1, &result, NULL, NULL, &err), NP_OK);
    assert_int_equal(result.error.status, NP_OK);
    return result;
}

/* A file of six texts, of which some share their beginnings. */
static struct world open_world(void)
{
    struct world w = {.path = "/tmp/nepit-cache-XXXXXX"};
    np_error err;
    w.model = open_model(TINY("qwen2-tied-f32"));
    w.engine = open_engine(w.model, 2, 64);
    for (size_t i = 0; i < N_TEXTS; i++) {
        fill_ids(w.ids[i], P, np_model_info(w.model).n_vocab, 1);
        fill_ids(w.ids[i] + 30 * i, P - 30 * i, np_model_info(w.model).n_vocab, (uint32_t)i);
        np_result result = run(w.engine, request_of(&w, i));
        np_result_free(&result);
    }
    int fd = mkstemp(w.path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(np_engine_save_cache(w.engine, w.path, &err), NP_OK);
    return w;
}

static void close_world(struct world *w)
{
    np_engine_close(w->engine);
    np_model_close(w->model);
    unlink(w->path);
}

static void restored_answers_are_the_same(void **state)
{
    struct world w = open_world();
    np_error err;
    np_engine *other = open_engine(w.model, 1, 512);
    assert_int_equal(np_engine_load_cache(other, w.path, &err), NP_OK);
    assert_int_equal(np_engine_load_cache(other, w.path, &err), NP_OK); /* nothing twice */
    np_stats stats = np_engine_stats(other);
    for (size_t i = 0; i < N_TEXTS; i++) {
        np_request alone = request_of(&w, i);
        alone.skip_reading_prefix_cache = 1;
        np_result right = run(w.engine, alone), got = run(other, request_of(&w, i));
        assert_int_equal(got.n_computed, 0);
        assert_memory_equal(got.logprobs, right.logprobs, right.n_scored * sizeof(float));
        assert_memory_equal(got.entropies, right.entropies, right.n_rows * sizeof(float));
        assert_memory_equal(got.scores, right.scores, right.n_rows * 3 * sizeof(float));
        np_result_free(&right);
        np_result_free(&got);
    }
    assert_int_equal(np_engine_stats(other).n_pages, stats.n_pages);
    np_engine_close(other);
    close_world(&w);
}

/* A cache of two pages takes what it can hold. */
static void a_small_cache_takes_a_part(void **state)
{
    struct world w = open_world();
    np_error err;
    size_t page = np_engine_stats(w.engine).page_bytes;
    np_engine *small =
        open_engine_how(w.model, (np_engine_options){.n_threads = 1, .cache_memory = 2 * page});
    assert_int_equal(np_engine_load_cache(small, w.path, &err), NP_OK);
    for (size_t i = 0; i < N_TEXTS; i++) {
        np_result got = run(small, request_of(&w, i)), right = run(w.engine, request_of(&w, i));
        assert_memory_equal(got.logprobs, right.logprobs, right.n_scored * sizeof(float));
        np_result_free(&right);
        np_result_free(&got);
    }
    assert_true(np_engine_stats(small).n_cached_pages <= 2);
    np_engine_close(small);
    close_world(&w);
}

/* A file of longer texts than the context: what fits is taken, and can be saved again. */
static void a_shorter_context_takes_a_part(void **state)
{
    enum { LONG = 500 };
    struct world w = open_world();
    int32_t ids[LONG];
    np_error err;
    np_engine *other =
        open_engine_how(w.model, (np_engine_options){.n_threads = 1, .n_context = 64});
    fill_ids(ids, LONG, np_model_info(w.model).n_vocab, 1);
    np_request request = {.token_ids = ids, .n_tokens = LONG, .want = NP_WANT_LOGPROB};
    np_result whole = run(w.engine, request);
    assert_int_equal(np_engine_save_cache(w.engine, w.path, &err), NP_OK);
    assert_int_equal(np_engine_load_cache(other, w.path, &err), NP_OK);
    assert_true(np_engine_stats(other).n_pages <= N_TEXTS + 1);
    assert_int_equal(np_engine_save_cache(other, w.path, &err), NP_OK);
    request.n_tokens = 64;
    np_result part = run(other, request);
    assert_int_equal(part.n_computed, 0);
    assert_memory_equal(part.logprobs, whole.logprobs, 63 * sizeof(float));
    np_result_free(&part);
    np_result_free(&whole);
    np_engine_close(other);
    close_world(&w);
}

static void load_must_fail(const struct world *w, const char *path, np_status status)
{
    np_error err;
    np_engine *other = open_engine(w->model, 1, 512);
    assert_int_equal(np_engine_load_cache(other, path, &err), status);
    np_result got = run(other, request_of(w, 1)), right = run(w->engine, request_of(w, 1));
    assert_memory_equal(got.logprobs, right.logprobs, right.n_scored * sizeof(float));
    np_result_free(&right);
    np_result_free(&got);
    np_engine_close(other);
}

static void overwrite(const char *path, const char *bytes, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

/* Every kind of damage: cut anywhere, a bit turned anywhere, another model's, not there, no file.
 * */
static void damage_is_an_error(void **state)
{
    struct world w = open_world();
    char *bytes;
    size_t n_bytes;
    np_error err;
    assert_int_equal(file_read_all(w.path, (size_t)1 << 26, &bytes, &n_bytes, &err), NP_OK);
    for (size_t i = 0; i < 40; i++) {
        size_t cut = n_bytes * i / 40;
        overwrite(w.path, bytes, cut);
        np_engine *other = open_engine(w.model, 1, 512);
        np_status status = np_engine_load_cache(other, w.path, &err);
        assert_true(status == NP_EFORMAT || status == NP_EIO);
        np_engine_close(other);
    }
    for (size_t i = 0; i < 60; i++) {
        size_t at = (i < 30 ? i * 3 : n_bytes * i / 61) % n_bytes;
        bytes[at] = (char)(bytes[at] ^ (1 << i % 8));
        overwrite(w.path, bytes, n_bytes);
        bytes[at] = (char)(bytes[at] ^ (1 << i % 8));
        load_must_fail(&w, w.path, NP_EFORMAT);
    }
    overwrite(w.path, bytes, n_bytes);
    np_model *other_model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *other = open_engine(other_model, 1, 64);
    assert_int_equal(np_engine_load_cache(other, w.path, &err), NP_EFORMAT);
    assert_non_null(strstr(err.message, "another model"));
    np_engine_close(other);
    np_model_close(other_model);
    load_must_fail(&w, "/tmp/nepit-no-such-file", NP_EIO);
    load_must_fail(&w, "/tmp", NP_EIO);
    assert_int_equal(np_engine_save_cache(w.engine, "/tmp/no/such/folder/cache", &err), NP_EIO);
    mem_free(bytes);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restored_answers_are_the_same),
        cmocka_unit_test(a_small_cache_takes_a_part),
        cmocka_unit_test(a_shorter_context_takes_a_part),
        cmocka_unit_test(damage_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
