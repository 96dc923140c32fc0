/*
 * vec_avx2.h - the vocabulary of kernels_tpl.h in AVX2 and FMA: 16 lanes of f32 (v_) and of f64
 * (d_), lane i standing for output, or element, i. Comparisons with NaN are false; select(a, b)
 * takes b where they are.
 */
#ifndef TENSOR_VEC_AVX2_H
#define TENSOR_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define VEC static inline __attribute__((always_inline))

typedef struct {
    __m256 a, b;
} v16; /* lanes 0..7, 8..15 */
typedef struct {
    __m256d a, b, c, d;
} d16; /* lanes 0..3, 4..7, 8..11, 12..15 */

#define V2(op, x, y) ((v16){op((x).a, (y).a), op((x).b, (y).b)})
#define D2(op, x, y) ((d16){op((x).a, (y).a), op((x).b, (y).b), op((x).c, (y).c), op((x).d, (y).d)})

VEC v16 v_set(float x)
{
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
VEC v16 v_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
VEC void v_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}

/* Lanes begin.. of a mask for the first n of 16. */
VEC __m256i v_mask(size_t n, int begin)
{
    __m256i lane =
        _mm256_add_epi32(_mm256_set1_epi32(begin), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}
/* The first n (at most 16) of p; the other lanes are `fill`. */
VEC v16 v_load_some(const float *p, size_t n, float fill)
{
    if (n >= 16) return v_load(p);
    __m256i a = v_mask(n, 0), b = v_mask(n, 8);
    __m256 x = _mm256_set1_ps(fill);
    return (v16){_mm256_blendv_ps(x, _mm256_maskload_ps(p, a), _mm256_castsi256_ps(a)),
                 _mm256_blendv_ps(x, _mm256_maskload_ps(p + 8, b), _mm256_castsi256_ps(b))};
}
VEC void v_store_some(float *p, v16 x, size_t n)
{
    if (n >= 16) {
        v_store(p, x);
        return;
    }
    _mm256_maskstore_ps(p, v_mask(n, 0), x.a);
    _mm256_maskstore_ps(p + 8, v_mask(n, 8), x.b);
}

VEC v16 v_add(v16 x, v16 y)
{
    return V2(_mm256_add_ps, x, y);
}
VEC v16 v_sub(v16 x, v16 y)
{
    return V2(_mm256_sub_ps, x, y);
}
VEC v16 v_mul(v16 x, v16 y)
{
    return V2(_mm256_mul_ps, x, y);
}
VEC v16 v_div(v16 x, v16 y)
{
    return V2(_mm256_div_ps, x, y);
}
VEC v16 v_max(v16 x, v16 y)
{
    return V2(_mm256_max_ps, x, y);
} /* x > y ? x : y */
VEC v16 v_min(v16 x, v16 y)
{
    return V2(_mm256_min_ps, x, y);
} /* x < y ? x : y */
VEC v16 v_fma(v16 x, v16 y, v16 z)
{
    return (v16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
VEC v16 v_neg(v16 x)
{
    v16 sign = v_set(-0.0f);
    return V2(_mm256_xor_ps, x, sign);
}
VEC v16 v_neg_abs(v16 x)
{
    v16 sign = v_set(-0.0f);
    return V2(_mm256_or_ps, x, sign);
}
VEC v16 v_select_negative(v16 x, v16 yes, v16 no) /* x < 0 ? yes : no */
{
    __m256 zero = _mm256_setzero_ps();
    return (v16){_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, zero, _CMP_LT_OQ)),
                 _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, zero, _CMP_LT_OQ))};
}
VEC unsigned v_greater(v16 x, v16 y) /* bit i: lane i */
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ)) |
           (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ)) << 8;
}
VEC unsigned v_equal(v16 x, v16 y)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ)) |
           (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)) << 8;
}

/* p 2^n for n the whole number in the low bits of t, as exp32 has it: two factors, one rounding. */
VEC __m256 scale8(__m256 p, __m256 t, __m256i round_bits)
{
    __m256i n = _mm256_sub_epi32(_mm256_castps_si256(t), round_bits), h = _mm256_srai_epi32(n, 1);
    __m256i bias = _mm256_set1_epi32(127);
    __m256i low = _mm256_slli_epi32(_mm256_add_epi32(h, bias), 23);
    __m256i high = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, h), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(low)), _mm256_castsi256_ps(high));
}
VEC v16 v_scale(v16 p, v16 t, float round)
{
    __m256i bits = _mm256_castps_si256(_mm256_set1_ps(round));
    return (v16){scale8(p.a, t.a, bits), scale8(p.b, t.b, bits)};
}

/* lane i += lane i + 8, + 4, + 2, + 1 */
VEC float v_fold(v16 x)
{
    __m256 s8 = _mm256_add_ps(x.a, x.b);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
VEC float v_fold_max(v16 x)
{
    __m256 s8 = _mm256_max_ps(x.a, x.b);
    __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

VEC d16 d_set(double x)
{
    __m256d v = _mm256_set1_pd(x);
    return (d16){v, v, v, v};
}
VEC d16 d_widen(v16 x)
{
    return (d16){_mm256_cvtps_pd(_mm256_castps256_ps128(x.a)),
                 _mm256_cvtps_pd(_mm256_extractf128_ps(x.a, 1)),
                 _mm256_cvtps_pd(_mm256_castps256_ps128(x.b)),
                 _mm256_cvtps_pd(_mm256_extractf128_ps(x.b, 1))};
}
VEC v16 d_narrow(d16 x)
{
    return (v16){_mm256_set_m128(_mm256_cvtpd_ps(x.b), _mm256_cvtpd_ps(x.a)),
                 _mm256_set_m128(_mm256_cvtpd_ps(x.d), _mm256_cvtpd_ps(x.c))};
}
VEC d16 d_add(d16 x, d16 y)
{
    return D2(_mm256_add_pd, x, y);
}
VEC d16 d_sub(d16 x, d16 y)
{
    return D2(_mm256_sub_pd, x, y);
}
VEC d16 d_mul(d16 x, d16 y)
{
    return D2(_mm256_mul_pd, x, y);
}
VEC d16 d_div(d16 x, d16 y)
{
    return D2(_mm256_div_pd, x, y);
}
VEC d16 d_max(d16 x, d16 y)
{
    return D2(_mm256_max_pd, x, y);
} /* x > y ? x : y */
VEC d16 d_fma(d16 x, d16 y, d16 z)
{
    return (d16){_mm256_fmadd_pd(x.a, y.a, z.a), _mm256_fmadd_pd(x.b, y.b, z.b),
                 _mm256_fmadd_pd(x.c, y.c, z.c), _mm256_fmadd_pd(x.d, y.d, z.d)};
}
VEC d16 d_abs(d16 x)
{
    d16 sign = d_set(-0.0);
    return D2(_mm256_andnot_pd, sign, x);
}
VEC d16 d_or_sign(d16 x, d16 of) /* x >= 0 */
{
    d16 sign = d_set(-0.0), bit = D2(_mm256_and_pd, sign, of);
    return D2(_mm256_or_pd, x, bit);
}
VEC __m256d less4(__m256d x, __m256d y, __m256d yes, __m256d no)
{
    return _mm256_blendv_pd(no, yes, _mm256_cmp_pd(x, y, _CMP_LT_OQ));
}
VEC d16 d_select_less(d16 x, d16 y, d16 yes, d16 no) /* x < y ? yes : no */
{
    return (d16){less4(x.a, y.a, yes.a, no.a), less4(x.b, y.b, yes.b, no.b),
                 less4(x.c, y.c, yes.c, no.c), less4(x.d, y.d, yes.d, no.d)};
}
/* p 2^n, n <= 0 the whole number in the low bits of t: exact times 2^(n + 64), then rounded by
 * 2^-64. */
VEC __m256d scale4(__m256d p, __m256d t)
{
    __m256i bits = _mm256_add_epi64(_mm256_castpd_si256(t), _mm256_set1_epi64x(1023 + 64));
    p = _mm256_mul_pd(p, _mm256_castsi256_pd(_mm256_slli_epi64(bits, 52)));
    return _mm256_mul_pd(p, _mm256_set1_pd(0x1p-64));
}
VEC d16 d_scale_down(d16 p, d16 t)
{
    return D2(scale4, p, t);
}
VEC double d_fold(d16 x)
{
    __m256d s4 = _mm256_add_pd(_mm256_add_pd(x.a, x.c), _mm256_add_pd(x.b, x.d));
    __m128d s2 = _mm_add_pd(_mm256_castpd256_pd128(s4), _mm256_extractf128_pd(s4, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s2, _mm_unpackhi_pd(s2, s2)));
}

/* ---- 16 lanes of 32 bits: words of stored weights -------------------------------------------- */

typedef struct {
    __m256i a, b;
} n16;

#define N2(op, x, y) ((n16){op((x).a, (y).a), op((x).b, (y).b)})

VEC n16 n_set(uint32_t x)
{
    __m256i v = _mm256_set1_epi32((int)x);
    return (n16){v, v};
}
VEC n16 n_load(const void *p) /* 16 words */
{
    const __m256i *q = p;
    return (n16){_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
VEC void n_store(void *p, n16 x)
{
    __m256i *q = p;
    _mm256_storeu_si256(q, x.a);
    _mm256_storeu_si256(q + 1, x.b);
}
VEC n16 n_and(n16 x, n16 y)
{
    return N2(_mm256_and_si256, x, y);
}
VEC n16 n_or(n16 x, n16 y)
{
    return N2(_mm256_or_si256, x, y);
}
VEC n16 n_add(n16 x, n16 y)
{
    return N2(_mm256_add_epi32, x, y);
}
VEC n16 n_left(n16 x, int n)
{
    return (n16){_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
}
VEC n16 n_right(n16 x, int n) /* zeros come in */
{
    return (n16){_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)};
}
VEC n16 n_right_signed(n16 x, int n)
{
    return (n16){_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)};
}
VEC n16 n_pairs_left(n16 x, int n) /* each half of a lane for itself */
{
    return (n16){_mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n)};
}
VEC n16 n_pairs_right_signed(n16 x, int n)
{
    return (n16){_mm256_srai_epi16(x.a, n), _mm256_srai_epi16(x.b, n)};
}
VEC n16 n_pairs_sub(n16 x, n16 y)
{
    return N2(_mm256_sub_epi16, x, y);
}
/* sum + x.low y.low + x.high y.high of 16-bit integers, signed. In assembler, since compilers make
 * all products of a block first, and spill. */
VEC __m256i dot_pairs8(__m256i sum, __m256i x, __m256i y)
{
    __asm__("vpmaddwd %2, %1, %%ymm15\n\tvpaddd %%ymm15, %0, %0"
            : "+x"(sum)
            : "x"(x), "x"(y)
            : "xmm15");
    return sum;
}
VEC n16 n_dot_pairs(n16 sum, n16 x, n16 y)
{
    return (n16){dot_pairs8(sum.a, x.a, y.a), dot_pairs8(sum.b, x.b, y.b)};
}
VEC v16 v_of_ints(n16 x) /* signed */
{
    return (v16){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
VEC v16 v_of_bits(n16 x)
{
    return (v16){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}
VEC n16 n_of_bits(v16 x)
{
    return (n16){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)};
}
VEC v16 v_of_halves(const void *p) /* 16 f16 */
{
    const __m128i *q = p;
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}

#endif
