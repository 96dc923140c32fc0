/*
 * load.c - tensors of a file, one after another, into packed matrices.
 *
 * Threads take whole panels of 64 rows: each reads the stored rows of its panels and moves their
 * bits to their places, so no more than a panel's rows per thread is in memory beside the model.
 * GPT-2's transposed matrices go by blocks of 64 stored rows instead, a block of k of every panel.
 * All panels lie in one allocation whose size is known before the first is read.
 */
#include "model/arch.h"
#include "tensor/bits.h"

#include <stddef.h>
#include <stdio.h>

#define SCRATCH_LIMIT_BYTES ((size_t)32 << 20) /* of all threads together */

struct loader {
    const struct modelfile *file;
    const struct architecture *arch;
    struct model *model;
    struct pool *pool;
    enum profile profile;
    size_t extents[X_COUNT];
    const struct tensor **used;
    size_t n_used;
    /* the tensor at hand */
    const struct tensor *tensor;
    const struct weight *weight;
    struct matrix *matrix;
    size_t rows, cols;
    unsigned flags;
    size_t used_bytes; /* of the panels */
    /* per thread: stored bytes of 64 rows, then one row of f32 */
    uint8_t *scratch;
    size_t stored_bytes, scratch_bytes;
    int n_loaders;
    np_error *errors;
};

static uint64_t bytes_of(enum dtype dtype, uint64_t n_elements)
{
    return n_elements / dtype_infos[dtype].block_elements * dtype_infos[dtype].block_bytes;
}

/* n stored weights as f32, each of them finite; `first`: the number of the first in its tensor. */
static np_status expand(const struct tensor *tensor, const void *stored, uint64_t first, size_t n,
                        float *out, np_error *err)
{
    dequantize(tensor->dtype, stored, out, n);
    size_t bad = first_nonfinite(out, n);
    if (bad == n) return NP_OK;
    return error_set(err, NP_ENUMERIC, tensor->name, NO_OFFSET,
                     "weight number %llu is not a finite number",
                     (unsigned long long)(first + bad));
}

/* Row `row` of q or k as the model has it -> as GGUF's Llama stores it: halves interleaved. */
static size_t stored_row(const struct loader *loader, size_t row)
{
    if (!(loader->flags & WEIGHT_PERMUTED)) return row;
    size_t head_dim = loader->model->config.head_dim, half = head_dim / 2;
    size_t head = row / head_dim, i = row % head_dim;
    return head * head_dim + (i < half ? 2 * i : 2 * (i - half) + 1);
}

/* Packs n_k stored elements as row n of the matrix from k0 on, rounded where the profile asks for
 * bf16: in place, at half the size. */
static void put_row(const struct loader *loader, size_t n, size_t k0, size_t n_k,
                    const void *stored, float *values)
{
    if (loader->matrix->profile == PROFILE_BF16) {
        for (size_t k = 0; k < n_k; k++) {
            uint16_t rounded = (uint16_t)bf16_bits(values[k]);
            memcpy((char *)values + 2 * k, &rounded, sizeof rounded);
        }
        stored = values;
    }
    matrix_put(loader->matrix, n, k0, n_k, stored);
}

static np_status read_stored(const struct loader *loader, uint64_t row, size_t n_rows,
                             size_t row_elements, void *out, np_error *err)
{
    return modelfile_read(loader->file, loader->tensor, row * row_elements,
                          (uint64_t)n_rows * row_elements, out, err);
}

/* Rows [n0, n1) of one panel. */
static np_status pack_panel(const struct loader *loader, size_t n0, size_t n1, uint8_t *stored,
                            float *values, np_error *err)
{
    size_t cols = loader->cols, row_bytes = bytes_of(loader->tensor->dtype, cols);
    bool permuted = loader->flags & WEIGHT_PERMUTED;
    if (!permuted) TRY(read_stored(loader, n0, n1 - n0, cols, stored, err));
    for (size_t n = n0; n < n1; n++) {
        uint64_t row = stored_row(loader, n);
        uint8_t *bytes = stored + (permuted ? 0 : (n - n0) * row_bytes);
        if (permuted) TRY(read_stored(loader, row, 1, cols, bytes, err));
        TRY(expand(loader->tensor, bytes, row * cols, cols, values, err));
        put_row(loader, n, 0, cols, bytes, values);
    }
    return NP_OK;
}

/* Stored rows [k0, k1) of a transposed matrix: k0 to k1 of every row of ours. Its types have one
 * element per block. */
static np_status pack_block(const struct loader *loader, size_t k0, size_t k1, uint8_t *stored,
                            float *values, np_error *err)
{
    size_t rows = loader->rows, size = dtype_infos[loader->tensor->dtype].block_bytes;
    uint8_t column[KBLOCK * sizeof(float)];
    TRY(read_stored(loader, k0, k1 - k0, rows, stored, err));
    for (size_t n = 0; n < rows; n++) {
        for (size_t k = 0; k < k1 - k0; k++)
            memcpy(column + k * size, stored + (k * rows + n) * size, size);
        np_status status = expand(loader->tensor, column, 0, k1 - k0, values, err);
        if (status != NP_OK)
            return error_set(err, status, loader->tensor->name, NO_OFFSET,
                             "a weight of column %zu is not a finite number", n);
        put_row(loader, n, k0, k1 - k0, column, values);
    }
    return NP_OK;
}

static void pack_task(void *ctx, int thread, int n_threads)
{
    struct loader *loader = ctx;
    bool transposed = loader->flags & WEIGHT_TRANSPOSED;
    size_t extent = transposed ? loader->cols : loader->rows, begin, end;
    size_t each = transposed ? KBLOCK : PANEL;
    if (thread >= loader->n_loaders) return;
    uint8_t *stored = loader->scratch + (size_t)thread * loader->scratch_bytes;
    float *values = (float *)(void *)(stored + loader->stored_bytes);
    np_error *err = &loader->errors[thread];
    pool_share((extent + each - 1) / each, thread, loader->n_loaders, &begin, &end);
    for (size_t i = begin; i < end && err->status == NP_OK; i++) {
        size_t from = i * each, to = from + each < extent ? from + each : extent;
        if (transposed)
            pack_block(loader, from, to, stored, values, err);
        else
            pack_panel(loader, from, to, stored, values, err);
    }
}

/* How a matrix is stored and computed with. */
static struct matrix matrix_of(const struct loader *loader)
{
    enum dtype dtype = loader->tensor->dtype;
    bool cells = dtype_has_cells(dtype), bf16 = loader->profile == PROFILE_BF16;
    return (struct matrix){.dtype = bf16 ? DT_BF16 : dtype,
                           .profile = bf16                                        ? PROFILE_BF16
                                      : cells && loader->profile == PROFILE_INT16 ? PROFILE_INT16
                                                                                  : PROFILE_F32,
                           .N = loader->rows,
                           .K = loader->cols};
}

static np_status load_matrix(struct loader *loader, np_error *err)
{
    struct matrix *matrix = loader->matrix;
    const float *bias = matrix->bias; /* whichever of the two the table names first */
    *matrix = matrix_of(loader);
    matrix->bias = bias;
    loader->model->rounded |= matrix->dtype != loader->tensor->dtype;
    matrix->panels = loader->model->panels + loader->used_bytes;
    loader->used_bytes += matrix_bytes(matrix->dtype, matrix->N, matrix->K);
    memset(loader->errors, 0, (size_t)loader->n_loaders * sizeof *loader->errors);
    pool_run(loader->pool, pack_task, loader);
    for (int t = 0; t < loader->n_loaders; t++)
        if (loader->errors[t].status != NP_OK) {
            if (err) *err = loader->errors[t];
            return loader->errors[t].status;
        }
    return NP_OK;
}

/* Biases and norm vectors, in the model's arena. */
static np_status load_vector(struct loader *loader, float **place, np_error *err)
{
    size_t n = loader->rows * loader->cols;
    bool permuted = loader->flags & WEIGHT_PERMUTED;
    float *values = arena_push_array(&loader->model->arena, n, sizeof(float));
    struct arena_mark mark = arena_mark(&loader->model->arena);
    float *out = permuted ? arena_push_array(&loader->model->arena, n, sizeof(float)) : values;
    void *stored = mem_alloc(n ? n : 1, sizeof(float));
    np_status status = NP_OK;
    if (!values || !out || !stored)
        status = error_nomem(err, loader->tensor->name, n * sizeof(float));
    else
        status = read_stored(loader, 0, 1, n, stored, err);
    if (status == NP_OK) status = expand(loader->tensor, stored, 0, n, out, err);
    if (status == NP_OK && permuted)
        for (size_t i = 0; i < n; i++) values[i] = out[stored_row(loader, i)];
    mem_free(stored);
    arena_rewind(&loader->model->arena, mark);
    if (loader->weight->kind == WEIGHT_BIAS)
        loader->matrix->bias = values;
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
    loader->rows = loader->extents[weight->rows];
    loader->cols = loader->extents[weight->cols];
    loader->tensor = weight_find(loader->file, loader->arch, weight, layer);
    if (loader->tensor) return check_tensor(loader, err);
    if (weight->flags & WEIGHT_OPTIONAL) return NP_OK;
    return error_set(err, NP_EFORMAT, pattern, NO_OFFSET,
                     "the tensor is missing (of layer %zu, where the name has one)", layer);
}

/* What all weights will need. */
struct plan_bytes {
    uint64_t panels, vectors;
    size_t stored, row; /* of 64 rows as stored; of one row in f32: the largest */
    const struct tensor *quantised;
};

static void plan_weight(struct loader *loader, struct plan_bytes *plan)
{
    const struct tensor *tensor = loader->tensor;
    if (!tensor) return;
    if (loader->weight->kind != WEIGHT_MATRIX) {
        plan->vectors += tensor->n_elements * sizeof(float);
        return;
    }
    struct matrix matrix = matrix_of(loader);
    plan->panels += matrix_bytes(matrix.dtype, matrix.N, matrix.K);
    size_t in_row = loader->flags & WEIGHT_TRANSPOSED ? loader->rows : loader->cols;
    size_t stored = PANEL * bytes_of(tensor->dtype, in_row), row = loader->cols * sizeof(float);
    plan->stored = plan->stored > stored ? plan->stored : stored;
    plan->row = plan->row > row ? plan->row : row;
    if (!plan->quantised && dtype_has_cells(tensor->dtype)) plan->quantised = tensor;
}

/* All tensors against the settings: only then are the settings worth their memory. */
static np_status plan_weights(struct loader *loader, size_t n_layers, struct plan_bytes *plan,
                              np_error *err)
{
    const struct architecture *arch = loader->arch;
    *plan = (struct plan_bytes){0};
    for (const struct weight *w = arch->weights; w->hf; w++) {
        TRY(take_weight(loader, w, 0, err));
        plan_weight(loader, plan);
    }
    for (size_t i = 0; i < n_layers; i++)
        for (const struct weight *w = arch->layer_weights; w->hf; w++) {
            TRY(take_weight(loader, w, i, err));
            plan_weight(loader, plan);
        }
    if (loader->profile == PROFILE_BF16 && plan->quantised)
        return error_set(err, NP_EINPUT, "profile", NO_OFFSET,
                         "bf16 is for weights of BF16, F16 and F32; this file holds %s (use f32 "
                         "or int16)",
                         plan->quantised->type_name);
    if (loader->profile == PROFILE_INT16 && !plan->quantised)
        return error_set(err, NP_EINPUT, "profile", NO_OFFSET,
                         "int16 is for quantised weights; this file has none (use f32 or bf16)");
    return NP_OK;
}

np_status model_weight_bytes(const struct modelfile *file, const struct model_config *config,
                             enum profile profile, uint64_t *n_bytes, np_error *err)
{
    struct loader loader = {.file = file, .profile = profile, .arch = architecture_of(file, err)};
    struct plan_bytes plan;
    if (!loader.arch) return err ? err->status : NP_EUNSUPPORTED;
    extents_of(config, loader.extents);
    TRY(plan_weights(&loader, config->n_layers, &plan, err));
    *n_bytes = plan.panels + plan.vectors;
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
    for (const struct weight *w = arch->weights; w->hf; w++) TRY(load_weight(loader, w, 0, err));
    for (size_t i = 0; i < loader->model->config.n_layers; i++) {
        for (const struct weight *w = arch->layer_weights; w->hf; w++)
            TRY(load_weight(loader, w, i, err));
        if (progress) progress(user, loader->n_used < total ? loader->n_used : total, total);
    }
    TRY(check_unused(loader, err));
    return init_rope(loader->model, err);
}

/* As many threads as have room for a panel's rows each. */
static size_t plan_scratch(struct loader *loader, const struct plan_bytes *plan)
{
    loader->stored_bytes = (plan->stored + 63) / 64 * 64;
    loader->scratch_bytes = loader->stored_bytes + (plan->row + 63) / 64 * 64;
    size_t most = SCRATCH_LIMIT_BYTES / loader->scratch_bytes,
           n = (size_t)pool_n_threads(loader->pool);
    n = n < most ? n : most ? most : 1;
    loader->n_loaders = (int)n;
    return n * loader->scratch_bytes;
}

static np_status open_model(struct loader *loader, const struct model_config *config,
                            const struct kernels *kernels, const struct plan_bytes *plan,
                            np_error *err)
{
    struct model *model = loader->model = mem_alloc(1, sizeof *loader->model);
    if (!model) return error_nomem(err, "model", sizeof *model);
    arena_init(&model->arena, SIZE_MAX);
    model->config = *config;
    model->kv = kv_shape_of(config->n_layers, config->n_kv_heads, config->head_dim, config->dim);
    model->kernels = kernels;
    model->profile = loader->profile;
    model->weight_bytes = plan->panels + plan->vectors;
    model->panel_bytes = plan->panels;
    model->layers = arena_push_array(&model->arena, config->n_layers, sizeof(struct layer));
    if (!model->layers) return error_nomem(err, "layers", config->n_layers);
    model->panels = big_alloc(plan->panels);
    return model->panels ? NP_OK : error_nomem(err, "weights", plan->panels);
}

np_status model_load(const struct modelfile *file, const struct model_config *config,
                     enum profile profile, const struct kernels *kernels, struct pool *pool,
                     void (*progress)(void *user, size_t done, size_t total), void *progress_user,
                     struct model **out, np_error *err)
{
    struct loader loader = {.file = file, .pool = pool, .profile = profile};
    struct plan_bytes plan;
    np_status status;
    *out = NULL;
    loader.arch = architecture_of(file, err);
    if (!loader.arch) return err ? err->status : NP_EUNSUPPORTED;
    extents_of(config, loader.extents);
    TRY(plan_weights(&loader, config->n_layers, &plan, err));
    size_t scratch_bytes = plan_scratch(&loader, &plan);
    loader.errors = mem_alloc((size_t)loader.n_loaders, sizeof *loader.errors);
    loader.used = mem_alloc(32 * (config->n_layers + 1), sizeof(struct tensor *));
    loader.scratch = big_alloc(scratch_bytes);
    if (!loader.errors || !loader.used || !loader.scratch)
        status = error_nomem(err, "loader", scratch_bytes);
    else
        status = open_model(&loader, config, kernels, &plan, err);
    if (status == NP_OK) status = load_all(&loader, progress, progress_user, err);
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
    big_free(model->panels, model->panel_bytes);
    arena_free(&model->arena);
    mem_free(model);
}
