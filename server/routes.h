/*
 * routes.h - the table of routes. Adding one: a row in routes.c, its fields and functions in a
 * route_*.c, declared below.
 */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "exchange.h"
#include "bodyfields.h"
#include "streaming.h"

enum {
    ROUTE_OPEN = 1,    /* needs no key */
    ROUTE_STRICT = 2,  /* an unknown field is an error */
    ROUTE_LOADING = 4, /* answers before there is a model */
    ROUTE_INLINE = 8,  /* answered at once by libmicrohttpd's thread: quick, and asks no engine */
    ROUTE_HIDDEN = 16, /* an alias: not in the documents */
    ROUTE_BARE = 32    /* its streams end without [DONE] */
};

struct route {
    const char *method, *path;
    unsigned flags;
    const struct field *const *fields; /* NULL: no body */
    /* ask -> requests; may leave n_requests 0: then `reply` is called at once. */
    np_status (*prepare)(struct exchange *exchange, np_error *err);
    /* results -> exchange->writer. An error becomes the answer. */
    np_status (*reply)(struct exchange *exchange, np_error *err);
    /* Writes the event of one part; NULL: cannot be streamed. */
    np_status (*event)(struct exchange *exchange, const struct heard *heard,
                       const struct part *part, np_error *err);
    const char *about;
};

extern const struct route routes[];
extern const size_t n_routes;

/* The row of a path; NULL and *allowed ("GET, POST", or "" where there is no such path). */
const struct route *route_find(const char *method, const char *path, char allowed[64]);
/* The path that was meant, perhaps in `near`; NULL: none is like it. */
const char *route_near(const char *path, char near[64]);

/* ---- route_*.c ------------------------------------------------------------------------------- */

extern const struct field *const generate_groups[];
np_status generate_prepare(struct exchange *exchange, np_error *err);
np_status generate_reply(struct exchange *exchange, np_error *err);
np_status generate_event(struct exchange *exchange, const struct heard *heard,
                         const struct part *part, np_error *err);

extern const struct field *const completions_groups[];
np_status completions_prepare(struct exchange *exchange, np_error *err);
np_status completions_reply(struct exchange *exchange, np_error *err);
np_status completions_event(struct exchange *exchange, const struct heard *heard,
                            const struct part *part, np_error *err);

extern const struct field *const chat_groups[];
np_status chat_prepare(struct exchange *exchange, np_error *err);
np_status chat_reply(struct exchange *exchange, np_error *err);
np_status chat_event(struct exchange *exchange, const struct heard *heard, const struct part *part,
                     np_error *err);

extern const struct field *const tokenize_groups[];
np_status tokenize_prepare(struct exchange *exchange, np_error *err);
np_status tokenize_reply(struct exchange *exchange, np_error *err);
extern const struct field *const detokenize_groups[];
np_status detokenize_prepare(struct exchange *exchange, np_error *err);
np_status detokenize_reply(struct exchange *exchange, np_error *err);
np_status tokenizer_info_reply(struct exchange *exchange, np_error *err);

extern const struct field *const models_groups[];
np_status health_reply(struct exchange *exchange, np_error *err);
np_status version_reply(struct exchange *exchange, np_error *err);
np_status models_reply(struct exchange *exchange, np_error *err);
np_status metrics_reply(struct exchange *exchange, np_error *err);
np_status openapi_reply(struct exchange *exchange, np_error *err);
np_status docs_reply(struct exchange *exchange, np_error *err);

extern const struct field *const sequences_groups[];
np_status sequences_prepare(struct exchange *exchange, np_error *err);
np_status sequences_reply(struct exchange *exchange, np_error *err);
np_status world_size_reply(struct exchange *exchange, np_error *err);

extern const struct field *const sglang_groups[];
np_status sglang_prepare(struct exchange *exchange, np_error *err);
np_status sglang_reply(struct exchange *exchange, np_error *err);
np_status sglang_event(struct exchange *exchange, const struct heard *heard,
                       const struct part *part, np_error *err);

extern const struct field *const llamacpp_groups[];
np_status llamacpp_prepare(struct exchange *exchange, np_error *err);
np_status llamacpp_reply(struct exchange *exchange, np_error *err);
np_status llamacpp_event(struct exchange *exchange, const struct heard *heard,
                         const struct part *part, np_error *err);

extern const struct field *const scoring_groups[];
np_status scoring_prepare(struct exchange *exchange, np_error *err);
np_status scoring_reply(struct exchange *exchange, np_error *err);

extern const struct field *const own_score_groups[];
np_status own_score_prepare(struct exchange *exchange, np_error *err);
np_status own_score_reply(struct exchange *exchange, np_error *err);

extern const struct field *const own_gather_groups[];
np_status own_gather_prepare(struct exchange *exchange, np_error *err);
np_status own_gather_reply(struct exchange *exchange, np_error *err);

extern const struct field *const own_choose_groups[];
np_status own_choose_prepare(struct exchange *exchange, np_error *err);
np_status own_choose_reply(struct exchange *exchange, np_error *err);

extern const struct field *const own_perplexity_groups[];
np_status own_perplexity_prepare(struct exchange *exchange, np_error *err);
np_status own_perplexity_reply(struct exchange *exchange, np_error *err);

extern const struct field *const reranker_groups[];
np_status reranker_prepare(struct exchange *exchange, np_error *err);

#endif
