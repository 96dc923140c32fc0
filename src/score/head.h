/*
 * head.h - from hidden rows to the answers of their plans, without a row of logits in memory.
 *
 * The head matrix is swept panel by panel (64 ids): a tile of logits [rows][64], of which are taken
 * the log-sum-exp part, the wanted ids, the top list and the count of tokens before the true one;
 * then the tile is thrown away. Segments of 4,096 ids are independent and combined in order, so no
 * thread count changes a bit. Per row: 2 KB at most beyond its answers, up to a fixed number of
 * rows per thread.
 *
 * Many rows are divided among the threads, each sweeping the whole vocabulary; for few rows the
 * segments are divided, and the threads' top lists are merged by their total order.
 */
#ifndef SCORE_HEAD_H
#define SCORE_HEAD_H

#include "score/plan.h"
#include "tensor/linear.h"

#define SEGMENT 4096

/* The log-sum-exp of a row: logprob(l) = (l - m) - log_S, in f64. */
struct row_lse {
    double m, log_S, entropy;
};

/* Where one row's answers go; pointers NULL where nothing is wanted. */
struct head_row {
    const struct plan *plan;
    const float *hidden; /* [dim] */
    size_t j;            /* row of the plan: causal row start + j */
    int32_t target;      /* the true next token, or -1: logprob and rank stay untouched */
    float *logprob, *entropy, *mass, *tail;
    int32_t *rank;
    int32_t *top_ids; /* [n_top]; both top arrays or neither, and both for mass */
    float *top_logprobs;
    float *scores; /* [n_candidates]; needed for tail */

    /* The row's log-sum-exp at the plan's temperature, or NULL. `known`: *lse holds the bits that
     * an earlier call gave for this hidden row and temperature, its entropy among them where
     * known_entropy; a row that then wants no rank, top or mass is answered without a sweep. What
     * is not known is written, the entropy only where `entropy` is wanted. Rows of a call share an
     * lse only where nothing is written. */
    struct row_lse *lse;
    bool known, known_entropy;
};

/* Work space for head_answer, of a fixed size per thread (about 1 MB). max_rows and max_top (0: not
 * known) are what a call usually brings; more is allowed and only costs speed. */
struct head_space;
np_status head_space_open(size_t n_vocab, size_t dim, size_t max_rows, size_t max_top,
                          int n_threads, struct head_space **out, np_error *err);
void head_space_close(struct head_space *space);
size_t head_space_bytes(size_t n_vocab, size_t dim, size_t max_rows, size_t max_top, int n_threads);

/* Answers n_rows rows; allocates nothing. Columns of `head` from n_vocab on are never seen; its
 * bias is added. A logit that is not finite (after the division by the temperature) fails its row:
 * bad[i] = the lowest such id (of those computed, where the vocabulary is not swept), and what the
 * row's answers hold is undefined; else bad[i] = -1. In the mode of raw logits, the logits are
 * those that the softmax takes: divided by the score temperature too. */
void head_answer(struct pool *pool, const struct kernels *kernels, const struct matrix *head,
                 struct head_space *space, const struct head_row *rows, size_t n_rows,
                 int32_t *bad);

/* The logits of the rows' hidden rows, [n_rows][ld], ld >= n_vocab: those of the sweep, bias added
 * and not yet divided by a temperature. Of a row, only `hidden` is read. */
void head_logits(struct pool *pool, const struct kernels *kernels, const struct matrix *head,
                 struct head_space *space, const struct head_row *rows, size_t n_rows,
                 float *logits, size_t ld);

/* head_answer for rows whose logits head_logits gave: the same answers, bit for bit. `hidden` is
 * not read. */
void head_answer_logits(struct pool *pool, const struct kernels *kernels, struct head_space *space,
                        const struct head_row *rows, size_t n_rows, const float *logits, size_t ld,
                        int32_t *bad);

/* Pure functions, tested without a model. */
struct lse_part lse_combine(struct lse_part a, struct lse_part b); /* a before b */
struct row_lse lse_finish(struct lse_part part);
double logprob64_of(struct row_lse lse, float logit);
float logprob_of(struct row_lse lse, float logit); /* one rounding to f32 */
double prob_of(struct row_lse lse, float logit);

/* log(1 - sum) of the probabilities of n_distinct tokens, summed in f64 by ascending id; -inf where
 * the sum reaches 1 or the tokens are the whole vocabulary. */
double log_remaining(double sum, size_t n_distinct, size_t n_vocab);

/* The k first of the order "larger logit first, ties by lower id". The arrays have k places; start
 * with n = 0. Panels come in ascending order of ids, pushes in any order; afterwards topk_sort puts
 * the list into its order, topk_sort_ids into ascending ids (then no more pushes). */
struct topk {
    float *logits;
    int32_t *ids;
    size_t n, k;
};
void topk_panel(struct topk *topk, const float *logits, size_t n, int32_t first_id,
                float panel_max);
void topk_push(struct topk *topk, float logit, int32_t id);
void topk_sort(struct topk *topk);
void topk_sort_ids(struct topk *topk);

#endif
