/*
 * kcheck.h - what the kernel tests share: levels to try, operands that end at a guard page, values
 * that are hard on arithmetic, a comparer of bits in which NaN equals NaN, and the count of
 * verdicts.
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
/* n weights as a file stores them (whole blocks); d and m of quantised types are finite. */
void fill_stored(enum dtype dtype, uint8_t *stored, size_t n, enum fill fill);
uint64_t random64(void);
size_t random_below(size_t n);

bool same_floats(const float *a, const float *b, size_t n);
bool same_double(double a, double b);

/* Verdicts of the whole program. `answers` is a hash of every wanted value that agree() met, NaN as
 * one value: a change of any bit, or of a compiler's mind, shows. */
struct verdicts {
    size_t n_passed, n_failed;
    bool quiet; /* failures are expected */
    uint64_t answers;
};
extern struct verdicts verdicts;
bool agree(const float *got, const float *want, size_t n);
bool agree_double(double got, double want);
void verdict(bool ok, const struct kernels *k, const char *what, size_t a, size_t b, size_t c);

/* checkproducts.c */
void check_weights(const struct kernels *k);
void check_gemm(const struct kernels *k);
void check_scores(const struct kernels *k);
void check_mix(const struct kernels *k);
void negative_controls(void);

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* Billions of operations a second of back-to-back fma of the level's width on this core; 0:
 * unknown. */
double peak_gflops(enum cpu_level level);
double seconds(void); /* of this thread's processor time, so that a busy machine disturbs less */

#endif
