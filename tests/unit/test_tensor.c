/*
 * test_tensor.c - stored weights to f32, packing, linear layers over threads, and the f64
 * functions. The kernels themselves are tried in tests/kernels.
 */
#include "base/arena.h"
#include "base/cpu.h"
#include "tensor/levels.h"
#include "tensor/linear.h"
#include "tensor/tensor.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static uint64_t random_state = 7;
static uint32_t random32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}
static float random_float(void)
{
    return (float)((double)random32() * 0x1p-31 - 1);
}

/* The value of an f16 by its definition. */
static float half_value(unsigned h)
{
    int exponent = h >> 10 & 31;
    double m = h & 1023, x = exponent ? ldexp(1024 + m, exponent - 25) : ldexp(m, -24);
    if (exponent == 31) x = m != 0 ? NAN : INFINITY;
    return (float)(h & 0x8000 ? -x : x);
}

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

static void every_half_and_bfloat(void **state)
{
    for (uint32_t h = 0; h < 65536; h++) {
        uint8_t bytes[2] = {(uint8_t)h, (uint8_t)(h >> 8)};
        uint32_t wide = h << 16;
        float f16, bf16, want;
        dequantize(DT_F16, bytes, &f16, 1);
        dequantize(DT_BF16, bytes, &bf16, 1);
        memcpy(&want, &wide, sizeof want);
        assert_true(same(f16, half_value(h)));
        assert_true(same(bf16, want));
    }
    float in[3] = {1.5f, -0.0f, INFINITY}, out[3];
    dequantize(DT_F32, in, out, 3);
    assert_memory_equal(in, out, sizeof in);
}

/* C176: element j of a block, read bit by bit from the drawing in dequant.c. */
static float quant_value(enum dtype type, const uint8_t *b, int j)
{
    bool fifth = type == DT_Q5_0 || type == DT_Q5_1, with_min = type == DT_Q4_1 || type == DT_Q5_1;
    float d = half_value(b[0] | (unsigned)b[1] << 8);
    float m = with_min ? half_value(b[2] | (unsigned)b[3] << 8) : 0;
    if (type == DT_Q8_0) return (float)(b[2 + j] < 128 ? b[2 + j] : b[2 + j] - 256) * d;
    const uint8_t *qh = b + (with_min ? 4 : 2), *q = qh + (fifth ? 4 : 0);
    int value = j < 16 ? q[j] % 16 : q[j - 16] / 16;
    if (fifth) value += 16 * (qh[j / 8] >> j % 8 & 1);
    if (with_min) {
        volatile float product = (float)value * d;
        return product + m;
    }
    return (float)(value - (fifth ? 16 : 8)) * d;
}

static void every_scale_of_quantised_blocks(void **state)
{
    static const enum dtype types[] = {DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1, DT_Q8_0};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (uint32_t scale = 0; scale < 65536; scale += 1 + scale % 3) {
            uint8_t blocks[2 * 34];
            size_t n_bytes = dtype_infos[types[t]].block_bytes;
            float out[64];
            for (size_t i = 0; i < 2 * n_bytes; i++) blocks[i] = (uint8_t)(random32() >> 24);
            blocks[0] = (uint8_t)scale;
            blocks[1] = (uint8_t)(scale >> 8);
            dequantize(types[t], blocks, out, 64);
            for (int j = 0; j < 64; j++)
                assert_true(same(
                    out[j], quant_value(types[t], blocks + (size_t)(j / 32) * n_bytes, j % 32)));
        }
}

static void first_value_that_is_not_finite(void **state)
{
    float x[5] = {0, -3e38f, NAN, 1, INFINITY};
    assert_int_equal(first_nonfinite(x, 5), 2);
    assert_int_equal(first_nonfinite(x + 3, 2), 1);
    assert_int_equal(first_nonfinite(x, 2), 2);
    assert_int_equal(first_nonfinite(x, 0), 0);
}

/* One row as a file has it: finite weights, none of which is much larger than the others. */
static void random_stored(enum dtype dtype, size_t n, uint8_t *out)
{
    const struct dtype_info *info = &dtype_infos[dtype];
    size_t n_bytes = n / info->block_elements * info->block_bytes;
    for (size_t i = 0; i < n_bytes; i++) out[i] = (uint8_t)(random32() >> 24);
    for (size_t i = 0; dtype == DT_F32 && i < n; i++) {
        float x = random_float();
        memcpy(out + 4 * i, &x, sizeof x);
    }
    for (size_t i = 0; dtype == DT_BF16 && i < n; i++) {
        float x = random_float();
        memcpy(out + 2 * i, (const char *)&x + 2, 2);
    }
    size_t halves = dtype == DT_F32 || dtype == DT_BF16 ? 0 : dtype_has_minimum(dtype) ? 2 : 1;
    for (size_t i = 0; i < n_bytes; i += info->block_bytes) /* f16: magnitudes below 0.25 */
        for (size_t h = 0; h < halves; h++) out[i + 2 * h + 1] &= 0xb3;
}

static size_t row_bytes(enum dtype dtype, size_t K)
{
    return K / dtype_infos[dtype].block_elements * dtype_infos[dtype].block_bytes;
}

/* Every type: rows that come in pieces are those that dequantize sees, and nothing is written
 * beside them. */
static void packed_rows_read_back(void **state)
{
    static const size_t sizes[][2] = {{1, 32}, {64, 128}, {65, 160}, {100, 576}, {7, 33}, {130, 1}};
    for (size_t i = 0; i < (size_t)DT_COUNT * 6; i++) {
        enum dtype dtype = (enum dtype)(i / 6);
        size_t N = sizes[i % 6][0], K = sizes[i % 6][1], stored_bytes = row_bytes(dtype, K);
        if (K % dtype_infos[dtype].block_elements) continue;
        uint64_t n_bytes = matrix_bytes(dtype, N, K);
        assert_int_equal(n_bytes % 64, 0);
        struct matrix zeros = {.dtype = dtype, .N = N, .K = K}, ones = zeros;
        zeros.panels = big_alloc(n_bytes);
        ones.panels = big_alloc(n_bytes);
        memset(ones.panels, 0xff, n_bytes);
        uint8_t *stored = malloc(N * stored_bytes);
        float row[576], want[576];
        for (size_t n = 0; n < N; n++) {
            uint8_t *from = stored + n * stored_bytes;
            random_stored(dtype, K, from);
            for (size_t k = 0, n_k; k < K; k += n_k) {
                n_k = 32 * (1 + random32() % 4);
                n_k = n_k < K - k ? n_k : K - k;
                matrix_put(&zeros, n, k, n_k, from + row_bytes(dtype, k));
            }
            matrix_put(&ones, n, 0, K, from);
        }
        for (size_t n = 0; n < N; n++) {
            dequantize(dtype, stored + n * stored_bytes, want, K);
            matrix_row(&zeros, n, row);
            assert_memory_equal(row, want, K * sizeof *row);
        }
        uint64_t untouched = 0;
        for (uint64_t b = 0; b < n_bytes; b++) untouched += zeros.panels[b] != ones.panels[b];
        assert_int_equal(untouched, n_bytes - N * stored_bytes);
        big_free(zeros.panels, n_bytes);
        big_free(ones.panels, n_bytes);
        free(stored);
    }
}

/* ---- linear layers --------------------------------------------------------------------------- */

static struct matrix random_matrix(enum dtype dtype, enum profile profile, size_t N, size_t K,
                                   bool with_bias, struct arena *arena)
{
    struct matrix matrix = {.dtype = dtype, .profile = profile, .N = N, .K = K};
    uint8_t *stored = arena_push(arena, row_bytes(dtype, K));
    float *bias = arena_push_array(arena, N, sizeof *bias);
    matrix.panels = arena_push(arena, matrix_bytes(dtype, N, K));
    assert_true(stored && bias && matrix.panels);
    for (size_t n = 0; n < N; n++) {
        random_stored(dtype, K, stored);
        matrix_put(&matrix, n, 0, K, stored);
        bias[n] = random_float();
    }
    if (with_bias) matrix.bias = bias;
    return matrix;
}

/* Rows packed one by one, then tile after tile through the plain loops. */
static void plain_linear(const struct matrix *matrix, size_t n_rows, const float *x, size_t ldx,
                         float *operand, float *y, size_t ldy)
{
    const struct kernels *ref = kernels_get(CPU_REF);
    for (size_t r = 0; r < n_rows; r++) {
        const float *row = x + r * ldx;
        ref->pack_rows[matrix->profile](1, &row, matrix->K, operand + r * matrix->K);
    }
    for (size_t n = 0; n < matrix->N; n += TILE) {
        struct gemm gemm = {.dtype = matrix->dtype,
                            .panel = matrix_panel(matrix, n / PANEL),
                            .K = matrix->K,
                            .tile = n % PANEL / TILE,
                            .n_cols = matrix->N - n < TILE ? matrix->N - n : TILE,
                            .operand = operand,
                            .n_rows = n_rows,
                            .n_blocks = n_rows,
                            .y = y + n,
                            .ldy = ldy};
        ref->gemm[matrix->profile](&gemm);
    }
    for (size_t r = 0; matrix->bias && r < n_rows; r++)
        for (size_t n = 0; n < matrix->N; n++) y[r * ldy + n] += matrix->bias[n];
}

#define N_POOLS 5
struct linear_list {
    size_t K, n;
    struct {
        enum dtype dtype;
        enum profile profile;
        size_t N;
        bool bias;
    } matrices[4];
};

static void linear_case(struct pool *const *pools, const struct linear_list *list, size_t n_rows)
{
    struct arena arena;
    struct matrix matrices[4];
    size_t K = list->K, ldx = K + 1, ldy = 2;
    arena_init(&arena, 1u << 26);
    for (size_t i = 0; i < list->n; i++) {
        matrices[i] = random_matrix(list->matrices[i].dtype, list->matrices[i].profile,
                                    list->matrices[i].N, K, list->matrices[i].bias, &arena);
        ldy += matrices[i].N;
    }
    float *x = arena_push_array(&arena, n_rows * ldx, sizeof *x);
    float *operand = arena_push_array(&arena, n_rows * K, sizeof *operand);
    float *y = arena_push_array(&arena, n_rows * ldy, sizeof *y);
    float *want = arena_push_array(&arena, n_rows * ldy, sizeof *want);
    assert_true(x && operand && y && want);
    for (size_t i = 0; i < n_rows * ldx; i++) x[i] = random_float();
    for (size_t i = 0, at = 0; i < list->n; at += matrices[i++].N)
        plain_linear(&matrices[i], n_rows, x, ldx, operand, want + at, ldy);
    for (int level = 0; level <= (int)cpu_detect(); level++) {
        if (!cpu_has((enum cpu_level)level)) continue;
        for (size_t p = level ? 0 : N_POOLS - 1; p < N_POOLS; p++) {
            memset(y, 0, n_rows * ldy * sizeof *y);
            linear(pools[p], kernels_get((enum cpu_level)level), matrices, list->n, n_rows, x, ldx,
                   operand, y, ldy);
            assert_memory_equal(y, want, n_rows * ldy * sizeof *y);
        }
    }
    arena_free(&arena);
}

/* Matrices side by side, of one type and of several, of one profile and of several. */
static void linear_on_any_number_of_threads(void **state)
{
    static const int n_threads[N_POOLS] = {1, 2, 3, 5, 8};
    static const size_t rows[] = {0, 1, 2, 3, 6, 7, 25, 130, 257, 600};
    static const struct linear_list lists[] = {
        {3, 1, {{DT_F32, PROFILE_F32, 1, true}}},
        {129, 2, {{DT_F32, PROFILE_F32, 65, false}, {DT_BF16, PROFILE_F32, 15, true}}},
        {130, 2, {{DT_BF16, PROFILE_BF16, 17, true}, {DT_F16, PROFILE_BF16, 49, false}}},
        {64, 1, {{DT_Q4_1, PROFILE_F32, 130, true}}},
        {96,
         3,
         {{DT_Q4_1, PROFILE_INT16, 33, true},
          {DT_Q8_0, PROFILE_INT16, 1, false},
          {DT_Q5_0, PROFILE_INT16, 70, true}}},
        {160,
         4,
         {{DT_Q4_0, PROFILE_INT16, 20, true},
          {DT_F32, PROFILE_F32, 67, true},
          {DT_Q5_1, PROFILE_F32, 16, false},
          {DT_Q8_0, PROFILE_BF16, 31, false}}},
    };
    struct pool *pools[N_POOLS];
    for (size_t p = 0; p < N_POOLS; p++)
        assert_int_equal(pool_open(&pools[p], n_threads[p], NULL), NP_OK);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            linear_case(pools, &lists[i], rows[r]);
    for (size_t p = 0; p < N_POOLS; p++) pool_close(pools[p]);
}

static double relative(double got, long double want)
{
    return (double)fabsl((got - want) / want);
}

static void f64_functions(void **state)
{
    double worst_exp = 0, worst_log = 0, worst_log1p = 0, worst_pow = 0;
    for (int i = 0; i < 200000; i++) {
        double u = (double)random32() * 0x1p-32 + (double)random32() * 0x1p-64;
        double e = -708 * u * u, l = ldexp(1 + u, (int)(random32() % 2000) - 1000);
        double near = 1 + (u - 0.5) * ldexp(1, -(int)(random32() % 40));
        double p = ldexp(u - 0.5, -(int)(random32() % 60)), base = 1 + 1e6 * u, x = 2 * (u - 0.5);
        worst_exp = fmax(worst_exp, relative(exp64(e), expl(e)));
        worst_log = fmax(worst_log, relative(log64(l), logl(l)));
        if (near != 1) worst_log = fmax(worst_log, relative(log64(near), logl(near)));
        worst_log1p = fmax(worst_log1p, relative(log1p64(p), log1pl(p)));
        worst_pow = fmax(worst_pow, relative(pow64(base, x), powl(base, x)));
    }
    print_message("worst relative error: exp %.3g log %.3g log1p %.3g pow %.3g\n", worst_exp,
                  worst_log, worst_log1p, worst_pow);
    assert_true(worst_exp < 4e-16 && worst_log < 3e-16 && worst_log1p < 4e-16 && worst_pow < 5e-16);
}

static void f64_functions_at_their_edges(void **state)
{
    assert_true(exp64(-INFINITY) == 0 && exp64(-800) == 0 && exp64(0) == 1 && isnan(exp64(NAN)));
    assert_true(fabs(exp64(-745) - exp(-745)) <= 0x1p-1074 && exp64(-745.2) == 0);
    assert_true(log64(1) == 0 && log64(INFINITY) == INFINITY && log64(0) == -INFINITY &&
                isnan(log64(-1)));
    assert_true(relative(log64(0x1p-1074), -744.44007192138126231411L) < 2e-16);
    assert_true(log1p64(-1) == -INFINITY && log1p64(0) == 0 && log1p64(1e-300) == 1e-300);
    assert_true(pow64(10000, 0) == 1 && pow64(1, 0.37) == 1 &&
                relative(pow64(100000, -0.5), powl(10, -2.5L)) < 3e-16);
}

static void levels_fall_back(void **state)
{
    assert_int_equal(kernels_get(CPU_REF)->level, CPU_REF);
    for (int level = 0; level <= (int)CPU_LEVELS; level++)
        assert_true((int)kernels_get((enum cpu_level)level)->level <= level);
}

/* What an instruction could make of two products and a sum. */
static float odd_first(const float x[2], const float w[2], float s)
{
    return fmaf(x[0], w[0], fmaf(x[1], w[1], s));
}
static float flushed(float x, float least)
{
    return fabsf(x) < least ? copysignf(0, x) : x;
}
static float without_subnormals(const float x[2], const float w[2], float s)
{
    s = flushed(fmaf(x[1], w[1], flushed(s, 0x1p-126f)), 0x1p-126f);
    return flushed(fmaf(x[0], w[0], s), 0x1p-126f);
}
static float without_small_ones(const float x[2], const float w[2], float s)
{
    return flushed(odd_first(x, w, s), 0x1p-90f);
}
static float even_first(const float x[2], const float w[2], float s)
{
    return fmaf(x[1], w[1], fmaf(x[0], w[0], s));
}
static float products_first(const float x[2], const float w[2], float s)
{
    return s + fmaf(x[0], w[0], x[1] * w[1]);
}
static float rounded_once(const float x[2], const float w[2], float s)
{
    return (float)((double)x[0] * w[0] + (double)x[1] * w[1] + s);
}
static float toward_zero(const float x[2], const float w[2], float s)
{
    for (int i = 1; i >= 0; i--) {
        double exact = (double)x[i] * w[i] + s;
        s = (float)exact;
        if (fabs(s) > fabs(exact)) s = nextafterf(s, 0);
    }
    return s;
}

static float (*add_pair)(const float x[2], const float w[2], float s);
static void add_pairs(const uint32_t *x, const uint32_t *w, float *s)
{
    for (size_t i = 0; i < TILE; i++) {
        uint32_t bits[4] = {x[i] << 16, x[i] & 0xffff0000, w[i] << 16, w[i] & 0xffff0000};
        float values[4];
        memcpy(values, bits, sizeof values);
        s[i] = add_pair(values, values + 2, s[i]);
    }
}

/* Flushing subnormals is allowed, since none occurs. */
static void probe_knows_the_declared_order(void **state)
{
    static const struct {
        float (*add_pair)(const float x[2], const float w[2], float s);
        bool declared;
    } ways[] = {{odd_first, true},   {without_subnormals, true}, {without_small_ones, false},
                {even_first, false}, {products_first, false},    {rounded_once, false},
                {toward_zero, false}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        add_pair = ways[i].add_pair;
        assert_int_equal(dot_adds_in_order(add_pairs), ways[i].declared);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_and_bfloat),
        cmocka_unit_test(every_scale_of_quantised_blocks),
        cmocka_unit_test(first_value_that_is_not_finite),
        cmocka_unit_test(packed_rows_read_back),
        cmocka_unit_test(linear_on_any_number_of_threads),
        cmocka_unit_test(f64_functions),
        cmocka_unit_test(f64_functions_at_their_edges),
        cmocka_unit_test(levels_fall_back),
        cmocka_unit_test(probe_knows_the_declared_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
