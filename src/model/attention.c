/*
 * attention.c - attention as two products over pages of 64 keys.
 *
 * A tile is up to 16 positions of one sequence times all query heads that share a key/value head:
 *
 *   q [rows][head_dim] x key pages -> scores [rows][keys], softmax per row,
 *   scores [rows][keys] x value pages -> mixed [rows][head_dim]
 *
 * Whole score rows are kept, so that the maximum is exact and nothing is rescaled. A row's keys end
 * at its own position and, with a window, begin shortly before it: a tile's pages begin with the
 * first that one of its rows needs, and what it computed in front of a row's keys and behind them
 * is replaced by +0, which changes no sum.
 */
#include "model/workspace.h"

#include <math.h>

struct attention_task {
    const struct model *model;
    struct workspace *workspace;
    size_t layer, n_spans;
    size_t group;  /* query heads per key/value head */
    size_t window; /* 0: none */
    float scale;
};

/* A row of scores: whole pages, and a line so that rows do not meet in the same sets of a cache. */
static size_t row_floats(size_t n_keys)
{
    return (n_keys + PANEL - 1) / PANEL * PANEL + TILE;
}

size_t attention_scratch_floats(const struct model_config *config, size_t max_tokens)
{
    size_t group = config->n_heads / config->n_kv_heads;
    size_t scores = group * row_floats(max_tokens);
    if (scores < SCORE_FLOATS) scores = SCORE_FLOATS;
    return scores + 2 * TILE_POSITIONS * group * ((config->head_dim + TILE - 1) / TILE * TILE);
}

/* The first key that the row at `position` sees. */
static size_t first_key(size_t window, size_t position)
{
    return window && position >= window ? position + 1 - window : 0;
}

/* Positions of the tile that ends before position `end`. */
static size_t tile_positions(const struct attention_task *task, size_t end)
{
    size_t most = task->window + TILE_POSITIONS + PANEL; /* keys, from the start of a page */
    size_t n_keys = task->window && most < end ? most : end;
    size_t n = SCORE_FLOATS / (task->group * row_floats(n_keys));
    if (n < 1) return 1;
    return n < TILE_POSITIONS ? n : TILE_POSITIONS;
}

/* Positions [begin, begin + n) of a span, one key/value head. Keys are counted from `base`. */
static void attend_tile(const struct attention_task *task, const struct span *span, size_t begin,
                        size_t n, size_t head, int thread)
{
    const struct model_config *config = &task->model->config;
    const struct kernels *kernels = task->model->kernels;
    struct workspace *ws = task->workspace;
    size_t head_dim = config->head_dim, group = task->group, rows = n * group;
    size_t q_dim = config->n_heads * head_dim, ld_qkv = q_dim + 2 * config->n_kv_heads * head_dim;
    size_t position = span->position + begin;
    size_t base = first_key(task->window, position) / PANEL * PANEL;
    size_t n_keys = position + n - base, ld = row_floats(n_keys), n_pages = ld / PANEL;
    float *q = ws->scratch + (size_t)thread * ws->scratch_floats;
    float *out = q + TILE_POSITIONS * group * head_dim;
    float *scores = out + TILE_POSITIONS * group * head_dim;
    const float **pages = ws->pages + (size_t)thread * (ws->max_tokens / PANEL + 1);

    for (size_t i = 0; i < n; i++)
        memcpy(q + i * group * head_dim,
               ws->qkv + (span->row + begin + i) * ld_qkv + head * group * head_dim,
               group * head_dim * sizeof(float));

    for (size_t p = 0; p < n_pages; p++) {
        float *page = span->run->pages[base / PANEL + p];
        size_t left = n_keys - p * PANEL;
        pages[p] = kv_values(&task->model->kv, page, task->layer, head);
        kernels->score_keys(rows, q, head_dim, kv_keys(&task->model->kv, page, task->layer, head),
                            head_dim, scores + p * PANEL, ld, left < PANEL ? left : PANEL);
    }

    size_t n_even = (n_keys + 1) & ~(size_t)1;
    for (size_t i = 0; i < rows; i++) {
        size_t own = position + i / group, first = first_key(task->window, own) - base;
        size_t end = own + 1 - base;
        float *row = scores + i * ld;
        /* q is used up: its front holds the sums */
        q[i] = kernels->softmax(row + first, end - first, base + first, task->scale);
        for (size_t k = 0; k < first; k++) row[k] = 0.0f;
        for (size_t k = end; k < n_even; k++) row[k] = 0.0f;
    }
    kernels->mix_values(rows, scores, ld, pages, n_keys, out, head_dim, head_dim);
    for (size_t i = 0; i < rows; i++)
        kernels->divide(head_dim, out + i * head_dim, q[i],
                        ws->mixed + (span->row + begin + i / group) * q_dim +
                            (head * group + i % group) * head_dim);
}

/* Tiles are dealt from the longest to the shortest, to and fro: 0 1 2 2 1 0 0 1 2. So no thread has
 * the longer one of every round. */
static size_t dealt_to(size_t unit, size_t n_threads)
{
    size_t at = unit % (2 * n_threads);
    return at < n_threads ? at : 2 * n_threads - 1 - at;
}

static void attention_work(void *ctx, int thread, int n_threads)
{
    const struct attention_task *task = ctx;
    size_t unit = 0;
    for (size_t s = 0; s < task->n_spans; s++) {
        const struct span *span = &task->workspace->spans[s];
        for (size_t end = span->n_rows; end > 0;) {
            size_t n = tile_positions(task, span->position + end);
            if (n > end) n = end;
            end -= n;
            for (size_t head = 0; head < task->model->config.n_kv_heads; head++)
                if (dealt_to(unit++, (size_t)n_threads) == (size_t)thread)
                    attend_tile(task, span, end, n, head, thread);
        }
    }
}

void attention(const struct model *model, struct workspace *workspace, struct pool *pool,
               size_t layer, size_t n_spans)
{
    const struct model_config *config = &model->config;
    struct attention_task task = {.model = model,
                                  .workspace = workspace,
                                  .layer = layer,
                                  .n_spans = n_spans,
                                  .group = config->n_heads / config->n_kv_heads,
                                  .window = model_window(config, layer),
                                  .scale = (float)(1.0 / sqrt((double)config->head_dim))};
    pool_run(pool, attention_work, &task);
}
