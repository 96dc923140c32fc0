/*
 * fuzz_values.c - a JSON text: it is read, or refused in one line. What is read goes through every
 * reader, as it is and, of an object, each member by its name.
 */
#include "mutate.h"
#include "server/values.h"

#include <assert.h>

#define MAX_DEPTH 8
#define MAX_CELLS 4096

static void one_line(np_status status, const np_error *err)
{
    char line[700];
    assert(status == err->status);
    assert(!strchr(np_error_line(err, line, sizeof line), '\n'));
}

/* Every byte of it is looked at. */
static void look(const void *bytes, size_t n_bytes)
{
    const volatile uint8_t *at = bytes;
    for (size_t i = 0; i < n_bytes; i++) (void)at[i];
}

static void read_lists(struct values *values, const char *where, const json_t *value)
{
    struct candidates candidates = {0};
    np_ids ids = {0};
    np_error err = {0};
    one_line(value_ids(values, where, value, &ids, &err), &err);
    if (!err.status) look(ids.ids, ids.n * sizeof *ids.ids);
    err = (np_error){0};
    one_line(value_candidates(values, where, value, &candidates, &err), &err);
    if (err.status) return;
    size_t n_rows = candidates.n_rows ? candidates.n_rows : 1;
    assert(candidates.n_rows == 0 || n_rows * candidates.n_candidates <= MAX_CELLS);
    look(candidates.ids, n_rows * candidates.n_candidates * sizeof *candidates.ids);
}

static void read_all(struct values *values, const char *where, const json_t *value)
{
    const np_string *strings = NULL;
    const np_bias *biases = NULL;
    np_string string = {0};
    size_t n = 0;
    int64_t number;
    np_error err = {0};
    read_lists(values, where, value);
    one_line(value_string(values, where, value, &string, &err), &err);
    if (!err.status) look(string.bytes, string.n_bytes + 1);
    err = (np_error){0};
    one_line(value_strings(values, where, value, &strings, &n, &err), &err);
    for (size_t i = 0; !err.status && i < n; i++) look(strings[i].bytes, strings[i].n_bytes + 1);
    err = (np_error){0};
    one_line(value_biases(values, where, value, &biases, &n, &err), &err);
    if (!err.status) look(biases, n * sizeof *biases);
    err = (np_error){0};
    one_line(value_seed(values, where, value, &number, &err), &err);
    assert(err.status || number >= -1);
    value_whole(values, value, &number);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct arena arena;
    struct values values = {.arena = &arena, .max_cells = MAX_CELLS};
    const char *key;
    json_t *json, *member;
    np_error err = {0};
    arena_init(&arena, (size_t)64 << 20);
    one_line(values_parse(&values, (const char *)bytes, n_bytes, "body", MAX_DEPTH, &json, &err),
             &err);
    assert(!json == (err.status != NP_OK));
    if (json) read_all(&values, "body", json);
    json_object_foreach(json, key, member) read_all(&values, key, member);
    json_decref(json);
    arena_free(&arena);
    return 0;
}
