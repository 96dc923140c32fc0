/*
 * dequant.c - the f32 value of every stored weight: each type by its own formula, one f32 rounding
 * per written operation.
 *
 * Blocks hold 32 weights; d and m are f16, little-endian (as the machine). q is a nibble: element
 * j < 16 lies in the low half of byte j, element j + 16 in its high half. The fifth bit of element
 * j is bit j of qh.
 *
 *   Q4_0  [d 2][q 16]            (q - 8) d            Q5_0  [d 2][qh 4][q 16]         (q - 16) d
 *   Q4_1  [d 2][m 2][q 16]       q d + m              Q5_1  [d 2][m 2][qh 4][q 16]    q d + m
 *   Q8_0  [d 2][q 32, signed]    q d
 */
#include "tensor/bits.h"
#include "tensor/tensor.h"
#include <math.h>

#define BLOCK 32

static float half_at(const uint8_t *bytes)
{
    return half_to_float(bytes[0] | (uint32_t)bytes[1] << 8);
}

static void dequant_f32(const uint8_t *in, float *out, size_t n)
{
    memcpy(out, in, n * sizeof *out);
}

static void dequant_f16(const uint8_t *in, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = half_at(in + 2 * i);
}

static void dequant_bf16(const uint8_t *in, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = float_of((uint32_t)in[2 * i] << 16 | (uint32_t)in[2 * i + 1] << 24);
}

static void dequant_q4_0(const uint8_t *in, float *out, size_t n)
{
    for (; n; n -= BLOCK, in += 18, out += BLOCK) {
        float d = half_at(in);
        for (int j = 0; j < BLOCK / 2; j++) {
            out[j] = (float)((in[2 + j] & 15) - 8) * d;
            out[j + BLOCK / 2] = (float)((in[2 + j] >> 4) - 8) * d;
        }
    }
}

static void dequant_q4_1(const uint8_t *in, float *out, size_t n)
{
    for (; n; n -= BLOCK, in += 20, out += BLOCK) {
        float d = half_at(in), m = half_at(in + 2);
        for (int j = 0; j < BLOCK / 2; j++) {
            out[j] = (float)(in[4 + j] & 15) * d + m;
            out[j + BLOCK / 2] = (float)(in[4 + j] >> 4) * d + m;
        }
    }
}

static uint32_t fifth_bits(const uint8_t *qh)
{
    return qh[0] | (uint32_t)qh[1] << 8 | (uint32_t)qh[2] << 16 | (uint32_t)qh[3] << 24;
}

static void dequant_q5_0(const uint8_t *in, float *out, size_t n)
{
    for (; n; n -= BLOCK, in += 22, out += BLOCK) {
        float d = half_at(in);
        uint32_t qh = fifth_bits(in + 2);
        for (int j = 0; j < BLOCK / 2; j++) {
            int low = (in[6 + j] & 15) | (int)(qh >> j << 4 & 16);
            int high = in[6 + j] >> 4 | (int)(qh >> (j + BLOCK / 2) << 4 & 16);
            out[j] = (float)(low - 16) * d;
            out[j + BLOCK / 2] = (float)(high - 16) * d;
        }
    }
}

static void dequant_q5_1(const uint8_t *in, float *out, size_t n)
{
    for (; n; n -= BLOCK, in += 24, out += BLOCK) {
        float d = half_at(in), m = half_at(in + 2);
        uint32_t qh = fifth_bits(in + 4);
        for (int j = 0; j < BLOCK / 2; j++) {
            int low = (in[8 + j] & 15) | (int)(qh >> j << 4 & 16);
            int high = in[8 + j] >> 4 | (int)(qh >> (j + BLOCK / 2) << 4 & 16);
            out[j] = (float)low * d + m;
            out[j + BLOCK / 2] = (float)high * d + m;
        }
    }
}

static void dequant_q8_0(const uint8_t *in, float *out, size_t n)
{
    for (; n; n -= BLOCK, in += 34, out += BLOCK) {
        float d = half_at(in);
        for (int j = 0; j < BLOCK; j++) out[j] = (float)(int8_t)in[2 + j] * d;
    }
}

static void (*const dequantizers[DT_COUNT])(const uint8_t *in, float *out, size_t n) = {
    [DT_F32] = dequant_f32,   [DT_F16] = dequant_f16,   [DT_BF16] = dequant_bf16,
    [DT_Q4_0] = dequant_q4_0, [DT_Q4_1] = dequant_q4_1, [DT_Q5_0] = dequant_q5_0,
    [DT_Q5_1] = dequant_q5_1, [DT_Q8_0] = dequant_q8_0,
};

void dequantize(enum dtype dtype, const void *blocks, float *out, size_t n_elements)
{
    dequantizers[dtype](blocks, out, n_elements);
}

/* Adding one to an exponent of all ones sets the sign bit, so many are asked at once. */
#define TOGETHER 64
size_t first_nonfinite(const float *values, size_t n)
{
    size_t i = 0;
    for (uint32_t any = 0; i + TOGETHER <= n; i += TOGETHER) {
        for (size_t k = 0; k < TOGETHER; k++)
            any |= (bits_of(values[i + k]) & 0x7f800000u) + 0x00800000u;
        if (any & 0x80000000u) break;
    }
    while (i < n && fabsf(values[i]) < INFINITY) i++;
    return i;
}
