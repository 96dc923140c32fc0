/*
 * engine.c - opens the parts of an engine within a memory plan.
 *
 * The plan is made before anything is taken: weights + work space + head + hidden rows + key/value
 * pages. Pages are then taken as sequences need them, up to what the plan leaves.
 */
#include "engine/steps.h"

#include <pthread.h>

static np_status memory_error(np_error *err, size_t max_memory, uint64_t weights, uint64_t work,
                              uint64_t pages, size_t n_context)
{
    return error_set(err, NP_ELIMIT, "max_memory", NO_OFFSET,
                     "%zu bytes are allowed; needed are %llu for weights + %llu for work space + "
                     "%llu for keys and values of %zu tokens = %llu",
                     max_memory, (unsigned long long)weights, (unsigned long long)work,
                     (unsigned long long)pages, n_context,
                     (unsigned long long)(weights + work + pages));
}

static np_status plan_memory(struct engine *engine, size_t max_memory, np_error *err)
{
    const struct model_config *config = &engine->model->config;
    uint64_t weights = engine->model->weight_bytes, page = kv_page_bytes(config);
    uint64_t work =
        workspace_bytes(config, engine->chunk_rows, engine->n_context, engine->n_threads) +
        head_space_bytes(config->n_vocab, config->dim, engine->chunk_rows, 0, engine->n_threads) +
        (uint64_t)engine->chunk_rows * config->dim * sizeof(float);
    uint64_t least = (engine->n_context + PANEL - 1) / PANEL;
    engine->max_pages = SIZE_MAX;
    if (max_memory == 0) return NP_OK;
    if (weights + work + least * page > max_memory)
        return memory_error(err, max_memory, weights, work, least * page, engine->n_context);
    engine->max_pages = (size_t)((max_memory - weights - work) / page);
    return NP_OK;
}

static np_status take_limits(struct engine *engine, const struct engine_limits *limits,
                             np_error *err)
{
    size_t model_context = engine->model->config.n_context;
    int cores = cpu_count();
    engine->n_threads = limits->n_threads > 0 ? limits->n_threads : cores;
    if (engine->n_threads > cores && !limits->oversubscribe) engine->n_threads = cores;
    engine->n_context = limits->n_context ? limits->n_context : model_context;
    engine->chunk_rows = limits->chunk_rows ? limits->chunk_rows : ENGINE_CHUNK_ROWS;
    if (engine->n_context > model_context) {
        error_set(err, NP_EINPUT, "context", NO_OFFSET,
                  "the model was trained for at most %zu tokens", model_context);
        return error_given(err, NP_EINPUT, "%zu", engine->n_context);
    }
    if (engine->chunk_rows > ENGINE_MAX_CHUNK_ROWS)
        return error_set(err, NP_EINPUT, "chunk_rows", NO_OFFSET, "at most %d rows are allowed",
                         ENGINE_MAX_CHUNK_ROWS);
    return NP_OK;
}

/* The buffers of a step, all of chunk_rows entries. */
static np_status take_buffers(struct engine *engine, np_error *err)
{
    size_t rows = engine->chunk_rows, hidden = rows * engine->model->config.dim;
    const struct {
        void *place;
        size_t count, size_bytes;
    } buffers[] = {{&engine->ids, rows, sizeof(int32_t)},
                   {&engine->bad, rows, sizeof(int32_t)},
                   {&engine->runs, rows, sizeof(struct run)},
                   {&engine->run_jobs, rows, sizeof(size_t)},
                   {&engine->head_rows, rows, sizeof(struct head_row)},
                   {&engine->row_jobs, rows, sizeof(size_t)},
                   {&engine->seqs, rows, sizeof(struct kv_seq)},
                   {&engine->hidden, hidden, sizeof(float)}};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        void *memory = arena_push_array(&engine->arena, buffers[i].count, buffers[i].size_bytes);
        if (!memory)
            return error_nomem(err, "step buffers", buffers[i].count * buffers[i].size_bytes);
        memcpy(buffers[i].place, &memory, sizeof memory);
    }
    return NP_OK;
}

static np_status open_parts(struct engine *engine, const struct engine_limits *limits,
                            np_error *err)
{
    const struct model_config *config = &engine->model->config;
    TRY(take_limits(engine, limits, err));
    TRY(plan_memory(engine, limits->max_memory, err));
    TRY(pool_open(&engine->pool, engine->n_threads, err));
    TRY(kv_pool_init(&engine->kv, config, engine->max_pages, err));
    TRY(workspace_open(engine->model, engine->chunk_rows, engine->n_context, engine->n_threads,
                       &engine->workspace, err));
    TRY(head_space_open(config->n_vocab, config->dim, engine->chunk_rows, 0, engine->n_threads,
                        &engine->head_space, err));
    return take_buffers(engine, err);
}

np_status engine_open(const struct model *model, const struct engine_limits *limits,
                      struct engine **out, np_error *err)
{
    struct engine *engine = mem_alloc(1, sizeof *engine);
    *out = NULL;
    if (!engine) return error_nomem(err, "engine", sizeof *engine);
    engine->model = model;
    arena_init(&engine->arena, SIZE_MAX);
    pthread_mutex_init(&engine->door, NULL);
    np_status status = open_parts(engine, limits, err);
    if (status == NP_OK)
        *out = engine;
    else
        engine_close(engine);
    return status;
}

void engine_close(struct engine *engine)
{
    if (!engine) return;
    head_space_close(engine->head_space);
    workspace_close(engine->workspace);
    kv_pool_free(&engine->kv);
    if (engine->pool) pool_close(engine->pool);
    arena_free(&engine->arena);
    pthread_mutex_destroy(&engine->door);
    mem_free(engine);
}

void engine_cancel(struct engine *engine)
{
    atomic_store(&engine->cancel, 1);
}

size_t engine_n_context(const struct engine *engine)
{
    return engine->n_context;
}
