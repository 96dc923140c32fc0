/*
 * bf16_tpl.h - linear layers of profile bf16 by an instruction that multiplies pairs of bf16.
 *
 *   operand   [k / 2][rows of the block] u32, odd k in the high half and +0 beyond K
 *   weights   the panel as it is: [k / 2][16 columns] u32 in the same order
 *
 * So one v_dot_bf16 takes two k of a row and of a tile, in the order of DOT. Whether the machine
 * keeps that order is asked before a table with these functions is given out (probe.c).
 */
#include "tensor/kernels_tpl.h"

static void round_some(size_t n, const float *x, uint16_t *rounded)
{
    for (size_t k = 0; k < n; k++) rounded[k] = (uint16_t)bf16_bits(x[k]);
}

/* A block of K at a time, of which compilers make vectors where it is whole. */
static void pack_bf16_pairs(size_t n_rows, const float *const *rows, size_t K, float *operand)
{
    uint16_t rounded[ROW_BLOCK][KBLOCK] = {{0}};
    for (size_t k = 0; k < K; k += KBLOCK) {
        size_t depth = block_depth(K, k / KBLOCK);
        for (size_t r = 0; r < n_rows; r++) {
            if (K - k < KBLOCK) {
                rounded[r][depth - 1] = 0;
                round_some(K - k, rows[r] + k, rounded[r]);
            } else {
                round_some(KBLOCK, rows[r] + k, rounded[r]);
            }
        }
        for (size_t i = 0; i < depth; i += 2)
            for (size_t r = 0; r < n_rows; r++) memcpy(operand++, &rounded[r][i], sizeof *operand);
    }
}

/* clang-format off */
#define LOAD_BF16(t, k)                                                                          \
    n16 q##t = n_load(w + (t) * stride + (k));                                                   \
    __builtin_prefetch(w + ahead + (t) * stride + (k));
#define ADD_BF16(t, r) s##r##t = v_dot_bf16(s##r##t, pair, q##t);
#define ROW_ADD_BF16(r, T)                                                                       \
    {                                                                                            \
        n16 pair = n_of_bits(v_set(x[r]));                                                       \
        FOR_TILES_##T(ADD_BF16, r)                                                               \
    }
#define DEFINE_BF16(R, T)                                                                        \
    static void bf16_##R##x##T(const struct block *b, const float *x, const float *w, float *y,  \
                               size_t ldy)                                                       \
    {                                                                                            \
        const bool first = b->first;                                                             \
        const size_t stride = b->stride, ahead = (T) * stride;                                   \
        FOR_ROWS_##R(ROW_SUMS, T)                                                                \
        for (size_t k = 0; k < b->depth; k += 2, x += (R), w += TILE) {                          \
            FOR_TILES_##T(LOAD_BF16, 0)                                                          \
            FOR_ROWS_##R(ROW_ADD_BF16, T)                                                        \
        }                                                                                        \
        FOR_ROWS_##R(ROW_TOTALS, T)                                                              \
    }
/* clang-format on */

DEFINE_BF16(1, 1)
DEFINE_BF16(2, 1)
DEFINE_BF16(3, 1)
DEFINE_BF16(4, 1)
DEFINE_BF16(5, 1)
DEFINE_BF16(6, 1)
WIDE_TILES(DEFINE_BF16)
#define WIDE_BF16(R, T) [R] = {bf16_##R##x##T, T},
static const struct tile_fns bf16_fns = {NARROW(bf16), {WIDE_TILES(WIDE_BF16)}};

static void gemm_bf16_pairs(const struct gemm *g)
{
    struct block b = block_of(g, &bf16_fns);
    for (size_t k = 0; k < g->K; k += KBLOCK, b.first = false) {
        b.x_deep = k / 2;
        b.depth = block_depth(g->K, k / KBLOCK);
        b.stride = b.depth / 2 * TILE;
        b.w = (const float *)g->panel + k / 2 * PANEL + g->tile * b.stride;
        run_block(&b);
    }
}
