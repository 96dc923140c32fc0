/*
 * panels.h - how weights lie in memory for the kernels: panels of 64 columns (outputs), each stored
 * type in its own width, so that a row of the file costs what it costs in the file.
 *
 * A panel of W [64 columns][K] is cut in blocks of 64 k and tiles of 16 columns:
 *
 *   K block 0 (k = 0..63)              K block 1 (k = 64..)      ... last block: K even-padded
 *   [tile 0][tile 1][tile 2][tile 3]   [tile 0][tile 1]...
 *
 *   F32, F16   tile = [k in block][16 columns]
 *   BF16       tile = [k / 2 in block][16 columns][2]: odd k in the high half of a 32-bit word
 *
 * Quantised types keep their blocks of 32 weights. A cell is 32 k of 16 columns; it takes 16 times
 * the bytes of a block in the file. Cells are ordered [k / 32][4 tiles]:
 *
 *   Q4_0  [d 16 x f16]               [words 4][16 x u32]
 *   Q4_1  [d 16 x f16][m 16 x f16]   [words 4][16 x u32]
 *   Q5_0  [d 16 x f16]               [high 16 x u32][words 4][16 x u32]
 *   Q5_1  [d 16 x f16][m 16 x f16]   [high 16 x u32][words 4][16 x u32]
 *   Q8_0  [d 16 x f16]               [words 8][16 x u32]
 *
 *   word of 8 k   nibble of k = 2j at bit 4j, of 2j+1 at bit 16 + 4j: shifted by 4j and masked with
 *                 0x000f000f it is a pair of 16-bit integers
 *   high          fifth bit of k = 2j at bit j, of 2j+1 at bit 16 + j
 *   word of 4 k   (Q8_0) bytes k, k+2, k+1, k+3
 *
 * Columns beyond N and an odd k beyond K hold +0 (quantised: d = m = 0).
 *
 * New type: its row in tensor.h, its blocks in dequant.c and panels.c, its reader in panels_ref.c
 * and in panels_tpl.h.
 */
#ifndef TENSOR_PANELS_H
#define TENSOR_PANELS_H

#include "tensor/tensor.h"

#define PANEL 64  /* columns of a panel, keys of a page */
#define TILE 16   /* columns of a tile */
#define KBLOCK 64 /* depth of a block of the DOT order: a page of keys is one block */
#define CELL 32   /* depth of a cell: the weights of a quantised block */

/* Depth of block kb of a K-deep panel, as stored (even). */
static inline size_t block_depth(size_t K, size_t kb)
{
    size_t left = K - kb * KBLOCK;
    return left >= KBLOCK ? KBLOCK : (left + 1) & ~(size_t)1;
}
/* Element (k, c) of a panel of F32 or F16. */
static inline size_t panel_index(size_t K, size_t k, size_t c)
{
    size_t kb = k / KBLOCK;
    return kb * KBLOCK * PANEL + (c / TILE) * block_depth(K, kb) * TILE + (k % KBLOCK) * TILE +
           c % TILE;
}
/* floats of one f32 panel */
static inline size_t panel_floats(size_t K)
{
    return ((K + 1) & ~(size_t)1) * PANEL;
}

/* Bytes of one panel; K is a multiple of the block of a quantised type. */
size_t panel_bytes(enum dtype dtype, size_t K);

/* Packs stored weights: k0 .. k0 + n_k of column c, from the bytes of a row of the file. k0 is even
 * and for quantised types a multiple of 32. */
void panel_put(enum dtype dtype, void *panel, size_t K, size_t c, size_t k0, size_t n_k,
               const void *stored);

/* The f32 value of weight (k, c). */
float panel_weight(enum dtype dtype, const void *panel, size_t K, size_t k, size_t c);

/* A quantised weight is q d + m: its integer, and the d and m of the cell of (k, c). */
struct cell_weight {
    int q;
    float d, m;
};
struct cell_weight panel_cell_weight(enum dtype dtype, const void *panel, size_t k, size_t c);
static inline bool dtype_has_cells(enum dtype dtype)
{
    return dtype_infos[dtype].block_elements == CELL;
}
static inline bool dtype_has_minimum(enum dtype dtype)
{
    return dtype == DT_Q4_1 || dtype == DT_Q5_1;
}

#endif
