/*
 * openapi.h - the documents that are made of the tables: /openapi.json and /docs. What they say of
 * requests stands in the routes' rows and their fields; what of answers, in openapi_answers.c.
 */
#ifndef SERVER_OPENAPI_H
#define SERVER_OPENAPI_H

#include "base/json.h"

/* Shapes are written as people write them:
 *
 *   {count: count, tokens: [count], texts?: [text | null]}     an object; ? may be missing
 *   <number>                                                   an object with any keys
 *   'stop' | 'length'                                          constants
 *   text, flag, number, whole, count (whole, at least 0), null, any; a Name is another shape
 */
struct answer_shape {
    const char *path; /* of the route, or the Name */
    const char *shape;
    const char *about; /* NULL allowed */
    bool npy;          /* a lone prompt's scores can be had as application/octet-stream */
};
extern const struct answer_shape answer_shapes[], named_shapes[];
extern const size_t n_answer_shapes, n_named_shapes;

/* The row of a path; NULL: nothing is known of its answer. */
const struct answer_shape *answer_shape_of(const char *path);

/* A shape as a JSON Schema. */
void put_shape(struct json *json, const char *shape);

#endif
