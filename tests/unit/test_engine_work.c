/*
 * test_engine_work.c - what a request costs, counted: rows through the model and rows through the
 * head. The linker puts the counters in front of the two functions (--wrap).
 */
#include "tinymodel.h"

#include "engine/engine.h"
#include "score/head.h"

static size_t n_model_rows, n_head_rows;

np_status __real_model_forward(const struct model *model, struct workspace *space,
                               struct pool *pool, const struct step *step, atomic_int *cancel,
                               np_error *err);
np_status __wrap_model_forward(const struct model *model, struct workspace *space,
                               struct pool *pool, const struct step *step, atomic_int *cancel,
                               np_error *err);
np_status __wrap_model_forward(const struct model *model, struct workspace *space,
                               struct pool *pool, const struct step *step, atomic_int *cancel,
                               np_error *err)
{
    n_model_rows += step->n_rows;
    return __real_model_forward(model, space, pool, step, cancel, err);
}

void __real_head_answer(struct pool *pool, const struct kernels *kernels, const struct matrix *head,
                        struct head_space *space, const struct head_row *rows, size_t n_rows,
                        int32_t *bad);
void __wrap_head_answer(struct pool *pool, const struct kernels *kernels, const struct matrix *head,
                        struct head_space *space, const struct head_row *rows, size_t n_rows,
                        int32_t *bad);
void __wrap_head_answer(struct pool *pool, const struct kernels *kernels, const struct matrix *head,
                        struct head_space *space, const struct head_row *rows, size_t n_rows,
                        int32_t *bad)
{
    n_head_rows += n_rows;
    __real_head_answer(pool, kernels, head, space, rows, n_rows, bad);
}

#define P 200

struct bench {
    np_model *model;
    np_engine *engine;
    int32_t ids[P];
};

static struct bench open_bench(void)
{
    struct bench bench;
    bench.model = open_model(TINY("llama-tied-f32.gguf"));
    bench.engine = open_engine_how(
        bench.model, (np_engine_options){.n_threads = 2, .chunk_rows = 64, .no_cache = 1});
    fill_ids(bench.ids, P, np_model_info(bench.model).n_vocab, 1);
    return bench;
}

static void close_bench(struct bench *bench)
{
    np_engine_close(bench->engine);
    np_model_close(bench->model);
}

static void costs(struct bench *bench, np_request request, size_t model_rows, size_t head_rows)
{
    np_result result;
    np_error err;
    request.token_ids = bench->ids;
    if (request.n_tokens == 0) request.n_tokens = P;
    n_model_rows = n_head_rows = 0;
    assert_int_equal(np_run(bench->engine, &request, 1, &result, NULL, NULL, &err), NP_OK);
    assert_int_equal(result.error.status, NP_OK);
    assert_int_equal(n_model_rows, model_rows);
    assert_int_equal(n_head_rows, head_rows);
    assert_int_equal(result.n_computed, model_rows);
    np_result_free(&result);
}

/* C007, C102, C116: scoring every given token is one pass over them, the last needs none; nothing
 * is generated. */
static void C007_scoring_costs_one_pass_C102_C116(void **state)
{
    struct bench bench = open_bench();
    costs(&bench, (np_request){.want = NP_WANT_LOGPROB}, P - 1, P - 1);
    costs(&bench, (np_request){.want = NP_WANT_LOGPROB | NP_WANT_RANK, .top = 5}, P - 1, P - 1);
    costs(&bench, (np_request){.want = NP_WANT_LOGPROB, .next = 1}, P, P);
    costs(&bench, (np_request){.n_tokens = 1, .want = NP_WANT_LOGPROB}, 0, 0);
    close_bench(&bench);
}

/* C117, C119: only the rows that are wanted go through the head, wherever steps of 64 are cut. */
static void C117_only_wanted_rows_meet_the_head_C119(void **state)
{
    static const size_t starts[] = {0, 1, 63, 64, 65, 128, P - 8, P - 2};
    struct bench bench = open_bench();
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        size_t rows = P - 1 - starts[i];
        costs(&bench, (np_request){.start = starts[i], .want = NP_WANT_LOGPROB}, P - 1, rows);
        costs(&bench,
              (np_request){.start = starts[i], .candidate_ids = bench.ids, .n_candidates = 100},
              P - 1, rows);
    }
    costs(&bench, (np_request){.start = SIZE_MAX, .next = 1, .top = 3}, P, 1);
    costs(&bench, (np_request){.start = P, .candidate_ids = bench.ids, .n_candidates = 1}, 0, 0);
    close_bench(&bench);
}

/* C099: 512 tokens are two steps of 256 by their number; but the second half attends to so much
 * that it makes two, so that nobody who comes then waits for long. */
static void C099_steps_far_on_in_a_text_are_short(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *engine = open_engine(model, 1, 256);
    int32_t ids[512];
    fill_ids(ids, 512, np_model_info(model).n_vocab, 1);
    np_request request = {.token_ids = ids, .n_tokens = 512, .start = 510, .want = NP_WANT_LOGPROB};
    np_result result;
    np_error err;
    assert_int_equal(np_run(engine, &request, 1, &result, NULL, NULL, &err), NP_OK);
    assert_int_equal(np_engine_stats(engine).n_steps, 3);
    np_result_free(&result);
    np_engine_close(engine);
    np_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C007_scoring_costs_one_pass_C102_C116),
        cmocka_unit_test(C117_only_wanted_rows_meet_the_head_C119),
        cmocka_unit_test(C099_steps_far_on_in_a_text_are_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
