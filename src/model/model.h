/*
 * model.h - one forward pass: ids and pages in, keys, values and wanted final hidden rows into
 * them.
 *
 * A step is a flat list of rows, cut into runs: a run is consecutive tokens of one sequence, from
 * position `first` on, whose earlier tokens are in the sequence's pages already, or are written by
 * another run of the same step: in each layer all keys and values are stored before any row
 * attends. Runs are ragged; there is no padding. Every row gets the same bits in any step, any
 * company and any cut. A step allocates nothing: its work space was sized when it was opened.
 *
 * Adding an architecture: one row of the table in arch.c (and, where its arithmetic is new, the
 * lines in forward.c that the row switches on), one class in tools/oracle, one golden.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/arena.h"
#include "format/modelfile.h"
#include "model/kv.h"
#include "tensor/linear.h"

#include <stdatomic.h>

#define MODEL_MAX_LAYERS 512
#define NUMERICS 1 /* version of the arithmetic: a changed bit of any answer is a new one */

enum norm_kind { NORM_RMS, NORM_LAYER };
enum ffn_kind { FFN_SILU_GATED, FFN_GELU_TANH };
enum rope_kind { ROPE_NONE, ROPE_PLAIN };

struct model_config {
    const char *architecture;
    size_t n_layers, dim, n_heads, n_kv_heads, head_dim, ffn_dim, n_vocab, n_context;
    enum norm_kind norm;
    enum ffn_kind ffn;
    enum rope_kind rope;
    double norm_eps, rope_theta;
    bool head_tied;
    bool learned_positions;
    size_t window; /* keys that a row of a windowed layer sees, its own included; 0: none is */
    bool windowed[MODEL_MAX_LAYERS];
};
/* Window of a layer; 0: a row sees every key up to its own. */
static inline size_t model_window(const struct model_config *config, size_t layer)
{
    return config->windowed[layer] ? config->window : 0;
}

struct layer {
    float *norm1_gain, *norm1_bias, *norm2_gain,
        *norm2_bias;      /* [dim]; biases NULL where there are none */
    struct matrix qkv[3]; /* q heads, k heads, v heads; or all in the first (N = 0: not there) */
    struct matrix out;
    struct matrix up[2]; /* gate, up; or the first alone */
    struct matrix down;
};

struct model {
    struct model_config config;
    struct layer *layers;
    struct matrix embedding;      /* [n_vocab, dim]; the head too when tied */
    struct matrix head;           /* N = 0 when tied */
    float *positions;             /* [n_context][dim] or NULL */
    float *norm_gain, *norm_bias; /* final norm */
    float *inv_freq;              /* [head_dim/2] */
    const struct kernels *kernels;
    enum profile profile;
    bool rounded;       /* profile bf16, and some matrix is stored in another type */
    struct arena arena; /* all vectors */
    uint8_t *panels;    /* of all matrices */
    uint64_t panel_bytes, n_parameters, weight_bytes;
    struct kv_shape kv;
};

/* Reads the settings; refuses by name what it does not know. */
np_status model_configure(const struct modelfile *file, struct model_config *out, np_error *err);
/* What the weights will take, packed, before any is read. Every tensor is found and checked, and
 * whether the profile suits the types (NP_EINPUT). */
np_status model_weight_bytes(const struct modelfile *file, const struct model_config *config,
                             enum profile profile, uint64_t *n_bytes, np_error *err);

np_status model_load(const struct modelfile *file, const struct model_config *config,
                     enum profile profile, const struct kernels *kernels, struct pool *pool,
                     void (*progress)(void *user, size_t done, size_t total), void *progress_user,
                     struct model **out, np_error *err);
void model_free(struct model *model);
/* A hash of all that its hidden rows depend on, except for NUMERICS. */
np_status model_fingerprint(const struct model *model, uint64_t out[2], np_error *err);
static inline const struct matrix *model_head(const struct model *model)
{
    return model->config.head_tied ? &model->embedding : &model->head;
}

struct run {
    float *const *pages;  /* of its sequence, from position 0 on: [kv_pages(first + n_rows)] */
    size_t first, n_rows; /* positions [first, first + n_rows) */
    size_t row;           /* index of its first row in the step */
    size_t bad;           /* out: first position whose key or value is not finite, or SIZE_MAX */
};

/* Tokens [begin, end) of a page that another page holds too: in each layer, once all keys and
 * values of the step are stored, and in the order of the list. */
struct page_copy {
    float *from, *to;
    size_t begin, end;
};

struct step {
    const int32_t *ids; /* [n_rows] */
    const bool *wanted; /* [n_rows] whose final hidden row is wanted */
    struct run *runs;
    const struct page_copy *copies;
    size_t n_runs, n_rows, n_copies;
};

/* Work space for steps of up to max_rows rows and sequences of up to max_tokens. */
struct workspace;
np_status workspace_open(const struct model *model, size_t max_rows, size_t max_tokens,
                         int n_threads, struct workspace **out, np_error *err);
void workspace_close(struct workspace *workspace);
size_t workspace_bytes(const struct model_config *config, size_t max_rows, size_t max_tokens,
                       int n_threads);

/* Runs a step: writes the keys and values of all its rows and, after the final norm, the hidden
 * rows of the wanted ones into the pages. *cancel is polled per layer (NP_ECANCELLED: then the
 * pages hold anything finite in these columns). A hidden value that is not finite is left for the
 * head to report. */
np_status model_forward(const struct model *model, struct workspace *workspace, struct pool *pool,
                        const struct step *step, atomic_int *cancel, np_error *err);

#endif
