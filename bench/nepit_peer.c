/*
 * nepit_peer.c - nepit as one more peer: a process that scores ids on request, by the line protocol
 * of bench/peers/peer.py, so that every engine is asked alike.
 *
 *   nepit_peer MODEL [--profile P] [--threads N] [--cpu LEVEL]
 *
 * "decode" is the same request on a second engine whose forward passes have one row: every token is
 * a pass of its own, and its bits are those of the other engine.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/npy.h"
#include "nepit.h"

#define MAX_ANSWER_BYTES ((size_t)1 << 30)

struct peer {
    np_model *model;
    np_engine *engines[2]; /* of many rows, of one row */
    struct buf ids, values;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void say(const char *key, const char *text)
{
    struct buf line;
    struct json json;
    buf_init(&line, 4096);
    json_init(&json, &line);
    json_begin(&json, '{');
    json_key(&json, key);
    json_str(&json, text);
    json_end(&json, '}');
    printf("%s\n", line.failed ? "{\"error\": \"out of memory\"}" : line.data);
    fflush(stdout);
    buf_free(&line);
}

static void fail(const char *text)
{
    say("error", text);
    exit(1);
}

static void fail_with(const np_error *err)
{
    char line[700];
    fail(np_error_line(err, line, sizeof line));
}

/* Appends the ids to peer->ids; the pointer is set when all are there, since the buffer moves. */
static void read_sequence(struct peer *peer, const json_t *sequence, np_request *request)
{
    request->n_tokens = json_array_size(sequence);
    for (size_t i = 0; i < request->n_tokens; i++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(sequence, i));
        if (!buf_push(&peer->ids, &id, sizeof id)) fail("out of memory");
    }
}

static void keep_values(struct peer *peer, const np_result *result)
{
    if (result->error.status != NP_OK) fail_with(&result->error);
    for (size_t i = 0; i < result->n_scored; i++) {
        double value = (double)result->logprobs[i];
        if (!buf_push(&peer->values, &value, sizeof value)) fail("out of memory");
    }
}

static void write_values(const struct peer *peer, const char *path)
{
    uint64_t n = peer->values.n_bytes / sizeof(double);
    struct buf header;
    FILE *file = fopen(path, "wb");
    buf_init(&header, 4096);
    if (!file || !npy_header(&header, NPY_F64, &n, 1) ||
        fwrite(header.data, 1, header.n_bytes, file) != header.n_bytes ||
        fwrite(peer->values.data, sizeof(double), n, file) != n || fclose(file) != 0)
        fail("the answer's file could not be written");
    buf_free(&header);
}

/* Seconds of np_run alone: what was asked lies in memory, what is answered does too. */
static double answer(struct peer *peer, const json_t *asked)
{
    const json_t *sequences = json_object_get(asked, "sequences");
    const char *out = json_string_value(json_object_get(asked, "out"));
    bool decode = json_is_true(json_object_get(asked, "decode"));
    size_t n = json_array_size(sequences), at = 0;
    np_request *requests = calloc(n + 1, sizeof *requests);
    np_result *results = calloc(n + 1, sizeof *results);
    np_error err;
    if (!requests || !results) fail("out of memory");
    for (size_t i = 0; i < n; i++) {
        requests[i].start = (size_t)json_integer_value(json_object_get(asked, "first"));
        requests[i].want = NP_WANT_LOGPROB;
        read_sequence(peer, json_array_get(sequences, i), &requests[i]);
    }
    for (size_t i = 0; i < n; at += requests[i++].n_tokens)
        requests[i].token_ids = (const int32_t *)(const void *)peer->ids.data + at;
    double begin = now();
    if (np_run(peer->engines[decode], requests, n, results, NULL, NULL, &err) != NP_OK)
        fail_with(&err);
    double seconds = now() - begin;
    for (size_t i = 0; i < n; i++) keep_values(peer, &results[i]);
    if (out) write_values(peer, out);
    for (size_t i = 0; i < n; i++) np_result_free(&results[i]);
    buf_free(&peer->ids);
    buf_free(&peer->values);
    free(requests);
    free(results);
    return seconds;
}

static void open_peer(struct peer *peer, int argc, char **argv)
{
    np_model_options options = {0};
    np_engine_options engine_options = {.no_cache = 1};
    np_error err;
    char name[200];
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--profile"))
            options.profile = argv[i + 1];
        else if (!strcmp(argv[i], "--cpu"))
            options.cpu = argv[i + 1];
        else if (!strcmp(argv[i], "--threads"))
            engine_options.n_threads = (int)strtol(argv[i + 1], NULL, 10);
        else
            fail("nepit_peer MODEL [--profile P] [--threads N] [--cpu LEVEL]");
    }
    if (argc < 2 || argc % 2 != 0)
        fail("nepit_peer MODEL [--profile P] [--threads N] [--cpu LEVEL]");
    buf_init(&peer->ids, MAX_ANSWER_BYTES);
    buf_init(&peer->values, MAX_ANSWER_BYTES);
    if (np_model_open(argv[1], &options, &peer->model, &err) != NP_OK) fail_with(&err);
    for (size_t i = 0; i < 2; i++) {
        engine_options.chunk_rows = i;
        if (np_engine_open(peer->model, &engine_options, &peer->engines[i], &err) != NP_OK)
            fail_with(&err);
    }
    np_info info = np_model_info(peer->model);
    snprintf(name, sizeof name, "nepit %s, profile %s, %s", np_version(), info.profile, info.cpu);
    say("ready", name);
}

int main(int argc, char **argv)
{
    struct peer peer = {0};
    char *line = NULL;
    size_t capacity = 0;
    open_peer(&peer, argc, argv);
    while (getline(&line, &capacity, stdin) > 0) {
        json_t *asked = json_loads(line, 0, NULL);
        if (!asked) fail("a line that is no JSON");
        printf("{\"seconds\": %.9f}\n", answer(&peer, asked));
        fflush(stdout);
        json_decref(asked);
    }
    free(line);
    for (size_t i = 0; i < 2; i++) np_engine_close(peer.engines[i]);
    np_model_close(peer.model);
    return 0;
}
