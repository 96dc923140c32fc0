/*
 * forward.c - token ids and pages in, final hidden rows out.
 *
 *   x = embedding (+ position)
 *   every layer:  x = x + Out . attention(rope(Qkv . norm1(x)))
 *                 x = x + Down . f(Up . norm2(x))
 *   hidden = norm(x)
 *
 * x, the residual stream, is summed in f64 and rounded for each norm: where its elements are much
 * larger than what a block adds, f32 sums make the worst errors (docs/NUMERICS.md). Rows are
 * tokens; all rows of a step, of whatever sequences, pass a matrix together. A row of the last
 * layer whose hidden state nobody wants gives its key and value and is dropped there.
 */
#include "model/workspace.h"

struct pass {
    const struct model *model;
    struct workspace *ws;
    struct pool *pool;
    const struct step *step;
    size_t layer, n_rows;
    /* of the norm at hand */
    const float *gain, *bias;
    float *out; /* NULL: the final one, into the pages */
};

static size_t qkv_dim(const struct model_config *config)
{
    return (config->n_heads + 2 * config->n_kv_heads) * config->head_dim;
}

/* Work that goes row by row: so few rows are done before other threads have woken up. */
#define SERIAL_ROWS 4
static void each_row(struct pass *pass, pool_fn *work)
{
    if (pass->n_rows <= SERIAL_ROWS)
        work(pass, 0, 1);
    else
        pool_run(pass->pool, work, pass);
}

static void embed_work(void *ctx, int thread, int n_threads)
{
    struct pass *pass = ctx;
    const struct model *model = pass->model;
    size_t dim = model->config.dim, half = model->config.head_dim / 2, begin, end;
    pool_share(pass->n_rows, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        size_t position = pass->ws->position[r];
        double *x = pass->ws->x + r * dim;
        float *cos = pass->ws->cos + r * half, *sin = pass->ws->sin + r * half;
        for (size_t i = 0; i < dim; i++)
            x[i] = model->positions ? model->positions[position * dim + i] : 0;
        matrix_row(&model->embedding, (size_t)pass->step->ids[r], pass->ws->delta + r * dim);
        if (model->config.rope == ROPE_NONE) continue;
        for (size_t i = 0; i < half; i++) sin[i] = (float)position * model->inv_freq[i];
        model->kernels->unary[U_COS](half, sin, cos);
        model->kernels->unary[U_SIN](half, sin, sin);
    }
}

static float *hidden_row(const struct pass *pass, size_t row)
{
    size_t position = pass->ws->position[row];
    float *page = pass->ws->run[row]->pages[position / PANEL];
    return kv_hidden(&pass->model->kv, page, position % PANEL);
}

/* x += delta, out = norm(x rounded) */
static void norm_work(void *ctx, int thread, int n_threads)
{
    struct pass *pass = ctx;
    const struct kernels *kernels = pass->model->kernels;
    const struct model_config *config = &pass->model->config;
    size_t dim = config->dim, begin, end;
    pool_share(pass->n_rows, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        float *out = pass->out ? pass->out + r * dim : hidden_row(pass, r);
        kernels->accumulate(dim, pass->ws->delta + r * dim, pass->ws->x + r * dim, out);
        if (config->norm == NORM_RMS)
            kernels->rms_norm(dim, out, pass->gain, config->norm_eps, out);
        else
            kernels->layer_norm(dim, out, pass->gain, pass->bias, config->norm_eps, out);
    }
}

static void norm(struct pass *pass, const float *gain, const float *bias, float *out)
{
    pass->gain = gain;
    pass->bias = bias;
    pass->out = out;
    each_row(pass, norm_work);
}

static void note_bad(struct run *run, size_t position)
{
    size_t seen = __atomic_load_n(&run->bad, __ATOMIC_RELAXED);
    while (position < seen && !__atomic_compare_exchange_n(&run->bad, &seen, position, false,
                                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

/* One key and value into their page. A value that is not finite is stored as +0 and noted: a page
 * may hold nothing that turns masked products into NaN, and its request fails anyway. */
static void store_token(const struct pass *pass, struct run *run, size_t position, size_t head,
                        const float *key, const float *value)
{
    size_t head_dim = pass->model->config.head_dim, column = position % PANEL;
    float *page = run->pages[position / PANEL];
    float *keys = kv_keys(&pass->model->kv, page, pass->layer, head);
    float *values = kv_values(&pass->model->kv, page, pass->layer, head);
    bool bad =
        first_nonfinite(key, head_dim) < head_dim || first_nonfinite(value, head_dim) < head_dim;
    if (bad) note_bad(run, position);
    for (size_t i = 0; i < head_dim; i++)
        keys[panel_index(head_dim, i, column)] = bad ? 0.0f : key[i];
    for (size_t i = 0; i < head_dim; i++)
        values[i / TILE * TILE * PANEL + column * TILE + i % TILE] = bad ? 0.0f : value[i];
}

static void rope_work(void *ctx, int thread, int n_threads)
{
    struct pass *pass = ctx;
    const struct model *model = pass->model;
    const struct model_config *config = &model->config;
    size_t head_dim = config->head_dim, half = head_dim / 2, begin, end;
    size_t n_rotated = config->n_heads + config->n_kv_heads;
    pool_share(pass->n_rows, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        float *q = pass->ws->qkv + r * qkv_dim(config);
        const float *k = q + config->n_heads * head_dim, *v = k + config->n_kv_heads * head_dim;
        for (size_t h = 0; h < n_rotated && config->rope != ROPE_NONE; h++)
            model->kernels->rope(half, pass->ws->cos + r * half, pass->ws->sin + r * half,
                                 q + h * head_dim);
        for (size_t h = 0; h < config->n_kv_heads; h++)
            store_token(pass, pass->ws->run[r], pass->ws->position[r], h, k + h * head_dim,
                        v + h * head_dim);
    }
}

/* Keys and values of this layer for pages that take over columns; heads are divided, so that copies
 * of copies keep their order. */
static void copy_work(void *ctx, int thread, int n_threads)
{
    struct pass *pass = ctx;
    const struct kv_shape *kv = &pass->model->kv;
    size_t begin, end;
    pool_share(kv->n_kv_heads, thread, n_threads, &begin, &end);
    for (size_t i = 0; i < pass->step->n_copies; i++) {
        const struct page_copy *copy = &pass->step->copies[i];
        for (size_t head = begin; head < end; head++) {
            const float *k = kv_keys(kv, copy->from, pass->layer, head);
            const float *v = kv_values(kv, copy->from, pass->layer, head);
            float *keys = kv_keys(kv, copy->to, pass->layer, head);
            float *values = kv_values(kv, copy->to, pass->layer, head);
            for (size_t d = 0; d < kv->head_dim; d++)
                for (size_t c = copy->begin; c < copy->end; c++) {
                    size_t key = panel_index(kv->head_dim, d, c);
                    size_t value = d / TILE * TILE * PANEL + c * TILE + d % TILE;
                    keys[key] = k[key];
                    values[value] = v[value];
                }
        }
    }
}

static void activation_work(void *ctx, int thread, int n_threads)
{
    struct pass *pass = ctx;
    const struct kernels *kernels = pass->model->kernels;
    size_t ffn = pass->model->config.ffn_dim, begin, end;
    bool gated = pass->model->config.ffn == FFN_SILU_GATED;
    pool_share(pass->n_rows, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        const float *up = pass->ws->up + r * (gated ? 2 : 1) * ffn;
        float *act = pass->ws->act + r * ffn;
        if (gated)
            kernels->silu_mul(ffn, up, up + ffn, act);
        else
            kernels->unary[U_GELU_TANH](ffn, up, act);
    }
}

/* All rows of the step as spans. */
static size_t list_rows(struct pass *pass)
{
    for (size_t i = 0; i < pass->step->n_runs; i++) {
        struct run *run = &pass->step->runs[i];
        run->bad = SIZE_MAX;
        pass->ws->spans[i] = (struct span){run, run->first, run->n_rows, run->row};
        for (size_t r = 0; r < run->n_rows; r++) {
            pass->ws->position[run->row + r] = run->first + r;
            pass->ws->run[run->row + r] = run;
        }
    }
    return pass->step->n_runs;
}

/* Only the wanted rows, moved together, as spans; x, qkv, run and position follow. */
static size_t keep_wanted(struct pass *pass)
{
    const struct model_config *config = &pass->model->config;
    struct workspace *ws = pass->ws;
    size_t ld = qkv_dim(config), row = 0, n_spans = 0;
    for (size_t from = 0; from < pass->step->n_rows; from++) {
        if (!pass->step->wanted[from]) continue;
        struct run *run = ws->run[from];
        size_t position = ws->position[from];
        struct span *last = n_spans ? &ws->spans[n_spans - 1] : NULL;
        if (last && last->run == run && last->position + last->n_rows == position)
            last->n_rows++;
        else
            ws->spans[n_spans++] = (struct span){run, position, 1, row};
        memmove(ws->x + row * config->dim, ws->x + from * config->dim,
                config->dim * sizeof(double));
        memmove(ws->qkv + row * ld, ws->qkv + from * ld, ld * sizeof(float));
        ws->run[row] = run;
        ws->position[row++] = position;
    }
    pass->n_rows = row;
    return n_spans;
}

np_status model_forward(const struct model *model, struct workspace *workspace, struct pool *pool,
                        const struct step *step, atomic_int *cancel, np_error *err)
{
    const struct model_config *config = &model->config;
    const struct kernels *kernels = model->kernels;
    struct workspace *ws = workspace;
    struct pass pass = {
        .model = model, .ws = ws, .pool = pool, .step = step, .n_rows = step->n_rows};
    size_t q_dim = config->n_heads * config->head_dim;
    size_t n_qkv = model->layers[0].qkv[1].N ? 3 : 1, n_up = model->layers[0].up[1].N ? 2 : 1;
    size_t n_spans = list_rows(&pass);

    each_row(&pass, embed_work);
    for (size_t i = 0; i < config->n_layers; i++) {
        const struct layer *layer = &model->layers[i];
        if (cancel && atomic_load(cancel))
            return error_set(err, NP_ECANCELLED, NULL, NO_OFFSET, "cancelled");
        pass.layer = i;

        norm(&pass, layer->norm1_gain, layer->norm1_bias, ws->normed);
        linear(pool, kernels, layer->qkv, n_qkv, pass.n_rows, ws->normed, config->dim, ws->operand,
               ws->qkv, qkv_dim(config));
        each_row(&pass, rope_work);
        if (step->n_copies) pool_run(pool, copy_work, &pass);
        if (i + 1 == config->n_layers) n_spans = keep_wanted(&pass);
        if (pass.n_rows == 0) break;
        attention(model, ws, pool, i, n_spans);
        linear(pool, kernels, &layer->out, 1, pass.n_rows, ws->mixed, q_dim, ws->operand, ws->delta,
               config->dim);

        norm(&pass, layer->norm2_gain, layer->norm2_bias, ws->normed);
        linear(pool, kernels, layer->up, n_up, pass.n_rows, ws->normed, config->dim, ws->operand,
               ws->up, n_up * config->ffn_dim);
        each_row(&pass, activation_work);
        linear(pool, kernels, &layer->down, 1, pass.n_rows, ws->act, config->ffn_dim, ws->operand,
               ws->delta, config->dim);
    }
    if (pass.n_rows > 0) norm(&pass, model->norm_gain, model->norm_bias, NULL);
    return NP_OK;
}
