/*
 * kernels_tpl.h - the bodies of the kernels, written once over the vocabulary of vec_<isa>.h and
 * compiled by isa/kernels_<isa>.c, which defines before it includes this file:
 *
 *   WIDE_TILES(X)    X(rows, tiles) for the numbers of rows that take several tiles side by side,
 *                    so that their sums hide the latency of fma and still fit the registers
 *   LEVEL, LEVEL_NAME, LEVEL_TABLE
 *
 * Lanes hold different outputs, so each output's sum is the one of kernels_ref.c. The sums of a
 * block of 64 k live in registers, which is why the rows of a tile are expanded by macros:
 * compilers spill arrays.
 */
#include "tensor/functions.h"
#include "tensor/levels.h"
#include <math.h>
#include <string.h>

#define MAX_ROWS 6    /* of a block of rows */
#define CHUNK_ROWS 60 /* in ten blocks */
/* So many rows leave time to fetch the next tiles; fewer wait for memory anyway. */
#define PREFETCH_ROWS 3

/* One block of K: x [rows][depth] times `tiles` tiles from w on, each `stride` floats after the one
 * before it. Adds the sums to y, or to +0 where `first`. */
typedef void tile_fn(const float *x, size_t ldx, const float *w, size_t stride, size_t depth,
                     float *y, size_t ldy, bool first);

#define FOR_TILES_1(DO, r) DO(r, 0)
#define FOR_TILES_2(DO, r) FOR_TILES_1(DO, r) DO(r, 1)
#define FOR_TILES_4(DO, r) FOR_TILES_2(DO, r) DO(r, 2) DO(r, 3)
#define FOR_ROWS_1(DO, T) DO(0, T)
#define FOR_ROWS_2(DO, T) FOR_ROWS_1(DO, T) DO(1, T)
#define FOR_ROWS_3(DO, T) FOR_ROWS_2(DO, T) DO(2, T)
#define FOR_ROWS_4(DO, T) FOR_ROWS_3(DO, T) DO(3, T)
#define FOR_ROWS_5(DO, T) FOR_ROWS_4(DO, T) DO(4, T)
#define FOR_ROWS_6(DO, T) FOR_ROWS_5(DO, T) DO(5, T)

/* clang-format off */
#define SUM(r, t) v16 s##r##t = v_set(0);
#define ROW_SUMS(r, T) FOR_TILES_##T(SUM, r)
#define LOAD(k, t)                                                                               \
    v16 w##t = v_load(tile + (t) * stride + (k) * TILE);                                         \
    if (prefetch) __builtin_prefetch(tile + ahead + (t) * stride + (k) * TILE);
#define FMA(r, t) s##r##t = v_fma(xk, w##t, s##r##t);
#define ROW_FMA(r, T)                                                                            \
    {                                                                                            \
        v16 xk = v_set(xs[(r) * ldx]);                                                           \
        FOR_TILES_##T(FMA, r)                                                                    \
    }
#define STEP(R, T, k)                                                                            \
    {                                                                                            \
        const float *xs = x + (k);                                                               \
        FOR_TILES_##T(LOAD, k)                                                                   \
        FOR_ROWS_##R(ROW_FMA, T)                                                                 \
    }
#define TOTAL(r, t)                                                                              \
    {                                                                                            \
        float *to = y + (r) * ldy + (t) * TILE;                                                  \
        v_store(to, v_add(first ? v_set(0) : v_load(to), s##r##t));                              \
    }
#define ROW_TOTALS(r, T) FOR_TILES_##T(TOTAL, r)

#define DEFINE_TILES(R, T)                                                                       \
    static void tiles_##R##x##T(const float *x, size_t ldx, const float *tile, size_t stride,    \
                                size_t depth, float *y, size_t ldy, bool first)                  \
    {                                                                                            \
        const bool prefetch = (R) >= PREFETCH_ROWS;                                              \
        const size_t ahead = (T) * stride;                                                       \
        FOR_ROWS_##R(ROW_SUMS, T)                                                                \
        size_t k = 0;                                                                            \
        for (; k + 2 <= depth; k += 2, x += 2, tile += 2 * TILE) {                               \
            STEP(R, T, 1)                                                                        \
            STEP(R, T, 0)                                                                        \
        }                                                                                        \
        if (k < depth) STEP(R, T, 0)                                                             \
        FOR_ROWS_##R(ROW_TOTALS, T)                                                              \
    }
/* clang-format on */

DEFINE_TILES(1, 1)
DEFINE_TILES(2, 1)
DEFINE_TILES(3, 1)
DEFINE_TILES(4, 1)
DEFINE_TILES(5, 1)
DEFINE_TILES(6, 1)
WIDE_TILES(DEFINE_TILES)

#define WIDE_ROW(R, T) [R] = {tiles_##R##x##T, T},
static tile_fn *const narrow_fns[MAX_ROWS + 1] = {NULL,      tiles_1x1, tiles_2x1, tiles_3x1,
                                                  tiles_4x1, tiles_5x1, tiles_6x1};
static const struct {
    tile_fn *fn;
    size_t n_tiles;
} wide_fns[MAX_ROWS + 1] = {WIDE_TILES(WIDE_ROW)};

/* One block of K, all rows and columns. A tile of weights stays in L1 while the rows pass. */
struct block {
    size_t n_rows, ldx, ldy, n_cols, stride, depth;
    const float *x, *w;
    float *y;
    bool first;
};

static void run_rows(const struct block *b, size_t tile, size_t n_tiles, float *y, size_t ldy)
{
    const float *w = b->w + tile * b->stride;
    size_t n_blocks = (b->n_rows + MAX_ROWS - 1) / MAX_ROWS;
    const float *x = b->x;
    for (size_t i = 0; i < n_blocks; i++) {
        size_t rows = b->n_rows / n_blocks + (i < b->n_rows % n_blocks);
        tile_fn *fn = n_tiles > 1 ? wide_fns[rows].fn : narrow_fns[rows];
        fn(x, b->ldx, w, b->stride, b->depth, y, ldy, b->first);
        x += rows * b->ldx;
        y += rows * ldy;
    }
}

/* The last tile, where it has columns beyond n_cols: summed aside, then its own columns copied. */
static void run_ragged(const struct block *b, size_t tile)
{
    float sums[MAX_ROWS][TILE];
    size_t n = b->n_cols - tile * TILE;
    for (size_t r = 0; r < b->n_rows; r += MAX_ROWS) {
        struct block part = *b;
        part.n_rows = b->n_rows - r < MAX_ROWS ? b->n_rows - r : MAX_ROWS;
        part.x += r * b->ldx;
        float *y = b->y + r * b->ldy + tile * TILE;
        for (size_t i = 0; i < part.n_rows; i++)
            v_store(sums[i], v_load_some(y + i * b->ldy, b->first ? 0 : n, 0));
        run_rows(&part, tile, 1, sums[0], TILE);
        for (size_t i = 0; i < part.n_rows; i++) v_store_some(y + i * b->ldy, v_load(sums[i]), n);
    }
}

static void run_block(const struct block *b)
{
    size_t most = b->n_rows < MAX_ROWS ? b->n_rows : MAX_ROWS, whole = b->n_cols / TILE, tile = 0;
    size_t wide = wide_fns[most].n_tiles;
    if (wide)
        for (; tile + wide <= whole; tile += wide)
            run_rows(b, tile, wide, b->y + tile * TILE, b->ldy);
    for (; tile < whole; tile++) run_rows(b, tile, 1, b->y + tile * TILE, b->ldy);
    if (b->n_cols % TILE) run_ragged(b, whole);
}

/* Rows in chunks of even size, so that the part of x in use stays in L2 for all tiles. */
static void panel_gemm(size_t n_rows, const float *x, size_t ldx, const float *panel, size_t K,
                       float *y, size_t ldy, size_t n_cols)
{
    size_t n_chunks = (n_rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    for (size_t chunk = 0; chunk < n_chunks; chunk++) {
        size_t rows = n_rows / n_chunks + (chunk < n_rows % n_chunks);
        struct block b = {rows, ldx, ldy, n_cols, 0, 0, x, panel, y, true};
        for (size_t k = 0; k < K; k += KBLOCK, b.first = false) {
            b.depth = K - k < KBLOCK ? K - k : KBLOCK;
            b.stride = block_depth(K, k / KBLOCK) * TILE;
            b.x = x + k;
            b.w = panel + k * PANEL;
            run_block(&b);
        }
        x += rows * ldx;
        y += rows * ldy;
    }
}

static void mix_values(size_t n_rows, const float *p, size_t ldp, const float *const *pages,
                       size_t n_keys, float *y, size_t ldy, size_t head_dim)
{
    struct block b = {n_rows, ldp, ldy, head_dim, PANEL * TILE, 0, p, NULL, y, true};
    for (size_t j = 0; j < n_keys && n_rows; j += KBLOCK, b.first = false) {
        b.depth = n_keys - j < KBLOCK ? n_keys - j : KBLOCK;
        b.x = p + j;
        b.w = pages[j / KBLOCK]; /* a block of keys is a page */
        run_block(&b);
    }
}

static float panel_dot(const float *x, const float *panel, size_t K, size_t c)
{
    float total = 0;
    for (size_t first = 0; first < K; first += KBLOCK) {
        const float *w = panel + panel_index(K, first, c);
        size_t end = K - first < KBLOCK ? K : first + KBLOCK;
        float s = 0;
        for (size_t k = first; k < end; k += 2, w += 2 * TILE) {
            if (k + 1 < end) s = fmaf(x[k + 1], w[TILE], s);
            s = fmaf(x[k], w[0], s);
        }
        total += s;
    }
    return total;
}

VEC v16 v_exp(v16 x)
{
    x = v_min(v_set(EXP32_MAX), v_max(v_set(EXP32_MIN), x));
    v16 t = v_fma(x, v_set(LOG2E32), v_set(ROUND32));
    v16 k = v_sub(t, v_set(ROUND32));
    v16 r = v_fma(k, v_set(-LN2_HI32), x);
    r = v_fma(k, v_set(-LN2_LO32), r);
    v16 p = v_set(0);
#define HORNER(c) p = v_fma(p, r, v_set(c));
    EXP32_P(HORNER)
#undef HORNER
    return v_scale(p, t, ROUND32);
}

VEC d16 d_exp(d16 x) /* x <= 0 */
{
    x = d_max(d_set(EXP64_MIN), x);
    d16 t = d_fma(x, d_set(LOG2E64), d_set(ROUND64));
    d16 k = d_sub(t, d_set(ROUND64));
    d16 r = d_fma(k, d_set(-LN2_HI64), x);
    r = d_fma(k, d_set(-LN2_LO64), r);
    d16 p = d_set(0);
#define HORNER(c) p = d_fma(p, r, d_set(c));
    EXP64_P(HORNER)
#undef HORNER
    return d_scale_down(p, t);
}

VEC v16 v_silu(v16 x)
{
    v16 e = v_exp(v_neg_abs(x));
    return v_div(v_select_negative(x, v_mul(x, e), x), v_add(v_set(1), e));
}

VEC v16 v_gelu_tanh(v16 x)
{
    d16 d = d_widen(x), a = d_abs(d);
    d16 cube = d_mul(d_mul(a, a), a);
    d16 e = d_exp(d_mul(d_set(GELU_SCALE), d_add(a, d_mul(d_set(GELU_CUBIC), cube))));
    d16 top = d_select_less(d, d_set(0), d_mul(d, e), d);
    return d_narrow(d_div(top, d_add(d_set(1), e)));
}

VEC v16 v_tanh(v16 x)
{
    d16 d = d_widen(x), a = d_abs(d), one = d_set(1), e = d_exp(d_mul(d_set(-2), a));
    d16 small = d_mul(d, d_sub(one, d_div(d_mul(d, d), d_set(3))));
    d16 large = d_or_sign(d_div(d_sub(one, e), d_add(one, e)), d);
    return d_narrow(d_select_less(a, d_set(0x1p-10), small, large));
}

#define ELEMENTWISE(i, left) for (size_t i = 0, left = n; i < n; i += TILE, left = n - i)

#define DEFINE_UNARY(name)                                                \
    static void each_##name(size_t n, const float *x, float *y)           \
    {                                                                     \
        ELEMENTWISE(i, left)                                              \
        v_store_some(y + i, v_##name(v_load_some(x + i, left, 0)), left); \
    }
DEFINE_UNARY(exp)
DEFINE_UNARY(tanh)
DEFINE_UNARY(silu)
DEFINE_UNARY(gelu_tanh)

static void accumulate(size_t n, const float *x, double *sum, float *y)
{
    for (size_t i = 0; i < n; i++) { /* compilers make good code of it */
        sum[i] += x[i];
        y[i] = (float)sum[i];
    }
}

static void add(size_t n, const float *x, float *y)
{
    ELEMENTWISE(i, left)
    v_store_some(y + i, v_add(v_load_some(y + i, left, 0), v_load_some(x + i, left, 0)), left);
}

static void divide(size_t n, const float *x, float divisor, float *y)
{
    ELEMENTWISE(i, left)
    v_store_some(y + i, v_div(v_load_some(x + i, left, 0), v_set(divisor)), left);
}

static void silu_mul(size_t n, const float *gate, const float *up, float *y)
{
    ELEMENTWISE(i, left)
    {
        v16 act = v_silu(v_load_some(gate + i, left, 0));
        v_store_some(y + i, v_mul(act, v_load_some(up + i, left, 0)), left);
    }
}

static void rope(size_t half, const float *cos, const float *sin, float *v)
{
    size_t n = half;
    ELEMENTWISE(i, left)
    {
        v16 a = v_load_some(v + i, left, 0), b = v_load_some(v + half + i, left, 0);
        v16 c = v_load_some(cos + i, left, 0), s = v_load_some(sin + i, left, 0);
        v_store_some(v + i, v_fma(v_neg(b), s, v_mul(a, c)), left);
        v_store_some(v + half + i, v_fma(a, s, v_mul(b, c)), left);
    }
}

/* The sums of softmax: keys in aligned groups of 16, so that a lane is a key mod 16. */
static float softmax_total(const float *e, size_t n, size_t first)
{
    float total = 0;
    v16 lanes = v_set(0);
    for (size_t i = 0; i < n;) {
        size_t lane = (first + i) % TILE, m = n - i < TILE - lane ? n - i : TILE - lane;
        v16 group;
        if (m == TILE) {
            group = v_load(e + i);
        } else {
            float some[TILE] = {0};
            memcpy(some + lane, e + i, m * sizeof *e);
            group = v_load(some);
        }
        lanes = v_add(lanes, group);
        i += m;
        if ((first + i) % KBLOCK == 0 || i == n) {
            total += v_fold(lanes);
            lanes = v_set(0);
        }
    }
    return total;
}

static float softmax(float *s, size_t n, size_t first, float scale)
{
    v16 top = v_set(-INFINITY), by = v_set(scale);
    ELEMENTWISE(i, left)
    {
        v16 x = v_load_some(s + i, left, 0);
        x = v_mul(x, by);
        v_store_some(s + i, x, left);
        top = v_max(v_load_some(s + i, left, -INFINITY), top);
    }
    v16 max = v_set(v_fold_max(top));
    ELEMENTWISE(i, left)
    v_store_some(s + i, v_exp(v_sub(v_load_some(s + i, left, 0), max)), left);
    return softmax_total(s, n, first);
}

static void rms_norm(size_t n, const float *x, const float *gain, double eps, float *y)
{
    d16 sum = d_set(0); /* the square of a float is exact in f64, so fma rounds as the sum does */
    ELEMENTWISE(i, left)
    {
        d16 d = d_widen(v_load_some(x + i, left, 0));
        sum = d_fma(d, d, sum);
    }
    d16 r = d_set(1 / sqrt(d_fold(sum) / (double)n + eps));
    ELEMENTWISE(i, left)
    {
        d16 d = d_mul(d_widen(v_load_some(x + i, left, 0)), r);
        v_store_some(y + i, d_narrow(d_mul(d, d_widen(v_load_some(gain + i, left, 0)))), left);
    }
}

static void layer_norm(size_t n, const float *x, const float *gain, const float *bias, double eps,
                       float *y)
{
    static const float index[TILE] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    d16 sum = d_set(0), squares = d_set(0), lane = d_widen(v_load(index));
    ELEMENTWISE(i, left)
    sum = d_add(sum, d_widen(v_load_some(x + i, left, 0)));
    d16 mean = d_set(d_fold(sum) / (double)n);
    ELEMENTWISE(i, left)
    {
        d16 d = d_sub(d_widen(v_load_some(x + i, left, 0)), mean);
        d = d_select_less(lane, d_set((double)left), d, d_set(0));
        squares = d_add(squares, d_mul(d, d));
    }
    d16 r = d_set(1 / sqrt(d_fold(squares) / (double)n + eps));
    ELEMENTWISE(i, left)
    {
        d16 d = d_mul(d_sub(d_widen(v_load_some(x + i, left, 0)), mean), r);
        d = d_mul(d, d_widen(v_load_some(gain + i, left, 0)));
        d16 b = bias ? d_widen(v_load_some(bias + i, left, 0)) : d_set(0);
        v_store_some(y + i, d_narrow(d_add(d, b)), left);
    }
}

static struct lse_part lse_panel(const float *logits, size_t n, bool want_T)
{
    v16 top = v_set(-INFINITY);
    ELEMENTWISE(i, left)
    top = v_max(v_load_some(logits + i, left, -INFINITY), top);
    double max = v_fold_max(top);
    d16 base = d_set(max == -INFINITY ? 0 : max), S = d_set(0), T = d_set(0), zero = d_set(0);
    ELEMENTWISE(i, left)
    {
        d16 d = d_sub(d_widen(v_load_some(logits + i, left, -INFINITY)), base), e = d_exp(d);
        S = d_add(S, e);
        if (want_T) T = d_add(T, d_select_less(zero, e, d_mul(e, d), e));
    }
    return (struct lse_part){max + 0.0, d_fold(S), d_fold(T)};
}

static size_t count_before(const float *logits, size_t n, float l, size_t n_before)
{
    size_t count = 0;
    v16 given = v_set(l);
    ELEMENTWISE(i, left)
    {
        v16 x = v_load_some(logits + i, left, 0);
        unsigned exist = left < TILE ? (1u << left) - 1 : 0xffff;
        size_t m = n_before > i ? n_before - i : 0;
        unsigned lower = m < TILE ? (1u << m) - 1 : 0xffff;
        unsigned before = v_greater(x, given) | (v_equal(x, given) & lower);
        count += (size_t)__builtin_popcount(before & exist);
    }
    return count;
}

const struct kernels LEVEL_TABLE = {
    .level = LEVEL,
    .name = LEVEL_NAME,
    .panel_gemm = panel_gemm,
    .panel_dot = panel_dot,
    .mix_values = mix_values,
    .softmax = softmax,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .accumulate = accumulate,
    .add = add,
    .silu_mul = silu_mul,
    .rope = rope,
    .unary = {each_exp, ref_log, ref_sin, ref_cos, each_tanh, ref_erf, each_silu, each_gelu_tanh,
              ref_gelu_erf},
    .lse_panel = lse_panel,
    .count_before = count_before,
    .divide = divide,
};
