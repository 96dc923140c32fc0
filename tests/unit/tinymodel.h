/*
 * tinymodel.h - the committed tiny models as test material: paths, copies with a patch, ids.
 */
#ifndef TESTS_TINYMODEL_H
#define TESTS_TINYMODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/file.h"
#include "nepit.h"

#define TINY(name) TEST_DATA "/models/" name

/* A copy of a file in which the first `from` is replaced by `to` (same length), at or after offset
 * `at`. The path lives until the next call. */
static inline const char *patched_copy(const char *path, const char *from, const char *to, size_t n)
{
    static char copy[64];
    char *bytes;
    size_t n_bytes;
    np_error err;
    snprintf(copy, sizeof copy, "/tmp/nepit-test-XXXXXX");
    assert_int_equal(file_read_all(path, 1u << 24, &bytes, &n_bytes, &err), NP_OK);
    char *place = memmem(bytes, n_bytes, from, n);
    assert_non_null(place);
    memcpy(place, to, n);
    int fd = mkstemp(copy);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n_bytes), (ssize_t)n_bytes);
    close(fd);
    mem_free(bytes);
    return copy;
}

/* Opening must fail with this status; the one-line error must hold `text`. */
static inline void refuses(const char *path, np_status status, const char *text)
{
    np_model *model;
    np_error err;
    char line[700];
    assert_int_equal(np_model_open(path, NULL, &model, &err), status);
    assert_null(model);
    np_error_line(&err, line, sizeof line);
    if (!strstr(line, text)) fail_msg("\"%s\" does not hold \"%s\"", line, text);
    assert_null(strchr(line, '\n'));
}

static inline np_model *open_model(const char *path)
{
    np_model *model;
    np_error err;
    char line[700];
    if (np_model_open(path, NULL, &model, &err) != NP_OK)
        fail_msg("%s", np_error_line(&err, line, sizeof line));
    return model;
}

static inline np_engine *open_engine_how(np_model *model, np_engine_options options)
{
    np_engine *engine;
    np_error err;
    char line[700];
    options.oversubscribe = 1;
    if (np_engine_open(model, &options, &engine, &err) != NP_OK)
        fail_msg("%s", np_error_line(&err, line, sizeof line));
    return engine;
}

static inline np_engine *open_engine(np_model *model, int n_threads, size_t chunk_rows)
{
    return open_engine_how(model,
                           (np_engine_options){.n_threads = n_threads, .chunk_rows = chunk_rows});
}

/* The same ids on every machine: a linear congruence. */
static inline void fill_ids(int32_t *ids, size_t n, int32_t n_vocab, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)((seed >> 8) % (uint32_t)n_vocab);
    }
}

#endif
