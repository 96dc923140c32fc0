/*
 * benchkernels.c - times kernels on one thread, in processor time, the best of several, since the
 * machine may be busy with other things.
 */
#include "benchkernels.h"
#include "base/arena.h"
#include "kcheck.h"
#include "tensor/linear.h"
#include <math.h>

#define TRIES 7
#define TRY_SECONDS 0.008
#define MAX_ROWS 512
#define MAX_WIDTH 1536
#define CHUNK_BLOCKS 22 /* linear.c has the same */

struct work {
    const struct kernels *k;
    size_t n, K;
    float *x, *w, *y;
    struct matrix matrix;
    float *operand;
    struct pool *pool;
};

static double best_seconds(void (*once)(const struct work *), const struct work *work)
{
    double best = INFINITY;
    size_t n = 1;
    for (int t = 0; t < TRIES;) {
        double begin = seconds();
        for (size_t i = 0; i < n; i++) once(work);
        double spent = seconds() - begin;
        best = fmin(best, spent / (double)n);
        if (spent < TRY_SECONDS)
            n *= 2;
        else
            t++;
    }
    return best;
}

/* All panels of a matrix for rows that are packed, in chunks of row blocks, as linear.c has it. */
static void run_gemm(const struct work *w)
{
    const struct matrix *matrix = &w->matrix;
    size_t n_blocks = row_blocks(w->n), end;
    for (size_t block = 0; block < n_blocks; block = end) {
        end = block + CHUNK_BLOCKS < n_blocks ? block + CHUNK_BLOCKS : n_blocks;
        size_t first = block_row(w->n, block);
        struct gemm gemm = {.dtype = matrix->dtype,
                            .K = matrix->K,
                            .n_cols = PANEL,
                            .operand = w->operand + first * matrix->K,
                            .n_rows = block_row(w->n, end) - first,
                            .n_blocks = end - block,
                            .y = w->y,
                            .ldy = PANEL};
        for (size_t panel = 0; panel < matrix->N / PANEL; panel++) {
            gemm.panel = matrix_panel(matrix, panel);
            w->k->gemm[matrix->profile](&gemm);
        }
    }
}
static void run_linear(const struct work *w)
{
    linear(w->pool, w->k, &w->matrix, 1, w->n, w->x, w->matrix.K, w->operand, w->y, w->matrix.N);
}
/* n query rows of heads of 64, against the K keys of a cache that fits L2 */
static void run_scores(const struct work *w)
{
    for (size_t key = 0; key < w->K; key += PANEL)
        w->k->score_keys(w->n, w->x, 64, w->w + key * 64, 64, w->y + key, w->K, PANEL);
}
static void run_mix(const struct work *w)
{
    const float *pages[16];
    for (size_t i = 0; i < w->K / PANEL; i++) pages[i] = w->w + i * PANEL * 64;
    w->k->mix_values(w->n, w->x, w->K, pages, w->K, w->y, 64, 64);
}
static void run_softmax(const struct work *w)
{
    memcpy(w->y, w->x, w->n * sizeof *w->x);
    w->k->softmax(w->y, w->n, 0, 0.125f);
}
static void run_rms(const struct work *w)
{
    w->k->rms_norm(w->n, w->x, w->w, 1e-5, w->y);
}
static void run_layer(const struct work *w)
{
    w->k->layer_norm(w->n, w->x, w->w, w->w, 1e-5, w->y);
}
static void run_silu(const struct work *w)
{
    w->k->silu_mul(w->n, w->x, w->w, w->y);
}
static void run_gelu(const struct work *w)
{
    w->k->unary[U_GELU_TANH](w->n, w->x, w->y);
}
static void run_rope(const struct work *w)
{
    w->k->rope(w->n / 2, w->x, w->w, w->y);
}
static void run_lse(const struct work *w)
{
    for (size_t i = 0; i < w->n; i += PANEL)
        w->y[0] = (float)w->k->lse_panel(w->x + i, PANEL, false).S;
}
static void run_count(const struct work *w)
{
    for (size_t i = 0; i < w->n; i += PANEL)
        w->y[0] = (float)w->k->count_before(w->x + i, PANEL, 0.9f, 0);
}

static const struct {
    const char *name;
    void (*run)(const struct work *);
} vectors[] = {
    {"softmax", run_softmax}, {"rms_norm", run_rms},       {"layer_norm", run_layer},
    {"silu_mul", run_silu},   {"gelu_tanh", run_gelu},     {"rope", run_rope},
    {"lse_panel", run_lse},   {"count_before", run_count},
};

static const char *const profiles[PROFILES] = {"f32", "bf16", "int16"};

/* Of fma, measured between the cases: a case is judged by the higher of its two neighbours. */
static double peak_before;

static void report(const char *label, void (*run)(const struct work *), const struct work *work,
                   double n_operations)
{
    double rate = 1e-9 * n_operations / best_seconds(run, work);
    double after = peak_gflops(work->k->level), peak = fmax(after, peak_before);
    peak_before = after;
    printf("%-10s %-32s %4zu rows  %6.1f GFLOP/s, %.2f of the fma peak\n", work->k->name, label,
           work->n, rate, rate / peak);
}

/* Random weights in work->w, and all rows packed. */
static void make_layer(struct work *work, enum dtype dtype, enum profile profile, size_t N,
                       size_t K)
{
    static uint8_t stored[MAX_WIDTH * sizeof(float)];
    struct matrix *matrix = &work->matrix;
    *matrix = (struct matrix){dtype, profile, (uint8_t *)work->w, NULL, N, K};
    for (size_t n = 0; n < N; n++) {
        fill_stored(dtype, stored, K, FILL_PLAIN);
        matrix_put(matrix, n, 0, K, stored);
    }
}

static void pack_layer(const struct work *work)
{
    size_t K = work->matrix.K;
    for (size_t b = 0; b < row_blocks(work->n); b++) {
        size_t first = block_row(work->n, b), n = block_row(work->n, b + 1) - first;
        const float *rows[ROW_BLOCK];
        for (size_t r = 0; r < n; r++) rows[r] = work->x + (first + r) * K;
        work->k->pack_rows[work->matrix.profile](n, rows, K, work->operand + first * K);
    }
}

/* A linear layer over some numbers of rows; `linear` is the whole of it, packing included. */
static void bench_layer(struct work work, const char *pattern, const char *kind, enum dtype dtype,
                        enum profile profile, size_t N, size_t K, const size_t *rows, size_t n_rows)
{
    char label[48];
    snprintf(label, sizeof label, "%s %s of %s %zux%zu", kind, profiles[profile],
             dtype_infos[dtype].name, K, N);
    if (!strstr(label, pattern)) return;
    make_layer(&work, dtype, profile, N, K);
    for (size_t i = 0; i < n_rows; i++) {
        work.n = rows[i];
        pack_layer(&work);
        report(label, strcmp(kind, "linear") ? run_gemm : run_linear, &work,
               2.0 * (double)(work.n * N * K));
    }
}

static void bench_layers(struct work work, const char *pattern)
{
    static const size_t all = MAX_ROWS;
    static const size_t rows[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 512};
    static const struct {
        enum dtype dtype;
        enum profile profile;
    } curves[] = {{DT_F32, PROFILE_F32},
                  {DT_Q4_1, PROFILE_F32},
                  {DT_BF16, PROFILE_BF16},
                  {DT_Q4_1, PROFILE_INT16}};
    for (int whole = 0; whole < 2; whole++)
        for (enum dtype dtype = 0; dtype < DT_COUNT; dtype++)
            for (enum profile profile = 0; profile < PROFILES; profile++) {
                if (profile == PROFILE_BF16 && dtype != DT_BF16) continue;
                if (profile == PROFILE_INT16 && !dtype_has_cells(dtype)) continue;
                bench_layer(work, pattern, whole ? "linear" : "gemm", dtype, profile, 1536, 576,
                            &all, 1);
            }
    for (size_t i = 0; i < COUNT(curves); i++)
        for (int down = 0; down < 2; down++)
            bench_layer(work, pattern, "curve", curves[i].dtype, curves[i].profile,
                        down ? 576 : 1536, down ? 1536 : 576, rows, COUNT(rows));
}

static void bench_attention(struct work work, const char *pattern)
{
    static const size_t rows[] = {1, 3, 9, 48, 192};
    work.K = 512;
    for (size_t i = 0; i < COUNT(rows); i++) {
        work.n = rows[i];
        double n_operations = 2.0 * 64 * (double)(work.n * work.K);
        if (strstr("score_keys", pattern))
            report("score_keys 64 x 512", run_scores, &work, n_operations);
        if (strstr("mix_values", pattern))
            report("mix_values 512 x 64", run_mix, &work, n_operations);
    }
}

static void bench_level(struct work work, const char *pattern)
{
    peak_before = peak_gflops(work.k->level);
    bench_layers(work, pattern);
    fill_floats(work.w, MAX_ROWS * MAX_WIDTH, FILL_PLAIN);
    bench_attention(work, pattern);
    for (size_t i = 0; i < COUNT(vectors); i++)
        if (strstr(vectors[i].name, pattern))
            printf("%-10s %-12s %6.2f ns a value\n", work.k->name, vectors[i].name,
                   best_seconds(vectors[i].run, &work) / (double)work.n * 1e9);
}

void bench_kernels(const char *pattern)
{
    size_t n = MAX_WIDTH * MAX_WIDTH, n_bytes = n * sizeof(float);
    struct work work = {.n = 1536,
                        .x = big_alloc(n_bytes),
                        .w = big_alloc(n_bytes),
                        .y = big_alloc(n_bytes),
                        .operand = big_alloc(n_bytes)};
    if (work.x && work.w && work.y && work.operand && pool_open(&work.pool, 1, NULL) == NP_OK) {
        fill_floats(work.x, n, FILL_PLAIN);
        for (enum cpu_level level = CPU_REF + 1; level < CPU_LEVELS; level++) {
            work.k = kernels_get(level);
            if (cpu_has(level) && work.k->level == level) bench_level(work, pattern);
        }
        pool_close(work.pool);
    }
    big_free(work.x, n_bytes);
    big_free(work.w, n_bytes);
    big_free(work.y, n_bytes);
    big_free(work.operand, n_bytes);
}
