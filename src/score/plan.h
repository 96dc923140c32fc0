/*
 * plan.h - a request as rows: which rows of a sequence are needed, and what is kept of each.
 *
 * For P tokens: row r is the distribution after token r. Rows wanted: [start, P-1), and P-1 with
 * `next` whatever the start. A start past the end leaves no rows for candidates and is an error for
 * token scores. Per-row candidates must have exactly that many rows, the next row counted, so a
 * start past the end is an error for them. A `top` above the vocabulary is cut to it. A limit on
 * the size of an answer is the caller's.
 */
#ifndef SCORE_PLAN_H
#define SCORE_PLAN_H

#include "base/arena.h"
#include <stdbool.h>

/* One id that a row wants, and the cell of its result: sorted by id, so that a sweep over the
 * vocabulary meets them in order. */
struct wanted_id {
    int32_t id;
    int32_t cell;
};

struct plan {
    size_t n_tokens;
    const int32_t *token_ids;
    size_t start, n_rows; /* rows [start, start + n_rows) */
    size_t n_scored;      /* rows that have a following token */
    unsigned want;        /* NP_WANT_* */
    size_t n_top;         /* cut to the vocabulary */
    size_t n_candidates;
    bool logits; /* NP_RAW_LOGITS */
    float temperature;
    const struct wanted_id *wanted; /* flat: [n_candidates]; per row: [n_rows][n_candidates] */
    bool per_row;
    const int32_t *candidate_ids; /* as given, same layout */
};

/* Checks everything that concerns ids, rows and candidates and builds the plan in `arena`. Error
 * texts name the field ("candidate_ids[3][1]"), what was given and what is allowed. The request's
 * arrays and token_ids are borrowed: they must outlive the plan. Errors: NP_EINPUT; NP_ELIMIT (the
 * context, sizes that overflow); NP_ENOMEM (also when the arena's ceiling is reached). */
np_status plan_init(struct plan *plan, const np_request *request, const int32_t *token_ids,
                    size_t n_tokens, size_t n_vocab, size_t n_context, struct arena *arena,
                    np_error *err);

#endif
