/*
 * emulated_avx512.c - the AVX-512 kernels, with VDPBF16PS and without, on a machine that lacks
 * AVX-512, through SIMDe, as two more levels of the kernel tests. The few intrinsics that SIMDe
 * lacks are written here from Intel's definitions.
 */
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wshadow"
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <math.h>
#include <string.h>

#undef _mm512_madd_epi16 /* SIMDe's takes four arguments */
#undef _mm512_permutexvar_ps
#undef _mm512_cvtph_ps
#define _mm512_mask_loadu_ps emulated_mask_loadu
#define _mm512_mask_storeu_ps emulated_mask_storeu
#define _mm512_cvtps_pd emulated_widen
#define _mm512_cvtpd_ps emulated_narrow
#define _mm512_srai_epi32 emulated_srai
#define _mm512_cvtepi32_ps emulated_of_ints
#define _mm512_madd_epi16 emulated_madd
#define _mm512_permutexvar_ps emulated_permutexvar
#define _mm512_cvtph_ps emulated_halves
#define _mm512_dpbf16_ps emulated_dpbf16
#define __m512bh simde__m512i

static inline simde__m512 emulated_mask_loadu(simde__m512 src, simde__mmask16 mask, const float *p)
{
    simde__m512_private r = simde__m512_to_private(src);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) r.f32[i] = p[i];
    return simde__m512_from_private(r);
}
static inline void emulated_mask_storeu(float *p, simde__mmask16 mask, simde__m512 x)
{
    simde__m512_private r = simde__m512_to_private(x);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) p[i] = r.f32[i];
}
static inline simde__m512d emulated_widen(simde__m256 x)
{
    simde__m256_private a = simde__m256_to_private(x);
    simde__m512d_private r;
    for (int i = 0; i < 8; i++) r.f64[i] = (double)a.f32[i];
    return simde__m512d_from_private(r);
}
static inline simde__m256 emulated_narrow(simde__m512d x)
{
    simde__m512d_private a = simde__m512d_to_private(x);
    simde__m256_private r;
    for (int i = 0; i < 8; i++) r.f32[i] = (float)a.f64[i];
    return simde__m256_from_private(r);
}
static inline simde__m512i emulated_srai(simde__m512i x, unsigned n)
{
    simde__m512i_private a = simde__m512i_to_private(x), r;
    for (int i = 0; i < 2; i++) r.m256i[i] = simde_mm256_srai_epi32(a.m256i[i], (int)n);
    return simde__m512i_from_private(r);
}
static inline simde__m512 emulated_of_ints(simde__m512i x)
{
    simde__m512i_private a = simde__m512i_to_private(x);
    simde__m512_private r;
    for (int i = 0; i < 2; i++) r.m256[i] = simde_mm256_cvtepi32_ps(a.m256i[i]);
    return simde__m512_from_private(r);
}
static inline simde__m512i emulated_madd(simde__m512i x, simde__m512i y)
{
    simde__m512i_private a = simde__m512i_to_private(x), b = simde__m512i_to_private(y), r;
    for (int i = 0; i < 2; i++) r.m256i[i] = simde_mm256_madd_epi16(a.m256i[i], b.m256i[i]);
    return simde__m512i_from_private(r);
}
static inline simde__m512 emulated_permutexvar(simde__m512i index, simde__m512 x)
{
    simde__m512i_private at = simde__m512i_to_private(index);
    simde__m512_private a = simde__m512_to_private(x), r;
    for (int i = 0; i < 16; i++) r.f32[i] = a.f32[at.i32[i] & 15];
    return simde__m512_from_private(r);
}
static inline simde__m512 emulated_halves(simde__m256i x)
{
    simde__m256i_private a = simde__m256i_to_private(x);
    simde__m512_private r;
    for (int i = 0; i < 2; i++) r.m256[i] = simde_mm256_cvtph_ps(a.m128i[i]);
    return simde__m512_from_private(r);
}

/* VDPBF16PS: a subnormal counts as zero and becomes one, whatever the caller's mode. */
static inline float emulated_flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}
static inline float emulated_bf16(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return emulated_flush(x);
}
static inline simde__m512 emulated_dpbf16(simde__m512 sum, simde__m512i x, simde__m512i y)
{
    simde__m512_private s = simde__m512_to_private(sum);
    simde__m512i_private a = simde__m512i_to_private(x), b = simde__m512i_to_private(y);
    for (int i = 0; i < 16; i++)
        for (int half = 1; half >= 0; half--) {
            float u = emulated_bf16((uint32_t)a.u16[2 * i + half] << 16);
            float v = emulated_bf16((uint32_t)b.u16[2 * i + half] << 16);
            s.f32[i] = emulated_flush(fmaf(u, v, emulated_flush(s.f32[i])));
        }
    return simde__m512_from_private(s);
}

#define VEC_INTRINSICS <simde/x86/avx512.h>
#define kernels_avx512bf16 kernels_emulated
#define kernels_avx512bf16_fma kernels_emulated_fma
#define avx512bf16_dot emulated_dot
#include "tensor/isa/kernels_avx512bf16.c"
