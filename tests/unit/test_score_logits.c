/* test_score_logits.c - log-sum-exps handed out, and rows whose logits lie in memory: the bits of a
 * sweep. */
#include "test_score_dense.h"

/* ---- log-sum-exps handed out ---- */

static void learned_in_every_way(void **state)
{
    struct world w;
    dense_init(&w, &heads[0], 9000, 70, true);
    world_plan(&w, &(np_request){.top = 3});
    struct row_lse *right = learn(&w, plain_at(cpu_detect()), ALL);
    float *answers = answer(&w, plain_at(cpu_detect()));
    for (size_t r = 0; r < w.R; r++) {
        float entropy = (float)right[r].entropy;
        assert_memory_equal(world_row(&w, r, answers).entropy, &entropy, sizeof entropy);
    }
    for (int n_threads = 1; n_threads <= 3; n_threads++)
        for (int with_entropy = 0; with_entropy < 2; with_entropy++) {
            struct way way = {n_threads, cpu_detect(), with_entropy ? 9 : 70, 70, 3, false};
            struct row_lse *lse = learn(&w, way, with_entropy ? ENTROPY : 0);
            struct row_lse untouched;
            memset(&untouched, CANARY, sizeof untouched);
            for (size_t r = 0; r < w.R; r++) {
                struct row_lse expected = right[r];
                if (!with_entropy) expected.entropy = untouched.entropy;
                assert_memory_equal(&lse[r], &expected, sizeof expected);
            }
            free(lse);
        }
    free(answers);
    free(right);
    world_free(&w);
}

/* ---- logits in memory ---- */

/* The logits of all rows, [R][V + 5], and the answers from them in each way. */
static void answers_from_logits(const struct world *w, struct way way, const float *right,
                                const struct row_lse *lse, float *logits)
{
    size_t ld = w->V + 5;
    struct pool *pool;
    struct head_space *space;
    struct call call;
    call_init(&call, w);
    for (size_t r = 0; r < w->R; r++) {
        call_row(&call, w, r, r, r % 5 ? ALL : (unsigned)below(128) | ENTROPY, right);
        call.rows[r].lse = &call.lse[r];
    }
    assert_int_equal(pool_open(&pool, way.n_threads, NULL), NP_OK);
    assert_int_equal(
        head_space_open(w->V, w->dim, way.max_rows, way.max_top, way.n_threads, &space, NULL),
        NP_OK);
    uint64_t n_allocations = alloc_count();
    const struct kernels *kernels = kernels_get(way.level);
    head_logits(pool, kernels, &w->head, space, call.rows, w->R, logits, ld);
    for (size_t r = 0; r < w->R; r++) call.rows[r].hidden = NULL;
    head_answer_logits(pool, kernels, space, call.rows, w->R, logits, ld, call.bad);
    head_answer_logits(pool, kernels, space, call.rows, 0, logits, ld, call.bad);
    assert_int_equal(alloc_count(), n_allocations);
    call_check(&call, w, "from logits");
    assert_memory_equal(call.lse, lse, w->R * sizeof *lse);
    call_free(&call);
    head_space_close(space);
    pool_close(pool);
}

/* They are a linear layer like any other. */
static void logits_are_linear(const struct world *w, const float *logits)
{
    size_t N = w->head.N;
    float *operand = calloc(w->R * w->dim, sizeof *operand), *y = calloc(w->R * N, sizeof *y);
    struct pool *pool;
    assert_true(operand && y);
    assert_int_equal(pool_open(&pool, 1, NULL), NP_OK);
    linear(pool, kernels_get(cpu_detect()), &w->head, 1, w->R, w->hidden, w->dim, operand, y, N);
    for (size_t r = 0; r < w->R; r++)
        assert_memory_equal(logits + r * (w->V + 5), y + r * N, w->V * sizeof *y);
    pool_close(pool);
    free(y);
    free(operand);
}

/* The cells of a raw row, bias added and no temperature, are what head_logits gives. */
static void raw_rows(struct world *w, const float *logits)
{
    int32_t *all = calloc(w->V, sizeof *all);
    assert_non_null(all);
    for (size_t v = 0; v < w->V; v++) all[v] = (int32_t)v;
    np_request request = {
        .candidate_ids = all, .n_candidates = w->V, .logprobs_mode = NP_RAW_LOGITS};
    world_plan(w, &request);
    float *right = answer(w, plain_at(cpu_detect())), canary;
    memset(&canary, CANARY, sizeof canary);
    for (size_t r = 0; r < w->R; r++) {
        assert_memory_equal(logits + r * (w->V + 5), world_row(w, r, right).scores,
                            w->V * sizeof canary);
        for (size_t i = 0; i < 5; i++)
            assert_memory_equal(logits + r * (w->V + 5) + w->V + i, &canary, sizeof canary);
    }
    free(right);
    free(all);
}

static void logits_in_memory(void **state)
{
    static const float temperature = 0.7f;
    for (size_t h = 0; h < N_HEADS; h++) {
        struct world w;
        size_t V = h % 6 ? 333 : 4200, R = h % 12 ? 17 : 140;
        dense_init(&w, &heads[h], V, R, h % 3 == 1);
        np_request request = {.candidate_ids = random_candidates(&w, h % 2),
                              .n_candidates = PER_ROW,
                              .n_candidate_rows = h % 2 ? w.R : 0,
                              .top = V > 1000 ? 9 : -1,
                              .score_temperature = h % 2 ? NULL : &temperature};
        world_plan(&w, &request);
        struct way fast = plain_at(cpu_detect());
        float *right = answer(&w, fast), *logits = calloc(R * (V + 5), sizeof *logits);
        struct row_lse *lse = learn(&w, fast, ALL);
        assert_non_null(logits);
        for (int n_threads = 1; n_threads <= 3; n_threads++)
            for (int level = V > 1000 ? (int)cpu_detect() : 0; level <= (int)cpu_detect();
                 level++) {
                struct way way = {n_threads, (enum cpu_level)level, 1, level ? 6 : 1000, 2, false};
                memset(logits, CANARY, R * (V + 5) * sizeof *logits);
                answers_from_logits(&w, way, right, lse, logits);
            }
        logits_are_linear(&w, logits);
        raw_rows(&w, logits);
        free(lse);
        free(logits);
        free(right);
        world_free(&w);
    }
}

static void logits_in_memory_that_are_not_finite(void **state)
{
    struct world w;
    world_init(&w, 5000, 3, SPREAD);
    world_plan(&w, &(np_request){.top = 2});
    struct pool *pool;
    struct head_space *space;
    struct head_row rows[3];
    int32_t bad[3], expected[3] = {4999, -1, 70};
    float *out = calloc(w.R * w.row_floats, sizeof *out);
    assert_non_null(out);
    for (size_t r = 0; r < 3; r++) rows[r] = world_row(&w, r, out);
    w.logits[4999] = INFINITY;
    w.logits[10000 + 70] = NAN;
    w.logits[10000 + 4500] = -INFINITY;
    assert_int_equal(pool_open(&pool, 2, NULL), NP_OK);
    assert_int_equal(head_space_open(w.V, w.dim, 3, 2, 2, &space, NULL), NP_OK);
    head_answer_logits(pool, kernels_get(cpu_detect()), space, rows, 3, w.logits, w.V, bad);
    assert_memory_equal(bad, expected, sizeof bad);
    head_space_close(space);
    pool_close(pool);
    free(out);
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learned_in_every_way),
        cmocka_unit_test(logits_in_memory),
        cmocka_unit_test(logits_in_memory_that_are_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
