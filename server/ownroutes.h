/*
 * ownroutes.h - what the routes under /nepit/v1/ share. They are the command's words: the same
 * names, the same numbers. An unknown field is an error there.
 */
#ifndef SERVER_OWNROUTES_H
#define SERVER_OWNROUTES_H

#include "ask_fields.h"
#include "logprobs.h"
#include "replies.h"
#include "routes.h"

extern const struct field own_text_fields[];    /* how a text becomes ids */
extern const struct field own_numbers_fields[]; /* what its numbers are */

/* At least one id, all in the vocabulary, no more than the context holds; errors name `where`. */
np_status own_check_ids(const struct exchange *exchange, const char *where, np_ids ids,
                        np_error *err);
/* Whether BOS stands before a text that is a part of a sequence: never EOS behind it. */
np_status own_bos(const struct exchange *exchange, bool *bos, np_error *err);
/* "bos" or "none". */
void own_tell_conditioning(struct exchange *exchange, const int32_t *ids, size_t n);
/* A number of float64; null where there is none. */
void own_tell_double(struct json *json, const char *key, double value);
void own_tell_count(struct json *json, const char *key, size_t count);

/* -inf as JSON has it, so that sums of told values are the told sums. */
double own_value(float logprob);

#endif
