/* kernels_avx512.c - the kernels for AVX-512 (F, BW, DQ, VL). */
#include "tensor/isa/vec_avx512.h"

#define LEVEL CPU_AVX512
#define LEVEL_NAME "avx512"
#define LEVEL_TABLE kernels_avx512
#include "tensor/isa/tiles_avx512.h"

#include "tensor/kernels_tpl.h"
