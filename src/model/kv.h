/*
 * kv.h - where keys and values live: pages of 64 tokens. The layout only; who shares a page, who
 * keeps and who evicts it is the engine's business.
 *
 *   page = for each layer, for each key/value head:
 *            keys    one panel of 64 columns, K = head_dim      (columns are the 64 tokens)
 *            values  [ceil(head_dim/16)][64 tokens][16]
 *          final hidden rows  [64 tokens][dim]
 *
 * so that attention is two GEMMs over pages (tensor/kernels.h), and a row that was wanted once can
 * be asked again without the model. A token's floats are the same bits whether they were written a
 * moment ago or long before. Whatever stands in columns of tokens that are not there must be
 * finite: attention multiplies it by +0. So memory for a page is zeroed once, and may then be used
 * again.
 */
#ifndef MODEL_KV_H
#define MODEL_KV_H

#include "tensor/kernels.h"

struct kv_shape {
    size_t n_layers, n_kv_heads, head_dim, dim;
    size_t head_floats; /* keys + values of one head */
    size_t page_floats;
};
static inline struct kv_shape kv_shape_of(size_t n_layers, size_t n_kv_heads, size_t head_dim,
                                          size_t dim)
{
    size_t values = (head_dim + TILE - 1) / TILE * TILE * PANEL;
    struct kv_shape shape = {.n_layers = n_layers,
                             .n_kv_heads = n_kv_heads,
                             .head_dim = head_dim,
                             .dim = dim,
                             .head_floats = panel_floats(head_dim) + values};
    shape.page_floats = n_layers * n_kv_heads * shape.head_floats + PANEL * dim;
    return shape;
}
static inline size_t kv_page_bytes(const struct kv_shape *shape)
{
    return shape->page_floats * sizeof(float);
}
/* Pages of n_tokens. */
static inline size_t kv_pages(size_t n_tokens)
{
    return (n_tokens + PANEL - 1) / PANEL;
}

static inline float *kv_keys(const struct kv_shape *shape, float *page, size_t layer, size_t head)
{
    return page + (layer * shape->n_kv_heads + head) * shape->head_floats;
}
static inline float *kv_values(const struct kv_shape *shape, float *page, size_t layer, size_t head)
{
    return kv_keys(shape, page, layer, head) + panel_floats(shape->head_dim);
}
/* The final hidden row of the token in `column`. */
static inline float *kv_hidden(const struct kv_shape *shape, float *page, size_t column)
{
    return page + shape->n_layers * shape->n_kv_heads * shape->head_floats + column * shape->dim;
}

#endif
