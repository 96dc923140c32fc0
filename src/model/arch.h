/*
 * arch.h - the table of architectures: what a model file calls things and which arithmetic it
 * means.
 *
 * One row of `architectures` in arch.c is one architecture: its settings (names in config.json and
 * in GGUF) and its weights (names, shapes, where they go). Every setting of a file must be known:
 * it fills a field, must have a given value, or is known not to change a number. Every tensor must
 * be known too.
 */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H

#include "model/model.h"

/* Sizes that shapes are made of. */
enum extent { X_ONE, X_DIM, X_Q, X_KV, X_QKV, X_FFN, X_VOCAB, X_CONTEXT, X_COUNT };
void extents_of(const struct model_config *config, size_t out[X_COUNT]);

enum weight_kind { WEIGHT_MATRIX, WEIGHT_BIAS, WEIGHT_VECTOR };

#define WEIGHT_OPTIONAL 1u   /* absent: no bias, or a tied head */
#define WEIGHT_TRANSPOSED 2u /* safetensors hold it [in, out] (GPT-2's Conv1D) */
#define WEIGHT_PERMUTED 4u   /* GGUF holds the rows of each head as (0, half, 1, half+1, ...) */

/* A tensor [rows, cols] (a vector: [rows]) and its place: in struct model, or in struct layer when
 * its name holds %zu. A bias goes to the matrix at `place`. */
struct weight {
    const char *hf, *gguf; /* NULL: does not exist there */
    enum weight_kind kind;
    size_t place;
    enum extent rows, cols;
    unsigned flags;
};

struct setting_rule;
struct architecture {
    const char *name;             /* general.architecture in GGUF, model_type in config.json */
    const char *hf_prefix;        /* what checkpoints may put before every name, or "" */
    struct model_config defaults; /* kinds, and defaults of absent settings */
    const struct setting_rule *hf, *gguf; /* settings.h */
    const struct weight *weights; /* of the model; ends with kind WEIGHT_MATRIX, hf and gguf NULL */
    const struct weight *layer_weights;
    /* Which layers see a window, from settings that are read together; NULL: none ever does. */
    np_status (*windows)(const struct modelfile *file, struct model_config *config, np_error *err);
};

const struct architecture *architecture_of(const struct modelfile *file, np_error *err);

/* The tensor of a weight in this file, or NULL. layer is used where the name holds %zu. */
const struct tensor *weight_find(const struct modelfile *file, const struct architecture *arch,
                                 const struct weight *weight, size_t layer);

#endif
