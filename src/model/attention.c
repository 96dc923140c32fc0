/*
 * attention.c - attention as two products over pages of 64 keys.
 *
 * A tile is up to 16 positions of one sequence times all query heads that share a key/value head:
 *
 *   q [rows][head_dim] x key pages -> scores [rows][keys], softmax per row,
 *   scores [rows][keys] x value pages -> mixed [rows][head_dim]
 *
 * Whole score rows are kept, so that the maximum is exact and nothing is rescaled. A row's keys end
 * at its own position; what a tile computed beyond is replaced by +0, which changes no sum. Tiles
 * are dealt to threads in turn: neighbours cost the same.
 */
#include "model/workspace.h"

#include <math.h>

struct attention_task {
    const struct model *model;
    struct workspace *workspace;
    const struct kv_pool *kv;
    size_t layer, n_spans;
    size_t group; /* query heads per key/value head */
    float scale;
};

static size_t padded_keys(size_t n_keys)
{
    return (n_keys + PANEL - 1) / PANEL * PANEL;
}

size_t attention_scratch_floats(const struct model_config *config, size_t max_tokens)
{
    size_t group = config->n_heads / config->n_kv_heads;
    size_t scores = group * padded_keys(max_tokens);
    if (scores < SCORE_FLOATS) scores = SCORE_FLOATS;
    return scores + 2 * TILE_POSITIONS * group * ((config->head_dim + TILE - 1) / TILE * TILE);
}

static size_t tile_positions(size_t group, size_t n_keys)
{
    size_t n = SCORE_FLOATS / (group * padded_keys(n_keys));
    if (n < 1) return 1;
    return n < TILE_POSITIONS ? n : TILE_POSITIONS;
}

/* Positions [begin, begin + n) of a span, one key/value head. */
static void attend_tile(const struct attention_task *task, const struct span *span, size_t begin,
                        size_t n, size_t head, int thread)
{
    const struct model_config *config = &task->model->config;
    const struct kernels *kernels = task->model->kernels;
    struct workspace *ws = task->workspace;
    size_t head_dim = config->head_dim, group = task->group, rows = n * group;
    size_t q_dim = config->n_heads * head_dim, ld_qkv = q_dim + 2 * config->n_kv_heads * head_dim;
    size_t n_keys = span->position + begin + n, ld = padded_keys(n_keys), n_pages = ld / PANEL;
    float *q = ws->scratch + (size_t)thread * ws->scratch_floats;
    float *out = q + TILE_POSITIONS * group * head_dim;
    float *scores = out + TILE_POSITIONS * group * head_dim;
    const float **pages = ws->pages + (size_t)thread * (ws->max_tokens / PANEL + 1);

    for (size_t i = 0; i < n; i++)
        memcpy(q + i * group * head_dim,
               ws->qkv + (span->row + begin + i) * ld_qkv + head * group * head_dim,
               group * head_dim * sizeof(float));

    for (size_t p = 0; p < n_pages; p++) {
        const struct kv_page *page = span->run->seq->pages[p];
        size_t left = n_keys - p * PANEL;
        pages[p] = kv_values(task->kv, page, task->layer, head);
        kernels->panel_gemm(rows, q, head_dim, kv_keys(task->kv, page, task->layer, head), head_dim,
                            scores + p * PANEL, ld, left < PANEL ? left : PANEL);
    }

    size_t n_even = (n_keys + 1) & ~(size_t)1;
    for (size_t i = 0; i < rows; i++) {
        float *row = scores + i * ld;
        size_t n_own = span->position + begin + i / group + 1;
        q[i] = kernels->softmax(row, n_own, 0,
                                task->scale); /* q is used up: its front holds the sums */
        for (size_t k = n_own; k < n_even; k++) row[k] = 0.0f;
    }
    kernels->mix_values(rows, scores, ld, pages, n_keys, out, head_dim, head_dim);
    for (size_t i = 0; i < rows; i++)
        kernels->divide(head_dim, out + i * head_dim, q[i],
                        ws->mixed + (span->row + begin + i / group) * q_dim +
                            (head * group + i % group) * head_dim);
}

static void attention_work(void *ctx, int thread, int n_threads)
{
    const struct attention_task *task = ctx;
    size_t unit = 0;
    for (size_t s = 0; s < task->n_spans; s++) {
        const struct span *span = &task->workspace->spans[s];
        size_t step = tile_positions(task->group, span->position + span->n_rows);
        for (size_t begin = 0; begin < span->n_rows; begin += step) {
            size_t left = span->n_rows - begin;
            for (size_t head = 0; head < task->model->config.n_kv_heads; head++, unit++)
                if (unit % (size_t)n_threads == (size_t)thread)
                    attend_tile(task, span, begin, left < step ? left : step, head, thread);
        }
    }
}

void attention(const struct model *model, struct workspace *workspace, struct pool *pool,
               const struct kv_pool *kv, size_t layer, size_t n_spans)
{
    const struct model_config *config = &model->config;
    struct attention_task task = {.model = model,
                                  .workspace = workspace,
                                  .kv = kv,
                                  .layer = layer,
                                  .n_spans = n_spans,
                                  .group = config->n_heads / config->n_kv_heads,
                                  .scale = (float)(1.0 / sqrt((double)config->head_dim))};
    pool_run(pool, attention_work, &task);
}
