/*
 * functions.c - exp, log, sin, cos, tanh, erf and their kin, each as one written sequence of
 * operations.
 *
 * The surprise: only the f32 exp computes in f32, since softmax and SiLU are hot. The others
 * compute in f64 and round once, which makes them right in all but a few of a billion cases and
 * short to read: sin and cos reduce huge arguments exactly, by 96 bits of 2/pi that begin where
 * multiples of 4 end.
 */
#include "tensor/functions.h"
#include "tensor/bits.h"
#include <math.h>

__extension__ typedef unsigned __int128 uint128;
__extension__ typedef __int128 int128;

static uint64_t bits64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static double double_of(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* 2^n = 2^h 2^(n - h), h = floor(n / 2), so that both factors are normal and only the last product
 * rounds. */
float exp32(float x)
{
    x = EXP32_MIN > x ? EXP32_MIN : x;
    x = EXP32_MAX < x ? EXP32_MAX : x;
    float t = fmaf(x, LOG2E32, ROUND32);
    float k = t - ROUND32;
    float r = fmaf(k, -LN2_HI32, x);
    r = fmaf(k, -LN2_LO32, r);
    float p = 0;
#define HORNER(c) p = fmaf(p, r, c);
    EXP32_P(HORNER)
#undef HORNER
    uint32_t n = bits_of(t) - bits_of(ROUND32);
    uint32_t h = (n >> 1) | (n & 0x80000000u);
    return p * float_of((h + 127) << 23) * float_of((n - h + 127) << 23);
}

/* exp(hi + lo), |lo| tiny beside hi. */
static double exp_sum(double hi, double lo)
{
    hi = EXP64_MIN > hi ? EXP64_MIN : hi;
    hi = EXP64_MAX < hi ? EXP64_MAX : hi;
    double t = fma(hi, LOG2E64, ROUND64);
    double k = t - ROUND64;
    double r = fma(k, -LN2_HI64, hi);
    r = fma(k, -LN2_LO64, r) + lo;
    double p = 0;
#define HORNER(c) p = fma(p, r, c);
    EXP64_P(HORNER)
#undef HORNER
    uint64_t n = bits64(t) - bits64(ROUND64);
    uint64_t h = (n >> 1) | (n & 0x8000000000000000u);
    return p * double_of((h + 1023) << 52) * double_of((n - h + 1023) << 52);
}

double exp64(double x)
{
    return exp_sum(x, 0);
}

/* x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); log(1 + f) = 2 atanh(s), s = f / (2 + f). */
static double log_split(double x, double *f)
{
    double scale = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        scale = -54;
    }
    uint64_t u = bits64(x) - bits64(0x1.6a09e667f3bcdp-1);
    double k = (double)((int64_t)(u >> 52) - (int64_t)((u >> 63) << 12));
    *f = double_of((u & 0xfffffffffffffu) + bits64(0x1.6a09e667f3bcdp-1)) - 1;
    return k + scale;
}

/* 2 atanh(s) / s - 2, as a polynomial in s^2 <= 0.0295 */
static double atanh_rest(double z)
{
    double p = 2.0 / 23;
    for (int n = 21; n >= 3; n -= 2) p = fma(p, z, 2.0 / n);
    return p * z;
}

double log64(double x)
{
    if (!(x > 0) || x > 0x1.fffffffffffffp1023) return x == 0 ? -INFINITY : x < 0 ? NAN : x;
    double f, k = log_split(x, &f);
    double s = f / (2 + f), half_square = 0.5 * f * f;
    double rest = fma(s, half_square + atanh_rest(s * s), k * 0x1.cf79abc9e3b3ap-40);
    return fma(k, 0x1.62e42fefa0000p-1, f - (half_square - rest));
}

double log1p64(double x)
{
    double u = 1 + x;
    if (u == 1) return x;
    double lost = x < 1 ? x - (u - 1) : 1 - (u - x);
    return u > 0 && u < INFINITY ? log64(u) + lost / u : log64(u);
}

/* log(base) is taken in two doubles: its error is multiplied by exponent * log(base) at the end. */
double pow64(double base, double exponent)
{
    double f, k = log_split(base, &f);
    double d = 2 + f, s = f / d;
    double s_lo = (fma(-s, d, f) - s * (f - (d - 2))) / d;
    double lo = fma(k, 0x1.cf79abc9e3b3ap-40, fma(s, atanh_rest(s * s), 2 * s_lo));
    double a = k * 0x1.62e42fefa0000p-1, b = 2 * s;
    double hi = a + b, b_part = hi - a;
    lo += (a - (hi - b_part)) + (b - b_part);
    double product = exponent * hi;
    return exp_sum(product, fma(exponent, hi, -product) + exponent * lo);
}

float log32(float x)
{
    return (float)log64(x);
}

/* x = quadrant pi/2 + r, |r| <= pi/4, for finite x; |x| = m 2^e with a whole m of 24 bits. The
 * window holds the bits of 2/pi of weight 2^(1 - e) and less: what lies above gives multiples of 4,
 * what lies below m 2^-94. */
static unsigned reduce(float x, double *r)
{
    static const uint32_t two_over_pi[] = {0,          0xa2f9836e, 0x4e441529,
                                           0xfc2757d1, 0xf534ddc0, 0xdb629599,
                                           0x3c439041, 0xfe5163ab, 0xdebbc561};
    uint32_t u = bits_of(x) & 0x7fffffff;
    if (u < 0x3f490fdb) {
        *r = x;
        return 0;
    }
    unsigned first = (u >> 23) - 150 + 30; /* of the bits below; 32 zeros stand before the point */
    const uint32_t *word = two_over_pi + first / 32;
    uint128 window =
        (uint128)word[0] << 96 | (uint128)word[1] << 64 | (uint128)word[2] << 32 | word[3];
    window = window << first % 32 >> 32;
    uint128 turns = window * ((u & 0x7fffff) | 0x800000) << 32;
    unsigned quadrant = (unsigned)(turns >> 126);
    int128 rest = (int128)(turns << 2);
    quadrant += rest < 0;
    *r = (double)rest * 0x1.921fb54442d18p-128;
    if (x >= 0) return quadrant;
    *r = -*r;
    return -quadrant;
}

static double sin_poly(double r)
{
    static const double c[] = {
        -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880,
        -1.0 / 5040,          1.0 / 120,        -1.0 / 6,        1};
    double z = r * r, p = 0;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) p = fma(p, z, c[i]);
    return r * p;
}

static double cos_poly(double r)
{
    static const double c[] = {1.0 / 20922789888000,
                               -1.0 / 87178291200,
                               1.0 / 479001600,
                               -1.0 / 3628800,
                               1.0 / 40320,
                               -1.0 / 720,
                               1.0 / 24,
                               -0.5,
                               1};
    double z = r * r, p = 0;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) p = fma(p, z, c[i]);
    return p;
}

static float sin_quadrant(float x, unsigned add)
{
    if (!(fabsf(x) < INFINITY)) return x - x;
    double r;
    unsigned quadrant = reduce(x, &r) + add;
    double y = quadrant & 1 ? cos_poly(r) : sin_poly(r);
    return (float)(quadrant & 2 ? -y : y);
}

float sin32(float x)
{
    return sin_quadrant(x, 0);
}
float cos32(float x)
{
    return sin_quadrant(x, 1);
}

float tanh32(float x)
{
    double d = x, a = fabs(d), e = exp64(-2 * a);
    return (float)(a < 0x1p-10 ? d * (1 - d * d / 3) : copysign((1 - e) / (1 + e), d));
}

/* erfc(x) = t exp(P(t) - x^2), t = 1 / (1 + x/2), x >= 0; relative error 5e-14 up to x = 10.5,
 * where the f32 answers have long underflown. P fits log(erfcx(x) / t) at Chebyshev's points. */
static double erfc64(double x)
{
    static const double c[] = {-0x1.6bae5bf2bc27ap-3, 0x1.1c503503dc0dbp+1,  -0x1.9d61f1796ad3dp+3,
                               0x1.7207f2bc276bdp+5,  -0x1.c7125ca3f0724p+6, 0x1.963fdece40fb3p+7,
                               -0x1.0f71a669703a6p+8, 0x1.14946ef10a8c1p+8,  -0x1.b40488f64f67bp+7,
                               0x1.0e7aa7caefc95p+7,  -0x1.0d804999765e5p+6, 0x1.b164598035ba5p+4,
                               -0x1.1270338c6a3c9p+3, 0x1.2546b1f189bc8p+1,  -0x1.1ebc057b7cc22p-1,
                               -0x1.14e817cd84f89p-4, -0x1.86eb60feb6f57p-4, 0x1.58ecc97ffa6dap-4,
                               0x1.7ff13e4c7a8a2p-2,  0x1.00002599c9617p+0,  -0x1.43f89af1c6207p+0};
    double t = 1 / (1 + 0.5 * x), p = 0;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) p = fma(p, t, c[i]);
    return t * exp64(p - x * x);
}

float erf32(float x)
{
    double d = x, a = fabs(d), z = d * d;
    if (a < 0x1p-6)
        return (float)(d * 0x1.20dd750429b6dp+0 * (1 - z * (1.0 / 3 - z * (0.1 - z * (1.0 / 42)))));
    return (float)copysign(1 - erfc64(a), d);
}

/* x / (1 + exp(-x)) without a large exponential */
float silu32(float x)
{
    float e = exp32(-fabsf(x));
    return (x < 0 ? x * e : x) / (1 + e);
}

/* x/2 (1 + tanh u) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3) of the sign of x */
float gelu_tanh32(float x)
{
    double d = x, a = fabs(d);
    double e = exp64(GELU_SCALE * (a + GELU_CUBIC * (a * a * a)));
    return (float)((d < 0 ? d * e : d) / (1 + e));
}

/* x/2 (1 + erf(x / sqrt 2)) = x/2 erfc(-x / sqrt 2) */
float gelu_erf32(float x)
{
    double d = x, c = erfc64(fabs(d) * 0x1.6a09e667f3bcdp-1);
    return (float)(0.5 * d * (d < 0 ? c : 2 - c));
}
