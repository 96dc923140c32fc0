/*
 * test_tensor.c - stored weights to f32, packing, linear layers over threads, and the f64
 * functions. The kernels themselves are tried in tests/kernels.
 */
#include "base/cpu.h"
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

static void packed_rows_read_back(void **state)
{
    static const size_t sizes[][2] = {{1, 1},     {64, 128},  {65, 129},
                                      {100, 576}, {130, 300}, {7, 33}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t N = sizes[s][0], K = sizes[s][1], ld = K + 3;
        float *w = malloc(N * ld * sizeof *w), *row = malloc(K * sizeof *row);
        for (size_t i = 0; i < N * ld; i++) w[i] = random_float();
        struct matrix matrix;
        assert_int_equal(matrix_init(&matrix, N, K, false, NULL), NP_OK);
        for (size_t n = 0; n < N;) {
            size_t count = 1 + random32() % 40;
            count = count < N - n ? count : N - n;
            matrix_pack_rows(&matrix, n, count, w + n * ld, ld);
            n += count;
        }
        size_t n_zero = 0, n_floats = matrix_bytes(N, K, false) / sizeof(float);
        for (size_t i = 0; i < n_floats; i++) n_zero += matrix.panels[i] == 0;
        assert_int_equal(n_zero, n_floats - N * K);
        for (size_t n = 0; n < N; n++) {
            matrix_row(&matrix, n, row);
            assert_memory_equal(row, w + n * ld, K * sizeof *row);
        }
        matrix_free(&matrix);
        free(w);
        free(row);
    }
    matrix_free(NULL);
}

static void matrices_of_no_or_absurd_size(void **state)
{
    struct matrix matrix;
    np_error err = {0};
    assert_int_equal(matrix_init(&matrix, 0, 5, false, &err), NP_ELIMIT);
    assert_int_equal(matrix_init(&matrix, 5, 0, false, &err), NP_ELIMIT);
    assert_int_equal(matrix_init(&matrix, SIZE_MAX / 8, SIZE_MAX / 8, true, &err), NP_ELIMIT);
    assert_int_equal(matrix_init(&matrix, SIZE_MAX, 1, false, &err), NP_ELIMIT);
    matrix_free(&matrix);
}

static void linear_case(struct pool *pool, size_t N, size_t K, size_t n_rows, bool with_bias)
{
    const struct kernels *ref = kernels_get(CPU_REF);
    size_t ldx = K + 1, ldy = N + 2;
    struct matrix matrix;
    assert_int_equal(matrix_init(&matrix, N, K, with_bias, NULL), NP_OK);
    float *w = malloc(N * K * sizeof *w), *x = malloc(n_rows * ldx * sizeof *x);
    float *y = calloc(n_rows * ldy, sizeof *y), *want = calloc(n_rows * ldy, sizeof *want);
    for (size_t i = 0; i < N * K; i++) w[i] = random_float();
    for (size_t i = 0; i < n_rows * ldx; i++) x[i] = random_float();
    matrix_pack_rows(&matrix, 0, N, w, K);
    for (size_t n = 0; with_bias && n < N; n++) matrix.bias[n] = random_float();
    for (size_t r = 0; r < n_rows; r++)
        for (size_t n = 0; n < N; n++) {
            const float *panel = matrix.panels + n / PANEL * panel_floats(K);
            float dot = ref->panel_dot(x + r * ldx, panel, K, n % PANEL);
            want[r * ldy + n] = with_bias ? dot + matrix.bias[n] : dot;
        }
    linear(pool, kernels_get(cpu_detect()), &matrix, n_rows, x, ldx, y, ldy);
    assert_memory_equal(y, want, n_rows * ldy * sizeof *y);
    memset(y, 0, n_rows * ldy * sizeof *y);
    linear(pool, ref, &matrix, n_rows, x, ldx, y, ldy);
    assert_memory_equal(y, want, n_rows * ldy * sizeof *y);
    matrix_free(&matrix);
    free(w);
    free(x);
    free(y);
    free(want);
}

static void linear_on_any_number_of_threads(void **state)
{
    static const size_t rows[] = {1, 2, 7, 23, 24, 25, 49, 130};
    static const size_t shapes[][2] = {{1, 3},    {16, 128},  {65, 129},
                                       {130, 64}, {200, 258}, {31, 1500}};
    for (int n_threads = 1; n_threads <= 5; n_threads++) {
        struct pool *pool;
        assert_int_equal(pool_open(&pool, n_threads, NULL), NP_OK);
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                linear_case(pool, shapes[s][0], shapes[s][1], rows[r], (r + s) % 2);
        linear_case(pool, 40, 10, 0, true);
        pool_close(pool);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_and_bfloat),
        cmocka_unit_test(every_scale_of_quantised_blocks),
        cmocka_unit_test(first_value_that_is_not_finite),
        cmocka_unit_test(packed_rows_read_back),
        cmocka_unit_test(matrices_of_no_or_absurd_size),
        cmocka_unit_test(linear_on_any_number_of_threads),
        cmocka_unit_test(f64_functions),
        cmocka_unit_test(f64_functions_at_their_edges),
        cmocka_unit_test(levels_fall_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
