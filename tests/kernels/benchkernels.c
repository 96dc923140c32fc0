/*
 * benchkernels.c - times kernels on one thread, in processor time, the best of several, since the
 * machine may be busy with other things.
 */
#include "benchkernels.h"
#include "kcheck.h"
#include <math.h>

#define TRIES 9
#define TRY_SECONDS 0.01

struct work {
    const struct kernels *k;
    size_t n, K;
    float *x, *w, *y;
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

static void run_gemm(const struct work *w)
{
    w->k->score_keys(w->n, w->x, w->K, w->w, w->K, w->y, PANEL, PANEL);
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

static void bench_gemm(struct work work)
{
    static const size_t Ks[] = {64, 576, 1536}, rows[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 64, 512};
    for (size_t i = 0; i < sizeof Ks / sizeof *Ks; i++)
        for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) {
            work.K = Ks[i];
            work.n = rows[j];
            double peak = peak_gflops(work.k->level), spent = best_seconds(run_gemm, &work);
            double rate = 2e-9 * (double)(work.n * work.K * PANEL) / spent;
            printf("%-7s score_keys  K %4zu, %3zu rows: %6.1f GFLOP/s, %.2f of the peak\n",
                   work.k->name, work.K, work.n, rate, rate / peak);
        }
}

void bench_kernels(const char *pattern)
{
    size_t n = 512 * 1536;
    float *x = aligned_alloc(64, n * sizeof *x), *w = aligned_alloc(64, n * sizeof *w);
    float *y = aligned_alloc(64, n * sizeof *y);
    if (!x || !w || !y) goto done;
    fill_floats(x, n, FILL_PLAIN);
    fill_floats(w, n, FILL_PLAIN);
    fill_floats(y, n, FILL_PLAIN);
    for (enum cpu_level level = CPU_REF + 1; level < CPU_LEVELS; level++) {
        struct work work = {kernels_get(level), 1536, 0, x, w, y};
        if (!cpu_has(level) || work.k->level != level) continue;
        if (strstr("score_keys", pattern)) bench_gemm(work);
        for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
            if (strstr(vectors[i].name, pattern))
                printf("%-7s %-12s %6.2f ns a value\n", work.k->name, vectors[i].name,
                       best_seconds(vectors[i].run, &work) / (double)work.n * 1e9);
    }
done:
    free(x);
    free(w);
    free(y);
}
