/*
 * vec_avx512.h - the vocabulary of kernels_tpl.h in AVX-512 (F, BW, DQ, VL): 16 lanes of f32 (v_)
 * and of f64 (d_). Comparisons with NaN are false. VEC_INTRINSICS names another header than the
 * compiler's, so that a test can run these sequences on a machine that lacks the instructions.
 */
#ifndef TENSOR_VEC_AVX512_H
#define TENSOR_VEC_AVX512_H

#ifdef VEC_INTRINSICS
#include VEC_INTRINSICS
#else
#include <immintrin.h>
#endif

#include <stdint.h>

#define VEC static inline __attribute__((always_inline))

typedef struct {
    __m512 a;
} v16;
typedef struct {
    __m512d a, b;
} d16; /* lanes 0..7, 8..15 */

#define D2(op, x, y) ((d16){op((x).a, (y).a), op((x).b, (y).b)})

VEC v16 v_set(float x)
{
    return (v16){_mm512_set1_ps(x)};
}
VEC v16 v_load(const float *p)
{
    return (v16){_mm512_loadu_ps(p)};
}
VEC void v_store(float *p, v16 x)
{
    _mm512_storeu_ps(p, x.a);
}

/* The first n (at most 16) of p; the other lanes are `fill`. */
VEC v16 v_load_some(const float *p, size_t n, float fill)
{
    if (n >= 16) return v_load(p);
    return (v16){_mm512_mask_loadu_ps(_mm512_set1_ps(fill), (__mmask16)((1u << n) - 1), p)};
}
VEC void v_store_some(float *p, v16 x, size_t n)
{
    if (n >= 16)
        v_store(p, x);
    else
        _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x.a);
}

VEC v16 v_add(v16 x, v16 y)
{
    return (v16){_mm512_add_ps(x.a, y.a)};
}
VEC v16 v_sub(v16 x, v16 y)
{
    return (v16){_mm512_sub_ps(x.a, y.a)};
}
VEC v16 v_mul(v16 x, v16 y)
{
    return (v16){_mm512_mul_ps(x.a, y.a)};
}
VEC v16 v_div(v16 x, v16 y)
{
    return (v16){_mm512_div_ps(x.a, y.a)};
}
VEC v16 v_max(v16 x, v16 y)
{
    return (v16){_mm512_max_ps(x.a, y.a)};
} /* x > y ? x : y */
VEC v16 v_min(v16 x, v16 y)
{
    return (v16){_mm512_min_ps(x.a, y.a)};
} /* x < y ? x : y */
VEC v16 v_fma(v16 x, v16 y, v16 z)
{
    return (v16){_mm512_fmadd_ps(x.a, y.a, z.a)};
}
VEC v16 v_neg(v16 x)
{
    return (v16){_mm512_xor_ps(x.a, _mm512_set1_ps(-0.0f))};
}
VEC v16 v_neg_abs(v16 x)
{
    return (v16){_mm512_or_ps(x.a, _mm512_set1_ps(-0.0f))};
}
VEC v16 v_select_negative(v16 x, v16 yes, v16 no) /* x < 0 ? yes : no */
{
    return (v16){
        _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.a, _mm512_set1_ps(0), _CMP_LT_OQ), no.a, yes.a)};
}
VEC unsigned v_greater(v16 x, v16 y)
{
    return _mm512_cmp_ps_mask(x.a, y.a, _CMP_GT_OQ);
} /* bit i: lane i */
VEC unsigned v_equal(v16 x, v16 y)
{
    return _mm512_cmp_ps_mask(x.a, y.a, _CMP_EQ_OQ);
}

/* p 2^n for n the whole number in the low bits of t, as exp32 has it: two factors, one rounding. */
VEC v16 v_scale(v16 p, v16 t, float round)
{
    __m512i bits = _mm512_castps_si512(_mm512_set1_ps(round)), even = _mm512_set1_epi32(512);
    __m512i n = _mm512_sub_epi32(_mm512_castps_si512(t.a), bits);
    __m512i h = _mm512_srli_epi32(_mm512_add_epi32(n, even), 1); /* floor(n / 2) + 256 */
    __m512i low = _mm512_slli_epi32(_mm512_add_epi32(h, _mm512_set1_epi32(127 - 256)), 23);
    __m512i high = _mm512_slli_epi32(
        _mm512_add_epi32(_mm512_sub_epi32(n, h), _mm512_set1_epi32(127 + 256)), 23);
    return (v16){
        _mm512_mul_ps(_mm512_mul_ps(p.a, _mm512_castsi512_ps(low)), _mm512_castsi512_ps(high))};
}

VEC __m256 upper8(__m512 x)
{
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
}
/* lane i += lane i + 8, + 4, + 2, + 1 */
VEC float v_fold(v16 x)
{
    __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(x.a), upper8(x.a));
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
VEC float v_fold_max(v16 x)
{
    __m256 s8 = _mm256_max_ps(_mm512_castps512_ps256(x.a), upper8(x.a));
    __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

VEC d16 d_set(double x)
{
    return (d16){_mm512_set1_pd(x), _mm512_set1_pd(x)};
}
VEC d16 d_widen(v16 x)
{
    return (d16){_mm512_cvtps_pd(_mm512_castps512_ps256(x.a)), _mm512_cvtps_pd(upper8(x.a))};
}
VEC v16 d_narrow(d16 x)
{
    __m512d low = _mm512_castps_pd(_mm512_castps256_ps512(_mm512_cvtpd_ps(x.a)));
    return (v16){
        _mm512_castpd_ps(_mm512_insertf64x4(low, _mm256_castps_pd(_mm512_cvtpd_ps(x.b)), 1))};
}
VEC d16 d_add(d16 x, d16 y)
{
    return D2(_mm512_add_pd, x, y);
}
VEC d16 d_sub(d16 x, d16 y)
{
    return D2(_mm512_sub_pd, x, y);
}
VEC d16 d_mul(d16 x, d16 y)
{
    return D2(_mm512_mul_pd, x, y);
}
VEC d16 d_div(d16 x, d16 y)
{
    return D2(_mm512_div_pd, x, y);
}
VEC d16 d_max(d16 x, d16 y)
{
    return D2(_mm512_max_pd, x, y);
} /* x > y ? x : y */
VEC d16 d_fma(d16 x, d16 y, d16 z)
{
    return (d16){_mm512_fmadd_pd(x.a, y.a, z.a), _mm512_fmadd_pd(x.b, y.b, z.b)};
}
VEC d16 d_abs(d16 x)
{
    d16 sign = d_set(-0.0);
    return D2(_mm512_andnot_pd, sign, x);
}
VEC d16 d_or_sign(d16 x, d16 of) /* x >= 0 */
{
    d16 sign = d_set(-0.0), bit = D2(_mm512_and_pd, sign, of);
    return D2(_mm512_or_pd, x, bit);
}
VEC d16 d_select_less(d16 x, d16 y, d16 yes, d16 no) /* x < y ? yes : no */
{
    return (d16){_mm512_mask_blend_pd(_mm512_cmp_pd_mask(x.a, y.a, _CMP_LT_OQ), no.a, yes.a),
                 _mm512_mask_blend_pd(_mm512_cmp_pd_mask(x.b, y.b, _CMP_LT_OQ), no.b, yes.b)};
}
/* p 2^n, n <= 0 the whole number in the low bits of t: exact times 2^(n + 64), then rounded by
 * 2^-64. */
VEC __m512d scale8(__m512d p, __m512d t)
{
    __m512i bits = _mm512_add_epi64(_mm512_castpd_si512(t), _mm512_set1_epi64(1023 + 64));
    p = _mm512_mul_pd(p, _mm512_castsi512_pd(_mm512_slli_epi64(bits, 52)));
    return _mm512_mul_pd(p, _mm512_set1_pd(0x1p-64));
}
VEC d16 d_scale_down(d16 p, d16 t)
{
    return D2(scale8, p, t);
}
VEC double d_fold(d16 x)
{
    __m512d s8 = _mm512_add_pd(x.a, x.b);
    __m256d s4 = _mm256_add_pd(_mm512_castpd512_pd256(s8), _mm512_extractf64x4_pd(s8, 1));
    __m128d s2 = _mm_add_pd(_mm256_castpd256_pd128(s4), _mm256_extractf128_pd(s4, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s2, _mm_unpackhi_pd(s2, s2)));
}

/* ---- 16 lanes of 32 bits: words of stored weights -------------------------------------------- */

typedef struct {
    __m512i a;
} n16;

VEC n16 n_set(uint32_t x)
{
    return (n16){_mm512_set1_epi32((int)x)};
}
VEC n16 n_load(const void *p) /* 16 words */
{
    return (n16){_mm512_loadu_si512(p)};
}
VEC void n_store(void *p, n16 x)
{
    _mm512_storeu_si512(p, x.a);
}
VEC n16 n_and(n16 x, n16 y)
{
    return (n16){_mm512_and_si512(x.a, y.a)};
}
VEC n16 n_or(n16 x, n16 y)
{
    return (n16){_mm512_or_si512(x.a, y.a)};
}
VEC n16 n_add(n16 x, n16 y)
{
    return (n16){_mm512_add_epi32(x.a, y.a)};
}
VEC n16 n_left(n16 x, int n)
{
    return (n16){_mm512_slli_epi32(x.a, (unsigned)n)};
}
VEC n16 n_right(n16 x, int n) /* zeros come in */
{
    return (n16){_mm512_srli_epi32(x.a, (unsigned)n)};
}
VEC n16 n_right_signed(n16 x, int n)
{
    return (n16){_mm512_srai_epi32(x.a, (unsigned)n)};
}
VEC n16 n_pairs_left(n16 x, int n) /* each half of a lane for itself */
{
    return (n16){_mm512_slli_epi16(x.a, (unsigned)n)};
}
VEC n16 n_pairs_right_signed(n16 x, int n)
{
    return (n16){_mm512_srai_epi16(x.a, (unsigned)n)};
}
VEC n16 n_pairs_sub(n16 x, n16 y)
{
    return (n16){_mm512_sub_epi16(x.a, y.a)};
}
/* sum + x.low y.low + x.high y.high of 16-bit integers, signed. In assembler, since gcc 12 copies
 * every sum of the builtins once or twice, and has no registers left then. */
VEC n16 n_dot_pairs(n16 sum, n16 x, n16 y)
{
#if defined(__AVX512VNNI__)
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum.a) : "v"(x.a), "v"(y.a));
#elif defined(__AVX512BW__)
    __m512i products;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
            : "+v"(sum.a), "=&v"(products)
            : "v"(x.a), "v"(y.a));
#else
    sum.a = _mm512_add_epi32(sum.a, _mm512_madd_epi16(x.a, y.a));
#endif
    return sum;
}
VEC v16 v_of_ints(n16 x) /* signed */
{
    return (v16){_mm512_cvtepi32_ps(x.a)};
}
VEC v16 v_of_bits(n16 x)
{
    return (v16){_mm512_castsi512_ps(x.a)};
}
VEC n16 n_of_bits(v16 x)
{
    return (n16){_mm512_castps_si512(x.a)};
}
VEC v16 v_of_halves(const void *p) /* 16 f16 */
{
    return (v16){_mm512_cvtph_ps(_mm256_loadu_si256(p))};
}

#endif
