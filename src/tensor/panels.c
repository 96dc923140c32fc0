/*
 * panels.c - from the rows of a file to panels, and single weights back (panels.h has the drawing).
 *
 * Packing never computes with a weight: bits move. So a panel says what the file says, and the
 * formula of a type is evaluated where the weight is used.
 */
#include "tensor/panels.h"
#include "tensor/bits.h"

/* Bytes before the words of a cell: d, m, high; and k per word. */
static const struct cell_shape {
    uint8_t d_bytes, m_bytes, high_bytes, k_per_word, q_low; /* q_low: what is taken off q */
} shapes[DT_COUNT] = {
    [DT_Q4_0] = {32, 0, 0, 8, 8},   [DT_Q4_1] = {32, 32, 0, 8, 0}, [DT_Q5_0] = {32, 0, 64, 8, 16},
    [DT_Q5_1] = {32, 32, 64, 8, 0}, [DT_Q8_0] = {32, 0, 0, 4, 0},
};

#define CELL_TILES (PANEL / TILE)

size_t panel_bytes(enum dtype dtype, size_t K)
{
    const struct dtype_info *info = &dtype_infos[dtype];
    if (dtype_has_cells(dtype)) return K / CELL * PANEL * info->block_bytes;
    return panel_floats(K) * info->block_bytes;
}

static size_t cell_bytes(enum dtype dtype)
{
    return (size_t)TILE * dtype_infos[dtype].block_bytes;
}

static uint8_t *cell_of(enum dtype dtype, const void *panel, size_t k, size_t c)
{
    return (uint8_t *)panel + (k / CELL * CELL_TILES + c / TILE) * cell_bytes(dtype);
}

static void put16(uint8_t *array, size_t i, uint32_t value)
{
    uint16_t word = (uint16_t)value;
    memcpy(array + 2 * i, &word, sizeof word);
}
static void put32(uint8_t *array, size_t i, uint32_t value)
{
    memcpy(array + 4 * i, &value, sizeof value);
}
static uint32_t get16(const uint8_t *array, size_t i)
{
    uint16_t word;
    memcpy(&word, array + 2 * i, sizeof word);
    return word;
}
static uint32_t get32(const uint8_t *array, size_t i)
{
    uint32_t word;
    memcpy(&word, array + 4 * i, sizeof word);
    return word;
}

/* Bit of a word where the integer of k begins, k counted in the word's cell. */
static unsigned nibble_bit(size_t k)
{
    return (unsigned)(4 * (k % 8 / 2) + 16 * (k % 2));
}
static unsigned high_bit(size_t k)
{
    return (unsigned)(k / 2 + 16 * (k % 2));
}
static unsigned byte_bit(size_t k)
{
    return (unsigned)(8 * (k % 4 / 2) + 16 * (k % 2));
}

/* ---- packing --------------------------------------------------------------------------------- */

static void put_cell(enum dtype dtype, uint8_t *cell, size_t column, const uint8_t *block)
{
    const struct cell_shape *shape = &shapes[dtype];
    put16(cell, column, get16(block, 0));
    block += 2, cell += shape->d_bytes;
    if (shape->m_bytes) {
        put16(cell, column, get16(block, 0));
        block += 2, cell += shape->m_bytes;
    }
    if (shape->high_bytes) {
        uint32_t from = get32(block, 0), high = 0;
        for (size_t k = 0; k < CELL; k++) high |= (from >> k & 1) << high_bit(k);
        put32(cell, column, high);
        block += 4, cell += shape->high_bytes;
    }
    if (shape->k_per_word == 4) {
        for (size_t w = 0; w < CELL / 4; w++, block += 4)
            put32(cell, w * TILE + column,
                  block[0] | (uint32_t)block[2] << 8 | (uint32_t)block[1] << 16 |
                      (uint32_t)block[3] << 24);
        return;
    }
    for (size_t w = 0; w < CELL / 8; w++) { /* a file has k and k + 16 in one byte */
        const uint8_t *bytes = block + w % 2 * 8;
        uint32_t word = 0;
        for (size_t i = 0; i < 8; i++)
            word |= (w < 2 ? bytes[i] & 15u : (uint32_t)bytes[i] >> 4) << nibble_bit(i);
        put32(cell, w * TILE + column, word);
    }
}

/* Index of a bf16 weight, in 16-bit units. */
static size_t bf16_index(size_t K, size_t k, size_t c)
{
    return panel_index(K, k & ~(size_t)1, c / TILE * TILE) + c % TILE * 2 + k % 2;
}

/* n weights of a column, from a block of K on. */
static void put_column32(uint8_t *to, const uint8_t *in, size_t n)
{
    for (size_t k = 0; k < n; k++) put32(to, k * TILE, get32(in, k));
}
/* after_even, after_odd: steps from an even k to the odd one, and on. */
static void put_column16(uint8_t *to, const uint8_t *in, size_t n, size_t after_even,
                         size_t after_odd)
{
    for (size_t k = 0, at = 0; k < n; at += k % 2 ? after_odd : after_even, k++)
        put16(to, at, get16(in, k));
}

void panel_put(enum dtype dtype, void *panel, size_t K, size_t c, size_t k0, size_t n_k,
               const void *stored)
{
    const uint8_t *in = stored;
    if (dtype_has_cells(dtype)) {
        for (size_t k = k0; k < k0 + n_k; k += CELL, in += dtype_infos[dtype].block_bytes)
            put_cell(dtype, cell_of(dtype, panel, k, c), c % TILE, in);
        return;
    }
    size_t size = dtype_infos[dtype].block_bytes, n;
    for (size_t k = k0; k < k0 + n_k; k += n, in += n * size) {
        size_t left = k0 + n_k - k;
        n = KBLOCK - k % KBLOCK < left ? KBLOCK - k % KBLOCK : left;
        if (dtype == DT_F32)
            put_column32((uint8_t *)panel + 4 * panel_index(K, k, c), in, n);
        else if (dtype == DT_F16)
            put_column16((uint8_t *)panel + 2 * panel_index(K, k, c), in, n, TILE, TILE);
        else
            put_column16((uint8_t *)panel + 2 * bf16_index(K, k, c), in, n, 1, 2 * TILE - 1);
    }
}

/* ---- single weights -------------------------------------------------------------------------- */

struct cell_weight panel_cell_weight(enum dtype dtype, const void *panel, size_t k, size_t c)
{
    const struct cell_shape *shape = &shapes[dtype];
    const uint8_t *cell = cell_of(dtype, panel, k, c);
    size_t column = c % TILE;
    struct cell_weight weight = {.d = half_to_float(get16(cell, column))};
    cell += shape->d_bytes;
    if (shape->m_bytes) weight.m = half_to_float(get16(cell, column));
    cell += shape->m_bytes;
    k %= CELL;
    if (shape->high_bytes) weight.q = (int)(get32(cell, column) >> high_bit(k) & 1) << 4;
    cell += shape->high_bytes;
    uint32_t word = get32(cell, k / shape->k_per_word * TILE + column);
    if (shape->k_per_word == 4)
        weight.q = (int8_t)(word >> byte_bit(k));
    else
        weight.q = (weight.q | (int)(word >> nibble_bit(k) & 15)) - shape->q_low;
    return weight;
}

float panel_weight(enum dtype dtype, const void *panel, size_t K, size_t k, size_t c)
{
    if (dtype == DT_F32) return ((const float *)panel)[panel_index(K, k, c)];
    if (dtype == DT_BF16) return float_of(get16(panel, bf16_index(K, k, c)) << 16);
    if (dtype == DT_F16) return half_to_float(get16(panel, panel_index(K, k, c)));
    struct cell_weight weight = panel_cell_weight(dtype, panel, k, c);
    float product = (float)weight.q * weight.d;
    return dtype_has_minimum(dtype) ? product + weight.m : product;
}
