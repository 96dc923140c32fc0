/* test_score_parts.c - log-sum-exp parts and top lists against plain loops in long double. */
#include "score/head.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define MAX_VOCAB 262144

static uint64_t seed;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 0x1p-53;
}

/* ---- kinds of rows ---- */

static float fill_spread(size_t i, size_t n)
{
    return (float)(20 * uniform() - 10);
}
static float fill_equal(size_t i, size_t n)
{
    return -3.25f;
}
static float fill_one_hot(size_t i, size_t n)
{
    return i == n / 2 ? 1e4f : 0;
}
static float fill_one_cold(size_t i, size_t n)
{
    return i == n / 3 ? -1e4f : 7;
}
static float fill_huge(size_t i, size_t n)
{
    return (float)(2e4 * uniform() - 1e4);
}
static float fill_rising(size_t i, size_t n)
{
    return (float)i * 1e-3f;
}
static float fill_falling(size_t i, size_t n)
{
    return (float)(n - i) * 0.25f - 1e4f;
}
static float fill_few(size_t i, size_t n)
{
    return (float)(int)(4 * uniform());
}
static float fill_extreme(size_t i, size_t n)
{
    return i % 2 ? FLT_MAX : -FLT_MAX;
}

typedef float fill_fn(size_t i, size_t n);
static fill_fn *const fills[] = {fill_spread, fill_equal,   fill_one_hot, fill_one_cold, fill_huge,
                                 fill_rising, fill_falling, fill_few,     fill_extreme};
#define N_FILLS (sizeof fills / sizeof fills[0])
static const size_t sizes[] = {1, 2, 63, 64, 65, 4095, 4096, 4097, 9000, 151936, MAX_VOCAB};
#define N_SIZES (sizeof sizes / sizeof sizes[0])

static void fill(float *logits, size_t n, fill_fn *kind)
{
    seed = n;
    for (size_t i = 0; i < n; i++) logits[i] = kind(i, n);
}

static struct row_lse row_of(const struct kernels *kernels, const float *logits, size_t n)
{
    struct lse_part total = {0}, segment = {0};
    for (size_t i = 0; i < n; i += PANEL) {
        struct lse_part part = kernels->lse_panel(logits + i, n - i < PANEL ? n - i : PANEL, true);
        segment = i % SEGMENT ? lse_combine(segment, part) : part;
        if (i + PANEL >= n || (i + PANEL) % SEGMENT == 0)
            total = i < SEGMENT ? segment : lse_combine(total, segment);
    }
    return lse_finish(total);
}

struct exact {
    long double m, log_S, entropy;
};

static struct exact exact_of(const float *logits, size_t n)
{
    struct exact exact = {.m = logits[0]};
    for (size_t i = 1; i < n; i++)
        if (logits[i] > exact.m) exact.m = logits[i];
    long double S = 0, T = 0;
    for (size_t i = 0; i < n; i++) {
        long double d = logits[i] - exact.m, e = expl(d);
        S += e;
        if (e > 0) T += e * d;
    }
    exact.log_S = logl(S);
    exact.entropy = exact.log_S - T / S;
    return exact;
}

/* log-softmax alone: at most 1e-8 from the exact value, in f64, for every kind of row. */
static void log_softmax_within_1e_8(void **state)
{
    float *logits = calloc(MAX_VOCAB, sizeof *logits);
    assert_non_null(logits);
    double worst = 0;
    for (size_t f = 0; f < N_FILLS; f++)
        for (size_t s = 0; s < N_SIZES; s++) {
            size_t n = sizes[s];
            fill(logits, n, fills[f]);
            struct exact exact = exact_of(logits, n);
            struct row_lse lse = row_of(kernels_get(CPU_REF), logits, n);
            for (size_t i = 0; i < n; i += 1 + n / 100) {
                long double right = ((long double)logits[i] - exact.m) - exact.log_S;
                double error = (double)fabsl((logprob64_of(lse, logits[i]) - right));
                if (right > -1e6L && error > worst) worst = error;
                if (right <= -1e6L) assert_true(error <= -1e-15 * (double)right);
                assert_true(logprob_of(lse, logits[i]) <= 0);
            }
            assert_true(fabsl(lse.entropy - exact.entropy) <= 1e-8L);
            assert_true(lse.entropy >= 0);
        }
    print_message("worst error of a log-probability: %.2g nats\n", worst);
    assert_true(worst <= 1e-8);
    free(logits);
}

static void lse_bits_at_every_level(void **state)
{
    float *logits = calloc(9000, sizeof *logits);
    assert_non_null(logits);
    for (size_t f = 0; f < N_FILLS; f++) {
        fill(logits, 9000, fills[f]);
        struct row_lse first = row_of(kernels_get(CPU_REF), logits, 9000);
        for (int level = 0; level <= (int)cpu_detect(); level++) {
            struct row_lse lse = row_of(kernels_get((enum cpu_level)level), logits, 9000);
            assert_memory_equal(&lse, &first, sizeof lse);
        }
    }
    free(logits);
}

static void edges_of_a_distribution(void **state)
{
    const struct kernels *kernels = kernels_get(CPU_REF);
    float one = -12.5f, equal[64];
    struct row_lse lse = row_of(kernels, &one, 1);
    assert_true(logprob_of(lse, one) == 0 && lse.entropy == 0);
    for (size_t i = 0; i < 64; i++) equal[i] = 2;
    lse = row_of(kernels, equal, 64);
    assert_true(logprob_of(lse, 2) == (float)-log(64) && fabs(lse.entropy - log(64)) < 1e-14);

    assert_true(log_remaining(0, 0, 10) == 0);
    assert_true(log_remaining(0.25, 3, 10) == log1p64(-0.25));
    assert_true(log_remaining(1, 3, 10) == -INFINITY);
    assert_true(log_remaining(1 + 1e-15, 3, 10) == -INFINITY);
    assert_true(log_remaining(0.9999999999999998, 10, 10) == -INFINITY); /* nothing remains */
    assert_true(isfinite(log_remaining(0.9999999999999998, 9, 10)));
}

/* ---- top lists ---- */

static const float *order_logits;

static int by_rank(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    float x = order_logits[i], y = order_logits[j];
    if (x != y) return x > y ? -1 : 1;
    return (i > j) - (i < j);
}

struct lists {
    float logits[9000], top_logits[9000];
    int32_t order[9000], top_ids[9000];
};

static void top_check(struct lists *l, struct topk *top, size_t k)
{
    assert_int_equal(top->n, k);
    topk_sort(top);
    for (size_t i = 0; i < k; i++) {
        assert_int_equal(top->ids[i], l->order[i]);
        assert_true(top->logits[i] == l->logits[l->order[i]]);
    }
    topk_sort_ids(top);
    for (size_t i = 1; i < k; i++) assert_true(top->ids[i - 1] < top->ids[i]);
}

static void top_of_every_size(void **state)
{
    static struct lists l;
    static const size_t ks[] = {1, 2, 3, 20, 64, 65, 1000, 9000};
    for (size_t f = 0; f < N_FILLS; f++)
        for (size_t s = 0; s < N_SIZES && sizes[s] <= 9000; s++) {
            size_t n = sizes[s];
            fill(l.logits, n, fills[f]);
            for (size_t i = 0; i < n; i++) l.order[i] = (int32_t)i;
            order_logits = l.logits;
            qsort(l.order, n, sizeof l.order[0], by_rank);
            for (size_t c = 0; c < sizeof ks / sizeof ks[0]; c++) {
                size_t k = ks[c] < n ? ks[c] : n;
                struct topk top = {.logits = l.top_logits, .ids = l.top_ids, .k = k};
                for (size_t i = 0; i < n; i += PANEL) {
                    size_t columns = n - i < PANEL ? n - i : PANEL;
                    float max = l.logits[i];
                    for (size_t j = i; j < i + columns; j++) max = fmaxf(max, l.logits[j]);
                    topk_panel(&top, l.logits + i, columns, (int32_t)i, max);
                }
                top_check(&l, &top, k);
                top.n = 0; /* in another order of arrival: the same list */
                for (size_t i = n; i-- > 0;) topk_push(&top, l.logits[i], (int32_t)i);
                top_check(&l, &top, k);
            }
        }
}

static void top_of_nothing(void **state)
{
    struct topk none = {.k = 0};
    float logits[2] = {1, 2};
    topk_panel(&none, logits, 2, 0, 2);
    topk_push(&none, 3, 5);
    topk_sort(&none);
    topk_sort_ids(&none);
    assert_int_equal(none.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_softmax_within_1e_8), cmocka_unit_test(lse_bits_at_every_level),
        cmocka_unit_test(edges_of_a_distribution), cmocka_unit_test(top_of_every_size),
        cmocka_unit_test(top_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
