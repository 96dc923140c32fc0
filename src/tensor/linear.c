/*
 * linear.c - packing weights into panels, and linear layers over all threads.
 *
 * The work is cut in units of one panel and one chunk of rows; a chunk's rows stay in L2 while the
 * panels pass. How it is cut changes only who computes an output, never a bit of it.
 */
#include "tensor/linear.h"
#include "base/arena.h"

#define X_BYTES (192 * 1024) /* of a chunk's rows: less than half of a small L2 */
#define SOME_ROWS 24         /* the least number that is worth a chunk of its own */
#define TILES (PANEL / TILE)

static size_t n_panels(size_t N)
{
    return (N + PANEL - 1) / PANEL;
}

size_t matrix_bytes(size_t N, size_t K, bool with_bias)
{
    return (n_panels(N) * panel_floats(K) + (with_bias ? N : 0)) * sizeof(float);
}

np_status matrix_init(struct matrix *matrix, size_t N, size_t K, bool with_bias, np_error *err)
{
    *matrix = (struct matrix){.N = N, .K = K};
    size_t n_bytes = n_panels(N) * panel_floats(K) * sizeof(float);
    if (K > SIZE_MAX / 16 || N > SIZE_MAX / 16 / sizeof(float) / (K + 1) || !N || !K)
        return error_set(err, NP_ELIMIT, "", NO_OFFSET, "a matrix of %zu x %zu cannot be stored", N,
                         K);
    matrix->panels = big_alloc(n_bytes);
    if (with_bias) matrix->bias = big_alloc(N * sizeof(float));
    if (matrix->panels && (matrix->bias || !with_bias)) return NP_OK;
    matrix_free(matrix);
    return error_nomem(err, "weights", matrix_bytes(N, K, with_bias));
}

void matrix_free(struct matrix *matrix)
{
    if (!matrix) return;
    if (matrix->panels)
        big_free(matrix->panels, n_panels(matrix->N) * panel_floats(matrix->K) * sizeof(float));
    if (matrix->bias) big_free(matrix->bias, matrix->N * sizeof(float));
    *matrix = (struct matrix){0};
}

/* out[k][i] = w[i][k] for the rows of one tile and one block of K, which both fit L1. */
static void pack_tile(float *out, const float *w, size_t ldw, size_t n_rows, size_t depth)
{
    for (size_t i = 0; i < n_rows; i++)
        for (size_t k = 0; k < depth; k++) out[k * TILE + i] = w[i * ldw + k];
}

void matrix_pack_rows(struct matrix *matrix, size_t n0, size_t n_rows, const float *w, size_t ldw)
{
    size_t K = matrix->K;
    for (size_t n = n0; n < n0 + n_rows;) {
        size_t c = n % PANEL, left = TILE - c % TILE,
               count = n0 + n_rows - n < left ? n0 + n_rows - n : left;
        float *panel = matrix->panels + n / PANEL * panel_floats(K);
        for (size_t k = 0; k < K; k += KBLOCK)
            pack_tile(panel + panel_index(K, k, c), w + (n - n0) * ldw + k, ldw, count,
                      K - k < KBLOCK ? K - k : KBLOCK);
        n += count;
    }
}

void matrix_row(const struct matrix *matrix, size_t n, float *out)
{
    const float *panel = matrix->panels + n / PANEL * panel_floats(matrix->K);
    for (size_t k = 0; k < matrix->K; k++) out[k] = panel[panel_index(matrix->K, k, n % PANEL)];
}

struct linear_job {
    const struct kernels *kernels;
    const struct matrix *matrix;
    size_t n_rows, ldx, ldy, n_chunks;
    const float *x;
    float *y;
};

static void add_bias(const struct linear_job *job, size_t n_rows, float *y, size_t n0,
                     size_t n_cols)
{
    if (!job->matrix->bias) return;
    for (size_t r = 0; r < n_rows; r++)
        job->kernels->add(n_cols, job->matrix->bias + n0, y + r * job->ldy);
}

/* Columns of one panel from its first on. */
static void panel_columns(const struct linear_job *job, size_t panel, size_t n_cols, size_t begin,
                          size_t end)
{
    const struct matrix *matrix = job->matrix;
    float *y = job->y + begin * job->ldy + panel * PANEL;
    job->kernels->panel_gemm(end - begin, job->x + begin * job->ldx, job->ldx,
                             matrix->panels + panel * panel_floats(matrix->K), matrix->K, y,
                             job->ldy, n_cols);
    add_bias(job, end - begin, y, panel * PANEL, n_cols);
}

/* Columns from tile `tile` on, tile > 0. The tiles of one block of K lie like a narrower panel of
 * that depth, so each block is a GEMM of its own, whose sums are added in the order of the blocks:
 * the same bits. */
static void tile_columns(const struct linear_job *job, size_t panel, size_t tile, size_t n_cols,
                         size_t begin, size_t end)
{
    const struct matrix *matrix = job->matrix;
    size_t K = matrix->K, n0 = panel * PANEL + tile * TILE, n_rows = end - begin;
    const float *from = matrix->panels + panel * panel_floats(K), *x = job->x + begin * job->ldx;
    float *y = job->y + begin * job->ldy + n0, sums[SOME_ROWS * PANEL];
    for (size_t k = 0; k < K; k += KBLOCK) {
        const float *block = from + panel_index(K, k, tile * TILE);
        size_t depth = K - k < KBLOCK ? K - k : KBLOCK;
        float *to = k ? sums : y;
        size_t ld = k ? PANEL : job->ldy;
        job->kernels->panel_gemm(n_rows, x + k, job->ldx, block, depth, to, ld, n_cols);
        for (size_t r = 0; k && r < n_rows; r++)
            job->kernels->add(n_cols, sums + r * PANEL, y + r * job->ldy);
    }
    add_bias(job, n_rows, y, n0, n_cols);
}

/* Few rows: the tiles are divided, since panels are too coarse for balance. */
static void tiles_part(const struct linear_job *job, int thread, int n_threads)
{
    size_t N = job->matrix->N, begin, end;
    pool_share((N + TILE - 1) / TILE, thread, n_threads, &begin, &end);
    while (begin < end) {
        size_t panel = begin / TILES, tile = begin % TILES, last = (panel + 1) * TILES;
        last = last < end ? last : end;
        size_t n_cols = (last * TILE < N ? last * TILE : N) - begin * TILE;
        for (size_t r = 0; r < job->n_rows; r += SOME_ROWS) {
            size_t r_end = job->n_rows - r < SOME_ROWS ? job->n_rows : r + SOME_ROWS;
            if (tile == 0)
                panel_columns(job, panel, n_cols, r, r_end);
            else
                tile_columns(job, panel, tile, n_cols, r, r_end);
        }
        begin = last;
    }
}

static void linear_part(void *ctx, int thread, int n_threads)
{
    const struct linear_job *job = ctx;
    if (job->n_chunks <= 1) {
        tiles_part(job, thread, n_threads);
        return;
    }
    size_t N = job->matrix->N, panels = n_panels(N), begin, end;
    pool_share(panels * job->n_chunks, thread, n_threads, &begin, &end);
    for (size_t unit = begin; unit < end; unit++) {
        size_t panel = unit % panels, left = N - panel * PANEL, r, r_end;
        pool_share(job->n_rows, (int)(unit / panels), (int)job->n_chunks, &r, &r_end);
        panel_columns(job, panel, left < PANEL ? left : PANEL, r, r_end);
    }
}

void linear(struct pool *pool, const struct kernels *kernels, const struct matrix *matrix,
            size_t n_rows, const float *x, size_t ldx, float *y, size_t ldy)
{
    size_t n_threads = (size_t)pool_n_threads(pool);
    size_t chunk_rows = X_BYTES / sizeof(float) / matrix->K;
    chunk_rows = chunk_rows < SOME_ROWS ? SOME_ROWS : chunk_rows;
    size_t n_chunks = (n_rows + chunk_rows - 1) / chunk_rows;
    if (n_rows >= SOME_ROWS * n_threads)
        n_chunks = (n_chunks + n_threads - 1) / n_threads * n_threads;
    struct linear_job job = {kernels, matrix, n_rows, ldx, ldy, n_chunks, x, y};
    pool_run(pool, linear_part, &job);
}
