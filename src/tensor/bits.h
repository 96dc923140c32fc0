/* bits.h - floats and the integers that hold their bits. */
#ifndef TENSOR_BITS_H
#define TENSOR_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Exact, and without a branch. Exponent and mantissa are moved to their places in an f32, where
 * 2^112 makes up for the bias, subnormals too; infinities and NaN then need all bits of the
 * exponent. */
static inline float half_to_float(uint32_t h)
{
    uint32_t magnitude = h & 0x7fff;
    uint32_t special = magnitude >= 0x7c00 ? 0x7f800000 : 0;
    uint32_t bits = bits_of(float_of(magnitude << 13) * 0x1p112f);
    return float_of(bits | special | (h & 0x8000) << 16);
}

/* To the nearest bf16, ties to even; NaN stays NaN. Below 2^-50 in magnitude it is +0: then every
 * product is a multiple of 2^-114 and no sum is subnormal, so that instructions which flush those
 * give the same bits (docs/NUMERICS.md). */
static inline uint32_t bf16_bits(float x)
{
    uint32_t u = bits_of(x), magnitude = u & 0x7fffffff;
    uint32_t rounded = magnitude > 0x7f800000 ? u | 0x400000 : u + 0x7fff + (u >> 16 & 1);
    return (rounded & 0x7fffffff) < (127 - 50) << 23 ? 0 : rounded >> 16;
}

#endif
