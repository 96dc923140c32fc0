/*
 * kernels.c - which table of kernels runs. A level that was not built falls back to the one below
 * it, which gives the same bits; a level whose instruction is found to add in another order, to a
 * table without it.
 */
#include "tensor/levels.h"

static const struct {
    const struct kernels *table;
    dot_pairs_fn *probed; /* what `table` takes for granted, or NULL */
    const struct kernels *without;
} levels[CPU_LEVELS] = {
    [CPU_REF] = {.table = &kernels_ref},
#ifdef HAVE_AVX2
    [CPU_AVX2] = {.table = &kernels_avx2},
#endif
#ifdef HAVE_AVX512
    [CPU_AVX512] = {.table = &kernels_avx512},
#endif
#ifdef HAVE_AVX512BF16
    [CPU_AVX512BF16] = {&kernels_avx512bf16, avx512bf16_dot, &kernels_avx512bf16_fma},
#endif
#ifdef HAVE_NEON
    [CPU_NEON] = {.table = &kernels_neon},
#endif
};

const struct kernels *kernels_get(enum cpu_level level)
{
    if ((unsigned)level >= CPU_LEVELS) level = CPU_REF;
    while (!levels[level].table) level = cpu_level_below(level);
    dot_pairs_fn *dot = levels[level].probed;
    bool as_expected = !dot || (cpu_has(level) && dot_adds_in_order(dot));
    return as_expected ? levels[level].table : levels[level].without;
}
