/*
 * workspace.h - the buffers of a step, shared by forward.c and attention.c.
 */
#ifndef MODEL_WORKSPACE_H
#define MODEL_WORKSPACE_H

#include "model/model.h"

#define TILE_POSITIONS 16 /* positions of a query tile, at most */
/* Scores of a query tile. Fewer would stay in a core's own cache, but at 8,192 keys each page would
 * be fetched for too few rows. */
#define SCORE_FLOATS (192u << 10)

/* Consecutive positions of a run whose queries stand in consecutive rows of `qkv`. */
struct span {
    struct run *run;
    size_t position, n_rows, row;
};

struct workspace {
    size_t max_rows, max_tokens;
    int n_threads;
    double *x;      /* [max_rows][dim] the residual stream: its sums would round too often in f32 */
    float *normed;  /* [max_rows][dim] */
    float *delta;   /* [max_rows][dim] what a block adds to x */
    float *qkv;     /* [max_rows][q + 2 kv] */
    float *mixed;   /* [max_rows][q] */
    float *up;      /* [max_rows][ffn or 2 ffn] */
    float *act;     /* [max_rows][ffn] */
    float *operand; /* [max_rows][the widest of dim, q and ffn] what goes through a linear layer */
    float *cos, *sin; /* [max_rows][head_dim / 2] */
    float *scratch;   /* [n_threads][scratch_floats], attention.c */
    size_t scratch_floats;
    const float **pages; /* [n_threads][max_tokens / 64 + 1] */
    size_t *position;    /* [max_rows] */
    struct run **run;    /* [max_rows] the run of each row */
    struct span *spans;  /* [max_rows] */
    struct arena arena;
};

/* One attention: every span's queries over the keys of its run up to themselves; results to
 * `mixed`. */
void attention(const struct model *model, struct workspace *workspace, struct pool *pool,
               size_t layer, size_t n_spans);

/* Floats of a thread's scratch for sequences of max_tokens. */
size_t attention_scratch_floats(const struct model_config *config, size_t max_tokens);

#endif
