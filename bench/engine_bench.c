/* engine_bench [--model PATH] [--profile P] [--threads N] [--repeat N] [--case NAME]
 *   overhead  a512: the share of the time that is spent outside the model and the head
 *   g8        8 responses of 128 on one prompt of 512, the responses' rows scored: rows/s
 *   g16       16 responses of 64 on one prompt of 1,500: rows/s (every repeat has its own ids)
 *   again     a text of 2,048 with 64 candidates, then with 64 others, the same for all rows, and
 *             then different per row: how many times faster
 *   options   4 options of 3 tokens on a context of 400: its cost over that of one option
 *   fair      32 short requests at once: the 99th percentile of their time, alone and beside a text
 *             of 8,000 tokens, and the time of one step of that
 *   decode16  tokens/s of 16 sequences that are generated at once, over that of one
 *   flat      resident memory after 1,000 and after 100,000 requests of a tiny model (--model)
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nepit.h"

#define MAX_REQUESTS 64
#define MAX_TOKENS 8192
#define N_CANDIDATES 64

struct bench {
    np_model *model;
    np_engine *engine;
    int32_t n_vocab;
    uint32_t seed;
    size_t n_repeat;
    int32_t ids[MAX_REQUESTS][MAX_TOKENS];
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const np_error *err)
{
    char line[700];
    fprintf(stderr, "engine_bench: %s\n", np_error_line(err, line, sizeof line));
    exit(1);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, ascending);
    return values[n / 2];
}

static void fill(struct bench *b, int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        b->seed = b->seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)((b->seed >> 8) % (uint32_t)b->n_vocab);
    }
}

/* n sequences of n_tokens that begin with the same n_shared. */
static void fill_group(struct bench *b, size_t n, size_t n_shared, size_t n_tokens)
{
    fill(b, b->ids[0], n_tokens);
    for (size_t i = 1; i < n; i++) {
        memcpy(b->ids[i], b->ids[0], n_shared * sizeof(int32_t));
        fill(b, b->ids[i] + n_shared, n_tokens - n_shared);
    }
}

static double run(struct bench *b, const np_request *requests, size_t n)
{
    np_result results[MAX_REQUESTS];
    np_error err;
    double start = now();
    if (np_run(b->engine, requests, n, results, NULL, NULL, &err) != NP_OK) fail(&err);
    double seconds = now() - start;
    for (size_t i = 0; i < n; i++) {
        if (results[i].error.status != NP_OK) fail(&results[i].error);
        np_result_free(&results[i]);
    }
    return seconds;
}

/* Rows from `start` on of sequences that share their beginning. */
static double run_group(struct bench *b, size_t n, size_t n_shared, size_t n_tokens)
{
    np_request requests[MAX_REQUESTS] = {0};
    fill_group(b, n, n_shared, n_tokens);
    for (size_t i = 0; i < n; i++)
        requests[i] = (np_request){.token_ids = b->ids[i],
                                   .n_tokens = n_tokens,
                                   .start = n_shared - 1,
                                   .want = NP_WANT_LOGPROB};
    return run(b, requests, n);
}

static double median_group(struct bench *b, size_t n, size_t n_shared, size_t n_tokens)
{
    double seconds[64];
    for (size_t i = 0; i < b->n_repeat; i++) seconds[i] = run_group(b, n, n_shared, n_tokens);
    return median(seconds, b->n_repeat);
}

static void bench_g8(struct bench *b)
{
    double s = median_group(b, 8, 512, 640);
    printf("{\"case\":\"g8\",\"rows_s\":%.1f,\"seconds\":%.3f}\n", 8 * 128 / s, s);
}

static void bench_g16(struct bench *b)
{
    double s = median_group(b, 16, 1500, 1564);
    printf("{\"case\":\"g16\",\"rows_s\":%.1f,\"seconds\":%.3f}\n", 16 * 64 / s, s);
}

static void bench_options(struct bench *b)
{
    double one[64], four[64];
    for (size_t i = 0; i < b->n_repeat; i++) {
        one[i] = run_group(b, 1, 400, 403);
        four[i] = run_group(b, 4, 400, 403);
    }
    double s1 = median(one, b->n_repeat), s4 = median(four, b->n_repeat);
    printf("{\"case\":\"options\",\"one_s\":%.3f,\"four_s\":%.3f,\"ratio\":%.3f}\n", s1, s4,
           s4 / s1);
}

static void bench_again(struct bench *b)
{
    enum { P = 2048 };
    static int32_t rows[P][N_CANDIDATES];
    double first[64], same[64], each[64];
    int32_t flat[2][N_CANDIDATES];
    for (size_t i = 0; i < b->n_repeat; i++) {
        fill(b, b->ids[0], P);
        fill(b, flat[0], N_CANDIDATES);
        fill(b, flat[1], N_CANDIDATES);
        fill(b, rows[0], P * N_CANDIDATES);
        np_request request = {
            .token_ids = b->ids[0], .n_tokens = P, .candidate_ids = flat[0], .n_candidates = 64};
        first[i] = run(b, &request, 1);
        request.candidate_ids = flat[1];
        same[i] = run(b, &request, 1);
        request.candidate_ids = rows[0];
        request.n_candidate_rows = P - 1;
        each[i] = run(b, &request, 1);
    }
    double s = median(first, b->n_repeat), s_same = median(same, b->n_repeat),
           s_each = median(each, b->n_repeat);
    printf("{\"case\":\"again\",\"first_s\":%.3f,\"same_s\":%.4f,\"per_row_s\":%.4f,"
           "\"ratio_same\":%.1f,\"ratio_per_row\":%.1f}\n",
           s, s_same, s_each, s / s_same, s / s_each);
}

/* ---- a crowd beside a long text -------------------------------------------------------------- */

#define N_SHORT 32
#define SHORT_TOKENS 64

struct arrival {
    double start, seconds;
};

static void note_end(void *user, size_t request, const np_result *result, size_t n_rows,
                     int finished)
{
    struct arrival *arrival = user;
    if (finished) arrival->seconds = now() - arrival->start;
}

/* 32 short requests at once; the worst of them is their 99th percentile. */
static double crowd(struct bench *b)
{
    struct arrival arrivals[N_SHORT];
    np_ticket *tickets[N_SHORT];
    np_error err;
    double worst = 0;
    for (size_t i = 0; i < N_SHORT; i++) fill(b, b->ids[1 + i], SHORT_TOKENS);
    for (size_t i = 0; i < N_SHORT; i++) {
        np_request request = {
            .token_ids = b->ids[1 + i], .n_tokens = SHORT_TOKENS, .want = NP_WANT_LOGPROB};
        arrivals[i].start = now();
        if (np_submit(b->engine, &request, 1, note_end, &arrivals[i], &tickets[i], &err) != NP_OK)
            fail(&err);
    }
    for (size_t i = 0; i < N_SHORT; i++) {
        if (np_wait(tickets[i], NULL, &err) != NP_OK) fail(&err);
        worst = arrivals[i].seconds > worst ? arrivals[i].seconds : worst;
    }
    return worst;
}

struct chunks {
    double last, longest;
};

static void note_chunk(void *user, size_t request, const np_result *result, size_t n_rows,
                       int finished)
{
    struct chunks *chunks = user;
    double t = now();
    if (chunks->last > 0 && t - chunks->last > chunks->longest) chunks->longest = t - chunks->last;
    chunks->last = t;
}

static void bench_fair(struct bench *b)
{
    np_error err;
    double idle[64], busy[64], chunk[64];
    for (size_t i = 0; i < b->n_repeat; i++) {
        struct chunks chunks = {0};
        np_ticket *ticket;
        idle[i] = crowd(b);
        fill(b, b->ids[0], 8000);
        np_request request = {.token_ids = b->ids[0], .n_tokens = 8000, .want = NP_WANT_LOGPROB};
        if (np_submit(b->engine, &request, 1, note_chunk, &chunks, &ticket, &err) != NP_OK)
            fail(&err);
        usleep(4000000);
        chunk[i] = chunks.longest; /* of steps that had the engine for themselves */
        busy[i] = crowd(b);
        np_cancel(ticket);
        np_wait(ticket, NULL, &err);
    }
    double s_idle = median(idle, b->n_repeat), s_busy = median(busy, b->n_repeat),
           s_chunk = median(chunk, b->n_repeat);
    printf("{\"case\":\"fair\",\"idle_p99_s\":%.3f,\"busy_p99_s\":%.3f,\"chunk_s\":%.3f,"
           "\"bound_s\":%.3f}\n",
           s_idle, s_busy, s_chunk, 2 * s_idle + s_chunk);
}

static double generate(struct bench *b, size_t n, size_t n_tokens)
{
    static const float greedy;
    static const np_sampling sampling = {
        .temperature = &greedy, .ignore_eos = 1, .want = NP_WANT_LOGPROB};
    np_request requests[MAX_REQUESTS] = {0};
    for (size_t i = 0; i < n; i++) {
        fill(b, b->ids[i], 4);
        requests[i] = (np_request){
            .token_ids = b->ids[i], .n_tokens = 4, .max_tokens = n_tokens, .sampling = &sampling};
    }
    return run(b, requests, n);
}

static void bench_decode16(struct bench *b)
{
    double one[64], many[64];
    for (size_t i = 0; i < b->n_repeat; i++) {
        one[i] = generate(b, 1, 64);
        many[i] = generate(b, 16, 64);
    }
    double s1 = median(one, b->n_repeat), s16 = median(many, b->n_repeat);
    printf("{\"case\":\"decode16\",\"one_tok_s\":%.1f,\"sixteen_tok_s\":%.1f,\"ratio\":%.2f}\n",
           64 / s1, 16 * 64 / s16, 16 * s1 / s16);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static size_t resident_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0, resident = 0;
    if (!file) return 0;
    if (fscanf(file, "%lu %lu", &pages, &resident) != 2) resident = 0;
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE) / 1024;
}

static void bench_flat(struct bench *b)
{
    size_t early = 0;
    for (size_t i = 0; i < 100000; i++) {
        size_t n = 2 + (b->seed >> 8) % 120;
        fill(b, b->ids[0], n);
        np_request request = {.token_ids = b->ids[0], .n_tokens = n, .want = NP_WANT_LOGPROB};
        run(b, &request, 1);
        if (i == 20000) early = resident_kib();
    }
    size_t late = resident_kib();
    printf("{\"case\":\"flat\",\"early_kib\":%zu,\"late_kib\":%zu,\"growth\":%.4f}\n", early, late,
           early ? (double)late / (double)early - 1 : 0);
}

static void bench_overhead(struct bench *b)
{
    double wall = 0, inside = 0;
    np_request request = {.token_ids = b->ids[0], .n_tokens = 513, .want = NP_WANT_LOGPROB};
    for (size_t i = 0; i <= b->n_repeat; i++) {
        fill(b, b->ids[0], 513);
        double before = np_engine_stats(b->engine).busy_s, seconds = run(b, &request, 1);
        if (i == 0) continue;
        wall += seconds;
        inside += np_engine_stats(b->engine).busy_s - before;
    }
    printf("{\"case\":\"overhead\",\"seconds\":%.3f,\"outside\":%.4f}\n",
           wall / (double)b->n_repeat, 1 - inside / wall);
}

static const struct {
    const char *name;
    void (*run)(struct bench *b);
} cases[] = {{"overhead", bench_overhead}, {"g8", bench_g8},           {"g16", bench_g16},
             {"again", bench_again},       {"options", bench_options}, {"fair", bench_fair},
             {"decode16", bench_decode16}, {"flat", bench_flat}};

int main(int argc, char **argv)
{
    static struct bench bench = {.seed = 1, .n_repeat = 5};
    const char *path = "models/SmolLM2-135M-Instruct.Q4_1.gguf", *only = NULL;
    np_model_options model_how = {0};
    np_engine_options engine_how = {.cache_memory = (size_t)1 << 30};
    np_error err;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--model")) path = argv[i + 1];
        if (!strcmp(argv[i], "--profile")) model_how.profile = argv[i + 1];
        if (!strcmp(argv[i], "--case")) only = argv[i + 1];
        if (!strcmp(argv[i], "--repeat")) bench.n_repeat = strtoul(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--threads"))
            engine_how.n_threads = (int)strtol(argv[i + 1], NULL, 10);
    }
    if (bench.n_repeat < 1 || bench.n_repeat > 64) bench.n_repeat = 5;
    if (np_model_open(path, &model_how, &bench.model, &err) != NP_OK) fail(&err);
    bench.n_vocab = np_model_info(bench.model).n_vocab;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool tiny = !strcmp(cases[i].name, "flat");
        if (only ? strcmp(only, cases[i].name) != 0 : tiny) continue;
        if (tiny) engine_how.cache_memory = (size_t)16 << 20;
        if (np_engine_open(bench.model, &engine_how, &bench.engine, &err) != NP_OK) fail(&err);
        cases[i].run(&bench);
        fflush(stdout);
        np_engine_close(bench.engine);
    }
    np_model_close(bench.model);
    return 0;
}
