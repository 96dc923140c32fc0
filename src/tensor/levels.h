/* levels.h - the tables of kernels, one per instruction set (isa/). New level: one line here, one
 * in kernels.c. */
#ifndef TENSOR_LEVELS_H
#define TENSOR_LEVELS_H

#include "tensor/kernels.h"

extern const struct kernels kernels_ref;
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
extern const struct kernels kernels_avx512bf16,
    kernels_avx512bf16_fma; /* the second: see probe.c */
extern const struct kernels kernels_neon;

/* Linear layers (panels_ref.c); one block of the DOT order. */
float ref_block_sum(const float *x, const float *w, size_t depth);
void ref_pack_f32(size_t n_rows, const float *const *rows, size_t K, float *operand);
void ref_pack_bf16(size_t n_rows, const float *const *rows, size_t K, float *operand);
void ref_pack_int16(size_t n_rows, const float *const *rows, size_t K, float *operand);
void ref_gemm_f32(const struct gemm *gemm);
void ref_gemm_int16(const struct gemm *gemm);

/* 16 times s = fma(x.high, w.high, s), s = fma(x.low, w.low, s) of pairs of bf16, by an instruction
 * of a level; and whether it is that (probe.c). */
typedef void dot_pairs_fn(const uint32_t *x, const uint32_t *w, float *s);
dot_pairs_fn avx512bf16_dot;
bool dot_adds_in_order(dot_pairs_fn *dot);

/* Slots of kernels_ref.unary that a higher level may name as its own. */
void ref_exp(size_t n, const float *x, float *y);
void ref_log(size_t n, const float *x, float *y);
void ref_sin(size_t n, const float *x, float *y);
void ref_cos(size_t n, const float *x, float *y);
void ref_tanh(size_t n, const float *x, float *y);
void ref_erf(size_t n, const float *x, float *y);
void ref_silu(size_t n, const float *x, float *y);
void ref_gelu_tanh(size_t n, const float *x, float *y);
void ref_gelu_erf(size_t n, const float *x, float *y);

#endif
