/*
 * kernels_tpl.h - the bodies of the kernels, written once over the vocabulary of vec_<isa>.h and
 * compiled by isa/kernels_<isa>.c, which defines before it includes this file:
 *
 *   WIDE_TILES(X), INT16_WIDE_TILES(X), DIRECT_WIDE_TILES(X)
 *                    X(rows, tiles) for the numbers of rows that take several tiles side by side,
 *                    so that their sums hide the latency of fma and still fit the registers: of
 *                    f32, of int16, and of up to 4 rows that read stored weights themselves
 *   LEVEL, LEVEL_NAME, LEVEL_TABLE
 *
 * Products of matrices stand in tiles_tpl.h, panels_tpl.h and int16_tpl.h; bf16_tpl.h adds to this
 * file where pairs of bf16 can be multiplied. Lanes hold different outputs, so each output's sum is
 * the one of kernels_ref.c.
 */
#include "tensor/int16_tpl.h"

VEC v16 v_exp(v16 x)
{
    x = v_min(v_set(EXP32_MAX), v_max(v_set(EXP32_MIN), x));
    v16 t = v_fma(x, v_set(LOG2E32), v_set(ROUND32));
    v16 k = v_sub(t, v_set(ROUND32));
    v16 r = v_fma(k, v_set(-LN2_HI32), x);
    r = v_fma(k, v_set(-LN2_LO32), r);
    v16 p = v_set(0);
#define HORNER(c) p = v_fma(p, r, v_set(c));
    EXP32_P(HORNER)
#undef HORNER
    return v_scale(p, t, ROUND32);
}

VEC d16 d_exp(d16 x) /* x <= 0 */
{
    x = d_max(d_set(EXP64_MIN), x);
    d16 t = d_fma(x, d_set(LOG2E64), d_set(ROUND64));
    d16 k = d_sub(t, d_set(ROUND64));
    d16 r = d_fma(k, d_set(-LN2_HI64), x);
    r = d_fma(k, d_set(-LN2_LO64), r);
    d16 p = d_set(0);
#define HORNER(c) p = d_fma(p, r, d_set(c));
    EXP64_P(HORNER)
#undef HORNER
    return d_scale_down(p, t);
}

VEC v16 v_silu(v16 x)
{
    v16 e = v_exp(v_neg_abs(x));
    return v_div(v_select_negative(x, v_mul(x, e), x), v_add(v_set(1), e));
}

VEC v16 v_gelu_tanh(v16 x)
{
    d16 d = d_widen(x), a = d_abs(d);
    d16 cube = d_mul(d_mul(a, a), a);
    d16 e = d_exp(d_mul(d_set(GELU_SCALE), d_add(a, d_mul(d_set(GELU_CUBIC), cube))));
    d16 top = d_select_less(d, d_set(0), d_mul(d, e), d);
    return d_narrow(d_div(top, d_add(d_set(1), e)));
}

VEC v16 v_tanh(v16 x)
{
    d16 d = d_widen(x), a = d_abs(d), one = d_set(1), e = d_exp(d_mul(d_set(-2), a));
    d16 small = d_mul(d, d_sub(one, d_div(d_mul(d, d), d_set(3))));
    d16 large = d_or_sign(d_div(d_sub(one, e), d_add(one, e)), d);
    return d_narrow(d_select_less(a, d_set(0x1p-10), small, large));
}

#define ELEMENTWISE(i, left) for (size_t i = 0, left = n; i < n; i += TILE, left = n - i)

#define DEFINE_UNARY(name)                                                \
    static void each_##name(size_t n, const float *x, float *y)           \
    {                                                                     \
        ELEMENTWISE(i, left)                                              \
        v_store_some(y + i, v_##name(v_load_some(x + i, left, 0)), left); \
    }
DEFINE_UNARY(exp)
DEFINE_UNARY(tanh)
DEFINE_UNARY(silu)
DEFINE_UNARY(gelu_tanh)

static void accumulate(size_t n, const float *x, double *sum, float *y)
{
    for (size_t i = 0; i < n; i++) { /* compilers make good code of it */
        sum[i] += x[i];
        y[i] = (float)sum[i];
    }
}

static void add(size_t n, const float *x, float *y)
{
    ELEMENTWISE(i, left)
    v_store_some(y + i, v_add(v_load_some(y + i, left, 0), v_load_some(x + i, left, 0)), left);
}

static void divide(size_t n, const float *x, float divisor, float *y)
{
    ELEMENTWISE(i, left)
    v_store_some(y + i, v_div(v_load_some(x + i, left, 0), v_set(divisor)), left);
}

static void silu_mul(size_t n, const float *gate, const float *up, float *y)
{
    ELEMENTWISE(i, left)
    {
        v16 act = v_silu(v_load_some(gate + i, left, 0));
        v_store_some(y + i, v_mul(act, v_load_some(up + i, left, 0)), left);
    }
}

static void rope(size_t half, const float *cos, const float *sin, float *v)
{
    size_t n = half;
    ELEMENTWISE(i, left)
    {
        v16 a = v_load_some(v + i, left, 0), b = v_load_some(v + half + i, left, 0);
        v16 c = v_load_some(cos + i, left, 0), s = v_load_some(sin + i, left, 0);
        v_store_some(v + i, v_fma(v_neg(b), s, v_mul(a, c)), left);
        v_store_some(v + half + i, v_fma(a, s, v_mul(b, c)), left);
    }
}

/* The sums of softmax: keys in aligned groups of 16, so that a lane is a key mod 16. */
static float softmax_total(const float *e, size_t n, size_t first)
{
    float total = 0;
    v16 lanes = v_set(0);
    for (size_t i = 0; i < n;) {
        size_t lane = (first + i) % TILE, m = n - i < TILE - lane ? n - i : TILE - lane;
        v16 group;
        if (m == TILE) {
            group = v_load(e + i);
        } else {
            float some[TILE] = {0};
            memcpy(some + lane, e + i, m * sizeof *e);
            group = v_load(some);
        }
        lanes = v_add(lanes, group);
        i += m;
        if ((first + i) % KBLOCK == 0 || i == n) {
            total += v_fold(lanes);
            lanes = v_set(0);
        }
    }
    return total;
}

static float softmax(float *s, size_t n, size_t first, float scale)
{
    v16 top = v_set(-INFINITY), by = v_set(scale);
    ELEMENTWISE(i, left)
    {
        v16 x = v_load_some(s + i, left, 0);
        x = v_mul(x, by);
        v_store_some(s + i, x, left);
        top = v_max(v_load_some(s + i, left, -INFINITY), top);
    }
    v16 max = v_set(v_fold_max(top));
    ELEMENTWISE(i, left)
    v_store_some(s + i, v_exp(v_sub(v_load_some(s + i, left, 0), max)), left);
    return softmax_total(s, n, first);
}

static void rms_norm(size_t n, const float *x, const float *gain, double eps, float *y)
{
    d16 sum = d_set(0); /* the square of a float is exact in f64, so fma rounds as the sum does */
    ELEMENTWISE(i, left)
    {
        d16 d = d_widen(v_load_some(x + i, left, 0));
        sum = d_fma(d, d, sum);
    }
    d16 r = d_set(1 / sqrt(d_fold(sum) / (double)n + eps));
    ELEMENTWISE(i, left)
    {
        d16 d = d_mul(d_widen(v_load_some(x + i, left, 0)), r);
        v_store_some(y + i, d_narrow(d_mul(d, d_widen(v_load_some(gain + i, left, 0)))), left);
    }
}

static void layer_norm(size_t n, const float *x, const float *gain, const float *bias, double eps,
                       float *y)
{
    static const float index[TILE] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    d16 sum = d_set(0), squares = d_set(0), lane = d_widen(v_load(index));
    ELEMENTWISE(i, left)
    sum = d_add(sum, d_widen(v_load_some(x + i, left, 0)));
    d16 mean = d_set(d_fold(sum) / (double)n);
    ELEMENTWISE(i, left)
    {
        d16 d = d_sub(d_widen(v_load_some(x + i, left, 0)), mean);
        d = d_select_less(lane, d_set((double)left), d, d_set(0));
        squares = d_add(squares, d_mul(d, d));
    }
    d16 r = d_set(1 / sqrt(d_fold(squares) / (double)n + eps));
    ELEMENTWISE(i, left)
    {
        d16 d = d_mul(d_sub(d_widen(v_load_some(x + i, left, 0)), mean), r);
        d = d_mul(d, d_widen(v_load_some(gain + i, left, 0)));
        d16 b = bias ? d_widen(v_load_some(bias + i, left, 0)) : d_set(0);
        v_store_some(y + i, d_narrow(d_add(d, b)), left);
    }
}

static struct lse_part lse_panel(const float *logits, size_t n, bool want_T)
{
    v16 top = v_set(-INFINITY);
    ELEMENTWISE(i, left)
    top = v_max(v_load_some(logits + i, left, -INFINITY), top);
    double max = v_fold_max(top);
    d16 base = d_set(max == -INFINITY ? 0 : max), S = d_set(0), T = d_set(0), zero = d_set(0);
    ELEMENTWISE(i, left)
    {
        d16 d = d_sub(d_widen(v_load_some(logits + i, left, -INFINITY)), base), e = d_exp(d);
        S = d_add(S, e);
        if (want_T) T = d_add(T, d_select_less(zero, e, d_mul(e, d), e));
    }
    return (struct lse_part){max + 0.0, d_fold(S), d_fold(T)};
}

static size_t count_before(const float *logits, size_t n, float l, size_t n_before)
{
    size_t count = 0;
    v16 given = v_set(l);
    ELEMENTWISE(i, left)
    {
        v16 x = v_load_some(logits + i, left, 0);
        unsigned exist = left < TILE ? (1u << left) - 1 : 0xffff;
        size_t m = n_before > i ? n_before - i : 0;
        unsigned lower = m < TILE ? (1u << m) - 1 : 0xffff;
        unsigned before = v_greater(x, given) | (v_equal(x, given) & lower);
        count += (size_t)__builtin_popcount(before & exist);
    }
    return count;
}

/* The table, given profile bf16's functions. */
#define KERNELS(pack_bf16_rows, gemm_bf16)                                                       \
    {                                                                                            \
        .level = LEVEL, .name = LEVEL_NAME, .pack_rows = {pack_f32, pack_bf16_rows, pack_int16}, \
        .gemm = {gemm_f32, gemm_bf16, gemm_int16}, .score_keys = score_keys,                     \
        .mix_values = mix_values, .softmax = softmax, .rms_norm = rms_norm,                      \
        .layer_norm = layer_norm, .accumulate = accumulate, .add = add, .silu_mul = silu_mul,    \
        .rope = rope, .unary = {each_exp, ref_log,   ref_sin,        ref_cos,     each_tanh,     \
                                ref_erf,  each_silu, each_gelu_tanh, ref_gelu_erf},              \
        .lse_panel = lse_panel, .count_before = count_before, .divide = divide,                  \
    }
const struct kernels LEVEL_TABLE = KERNELS(pack_bf16, gemm_f32);
