/*
 * kernels_avx2.c - the kernels for AVX2 with FMA. 16 registers: a block of 6 rows takes one tile
 * (12 sums, two vectors of weights, one of x); fewer rows take more tiles, for 8 to 12 sums in
 * flight.
 */
#include "tensor/isa/vec_avx2.h"

#define LEVEL CPU_AVX2
#define LEVEL_NAME "avx2"
#define LEVEL_TABLE kernels_avx2
#define WIDE_TILES(X) X(1, 4) X(2, 2)
#define INT16_WIDE_TILES(X) X(1, 2)
#define DIRECT_WIDE_TILES(X) X(1, 2) X(2, 2)

#include "tensor/kernels_tpl.h"
