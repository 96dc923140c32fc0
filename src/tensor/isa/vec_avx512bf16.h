/*
 * vec_avx512bf16.h - the vocabulary of vec_avx512.h and what bf16_tpl.h adds to it. In assembler:
 * gcc 12 copies every sum of the builtin twice and has no registers left then.
 */
#ifndef TENSOR_VEC_AVX512BF16_H
#define TENSOR_VEC_AVX512BF16_H

#include "tensor/isa/vec_avx512.h"

/* fma of the high halves, then of the low halves, as bf16; subnormals are zero, in and out. */
VEC v16 v_dot_bf16(v16 sum, n16 x, n16 y)
{
#ifdef __AVX512BF16__
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum.a) : "v"(x.a), "v"(y.a));
    return sum;
#else
    return (v16){_mm512_dpbf16_ps(sum.a, (__m512bh)x.a, (__m512bh)y.a)};
#endif
}

#endif
