/*
 * values.c - see values.h.
 *
 * JSON has no largest integer and jansson has: a text with a longer one is read again with all its
 * integers as real numbers, so that the error can name the field which holds it. A whole number is
 * then whatever real has no fraction; the others of the text lose nothing below 2^53.
 */
#include "values.h"

#include "base/npy.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CELLS ((size_t)1 << 28)
#define MAX_PATH_BYTES sizeof((np_error *)0)->where
#define AN_ID "a token id (an integer below 2^31)"

/* ---- the text ----------------------------------------------------------------------------- */

/* Where the text is nested too deeply; n_bytes: nowhere. What is in strings does not count. */
static size_t too_deep(const char *bytes, size_t n_bytes, int max_depth)
{
    int depth = 0;
    bool in_string = false;
    for (size_t at = 0; at < n_bytes; at++) {
        char c = bytes[at];
        if (in_string && c == '\\')
            at++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '[' || c == '{') && ++depth > max_depth)
            return at;
        else if (!in_string && (c == ']' || c == '}') && --depth < 0)
            return n_bytes; /* no JSON */
    }
    return n_bytes;
}

np_status values_parse(struct values *values, const char *bytes, size_t n_bytes, const char *where,
                       int max_depth, json_t **out, np_error *err)
{
    size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY;
    size_t deep = too_deep(bytes, n_bytes, max_depth);
    json_error_t why;
    *out = NULL;
    if (deep < n_bytes)
        return error_set(err, NP_EINPUT, where, (int64_t)deep,
                         "at most %d lists and objects may lie within each other", max_depth);
    values->ints_are_real = false;
    json_t *json = json_loadb(bytes, n_bytes, flags, &why);
    if (!json && json_error_code(&why) == json_error_numeric_overflow) {
        values->ints_are_real = true;
        json = json_loadb(bytes, n_bytes, flags | JSON_DECODE_INT_AS_REAL, &why);
    }
    if (!json && json_error_code(&why) == json_error_out_of_memory)
        return error_nomem(err, where, n_bytes);
    if (!json)
        return error_set(err, NP_EINPUT, where, why.position, "not valid JSON: %s", why.text);
    *out = json;
    return NP_OK;
}

np_status value_wrong(const char *where, const char *must_be, const json_t *value, np_error *err)
{
    static const char *const names[] = {"an object",     "an array", "a text", "an integer",
                                        "a real number", "true",     "false",  "null"};
    error_set(err, NP_EINPUT, where, NO_OFFSET, "must be %s", must_be);
    if (!value) return error_given(err, NP_EINPUT, "nothing");
    if (json_is_integer(value))
        return error_given(err, NP_EINPUT, "%lld", (long long)json_integer_value(value));
    if (json_is_real(value)) return error_given(err, NP_EINPUT, "%.17g", json_real_value(value));
    if (json_is_string(value))
        return error_given(err, NP_EINPUT, "\"%.50s\"", json_string_value(value));
    return error_given(err, NP_EINPUT, "%s", names[json_typeof(value)]);
}

/* ---- numbers and texts -------------------------------------------------------------------- */

bool value_whole(const struct values *values, const json_t *value, int64_t *number)
{
    double real = json_real_value(value);
    *number = json_integer_value(value);
    if (json_is_integer(value)) return true;
    if (!values->ints_are_real || !json_is_real(value) || rint(real) != real || fabs(real) > 9e15)
        return false;
    *number = (int64_t)real;
    return true;
}

np_status value_seed(const struct values *values, const char *where, const json_t *value,
                     int64_t *seed, np_error *err)
{
    if (value_whole(values, value, seed) && *seed >= -1) return NP_OK;
    return value_wrong(where, "an integer from 0 to 2^63 - 1, or -1 for a random one", value, err);
}

np_status value_string(struct values *values, const char *where, const json_t *value,
                       np_string *out, np_error *err)
{
    if (!json_is_string(value)) return value_wrong(where, "a text", value, err);
    size_t n_bytes = json_string_length(value);
    out->bytes = arena_strndup(values->arena, json_string_value(value), n_bytes);
    out->n_bytes = n_bytes;
    return out->bytes ? NP_OK : error_nomem(err, where, n_bytes);
}

np_status value_strings(struct values *values, const char *where, const json_t *value,
                        const np_string **out, size_t *n_out, np_error *err)
{
    bool one = json_is_string(value);
    if (!one && !json_is_array(value))
        return value_wrong(where, "a text or a list of texts", value, err);
    size_t n = one ? 1 : json_array_size(value);
    np_string *list = arena_push_array(values->arena, n + 1, sizeof *list);
    if (!list) return error_nomem(err, where, n * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        char path[MAX_PATH_BYTES];
        snprintf(path, sizeof path, "%s[%zu]", where, i);
        TRY(value_string(values, path, one ? value : json_array_get(value, i), &list[i], err));
    }
    *out = list;
    *n_out = n;
    return NP_OK;
}

np_status value_biases(struct values *values, const char *where, const json_t *value,
                       const np_bias **out, size_t *n_out, np_error *err)
{
    size_t n = 0;
    if (!json_is_object(value))
        return value_wrong(where, "an object of numbers by token id", value, err);
    np_bias *list = arena_push_array(values->arena, json_object_size(value) + 1, sizeof *list);
    if (!list) return error_nomem(err, where, json_object_size(value) * sizeof *list);
    for (void *at = json_object_iter((json_t *)value); at;
         at = json_object_iter_next((json_t *)value, at)) {
        const char *key = json_object_iter_key(at);
        const json_t *bias = json_object_iter_value(at);
        char path[MAX_PATH_BYTES], *end;
        errno = 0;
        long id = strtol(key, &end, 10);
        snprintf(path, sizeof path, "%s.%.60s", where, key);
        if (key[0] < '0' || key[0] > '9' || *end || errno || id > INT32_MAX)
            return error_set(err, NP_EINPUT, path, NO_OFFSET,
                             "the name of a bias must be a token id");
        if (!json_is_number(bias)) return value_wrong(path, "a number", bias, err);
        list[n++] = (np_bias){(int32_t)id, (float)json_number_value(bias)};
    }
    *out = list;
    *n_out = n;
    return NP_OK;
}

/* ---- arrays as base64 of .npy ------------------------------------------------------------- */

static size_t most_cells(const struct values *values)
{
    return values->max_cells ? values->max_cells : MOST_CELLS;
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* The standard alphabet; the error names the byte. */
static np_status base64_decode(struct values *values, const char *where, const json_t *text,
                               char **bytes, size_t *n_decoded, np_error *err)
{
    const char *digits = json_string_value(text);
    size_t n_bytes = json_string_length(text), n_digits = n_bytes, n_out = 0;
    while (n_digits > 0 && n_bytes - n_digits < 2 && digits[n_digits - 1] == '=') n_digits--;
    if (n_bytes % 4 != 0)
        return error_set(err, NP_EINPUT, where, (int64_t)n_bytes,
                         "ids, or base64 of a .npy file, are expected: no base64, the "
                         "length is no multiple of 4");
    char *out = arena_push(values->arena, n_bytes / 4 * 3 + 1);
    if (!out) return error_nomem(err, "base64", n_bytes);
    uint32_t bits = 0;
    for (size_t i = 0; i < n_digits; i++) {
        int digit = base64_digit(digits[i]);
        if (digit < 0)
            return error_set(err, NP_EINPUT, where, (int64_t)i,
                             "ids, or base64 of a .npy file, are expected: not a character "
                             "of its alphabet");
        bits = bits << 6 | (uint32_t)digit;
        /* Digits 1, 2 and 3 of four complete a byte each. */
        if (i % 4 != 0) out[n_out++] = (char)(bits >> (6 - 2 * (i % 4)));
    }
    *bytes = out;
    *n_decoded = n_out;
    return NP_OK;
}

/* int64 to ids. */
static np_status take_cells(struct values *values, const char *where, const int64_t *cells,
                            struct candidates *out, np_error *err)
{
    size_t width = out->n_candidates, n = (out->n_rows ? out->n_rows : 1) * width;
    int32_t *list = arena_push_array(values->arena, n + 1, sizeof *list);
    if (!list) return error_nomem(err, "token ids", n * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        char path[MAX_PATH_BYTES];
        list[i] = (int32_t)cells[i];
        if (list[i] == cells[i]) continue;
        if (out->n_rows)
            snprintf(path, sizeof path, "%s[%zu][%zu]", where, i / width, i % width);
        else
            snprintf(path, sizeof path, "%s[%zu]", where, i);
        error_set(err, NP_EINPUT, path, NO_OFFSET, "a token id is a whole number below 2^31");
        return error_given(err, NP_EINPUT, "%lld", (long long)cells[i]);
    }
    out->ids = list;
    return NP_OK;
}

np_status values_from_npy(struct values *values, const char *where, const char *bytes,
                          size_t n_bytes, struct candidates *out, np_error *err)
{
    int64_t *cells = NULL;
    uint64_t shape[3];
    int n_dims;
    TRY(npy_parse_ints(bytes, n_bytes, most_cells(values), where, &cells, shape, &n_dims, err));
    np_status status;
    if (n_dims > 2) {
        status = error_set(err, NP_EINPUT, where, NO_OFFSET,
                           "%d dimensions; [K] and [rows, K] are allowed", n_dims);
    } else {
        out->n_rows = n_dims == 2 ? (size_t)shape[0] : 0;
        out->n_candidates = (size_t)shape[n_dims == 2];
        status = take_cells(values, where, cells, out, err);
    }
    mem_free(cells);
    return status;
}

static np_status from_base64(struct values *values, const char *where, const json_t *value,
                             struct candidates *out, np_error *err)
{
    char *bytes = NULL;
    size_t n_bytes = 0;
    TRY(base64_decode(values, where, value, &bytes, &n_bytes, err));
    return values_from_npy(values, where, bytes, n_bytes, out, err);
}

/* ---- ids ---------------------------------------------------------------------------------- */

static bool is_id(const struct values *values, const json_t *value, int32_t *id)
{
    int64_t number;
    if (!value_whole(values, value, &number) || number < INT32_MIN || number > INT32_MAX)
        return false;
    *id = (int32_t)number;
    return true;
}

static np_status list_of_ids(struct values *values, const char *where, const json_t *list,
                             int32_t *ids, np_error *err)
{
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, i);
        char path[MAX_PATH_BYTES];
        if (is_id(values, value, &ids[i])) continue;
        snprintf(path, sizeof path, "%s[%zu]", where, i);
        return value_wrong(path, AN_ID, value, err);
    }
    return NP_OK;
}

static np_status flat(struct values *values, const char *where, const json_t *value,
                      struct candidates *out, np_error *err)
{
    size_t n = json_array_size(value);
    int32_t *list = arena_push_array(values->arena, n + 1, sizeof *list);
    if (!list) return error_nomem(err, where, n * sizeof *list);
    *out = (struct candidates){.ids = list, .n_candidates = n};
    return list_of_ids(values, where, value, list, err);
}

np_status value_ids(struct values *values, const char *where, const json_t *value, np_ids *out,
                    np_error *err)
{
    struct candidates list;
    if (json_is_string(value)) {
        TRY(from_base64(values, where, value, &list, err));
        if (list.n_rows)
            return error_set(err, NP_EINPUT, where, NO_OFFSET,
                             "2 dimensions; one list of token ids is expected");
    } else if (json_is_array(value)) {
        TRY(flat(values, where, value, &list, err));
    } else {
        return value_wrong(where, "a list of token ids, or base64 of a .npy file", value, err);
    }
    *out = (np_ids){list.ids, list.n_candidates};
    return NP_OK;
}

/* The longest row. */
static np_status nested_width(const char *where, const json_t *rows, size_t *width, np_error *err)
{
    size_t n_rows = json_array_size(rows);
    *width = 0;
    for (size_t i = 0; i < n_rows; i++) {
        const json_t *row = json_array_get(rows, i);
        char path[MAX_PATH_BYTES];
        if (json_array_size(row) > *width) *width = json_array_size(row);
        if (json_is_array(row)) continue;
        snprintf(path, sizeof path, "%s[%zu]", where, i);
        return value_wrong(path, "a list of token ids, as the first row", row, err);
    }
    return *width ? NP_OK : error_set(err, NP_EINPUT, where, NO_OFFSET, "all rows are empty");
}

static np_status nested(struct values *values, const char *where, const json_t *rows,
                        struct candidates *out, np_error *err)
{
    size_t n_rows = json_array_size(rows), width, most = most_cells(values);
    TRY(nested_width(where, rows, &width, err));
    if (n_rows > most / width)
        return error_set(err, NP_ELIMIT, where, NO_OFFSET,
                         "%zu rows, padded to the longest of %zu ids, are more than %zu cells",
                         n_rows, width, most);
    int32_t *list = arena_push_array(values->arena, n_rows * width, sizeof *list);
    if (!list) return error_nomem(err, where, n_rows * width * sizeof *list);
    for (size_t i = 0; i < n_rows; i++) {
        const json_t *row = json_array_get(rows, i);
        char path[MAX_PATH_BYTES];
        snprintf(path, sizeof path, "%s[%zu]", where, i);
        TRY(list_of_ids(values, path, row, list + i * width, err));
        for (size_t k = json_array_size(row); k < width; k++) list[i * width + k] = -1;
    }
    *out = (struct candidates){list, width, n_rows};
    return NP_OK;
}

np_status value_candidates(struct values *values, const char *where, const json_t *value,
                           struct candidates *out, np_error *err)
{
    if (json_is_string(value)) return from_base64(values, where, value, out, err);
    if (!json_is_array(value))
        return value_wrong(where, "a list of ids, a list of lists, or base64 of a .npy file", value,
                           err);
    if (json_array_size(value) == 0)
        return error_set(err, NP_EINPUT, where, NO_OFFSET, "the list is empty");
    bool has_rows = json_is_array(json_array_get(value, 0));
    return (has_rows ? nested : flat)(values, where, value, out, err);
}
