/*
 * load.c - tensors of a file, one after another, into packed matrices.
 *
 * Threads take whole panels of 64 rows: each reads the stored rows of its panels, expands them to
 * f32 and packs them, so no more than one panel per thread is in memory beside the model. GPT-2's
 * transposed matrices are the exception: a panel needs a column of every stored row, so such a
 * tensor is read whole.
 */
#include "model/arch.h"

#include <stddef.h>
#include <stdio.h>

struct loader {
    const struct modelfile *file;
    const struct architecture *arch;
    struct model *model;
    struct pool *pool;
    size_t extents[X_COUNT];
    const struct tensor **used;
    size_t n_used;
    /* the tensor at hand */
    const struct tensor *tensor;
    const struct weight *weight;
    struct matrix *matrix;
    size_t row0, rows, cols;
    unsigned flags;
    const float *whole; /* [cols][rows], transposed tensors only */
    size_t scratch_floats;
    float *scratch;   /* per thread: stored bytes, then f32 values, 64 rows each */
    np_error *errors; /* per thread */
};

static np_status read_floats(const struct loader *loader, uint64_t first, size_t n, void *stored,
                             float *out, np_error *err)
{
    const struct tensor *tensor = loader->tensor;
    TRY(modelfile_read(loader->file, tensor, first, n, stored, err));
    dequantize(tensor->dtype, stored, out, n);
    size_t bad = first_nonfinite(out, n);
    if (bad < n)
        return error_set(err, NP_ENUMERIC, tensor->name, NO_OFFSET,
                         "weight number %llu is not a finite number",
                         (unsigned long long)(first + bad));
    return NP_OK;
}

/* Row `row` of q or k as the model has it -> as GGUF's Llama stores it: halves interleaved. */
static size_t stored_row(const struct loader *loader, size_t row)
{
    if (!(loader->flags & WEIGHT_PERMUTED)) return row;
    size_t head_dim = loader->model->config.head_dim, half = head_dim / 2;
    size_t head = row / head_dim, i = row % head_dim;
    return head * head_dim + (i < half ? 2 * i : 2 * (i - half) + 1);
}

/* Rows [begin, begin + n) of the tensor, in the model's order, to out [n][cols]. */
static np_status read_rows(const struct loader *loader, size_t begin, size_t n, void *stored,
                           float *out, np_error *err)
{
    size_t cols = loader->cols;
    if (loader->whole) {
        for (size_t r = 0; r < n; r++)
            for (size_t k = 0; k < cols; k++)
                out[r * cols + k] = loader->whole[k * loader->rows + begin + r];
        return NP_OK;
    }
    if (!(loader->flags & WEIGHT_PERMUTED))
        return read_floats(loader, (uint64_t)begin * cols, n * cols, stored, out, err);
    for (size_t r = 0; r < n; r++)
        TRY(read_floats(loader, (uint64_t)stored_row(loader, begin + r) * cols, cols, stored,
                        out + r * cols, err));
    return NP_OK;
}

static void pack_task(void *ctx, int thread, int n_threads)
{
    struct loader *loader = ctx;
    size_t first_panel = loader->row0 / PANEL, begin, end;
    size_t n_panels = (loader->row0 + loader->rows + PANEL - 1) / PANEL - first_panel;
    float *stored = loader->scratch + (size_t)thread * loader->scratch_floats;
    float *values = stored + loader->scratch_floats / 2;
    np_error *err = &loader->errors[thread];
    pool_share(n_panels, thread, n_threads, &begin, &end);
    for (size_t p = first_panel + begin; p < first_panel + end && err->status == NP_OK; p++) {
        size_t n0 = p * PANEL, n1 = n0 + PANEL, last = loader->row0 + loader->rows;
        if (n0 < loader->row0) n0 = loader->row0;
        if (n1 > last) n1 = last;
        if (read_rows(loader, n0 - loader->row0, n1 - n0, stored, values, err) == NP_OK)
            matrix_pack_rows(loader->matrix, n0, n1 - n0, values, loader->cols);
    }
}

static np_status load_matrix(struct loader *loader, np_error *err)
{
    size_t n_bytes = loader->rows * loader->cols * sizeof(float);
    int n_threads = pool_n_threads(loader->pool);
    float *whole = NULL;
    np_status status = NP_OK;
    if (loader->flags & WEIGHT_TRANSPOSED) {
        void *stored = big_alloc(n_bytes);
        whole = big_alloc(n_bytes);
        if (!whole || !stored)
            status = error_nomem(err, loader->tensor->name, n_bytes);
        else
            status = read_floats(loader, 0, loader->rows * loader->cols, stored, whole, err);
        big_free(stored, n_bytes);
        if (status != NP_OK) goto done;
    }
    loader->whole = whole;
    memset(loader->errors, 0, (size_t)n_threads * sizeof *loader->errors);
    pool_run(loader->pool, pack_task, loader);
    for (int t = 0; t < n_threads && status == NP_OK; t++) {
        status = loader->errors[t].status;
        if (status != NP_OK && err) *err = loader->errors[t];
    }
done:
    big_free(whole, n_bytes);
    loader->whole = NULL;
    return status;
}

/* Biases and norm vectors; a vector's place is a pointer that gets its memory here. */
static np_status load_vector(struct loader *loader, float **place, np_error *err)
{
    size_t n = loader->rows * loader->cols;
    struct arena_mark mark = arena_mark(&loader->model->arena);
    float *values = loader->weight->kind == WEIGHT_BIAS
                        ? loader->matrix->bias + loader->row0
                        : arena_push_array(&loader->model->arena, n, sizeof(float));
    float *out = loader->flags & WEIGHT_PERMUTED
                     ? arena_push_array(&loader->model->arena, n, sizeof(float))
                     : values;
    size_t n_bytes = n * sizeof(float);
    void *stored = mem_alloc(n ? n : 1, sizeof(float));
    np_status status = NP_OK;
    if (!values || !out || !stored)
        status = error_nomem(err, loader->tensor->name, n_bytes);
    else
        status = read_floats(loader, 0, n, stored, out, err);
    if (status == NP_OK && out != values)
        for (size_t i = 0; i < n; i++) values[i] = out[stored_row(loader, i)];
    mem_free(stored);
    if (loader->weight->kind == WEIGHT_BIAS)
        arena_rewind(&loader->model->arena, mark);
    else
        *place = values;
    return status;
}

static np_status shape_error(const struct tensor *tensor, const char *expected, np_error *err)
{
    char given[64] = "";
    size_t n = 0;
    for (int i = 0; i < tensor->n_dims && n < sizeof given; i++)
        n += (size_t)snprintf(given + n, sizeof given - n, "%s%llu", i ? ", " : "",
                              (unsigned long long)tensor->shape[i]);
    error_set(err, NP_EFORMAT, tensor->name, NO_OFFSET, "the shape must be [%s]", expected);
    return error_given(err, NP_EFORMAT, "[%s]", given);
}

static np_status check_tensor(const struct loader *loader, np_error *err)
{
    const struct tensor *tensor = loader->tensor;
    bool transposed = loader->flags & WEIGHT_TRANSPOSED, flat = loader->weight->cols == X_ONE;
    size_t rows = transposed ? loader->cols : loader->rows;
    size_t cols = transposed ? loader->rows : loader->cols, in_row = flat ? rows : cols;
    char expected[64];
    if (tensor->dtype >= DT_COUNT) {
        error_set(err, NP_EUNSUPPORTED, tensor->name, NO_OFFSET,
                  "the element type is not supported");
        return error_given(err, NP_EUNSUPPORTED, "%s", tensor->type_name);
    }
    if (flat)
        snprintf(expected, sizeof expected, "%zu", rows);
    else
        snprintf(expected, sizeof expected, "%zu, %zu", rows, cols);
    if (tensor->n_dims != (flat ? 1 : 2) || tensor->shape[0] != rows ||
        (!flat && tensor->shape[1] != cols))
        return shape_error(tensor, expected, err);
    const struct dtype_info *info = &dtype_infos[tensor->dtype];
    if (in_row % info->block_elements != 0)
        return error_set(err, NP_EFORMAT, tensor->name, NO_OFFSET,
                         "a row of %zu elements is no multiple of the block of %u of type %s",
                         in_row, info->block_elements, info->name);
    return NP_OK;
}

/* Sets the loader on a weight and checks its tensor; no tensor where an optional one is missing. */
static np_status take_weight(struct loader *loader, const struct weight *weight, size_t layer,
                             np_error *err)
{
    bool gguf = modelfile_container(loader->file) == CONTAINER_GGUF;
    const char *pattern = gguf ? weight->gguf : weight->hf;
    loader->weight = weight;
    loader->flags = weight->flags & ~(gguf ? WEIGHT_TRANSPOSED : WEIGHT_PERMUTED);
    loader->row0 = loader->extents[weight->row0];
    loader->rows = loader->extents[weight->rows];
    loader->cols = loader->extents[weight->cols];
    loader->tensor = weight_find(loader->file, loader->arch, weight, layer);
    if (loader->tensor) return check_tensor(loader, err);
    if (weight->flags & WEIGHT_OPTIONAL) return NP_OK;
    return error_set(err, NP_EFORMAT, pattern, NO_OFFSET,
                     "the tensor is missing (of layer %zu, where the name has one)", layer);
}

/* All tensors against the settings: only then are the settings worth their memory. */
static np_status check_weights(struct loader *loader, size_t n_layers, np_error *err)
{
    const struct architecture *arch = loader->arch;
    for (const struct weight *w = arch->weights; w->hf; w++) TRY(take_weight(loader, w, 0, err));
    for (size_t i = 0; i < n_layers; i++)
        for (const struct weight *w = arch->layer_weights; w->hf; w++)
            TRY(take_weight(loader, w, i, err));
    return NP_OK;
}

static np_status load_weight(struct loader *loader, const struct weight *weight, size_t layer,
                             np_error *err)
{
    struct model *model = loader->model;
    bool of_layer = strstr(weight->hf, "%zu");
    char *base = of_layer ? (char *)&model->layers[layer] : (char *)model;
    TRY(take_weight(loader, weight, layer, err));
    if (!loader->tensor) return NP_OK;
    void *place = base + weight->place;
    loader->matrix = place;
    loader->used[loader->n_used++] = loader->tensor;
    model->n_parameters += loader->tensor->n_elements;
    return weight->kind == WEIGHT_MATRIX ? load_matrix(loader, err)
                                         : load_vector(loader, place, err);
}

static bool has_bias(const struct loader *loader, size_t place, size_t layer)
{
    for (const struct weight *w = loader->arch->layer_weights; w->hf; w++)
        if (w->kind == WEIGHT_BIAS && w->place == place &&
            weight_find(loader->file, loader->arch, w, layer))
            return true;
    return false;
}

static np_status init_matrices(struct loader *loader, np_error *err)
{
    struct model *model = loader->model;
    const size_t *x = loader->extents;
    const struct {
        size_t place, rows, cols;
    } shapes[] = {{offsetof(struct layer, qkv), x[X_QKV], x[X_DIM]},
                  {offsetof(struct layer, out), x[X_DIM], x[X_Q]},
                  {offsetof(struct layer, up),
                   x[model->config.ffn == FFN_SILU_GATED ? X_FFN2 : X_FFN], x[X_DIM]},
                  {offsetof(struct layer, down), x[X_DIM], x[X_FFN]}};
    for (size_t i = 0; i < model->config.n_layers; i++)
        for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++)
            TRY(matrix_init((struct matrix *)((char *)&model->layers[i] + shapes[j].place),
                            shapes[j].rows, shapes[j].cols, has_bias(loader, shapes[j].place, i),
                            err));
    TRY(matrix_init(&model->embedding, x[X_VOCAB], x[X_DIM], false, err));
    if (model->config.head_tied) return NP_OK;
    return matrix_init(&model->head, x[X_VOCAB], x[X_DIM], false, err);
}

/* Buffers that old checkpoints carry: constants, not weights. */
static bool is_buffer(const char *name)
{
    static const char *const endings[] = {".attn.bias", ".attn.masked_bias",
                                          ".rotary_emb.inv_freq"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t m = strlen(endings[i]);
        if (n >= m && strcmp(name + n - m, endings[i]) == 0) return true;
    }
    return false;
}

static np_status check_unused(const struct loader *loader, np_error *err)
{
    for (size_t i = 0; i < modelfile_n_tensors(loader->file); i++) {
        const struct tensor *tensor = modelfile_tensor(loader->file, i);
        size_t j = 0;
        while (j < loader->n_used && loader->used[j] != tensor) j++;
        if (j == loader->n_used && !is_buffer(tensor->name))
            return error_set(err, NP_EUNSUPPORTED, tensor->name, NO_OFFSET,
                             "the architecture \"%s\" has no place for this tensor",
                             loader->arch->name);
    }
    return NP_OK;
}

/* inv_freq as models were trained with it: exponent i/half as f32, the power rounded to f32, then
 * its f32 reciprocal. */
static np_status init_rope(struct model *model, np_error *err)
{
    size_t half = model->config.head_dim / 2;
    if (model->config.rope == ROPE_NONE) return NP_OK;
    model->inv_freq = arena_push_array(&model->arena, half, sizeof(float));
    if (!model->inv_freq) return error_nomem(err, "rope frequencies", half * sizeof(float));
    for (size_t i = 0; i < half; i++) {
        float exponent = (float)(2 * i) / (float)model->config.head_dim;
        model->inv_freq[i] = 1.0f / (float)pow64(model->config.rope_theta, (double)exponent);
    }
    return NP_OK;
}

static np_status load_all(struct loader *loader,
                          void (*progress)(void *user, size_t done, size_t total), void *user,
                          np_error *err)
{
    const struct architecture *arch = loader->arch;
    size_t total = modelfile_n_tensors(loader->file);
    TRY(init_matrices(loader, err));
    for (const struct weight *w = arch->weights; w->hf; w++) TRY(load_weight(loader, w, 0, err));
    for (size_t i = 0; i < loader->model->config.n_layers; i++) {
        for (const struct weight *w = arch->layer_weights; w->hf; w++)
            TRY(load_weight(loader, w, i, err));
        if (progress) progress(user, loader->n_used < total ? loader->n_used : total, total);
    }
    TRY(check_unused(loader, err));
    return init_rope(loader->model, err);
}

np_status model_load(const struct modelfile *file, const struct model_config *config,
                     const struct kernels *kernels, struct pool *pool,
                     void (*progress)(void *user, size_t done, size_t total), void *progress_user,
                     struct model **out, np_error *err)
{
    struct loader loader = {.file = file, .pool = pool};
    size_t n_threads = (size_t)pool_n_threads(pool), scratch_bytes = 0, max_tensors = 0;
    np_status status;
    *out = NULL;
    loader.arch = architecture_of(file, err);
    if (!loader.arch) return err ? err->status : NP_EUNSUPPORTED;
    extents_of(config, loader.extents);
    TRY(check_weights(&loader, config->n_layers, err));
    size_t max_cols = config->ffn_dim;
    if (max_cols < config->dim) max_cols = config->dim;
    if (max_cols < loader.extents[X_Q]) max_cols = loader.extents[X_Q];
    loader.scratch_floats = 2 * PANEL * max_cols;
    scratch_bytes = n_threads * loader.scratch_floats * sizeof(float);
    max_tensors = 32 * (config->n_layers + 1);

    loader.model = mem_alloc(1, sizeof *loader.model);
    loader.errors = mem_alloc(n_threads, sizeof *loader.errors);
    loader.used = mem_alloc(max_tensors, sizeof(struct tensor *));
    loader.scratch = big_alloc(scratch_bytes);
    if (!loader.model || !loader.errors || !loader.used || !loader.scratch) {
        status = error_nomem(err, "loader", scratch_bytes);
        goto done;
    }
    arena_init(&loader.model->arena, SIZE_MAX);
    loader.model->config = *config;
    loader.model->kernels = kernels;
    loader.model->weight_bytes = model_weight_bytes(config);
    loader.model->layers =
        arena_push_array(&loader.model->arena, config->n_layers, sizeof(struct layer));
    if (!loader.model->layers)
        status = error_nomem(err, "layers", config->n_layers);
    else
        status = load_all(&loader, progress, progress_user, err);
done:
    big_free(loader.scratch, scratch_bytes);
    mem_free(loader.errors);
    mem_free(loader.used);
    if (status == NP_OK)
        *out = loader.model;
    else
        model_free(loader.model);
    return status;
}

void model_free(struct model *model)
{
    if (!model) return;
    for (size_t i = 0; model->layers && i < model->config.n_layers; i++) {
        matrix_free(&model->layers[i].qkv);
        matrix_free(&model->layers[i].out);
        matrix_free(&model->layers[i].up);
        matrix_free(&model->layers[i].down);
    }
    matrix_free(&model->embedding);
    matrix_free(&model->head);
    arena_free(&model->arena);
    mem_free(model);
}
