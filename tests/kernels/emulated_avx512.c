/*
 * emulated_avx512.c - the AVX-512 kernels on a machine without AVX-512, through SIMDe, as one more
 * level of the kernel tests. The few intrinsics that SIMDe lacks are written here from Intel's
 * definitions.
 */
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wshadow"
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#define _mm512_mask_loadu_ps emulated_mask_loadu
#define _mm512_mask_storeu_ps emulated_mask_storeu
#define _mm512_cvtps_pd emulated_widen
#define _mm512_cvtpd_ps emulated_narrow

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

#define VEC_INTRINSICS <simde/x86/avx512.h>
#define kernels_avx512 kernels_emulated
#include "tensor/isa/kernels_avx512.c"
