/*
 * linear.c - packed matrices, and linear layers over all threads.
 *
 * Rows are packed into an operand first. Then the work is a line of units, one tile of 16 columns
 * and one chunk of rows each, chunk after chunk; a thread takes an even share of the line and goes
 * through it panel by panel. How it is cut changes only who computes an output, never a bit of it.
 */
#include "tensor/linear.h"

/* Row blocks of a chunk, at most: its operand of a block of K and sums of a panel stay in L2. */
#define CHUNK_BLOCKS 16
#define TILES (PANEL / TILE)

static size_t n_panels(size_t N)
{
    return (N + PANEL - 1) / PANEL;
}
static size_t n_tiles(size_t N)
{
    return (N + TILE - 1) / TILE;
}

uint64_t matrix_bytes(enum dtype dtype, size_t N, size_t K)
{
    return (uint64_t)n_panels(N) * panel_bytes(dtype, K);
}

void matrix_put(struct matrix *matrix, size_t n, size_t k0, size_t n_k, const void *stored)
{
    uint8_t *panel = matrix->panels + n / PANEL * panel_bytes(matrix->dtype, matrix->K);
    panel_put(matrix->dtype, panel, matrix->K, n % PANEL, k0, n_k, stored);
}

void matrix_row(const struct matrix *matrix, size_t n, float *out)
{
    const void *panel = matrix_panel(matrix, n / PANEL);
    for (size_t k = 0; k < matrix->K; k++)
        out[k] = panel_weight(matrix->dtype, panel, matrix->K, k, n % PANEL);
}

struct linear_job {
    const struct kernels *kernels;
    const struct matrix *matrices; /* of one profile and one K */
    size_t n_matrices, n_rows, ldx, ldy, n_tiles, n_chunks;
    const float *x;
    float *operand, *y;
};

static void pack_blocks(const struct linear_job *job, size_t begin, size_t end)
{
    size_t K = job->matrices->K;
    for (size_t block = begin; block < end; block++) {
        size_t first = block_row(job->n_rows, block), n = block_row(job->n_rows, block + 1) - first;
        const float *rows[ROW_BLOCK];
        for (size_t r = 0; r < n; r++) rows[r] = job->x + (first + r) * job->ldx;
        job->kernels->pack_rows[job->matrices->profile](n, rows, K, job->operand + first * K);
    }
}

static void pack_part(void *ctx, int thread, int n_threads)
{
    const struct linear_job *job = ctx;
    size_t begin, end;
    pool_share(row_blocks(job->n_rows), thread, n_threads, &begin, &end);
    pack_blocks(job, begin, end);
}

/* Tiles [tile, end) of one panel of a matrix whose first output is y[][at], for a chunk of rows. */
static void panel_part(const struct linear_job *job, const struct matrix *matrix, size_t at,
                       size_t tile, size_t end, size_t chunk)
{
    size_t N = matrix->N, n0 = tile * TILE, begin_block, end_block;
    pool_share(row_blocks(job->n_rows), (int)chunk, (int)job->n_chunks, &begin_block, &end_block);
    size_t first = block_row(job->n_rows, begin_block);
    size_t n_rows = block_row(job->n_rows, end_block) - first;
    size_t n_cols = (end * TILE < N ? end * TILE : N) - n0;
    float sums[CHUNK_BLOCKS * ROW_BLOCK * PANEL], *y = job->y + first * job->ldy + at + n0;
    const struct gemm gemm = {.dtype = matrix->dtype,
                              .panel = matrix_panel(matrix, tile / TILES),
                              .K = matrix->K,
                              .tile = tile % TILES,
                              .n_cols = n_cols,
                              .operand = job->operand + first * matrix->K,
                              .n_rows = n_rows,
                              .n_blocks = end_block - begin_block,
                              .y = sums,
                              .ldy = PANEL};
    job->kernels->gemm[matrix->profile](&gemm);
    for (size_t r = 0; r < n_rows; r++) {
        float *row = sums + r * PANEL;
        if (matrix->bias) job->kernels->add(n_cols, matrix->bias + n0, row);
        memcpy(y + r * job->ldy, row, n_cols * sizeof *row);
    }
}

/* Tiles [begin, end) of all matrices. */
static void tiles_part(const struct linear_job *job, size_t begin, size_t end, size_t chunk)
{
    size_t at = 0;
    for (size_t i = 0; i < job->n_matrices && end > 0; i++) {
        const struct matrix *matrix = &job->matrices[i];
        size_t count = n_tiles(matrix->N), last = end < count ? end : count, next;
        for (size_t tile = begin; tile < last; tile = next) {
            next = (tile / TILES + 1) * TILES;
            next = next < last ? next : last;
            panel_part(job, matrix, at, tile, next, chunk);
        }
        begin = begin < count ? 0 : begin - count;
        end -= last;
        at += matrix->N;
    }
}

static void linear_part(void *ctx, int thread, int n_threads)
{
    const struct linear_job *job = ctx;
    size_t begin, end;
    pool_share(job->n_tiles * job->n_chunks, thread, n_threads, &begin, &end);
    while (begin < end) {
        size_t chunk = begin / job->n_tiles, from = begin % job->n_tiles;
        size_t to = from + (end - begin) < job->n_tiles ? from + (end - begin) : job->n_tiles;
        tiles_part(job, from, to, chunk);
        begin += to - from;
    }
}

void linear(struct pool *pool, const struct kernels *kernels, const struct matrix *matrices,
            size_t n_matrices, size_t n_rows, const float *x, size_t ldx, float *operand, float *y,
            size_t ldy)
{
    struct linear_job job = {.kernels = kernels,
                             .n_rows = n_rows,
                             .ldx = ldx,
                             .ldy = ldy,
                             .n_chunks = (row_blocks(n_rows) + CHUNK_BLOCKS - 1) / CHUNK_BLOCKS,
                             .x = x,
                             .operand = operand,
                             .y = y};
    for (size_t i = 0; i < n_matrices && n_rows; i += job.n_matrices) {
        job.matrices = matrices + i;
        job.n_matrices = job.n_tiles = 0;
        size_t width = 0;
        for (; i + job.n_matrices < n_matrices; job.n_matrices++) {
            const struct matrix *matrix = &job.matrices[job.n_matrices];
            if (matrix->profile != job.matrices->profile) break;
            job.n_tiles += n_tiles(matrix->N);
            width += matrix->N;
        }
        if (n_rows <= ROW_BLOCK)
            pack_blocks(&job, 0, 1);
        else
            pool_run(pool, pack_part, &job);
        pool_run(pool, linear_part, &job);
        job.y += width;
    }
}
