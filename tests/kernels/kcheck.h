/*
 * kcheck.h - what the kernel tests share: levels to try, operands that end at a guard page, values
 * that are hard on arithmetic, and a comparer of bits in which NaN equals NaN.
 */
#ifndef TESTS_KCHECK_H
#define TESTS_KCHECK_H

#include "tensor/kernels.h"

/* Every level that can run here but ref: the machine's own, and those that are emulated. */
size_t kcheck_levels(const struct kernels *levels[], size_t max);

/* n floats whose last byte is followed by a page that must not be touched; NaN everywhere. There
 * are GUARDED_SLOTS independent ones, each of at most GUARDED_FLOATS. The start of slot memory is
 * 64-byte aligned when n is a multiple of 16. */
#define GUARDED_SLOTS 16
#define GUARDED_FLOATS (1u << 18)
float *guarded(size_t slot, size_t n);

/* Kinds of values; FILL_WILD has infinities and NaN too. */
enum fill { FILL_PLAIN, FILL_RATIO, FILL_TINY, FILL_ZERO, FILL_WHOLE, FILL_WILD, FILL_COUNT };
void fill_floats(float *x, size_t n, enum fill fill);
uint64_t random64(void);
size_t random_below(size_t n);

bool same_floats(const float *a, const float *b, size_t n);
bool same_double(double a, double b);

/* Billions of operations a second of back-to-back fma of the level's width on this core; 0:
 * unknown. */
double peak_gflops(enum cpu_level level);
double seconds(void); /* of this thread's processor time, so that a busy machine disturbs less */

#endif
