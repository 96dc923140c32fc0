/*
 * allways.c - one document in every way of running it, for tests/golden/matrix.py.
 *
 *     allways MODEL LEVEL PROFILE ONE|ALL < DOCUMENT
 *
 * DOCUMENT: a sequence of ids per line. ALL ways are the product of threads, chunks and numbers of
 * requests that run together (a group: sequences of the document among others, in random order);
 * ONE is the last of each. Per way a line "THREADS CHUNK BATCH BYTES" and that many bytes: the
 * float32 log-probabilities of every token in every scored row, sequences in order.
 */
#include "nepit.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SEQUENCES 16
#define MAX_IDS 1024
#define MAX_BATCH 32
#define COUNT(list) (sizeof(list) / sizeof *(list))

static const int all_threads[] = {1, 2, 3, 5, 8};
static const size_t all_chunks[] = {1, 7, 16, 64, 512, 8192};
static const size_t all_batches[] = {1, 2, 7, 32};
static const int32_t tops[] = {0, 1, 20, -1};

struct sequence {
    int32_t ids[MAX_IDS];
    size_t n_ids;
    float *cells; /* [n_ids - 1][n_vocab] */
};

struct document {
    struct sequence sequences[MAX_SEQUENCES];
    size_t n_sequences, n_context;
    int32_t *vocabulary; /* 0, 1, 2, ... */
    size_t n_vocab;
    uint32_t random;
};

static void fail(const char *what, const np_error *err)
{
    char line[700] = "";
    if (err) np_error_line(err, line, sizeof line);
    fprintf(stderr, "allways: %s %s\n", what, line);
    exit(1);
}

static void *take(size_t n_bytes)
{
    void *memory = calloc(1, n_bytes ? n_bytes : 1);
    if (!memory) fail("out of memory", NULL);
    return memory;
}

static size_t random_below(struct document *document, size_t n)
{
    document->random = document->random * 1664525u + 1013904223u;
    return (document->random >> 8) % n;
}

static void read_document(struct document *document)
{
    static char line[16 * MAX_IDS];
    while (fgets(line, sizeof line, stdin)) {
        if (document->n_sequences == MAX_SEQUENCES) fail("too many sequences", NULL);
        struct sequence *sequence = &document->sequences[document->n_sequences++];
        for (char *at = line, *end;; at = end) {
            long id = strtol(at, &end, 10);
            if (end == at) break;
            if (sequence->n_ids == MAX_IDS) fail("too many ids", NULL);
            sequence->ids[sequence->n_ids++] = (int32_t)id;
        }
    }
}

static void size_document(struct document *document, const np_model *model)
{
    np_info info = np_model_info(model);
    document->n_vocab = (size_t)info.n_vocab;
    document->n_context = (size_t)info.n_context;
    document->vocabulary = take(document->n_vocab * sizeof(int32_t));
    for (size_t i = 0; i < document->n_vocab; i++) document->vocabulary[i] = (int32_t)i;
    for (size_t i = 0; i < document->n_sequences; i++) {
        struct sequence *sequence = &document->sequences[i];
        if (sequence->n_ids < 2) fail("a sequence of fewer than two ids", NULL);
        sequence->cells = take((sequence->n_ids - 1) * document->n_vocab * sizeof(float));
    }
}

/* A request that only keeps company: its answer is not looked at. */
static np_request company(struct document *document, int32_t ids[MAX_IDS])
{
    size_t most = document->n_context < 10 ? document->n_context : 10;
    size_t n = 1 + random_below(document, most);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)random_below(document, document->n_vocab);
    return (np_request){.token_ids = ids,
                        .n_tokens = n,
                        .next = 1,
                        .want = NP_WANT_LOGPROB | NP_WANT_RANK | NP_WANT_ENTROPY,
                        .top = tops[random_below(document, COUNT(tops))]};
}

/* Sequences [first, first + n_own) among others, in random order. */
static void run_group(np_engine *engine, struct document *document, size_t first, size_t n_own,
                      size_t batch)
{
    static int32_t other_ids[MAX_BATCH][MAX_IDS];
    np_request requests[MAX_BATCH] = {0};
    np_result results[MAX_BATCH];
    size_t which[MAX_BATCH];
    np_error err;
    for (size_t i = 0; i < batch; i++) which[i] = i < n_own ? first + i : SIZE_MAX;
    for (size_t i = batch; i > 1; i--) {
        size_t j = random_below(document, i), moved = which[i - 1];
        which[i - 1] = which[j];
        which[j] = moved;
    }
    for (size_t i = 0; i < batch; i++) {
        const struct sequence *own = &document->sequences[which[i] == SIZE_MAX ? 0 : which[i]];
        requests[i] = which[i] == SIZE_MAX
                          ? company(document, other_ids[i])
                          : (np_request){.token_ids = own->ids,
                                         .n_tokens = own->n_ids,
                                         .want = NP_WANT_LOGPROB,
                                         .top = tops[random_below(document, COUNT(tops))],
                                         .candidate_ids = document->vocabulary,
                                         .n_candidates = document->n_vocab};
    }
    if (np_run(engine, requests, batch, results, NULL, NULL, &err) != NP_OK) fail("np_run", &err);
    for (size_t i = 0; i < batch; i++) {
        if (results[i].error.status != NP_OK) fail("a request", &results[i].error);
        if (which[i] != SIZE_MAX)
            memcpy(document->sequences[which[i]].cells, results[i].scores,
                   results[i].n_rows * document->n_vocab * sizeof(float));
        np_result_free(&results[i]);
    }
}

static void run_way(np_engine *engine, struct document *document, int threads, size_t chunk,
                    size_t batch)
{
    size_t n_bytes = 0;
    for (size_t i = 0; i < document->n_sequences; i += batch) {
        size_t left = document->n_sequences - i;
        run_group(engine, document, i, left < batch ? left : batch, batch);
    }
    for (size_t i = 0; i < document->n_sequences; i++)
        n_bytes += (document->sequences[i].n_ids - 1) * document->n_vocab * sizeof(float);
    printf("%d %zu %zu %zu\n", threads, chunk, batch, n_bytes);
    for (size_t i = 0; i < document->n_sequences; i++)
        fwrite(document->sequences[i].cells, sizeof(float),
               (document->sequences[i].n_ids - 1) * document->n_vocab, stdout);
}

static void run_all(np_model *model, struct document *document, bool all)
{
    for (size_t t = all ? 0 : COUNT(all_threads) - 1; t < COUNT(all_threads); t++)
        for (size_t c = all ? 0 : COUNT(all_chunks) - 1; c < COUNT(all_chunks); c++) {
            np_engine_options options = {.n_threads = all_threads[t],
                                         .oversubscribe = 1,
                                         .chunk_rows = all_chunks[c],
                                         .no_cache = 1};
            np_engine *engine;
            np_error err;
            if (np_engine_open(model, &options, &engine, &err) != NP_OK)
                fail("np_engine_open", &err);
            for (size_t b = all ? 0 : COUNT(all_batches) - 1; b < COUNT(all_batches); b++)
                run_way(engine, document, all_threads[t], all_chunks[c], all_batches[b]);
            np_engine_close(engine);
        }
}

int main(int argc, char **argv)
{
    static struct document document;
    np_model *model;
    np_error err;
    if (argc != 5) fail("usage: allways MODEL LEVEL PROFILE ONE|ALL < DOCUMENT", NULL);
    np_model_options options = {.cpu = argv[2], .profile = argv[3]};
    read_document(&document);
    if (np_model_open(argv[1], &options, &model, &err) != NP_OK) fail("np_model_open", &err);
    size_document(&document, model);
    run_all(model, &document, strcmp(argv[4], "ALL") == 0);
    np_model_close(model);
    for (size_t i = 0; i < document.n_sequences; i++) free(document.sequences[i].cells);
    free(document.vocabulary);
    return fflush(stdout) != 0;
}
