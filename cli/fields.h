/*
 * fields.h - one field of a request's JSON object: fields.c has the table and the plain values,
 * fields_drawn.c the lists that steer what is generated.
 */
#ifndef CLI_FIELDS_H
#define CLI_FIELDS_H

#include "requests.h"

#include <jansson.h>

struct reading {
    struct question *question;
    struct arena *arena;
    unsigned command;
    bool ints_are_real; /* an integer beyond 64 bits is in the line: all were read as double */
};

typedef np_status read_fn(struct reading *reading, const char *name, json_t *value, np_error *err);

/* "must be ...", with the value as given. */
np_status field_wrong(const char *where, const char *must_be, const json_t *value, np_error *err);
bool field_whole(const struct reading *reading, const json_t *value, int64_t *number);
np_status field_ids(struct reading *reading, const char *name, json_t *value, const int32_t **ids,
                    size_t *n_ids, np_error *err);

read_fn field_seed, field_stop, field_stop_token_ids, field_allowed_token_ids, field_logit_bias,
    field_bad_words, field_cache_salt;

#endif
