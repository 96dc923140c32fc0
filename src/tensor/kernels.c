/*
 * kernels.c - which table of kernels runs. A level that was not built for this platform falls back
 * to the next lower one, which gives the same bits.
 */
#include "tensor/levels.h"

static const struct kernels *const tables[CPU_LEVELS] = {
    [CPU_REF] = &kernels_ref,
#ifdef HAVE_AVX2
    [CPU_AVX2] = &kernels_avx2,
#endif
#ifdef HAVE_AVX512
    [CPU_AVX512] = &kernels_avx512,
#endif
};

const struct kernels *kernels_get(enum cpu_level level)
{
    int i = level < CPU_LEVELS ? (int)level : CPU_LEVELS - 1;
    while (!tables[i]) i--;
    return tables[i];
}
