/*
 * values.h - values of a request's JSON, as every door of nepit reads them: the server's bodies and
 * the command's lines.
 *
 * What is read is copied to the arena and stays when the JSON is gone. An error names the value by
 * its path (`where`, then "[3][1]" or ".key"), what it must be and what was given. Whether ids are
 * in the vocabulary, and how many of anything there may be, the library checks with the model.
 */
#ifndef SERVER_VALUES_H
#define SERVER_VALUES_H

#include "base/arena.h"

#include <jansson.h>
#include <stdbool.h>

struct values {
    struct arena *arena;
    bool ints_are_real; /* an integer beyond 64 bits is in the text: all were read as double */
    size_t max_cells;   /* of candidates, with padding: NP_ELIMIT above; 0: 2^28 */
};

/* Parses a whole JSON text of any type. Duplicate keys are refused, NUL in texts is kept; the depth
 * (lists and objects within each other) is checked before anything is built. *out is ended by
 * json_decref. NP_EINPUT with the byte offset. */
np_status values_parse(struct values *values, const char *bytes, size_t n_bytes, const char *where,
                       int max_depth, json_t **out, np_error *err);

/* NP_EINPUT: "must be ...", with the value as given. */
np_status value_wrong(const char *where, const char *must_be, const json_t *value, np_error *err);

/* A whole number of 64 bits; where ints_are_real, one that a double holds exactly. */
bool value_whole(const struct values *values, const json_t *value, int64_t *number);

/* An integer of at least -1 (by the contract: a random one). */
np_status value_seed(const struct values *values, const char *where, const json_t *value,
                     int64_t *seed, np_error *err);

/* A list of token ids, or base64 of a .npy of one dimension. It may be empty. */
np_status value_ids(struct values *values, const char *where, const json_t *value, np_ids *out,
                    np_error *err);

/* A zero byte stands behind each. */
np_status value_string(struct values *values, const char *where, const json_t *value,
                       np_string *out, np_error *err);
/* A text, or a list of texts. */
np_status value_strings(struct values *values, const char *where, const json_t *value,
                        const np_string **out, size_t *n_out, np_error *err);

struct candidates {
    const int32_t *ids;          /* [n_candidates], or [n_rows][n_candidates] */
    size_t n_candidates, n_rows; /* n_rows 0: the same for every row */
};
/* A list of ids, a list of such lists (the longest gives the width, the others are padded with -1),
 * or base64 of a .npy of one or two dimensions. */
np_status value_candidates(struct values *values, const char *where, const json_t *value,
                           struct candidates *out, np_error *err);
/* The bytes of a .npy file. */
np_status values_from_npy(struct values *values, const char *where, const char *bytes,
                          size_t n_bytes, struct candidates *out, np_error *err);

/* {"token id": bias, ...} */
np_status value_biases(struct values *values, const char *where, const json_t *value,
                       const np_bias **out, size_t *n_out, np_error *err);

#endif
