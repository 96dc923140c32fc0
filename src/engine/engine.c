/*
 * engine.c - opens the parts of an engine within a memory plan.
 *
 * The plan is made before anything is taken: weights + work space + head + the pages of one
 * sequence of the whole context, and two more for a page that takes over the beginning of another:
 * while it is made, the one that the sequence had and the other are still there. Further pages are
 * taken as jobs need them, up to what the plan leaves; the cache is a part of those. Without a
 * limit they end where three quarters of the machine's memory are taken: then jobs wait or are
 * preempted.
 */
#include "engine/state.h"

#include <signal.h>
#include <unistd.h>

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

static uint64_t machine_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : UINT64_MAX;
}

static np_status plan_memory(struct engine *engine, size_t max_memory, np_error *err)
{
    const struct model_config *config = &engine->model->config;
    uint64_t weights = engine->model->weight_bytes, page = kv_page_bytes(&engine->model->kv);
    uint64_t work =
        workspace_bytes(config, engine->chunk_rows, engine->n_context, engine->n_threads) +
        head_space_bytes(config->n_vocab, config->dim, engine->chunk_rows, 0, engine->n_threads);
    work += generate_bytes(config->n_vocab, engine->n_threads);
    uint64_t least = kv_pages(engine->n_context) + 2;
    if (max_memory == 0) {
        uint64_t most = machine_bytes() / 4 * 3, taken = weights + work;
        engine->max_pages = (size_t)((most > taken ? most - taken : 0) / page);
        if (engine->max_pages < least) engine->max_pages = (size_t)least;
        return NP_OK;
    }
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
    const struct model_config *c = &engine->model->config;
    size_t width = c->n_heads * c->head_dim, n_matrices = c->dim * 2 * width;
    n_matrices += c->dim * 2 * c->n_kv_heads * c->head_dim + 3 * c->dim * c->ffn_dim;
    engine->deep = n_matrices / (2 * width) + 1; /* keys whose attention costs as much */
    engine->max_cost = engine->chunk_rows * engine->deep * 3 / 2;
    size_t cache_memory = limits->cache_memory ? limits->cache_memory : ENGINE_CACHE_BYTES;
    if (limits->no_cache) cache_memory = 0;
    engine->max_cached = cache_memory / kv_page_bytes(&engine->model->kv);
    engine->stats.page_bytes = kv_page_bytes(&engine->model->kv);
    engine->stats.cache_bytes = cache_memory;
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
    size_t rows = engine->chunk_rows;
    const struct {
        void *place;
        size_t count, size_bytes;
    } buffers[] = {{&engine->ids, rows, sizeof(int32_t)},
                   {&engine->wanted, rows, sizeof(bool)},
                   {&engine->runs, rows, sizeof(struct run)},
                   {&engine->run_jobs, rows, sizeof(struct job *)},
                   {&engine->copies, rows, sizeof(struct page_copy)},
                   {&engine->copy_nodes, 2 * rows, sizeof(struct node *)},
                   {&engine->members, rows, sizeof(struct job *)},
                   {&engine->head_rows, rows, sizeof(struct head_row)},
                   {&engine->row_jobs, rows, sizeof(struct job *)},
                   {&engine->row_nodes, rows, sizeof(struct node *)},
                   {&engine->bad, rows, sizeof(int32_t)}};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        void *memory = arena_push_array(&engine->arena, buffers[i].count, buffers[i].size_bytes);
        if (!memory)
            return error_nomem(err, "step buffers", buffers[i].count * buffers[i].size_bytes);
        memcpy(buffers[i].place, &memory, sizeof memory);
    }
    return NP_OK;
}

/* Its own thread; signals never arrive there. */
static np_status start_thread(struct engine *engine, np_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&engine->thread, NULL, queue_thread, engine);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) return error_set(err, NP_ENOMEM, "threads", NO_OFFSET, "no thread can be had");
    engine->has_thread = true;
    return NP_OK;
}

static np_status open_parts(struct engine *engine, const struct engine_limits *limits,
                            np_error *err)
{
    const struct model_config *config = &engine->model->config;
    TRY(take_limits(engine, limits, err));
    TRY(plan_memory(engine, limits->max_memory, err));
    TRY(pool_open(&engine->pool, engine->n_threads, err));
    TRY(workspace_open(engine->model, engine->chunk_rows, engine->n_context, engine->n_threads,
                       &engine->workspace, err));
    TRY(head_space_open(config->n_vocab, config->dim, engine->chunk_rows, 0, engine->n_threads,
                        &engine->head_space, err));
    TRY(take_buffers(engine, err));
    TRY(generate_open(engine, err));
    tree_init(&engine->tree, &engine->model->kv, engine->max_pages, engine->max_cached);
    return start_thread(engine, err);
}

np_status engine_open(const struct model *model, const struct engine_limits *limits,
                      struct engine **out, np_error *err)
{
    struct engine *engine = mem_alloc(1, sizeof *engine);
    *out = NULL;
    if (!engine) return error_nomem(err, "engine", sizeof *engine);
    engine->model = model;
    arena_init(&engine->arena, SIZE_MAX);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->work, NULL);
    pthread_cond_init(&engine->errand_done, NULL);
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
    if (engine->has_thread) {
        pthread_mutex_lock(&engine->lock);
        engine->closing = true;
        pthread_cond_signal(&engine->work);
        pthread_mutex_unlock(&engine->lock);
        pthread_join(engine->thread, NULL);
    }
    tree_free(&engine->tree);
    head_space_close(engine->head_space);
    workspace_close(engine->workspace);
    if (engine->pool) pool_close(engine->pool);
    arena_free(&engine->arena);
    pthread_cond_destroy(&engine->errand_done);
    pthread_cond_destroy(&engine->work);
    pthread_mutex_destroy(&engine->lock);
    mem_free(engine);
}

size_t engine_n_context(const struct engine *engine)
{
    return engine->n_context;
}
