/*
 * kernels.c - which table of kernels runs. A level that was not built falls back to the one below
 * it, which gives the same bits.
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
#ifdef HAVE_NEON
    [CPU_NEON] = &kernels_neon,
#endif
};

const struct kernels *kernels_get(enum cpu_level level)
{
    if ((unsigned)level >= CPU_LEVELS) level = CPU_REF;
    while (!tables[level]) level = cpu_level_below(level);
    return tables[level];
}
