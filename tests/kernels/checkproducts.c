/*
 * checkproducts.c - packed weights, linear layers of each profile over each stored type, and the
 * products of attention.
 *
 * Every level packs rows in a layout of its own, so a case runs both steps: all row blocks are
 * packed as linear.c does it, and then a line of them is multiplied. The columns of a panel that
 * were not asked for are full of NaN.
 */
#include "kcheck.h"
#include <math.h>

#define EACH_DTYPE(dtype) for (enum dtype dtype = 0; dtype < DT_COUNT; dtype++)
#define MAX_K 600

/* Of one row as stored. */
static size_t stored_bytes(enum dtype dtype, size_t K)
{
    return K / dtype_infos[dtype].block_elements * dtype_infos[dtype].block_bytes;
}

/* Depths at the edges of pairs, cells and blocks, as a type allows. */
static size_t depths(enum dtype dtype, const size_t **list)
{
    static const size_t any[] = {1, 2, 3, 32, 63, 64, 65, 127, 128, 129, 130, 191, 193, 256, 257};
    static const size_t cells[] = {32, 64, 96, 128, 160, 192, 224, 256};
    *list = dtype_has_cells(dtype) ? cells : any;
    return dtype_has_cells(dtype) ? COUNT(cells) : COUNT(any);
}

/* ---- packed weights -------------------------------------------------------------------------- */

static void weights_case(const struct kernels *k, enum dtype dtype, size_t K, enum fill fill)
{
    uint8_t *panel = (uint8_t *)guarded(0, panel_bytes(dtype, K) / sizeof(float));
    memset(panel, 0, panel_bytes(dtype, K));
    uint8_t stored[PANEL][MAX_K * sizeof(float)];
    for (size_t c = 0; c < PANEL; c++) {
        fill_stored(dtype, stored[c], K, fill);
        for (size_t at = 0, n; at < K; at += n) {
            n = CELL * (1 + random_below(4));
            n = n < K - at ? n : K - at;
            panel_put(dtype, panel, K, c, at, n, stored[c] + stored_bytes(dtype, at));
        }
    }
    for (size_t c = 0; c < PANEL; c++) {
        float want[MAX_K], got[MAX_K];
        dequantize(dtype, stored[c], want, K);
        for (size_t i = 0; i < K; i++) got[i] = panel_weight(dtype, panel, K, i, c);
        verdict(agree(got, want, K), k, dtype_infos[dtype].name, K, c, (size_t)fill);
    }
}

void check_weights(const struct kernels *k)
{
    if (k->level != CPU_REF) return; /* all levels share them */
    const size_t *Ks;
    EACH_DTYPE(dtype)
    for (size_t i = 0, n = depths(dtype, &Ks); i < n; i++)
        for (int fill = 0; fill < FILL_COUNT; fill++)
            weights_case(k, dtype, Ks[i], (enum fill)fill);
}

/* ---- linear layers --------------------------------------------------------------------------- */

/* In a bf16 layer weights are what loading makes of them: finite, nothing below 2^-50. */
static void round_weights(uint8_t *stored, size_t n)
{
    for (size_t i = 0; i < n; i++, stored += 2) {
        uint32_t magnitude = (stored[0] | (uint32_t)stored[1] << 8) & 0x7fff;
        if (magnitude < (127 - 50) << 7 || magnitude >= 0x7f80) memset(stored, 0, 2);
    }
}

/* A panel whose columns [first, first + n) are weights, and the others NaN. */
static void *random_panel(size_t slot, enum dtype dtype, enum profile profile, size_t K,
                          size_t first, size_t n, enum fill fill)
{
    uint8_t *panel = (uint8_t *)guarded(slot, panel_bytes(dtype, K) / sizeof(float));
    uint8_t stored[MAX_K * sizeof(float)];
    memset(panel, 0, panel_bytes(dtype, K));
    for (size_t c = 0; c < PANEL; c++) {
        memset(stored, 0xff, stored_bytes(dtype, K));
        if (c - first < n) {
            fill_stored(dtype, stored, K, fill);
            if (dtype == DT_BF16 && profile == PROFILE_BF16) round_weights(stored, K);
        }
        panel_put(dtype, panel, K, c, 0, K, stored);
    }
    return panel;
}

/* Values at the edges of what packing does: halves of a step, the smallest group that counts, one
 * value that is not finite. */
static void spoil_group(float *x, size_t n)
{
    size_t kind = random_below(12), at = random_below(n);
    for (size_t i = 0; i < n; i++) {
        if (kind == 0) x[i] = 0;
        if (kind == 1) x[i] = ldexpf(x[i], -100);
        if (kind == 2) x[i] = ldexpf(x[i], 125);
        if (kind == 3) x[i] = i == at ? 32767 : (float)(int)(x[i] * 30000) + 0.5f;
        if (kind == 4) x[i] = ldexpf(x[i], -50);
        if (kind == 5) { /* a tie in bf16, or beside one */
            uint32_t bits;
            memcpy(&bits, x + i, sizeof bits);
            bits = (bits & 0xffff0000) | (0x7fff + (uint32_t)random_below(3));
            memcpy(x + i, &bits, sizeof bits);
        }
    }
    if (kind == 6) x[at] = ldexpf(x[at], 30);
    if (kind == 7 && !random_below(4)) x[at] = random_below(2) ? INFINITY : NAN;
}

static void fill_rows(float *x, size_t n_rows, size_t K, size_t ldx, enum fill fill)
{
    for (size_t r = 0; r < n_rows; r++) {
        fill_floats(x + r * ldx, K, fill);
        if (fill == FILL_PLAIN && random_below(2))
            for (size_t k = 0; k < K; k += CELL)
                spoil_group(x + r * ldx + k, K - k < CELL ? K - k : CELL);
    }
}

struct shape {
    enum dtype dtype;
    enum profile profile;
    size_t K, n_rows, tile, n_cols;
    enum fill fill;
};

/* Packs all rows and multiplies row blocks [begin, end) of them. */
static void run_gemm(const struct kernels *k, const struct shape *shape, const float *x, size_t ldx,
                     float *operand, size_t begin, size_t end, struct gemm gemm)
{
    for (size_t b = 0; b < row_blocks(shape->n_rows); b++) {
        size_t first = block_row(shape->n_rows, b), n = block_row(shape->n_rows, b + 1) - first;
        const float *rows[ROW_BLOCK];
        for (size_t r = 0; r < n; r++) rows[r] = x + (first + r) * ldx;
        k->pack_rows[shape->profile](n, rows, shape->K, operand + first * shape->K);
    }
    size_t first = block_row(shape->n_rows, begin);
    gemm.n_rows = block_row(shape->n_rows, end) - first;
    gemm.n_blocks = end - begin;
    gemm.operand = operand + first * shape->K;
    k->gemm[shape->profile](&gemm);
}

static void gemm_case(const struct kernels *k, const struct shape *shape)
{
    size_t K = shape->K, n_rows = shape->n_rows, n_cols = shape->n_cols;
    size_t ldx = K + random_below(3), ldy = n_cols + random_below(3);
    size_t n_blocks = row_blocks(n_rows), begin = 0, end = n_blocks;
    if (random_below(2)) {
        begin = random_below(n_blocks);
        end = begin + 1 + random_below(n_blocks - begin);
    }
    size_t n_y = (block_row(n_rows, end) - block_row(n_rows, begin) - 1) * ldy + n_cols;
    float *x = guarded(0, (n_rows - 1) * ldx + K), *operand = guarded(4, n_rows * K);
    float *y = guarded(2, n_y), *want = guarded(3, n_y);
    fill_rows(x, n_rows, K, ldx, shape->fill);
    struct gemm gemm = {.dtype = shape->dtype,
                        .panel = random_panel(1, shape->dtype, shape->profile, K,
                                              shape->tile * TILE, n_cols, shape->fill),
                        .K = K,
                        .tile = shape->tile,
                        .n_cols = n_cols,
                        .y = want,
                        .ldy = ldy};
    run_gemm(kernels_get(CPU_REF), shape, x, ldx, operand, begin, end, gemm);
    memset(operand, 0xff, n_rows * K * sizeof *operand);
    gemm.y = y;
    run_gemm(k, shape, x, ldx, operand, begin, end, gemm);
    static const char *const profiles[PROFILES] = {"f32", "bf16", "int16"};
    char what[32];
    snprintf(what, sizeof what, "gemm %s of %s", profiles[shape->profile],
             dtype_infos[shape->dtype].name);
    verdict(agree(y, want, n_y), k, what, K, n_rows, n_cols);
}

/* Any number of rows at a few depths, all depths and numbers of columns at a few rows. */
static void check_gemm_of(const struct kernels *k, enum dtype dtype, enum profile profile)
{
    static const size_t cols[] = {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64};
    const size_t *Ks;
    struct shape shape = {.dtype = dtype, .profile = profile};
    for (size_t i = 0, n = depths(dtype, &Ks); i < n; i++)
        for (size_t j = 0; j < COUNT(cols); j++) {
            size_t n_tiles = (cols[j] + TILE - 1) / TILE;
            shape.K = Ks[i];
            shape.n_cols = cols[j];
            shape.tile = random_below(PANEL / TILE - n_tiles + 1);
            shape.n_rows = 1 + random_below(14);
            shape.fill = (enum fill)((i + j) % FILL_COUNT);
            gemm_case(k, &shape);
        }
    for (size_t n_rows = 1; n_rows < 150; n_rows += n_rows < 14 ? 1 : 1 + random_below(30))
        for (size_t tile = 0; tile < PANEL / TILE; tile++) {
            shape.K = n_rows > 14 ? 96 : tile ? 64 : 576;
            shape.tile = tile;
            shape.n_rows = n_rows;
            shape.n_cols = tile ? 1 + random_below(PANEL - tile * TILE) : PANEL;
            shape.fill = random_below(8) ? FILL_PLAIN : FILL_RATIO;
            gemm_case(k, &shape);
        }
}

void check_gemm(const struct kernels *k)
{
    EACH_DTYPE(dtype)
    {
        check_gemm_of(k, dtype, PROFILE_F32);
        if (dtype == DT_BF16) check_gemm_of(k, dtype, PROFILE_BF16);
        if (dtype_has_cells(dtype)) check_gemm_of(k, dtype, PROFILE_INT16);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Keys beyond n_keys hold NaN: they must not be seen. */
static void scores_case(const struct kernels *k, size_t head_dim, size_t n_rows, size_t n_keys,
                        enum fill fill)
{
    size_t ldq = head_dim + random_below(3), lds = n_keys + random_below(3);
    size_t n_s = (n_rows - 1) * lds + n_keys;
    float *q = guarded(0, (n_rows - 1) * ldq + head_dim), *s = guarded(2, n_s);
    float *want = guarded(3, n_s);
    const float *page = random_panel(1, DT_F32, PROFILE_F32, head_dim, 0, n_keys, fill);
    for (size_t r = 0; r < n_rows; r++) fill_floats(q + r * ldq, head_dim, fill);
    kernels_get(CPU_REF)->score_keys(n_rows, q, ldq, page, head_dim, want, lds, n_keys);
    k->score_keys(n_rows, q, ldq, page, head_dim, s, lds, n_keys);
    verdict(agree(s, want, n_s), k, "score_keys", head_dim, n_rows, n_keys);
}

void check_scores(const struct kernels *k)
{
    static const size_t dims[] = {1, 2, 3, 8, 31, 63, 64, 65, 80, 96, 127, 128, 129, 192, 256, 257};
    static const size_t keys[] = {1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64};
    for (size_t i = 0; i < COUNT(dims); i++)
        for (size_t j = 0; j < COUNT(keys); j++)
            for (int fill = 0; fill < FILL_COUNT; fill++)
                scores_case(k, dims[i], 1 + random_below(14), keys[j], (enum fill)fill);
    for (size_t n_rows = 1; n_rows < 150; n_rows += n_rows < 40 ? 1 : 11)
        scores_case(k, 130, n_rows, 64, FILL_PLAIN);
}

/* Keys beyond n_keys hold NaN: they must not be read. p holds the +0 that is allowed to be. */
static void mix_case(const struct kernels *k, size_t n_keys, size_t n_rows, size_t head_dim,
                     enum fill fill)
{
    const float *pages[8];
    size_t n_tiles = (head_dim + TILE - 1) / TILE, ldp = (n_keys + 1) & ~(size_t)1,
           ldy = head_dim + 1;
    for (size_t i = 0; i * PANEL < n_keys; i++) {
        float *page = guarded(4 + i, n_tiles * PANEL * TILE);
        for (size_t t = 0; t < n_tiles; t++)
            for (size_t j = 0; j < PANEL && i * PANEL + j < n_keys; j++)
                fill_floats(page + (t * PANEL + j) * TILE, TILE, fill);
        pages[i] = page;
    }
    float *p = guarded(0, n_rows * ldp), *y = guarded(2, n_rows * ldy),
          *want = guarded(3, n_rows * ldy);
    memset(p, 0, n_rows * ldp * sizeof *p);
    for (size_t r = 0; r < n_rows; r++) fill_floats(p + r * ldp, n_keys, fill);
    kernels_get(CPU_REF)->mix_values(n_rows, p, ldp, pages, n_keys, want, ldy, head_dim);
    k->mix_values(n_rows, p, ldp, pages, n_keys, y, ldy, head_dim);
    verdict(agree(y, want, n_rows * ldy), k, "mix_values", n_keys, n_rows, head_dim);
}

void check_mix(const struct kernels *k)
{
    static const size_t keys[] = {1,   2,   3,   15,  63,  64,  65,  127,
                                  128, 129, 191, 192, 193, 255, 256, 300};
    static const size_t dims[] = {1, 8, 16, 17, 40, 64, 80, 96, 128};
    for (size_t i = 0; i < COUNT(keys); i++)
        for (size_t j = 0; j < COUNT(dims); j++)
            for (int fill = 0; fill < FILL_COUNT; fill++)
                mix_case(k, keys[i], 1 + random_below(13), dims[j], (enum fill)fill);
}

/* ---- what must not pass ---------------------------------------------------------------------- */

/* One sum in eight lanes along K. */
static void lanes_along_k(const struct gemm *g)
{
    for (size_t r = 0; r < g->n_rows; r++)
        for (size_t c = 0; c < g->n_cols; c++) {
            float lane[8] = {0}, sum = 0;
            for (size_t k = 0; k < g->K; k++)
                lane[k % 8] = fmaf(g->operand[r * g->K + k],
                                   panel_weight(g->dtype, g->panel, g->K, k, g->tile * TILE + c),
                                   lane[k % 8]);
            for (size_t i = 0; i < 8; i++) sum += lane[i];
            g->y[r * g->ldy + c] = sum;
        }
}

/* The groups of int16 one by one, the last one first. */
static void groups_backwards(const struct gemm *g)
{
    size_t n_groups = g->K / CELL, bytes = PANEL * dtype_infos[g->dtype].block_bytes;
    float part[ROW_BLOCK * PANEL];
    for (size_t r = 0; r < g->n_rows; r++)
        for (size_t c = 0; c < g->n_cols; c++) g->y[r * g->ldy + c] = 0;
    for (size_t i = n_groups; i-- > 0;)
        for (size_t r = 0; r < g->n_rows; r++) {
            struct gemm one = *g;
            one.panel = (const uint8_t *)g->panel + i * bytes;
            one.operand = g->operand + r * g->K + i * CELL;
            one.K = CELL;
            one.n_rows = one.n_blocks = 1;
            one.y = part;
            kernels_get(CPU_REF)->gemm[PROFILE_INT16](&one);
            for (size_t c = 0; c < g->n_cols; c++) g->y[r * g->ldy + c] += part[c];
        }
}

void negative_controls(void)
{
    static const struct {
        const char *what;
        enum profile profile;
        enum dtype dtype;
        void (*gemm)(const struct gemm *);
    } controls[] = {
        {"a dot product with lanes along K was not caught", PROFILE_F32, DT_F32, lanes_along_k},
        {"the same over weights of Q4_1 was not caught", PROFILE_F32, DT_Q4_1, lanes_along_k},
        {"the same in bf16 was not caught", PROFILE_BF16, DT_BF16, lanes_along_k},
        {"groups of int16 in another order were not caught", PROFILE_INT16, DT_Q8_0,
         groups_backwards},
    };
    for (size_t i = 0; i < COUNT(controls); i++) {
        struct kernels wrong = *kernels_get(CPU_REF);
        struct verdicts before = verdicts;
        const struct shape shape = {controls[i].dtype, controls[i].profile, 576, 4, 0, 64,
                                    FILL_PLAIN};
        wrong.gemm[controls[i].profile] = controls[i].gemm;
        verdicts.quiet = true;
        for (int j = 0; j < 10; j++) gemm_case(&wrong, &shape);
        bool caught = verdicts.n_failed == before.n_failed + 10;
        verdicts = before;
        verdict(caught, &wrong, controls[i].what, 576, 4, 64);
    }
}
