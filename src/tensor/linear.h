/*
 * linear.h - matrices packed in panels, and y = x W^T + b on all threads.
 */
#ifndef TENSOR_LINEAR_H
#define TENSOR_LINEAR_H

#include "base/pool.h"
#include "tensor/kernels.h"

/* W [N, K] as ceil(N/64) panels one after another, stored as `dtype`, computed with as `profile`;
 * bias [N] or NULL. Owns nothing: whoever makes one points it to matrix_bytes() zeroed bytes,
 * 64-byte aligned. N = 0: no matrix. */
struct matrix {
    enum dtype dtype;
    enum profile profile;
    uint8_t *panels;
    const float *bias;
    size_t N, K; /* K is a multiple of the type's block */
};

uint64_t matrix_bytes(enum dtype dtype, size_t N, size_t K); /* a multiple of 64 */

/* Packs elements k0 .. k0 + n_k of row n of W, stored as the matrix's type. Different panels, and
 * different blocks of 64 k, may be packed by different threads. k0: see panel_put. */
void matrix_put(struct matrix *matrix, size_t n, size_t k0, size_t n_k, const void *stored);

/* The f32 values of row n: an embedding of a tied head. */
void matrix_row(const struct matrix *matrix, size_t n, float *out);

static inline const void *matrix_panel(const struct matrix *matrix, size_t panel)
{
    return matrix->panels + panel * panel_bytes(matrix->dtype, matrix->K);
}

/* y[r][n] = x[r] . W[n] + bias[n] for n_matrices matrices of one K, whose outputs stand side by
 * side in y [n_rows][sum of N]. operand: scratch of n_rows * K floats. */
void linear(struct pool *pool, const struct kernels *kernels, const struct matrix *matrices,
            size_t n_matrices, size_t n_rows, const float *x, size_t ldx, float *operand, float *y,
            size_t ldy);

#endif
