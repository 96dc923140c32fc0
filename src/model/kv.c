/*
 * kv.c - see kv.h. Pages are obtained one by one when a sequence grows and go back to a free list
 * when it ends, so that a warm engine allocates nothing. A page is cleared when it is taken:
 * attention multiplies masked columns by +0, which is only +0 if they are finite.
 */
#include "model/kv.h"

#include "base/arena.h"
#include "model/model.h"

static size_t values_floats(size_t head_dim)
{
    return (head_dim + TILE - 1) / TILE * TILE * PANEL;
}

size_t kv_page_bytes(const struct model_config *config)
{
    size_t head = panel_floats(config->head_dim) + values_floats(config->head_dim);
    return config->n_layers * config->n_kv_heads * head * sizeof(float);
}

np_status kv_pool_init(struct kv_pool *pool, const struct model_config *config, size_t max_pages,
                       np_error *err)
{
    memset(pool, 0, sizeof *pool);
    pool->n_layers = config->n_layers;
    pool->n_kv_heads = config->n_kv_heads;
    pool->head_dim = config->head_dim;
    pool->head_floats = panel_floats(config->head_dim) + values_floats(config->head_dim);
    pool->page_floats = kv_page_bytes(config) / sizeof(float);
    pool->max_pages = max_pages;
    if (max_pages == 0)
        return error_set(err, NP_ELIMIT, "max_memory", NO_OFFSET,
                         "no room for key/value memory: one page of %d tokens takes %zu bytes",
                         PANEL, kv_page_bytes(config));
    return NP_OK;
}

void kv_pool_free(struct kv_pool *pool)
{
    while (pool->free) {
        struct kv_page *page = pool->free;
        pool->free = page->next;
        big_free(page->floats, pool->page_floats * sizeof(float));
        mem_free(page);
    }
    memset(pool, 0, sizeof *pool);
}

static np_status page_take(struct kv_pool *pool, struct kv_page **out, np_error *err)
{
    struct kv_page *page = pool->free;
    if (page) {
        pool->free = page->next;
        memset(page->floats, 0, pool->page_floats * sizeof(float));
    } else {
        if (pool->n_pages == pool->max_pages)
            return error_set(err, NP_ELIMIT, "max_memory", NO_OFFSET,
                             "key/value memory is full: all %zu pages of %d tokens are in use",
                             pool->max_pages, PANEL);
        size_t n_bytes = pool->page_floats * sizeof(float);
        page = mem_alloc(1, sizeof *page);
        if (!page || !(page->floats = big_alloc(n_bytes))) {
            mem_free(page);
            return error_nomem(err, "key/value page", n_bytes);
        }
        pool->n_pages++;
    }
    page->next = NULL;
    page->n_refs = 1;
    *out = page;
    return NP_OK;
}

np_status kv_reserve(struct kv_pool *pool, struct kv_seq *seq, size_t n_tokens, np_error *err)
{
    size_t need = (n_tokens + PANEL - 1) / PANEL;
    if (need > seq->max_pages) {
        size_t max_pages = need < 2 * seq->max_pages ? 2 * seq->max_pages : need;
        struct kv_page **pages = mem_resize(seq->pages, max_pages * sizeof(struct kv_page *));
        if (!pages) return error_nomem(err, "page list", max_pages * sizeof(struct kv_page *));
        seq->pages = pages;
        seq->max_pages = max_pages;
    }
    while (seq->n_pages < need) {
        TRY(page_take(pool, &seq->pages[seq->n_pages], err));
        seq->n_pages++;
    }
    return NP_OK;
}

void kv_release(struct kv_pool *pool, struct kv_seq *seq)
{
    for (size_t i = 0; i < seq->n_pages; i++) {
        struct kv_page *page = seq->pages[i];
        if (--page->n_refs > 0) continue;
        page->next = pool->free;
        pool->free = page;
    }
    mem_free(seq->pages);
    memset(seq, 0, sizeof *seq);
}
