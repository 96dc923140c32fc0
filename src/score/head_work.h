/*
 * head_work.h - the inside of the head, shared by head.c (work space, the sweep, who does what),
 * head_rows.c (what becomes of one row) and pick.c (rows whose log-sum-exp is known).
 */
#ifndef SCORE_HEAD_WORK_H
#define SCORE_HEAD_WORK_H

#include "score/head.h"

#define BLOCK_ROWS 128 /* rows of one sweep: what a panel of weights is read for */
#define GATHER_ROWS 48 /* rows packed for one tile */
#define PASS_ROWS 1024 /* rows with candidates of their own that go through the tiles together */

/* What a thread has gathered of one row, in its segments or tiles. */
struct row_state {
    const struct head_row *row;
    const struct wanted_id *wanted, *wanted_end; /* the next wanted id, and the end of the list */
    struct topk top;
    size_t n_before; /* tokens before the target so far */
    float target_logit;
    int32_t bad;
    bool target_ahead; /* in a pass over tiles: its tile is still to come */
};

struct worker {
    float *operand;    /* of block_rows rows */
    float *gathered;   /* of gather_rows rows */
    float *tile;       /* [block_rows][PANEL] */
    float *top_logits; /* [top_entries] */
    int32_t *top_ids;
    struct lse_part *parts;   /* [block_rows][n_segments] */
    struct row_state *states; /* [pass_rows] */
    uint16_t *waiting;        /* [n_tiles] pick.c */
    uint16_t *behind;         /* [pass_rows] pick.c */
};

struct sizes {
    size_t n_vocab, dim, n_segments, n_tiles, block_rows, gather_rows, pass_rows, top_entries;
    size_t n_bytes;
    int n_threads;
};

struct head_space {
    struct sizes sizes;
    struct worker workers[];
};

/* One parallel region, as the threads see it: over n rows of a kind, from rows[begin] on. */
struct task {
    const struct kernels *kernels;
    const struct matrix *head;
    struct head_space *space;
    const struct head_row *rows; /* of the call */
    int32_t *bad;
    size_t begin, n;
    int n_threads;      /* that take part */
    const float *given; /* [n][ld] logits in memory */
    float *wanted;      /* [n][ld] logits to be put there */
    size_t ld;
};

/* Rows as an operand; the logits of ids [id, id + n_cols) of one panel, id a multiple of 16, to
 * y [n_rows][ldy], bias added. */
void head_pack(const struct task *task, size_t n_rows, const float *const *hidden, float *operand);
void head_columns(const struct task *task, size_t id, size_t n_cols, size_t n_rows,
                  const float *operand, float *y, size_t ldy);

/* ---- head_rows.c ---- */

/* Whether a row needs no sweep; and where the n-th row (not) of that kind ends, from `begin` on. */
bool row_is_known(const struct head_row *row);
size_t rows_skip(const struct task *task, size_t n, bool known);
bool row_wants_target(const struct head_row *row);
struct topk row_top(const struct head_row *row); /* the list in the answer itself */

/* Nothing gathered yet; ids below first_id are not looked for. */
void row_begin(const struct head_row *row, struct row_state *state, size_t first_id);
/* Logits of ids [first_id, first_id + n), in ascending panels: divided by the temperature in place,
 * and taken to the parts of the row. */
void row_take(const struct task *task, struct row_state *state, struct lse_part *parts,
              float *logits, size_t n, size_t first_id);
/* Of n logits, in ascending order of ids: stores the wanted ones. Returns the lowest id of those
 * whose logit is not finite, or -1. */
int32_t row_cells(struct row_state *state, const float *logits, size_t n, size_t first_id);
/* Answers a row and says whether it is bad: from its parts, or its log-sum-exp. */
void row_finish(const struct task *task, struct row_state *state, const struct lse_part *parts);
void row_answer(const struct task *task, struct row_state *state, struct row_lse lse);

/* ---- pick.c: the known rows of a task ---- */
void pick_rows(void *ctx, int thread, int n_threads);

#endif
