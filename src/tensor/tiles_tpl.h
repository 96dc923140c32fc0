/*
 * tiles_tpl.h - products of matrices in f32, and the two of attention.
 *
 * The inner loops are tiles: up to 6 rows x 1 to 4 tiles of 16 columns x 64 k, their sums in
 * registers, which is why rows are expanded by macros: compilers spill arrays. A linear layer has
 * its rows packed [k][rows of the block], one stream for the prefetcher; attention takes rows as
 * they lie, since packing them would cost more than it gives.
 */
#include "tensor/functions.h"
#include "tensor/levels.h"
#include <math.h>
#include <string.h>

/* Tiles that come next are fetched while one is in use: by its loop, line by line (fetching); or,
 * where there are many row blocks, each fetches a share. One or two rows wait for memory anyway. */
#define FETCH_ROWS 3
#define SHARING_BLOCKS 6

#define FOR_TILES_1(DO, ...) DO(0, __VA_ARGS__)
#define FOR_TILES_2(DO, ...) FOR_TILES_1(DO, __VA_ARGS__) DO(1, __VA_ARGS__)
#define FOR_TILES_4(DO, ...) FOR_TILES_2(DO, __VA_ARGS__) DO(2, __VA_ARGS__) DO(3, __VA_ARGS__)
#define FOR_ROWS_1(DO, T) DO(0, T)
#define FOR_ROWS_2(DO, T) FOR_ROWS_1(DO, T) DO(1, T)
#define FOR_ROWS_3(DO, T) FOR_ROWS_2(DO, T) DO(2, T)
#define FOR_ROWS_4(DO, T) FOR_ROWS_3(DO, T) DO(3, T)
#define FOR_ROWS_5(DO, T) FOR_ROWS_4(DO, T) DO(4, T)
#define FOR_ROWS_6(DO, T) FOR_ROWS_5(DO, T) DO(5, T)

/* ---- tiles ----------------------------------------------------------------------------------- */

/* One block of K (at most 64 deep), all rows and columns. Tile t of w begins `stride` floats after
 * tile t - 1. Sums are added to y, or to +0 where `first`. */
struct block {
    const struct tile_fns *fns;
    size_t n_rows, n_blocks; /* row blocks; block i begins at x + x_row * its first row */
    const float *x, *w;
    size_t x_row, x_deep; /* and + x_deep * its number of rows, in a packed operand */
    size_t stride, depth, n_cols, ldy;
    float *y;
    bool first, sharing; /* sharing: each row block fetches a part of the tiles that come next */
};

/* The rows of a row block times `tiles` tiles from w on, for a block of K. */
typedef void tile_fn(const struct block *b, const float *x, const float *w, float *y, size_t ldy);

/* clang-format off */
#define packed_ROW 1
#define packed_DEEP(R) (R)
#define packed_FETCH false
#define fetching_ROW 1
#define fetching_DEEP(R) (R)
#define fetching_FETCH true
#define flat_ROW b->x_row
#define flat_DEEP(R) 1
#define flat_FETCH true

#define SUM(t, r) v16 s##r##t = v_set(0);
#define ROW_SUMS(r, T) FOR_TILES_##T(SUM, r)
#define LOAD(t, k)                                                                               \
    v16 w##t = v_load(w + (t) * stride + (k) * TILE);                                            \
    if (fetch) __builtin_prefetch(w + ahead + (t) * stride + (k) * TILE);
#define FMA(t, r) s##r##t = v_fma(xk, w##t, s##r##t);
#define ROW_FMA(r, T)                                                                            \
    {                                                                                            \
        v16 xk = v_set(xs[(r) * row]);                                                           \
        FOR_TILES_##T(FMA, r)                                                                    \
    }
#define STEP(R, T, k)                                                                            \
    {                                                                                            \
        const float *xs = x + (k) * deep;                                                        \
        FOR_TILES_##T(LOAD, k)                                                                   \
        FOR_ROWS_##R(ROW_FMA, T)                                                                 \
    }
#define TOTAL(t, r)                                                                              \
    {                                                                                            \
        float *to = y + (r) * ldy + (t) * TILE;                                                  \
        v_store(to, v_add(first ? v_set(0) : v_load(to), s##r##t));                              \
    }
#define ROW_TOTALS(r, T) FOR_TILES_##T(TOTAL, r)

#define DEFINE_TILES(kind, R, T)                                                                 \
    static void kind##_##R##x##T(const struct block *b, const float *x, const float *w,          \
                                 float *y, size_t ldy)                                           \
    {                                                                                            \
        const bool first = b->first, fetch = kind##_FETCH && (R) >= FETCH_ROWS;                  \
        const size_t stride = b->stride, depth = b->depth;                                       \
        const size_t ahead = (T) * stride, row = kind##_ROW, deep = kind##_DEEP(R);              \
        FOR_ROWS_##R(ROW_SUMS, T)                                                                \
        size_t k = 0;                                                                            \
        for (; k + 4 <= depth; k += 4, x += 4 * deep, w += 4 * TILE) {                           \
            STEP(R, T, 1)                                                                        \
            STEP(R, T, 0)                                                                        \
            STEP(R, T, 3)                                                                        \
            STEP(R, T, 2)                                                                        \
        }                                                                                        \
        if (k + 2 <= depth) {                                                                    \
            STEP(R, T, 1)                                                                        \
            STEP(R, T, 0)                                                                        \
            k += 2, x += 2 * deep, w += 2 * TILE;                                                \
        }                                                                                        \
        if (k < depth) STEP(R, T, 0)                                                             \
        FOR_ROWS_##R(ROW_TOTALS, T)                                                              \
    }
#define DEFINE_NARROW(kind)                                                                      \
    DEFINE_TILES(kind, 1, 1)                                                                     \
    DEFINE_TILES(kind, 2, 1)                                                                     \
    DEFINE_TILES(kind, 3, 1)                                                                     \
    DEFINE_TILES(kind, 4, 1)                                                                     \
    DEFINE_TILES(kind, 5, 1)                                                                     \
    DEFINE_TILES(kind, 6, 1)
#define DEFINE_WIDE_PACKED(R, T) DEFINE_TILES(packed, R, T)
#define DEFINE_WIDE_FETCHING(R, T) DEFINE_TILES(fetching, R, T)
#define DEFINE_WIDE_FLAT(R, T) DEFINE_TILES(flat, R, T)
/* clang-format on */

DEFINE_NARROW(packed)
DEFINE_NARROW(fetching)
DEFINE_NARROW(flat)
WIDE_TILES(DEFINE_WIDE_PACKED)
WIDE_TILES(DEFINE_WIDE_FETCHING)
WIDE_TILES(DEFINE_WIDE_FLAT)

/* The functions of one kind by their number of rows; wide ones take n_tiles side by side. */
struct tile_fns {
    tile_fn *narrow[ROW_BLOCK + 1];
    struct {
        tile_fn *fn;
        size_t n_tiles;
    } wide[ROW_BLOCK + 1];
};
#define NARROW(kind)                                                                 \
    {                                                                                \
        NULL, kind##_1x1, kind##_2x1, kind##_3x1, kind##_4x1, kind##_5x1, kind##_6x1 \
    }
#define WIDE_PACKED(R, T) [R] = {packed_##R##x##T, T},
#define WIDE_FETCHING(R, T) [R] = {fetching_##R##x##T, T},
#define WIDE_FLAT(R, T) [R] = {flat_##R##x##T, T},
static const struct tile_fns packed_fns = {NARROW(packed), {WIDE_TILES(WIDE_PACKED)}};
static const struct tile_fns fetching_fns = {NARROW(fetching), {WIDE_TILES(WIDE_FETCHING)}};
static const struct tile_fns flat_fns = {NARROW(flat), {WIDE_TILES(WIDE_FLAT)}};

static size_t rows_of(const struct block *b, size_t i)
{
    return b->n_rows / b->n_blocks + (i < b->n_rows % b->n_blocks);
}

/* Fetches share i of n of the tiles that come next, so that each line is asked for once. */
static void fetch_share(const float *next, size_t n_floats, size_t i, size_t n)
{
    size_t each = n_floats / TILE / n + 1;
    for (size_t line = i * each; line < (i + 1) * each; line++)
        __builtin_prefetch(next + line * TILE);
}

/* Tiles of w on the outside, so that one stays in L1 while the rows pass. */
static void run_rows(const struct block *b, size_t tile, size_t n_tiles, float *y, size_t ldy)
{
    const float *w = b->w + tile * b->stride, *x = b->x;
    size_t fewer = b->n_rows / b->n_blocks, n_more = b->n_rows % b->n_blocks;
    for (size_t i = 0; i < b->n_blocks; i++) {
        size_t rows = fewer + (i < n_more);
        tile_fn *fn = n_tiles > 1 ? b->fns->wide[rows].fn : b->fns->narrow[rows];
        if (b->sharing) fetch_share(w + n_tiles * b->stride, n_tiles * b->stride, i, b->n_blocks);
        fn(b, x + b->x_deep * rows, w, y, ldy);
        x += rows * b->x_row;
        y += rows * ldy;
    }
}

/* The last tile, where it has columns beyond n_cols: summed aside, then its own columns copied. */
static void run_ragged(const struct block *b, size_t tile)
{
    float sums[ROW_BLOCK][TILE], *y = b->y + tile * TILE;
    size_t n = b->n_cols - tile * TILE;
    struct block part = *b;
    part.n_blocks = 1;
    for (size_t block = 0; block < b->n_blocks; block++) {
        part.n_rows = rows_of(b, block);
        for (size_t i = 0; i < part.n_rows; i++)
            v_store(sums[i], v_load_some(y + i * b->ldy, b->first ? 0 : n, 0));
        run_rows(&part, tile, 1, sums[0], TILE);
        for (size_t i = 0; i < part.n_rows; i++) v_store_some(y + i * b->ldy, v_load(sums[i]), n);
        part.x += part.n_rows * b->x_row;
        y += part.n_rows * b->ldy;
    }
}

static void run_block(const struct block *b)
{
    size_t whole = b->n_cols / TILE, tile = 0, wide = b->fns->wide[rows_of(b, 0)].n_tiles;
    bool same = b->fns->wide[b->n_rows / b->n_blocks].n_tiles == wide; /* of smaller row blocks */
    if (wide && same)
        for (; tile + wide <= whole; tile += wide)
            run_rows(b, tile, wide, b->y + tile * TILE, b->ldy);
    for (; tile < whole; tile++) run_rows(b, tile, 1, b->y + tile * TILE, b->ldy);
    if (b->n_cols % TILE) run_ragged(b, whole);
}

/* A linear layer as a block whose weights, depth and place in the operand are still to be set. */
static struct block block_of(const struct gemm *g, const struct tile_fns *fns)
{
    return (struct block){.fns = fns,
                          .n_rows = g->n_rows,
                          .n_blocks = g->n_blocks,
                          .x = g->operand,
                          .x_row = g->K,
                          .n_cols = g->n_cols,
                          .y = g->y,
                          .ldy = g->ldy,
                          .first = true};
}

/* ---- attention ------------------------------------------------------------------------------- */

static void score_keys(size_t n_rows, const float *q, size_t ldq, const float *page,
                       size_t head_dim, float *s, size_t lds, size_t n_keys)
{
    struct block b = {.fns = &flat_fns,
                      .n_rows = n_rows,
                      .n_blocks = row_blocks(n_rows),
                      .x_row = ldq,
                      .n_cols = n_keys,
                      .y = s,
                      .ldy = lds,
                      .first = true};
    for (size_t k = 0; k < head_dim && n_rows; k += KBLOCK, b.first = false) {
        b.depth = head_dim - k < KBLOCK ? head_dim - k : KBLOCK;
        b.stride = block_depth(head_dim, k / KBLOCK) * TILE;
        b.x = q + k;
        b.w = page + k * PANEL;
        run_block(&b);
    }
}

static void mix_values(size_t n_rows, const float *p, size_t ldp, const float *const *pages,
                       size_t n_keys, float *y, size_t ldy, size_t head_dim)
{
    struct block b = {.fns = &flat_fns,
                      .n_rows = n_rows,
                      .n_blocks = row_blocks(n_rows),
                      .x_row = ldp,
                      .stride = PANEL * TILE,
                      .n_cols = head_dim,
                      .y = y,
                      .ldy = ldy,
                      .first = true};
    for (size_t j = 0; j < n_keys && n_rows; j += KBLOCK, b.first = false) {
        b.depth = n_keys - j < KBLOCK ? n_keys - j : KBLOCK;
        b.x = p + j;
        b.w = pages[j / KBLOCK]; /* a block of keys is a page */
        run_block(&b);
    }
}
