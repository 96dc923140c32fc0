/*
 * nepit_bench.c - fixed scenarios through the public interface, one JSON line each:
 *
 *   {"case","profile","tok_s","rows_s","peak_fraction","rss_mib"}
 *
 *   a512    one text of 512 tokens, every row scored
 *   a2048   the last 512 rows of 2,048 tokens
 *   g8      8 responses of 128 tokens on one prompt of 512, the response rows scored
 *   s64     64 texts of 64 tokens, every row scored
 *   decode  64 tokens one by one after a prompt of one
 *
 * Medians of --repeat runs (5). peak_fraction: the multiplications and additions that the model's
 * formulas ask for, over what the threads could do in that time at the fma rate that was measured
 * in this process just before. Ids are arbitrary: the work does not depend on them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/cpu.h"
#include "base/pool.h"
#include "../tests/kernels/kcheck.h"
#include "nepit.h"

#define MAX_SEQUENCES 64

struct scenario {
    const char *name;
    size_t n_sequences, n_tokens, first_row, chunk_rows;
};

static const struct scenario scenarios[] = {
    {"a512", 1, 512, 0, 0}, {"a2048", 1, 2048, 1535, 0}, {"g8", 8, 640, 511, 0},
    {"s64", 64, 64, 0, 0},  {"decode", 1, 65, 0, 1},
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fail(const np_error *err)
{
    char line[700];
    fprintf(stderr, "nepit_bench: %s\n", np_error_line(err, line, sizeof line));
    exit(1);
}

/* Additions and multiplications of one scenario. */
static double flops_of(const np_info *info, const struct scenario *s)
{
    double q = (double)info->n_heads * info->head_dim, head = (double)info->n_vocab * info->dim;
    double per_token = (double)info->n_parameters - head * (info->head_tied ? 1 : 2);
    double n = (double)s->n_tokens - 1, pairs = n * (n + 1) / 2; /* the last token scores nothing */
    double rows = (double)(s->n_tokens - 1 - s->first_row);
    return 2 * (double)s->n_sequences *
           (n * per_token + info->n_layers * 2 * pairs * q + rows * head);
}

static void peak_work(void *ctx, int thread, int n_threads)
{
    ((double *)ctx)[thread] = peak_gflops(cpu_detect());
}

/* What all threads reach side by side: two may share the units of one core. */
static double peak_of(int n_threads)
{
    struct pool *pool;
    double each[1024] = {0}, sum = 0;
    if (n_threads > 1024 || pool_open(&pool, n_threads, NULL) != NP_OK) return 0;
    pool_run(pool, peak_work, each);
    pool_close(pool);
    for (int i = 0; i < n_threads; i++) sum += each[i];
    return sum * 1e9;
}

static void run_scenario(np_model *model, const struct scenario *s, int n_threads, size_t n_repeat)
{
    np_info info = np_model_info(model);
    np_engine_options options = {.n_threads = n_threads, .chunk_rows = s->chunk_rows};
    np_engine *engine;
    np_error err;
    np_request requests[MAX_SEQUENCES];
    np_result results[MAX_SEQUENCES];
    int32_t *ids = malloc(s->n_tokens * sizeof *ids);
    double *seconds_of = malloc(n_repeat * sizeof *seconds_of);
    struct rusage usage;
    if (!ids || !seconds_of) exit(1);
    if ((size_t)info.n_context < s->n_tokens) {
        fprintf(stderr, "nepit_bench: %s needs a context of %zu tokens: left out\n", s->name,
                s->n_tokens);
        free(ids);
        free(seconds_of);
        return;
    }
    if (np_engine_open(model, &options, &engine, &err) != NP_OK) fail(&err);
    for (size_t i = 0; i < s->n_tokens; i++)
        ids[i] = (int32_t)((i * 7919 + 13) % (size_t)info.n_vocab);
    for (size_t i = 0; i < s->n_sequences; i++)
        requests[i] = (np_request){.token_ids = ids,
                                   .n_tokens = s->n_tokens,
                                   .start = s->first_row,
                                   .want = NP_WANT_LOGPROB};
    double peak = peak_of(n_threads);
    for (size_t r = 0; r <= n_repeat; r++) { /* one more, first, to warm up */
        double begin = now();
        if (np_run(engine, requests, s->n_sequences, results, NULL, NULL, &err) != NP_OK)
            fail(&err);
        if (r > 0) seconds_of[r - 1] = now() - begin;
        for (size_t i = 0; i < s->n_sequences; i++) np_result_free(&results[i]);
    }
    qsort(seconds_of, n_repeat, sizeof *seconds_of, ascending);
    double median = seconds_of[n_repeat / 2];
    getrusage(RUSAGE_SELF, &usage);
    printf(
        "{\"case\":\"%s\",\"profile\":\"%s\",\"tok_s\":%.1f,\"rows_s\":%.1f,\"peak_fraction\":%.3f,"
        "\"rss_mib\":%ld}\n",
        s->name, info.profile, (double)(s->n_sequences * s->n_tokens) / median,
        (double)(s->n_sequences * (s->n_tokens - 1 - s->first_row)) / median,
        peak > 0 ? flops_of(&info, s) / median / peak : 0.0, usage.ru_maxrss / 1024);
    fflush(stdout);
    np_engine_close(engine);
    free(ids);
    free(seconds_of);
}

int main(int argc, char **argv)
{
    const char *path = "models/SmolLM2-135M-Instruct.Q4_1.gguf", *only = "";
    int n_threads = 2;
    size_t n_repeat = 5;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--model"))
            path = argv[i + 1];
        else if (!strcmp(argv[i], "--threads"))
            n_threads = (int)strtol(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--repeat"))
            n_repeat = (size_t)strtol(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--case"))
            only = argv[i + 1];
        else
            n_threads = 0;
    }
    if (n_threads < 1 || n_repeat < 1 || argc % 2 == 0) {
        fprintf(stderr, "nepit_bench [--model PATH] [--threads N] [--repeat N] [--case NAME]\n");
        return 2;
    }
    np_model *model;
    np_error err;
    if (np_model_open(path, NULL, &model, &err) != NP_OK) fail(&err);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (!only[0] || !strcmp(only, scenarios[i].name))
            run_scenario(model, &scenarios[i], n_threads, n_repeat);
    np_model_close(model);
    return 0;
}
