/* benchkernels.h - checkkernels --bench: the speed of each kernel of this machine's levels. */
#ifndef TESTS_BENCHKERNELS_H
#define TESTS_BENCHKERNELS_H

/* Prints one line per case whose name contains `pattern`; products of matrices as a fraction of the
 * fma peak that was measured right before and after. "gemm": rows already packed; "linear": all of
 * a linear layer; "curve": gemm over numbers of rows. Weights come from the caches here, where a
 * model's come from memory when there are few rows. */
void bench_kernels(const char *pattern);

#endif
