/*
 * fields.h - one field of a request's JSON object: fields.c has the table and the plain values,
 * fields_drawn.c the lists that steer what is generated.
 */
#ifndef CLI_FIELDS_H
#define CLI_FIELDS_H

#include "requests.h"
#include "server/values.h"

struct reading {
    struct values values;
    struct question *question;
    unsigned command;
};

typedef np_status read_fn(struct reading *reading, const char *name, json_t *value, np_error *err);

/* A list alone: a text in its place is a text. */
np_status field_ids(struct reading *reading, const char *name, json_t *value, const int32_t **ids,
                    size_t *n_ids, np_error *err);

read_fn field_seed, field_stop, field_stop_token_ids, field_allowed_token_ids, field_logit_bias,
    field_bad_words, field_cache_salt;

#endif
