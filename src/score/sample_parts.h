/*
 * sample_parts.h - the steps of sample.h one by one, for sample.c and for tests.
 */
#ifndef SCORE_SAMPLE_PARTS_H
#define SCORE_SAMPLE_PARTS_H

#include "score/sample.h"

/* Steps 1 to 5. `bits`: n_vocab bits of scratch, in whole words. */
void row_adjust(const struct sample_input *input, float *logits, size_t n_vocab, uint64_t *bits);

/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011). */
void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* In [0, 1), a multiple of 2^-53: key = seed, counter = position and choice, low words first; the
 * upper 53 bits of words 1 and 0 of the output. */
double sample_uniform(uint64_t seed, uint64_t choice, uint64_t position);

/* Keys ascend as logits fall; -0 counts as +0. */
uint32_t key_of(float logit);
float key_logit(uint32_t key);

/* Sorts n keys; `other` has n places, counts SORT_COUNTS. Returns the array, of the two, that holds
 * the result. */
#define SORT_COUNTS 6144
uint32_t *keys_sort(uint32_t *keys, uint32_t *other, size_t n, uint32_t *counts);

#endif
