/*
 * kernels_avx512.c - the kernels for AVX-512. 32 registers: a block of 6 rows takes all four tiles
 * of a panel (24 sums, four vectors of weights, one of x), so that each value of x is loaded once
 * per panel.
 */
#include "tensor/isa/vec_avx512.h"

#define LEVEL CPU_AVX512
#define LEVEL_NAME "avx512"
#define LEVEL_TABLE kernels_avx512
#define WIDE_TILES(X) X(1, 4) X(2, 4) X(3, 4) X(4, 4) X(5, 4) X(6, 4)

#define INT16_WIDE_TILES(X) X(1, 4) X(2, 4) X(3, 2) X(4, 2) X(5, 2) X(6, 2)
#define DIRECT_TILES 4

#include "tensor/kernels_tpl.h"
