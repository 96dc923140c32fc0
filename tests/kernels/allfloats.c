/*
 * allfloats.c - the f32 functions of the contract on every float, or on a sample of them.
 *
 *     allfloats [--stride N] [part of a function's name]
 *
 * Steps through the 2^32 bit patterns by N (default 1). Each answer of kernels_ref.c is judged by
 * libm in f64 (good to 2^-28 of an f32 ulp), or in long double where f64 cannot tell how to round;
 * each level's must be its very bits. An answer that is not the rounded true value counts as
 * misrounded.
 */
#include "kcheck.h"
#include <math.h>

typedef long double judge_wide(long double x);
typedef double judge_fast(double x);

static long double silu_wide(long double x)
{
    return x / (1 + expl(-x));
}
static double silu_fast(double x)
{
    return x / (1 + exp(-x));
}
/* x/2 (1 + tanh u) = x / (1 + exp(-2u)) */
static long double gelu_tanh_wide(long double x)
{
    return x / (1 + expl(-2 * sqrtl(2 / acosl(-1)) * (x + 0.044715L * x * x * x)));
}
static double gelu_tanh_fast(double x)
{
    return (double)gelu_tanh_wide(x);
}
static long double gelu_erf_wide(long double x)
{
    return 0.5L * x * erfcl(-x * sqrtl(0.5L));
}
static double gelu_erf_fast(double x)
{
    return (double)gelu_erf_wide(x);
}

static const struct function {
    const char *name;
    judge_fast *fast;
    judge_wide *wide;
    double max_ulp;
    float from; /* judged where x is not less */
} functions[U_COUNT] = {
    [U_EXP] = {"exp", exp, expl, 1, -INFINITY},
    [U_LOG] = {"log", log, logl, 1, -INFINITY},
    [U_SIN] = {"sin", sin, sinl, 0.5000001, -INFINITY},
    [U_COS] = {"cos", cos, cosl, 0.5000001, -INFINITY},
    [U_TANH] = {"tanh", tanh, tanhl, 1, -INFINITY},
    [U_ERF] = {"erf", erf, erfl, 1, -INFINITY},
    [U_SILU] = {"silu", silu_fast, silu_wide, 3, -87}, /* below, its exp is subnormal */
    [U_GELU_TANH] = {"gelu_tanh", gelu_tanh_fast, gelu_tanh_wide, 1, -INFINITY},
    [U_GELU_ERF] = {"gelu_erf", gelu_erf_fast, gelu_erf_wide, 1, -INFINITY},
};

#define CHUNK 4096

struct tally {
    double worst;
    float worst_x;
    uint64_t n, n_misrounded, n_too_far, n_level_differs;
};

/* In units of the spacing of floats at the true value; an infinity stands for 2^128. */
static double ulps_off(float got, long double want)
{
    int exponent;
    if (fabsl(want) >= 0x1.ffffffp127L) want = copysignl(0x1p128L, want);
    frexpl(want, &exponent);
    exponent = exponent - 24 < -149 ? -149 : exponent - 24;
    long double value = isinf(got) ? copysignl(0x1p128L, got) : (long double)got;
    return (double)fabsl(ldexpl(value - want, -exponent));
}

static void judge(const struct function *f, float x, float got, struct tally *tally)
{
    double want = f->fast(x);
    tally->n++;
    if (isnan(want) || isinf(want)) {
        bool right = isnan(want) ? isnan(got) : got == want;
        if (isinf(want) && isfinite(x) && x != 0) right = isinf(got) && (got > 0) == (want > 0);
        tally->n_too_far += !right;
        return;
    }
    /* Where the rounded value changes within f64's error, ask long double. */
    double slack = fabs(want) * 0x1p-50;
    long double exact = want;
    if ((float)(want - slack) != (float)(want + slack)) exact = f->wide(x);
    if (got == (float)exact && (signbit(got) != 0) == (signbit((float)exact) != 0)) {
        if ((float)exact == want) return;
    } else {
        tally->n_misrounded++;
    }
    double off = ulps_off(got, exact);
    if (!(off <= f->max_ulp)) tally->n_too_far++;
    if (off > tally->worst) {
        tally->worst = off;
        tally->worst_x = x;
    }
}

static void sweep(int which, uint64_t stride, struct tally *tally)
{
    static float x[CHUNK], y[CHUNK], z[CHUNK];
    const struct kernels *levels[CPU_LEVELS + 1];
    size_t n_levels = kcheck_levels(levels, CPU_LEVELS + 1);
    for (uint64_t bits = 0; bits >> 32 == 0;) {
        size_t n = 0;
        for (; n < CHUNK && bits >> 32 == 0; n++, bits += stride) {
            uint32_t u = (uint32_t)bits;
            memcpy(x + n, &u, sizeof u);
        }
        kernels_get(CPU_REF)->unary[which](n, x, y);
        for (size_t i = 0; i < n_levels; i++) {
            levels[i]->unary[which](n, x, z);
            for (size_t j = 0; j < n; j++) tally->n_level_differs += !same_floats(y + j, z + j, 1);
        }
        for (size_t i = 0; i < n; i++)
            if (!(x[i] < functions[which].from)) judge(&functions[which], x[i], y[i], tally);
    }
}

int main(int argc, char **argv)
{
    bool strided = argc > 2 && !strcmp(argv[1], "--stride");
    uint64_t stride = strided ? strtoull(argv[2], NULL, 10) : 1;
    const char *pattern = argc > 1 + 2 * strided ? argv[1 + 2 * strided] : "";
    size_t n_failed = 0, n_passed = 0;
    for (int which = 0; which < U_COUNT; which++) {
        if (!strstr(functions[which].name, pattern)) continue;
        struct tally t = {0};
        sweep(which, stride ? stride : 1, &t);
        bool ok = t.n_too_far == 0 && t.n_level_differs == 0;
        n_passed += ok;
        n_failed += !ok;
        printf("%-10s %10llu floats: at most %.8f ulp off (at %a), %llu misrounded, %llu too far, "
               "%llu "
               "unlike at another level\n",
               functions[which].name, (unsigned long long)t.n, t.worst, (double)t.worst_x,
               (unsigned long long)t.n_misrounded, (unsigned long long)t.n_too_far,
               (unsigned long long)t.n_level_differs);
        fflush(stdout);
    }
    printf("%zu passed, %zu failed\n", n_passed, n_failed);
    return n_failed != 0;
}
