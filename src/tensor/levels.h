/* levels.h - the tables of kernels, one per instruction set (isa/). New level: one line here, one in kernels.c. */
#ifndef TENSOR_LEVELS_H
#define TENSOR_LEVELS_H

#include "tensor/kernels.h"

extern const struct kernels kernels_ref;
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;

#endif
