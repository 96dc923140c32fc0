/*
 * panels_ref.c - the linear layers as plain loops over single weights: the definition of every bit,
 * for each profile and each stored type. An operand is the row itself, so nothing here shares a
 * layout with the fast levels but panels.h's own.
 */
#include "tensor/bits.h"
#include "tensor/levels.h"
#include <math.h>

/* Row r of an operand: row blocks lie one after another, and rows in a block too. */
static const float *operand_row(const struct gemm *g, size_t r)
{
    return g->operand + r * g->K;
}

float ref_block_sum(const float *x, const float *w, size_t depth)
{
    float s = 0;
    for (size_t k = 0; k < depth; k += 2) {
        if (k + 1 < depth) s = fmaf(x[k + 1], w[k + 1], s);
        s = fmaf(x[k], w[k], s);
    }
    return s;
}

void ref_pack_f32(size_t n_rows, const float *const *rows, size_t K, float *operand)
{
    for (size_t r = 0; r < n_rows; r++) memcpy(operand + r * K, rows[r], K * sizeof *operand);
}

void ref_pack_bf16(size_t n_rows, const float *const *rows, size_t K, float *operand)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < K; k++) operand[r * K + k] = float_of(bf16_bits(rows[r][k]) << 16);
}

void ref_gemm_f32(const struct gemm *g)
{
    for (size_t c = 0; c < g->n_cols; c++)
        for (size_t r = 0; r < g->n_rows; r++) g->y[r * g->ldy + c] = 0;
    for (size_t c = 0; c < g->n_cols; c++)
        for (size_t first = 0; first < g->K; first += KBLOCK) {
            size_t depth = g->K - first < KBLOCK ? g->K - first : KBLOCK;
            float w[KBLOCK];
            for (size_t k = 0; k < depth; k++)
                w[k] = panel_weight(g->dtype, g->panel, g->K, first + k, g->tile * TILE + c);
            for (size_t r = 0; r < g->n_rows; r++)
                g->y[r * g->ldy + c] += ref_block_sum(operand_row(g, r) + first, w, depth);
        }
}

/* ---- int16: a group's operand is 32 integers in the place of 16 floats, then s and h --------- */

struct group16 {
    int16_t i[CELL];
    float s, h;
};

static struct group16 group_of(const float *x)
{
    struct group16 group = {.s = 0};
    float a = 0;
    int sum = 0;
    for (size_t k = 0; k < CELL; k++) {
        if (!isfinite(x[k])) return (struct group16){.s = NAN, .h = NAN};
        a = fabsf(x[k]) > a ? fabsf(x[k]) : a;
    }
    if (a < 0x1p-100f) return group;
    float inverse = 32767.0f / a;
    for (size_t k = 0; k < CELL; k++) {
        group.i[k] = (int16_t)rintf(x[k] * inverse);
        sum += group.i[k];
    }
    group.s = a / 32767.0f;
    group.h = group.s * (float)sum;
    return group;
}

void ref_pack_int16(size_t n_rows, const float *const *rows, size_t K, float *operand)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < K; k += CELL) {
            struct group16 group = group_of(rows[r] + k);
            memcpy(operand + r * K + k, &group, sizeof group);
        }
}

void ref_gemm_int16(const struct gemm *g)
{
    for (size_t r = 0; r < g->n_rows; r++)
        for (size_t c = 0; c < g->n_cols; c++) {
            float y = 0;
            for (size_t first = 0; first < g->K; first += CELL) {
                struct group16 group;
                struct cell_weight w = {0};
                int dot = 0;
                memcpy(&group, operand_row(g, r) + first, sizeof group);
                for (size_t k = 0; k < CELL; k++) {
                    w = panel_cell_weight(g->dtype, g->panel, first + k, g->tile * TILE + c);
                    dot += group.i[k] * w.q;
                }
                y = fmaf((float)dot, group.s * w.d, y);
                y = fmaf(group.h, w.m, y); /* m = 0 where the type has no minimum */
            }
            g->y[r * g->ldy + c] = y;
        }
}
