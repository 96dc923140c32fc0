/*
 * kernels_neon.c - the kernels for Arm64. 32 registers of four lanes: a block of 6 rows takes one
 * tile (24 sums, four vectors of weights, one of x); one or two rows take more tiles, for 16 sums
 * in flight.
 */
#include "tensor/isa/vec_neon.h"

#define LEVEL CPU_NEON
#define LEVEL_NAME "neon"
#define LEVEL_TABLE kernels_neon
#define WIDE_TILES(X) X(1, 4) X(2, 2)
#define INT16_WIDE_TILES(X) X(1, 2)
#define DIRECT_WIDE_TILES(X) X(1, 2) X(2, 2)

#include "tensor/kernels_tpl.h"
