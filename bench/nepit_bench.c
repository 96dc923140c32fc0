/*
 * nepit_bench.c - fixed scenarios through the public interface, one JSON line each:
 *
 *   {"case","profile","tok_s","rows_s","peak_fraction","rss_mib"}
 *
 * The scenarios are those of bench/peers/run.py; the table below has their sizes. Medians of
 * --repeat runs (5). peak_fraction: the multiplications and additions that the model's formulas ask
 * for, over what the threads could do in that time at the rate of f32 fma that was measured in this
 * process just before; profiles that are not f32 may exceed 1. Each case is a process of its own,
 * which opens the model anew: rss_mib is what that case alone needed at its peak. Ids are
 * arbitrary: the work does not depend on them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/pool.h"
#include "../tests/kernels/kcheck.h"
#include "nepit.h"

#define MAX_SEQUENCES 64

struct scenario {
    const char *name;
    size_t n_sequences, n_tokens, first_row, chunk_rows;
};

struct options {
    const char *path, *profile, *cpu, *only;
    int n_threads;
    size_t n_repeat;
};

/* a2048 and g8: the last 512 rows, and the response's 128 behind a prompt of 512. */
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

static void ask(np_engine *engine, const struct scenario *s, const int32_t *ids)
{
    np_request requests[MAX_SEQUENCES];
    np_result results[MAX_SEQUENCES];
    np_error err;
    for (size_t i = 0; i < s->n_sequences; i++)
        requests[i] = (np_request){.token_ids = ids,
                                   .n_tokens = s->n_tokens,
                                   .start = s->first_row,
                                   .want = NP_WANT_LOGPROB};
    if (np_run(engine, requests, s->n_sequences, results, NULL, NULL, &err) != NP_OK) fail(&err);
    for (size_t i = 0; i < s->n_sequences; i++) {
        if (results[i].error.status != NP_OK) fail(&results[i].error);
        np_result_free(&results[i]);
    }
}

static double median_seconds(np_engine *engine, const struct scenario *s, int32_t n_vocab,
                             size_t n_repeat)
{
    int32_t *ids = malloc(s->n_tokens * sizeof *ids);
    double *seconds_of = malloc(n_repeat * sizeof *seconds_of), median;
    if (!ids || !seconds_of) exit(1);
    for (size_t i = 0; i < s->n_tokens; i++) ids[i] = (int32_t)((i * 7919 + 13) % (size_t)n_vocab);
    for (size_t r = 0; r <= n_repeat; r++) { /* one more, first, to warm up */
        double begin = now();
        ask(engine, s, ids);
        if (r > 0) seconds_of[r - 1] = now() - begin;
    }
    qsort(seconds_of, n_repeat, sizeof *seconds_of, ascending);
    median = seconds_of[n_repeat / 2];
    free(ids);
    free(seconds_of);
    return median;
}

static void run_scenario(const struct options *o, const struct scenario *s)
{
    np_model_options how = {.profile = o->profile, .cpu = o->cpu, .n_threads = o->n_threads};
    np_engine_options engine_how = {
        .n_threads = o->n_threads, .chunk_rows = s->chunk_rows, .no_cache = 1};
    np_model *model;
    np_engine *engine;
    np_error err;
    struct rusage usage;
    if (np_model_open(o->path, &how, &model, &err) != NP_OK) fail(&err);
    np_info info = np_model_info(model);
    if ((size_t)info.n_context < s->n_tokens) {
        fprintf(stderr, "nepit_bench: %s needs a context of %zu tokens: left out\n", s->name,
                s->n_tokens);
        np_model_close(model);
        return;
    }
    if (np_engine_open(model, &engine_how, &engine, &err) != NP_OK) fail(&err);
    double peak = peak_of(o->n_threads);
    double median = median_seconds(engine, s, info.n_vocab, o->n_repeat);
    getrusage(RUSAGE_SELF, &usage);
    printf(
        "{\"case\":\"%s\",\"profile\":\"%s\",\"tok_s\":%.1f,\"rows_s\":%.1f,\"peak_fraction\":%.3f,"
        "\"rss_mib\":%ld}\n",
        s->name, info.profile, (double)(s->n_sequences * s->n_tokens) / median,
        (double)(s->n_sequences * (s->n_tokens - 1 - s->first_row)) / median,
        peak > 0 ? flops_of(&info, s) / median / peak : 0.0, usage.ru_maxrss / 1024);
    fflush(stdout);
    np_engine_close(engine);
    np_model_close(model);
}

/* Status of the process that ran it. */
static int run_apart(const struct options *o, const struct scenario *s)
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        run_scenario(o, s);
        exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    return status != 0;
}

static bool take_option(struct options *o, const char *name, const char *value)
{
    struct {
        const char *name, **text;
    } texts[] = {{"--model", &o->path},
                 {"--profile", &o->profile},
                 {"--cpu", &o->cpu},
                 {"--case", &o->only}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(name, texts[i].name)) return (*texts[i].text = value) != NULL;
    if (!strcmp(name, "--threads")) return (o->n_threads = (int)strtol(value, NULL, 10)) > 0;
    if (!strcmp(name, "--repeat")) return (o->n_repeat = strtoul(value, NULL, 10)) > 0;
    return false;
}

int main(int argc, char **argv)
{
    struct options o = {
        .path = "models/SmolLM2-135M-Instruct.Q4_1.gguf", .n_threads = 2, .n_repeat = 5};
    bool known = argc % 2 == 1;
    int status = 0;
    for (int i = 1; known && i + 1 < argc; i += 2) known = take_option(&o, argv[i], argv[i + 1]);
    if (!known) {
        fprintf(stderr, "nepit_bench [--model PATH] [--profile P] [--cpu LEVEL] [--threads N] "
                        "[--repeat N] [--case NAME]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (!o.only || !strcmp(o.only, scenarios[i].name)) status |= run_apart(&o, &scenarios[i]);
    return status;
}
