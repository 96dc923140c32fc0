/*
 * configure.c - from a file's settings to a model_config that is whole: defaults filled, the
 * vocabulary taken from the embedding itself, and the head found or known to be tied. After it,
 * every size of the model is known and checked, and nothing has been read yet.
 */
#include "model/settings.h"

#include <stdio.h>

const struct tensor *weight_find(const struct modelfile *file, const struct architecture *arch,
                                 const struct weight *weight, size_t layer)
{
    bool gguf = modelfile_container(file) == CONTAINER_GGUF;
    const char *pattern = gguf ? weight->gguf : weight->hf;
    char name[MODELFILE_MAX_NAME_BYTES], prefixed[MODELFILE_MAX_NAME_BYTES];
    const char *hole = strstr(pattern, "%zu");
    if (hole)
        snprintf(name, sizeof name, "%.*s%zu%s", (int)(hole - pattern), pattern, layer, hole + 3);
    else
        snprintf(name, sizeof name, "%s", pattern);
    const struct tensor *tensor = modelfile_find(file, name);
    if (tensor || gguf || !arch->hf_prefix[0]) return tensor;
    snprintf(prefixed, sizeof prefixed, "%s%s", arch->hf_prefix, name);
    return modelfile_find(file, prefixed);
}

static const struct weight *weight_at(const struct architecture *arch, size_t place)
{
    const struct weight *weight = arch->weights;
    while (weight->place != place) weight++;
    return weight;
}

static np_status size_defaults(struct model_config *config, np_error *err)
{
    if (!config->n_kv_heads) config->n_kv_heads = config->n_heads;
    if (!config->ffn_dim) config->ffn_dim = 4 * config->dim;
    if (!config->head_dim) {
        if (config->dim % config->n_heads != 0)
            return error_set(err, NP_EFORMAT, "head_dim", NO_OFFSET,
                             "%zu dimensions are no multiple of %zu heads", config->dim,
                             config->n_heads);
        config->head_dim = config->dim / config->n_heads;
    }
    if (config->n_heads % config->n_kv_heads != 0)
        return error_set(err, NP_EFORMAT, "n_kv_heads", NO_OFFSET,
                         "%zu heads are no multiple of %zu key/value heads", config->n_heads,
                         config->n_kv_heads);
    if (config->rope != ROPE_NONE && config->head_dim % 2 != 0)
        return error_set(err, NP_EFORMAT, "head_dim", NO_OFFSET,
                         "a rotated head must have an even dimension, not %zu", config->head_dim);
    if (config->n_layers > MODEL_MAX_LAYERS)
        return error_set(err, NP_ELIMIT, "n_layers", NO_OFFSET,
                         "%zu layers; at most %d are allowed", config->n_layers, MODEL_MAX_LAYERS);
    if (config->dim > 1u << 20 || config->ffn_dim > 1u << 22 || config->n_heads > 1u << 16 ||
        config->head_dim > 1u << 16)
        return error_set(
            err, NP_ELIMIT, config->architecture, NO_OFFSET,
            "a size of the model is beyond every limit (dimension %zu, feed-forward %zu, "
            "%zu heads of %zu)",
            config->dim, config->ffn_dim, config->n_heads, config->head_dim);
    return NP_OK;
}

/* The embedding's own rows are the vocabulary; a setting that says otherwise is an error. */
static np_status find_vocabulary(const struct modelfile *file, const struct architecture *arch,
                                 struct model_config *config, np_error *err)
{
    const struct weight *weight = weight_at(arch, offsetof(struct model, embedding));
    const struct tensor *embedding = weight_find(file, arch, weight, 0);
    bool gguf = modelfile_container(file) == CONTAINER_GGUF;
    if (!embedding)
        return error_set(err, NP_EFORMAT, gguf ? weight->gguf : weight->hf, NO_OFFSET,
                         "the tensor is missing");
    if (embedding->n_dims != 2 || embedding->shape[0] < 1 || embedding->shape[0] > INT32_MAX)
        return error_set(err, NP_EFORMAT, embedding->name, NO_OFFSET,
                         "the embedding must have two dimensions, [vocabulary, %zu]", config->dim);
    if (config->n_vocab && config->n_vocab != embedding->shape[0])
        return error_set(err, NP_EFORMAT, embedding->name, NO_OFFSET,
                         "the embedding has %llu rows, the setting of the vocabulary says %zu",
                         (unsigned long long)embedding->shape[0], config->n_vocab);
    config->n_vocab = (size_t)embedding->shape[0];
    return NP_OK;
}

/* A head in the file is used, whatever the flag says: it is what the file's maker saved. */
static np_status find_head(const struct modelfile *file, const struct architecture *arch,
                           struct model_config *config, np_error *err)
{
    const struct weight *weight = weight_at(arch, offsetof(struct model, head));
    bool gguf = modelfile_container(file) == CONTAINER_GGUF;
    if (weight_find(file, arch, weight, 0))
        config->head_tied = false;
    else if (gguf)
        config->head_tied = true;
    else if (!config->head_tied)
        return error_set(err, NP_EFORMAT, weight->hf, NO_OFFSET,
                         "the tensor is missing, and tie_word_embeddings does not say that the "
                         "embedding is the head");
    return NP_OK;
}

np_status model_configure(const struct modelfile *file, struct model_config *out, np_error *err)
{
    const struct architecture *arch = architecture_of(file, err);
    if (!arch) return err ? err->status : NP_EUNSUPPORTED;
    struct model_config config = arch->defaults;
    config.architecture = arch->name;
    TRY(settings_apply(file, arch, &config, err));
    TRY(size_defaults(&config, err));
    if (arch->windows) TRY(arch->windows(file, &config, err));
    TRY(find_vocabulary(file, arch, &config, err));
    TRY(find_head(file, arch, &config, err));
    *out = config;
    return NP_OK;
}
