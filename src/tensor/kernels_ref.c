/*
 * kernels_ref.c - the kernels as plain loops that read like their formulas: the definition of every
 * bit.
 *
 * Nothing here is made fast. Minima and maxima are written as comparisons whose outcome for NaN is
 * fixed (a NaN never wins a maximum, and reaches the result through the sum instead).
 */
#include "tensor/functions.h"
#include "tensor/levels.h"
#include <math.h>
#include <string.h>

#define LANES 16

static float fold32(float lane[LANES])
{
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

static double fold64(double lane[LANES])
{
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

static void score_keys(size_t n_rows, const float *q, size_t ldq, const float *page,
                       size_t head_dim, float *s, size_t lds, size_t n_keys)
{
    for (size_t j = 0; j < n_keys; j++)
        for (size_t r = 0; r < n_rows; r++) {
            float total = 0;
            for (size_t first = 0; first < head_dim; first += KBLOCK) {
                size_t depth = head_dim - first < KBLOCK ? head_dim - first : KBLOCK;
                float key[KBLOCK];
                for (size_t i = 0; i < depth; i++)
                    key[i] = page[panel_index(head_dim, first + i, j)];
                total += ref_block_sum(q + r * ldq + first, key, depth);
            }
            s[r * lds + j] = total;
        }
}

static void mix_values(size_t n_rows, const float *p, size_t ldp, const float *const *pages,
                       size_t n_keys, float *y, size_t ldy, size_t head_dim)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < head_dim; i++) {
            float total = 0, s = 0;
            for (size_t j = 0; j < n_keys; j += 2) {
                const float *v =
                    pages[j / PANEL] + (i / TILE) * PANEL * TILE + (j % PANEL) * TILE + i % TILE;
                if (j + 1 < n_keys) s = fmaf(p[r * ldp + j + 1], v[TILE], s);
                s = fmaf(p[r * ldp + j], v[0], s);
                if ((j + 2) % KBLOCK == 0 || j + 2 >= n_keys) {
                    total += s;
                    s = 0;
                }
            }
            y[r * ldy + i] = total;
        }
}

static float softmax(float *s, size_t n, size_t first, float scale)
{
    float max = -INFINITY, total = 0, lane[LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        s[i] *= scale;
        max = s[i] > max ? s[i] : max;
    }
    for (size_t i = 0; i < n; i++) {
        size_t key = first + i;
        s[i] = exp32(s[i] - max);
        lane[key % LANES] += s[i];
        if ((key + 1) % KBLOCK == 0 || i + 1 == n) {
            total += fold32(lane);
            memset(lane, 0, sizeof lane);
        }
    }
    return total;
}

static void rms_norm(size_t n, const float *x, const float *gain, double eps, float *y)
{
    double lane[LANES] = {0};
    for (size_t i = 0; i < n; i++) lane[i % LANES] += (double)x[i] * x[i];
    double r = 1 / sqrt(fold64(lane) / (double)n + eps);
    for (size_t i = 0; i < n; i++) y[i] = (float)(x[i] * r * gain[i]);
}

static void layer_norm(size_t n, const float *x, const float *gain, const float *bias, double eps,
                       float *y)
{
    double lane[LANES] = {0}, square[LANES] = {0};
    for (size_t i = 0; i < n; i++) lane[i % LANES] += x[i];
    double mean = fold64(lane) / (double)n;
    for (size_t i = 0; i < n; i++) square[i % LANES] += (x[i] - mean) * (x[i] - mean);
    double r = 1 / sqrt(fold64(square) / (double)n + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = (float)((x[i] - mean) * r * gain[i] + (bias ? (double)bias[i] : 0));
}

static void accumulate(size_t n, const float *x, double *sum, float *y)
{
    for (size_t i = 0; i < n; i++) {
        sum[i] += x[i];
        y[i] = (float)sum[i];
    }
}

static void add(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

static void silu_mul(size_t n, const float *gate, const float *up, float *y)
{
    for (size_t i = 0; i < n; i++) y[i] = silu32(gate[i]) * up[i];
}

static void rope(size_t half, const float *cos, const float *sin, float *v)
{
    for (size_t i = 0; i < half; i++) {
        float a = v[i], b = v[i + half];
        v[i] = fmaf(-b, sin[i], a * cos[i]);
        v[i + half] = fmaf(a, sin[i], b * cos[i]);
    }
}

#define UNARY(name, function)                                 \
    void name(size_t n, const float *x, float *y)             \
    {                                                         \
        for (size_t i = 0; i < n; i++) y[i] = function(x[i]); \
    }
UNARY(ref_exp, exp32)
UNARY(ref_log, log32)
UNARY(ref_sin, sin32)
UNARY(ref_cos, cos32)
UNARY(ref_tanh, tanh32)
UNARY(ref_erf, erf32)
UNARY(ref_silu, silu32)
UNARY(ref_gelu_tanh, gelu_tanh32)
UNARY(ref_gelu_erf, gelu_erf32)

/* A maximum of -0 counts as +0 (ties have no order), and where every logit is -inf, S is 0. */
static struct lse_part lse_panel(const float *logits, size_t n, bool want_T)
{
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++) max = logits[i] > max ? logits[i] : max;
    double base = max == -INFINITY ? 0 : max, S[LANES] = {0}, T[LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        double d = logits[i] - base, e = exp64(d);
        S[i % LANES] += e;
        if (want_T) T[i % LANES] += e > 0 ? e * d : e;
    }
    return (struct lse_part){max + 0.0, fold64(S), fold64(T)};
}

static size_t count_before(const float *logits, size_t n, float l, size_t n_before)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += logits[i] > l || (logits[i] == l && i < n_before);
    return count;
}

static void divide(size_t n, const float *x, float divisor, float *y)
{
    for (size_t i = 0; i < n; i++) y[i] = x[i] / divisor;
}

const struct kernels kernels_ref = {
    .level = CPU_REF,
    .name = "ref",
    .pack_rows = {ref_pack_f32, ref_pack_bf16, ref_pack_int16},
    .gemm = {ref_gemm_f32, ref_gemm_f32, ref_gemm_int16},
    .score_keys = score_keys,
    .mix_values = mix_values,
    .softmax = softmax,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .accumulate = accumulate,
    .add = add,
    .silu_mul = silu_mul,
    .rope = rope,
    .unary = {ref_exp, ref_log, ref_sin, ref_cos, ref_tanh, ref_erf, ref_silu, ref_gelu_tanh,
              ref_gelu_erf},
    .lse_panel = lse_panel,
    .count_before = count_before,
    .divide = divide,
};
