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
 * A panel is 64 columns (outputs) of a matrix w[n, k], stored so that a tile lies together:
 *
 *   K block 0 (k = 0..63)              K block 1 (k = 64..)      ... last block: K even-padded
 *   [tile 0][tile 1][tile 2][tile 3]   [tile 0][tile 1]...
 *    tile = [k in block][16 columns]
 *
 * so element (k, c), kb = k/64, d = depth of block kb (64, or the rest of K rounded up to even),
 * is at kb*64*64 + (c/16)*d*16 + (k%64)*16 + c%16 (panel_index below). Columns beyond N and the
 * odd k beyond K hold +0. A page of 64 cached keys is a panel of 64 columns with K = head_dim; a
 * page of 64 cached values is [head_dim/16 rounded up][64 keys][16].
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
#include <stdbool.h>

#define PANEL 64  /* columns of a panel, keys of a page */
#define TILE 16   /* columns of a tile */
#define KBLOCK 64 /* depth of a block of the DOT order: a page of keys is one block */

/* Depth of block kb of a K-deep panel, as stored (even). */
static inline size_t block_depth(size_t K, size_t kb)
{
    size_t left = K - kb * KBLOCK;
    return left >= KBLOCK ? KBLOCK : (left + 1) & ~(size_t)1;
}
static inline size_t panel_index(size_t K, size_t k, size_t c)
{
    size_t kb = k / KBLOCK;
    return kb * KBLOCK * PANEL + (c / TILE) * block_depth(K, kb) * TILE + (k % KBLOCK) * TILE +
           c % TILE;
}
/* floats of one panel */
static inline size_t panel_floats(size_t K)
{
    return ((K + 1) & ~(size_t)1) * PANEL;
}

/* What a panel of logits adds to the log-sum-exp of a row (all f64): its maximum m, S = sum exp(l -
 * m), and T = sum exp(l - m) * (l - m), from which the entropy follows. */
struct lse_part {
    double m, S, T;
};

enum unary { U_EXP, U_LOG, U_SIN, U_COS, U_TANH, U_ERF, U_SILU, U_GELU_TANH, U_GELU_ERF, U_COUNT };

struct kernels {
    enum cpu_level level;
    const char *name;

    /* y[r][c] = DOT_k x[r][k] w[k][c], r < n_rows, c < n_cols <= 64. x [n_rows] rows of ldx, y of
     * ldy. */
    void (*panel_gemm)(size_t n_rows, const float *x, size_t ldx, const float *panel, size_t K,
                       float *y, size_t ldy, size_t n_cols);

    /* The same sums for one row and one column: DOT_k x[k] w[k][c]. */
    float (*panel_dot)(const float *x, const float *panel, size_t K, size_t c);

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
