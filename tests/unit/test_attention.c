/*
 * test_attention.c - attention() against plain loops over the keys that a row sees, counted from
 * key 0: windows, groups, tiles, threads, levels. Pages that no row of a span sees are not there at
 * all.
 */
#include "tinymodel.h"

#include "base/pool.h"
#include "model/workspace.h"

#include <math.h>

#define N_KV_HEADS 2
#define MAX_KEYS 8192
#define MAX_GROUP 6
#define MAX_HEAD_DIM 64
#define MAX_ROWS 128
#define MAX_THREADS 3

struct world {
    struct model model;
    struct pool *pools[2]; /* of 1 and of MAX_THREADS */
    struct workspace *ws;
    float *pages[MAX_KEYS / PANEL];
    float *keys, *values; /* [N_KV_HEADS][n_keys][head_dim] */
    size_t n_keys;
};

static float next_float(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)((int)(*seed >> 9) - (1 << 22)) * 0x1p-21f;
}

static void open_world(struct world *w, size_t group, size_t head_dim, size_t n_keys)
{
    np_error err;
    uint32_t seed = 7;
    memset(w, 0, sizeof *w);
    struct model_config *c = &w->model.config;
    *c = (struct model_config){.n_layers = 1,
                               .n_kv_heads = N_KV_HEADS,
                               .n_heads = N_KV_HEADS * group,
                               .head_dim = head_dim,
                               .dim = 8,
                               .ffn_dim = 8,
                               .n_context = MAX_KEYS};
    assert_int_equal(pool_open(&w->pools[0], 1, &err), NP_OK);
    assert_int_equal(pool_open(&w->pools[1], MAX_THREADS, &err), NP_OK);
    assert_int_equal(workspace_open(&w->model, MAX_ROWS, n_keys, MAX_THREADS, &w->ws, &err), NP_OK);
    w->model.kv = kv_shape_of(1, N_KV_HEADS, head_dim, c->dim);
    for (size_t p = 0; p < kv_pages(n_keys); p++)
        w->pages[p] = big_alloc(kv_page_bytes(&w->model.kv));
    w->n_keys = n_keys;
    w->keys = mem_alloc(N_KV_HEADS * n_keys * head_dim, sizeof(float));
    w->values = mem_alloc(N_KV_HEADS * n_keys * head_dim, sizeof(float));
    for (size_t i = 0; i < N_KV_HEADS * n_keys * head_dim; i++) {
        w->keys[i] = next_float(&seed);
        w->values[i] = next_float(&seed);
    }
    for (size_t i = 0; i < MAX_ROWS * (c->n_heads + 2 * N_KV_HEADS) * head_dim; i++)
        w->ws->qkv[i] = next_float(&seed);
    for (size_t h = 0; h < N_KV_HEADS; h++)
        for (size_t k = 0; k < n_keys; k++) {
            const float *key = w->keys + (h * n_keys + k) * head_dim;
            const float *value = w->values + (h * n_keys + k) * head_dim;
            float *keys = kv_keys(&w->model.kv, w->pages[k / PANEL], 0, h);
            float *values = kv_values(&w->model.kv, w->pages[k / PANEL], 0, h);
            for (size_t i = 0; i < head_dim; i++) {
                keys[panel_index(head_dim, i, k % PANEL)] = key[i];
                values[i / TILE * TILE * PANEL + k % PANEL * TILE + i % TILE] = value[i];
            }
        }
}

static void close_world(struct world *w)
{
    for (size_t p = 0; p < kv_pages(w->n_keys); p++)
        big_free(w->pages[p], kv_page_bytes(&w->model.kv));
    workspace_close(w->ws);
    for (size_t i = 0; i < 2; i++) pool_close(w->pools[i]);
    mem_free(w->keys);
    mem_free(w->values);
}

/* Item 2 of docs/NUMERICS.md: n terms, y at stride `step`. */
static float dot(const float *x, const float *y, size_t step, size_t n)
{
    float total = 0, s = 0;
    for (size_t k = 0; k < n; k += 2) {
        if (k + 1 < n) s = fmaf(x[k + 1], y[(k + 1) * step], s);
        s = fmaf(x[k], y[k * step], s);
        if ((k + 2) % KBLOCK == 0 || k + 2 >= n) {
            total += s;
            s = 0;
        }
    }
    return total;
}

/* One row of one query head, over all keys from 0 on; those out of the window weigh +0. */
static void attend_plainly(const struct world *w, const float *q, size_t head, size_t position,
                           size_t window, float *out)
{
    static float p[MAX_KEYS];
    size_t head_dim = w->model.config.head_dim;
    size_t first = window && window <= position ? position + 1 - window : 0;
    float scale = (float)(1.0 / sqrt((double)head_dim));
    const float *values = w->values + head * w->n_keys * head_dim;
    memset(p, 0, (position + 1) * sizeof *p);
    for (size_t k = first; k <= position; k++)
        p[k] = dot(q, w->keys + (head * w->n_keys + k) * head_dim, 1, head_dim);
    float sum = kernels_get(CPU_REF)->softmax(p + first, position + 1 - first, first, scale);
    for (size_t i = 0; i < head_dim; i++) out[i] = dot(p, values + i, head_dim, position + 1) / sum;
}

static const enum cpu_level levels[] = {CPU_REF, CPU_AVX2, CPU_AVX512, CPU_NEON};

/* At every level, on one thread and on some. */
static void attend_everywhere(struct world *w, const float *want)
{
    size_t q_dim = w->model.config.n_heads * w->model.config.head_dim;
    size_t n = w->ws->spans[0].n_rows * q_dim;
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++)
        for (size_t i = 0; i < 2 && cpu_has(levels[l]); i++) {
            w->model.kernels = kernels_get(levels[l]);
            memset(w->ws->mixed, 0, n * sizeof(float));
            attention(&w->model, w->ws, w->pools[i], 0, 1);
            assert_memory_equal(w->ws->mixed, want, n * sizeof(float));
        }
}

/* Positions [position, position + n_rows) as one span, the pages before the window taken away. */
static void check_span(struct world *w, size_t window, size_t position, size_t n_rows)
{
    static float want[MAX_ROWS * N_KV_HEADS * MAX_GROUP * MAX_HEAD_DIM];
    const struct model_config *c = &w->model.config;
    size_t head_dim = c->head_dim, q_dim = c->n_heads * head_dim, group = c->n_heads / N_KV_HEADS;
    float *pages[MAX_KEYS / PANEL + 1] = {NULL};
    size_t first = window && window <= position ? position + 1 - window : 0;
    struct run run = {.pages = pages, .first = position, .n_rows = n_rows};
    for (size_t p = first / PANEL; p * PANEL < position + n_rows; p++) pages[p] = w->pages[p];
    w->model.config.window = window;
    w->model.config.windowed[0] = window > 0;
    w->ws->spans[0] = (struct span){&run, position, n_rows, 0};
    for (size_t r = 0; r < n_rows; r++)
        for (size_t h = 0; h < c->n_heads; h++) {
            const float *q = w->ws->qkv + r * (q_dim + 2 * N_KV_HEADS * head_dim) + h * head_dim;
            attend_plainly(w, q, h / group, position + r, window, want + r * q_dim + h * head_dim);
        }
    attend_everywhere(w, want);
}

static void windows_see_their_keys_and_no_others(void **state)
{
    static const size_t windows[] = {0, 1, 5, 63, 64, 65, 77, 200, 1000};
    static const size_t shapes[][2] = {{1, 64}, {3, 12}, {6, 10}};
    static const size_t spans[][2] = {{0, 1}, {0, 90}, {63, 2}, {199, 1}, {255, 17}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct world w;
        open_world(&w, shapes[s][0], shapes[s][1], 300);
        for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
            for (size_t j = 0; j < sizeof spans / sizeof *spans; j++)
                check_span(&w, windows[i], spans[j][0], spans[j][1]);
        close_world(&w);
    }
}

static void long_rows(void **state)
{
    static const size_t windows[] = {0, 3000};
    struct world w;
    open_world(&w, 3, 64, MAX_KEYS);
    for (size_t i = 0; i < 2; i++) check_span(&w, windows[i], MAX_KEYS - 7, 7);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_see_their_keys_and_no_others),
        cmocka_unit_test(long_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
