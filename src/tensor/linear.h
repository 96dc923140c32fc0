/*
 * linear.h - matrices packed in panels, and y = x W^T + b on all threads.
 */
#ifndef TENSOR_LINEAR_H
#define TENSOR_LINEAR_H

#include "base/pool.h"
#include "tensor/kernels.h"

/* W [N, K] as ceil(N/64) panels one after another; bias [N] or NULL. Memory from big_alloc. */
struct matrix {
    float *panels;
    float *bias;
    size_t N, K;
};

np_status matrix_init(struct matrix *matrix, size_t N, size_t K, bool with_bias, np_error *err);
void matrix_free(struct matrix *matrix);
size_t matrix_bytes(size_t N, size_t K, bool with_bias);

/* Packs n_rows rows of W (row-major, ldw) as outputs n0.. of the matrix. Different rows may be
 * packed by different threads when they are in different panels. */
void matrix_pack_rows(struct matrix *matrix, size_t n0, size_t n_rows, const float *w, size_t ldw);

/* Reads row n (K values) back, the bits that were packed: an embedding of a tied head. */
void matrix_row(const struct matrix *matrix, size_t n, float *out);

/* y[r][n] = DOT_k x[r][k] W[n][k] (+ bias[n]), x [n_rows][K] with ldx, y [n_rows][N] with ldy. */
void linear(struct pool *pool, const struct kernels *kernels, const struct matrix *matrix,
            size_t n_rows, const float *x, size_t ldx, float *y, size_t ldy);

#endif
