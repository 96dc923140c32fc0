/*
 * vec_neon.h - the vocabulary of kernels_tpl.h in NEON (Arm64): 16 lanes of f32 (v_) and of f64
 * (d_), lane i standing for output, or element, i. Comparisons with NaN are false. Minima and
 * maxima are comparisons with a choice: FMIN and FMAX order the zeros and hand on NaN, x86 does
 * neither.
 */
#ifndef TENSOR_VEC_NEON_H
#define TENSOR_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>

#define VEC static inline __attribute__((always_inline))

typedef struct {
    float32x4_t a, b, c, d;
} v16; /* lanes 0..3, 4..7, 8..11, 12..15 */
typedef struct {
    float64x2_t a, b, c, d, e, f, g, h;
} d16; /* lanes 0..1, 2..3, ... 14..15 */

#define V1(op, x) ((v16){op((x).a), op((x).b), op((x).c), op((x).d)})
#define V2(op, x, y) ((v16){op((x).a, (y).a), op((x).b, (y).b), op((x).c, (y).c), op((x).d, (y).d)})
#define D2(op, x, y)                                                               \
    ((d16){op((x).a, (y).a), op((x).b, (y).b), op((x).c, (y).c), op((x).d, (y).d), \
           op((x).e, (y).e), op((x).f, (y).f), op((x).g, (y).g), op((x).h, (y).h)})

VEC v16 v_set(float x)
{
    float32x4_t v = vdupq_n_f32(x);
    return (v16){v, v, v, v};
}
VEC v16 v_load(const float *p)
{
    return (v16){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
VEC void v_store(float *p, v16 x)
{
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}

/* The first n (at most 16) of p; the other lanes are `fill`. NEON has no masked loads and stores,
 * so these go by way of memory of their own. */
VEC v16 v_load_some(const float *p, size_t n, float fill)
{
    if (n >= 16) return v_load(p);
    float some[16];
    v_store(some, v_set(fill));
    for (size_t i = 0; i < n; i++) some[i] = p[i];
    return v_load(some);
}
VEC void v_store_some(float *p, v16 x, size_t n)
{
    if (n >= 16) {
        v_store(p, x);
        return;
    }
    float some[16];
    v_store(some, x);
    for (size_t i = 0; i < n; i++) p[i] = some[i];
}

VEC v16 v_add(v16 x, v16 y)
{
    return V2(vaddq_f32, x, y);
}
VEC v16 v_sub(v16 x, v16 y)
{
    return V2(vsubq_f32, x, y);
}
VEC v16 v_mul(v16 x, v16 y)
{
    return V2(vmulq_f32, x, y);
}
VEC v16 v_div(v16 x, v16 y)
{
    return V2(vdivq_f32, x, y);
}
VEC float32x4_t max4(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}
VEC v16 v_max(v16 x, v16 y)
{
    return V2(max4, x, y);
} /* x > y ? x : y */
VEC float32x4_t min4(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcltq_f32(x, y), x, y);
}
VEC v16 v_min(v16 x, v16 y)
{
    return V2(min4, x, y);
} /* x < y ? x : y */
VEC v16 v_fma(v16 x, v16 y, v16 z)
{
    return (v16){vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
                 vfmaq_f32(z.d, x.d, y.d)};
}
VEC v16 v_neg(v16 x)
{
    return V1(vnegq_f32, x);
}
VEC float32x4_t neg_abs4(float32x4_t x)
{
    return vnegq_f32(vabsq_f32(x));
}
VEC v16 v_neg_abs(v16 x)
{
    return V1(neg_abs4, x);
}
VEC v16 v_select_negative(v16 x, v16 yes, v16 no) /* x < 0 ? yes : no */
{
    return (v16){vbslq_f32(vcltzq_f32(x.a), yes.a, no.a), vbslq_f32(vcltzq_f32(x.b), yes.b, no.b),
                 vbslq_f32(vcltzq_f32(x.c), yes.c, no.c), vbslq_f32(vcltzq_f32(x.d), yes.d, no.d)};
}
/* Bit i: lane i of four masks, in order. */
VEC unsigned v_bits(uint32x4_t a, uint32x4_t b, uint32x4_t c, uint32x4_t d)
{
    static const uint16_t weights[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint16x8_t bits = vld1q_u16(weights);
    uint16x8_t low = vcombine_u16(vmovn_u32(a), vmovn_u32(b));
    uint16x8_t high = vcombine_u16(vmovn_u32(c), vmovn_u32(d));
    return (unsigned)vaddvq_u16(vandq_u16(low, bits)) | (unsigned)vaddvq_u16(vandq_u16(high, bits))
                                                            << 8;
}
VEC unsigned v_greater(v16 x, v16 y)
{
    return v_bits(vcgtq_f32(x.a, y.a), vcgtq_f32(x.b, y.b), vcgtq_f32(x.c, y.c),
                  vcgtq_f32(x.d, y.d));
}
VEC unsigned v_equal(v16 x, v16 y)
{
    return v_bits(vceqq_f32(x.a, y.a), vceqq_f32(x.b, y.b), vceqq_f32(x.c, y.c),
                  vceqq_f32(x.d, y.d));
}

/* p 2^n for n the whole number in the low bits of t, as exp32 has it: two factors, one rounding. */
VEC float32x4_t scale4(float32x4_t p, float32x4_t t, int32x4_t round_bits)
{
    int32x4_t n = vsubq_s32(vreinterpretq_s32_f32(t), round_bits), h = vshrq_n_s32(n, 1);
    int32x4_t bias = vdupq_n_s32(127);
    int32x4_t low = vshlq_n_s32(vaddq_s32(h, bias), 23);
    int32x4_t high = vshlq_n_s32(vaddq_s32(vsubq_s32(n, h), bias), 23);
    return vmulq_f32(vmulq_f32(p, vreinterpretq_f32_s32(low)), vreinterpretq_f32_s32(high));
}
VEC v16 v_scale(v16 p, v16 t, float round)
{
    int32x4_t bits = vreinterpretq_s32_f32(vdupq_n_f32(round));
    return (v16){scale4(p.a, t.a, bits), scale4(p.b, t.b, bits), scale4(p.c, t.c, bits),
                 scale4(p.d, t.d, bits)};
}

/* lane i += lane i + 8, + 4, + 2, + 1 */
VEC float v_fold(v16 x)
{
    float32x4_t s4 = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
    return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}
VEC float v_fold_max(v16 x)
{
    float32x4_t s4 = max4(max4(x.a, x.c), max4(x.b, x.d));
    float32x2_t low = vget_low_f32(s4), high = vget_high_f32(s4);
    float32x2_t s2 = vbsl_f32(vcgt_f32(low, high), low, high);
    float first = vget_lane_f32(s2, 0), second = vget_lane_f32(s2, 1);
    return first > second ? first : second;
}

VEC d16 d_set(double x)
{
    float64x2_t v = vdupq_n_f64(x);
    return (d16){v, v, v, v, v, v, v, v};
}
VEC d16 d_widen(v16 x)
{
    return (d16){vcvt_f64_f32(vget_low_f32(x.a)), vcvt_high_f64_f32(x.a),
                 vcvt_f64_f32(vget_low_f32(x.b)), vcvt_high_f64_f32(x.b),
                 vcvt_f64_f32(vget_low_f32(x.c)), vcvt_high_f64_f32(x.c),
                 vcvt_f64_f32(vget_low_f32(x.d)), vcvt_high_f64_f32(x.d)};
}
VEC v16 d_narrow(d16 x)
{
    return (v16){
        vcvt_high_f32_f64(vcvt_f32_f64(x.a), x.b), vcvt_high_f32_f64(vcvt_f32_f64(x.c), x.d),
        vcvt_high_f32_f64(vcvt_f32_f64(x.e), x.f), vcvt_high_f32_f64(vcvt_f32_f64(x.g), x.h)};
}
VEC d16 d_add(d16 x, d16 y)
{
    return D2(vaddq_f64, x, y);
}
VEC d16 d_sub(d16 x, d16 y)
{
    return D2(vsubq_f64, x, y);
}
VEC d16 d_mul(d16 x, d16 y)
{
    return D2(vmulq_f64, x, y);
}
VEC d16 d_div(d16 x, d16 y)
{
    return D2(vdivq_f64, x, y);
}
VEC float64x2_t max2(float64x2_t x, float64x2_t y)
{
    return vbslq_f64(vcgtq_f64(x, y), x, y);
}
VEC d16 d_max(d16 x, d16 y)
{
    return D2(max2, x, y);
} /* x > y ? x : y */
VEC d16 d_fma(d16 x, d16 y, d16 z)
{
    return (d16){vfmaq_f64(z.a, x.a, y.a), vfmaq_f64(z.b, x.b, y.b), vfmaq_f64(z.c, x.c, y.c),
                 vfmaq_f64(z.d, x.d, y.d), vfmaq_f64(z.e, x.e, y.e), vfmaq_f64(z.f, x.f, y.f),
                 vfmaq_f64(z.g, x.g, y.g), vfmaq_f64(z.h, x.h, y.h)};
}
VEC d16 d_abs(d16 x)
{
    return (d16){vabsq_f64(x.a), vabsq_f64(x.b), vabsq_f64(x.c), vabsq_f64(x.d),
                 vabsq_f64(x.e), vabsq_f64(x.f), vabsq_f64(x.g), vabsq_f64(x.h)};
}
VEC float64x2_t or_sign2(float64x2_t x, float64x2_t of)
{
    return vbslq_f64(vdupq_n_u64((uint64_t)1 << 63), of, x);
}
VEC d16 d_or_sign(d16 x, d16 of) /* x >= 0 */
{
    return D2(or_sign2, x, of);
}
VEC float64x2_t less2(float64x2_t x, float64x2_t y, float64x2_t yes, float64x2_t no)
{
    return vbslq_f64(vcltq_f64(x, y), yes, no);
}
VEC d16 d_select_less(d16 x, d16 y, d16 yes, d16 no) /* x < y ? yes : no */
{
    return (d16){less2(x.a, y.a, yes.a, no.a), less2(x.b, y.b, yes.b, no.b),
                 less2(x.c, y.c, yes.c, no.c), less2(x.d, y.d, yes.d, no.d),
                 less2(x.e, y.e, yes.e, no.e), less2(x.f, y.f, yes.f, no.f),
                 less2(x.g, y.g, yes.g, no.g), less2(x.h, y.h, yes.h, no.h)};
}
/* p 2^n, n <= 0 the whole number in the low bits of t: exact times 2^(n + 64), then rounded by
 * 2^-64. */
VEC float64x2_t scale2(float64x2_t p, float64x2_t t)
{
    int64x2_t bits = vaddq_s64(vreinterpretq_s64_f64(t), vdupq_n_s64(1023 + 64));
    p = vmulq_f64(p, vreinterpretq_f64_s64(vshlq_n_s64(bits, 52)));
    return vmulq_f64(p, vdupq_n_f64(0x1p-64));
}
VEC d16 d_scale_down(d16 p, d16 t)
{
    return D2(scale2, p, t);
}
VEC double d_fold(d16 x)
{
    float64x2_t s4a = vaddq_f64(vaddq_f64(x.a, x.e), vaddq_f64(x.c, x.g));
    float64x2_t s4b = vaddq_f64(vaddq_f64(x.b, x.f), vaddq_f64(x.d, x.h));
    float64x2_t s2 = vaddq_f64(s4a, s4b);
    return vgetq_lane_f64(s2, 0) + vgetq_lane_f64(s2, 1);
}

/* ---- 16 lanes of 32 bits: words of stored weights -------------------------------------------- */

typedef struct {
    uint32x4_t a, b, c, d;
} n16;

#define N1(op, x, n) ((n16){op((x).a, n), op((x).b, n), op((x).c, n), op((x).d, n)})
#define N2(op, x, y) ((n16){op((x).a, (y).a), op((x).b, (y).b), op((x).c, (y).c), op((x).d, (y).d)})

VEC n16 n_set(uint32_t x)
{
    uint32x4_t v = vdupq_n_u32(x);
    return (n16){v, v, v, v};
}
VEC n16 n_load(const void *p) /* 16 words */
{
    const uint32_t *q = p;
    return (n16){vld1q_u32(q), vld1q_u32(q + 4), vld1q_u32(q + 8), vld1q_u32(q + 12)};
}
VEC void n_store(void *p, n16 x)
{
    uint32_t *q = p;
    vst1q_u32(q, x.a);
    vst1q_u32(q + 4, x.b);
    vst1q_u32(q + 8, x.c);
    vst1q_u32(q + 12, x.d);
}
VEC n16 n_and(n16 x, n16 y)
{
    return N2(vandq_u32, x, y);
}
VEC n16 n_or(n16 x, n16 y)
{
    return N2(vorrq_u32, x, y);
}
VEC n16 n_add(n16 x, n16 y)
{
    return N2(vaddq_u32, x, y);
}
/* Operators, since the intrinsics with an immediate want one at -O0 too. */
VEC uint32x4_t left4(uint32x4_t x, int n)
{
    return x << n;
}
VEC n16 n_left(n16 x, int n)
{
    return N1(left4, x, n);
}
VEC uint32x4_t right4(uint32x4_t x, int n)
{
    return x >> n;
}
VEC n16 n_right(n16 x, int n) /* zeros come in */
{
    return N1(right4, x, n);
}
VEC uint32x4_t right_signed4(uint32x4_t x, int n)
{
    return vreinterpretq_u32_s32(vreinterpretq_s32_u32(x) >> n);
}
VEC n16 n_right_signed(n16 x, int n)
{
    return N1(right_signed4, x, n);
}
VEC uint32x4_t pairs_left4(uint32x4_t x, int n)
{
    return vreinterpretq_u32_u16(vreinterpretq_u16_u32(x) << (uint16_t)n);
}
VEC n16 n_pairs_left(n16 x, int n) /* each half of a lane for itself */
{
    return N1(pairs_left4, x, n);
}
VEC uint32x4_t pairs_right_signed4(uint32x4_t x, int n)
{
    return vreinterpretq_u32_s16(vreinterpretq_s16_u32(x) >> (int16_t)n);
}
VEC n16 n_pairs_right_signed(n16 x, int n)
{
    return N1(pairs_right_signed4, x, n);
}
VEC uint32x4_t pairs_sub4(uint32x4_t x, uint32x4_t y)
{
    return vreinterpretq_u32_u16(vsubq_u16(vreinterpretq_u16_u32(x), vreinterpretq_u16_u32(y)));
}
VEC n16 n_pairs_sub(n16 x, n16 y)
{
    return N2(pairs_sub4, x, y);
}
VEC uint32x4_t products4(uint32x4_t x, uint32x4_t y)
{
    int16x8_t p = vreinterpretq_s16_u32(x), q = vreinterpretq_s16_u32(y);
    int32x4_t low = vmull_s16(vget_low_s16(p), vget_low_s16(q)), high = vmull_high_s16(p, q);
    return vreinterpretq_u32_s32(vpaddq_s32(low, high));
}
/* sum + x.low y.low + x.high y.high of 16-bit integers, signed */
VEC n16 n_dot_pairs(n16 sum, n16 x, n16 y)
{
    return n_add(sum, N2(products4, x, y));
}
VEC float32x4_t of_ints4(uint32x4_t x)
{
    return vcvtq_f32_s32(vreinterpretq_s32_u32(x));
}
VEC v16 v_of_ints(n16 x) /* signed */
{
    return V1(of_ints4, x);
}
VEC v16 v_of_bits(n16 x)
{
    return V1(vreinterpretq_f32_u32, x);
}
VEC n16 n_of_bits(v16 x)
{
    return (n16){vreinterpretq_u32_f32(x.a), vreinterpretq_u32_f32(x.b), vreinterpretq_u32_f32(x.c),
                 vreinterpretq_u32_f32(x.d)};
}
VEC v16 v_of_halves(const void *p) /* 16 f16 */
{
    const float16_t *q = p;
    return (v16){vcvt_f32_f16(vld1_f16(q)), vcvt_f32_f16(vld1_f16(q + 4)),
                 vcvt_f32_f16(vld1_f16(q + 8)), vcvt_f32_f16(vld1_f16(q + 12))};
}

#endif
