/*
 * kv.h - where keys and values live: pages of 64 tokens, the mechanism only (who shares and who
 * evicts is the engine's business).
 *
 *   page = for each layer, for each kv head:
 *     keys    one panel of 64 columns, K = head_dim      (columns are the 64 tokens)
 *     values  [ceil(head_dim/16)][64 tokens][16]
 *
 * so that attention is two GEMMs over pages (tensor/kernels.h). A token's floats are the same bits
 * whether they were written a moment ago or read from a shared page. Fresh pages are zero.
 */
#ifndef MODEL_KV_H
#define MODEL_KV_H

#include "tensor/kernels.h"

struct model_config;

struct kv_page;
struct kv_pool {
    struct kv_page *free;
    size_t page_floats, head_floats; /* head_floats: keys + values of one head */
    size_t n_layers, n_kv_heads, head_dim;
    size_t n_pages, max_pages; /* existing and allowed */
};
struct kv_page {
    struct kv_page *next;
    uint32_t n_refs;
    float *floats;
};

/* One sequence: its pages in order. */
struct kv_seq {
    struct kv_page **pages;
    size_t n_pages, n_tokens, max_pages;
};

size_t kv_page_bytes(const struct model_config *config);

np_status kv_pool_init(struct kv_pool *pool, const struct model_config *config, size_t max_pages,
                       np_error *err);
void kv_pool_free(struct kv_pool *pool);

/* Makes room for n_tokens in all; takes pages from the pool. NP_ELIMIT when there is none left. */
np_status kv_reserve(struct kv_pool *pool, struct kv_seq *seq, size_t n_tokens, np_error *err);
void kv_release(struct kv_pool *pool,
                struct kv_seq *seq); /* gives all pages back, frees the list */

static inline float *kv_keys(const struct kv_pool *pool, const struct kv_page *page, size_t layer,
                             size_t head)
{
    return page->floats + (layer * pool->n_kv_heads + head) * pool->head_floats;
}
static inline float *kv_values(const struct kv_pool *pool, const struct kv_page *page, size_t layer,
                               size_t head)
{
    return kv_keys(pool, page, layer, head) + panel_floats(pool->head_dim);
}

#endif
