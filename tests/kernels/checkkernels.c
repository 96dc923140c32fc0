/*
 * checkkernels.c - every kernel at every level against the plain loops of kernels_ref.c, bit by
 * bit.
 *
 *     checkkernels [--bench] [part of a kernel's name]
 *
 * Sizes run over the edges of lanes, tiles, pages and blocks; operands end at a guard page. The
 * last checks put sums of another order in the place of the GEMMs: they must be caught.
 */
#include "kcheck.h"
#include "benchkernels.h"
#include <math.h>

/* The hash of what kernels_ref.c answers to all questions here: it names this numeric version
 * (docs/NUMERICS.md), whichever compiler built it. */
#define ANSWERS 0x7b7d012112baf208u

static void check_softmax(const struct kernels *k)
{
    static const size_t firsts[] = {0, 1, 5, 15, 16, 17, 64, 100, 127, 128, 130};
    static const float scales[] = {1, 0.125f, 100, -0.5f};
    for (size_t n = 1; n < 300; n += n < 34 ? 1 : 1 + random_below(20))
        for (size_t i = 0; i < COUNT(firsts); i++)
            for (int fill = 0; fill < FILL_COUNT; fill++) {
                float *x = guarded(0, n), *y = guarded(2, n),
                      scale = scales[random_below(COUNT(scales))];
                fill_floats(x, n, (enum fill)fill);
                memcpy(y, x, n * sizeof *y);
                float want = kernels_get(CPU_REF)->softmax(x, n, firsts[i], scale);
                float sum = k->softmax(y, n, firsts[i], scale);
                verdict(agree(&sum, &want, 1) && agree(y, x, n), k, "softmax", n, firsts[i],
                        (size_t)fill);
            }
}

/* Sizes for kernels that go along a vector: all up to two groups of lanes, then some. */
static size_t next_size(size_t n)
{
    return n < 50 ? n + 1 : n + 1 + random_below(n);
}
#define EACH_SIZE_AND_FILL(n, fill)                \
    for (size_t n = 1; n < 3000; n = next_size(n)) \
        for (int fill = 0; fill < FILL_COUNT; fill++)

static void check_norms(const struct kernels *k)
{
    const struct kernels *ref = kernels_get(CPU_REF);
    EACH_SIZE_AND_FILL(n, fill)
    {
        float *x = guarded(0, n), *gain = guarded(1, n), *bias = guarded(4, n);
        float *y = guarded(2, n), *want = guarded(3, n);
        fill_floats(x, n, (enum fill)fill);
        fill_floats(gain, n, (enum fill)fill);
        fill_floats(bias, n, (enum fill)fill);
        ref->rms_norm(n, x, gain, 1e-5, want);
        k->rms_norm(n, x, gain, 1e-5, y);
        verdict(agree(y, want, n), k, "rms_norm", n, (size_t)fill, 0);
        for (int with_bias = 0; with_bias < 2; with_bias++) {
            ref->layer_norm(n, x, gain, with_bias ? bias : NULL, 1e-5, want);
            k->layer_norm(n, x, gain, with_bias ? bias : NULL, 1e-5, y);
            verdict(agree(y, want, n), k, "layer_norm", n, (size_t)fill, (size_t)with_bias);
        }
        memcpy(y, x, n * sizeof *y);
        k->layer_norm(n, y, gain, bias, 1e-5, y);
        verdict(agree(y, want, n), k, "layer_norm in place", n, (size_t)fill, 1);
        ref->rms_norm(n, x, gain, 1e-5, want);
        k->rms_norm(n, x, gain, 1e-5, x);
        verdict(agree(x, want, n), k, "rms_norm in place", n, (size_t)fill, 0);
    }
}

static void check_elementwise(const struct kernels *k)
{
    const struct kernels *ref = kernels_get(CPU_REF);
    EACH_SIZE_AND_FILL(n, fill)
    {
        float *x = guarded(0, n), *y = guarded(2, n), *want = guarded(3, n), *z = guarded(1, n);
        fill_floats(x, n, (enum fill)fill);
        fill_floats(z, n, (enum fill)fill);
        ref->silu_mul(n, x, z, want);
        k->silu_mul(n, x, z, y);
        verdict(agree(y, want, n), k, "silu_mul", n, (size_t)fill, 0);
        ref->divide(n, x, 0.7f, want);
        k->divide(n, x, 0.7f, y);
        verdict(agree(y, want, n), k, "divide", n, (size_t)fill, 0);
        memcpy(y, z, n * sizeof *y);
        memcpy(want, z, n * sizeof *y);
        ref->add(n, x, want);
        k->add(n, x, y);
        verdict(agree(y, want, n), k, "add", n, (size_t)fill, 0);
        double *sum = (double *)guarded(4, 2 * n), *want_sum = (double *)guarded(5, 2 * n);
        for (size_t i = 0; i < n; i++) sum[i] = want_sum[i] = z[i] * 1.0000000001;
        ref->accumulate(n, x, want_sum, want);
        k->accumulate(n, x, sum, y);
        bool same = agree(y, want, n);
        for (size_t i = 0; i < n; i++) same = same && same_double(sum[i], want_sum[i]);
        verdict(same, k, "accumulate", n, (size_t)fill, 0);
        for (int f = 0; f < U_COUNT; f++) {
            ref->unary[f](n, x, want);
            k->unary[f](n, x, y);
            verdict(agree(y, want, n), k, "unary", (size_t)f, n, (size_t)fill);
        }
    }
}

static void check_rope(const struct kernels *k)
{
    for (size_t half = 1; half < 80; half++)
        for (int fill = 0; fill < FILL_COUNT; fill++) {
            float *c = guarded(0, half), *s = guarded(1, half);
            float *v = guarded(2, 2 * half), *want = guarded(3, 2 * half);
            fill_floats(c, half, FILL_PLAIN);
            fill_floats(s, half, FILL_PLAIN);
            fill_floats(v, 2 * half, (enum fill)fill);
            memcpy(want, v, 2 * half * sizeof *v);
            kernels_get(CPU_REF)->rope(half, c, s, want);
            k->rope(half, c, s, v);
            verdict(agree(v, want, 2 * half), k, "rope", half, (size_t)fill, 0);
        }
}

static void lse_case(const struct kernels *k, const float *x, size_t n, int fill)
{
    for (int want_T = 0; want_T < 2; want_T++) {
        struct lse_part a = kernels_get(CPU_REF)->lse_panel(x, n, want_T),
                        b = k->lse_panel(x, n, want_T);
        bool same = agree_double(b.m, a.m) && agree_double(b.S, a.S) && agree_double(b.T, a.T);
        verdict(same, k, "lse_panel", n, (size_t)fill, (size_t)want_T);
    }
}

static void check_logits(const struct kernels *k)
{
    for (size_t n = 1; n <= PANEL; n++)
        for (int fill = 0; fill < FILL_COUNT; fill++) {
            float *x = guarded(0, n);
            fill_floats(x, n, (enum fill)fill);
            if (fill == FILL_RATIO)
                for (size_t i = 0; i < n; i++) x[i] = fminf(fmaxf(x[i], -1e4f), 1e4f);
            lse_case(k, x, n, fill);
            for (int i = 0; i < 8; i++) {
                float l = x[random_below(n)];
                size_t n_before = random_below(n + 1);
                verdict(kernels_get(CPU_REF)->count_before(x, n, l, n_before) ==
                            k->count_before(x, n, l, n_before),
                        k, "count_before", n, n_before, (size_t)fill);
            }
            for (size_t i = 0; i < n; i++) x[i] = random_below(4) || fill ? -INFINITY : x[i];
            lse_case(k, x, n, fill);
        }
}

static void check_answers(void)
{
    bool known = verdicts.answers == ANSWERS;
    verdict(known, kernels_get(CPU_REF), "the answers are not those of this numeric version", 0, 0,
            0);
    if (!known) printf("their hash is 0x%016llx\n", (unsigned long long)verdicts.answers);
}

static const struct check {
    const char *name;
    void (*run)(const struct kernels *k);
} checks[] = {
    {"panel_put panel_weight", check_weights},
    {"pack_rows gemm", check_gemm},
    {"score_keys", check_scores},
    {"mix_values", check_mix},
    {"softmax", check_softmax},
    {"rms_norm layer_norm", check_norms},
    {"add accumulate divide silu_mul unary", check_elementwise},
    {"rope", check_rope},
    {"lse_panel count_before", check_logits},
};

int main(int argc, char **argv)
{
    const struct kernels *levels[CPU_LEVELS + 2] = {kernels_get(CPU_REF)};
    size_t n_levels = 1 + kcheck_levels(levels + 1, COUNT(levels) - 1);
    bool bench = argc > 1 && !strcmp(argv[1], "--bench");
    const char *pattern = argc > 1 + bench ? argv[1 + bench] : "";
    if (bench) {
        bench_kernels(pattern);
        return 0;
    }
    for (size_t i = 0; i < n_levels; i++) {
        for (size_t j = 0; j < COUNT(checks); j++) {
            if (!strstr(checks[j].name, pattern)) continue;
            size_t passed = verdicts.n_passed, failed = verdicts.n_failed;
            checks[j].run(levels[i]);
            printf("%-8s %-26s %6zu passed, %zu failed\n", levels[i]->name, checks[j].name,
                   verdicts.n_passed - passed, verdicts.n_failed - failed);
        }
        if (i == 0 && !*pattern) check_answers();
    }
    negative_controls();
    printf("%zu passed, %zu failed\n", verdicts.n_passed, verdicts.n_failed);
    return verdicts.n_failed != 0;
}
