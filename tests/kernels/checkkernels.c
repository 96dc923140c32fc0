/*
 * checkkernels.c - every kernel at every level against the plain loops of kernels_ref.c, bit by
 * bit.
 *
 *     checkkernels [--bench] [part of a kernel's name]
 *
 * Sizes run over the edges of lanes, tiles, pages and blocks; operands end at a guard page. A last
 * check puts a dot product with lanes along K in the place of the GEMM: it must be caught.
 */
#include "kcheck.h"
#include "benchkernels.h"
#include <math.h>

static size_t n_passed, n_failed;
static bool quiet;

static void verdict(bool ok, const struct kernels *k, const char *what, size_t a, size_t b,
                    size_t c)
{
    n_passed += ok;
    n_failed += !ok;
    if (!ok && !quiet) printf("FAILED %s %s (%zu, %zu, %zu)\n", k->name, what, a, b, c);
}

/* All answers that were asked for, NaN as one value: a change of any bit, or of a compiler's mind,
 * shows. */
#define ANSWERS 0x73a8f91734bc6626u
static uint64_t answers = 14695981039346656037u;

static void mix_answer(uint64_t bits)
{
    answers = (answers ^ bits) * 1099511628211u;
}

static bool agree(const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, want + i, sizeof bits);
        mix_answer(isnan(want[i]) ? 0x7fc00000 : bits);
    }
    return same_floats(got, want, n);
}

static bool agree64(double got, double want)
{
    uint64_t bits;
    memcpy(&bits, &want, sizeof bits);
    mix_answer(isnan(want) ? 0x7ff8000000000000u : bits);
    return same_double(got, want);
}

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void fill_panel(float *panel, size_t K, size_t n_cols, enum fill fill)
{
    memset(panel, 0, panel_floats(K) * sizeof *panel);
    for (size_t c = 0; c < n_cols; c++)
        for (size_t k = 0; k < K; k++) fill_floats(panel + panel_index(K, k, c), 1, fill);
}

static void gemm_case(const struct kernels *k, size_t K, size_t n_rows, size_t n_cols,
                      enum fill fill)
{
    size_t ldx = K + random_below(3), ldy = n_cols + random_below(3),
           n_y = (n_rows - 1) * ldy + n_cols;
    float *x = guarded(0, (n_rows - 1) * ldx + K), *panel = guarded(1, panel_floats(K));
    float *y = guarded(2, n_y), *want = guarded(3, n_y);
    for (size_t r = 0; r < n_rows; r++) fill_floats(x + r * ldx, K, fill);
    fill_panel(panel, K, n_cols, fill);
    kernels_get(CPU_REF)->panel_gemm(n_rows, x, ldx, panel, K, want, ldy, n_cols);
    k->panel_gemm(n_rows, x, ldx, panel, K, y, ldy, n_cols);
    verdict(agree(y, want, n_y), k, "panel_gemm", K, n_rows, n_cols);
    size_t c = random_below(n_cols), r = random_below(n_rows);
    float one = k->panel_dot(x + r * ldx, panel, K, c);
    verdict(agree(&one, want + r * ldy + c, 1), k, "panel_dot", K, r, c);
}

static void check_gemm(const struct kernels *k)
{
    static const size_t Ks[] = {1,   2,   3,   63,  64,  65,  127, 128,
                                129, 130, 191, 192, 193, 256, 257, 576};
    static const size_t cols[] = {1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64};
    for (size_t i = 0; i < COUNT(Ks); i++)
        for (size_t j = 0; j < COUNT(cols); j++)
            for (int fill = 0; fill < FILL_COUNT; fill++)
                gemm_case(k, Ks[i], 1 + random_below(14), cols[j], (enum fill)fill);
    for (size_t n_rows = 1; n_rows < 150; n_rows += n_rows < 40 ? 1 : 11)
        gemm_case(k, 130, n_rows, 64, FILL_PLAIN);
}

/* Keys beyond n_keys hold NaN: they must not be read. p holds the +0 that is allowed to be. */
static void mix_case(const struct kernels *k, size_t n_keys, size_t n_rows, size_t head_dim,
                     enum fill fill)
{
    const float *pages[8];
    size_t n_tiles = (head_dim + TILE - 1) / TILE, ldp = (n_keys + 1) & ~(size_t)1,
           ldy = head_dim + 1;
    for (size_t i = 0; i * PANEL < n_keys; i++) {
        float *page = guarded(4 + i, n_tiles * PANEL * TILE);
        for (size_t t = 0; t < n_tiles; t++)
            for (size_t j = 0; j < PANEL && i * PANEL + j < n_keys; j++)
                fill_floats(page + (t * PANEL + j) * TILE, TILE, fill);
        pages[i] = page;
    }
    float *p = guarded(0, n_rows * ldp), *y = guarded(2, n_rows * ldy),
          *want = guarded(3, n_rows * ldy);
    memset(p, 0, n_rows * ldp * sizeof *p);
    for (size_t r = 0; r < n_rows; r++) fill_floats(p + r * ldp, n_keys, fill);
    kernels_get(CPU_REF)->mix_values(n_rows, p, ldp, pages, n_keys, want, ldy, head_dim);
    k->mix_values(n_rows, p, ldp, pages, n_keys, y, ldy, head_dim);
    verdict(agree(y, want, n_rows * ldy), k, "mix_values", n_keys, n_rows, head_dim);
}

static void check_mix(const struct kernels *k)
{
    static const size_t keys[] = {1,   2,   3,   15,  63,  64,  65,  127,
                                  128, 129, 191, 192, 193, 255, 256, 300};
    static const size_t dims[] = {1, 8, 16, 17, 40, 64, 80, 96, 128};
    for (size_t i = 0; i < COUNT(keys); i++)
        for (size_t j = 0; j < COUNT(dims); j++)
            for (int fill = 0; fill < FILL_COUNT; fill++)
                mix_case(k, keys[i], 1 + random_below(13), dims[j], (enum fill)fill);
}

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
        bool same = agree64(b.m, a.m) && agree64(b.S, a.S) && agree64(b.T, a.T);
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

/* What must not pass: one sum in eight lanes along K. */
static void lanes_along_k(size_t n_rows, const float *x, size_t ldx, const float *panel, size_t K,
                          float *y, size_t ldy, size_t n_cols)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < n_cols; c++) {
            float lane[8] = {0}, sum = 0;
            for (size_t k = 0; k < K; k++)
                lane[k % 8] = fmaf(x[r * ldx + k], panel[panel_index(K, k, c)], lane[k % 8]);
            for (size_t i = 0; i < 8; i++) sum += lane[i];
            y[r * ldy + c] = sum;
        }
}

static void negative_control(void)
{
    struct kernels wrong = *kernels_get(CPU_REF);
    wrong.panel_gemm = lanes_along_k;
    size_t passed = n_passed, failed = n_failed;
    quiet = true;
    for (int i = 0; i < 10; i++) gemm_case(&wrong, 576, 4, 64, FILL_PLAIN);
    bool caught = n_failed == failed + 10;
    quiet = false;
    n_passed = passed;
    n_failed = failed;
    verdict(caught, &wrong, "a dot product with lanes along K was not caught", 576, 4, 64);
}

static void check_answers(void)
{
    bool known = answers == ANSWERS;
    verdict(known, kernels_get(CPU_REF), "the answers are not those of this numeric version", 0, 0,
            0);
    if (!known) printf("their hash is 0x%016llx\n", (unsigned long long)answers);
}

static const struct check {
    const char *name;
    void (*run)(const struct kernels *k);
} checks[] = {
    {"panel_gemm panel_dot", check_gemm},
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
            size_t passed = n_passed, failed = n_failed;
            checks[j].run(levels[i]);
            printf("%-8s %-26s %6zu passed, %zu failed\n", levels[i]->name, checks[j].name,
                   n_passed - passed, n_failed - failed);
        }
        if (i == 0 && !*pattern) check_answers();
    }
    negative_control();
    printf("%zu passed, %zu failed\n", n_passed, n_failed);
    return n_failed != 0;
}
