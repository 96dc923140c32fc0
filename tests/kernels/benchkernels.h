/* benchkernels.h - checkkernels --bench: the speed of each kernel of this machine's levels. */
#ifndef TESTS_BENCHKERNELS_H
#define TESTS_BENCHKERNELS_H

/* Prints one line per kernel whose name contains `pattern`; the GEMM as a fraction of the fma peak
 * that was measured right before. */
void bench_kernels(const char *pattern);

#endif
