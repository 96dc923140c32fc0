/*
 * workspace.c - one arena, cut once. The list of buffers is written once and used twice: to count
 * and to cut.
 */
#include "model/workspace.h"

/* Cuts (or, with an empty arena that has no memory behind it, only counts) all buffers. */
static bool cut(struct workspace *ws, const struct model_config *config, size_t *total_bytes)
{
    size_t rows = ws->max_rows, q = config->n_heads * config->head_dim;
    size_t kv = config->n_kv_heads * config->head_dim, half = config->head_dim / 2;
    size_t up = (config->ffn == FFN_SILU_GATED ? 2 : 1) * config->ffn_dim;
    size_t widest = config->dim > config->ffn_dim ? config->dim : config->ffn_dim;
    widest = widest > q ? widest : q;
    size_t threads = (size_t)ws->n_threads, pages = ws->max_tokens / PANEL + 1;
    ws->scratch_floats = attention_scratch_floats(config, ws->max_tokens);
    const struct {
        void *place;
        size_t count, size;
    } buffers[] = {{&ws->x, rows * config->dim, sizeof(double)},
                   {&ws->normed, rows * config->dim, sizeof(float)},
                   {&ws->delta, rows * config->dim, sizeof(float)},
                   {&ws->qkv, rows * (q + 2 * kv), sizeof(float)},
                   {&ws->mixed, rows * q, sizeof(float)},
                   {&ws->up, rows * up, sizeof(float)},
                   {&ws->act, rows * config->ffn_dim, sizeof(float)},
                   {&ws->operand, rows * widest, sizeof(float)},
                   {&ws->cos, rows * half, sizeof(float)},
                   {&ws->sin, rows * half, sizeof(float)},
                   {&ws->scratch, threads * ws->scratch_floats, sizeof(float)},
                   {&ws->pages, threads * pages, sizeof(float *)},
                   {&ws->position, rows, sizeof(size_t)},
                   {&ws->run, rows, sizeof(struct run *)},
                   {&ws->spans, rows, sizeof(struct span)}};
    bool ok = true;
    *total_bytes = 0;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        *total_bytes += (buffers[i].count * buffers[i].size + 63) / 64 * 64;
        if (ws->arena.max_bytes == 0) continue;
        void *memory = arena_push_array(&ws->arena, buffers[i].count, buffers[i].size);
        memcpy(buffers[i].place, &memory, sizeof memory);
        ok = ok && memory;
    }
    return ok;
}

size_t workspace_bytes(const struct model_config *config, size_t max_rows, size_t max_tokens,
                       int n_threads)
{
    struct workspace ws = {.max_rows = max_rows, .max_tokens = max_tokens, .n_threads = n_threads};
    size_t total_bytes;
    cut(&ws, config, &total_bytes);
    return total_bytes;
}

np_status workspace_open(const struct model *model, size_t max_rows, size_t max_tokens,
                         int n_threads, struct workspace **out, np_error *err)
{
    struct workspace *ws = mem_alloc(1, sizeof *ws);
    size_t total_bytes = workspace_bytes(&model->config, max_rows, max_tokens, n_threads);
    *out = NULL;
    if (!ws) return error_nomem(err, "work space", sizeof *ws);
    ws->max_rows = max_rows;
    ws->max_tokens = max_tokens;
    ws->n_threads = n_threads;
    arena_init(&ws->arena, SIZE_MAX);
    if (!cut(ws, &model->config, &total_bytes)) {
        workspace_close(ws);
        return error_nomem(err, "work space", total_bytes);
    }
    *out = ws;
    return NP_OK;
}

void workspace_close(struct workspace *workspace)
{
    if (!workspace) return;
    arena_free(&workspace->arena);
    mem_free(workspace);
}
