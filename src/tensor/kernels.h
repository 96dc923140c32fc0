/*
 * kernels.h - the list of kernels: every inner loop of nepit, with its formula, shapes and order of
 * addition. kernels_ref.c is the definition, in plain loops; every other level gives the same bits.
 *
 * Orders of addition (docs/NUMERICS.md):
 *   DOT    s over k: K is cut in blocks of 64; in a block s = +0, then for each pair (k, k+1), k
 *          even: s = fma(x[k+1], w[k+1], s), s = fma(x[k], w[k], s); a missing odd k+1 counts as +0
 *          operands; total = +0, then total = total + block sum, blocks in order. All f32.
 *   LANES  16 virtual lanes, element i to lane i mod 16, ascending; then fold: lane i += lane i+8
 *          (i<8), += i+4 (i<4), += i+2 (i<2), += i+1. f64 where said.
 * Because a total starts at +0, appending zero operands anywhere changes no bit of it.
 *
 * Weights lie in panels of 64 columns, each stored type in its own width: panels.h. A page of 64
 * cached keys is such a panel of f32 with K = head_dim; a page of 64 cached values is
 * [head_dim/16 rounded up][64 keys][16].
 *
 * Alignment: panels and pages 64 bytes; rows any. No kernel allocates, locks or reads globals. A
 * kernel may read only the operands that its formula names (guard pages are tested), padding of
 * panels included.
 *
 * New kernel: a slot here, its loops in kernels_ref.c, its body in kernels_tpl.h, its cases in
 * tests/kernels/checkkernels.c.
 */
#ifndef TENSOR_KERNELS_H
#define TENSOR_KERNELS_H

#include "base/cpu.h"
#include "tensor/panels.h"
#include <stdbool.h>

/* How a linear layer computes (docs/NUMERICS.md): which operand an activation becomes, and which
 * sum is taken. */
enum profile { PROFILE_F32, PROFILE_BF16, PROFILE_INT16, PROFILES };

/* Rows of activations go through a GEMM in row blocks: n_rows cut evenly in ceil(n_rows / 6), the
 * larger ones first. */
#define ROW_BLOCK 6
static inline size_t row_blocks(size_t n_rows)
{
    return (n_rows + ROW_BLOCK - 1) / ROW_BLOCK;
}

/* First row of row block `block`; of the block after the last: n_rows. */
static inline size_t block_row(size_t n_rows, size_t block)
{
    size_t n = row_blocks(n_rows), rest = n_rows % n;
    return block * (n_rows / n) + (block < rest ? block : rest);
}

/* y[r][c] of rows r < n_rows and of columns 16 tile + c of one panel, c < n_cols. */
struct gemm {
    enum dtype dtype;  /* as the panel is stored */
    const void *panel; /* panels.h */
    size_t K, tile, n_cols;
    const float *operand; /* n_blocks row blocks, one after another, as pack_rows made them */
    size_t n_rows, n_blocks;
    float *y;
    size_t ldy;
};

/* What a panel of logits adds to the log-sum-exp of a row (all f64): its maximum m, S = sum exp(l -
 * m), and T = sum exp(l - m) * (l - m), from which the entropy follows. */
struct lse_part {
    double m, S, T;
};

enum unary { U_EXP, U_LOG, U_SIN, U_COS, U_TANH, U_ERF, U_SILU, U_GELU_TANH, U_GELU_ERF, U_COUNT };

struct kernels {
    enum cpu_level level;
    const char *name;

    /* One row block, n_rows <= 6 rows of K floats, as the operand of a profile's gemm, in the
     * layout of this level: n_rows * K floats at most.
     *   f32    the values
     *   bf16   rounded to bf16 (nearest, even); below 2^-50 in magnitude: +0
     *   int16  per group of 32 k: a = max |x|, i[k] = rint(x[k] * (32767 / a)), s = a / 32767,
     *          h = s * float(sum i); all 0 where a < 2^-100; s = NaN where a is not finite */
    void (*pack_rows[PROFILES])(size_t n_rows, const float *const *rows, size_t K, float *operand);

    /* f32, bf16: y = DOT_k x[r][k] w[k][c]; f32 of any type, bf16 of BF16 whose weights are finite
     * and not below 2^-50.
     * int16: y = +0, then for each group of 32 k, ascending: y = fma(float(sum i q), s * d, y) and
     * y = fma(h, m, y); quantised types, whose weight is q d + m (m = 0 where a type has none). */
    void (*gemm[PROFILES])(const struct gemm *gemm);

    /* s[r][j] = DOT_i q[r][i] k[j][i], r < n_rows, for the first n_keys <= 64 keys of a page. */
    void (*score_keys)(size_t n_rows, const float *q, size_t ldq, const float *page,
                       size_t head_dim, float *s, size_t lds, size_t n_keys);

    /* y[r][i] = DOT_j p[r][j] v[j][i]: j runs over n_keys keys in pages of 64 (pages[j/64]), block
     * 0 begins at key 0. i < head_dim. p may be read up to n_keys rounded up to even; it holds +0
     * there. */
    void (*mix_values)(size_t n_rows, const float *p, size_t ldp, const float *const *pages,
                       size_t n_keys, float *y, size_t ldy, size_t head_dim);

    /* In place on s[0..n): s = exp32(s*scale - max(s*scale)); returns the sum: blocks of 64
     * counted from `first` rounded down to a multiple of 64 (s[0] is key `first`), LANES by
     * absolute key in a block, f32; total = +0 then block sums ascending. n >= 1. */
    float (*softmax)(float *s, size_t n, size_t first, float scale);

    /* y = x * r * gain, r = 1 / sqrt(sum_LANES,f64 x^2 / n + eps): x widened to f64, (x * r) * gain
     * in f64, one rounding to f32. y may be x. */
    void (*rms_norm)(size_t n, const float *x, const float *gain, double eps, float *y);

    /* mean = sum_LANES,f64 x / n; var = sum_LANES,f64 (x - mean)^2 / n; r = 1 / sqrt(var + eps);
     * y = ((x - mean) * r) * gain + bias in f64 (not fused), one rounding. y may be x. bias NULL: +
     * 0. */
    void (*layer_norm)(size_t n, const float *x, const float *gain, const float *bias, double eps,
                       float *y);

    /* sum = sum + x in f64, y = sum rounded to f32 (the residual stream) */
    void (*accumulate)(size_t n, const float *x, double *sum, float *y);

    void (*add)(size_t n, const float *x, float *y); /* y = y + x */
    /* y = U_SILU(gate) * up */
    void (*silu_mul)(size_t n, const float *gate, const float *up, float *y);

    /* Rotates pairs (v[i], v[i+half]), i < half: a' = fma(-b, sin, a*cos), b' = fma(a, sin, b*cos),
     * where a*cos and b*cos are rounded. In place. */
    void (*rope)(size_t half, const float *cos, const float *sin, float *v);

    /* y[i] = f(x[i]); y may be x. U_SILU(x) = x / (1 + exp(-x)); the gelus as their papers have
     * them. The definition of each is the code of functions.c; exp to erf err by at most 1 ulp on
     * all floats, sin and cos are rounded correctly. */
    void (*unary[U_COUNT])(size_t n, const float *x, float *y);

    /* LSE part of n <= 64 logits: m exact, S and T by f64 exp, LANES in f64. */
    struct lse_part (*lse_panel)(const float *logits, size_t n, bool want_T);

    /* How many of n logits come before a token of logit `l`: l_i > l, or l_i == l and i < n_before
     * (the columns whose ids are lower than the token's; 0 to n). */
    size_t (*count_before)(const float *logits, size_t n, float l, size_t n_before);

    /* y = x / divisor, y may be x (score temperature) */
    void (*divide)(size_t n, const float *x, float divisor, float *y);
};

/* The kernels of a level that cpu_choose allowed. */
const struct kernels *kernels_get(enum cpu_level level);

/* Scalar f64 functions of the contract, the same at every level; relative error at most 4e-16. */
double exp64(double x);                     /* x <= 0 */
double log64(double x);                     /* x > 0 */
double log1p64(double x);                   /* x > -1 */
double pow64(double base, double exponent); /* base > 0 */

#endif
