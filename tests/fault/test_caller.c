/*
 * test_caller.c - the caller's floating-point mode and affinity: nothing of the library heeds the
 * mode, every function leaves it as it was, and more threads than cores change no bit.
 */
#include "../unit/tinymodel.h"

#include "base/pool.h"

#include <sched.h>

#define N_IDS 100

static const char text[] = "The height of the tower, 3.14159 don't";

#if defined(__x86_64__)
/* FTZ, DAZ and rounding to zero, up, down; then the inexact exception unmasked, which would end the
 * process at the first rounding. */
static const uint64_t modes[] = {0xff80 | 0x40, 0xdf80 | 0x40, 0xbf80 | 0x40, 0x0f80};
#define FLAGS 0x3fu /* of what happened, which the library may set */
#else
static const uint64_t modes[] = {0x1c00000, 0x1400000, 0x1800000};
#define FLAGS 0u
#endif
#define N_MODES (sizeof modes / sizeof *modes)

static uint64_t mode_now(void)
{
    struct fpenv now = fpenv_enter();
    fpenv_leave(now);
    return now.control;
}

static uint64_t mode_wanted;

/* The library's calls are made in the mode and the checks outside of it. */
static void enter(void)
{
    fpenv_leave((struct fpenv){mode_wanted});
}

static void left_alone(const char *what)
{
    uint64_t found = mode_now();
    (void)fpenv_enter();
    if ((found ^ mode_wanted) & ~(uint64_t)FLAGS)
        fail_msg("%s left mode %#llx, it was %#llx", what, (unsigned long long)found,
                 (unsigned long long)mode_wanted);
}

#define CALL(call)         \
    do {                   \
        enter();           \
        call;              \
        left_alone(#call); \
    } while (0)

struct answers {
    float logprobs[N_IDS], scores[N_IDS * 3], entropies[N_IDS];
    float text_logprobs[N_IDS], next[5];
    size_t n_text;
};

static np_request request_of(const int32_t *ids, size_t n_ids, const int32_t *candidates)
{
    static const float temperature = 0.7f;
    return (np_request){.token_ids = ids,
                        .n_tokens = n_ids,
                        .want = NP_WANT_LOGPROB | NP_WANT_RANK | NP_WANT_ENTROPY | NP_WANT_TAIL |
                                NP_WANT_MASS,
                        .top = 5,
                        .candidate_ids = candidates,
                        .n_candidates = 3,
                        .score_temperature = &temperature};
}

static void ask_ids(np_engine *engine, np_info info, struct answers *out)
{
    static const int32_t candidates[] = {1, 7, 200};
    int32_t ids[N_IDS];
    size_t n_ids = info.n_context < N_IDS ? (size_t)info.n_context : N_IDS;
    np_result result;
    np_error err;
    np_status status;
    fill_ids(ids, n_ids, info.n_vocab, 3);
    np_request request = request_of(ids, n_ids, candidates);
    CALL(status = np_run(engine, &request, 1, &result, NULL, NULL, &err));
    assert_int_equal(status, NP_OK);
    assert_int_equal(result.error.status, NP_OK);
    memcpy(out->logprobs, result.logprobs, result.n_scored * sizeof(float));
    memcpy(out->entropies, result.entropies, result.n_rows * sizeof(float));
    CALL(np_result_free(&result));
    CALL(status = np_gather(engine, ids, n_ids, 0, candidates, 3, &result, &err));
    assert_int_equal(status, NP_OK);
    memcpy(out->scores, result.scores, result.n_rows * 3 * sizeof(float));
    CALL(np_result_free(&result));
    request.n_tokens = 0; /* a request that fails */
    CALL(status = np_run(engine, &request, 1, &result, NULL, NULL, &err));
    assert_int_not_equal(result.error.status, NP_OK);
    CALL(np_result_free(&result));
}

static void ask_text(np_model *model, np_engine *engine, struct answers *out)
{
    np_tokens tokens;
    np_result result;
    np_error err;
    np_status status;
    const char *bytes;
    char *whole;
    size_t n_bytes;
    CALL(status = np_tokenize(model, text, sizeof text - 1, NP_DEFAULT, NP_DEFAULT, &tokens, &err));
    assert_int_equal(status, NP_OK);
    CALL(status = np_token_bytes(model, tokens.token_ids[0], &bytes, &n_bytes, &err));
    assert_int_equal(status, NP_OK);
    CALL(status = np_detokenize(model, tokens.token_ids, tokens.n_tokens, &whole, &n_bytes, &err));
    assert_int_equal(status, NP_OK);
    assert_int_equal(n_bytes, sizeof text - 1);
    CALL(np_free(whole));
    CALL(np_tokens_free(&tokens));
    CALL(status = np_score(engine, text, sizeof text - 1, &result, &err));
    assert_int_equal(status, NP_OK);
    out->n_text = result.n_scored;
    memcpy(out->text_logprobs, result.logprobs, result.n_scored * sizeof(float));
    CALL(np_result_free(&result));
    CALL(status = np_next(engine, text, sizeof text - 1, 5, &result, &err));
    assert_int_equal(status, NP_OK);
    memcpy(out->next, result.top_logprobs, 5 * sizeof(float));
    CALL(np_result_free(&result));
}

static void ask_everything(const char *path, int n_threads, struct answers *out)
{
    np_model_options how = {.n_threads = 2};
    np_engine_options options = {.n_threads = n_threads, .oversubscribe = 1, .chunk_rows = 16};
    np_model *model;
    np_engine *engine;
    np_error err;
    np_status status;
    np_info info;
    memset(out, 0, sizeof *out);
    CALL(status = np_model_open("/nonexistent/model.gguf", &how, &model, &err));
    assert_int_equal(status, NP_EIO);
    CALL(status = np_model_open(path, &how, &model, &err));
    assert_int_equal(status, NP_OK);
    CALL(info = np_model_info(model));
    CALL(status = np_engine_open(model, &options, &engine, &err));
    assert_int_equal(status, NP_OK);
    ask_ids(engine, info, out);
    ask_text(model, engine, out);
    CALL(np_engine_close(engine));
    CALL(np_model_close(model));
}

static const char *const paths[] = {TINY("llama-mixed.gguf"), TINY("qwen2-tied-f32"),
                                    TINY("gpt2-plain.gguf")};

static void the_callers_mode_is_neither_heeded_nor_changed(void **state)
{
    static struct answers usual, hostile;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        mode_wanted = mode_now();
        ask_everything(paths[i], 3, &usual);
        for (size_t m = 0; m < N_MODES; m++) {
            mode_wanted = modes[m];
            ask_everything(paths[i], 3, &hostile);
            assert_memory_equal(&usual, &hostile, sizeof usual);
        }
    }
    (void)fpenv_enter();
}

/* On one core of those there are, with more threads than cores, and with all. */
static void the_affinity_stays_and_oversubscription_changes_nothing(void **state)
{
    static struct answers usual, now;
    cpu_set_t all, one, after;
    int first = 0;
    mode_wanted = mode_now();
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ask_everything(paths[0], 1, &usual);
    for (int narrow = 0; narrow < 2; narrow++) {
        const cpu_set_t *set = narrow ? &one : &all;
        assert_int_equal(sched_setaffinity(0, sizeof *set, set), 0);
        for (int n_threads = 1; n_threads <= 16; n_threads = n_threads * 2 + 1) {
            ask_everything(paths[0], n_threads, &now);
            assert_memory_equal(&usual, &now, sizeof usual);
            assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
            assert_true(CPU_EQUAL(&after, set));
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_callers_mode_is_neither_heeded_nor_changed),
        cmocka_unit_test(the_affinity_stays_and_oversubscription_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
