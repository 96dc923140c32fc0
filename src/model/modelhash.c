/*
 * modelhash.c - what a model is to whoever keeps something that it computed: a hash of everything
 * that its hidden rows depend on.
 */
#include "model/model.h"

#include <xxhash.h>

static void add_floats(XXH3_state_t *state, const float *x, size_t n)
{
    uint64_t there = x ? n : 0;
    XXH3_128bits_update(state, &there, sizeof there);
    if (x) XXH3_128bits_update(state, x, n * sizeof *x);
}

static void add_matrix(XXH3_state_t *state, const struct matrix *matrix)
{
    uint64_t shape[4] = {matrix->dtype, matrix->profile, matrix->N, matrix->K};
    XXH3_128bits_update(state, shape, sizeof shape);
    if (matrix->N) add_floats(state, matrix->bias, matrix->N);
}

static void add_config(XXH3_state_t *state, const struct model_config *c)
{
    uint64_t sizes[] = {c->n_layers, c->dim,  c->n_heads, c->n_kv_heads, c->head_dim, c->ffn_dim,
                        c->n_vocab,  c->norm, c->ffn,     c->rope,       c->window,   c->head_tied};
    double values[] = {c->norm_eps, c->rope_theta};
    XXH3_128bits_update(state, sizes, sizeof sizes);
    XXH3_128bits_update(state, values, sizeof values);
    XXH3_128bits_update(state, c->windowed, sizeof c->windowed);
}

np_status model_fingerprint(const struct model *model, uint64_t out[2], np_error *err)
{
    const struct model_config *c = &model->config;
    XXH3_state_t *state = XXH3_createState();
    if (!state) return error_nomem(err, "fingerprint", 1024);
    XXH3_128bits_reset(state);
    add_config(state, c);
    XXH3_128bits_update(state, model->panels, model->panel_bytes);
    for (size_t i = 0; i < c->n_layers; i++) {
        const struct layer *layer = &model->layers[i];
        const struct matrix *matrices[] = {&layer->qkv[0], &layer->qkv[1], &layer->qkv[2],
                                           &layer->out,    &layer->up[0],  &layer->up[1],
                                           &layer->down};
        add_floats(state, layer->norm1_gain, c->dim);
        add_floats(state, layer->norm1_bias, c->dim);
        add_floats(state, layer->norm2_gain, c->dim);
        add_floats(state, layer->norm2_bias, c->dim);
        for (size_t m = 0; m < sizeof matrices / sizeof *matrices; m++)
            add_matrix(state, matrices[m]);
    }
    add_matrix(state, &model->embedding);
    add_matrix(state, &model->head);
    add_floats(state, model->positions, c->n_context * c->dim);
    add_floats(state, model->norm_gain, c->dim);
    add_floats(state, model->norm_bias, c->dim);
    add_floats(state, model->inv_freq, c->head_dim / 2);
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    out[0] = hash.low64;
    out[1] = hash.high64;
    return NP_OK;
}
