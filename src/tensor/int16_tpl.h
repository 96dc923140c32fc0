/*
 * int16_tpl.h - linear layers of profile int16: activations as 16-bit integers per group of 32,
 * exact integer sums.
 *
 *   operand   per group  [16 pairs][rows] u32, s [rows], h [rows]
 *   weights   per cell   [16 pairs][16 columns] u32, d [16], m [16], expanded from the panel by
 *                        blocks of 64 k
 *
 * Float totals live in y and not in registers: those are needed for the integer sums. A type
 * without a minimum has m = 0, which changes no total: none is ever -0.
 */
#include "tensor/panels_tpl.h"

#define GROUP (CELL / 2 + 2) /* floats per row */

/* The integers of one row's group; *s and *h too. */
static void group_of(const float *x, int32_t *integers, float *s, float *h)
{
    uint32_t most = 0;
    int32_t sum = 0;
    for (size_t k = 0; k < CELL; k++) {
        uint32_t magnitude = bits_of(x[k]) & 0x7fffffff; /* ordered like the floats */
        most = magnitude > most ? magnitude : most;
    }
    float a = float_of(most), inverse = 32767.0f / a;
    bool small = a < 0x1p-100f, finite = most < 0x7f800000;
    if (small || !finite) inverse = 0;
    for (size_t k = 0; k < CELL; k++) {
        integers[k] = finite ? (int32_t)rintf(x[k] * inverse) : 0;
        sum += integers[k];
    }
    *s = !finite ? NAN : small ? 0 : a / 32767.0f;
    *h = *s * (float)sum;
}

static void pack_int16(size_t n_rows, const float *const *rows, size_t K, float *operand)
{
    for (size_t k = 0; k < K; k += CELL, operand += GROUP * n_rows)
        for (size_t r = 0; r < n_rows; r++) {
            int32_t i[CELL];
            float *scales = operand + CELL / 2 * n_rows;
            group_of(rows[r] + k, i, &scales[r], &scales[n_rows + r]);
            for (size_t j = 0; j < CELL / 2; j++) {
                uint32_t pair = (uint32_t)(uint16_t)i[2 * j] | (uint32_t)i[2 * j + 1] << 16;
                memcpy(&operand[j * n_rows + r], &pair, sizeof pair);
            }
        }
}

#define CELL16 ((CELL / 2 + 2) * TILE) /* floats */

typedef void expand16_fn(const uint8_t *cell, float *out);

#define DEFINE_EXPAND16(type, bytes)                                \
    static void expand16_##type(const uint8_t *cell, float *out)    \
    {                                                               \
        struct scales s = scales_##type(cell);                      \
        _Pragma("GCC unroll 16") for (int j = 0; j < CELL / 2; j++) \
            n_store(out + j * TILE, pair_##type(cell, &s, j));      \
        v_store(out + CELL / 2 * TILE, s.d);                        \
        v16 m = dtype_has_minimum(DT_##type) ? s.m : v_set(0);      \
        v_store(out + (CELL / 2 + 1) * TILE, m);                    \
    }
QUANTISED_TYPES(DEFINE_EXPAND16)
#define EXPAND16_ROW(type, bytes) [DT_##type] = expand16_##type,
static expand16_fn *const expand16_fns[DT_COUNT] = {QUANTISED_TYPES(EXPAND16_ROW)};

/* clang-format off */
#define DOT(t, r) n16 i##r##t = n_set(0);
#define ROW_DOTS(r, T) FOR_TILES_##T(DOT, r)
#define LOAD_PAIRS(t, j) n16 q##t = n_load(w + (t) * stride + (j) * TILE);
#define ADD_PAIRS(t, r) i##r##t = n_dot_pairs(i##r##t, pair, q##t);
#define ROW_ADD_PAIRS(r, T)                                                                      \
    {                                                                                            \
        n16 pair = n_of_bits(v_set(xs[r]));                                                      \
        FOR_TILES_##T(ADD_PAIRS, r)                                                              \
    }
#define DOT_TOTAL(t, r)                                                                          \
    {                                                                                            \
        const float *scale = w + (t) * stride + CELL / 2 * TILE;                                 \
        float *to = y + (r) * ldy + (t) * TILE;                                                  \
        v16 total = v_fma(v_of_ints(i##r##t), v_mul(s, v_load(scale)), v_load(to));              \
        v_store(to, v_fma(h, v_load(scale + TILE), total));                                      \
    }
#define ROW_DOT_TOTALS(r, T)                                                                     \
    {                                                                                            \
        v16 s = v_set(xs[r]), h = v_set(xs[rows + (r)]);                                         \
        FOR_TILES_##T(DOT_TOTAL, r)                                                              \
    }
#define DEFINE_INT16(R, T)                                                                       \
    static void int16_##R##x##T(const struct block *b, const float *x, const float *w, float *y, \
                                size_t ldy)                                                      \
    {                                                                                            \
        const size_t stride = b->stride, rows = (R);                                             \
        for (size_t k = 0; k < b->depth; k += CELL, w += PANEL / TILE * CELL16) {                \
            const float *xs = x;                                                                 \
            FOR_ROWS_##R(ROW_DOTS, T)                                                            \
            _Pragma("GCC unroll 4") for (int j = 0; j < CELL / 2; j++, xs += rows) {             \
                FOR_TILES_##T(LOAD_PAIRS, j)                                                     \
                FOR_ROWS_##R(ROW_ADD_PAIRS, T)                                                   \
            }                                                                                    \
            FOR_ROWS_##R(ROW_DOT_TOTALS, T)                                                      \
            x += GROUP * rows;                                                                   \
        }                                                                                        \
    }
/* clang-format on */

DEFINE_INT16(1, 1)
DEFINE_INT16(2, 1)
DEFINE_INT16(3, 1)
DEFINE_INT16(4, 1)
DEFINE_INT16(5, 1)
DEFINE_INT16(6, 1)
INT16_WIDE_TILES(DEFINE_INT16)
#define WIDE_INT16(R, T) [R] = {int16_##R##x##T, T},
static const struct tile_fns int16_fns = {NARROW(int16), {INT16_WIDE_TILES(WIDE_INT16)}};

static void gemm_int16(const struct gemm *g)
{
    _Alignas(64) float expanded[KBLOCK / CELL * PANEL / TILE * CELL16];
    size_t bytes = (size_t)TILE * dtype_infos[g->dtype].block_bytes;
    struct block b = block_of(g, &int16_fns);
    b.w = expanded;
    b.stride = CELL16;
    b.first = false; /* y is cleared below */
    const uint8_t *cell = (const uint8_t *)g->panel + g->tile * bytes;
    for (size_t r = 0; r < g->n_rows; r++) memset(g->y + r * g->ldy, 0, g->n_cols * sizeof *g->y);
    for (size_t k = 0; k < g->K; k += KBLOCK) {
        float *out = expanded;
        b.depth = block_depth(g->K, k / KBLOCK);
        for (size_t i = 0; i < b.depth; i += CELL, cell += PANEL / TILE * bytes)
            for (size_t t = 0; t < PANEL / TILE; t++, out += CELL16)
                if (t * TILE < g->n_cols) expand16_fns[g->dtype](cell + t * bytes, out);
        b.x_deep = k / CELL * GROUP;
        run_block(&b);
    }
}
