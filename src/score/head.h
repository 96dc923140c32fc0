/*
 * head.h - from hidden rows to the answers of their plans, without a row of logits in memory.
 *
 * The head matrix is swept panel by panel (64 ids): a tile of logits [rows][64], of which are taken the
 * log-sum-exp part, the wanted ids, the top list and the count of tokens before the true one; then the tile
 * is thrown away. Segments of 4,096 ids are independent and combined in order, so no thread count changes
 * a bit. Per row: 2 KB at most beyond its answers.
 */
#ifndef SCORE_HEAD_H
#define SCORE_HEAD_H

#include "score/plan.h"
#include "tensor/linear.h"

#define SEGMENT 4096

/* The log-sum-exp of a row: logprob(l) = (l - m) - log_S, in f64. */
struct row_lse { double m, log_S, entropy; };

/* Where one row's answers go; pointers NULL where nothing is wanted. */
struct head_row {
    const struct plan *plan;
    const float *hidden;          /* [dim] */
    size_t j;                     /* row of the plan: causal row start + j */
    int32_t target;               /* the true next token, or -1 */
    float *logprob, *entropy, *mass, *tail;
    int32_t *rank;
    int32_t *top_ids;             /* [n_top] */
    float *top_logprobs;
    float *scores;                /* [n_candidates] */
};

/* Work space for up to max_rows rows at once with up to max_top top tokens each. */
struct head_space;
np_status head_space_open(size_t n_vocab, size_t dim, size_t max_rows, size_t max_top, int n_threads,
                          struct head_space **out, np_error *err);
void head_space_close(struct head_space *space);
size_t head_space_bytes(size_t n_vocab, size_t dim, size_t max_rows, size_t max_top, int n_threads);

/* Answers n_rows rows. A logit that is NaN (or +inf) fails that row: bad[i] = its id (else -1). */
void head_answer(struct pool *pool, const struct kernels *kernels, const struct matrix *head,
                 struct head_space *space, const struct head_row *rows, size_t n_rows, int32_t *bad);

/* Pure functions, tested without a model. */
struct lse_part lse_combine(struct lse_part a, struct lse_part b); /* a before b */
struct row_lse lse_finish(struct lse_part part);
float logprob_of(struct row_lse lse, float logit);                 /* one rounding to f32 */
float log_remaining(const float *logprobs, const int32_t *ids, size_t n); /* distinct ids, ascending, f64 log1p(-sum) */

/* The k first of the order "larger logit first, ties by lower id". */
struct topk { float *logits; int32_t *ids; size_t n, k; };
void topk_panel(struct topk *topk, const float *logits, size_t n, int32_t first_id, float panel_max);
void topk_sort(struct topk *topk);

#endif
