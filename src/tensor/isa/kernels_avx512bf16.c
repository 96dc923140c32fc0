/*
 * kernels_avx512bf16.c - the kernels for AVX-512 with BF16 and VNNI: those of avx512, but for two
 * profiles. int16 takes VPDPWSSD by the vocabulary; bf16 takes VDPBF16PS, in a table of its own, so
 * that a machine whose VDPBF16PS adds in another order still has the rest.
 */
#include "tensor/isa/vec_avx512bf16.h"

#define LEVEL CPU_AVX512BF16
#define LEVEL_NAME "avx512bf16"
#define LEVEL_TABLE kernels_avx512bf16_fma
#include "tensor/isa/tiles_avx512.h"

#include "tensor/bf16_tpl.h"

const struct kernels kernels_avx512bf16 = KERNELS(pack_bf16_pairs, gemm_bf16_pairs);

void avx512bf16_dot(const uint32_t *x, const uint32_t *w, float *s)
{
    v_store(s, v_dot_bf16(v_load(s), n_load(x), n_load(w)));
}
