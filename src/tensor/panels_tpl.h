/*
 * panels_tpl.h - linear layers in f32 over every stored type (panels.h has their layouts).
 *
 * Weights that are not f32 are expanded block by block into 16 KB that stay in L1 while the rows
 * pass; up to four rows take them straight from the panel instead, in registers.
 */
#include "tensor/bits.h"
#include "tensor/tiles_tpl.h"

#define DIRECT_ROWS 4
#define DIRECT_AHEAD_BYTES (16 << 10) /* half of L1 */

/* ---- stored types ---------------------------------------------------------------------------- */

/* What a cell says of its 16 columns beside the integers. Nibbles are taken where they lie in a
 * word, as q 2^4i: d_at[i] is d 2^-4i, whose product with that is the exact q d. */
struct scales {
    v16 d, m, d_at[7];
    n16 high;
};

/* A reader: the scales of a cell; the f32 value of weight k = 0..31 of all columns, the bits of its
 * formula: q d is exact in f32, so one fma rounds like a sum after a product. k is a constant
 * wherever this is expanded. */
VEC struct scales nibble_scales(v16 d, v16 m)
{
    struct scales s = {.d = d, .m = m};
    for (int i = 0; i < 7; i++) s.d_at[i] = v_mul(d, v_set(1.0f / (float)(1 << 4 * i)));
    return s;
}
VEC v16 nibble_value(const uint8_t *words, const struct scales *s, int k)
{
    n16 word = n_load(words + k / 8 * 4 * TILE);
    int i = k % 8 / 2 + 4 * (k % 2);
    if (i == 7) return v_fma(s->d, v_of_ints(n_right(word, 28)), s->m);
    return v_fma(s->d_at[i], v_of_ints(n_and(word, n_set(15u << 4 * i))), s->m);
}
VEC v16 word_fifth(const uint8_t *words, n16 high, int k)
{
    int bit = k / 2 + 16 * (k % 2), at = 4 * (k % 8 / 2) + 16 * (k % 2);
    n16 word = n_load(words + k / 8 * 4 * TILE);
    n16 low = n_and(n_right(word, at), n_set(15));
    n16 top = n_and(bit >= 4 ? n_right(high, bit - 4) : n_left(high, 4 - bit), n_set(16));
    return v_of_ints(n_or(low, top));
}

VEC struct scales scales_Q4_0(const uint8_t *cell)
{
    v16 d = v_of_halves(cell);
    return nibble_scales(d, v_mul(d, v_set(-8)));
}
VEC v16 value_Q4_0(const uint8_t *cell, const struct scales *s, int k)
{
    return nibble_value(cell + 32, s, k);
}
VEC struct scales scales_Q4_1(const uint8_t *cell)
{
    return nibble_scales(v_of_halves(cell), v_of_halves(cell + 32));
}
VEC v16 value_Q4_1(const uint8_t *cell, const struct scales *s, int k)
{
    return nibble_value(cell + 64, s, k);
}
VEC struct scales scales_Q5_0(const uint8_t *cell)
{
    v16 d = v_of_halves(cell);
    return (struct scales){.d = d, .m = v_mul(d, v_set(-16)), .high = n_load(cell + 32)};
}
VEC v16 value_Q5_0(const uint8_t *cell, const struct scales *s, int k)
{
    return v_fma(s->d, word_fifth(cell + 96, s->high, k), s->m);
}
VEC struct scales scales_Q5_1(const uint8_t *cell)
{
    return (struct scales){
        .d = v_of_halves(cell), .m = v_of_halves(cell + 32), .high = n_load(cell + 64)};
}
VEC v16 value_Q5_1(const uint8_t *cell, const struct scales *s, int k)
{
    return v_fma(s->d, word_fifth(cell + 128, s->high, k), s->m);
}
VEC struct scales scales_Q8_0(const uint8_t *cell)
{
    return (struct scales){.d = v_of_halves(cell)};
}
VEC v16 value_Q8_0(const uint8_t *cell, const struct scales *s, int k)
{
    int at = 8 * (k % 4 / 2) + 16 * (k % 2);
    n16 word = n_load(cell + 32 + k / 4 * 4 * TILE);
    return v_mul(s->d, v_of_ints(n_right_signed(n_left(word, 24 - at), 24)));
}
/* Types without scales: a cell is 32 k of a tile. */
VEC struct scales scales_BF16(const uint8_t *cell)
{
    (void)cell;
    return (struct scales){.d = v_set(0)};
}
VEC v16 value_BF16(const uint8_t *cell, const struct scales *s, int k)
{
    n16 pair = n_load(cell + k / 2 * 4 * TILE);
    (void)s;
    return v_of_bits(k % 2 ? n_and(pair, n_set(0xffff0000)) : n_left(pair, 16));
}
#define scales_F16 scales_BF16
VEC v16 value_F16(const uint8_t *cell, const struct scales *s, int k)
{
    (void)s;
    return v_of_halves(cell + k * 2 * TILE);
}

/* Pair j = 0..15 of integers, k = 2j and 2j + 1. */
VEC n16 word_pair(const uint8_t *words, int j)
{
    return n_and(n_right(n_load(words + j / 4 * 4 * TILE), 4 * (j % 4)), n_set(0x000f000f));
}
VEC n16 word_fifth_pair(const uint8_t *words, n16 high, int j)
{
    return n_or(word_pair(words, j), n_left(n_and(n_right(high, j), n_set(0x00010001)), 4));
}
VEC n16 pair_Q4_0(const uint8_t *cell, const struct scales *s, int j)
{
    (void)s;
    return n_pairs_sub(word_pair(cell + 32, j), n_set(0x00080008));
}
VEC n16 pair_Q4_1(const uint8_t *cell, const struct scales *s, int j)
{
    (void)s;
    return word_pair(cell + 64, j);
}
VEC n16 pair_Q5_0(const uint8_t *cell, const struct scales *s, int j)
{
    return n_pairs_sub(word_fifth_pair(cell + 96, s->high, j), n_set(0x00100010));
}
VEC n16 pair_Q5_1(const uint8_t *cell, const struct scales *s, int j)
{
    return word_fifth_pair(cell + 128, s->high, j);
}
VEC n16 pair_Q8_0(const uint8_t *cell, const struct scales *s, int j)
{
    n16 word = n_load(cell + 32 + j / 2 * 4 * TILE);
    (void)s;
    return n_pairs_right_signed(j % 2 ? word : n_pairs_left(word, 8), 8);
}

#define QUANTISED_TYPES(X) X(Q4_0, 288) X(Q4_1, 320) X(Q5_0, 352) X(Q5_1, 384) X(Q8_0, 544)
#define WIDE_TYPES(X) X(F16, 1024) X(BF16, 1024)

/* Cells of a tile that are fetched while one is expanded: where few rows follow, this waits for
 * memory. */
#define EXPAND_AHEAD 4

/* ---- weights expanded to f32 ----------------------------------------------------------------- */

/* `depth` k from k0 on (a multiple of 64) of one tile -> [depth][16] */
typedef void expand_fn(const uint8_t *panel, size_t k0, size_t tile, size_t depth, float *out);

#define DEFINE_EXPAND(type, bytes)                                                        \
    static void expand_##type(const uint8_t *panel, size_t k0, size_t tile, size_t depth, \
                              float *out)                                                 \
    {                                                                                     \
        const uint8_t *cell = panel + (k0 / CELL * (PANEL / TILE) + tile) * (bytes);      \
        for (size_t k = 0; k < depth; k += CELL, cell += (PANEL / TILE) * (bytes)) {      \
            struct scales s = scales_##type(cell);                                        \
            for (size_t i = 0; i < (bytes); i += 64)                                      \
                __builtin_prefetch(cell + EXPAND_AHEAD * (PANEL / TILE) * (bytes) + i);   \
            _Pragma("GCC unroll 32") for (int i = 0; i < CELL; i++, out += TILE)          \
                v_store(out, value_##type(cell, &s, i));                                  \
        }                                                                                 \
    }
#define DEFINE_WIDEN(type, bytes)                                                         \
    static void expand_##type(const uint8_t *panel, size_t k0, size_t tile, size_t depth, \
                              float *out)                                                 \
    {                                                                                     \
        const uint8_t *pair = panel + (k0 * PANEL + tile * depth * TILE) * 2;             \
        struct scales s = scales_##type(pair);                                            \
        for (size_t k = 0; k < depth; k += 2, pair += 4 * TILE, out += 2 * TILE) {        \
            v_store(out, value_##type(pair, &s, 0));                                      \
            v_store(out + TILE, value_##type(pair, &s, 1));                               \
        }                                                                                 \
    }
QUANTISED_TYPES(DEFINE_EXPAND)
WIDE_TYPES(DEFINE_WIDEN)

#define EXPAND_ROW(type, bytes) [DT_##type] = expand_##type,
static expand_fn *const expand_fns[DT_COUNT] = {QUANTISED_TYPES(EXPAND_ROW) WIDE_TYPES(EXPAND_ROW)};

/* ---- up to four rows, weights straight from the panel ---------------------------------------- */

/* Bytes of a cell, and from it to the next tile's, to the next 32 k, to the next 64 k, to what is
 * fetched meanwhile. */
struct cell_steps {
    size_t bytes, tile, cell, block, ahead;
};
/* `depth` k of a block of K, from its first cell on. */
typedef void direct_fn(const struct cell_steps *step, const uint8_t *cell, size_t depth,
                       const float *x, float *y, size_t ldy, bool first);

/* clang-format off */
#define DIRECT_SCALES(t, type)                                                                   \
    struct scales c##t = scales_##type(cell + (t) * step->tile);                                 \
    for (size_t i = 0; i < step->bytes; i += 64)                                                 \
        __builtin_prefetch(cell + (t) * step->tile + step->ahead + i);
#define DIRECT_WEIGHT(t, type, k) v16 w##t = value_##type(cell + (t) * step->tile, &c##t, k);
#define DIRECT_STEP(type, R, T, k)                                                               \
    {                                                                                            \
        const float *xs = x + (k) * (R);                                                         \
        FOR_TILES_##T(DIRECT_WEIGHT, type, k)                                                    \
        FOR_ROWS_##R(ROW_FMA, T)                                                                 \
    }
#define DEFINE_DIRECT(type, R, T)                                                                \
    static void direct_##type##_##R##x##T(const struct cell_steps *step, const uint8_t *cell,    \
                                          size_t depth, const float *x, float *y, size_t ldy,    \
                                          bool first)                                            \
    {                                                                                            \
        const size_t row = 1;                                                                    \
        FOR_ROWS_##R(ROW_SUMS, T)                                                                \
        for (size_t k = 0; k < depth; k += CELL, cell += step->cell) {                           \
            FOR_TILES_##T(DIRECT_SCALES, type)                                                   \
            _Pragma("GCC unroll 16") for (int j = 0; j < CELL / 2; j++) {                        \
                DIRECT_STEP(type, R, T, 2 * j + 1)                                               \
                DIRECT_STEP(type, R, T, 2 * j)                                                   \
            }                                                                                    \
            x += CELL * (R);                                                                     \
        }                                                                                        \
        FOR_ROWS_##R(ROW_TOTALS, T)                                                              \
    }
/* clang-format on */

#define DIRECT_FNS(R, T) DIRECT_FNS_OF(R, T)
#define DIRECT_FNS_OF(R, T)                                                   \
    DEFINE_DIRECT(Q4_0, R, T)                                                 \
    DEFINE_DIRECT(Q4_1, R, T)                                                 \
    DEFINE_DIRECT(Q5_0, R, T)                                                 \
    DEFINE_DIRECT(Q5_1, R, T)                                                 \
    DEFINE_DIRECT(Q8_0, R, T)                                                 \
    DEFINE_DIRECT(F16, R, T)                                                  \
    DEFINE_DIRECT(BF16, R, T)                                                 \
    static direct_fn *const direct_##R##x##T[DT_COUNT] = {                    \
        [DT_Q4_0] = direct_Q4_0_##R##x##T, [DT_Q4_1] = direct_Q4_1_##R##x##T, \
        [DT_Q5_0] = direct_Q5_0_##R##x##T, [DT_Q5_1] = direct_Q5_1_##R##x##T, \
        [DT_Q8_0] = direct_Q8_0_##R##x##T, [DT_F16] = direct_F16_##R##x##T,   \
        [DT_BF16] = direct_BF16_##R##x##T};
DIRECT_FNS(1, 1)
DIRECT_FNS(2, 1)
DIRECT_FNS(3, 1)
DIRECT_FNS(4, 1)
DIRECT_WIDE_TILES(DIRECT_FNS)

#define WIDE_DIRECT(R, T) [R] = {direct_##R##x##T, T},
static direct_fn *const *const narrow_direct[DIRECT_ROWS + 1] = {NULL, direct_1x1, direct_2x1,
                                                                 direct_3x1, direct_4x1};
static const struct {
    direct_fn *const *fns;
    size_t n_tiles;
} wide_direct[DIRECT_ROWS + 1] = {DIRECT_WIDE_TILES(WIDE_DIRECT)};

static void gemm_direct(const struct gemm *g)
{
    bool wide = !dtype_has_cells(g->dtype);
    size_t bytes = wide ? 2 * CELL * TILE : TILE * dtype_infos[g->dtype].block_bytes;
    struct cell_steps step = {bytes, wide ? 2 * bytes : bytes, wide ? bytes : PANEL / TILE * bytes,
                              2 * PANEL / TILE * bytes, 0};
    step.ahead = DIRECT_AHEAD_BYTES / step.block * step.block; /* whole blocks: every line once */
    const uint8_t *panel = (const uint8_t *)g->panel + g->tile * step.tile;
    direct_fn *one = narrow_direct[g->n_rows][g->dtype];
    size_t n_wide = wide_direct[g->n_rows].n_tiles, rest = g->n_cols % TILE;
    float sums[DIRECT_ROWS][TILE];
    for (size_t k = 0; k < g->K; k += KBLOCK, panel += step.block) {
        const float *x = g->operand + k * g->n_rows;
        size_t depth = block_depth(g->K, k / KBLOCK), whole = g->n_cols / TILE, tile = 0;
        for (; n_wide && tile + n_wide <= whole; tile += n_wide)
            wide_direct[g->n_rows].fns[g->dtype](&step, panel + tile * step.tile, depth, x,
                                                 g->y + tile * TILE, g->ldy, k == 0);
        for (; tile < whole; tile++)
            one(&step, panel + tile * step.tile, depth, x, g->y + tile * TILE, g->ldy, k == 0);
        if (rest) one(&step, panel + tile * step.tile, depth, x, sums[0], TILE, k == 0);
    }
    for (size_t r = 0; rest && r < g->n_rows; r++)
        v_store_some(g->y + r * g->ldy + (g->n_cols - rest), v_load(sums[r]), rest);
}

/* ---- linear layers, f32 and bf16 ------------------------------------------------------------- */

static void pack_f32(size_t n_rows, const float *const *rows, size_t K, float *operand)
{
    if (n_rows == 1) {
        memcpy(operand, rows[0], K * sizeof *operand);
        return;
    }
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < K; k++) operand[k * n_rows + r] = rows[r][k];
}

static void pack_bf16(size_t n_rows, const float *const *rows, size_t K, float *operand)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < K; k++)
            operand[k * n_rows + r] = float_of(bf16_bits(rows[r][k]) << 16);
}

static void gemm_f32(const struct gemm *g)
{
    bool whole_cells = g->K % (dtype_has_cells(g->dtype) ? CELL : KBLOCK) == 0;
    if (g->n_rows <= DIRECT_ROWS && g->n_blocks == 1 && g->dtype != DT_F32 && whole_cells) {
        gemm_direct(g);
        return;
    }
    _Alignas(64) float expanded[KBLOCK * PANEL]; /* in L1: nothing to fetch */
    bool fetches = g->dtype == DT_F32, sharing = fetches && g->n_blocks >= SHARING_BLOCKS;
    struct block b = block_of(g, fetches && !sharing ? &fetching_fns : &packed_fns);
    b.sharing = sharing;
    for (size_t k = 0; k < g->K; k += KBLOCK, b.first = false) {
        size_t depth = block_depth(g->K, k / KBLOCK);
        b.x_deep = k;
        b.depth = g->K - k < KBLOCK ? g->K - k : KBLOCK;
        b.stride = depth * TILE;
        b.w = expanded;
        if (g->dtype == DT_F32)
            b.w = (const float *)g->panel + k * PANEL + g->tile * b.stride;
        else
            for (size_t t = 0; t * TILE < g->n_cols; t++)
                expand_fns[g->dtype](g->panel, k, g->tile + t, depth, expanded + t * b.stride);
        run_block(&b);
    }
}
