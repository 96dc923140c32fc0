/* test_score_known.c - rows whose log-sum-exp is known: the bits of a sweep, without one. */
#include "test_score_dense.h"

#include <stdatomic.h>

/* All rows known, and nothing wanted that needs a sweep; at every level from `lowest` on. */
static void known_in_every_way(const struct world *w, enum cpu_level lowest, const char *what)
{
    static const size_t groups[] = {10000, 7, 1};
    float *right = answer(w, plain_at(lowest));
    struct row_lse *lse = learn(w, plain_at(lowest), ENTROPY);
    for (int n_threads = 1; n_threads <= 3; n_threads++)
        for (int level = (int)lowest; level <= (int)cpu_detect(); level++) {
            size_t g = (size_t)(n_threads + level) % 3;
            struct way way = {.n_threads = n_threads,
                              .level = (enum cpu_level)level,
                              .group = groups[g],
                              .max_rows = g == 1 ? 4 : 10000,
                              .max_top = 1};
            struct call call;
            call_init(&call, w);
            memcpy(call.lse, lse, w->R * sizeof *lse);
            for (size_t i = 0; i < w->R; i++) {
                call_row(&call, w, i, level % 2 ? i : w->R - 1 - i, PICKED, right);
                call.rows[i].lse = &call.lse[call.rows[i].j];
                call.rows[i].known = call.rows[i].known_entropy = true;
            }
            ask(w, way, kernels_get(way.level), call.rows, call.bad);
            call_check(&call, w, what);
            assert_memory_equal(call.lse, lse, w->R * sizeof *lse);
            call_free(&call);
        }
    free(lse);
    free(right);
}

static void known_rows_have_the_bits_of_a_sweep(void **state)
{
    static const float temperature = 0.7f;
    for (size_t h = 0; h < N_HEADS; h++)
        for (int variant = 0; variant < 4; variant++) {
            bool per_row = variant % 2;
            struct world w;
            char what[64];
            dense_init(&w, &heads[h], 333, 20, variant >= 2);
            np_request request = {.candidate_ids = random_candidates(&w, per_row),
                                  .n_candidates = PER_ROW,
                                  .n_candidate_rows = per_row ? w.R : 0,
                                  .logprobs_mode = variant == 3 ? NP_RAW_LOGITS : NP_RAW_LOGPROBS,
                                  .score_temperature = variant >= 2 ? &temperature : NULL};
            world_plan(&w, &request);
            snprintf(what, sizeof what, "head %zu, variant %d", h, variant);
            known_in_every_way(&w, CPU_REF, what);
            world_free(&w);
        }
}

/* More rows than a pass and than are gathered for a tile, lists of the whole vocabulary, and none
 * at all. */
static void known_rows_of_every_number(void **state)
{
    static const struct {
        size_t V, R, n_candidates;
        bool per_row;
    } shapes[] = {{40, 1100, 3, true},  {40, 300, 40, false}, {9000, 140, 1, false},
                  {5000, 70, 64, true}, {15, 49, 15, true},   {4097, 129, 200, false},
                  {300, 1200, 0, false}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct world w;
        char what[64];
        dense_init(&w, &heads[i % 2 ? 16 : 1], shapes[i].V, shapes[i].R, false);
        size_t n_lists = shapes[i].per_row ? w.R : 1, n = n_lists * shapes[i].n_candidates;
        int32_t *ids = calloc(n + 1, sizeof *ids);
        assert_non_null(ids);
        for (size_t c = 0; c < n; c++)
            ids[c] = (int32_t)(shapes[i].n_candidates == w.V ? (c * 7) % w.V : below(w.V));
        np_request request = {.candidate_ids = n ? ids : NULL,
                              .n_candidates = shapes[i].n_candidates,
                              .n_candidate_rows = shapes[i].per_row ? w.R : 0};
        world_plan(&w, &request);
        snprintf(what, sizeof what, "shape %zu", i);
        known_in_every_way(&w, cpu_detect(), what);
        world_free(&w);
        free(ids);
    }
}

/* ---- known and unknown rows in one call ---- */

/* Row r of a mix: what it wants, what of it is known, and what is known of it afterwards. */
static void mix_row(struct call *call, const struct world *w, size_t i, size_t r,
                    const float *right, const struct row_lse *lse, struct row_lse *after)
{
    unsigned wants = below(3) ? (unsigned)below(128) & PICKED : (unsigned)below(128);
    call_row(call, w, i, r, wants, right);
    struct head_row *row = &call->rows[i];
    if (below(4) == 0) return;
    row->lse = &call->lse[r];
    row->known = below(2);
    row->known_entropy = below(2);
    if (row->known) {
        double untouched = call->lse[r].entropy;
        call->lse[r] = lse[r];
        if (!row->known_entropy) call->lse[r].entropy = untouched;
    }
    after[r] = lse[r];
    bool has_entropy = row->entropy || (row->known && row->known_entropy);
    if (!has_entropy) after[r].entropy = call->lse[r].entropy;
}

static void mixed_calls(void **state)
{
    static const float temperature = 1.5f;
    for (int round = 0; round < 30; round++) {
        struct world w;
        bool per_row = below(2);
        dense_init(&w, &heads[below(N_HEADS)], below(3) ? 333 : 4200, 1 + below(160), below(2));
        np_request request = {.candidate_ids = random_candidates(&w, per_row),
                              .n_candidates = PER_ROW,
                              .n_candidate_rows = per_row ? w.R : 0,
                              .top = 4,
                              .score_temperature = &temperature};
        world_plan(&w, &request);
        struct way fast = plain_at(cpu_detect());
        float *right = answer(&w, fast);
        struct row_lse *lse = learn(&w, fast, ALL), *after = calloc(w.R, sizeof *after);
        struct way way = {.n_threads = 1 + (int)below(4),
                          .level = (enum cpu_level)below((size_t)cpu_detect() + 1),
                          .group = below(2) ? 1000 : 1 + below(50),
                          .max_rows = below(3) ? 1000 : 1 + below(5),
                          .max_top = below(5)};
        struct call call;
        call_init(&call, &w);
        assert_non_null(after);
        memset(after, CANARY, w.R * sizeof *after);
        size_t step = w.R % 7 ? 7 : 1; /* in a scattered order */
        for (size_t i = 0; i < w.R; i++) mix_row(&call, &w, i, i * step % w.R, right, lse, after);
        ask(&w, way, kernels_get(way.level), call.rows, call.bad);
        call_check(&call, &w, "mix");
        assert_memory_equal(call.lse, after, w.R * sizeof *after);
        call_free(&call);
        free(after);
        free(lse);
        free(right);
        world_free(&w);
    }
}

/* ---- what is not computed ---- */

static atomic_size_t n_parts, n_cells;

static struct lse_part counting_lse_panel(const float *logits, size_t n, bool want_T)
{
    atomic_fetch_add(&n_parts, 1);
    return kernels_get(CPU_REF)->lse_panel(logits, n, want_T);
}

static void counting_gemm(const struct gemm *gemm)
{
    atomic_fetch_add(&n_cells, gemm->n_rows * gemm->n_cols);
    kernels_get(CPU_REF)->gemm[PROFILE_F32](gemm);
}

static void count_cells(const struct world *w, unsigned wants, size_t parts, size_t cells)
{
    struct kernels counting = *kernels_get(CPU_REF);
    counting.lse_panel = counting_lse_panel;
    counting.gemm[PROFILE_F32] = counting_gemm;
    float *right = answer(w, plain);
    struct row_lse *lse = learn(w, plain, 0);
    struct call call;
    call_init(&call, w);
    for (size_t r = 0; r < w->R; r++) {
        call_row(&call, w, r, r, wants, right);
        call.rows[r].lse = &lse[r];
        call.rows[r].known = true;
    }
    n_parts = n_cells = 0;
    ask(w, plain, &counting, call.rows, call.bad);
    call_check(&call, w, "counting");
    assert_int_equal(n_parts, parts);
    assert_int_equal(n_cells, cells);
    call_free(&call);
    free(lse);
    free(right);
}

static void only_wanted_tiles_are_computed(void **state)
{
    static const int32_t flat[] = {330, 17, 0, 31, 17};
    int32_t own[40][2];
    struct world w;
    dense_init(&w, &heads[1], 333, 40, false);
    for (size_t r = 0; r < 40; r++) own[r][0] = own[r][1] = (int32_t)(r % 20 * 16);
    np_request request = {.candidate_ids = flat, .n_candidates = 5, .top = 2};
    world_plan(&w, &request);
    count_cells(&w, 0, 0, 0);
    count_cells(&w, SCORES | TAIL, 0, (size_t)40 * (16 + 16 + 13));
    request.candidate_ids = own[0];
    request.n_candidates = 2;
    request.n_candidate_rows = 40;
    world_plan(&w, &request);
    count_cells(&w, SCORES, 0, (size_t)40 * 16);
    count_cells(&w, SCORES | ENTROPY, (size_t)40 * 6, (size_t)40 * 333); /* not known */
    count_cells(&w, TOP, (size_t)40 * 6, (size_t)40 * 333);
    world_free(&w);
}

/* A log-sum-exp that is not the row's shows in all that is made of it, unless the row is swept. */
static void wrong_log_sum_exp_shows(void **state)
{
    static const int32_t ids[] = {5, 100, 332};
    struct world w;
    dense_init(&w, &heads[1], 333, 12, false);
    np_request request = {.candidate_ids = ids, .n_candidates = 3};
    world_plan(&w, &request);
    float *right = answer(&w, plain);
    for (int swept = 0; swept < 2; swept++) {
        struct row_lse *lse = learn(&w, plain, ENTROPY);
        struct call call;
        call_init(&call, &w);
        for (size_t r = 0; r < w.R; r++) {
            call_row(&call, &w, r, r, swept ? PICKED | RANK : PICKED, right);
            lse[r].m += 1;
            lse[r].entropy = 9;
            call.rows[r].lse = &lse[r];
            call.rows[r].known = call.rows[r].known_entropy = true;
            if (swept) call.rows[r].target = (int32_t)r;
            if (swept) call.rows[r].logprob = NULL;
        }
        memcpy(call.lse, lse, w.R * sizeof *lse);
        ask(&w, plain, kernels_get(CPU_REF), call.rows, call.bad);
        assert_memory_equal(call.lse, lse, w.R * sizeof *lse); /* what is known is not written */
        for (size_t r = 0; r < w.R; r++) {
            const struct head_row *row = &call.rows[r];
            struct head_row is = world_row(&w, r, right);
            float shift = swept ? 0 : 1;
            for (size_t c = 0; c < 3; c++)
                assert_true(fabsf(row->scores[c] + shift - is.scores[c]) < 1e-5f);
            assert_true(swept ? *row->entropy == *is.entropy : *row->entropy == 9);
            assert_true(swept || *row->tail > *is.tail);
            if (row->logprob && row->target >= 0)
                assert_true(fabsf(*row->logprob + 1 - *is.logprob) < 1e-5f);
        }
        call_free(&call);
        free(lse);
    }
    free(right);
    world_free(&w);
}

/* Inputs of 3e38 in all rows but the first: of the picked cells, the lowest id that is not finite
 * is named; what nobody wants is not seen; the first row is as it was. */
static void overflow_in_picks(struct world *w, unsigned wants, const int32_t *targets,
                              const int32_t *bad)
{
    float *right = answer(w, plain);
    struct row_lse *lse = learn(w, plain, 0);
    for (size_t r = 1; r < w->R; r++) w->hidden[r * w->dim + r] = 3e38f;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct way way = {n_threads, cpu_detect(), 5, 5, 1, false};
        struct call call;
        call_init(&call, w);
        for (size_t r = 0; r < w->R; r++) {
            call_row(&call, w, r, r, wants, right);
            call.rows[r].target = targets[r];
            call.rows[r].lse = &lse[r];
            call.rows[r].known = true;
        }
        ask(w, way, kernels_get(way.level), call.rows, call.bad);
        assert_memory_equal(call.bad, bad, w->R * sizeof *bad);
        const float *scores = call.rows[0].scores, *expected = call.expected;
        assert_memory_equal(scores, expected + (scores - call.out), w->K * sizeof *scores);
        call_free(&call);
    }
    for (size_t r = 1; r < w->R; r++) w->hidden[r * w->dim + r] = 1;
    free(lse);
    free(right);
}

static void picked_logit_that_is_not_finite(void **state)
{
    static const int32_t ids[] = {8999, 4503, 78, 4500, 77}, harmless[] = {3, 4499};
    static const int32_t targets[] = {0, 77, 8999, 76, 4501};
    static const int32_t bad[] = {-1, 77, 4500, 76, 4500}, none[] = {-1, -1, -1, -1, -1};
    static const struct {
        size_t row, id;
    } large[] = {{1, 77}, {2, 8999}, {2, 4500}, {2, 4503}, {3, 76}, {3, 77}, {4, 4500}, {4, 4501}};
    struct world w;
    world_init(&w, 9000, 5, SPREAD);
    for (size_t i = 9000; i < (size_t)5 * 9000; i++) w.logits[i] = 0.5f;
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        w.logits[large[i].row * 9000 + large[i].id] = large[i].row == 2 ? -2 : 2;
    world_head(&w, 3);
    world_plan(&w, &(np_request){.candidate_ids = ids, .n_candidates = 5});
    overflow_in_picks(&w, SCORES | LOGPROB, targets, bad);
    world_plan(&w, &(np_request){.candidate_ids = harmless, .n_candidates = 2});
    overflow_in_picks(&w, SCORES, targets, none);
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_rows_have_the_bits_of_a_sweep),
        cmocka_unit_test(known_rows_of_every_number),
        cmocka_unit_test(mixed_calls),
        cmocka_unit_test(only_wanted_tiles_are_computed),
        cmocka_unit_test(wrong_log_sum_exp_shows),
        cmocka_unit_test(picked_logit_that_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
