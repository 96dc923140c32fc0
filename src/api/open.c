/*
 * open.c - models and engines: from a path to packed weights, and what they are.
 *
 * The order matters: settings and tokenizer are read and the memory is planned before the first
 * weight is, so that whatever cannot work is refused within milliseconds.
 */
#include "api/handles.h"

#include <stdio.h>

const char *np_version(void)
{
    return NP_VERSION;
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
const char *np_numerics(void)
{
    return TEXT(NUMERICS);
}

/* "Q4_1 x 210, F32 x 61" */
static void describe_types(const struct modelfile *file, char *out, size_t n_bytes)
{
    size_t counts[DT_COUNT] = {0}, n = 0;
    for (size_t i = 0; i < modelfile_n_tensors(file); i++) {
        enum dtype dtype = modelfile_tensor(file, i)->dtype;
        if (dtype < DT_COUNT) counts[dtype]++;
    }
    out[0] = 0;
    for (size_t t = 0; t < DT_COUNT && n < n_bytes; t++)
        if (counts[t])
            n += (size_t)snprintf(out + n, n_bytes - n, "%s%s x %zu", n ? ", " : "",
                                  dtype_infos[t].name, counts[t]);
}

static np_status describe(np_model *model, const struct modelfile *file, const char *path,
                          np_error *err)
{
    bool gguf = modelfile_container(file) == CONTAINER_GGUF;
    const struct setting *name = modelfile_get(file, gguf ? "general.name" : "_name_or_path");
    const struct setting *chat = modelfile_get(file, "tokenizer.chat_template");
    bool has_name = name && name->type == SETTING_STRING;
    model->container = arena_strndup(&model->arena, gguf ? "gguf" : "safetensors", gguf ? 4 : 11);
    model->path = arena_strndup(&model->arena, path, strlen(path));
    model->name = arena_strndup(&model->arena, has_name ? name->text.bytes : "",
                                has_name ? name->text.n_bytes : 0);
    if (!model->container || !model->path || !model->name) return error_nomem(err, "model", 0);
    model->has_chat_template = chat && chat->type == SETTING_STRING;
    describe_types(file, model->weight_types, sizeof model->weight_types);
    return NP_OK;
}

static const char *const profile_names[PROFILES] = {"f32", "bf16", "int16"};

/* PROFILES where there is none of that name. */
static enum profile profile_of(const char *name)
{
    enum profile profile = PROFILE_F32;
    while (name && profile < PROFILES && strcmp(name, profile_names[profile]) != 0) profile++;
    return profile;
}

static np_status check_options(const np_model_options *options, np_error *err)
{
    if (profile_of(options->profile) == PROFILES) {
        error_set(err, NP_EINPUT, "profile", NO_OFFSET, "allowed are f32, bf16 and int16");
        return error_given(err, NP_EINPUT, "%s", options->profile);
    }
    if (options->n_threads < 0) {
        error_set(err, NP_EINPUT, "threads", NO_OFFSET, "a positive number is expected, or 0");
        return error_given(err, NP_EINPUT, "%d", options->n_threads);
    }
    return NP_OK;
}

/* A vocabulary that is shorter than the embedding is padding; a longer one cannot be scored. */
static np_status check_vocabulary(const np_model *model, const struct model_config *config,
                                  np_error *err)
{
    int32_t n = model->tokenizer ? tokenizer_n_vocab(model->tokenizer) : 0;
    if ((size_t)n <= config->n_vocab) return NP_OK;
    return error_set(err, NP_EFORMAT, model->path, NO_OFFSET,
                     "the tokenizer has %d tokens, the embedding only %zu rows", (int)n,
                     config->n_vocab);
}

static np_status load(np_model *model, const struct modelfile *file,
                      const np_model_options *options, np_error *err)
{
    struct model_config config;
    struct pool *pool = NULL;
    int n_threads =
        options->n_threads && options->n_threads < cpu_count() ? options->n_threads : cpu_count();
    TRY(model_configure(file, &config, err));
    TRY(tokenizer_open(file, &model->tokenizer, err));
    TRY(chat_open(model, err));
    TRY(check_vocabulary(model, &config, err));
    enum profile profile = profile_of(options->profile);
    uint64_t weights;
    TRY(model_weight_bytes(file, &config, profile, &weights, err));
    if (options->max_memory && weights > options->max_memory)
        return error_set(err, NP_ELIMIT, "max_memory", NO_OFFSET,
                         "%zu bytes are allowed; the weights alone need %llu", options->max_memory,
                         (unsigned long long)weights);
    TRY(pool_open(&pool, n_threads, err));
    np_status status = model_load(file, &config, profile, kernels_get(model->level), pool,
                                  options->progress, options->progress_user, &model->model, err);
    pool_close(pool);
    return status;
}

/* The level, why it was chosen, and what was found where it had to be tried. */
static np_status choose_level(np_model *model, const char *wanted, np_error *err)
{
    const char *why, *found = "";
    TRY(cpu_choose(wanted, &model->level, &why, err));
    const struct kernels *kernels = kernels_get(model->level);
    if (kernels->level == CPU_AVX512BF16)
        found = kernels->gemm[PROFILE_BF16] == kernels->gemm[PROFILE_F32]
                    ? "; bf16 by FMA, since its VDPBF16PS adds in another order"
                    : "; bf16 by VDPBF16PS";
    snprintf(model->cpu_reason, sizeof model->cpu_reason, "%s%s", why, found);
    return NP_OK;
}

/* Not inlined: no arithmetic may move across fpenv_enter and fpenv_leave. */
__attribute__((noinline)) static np_status open_model(const char *path,
                                                      const np_model_options *options,
                                                      np_model **out, np_error *err)
{
    struct modelfile *file = NULL;
    np_model *model = NULL;
    np_status status;
    if (!(model = mem_alloc(1, sizeof *model))) return error_nomem(err, "model", sizeof *model);
    arena_init(&model->arena, SIZE_MAX);
    if ((status = choose_level(model, options->cpu, err)) != NP_OK) goto done;
    if ((status = modelfile_open(path, &file, err)) != NP_OK) goto done;
    if ((status = describe(model, file, path, err)) != NP_OK) goto done;
    status = load(model, file, options, err);
done:
    modelfile_close(file);
    if (status == NP_OK)
        *out = model;
    else
        np_model_close(model);
    return status;
}

/* The numbers of a config.json are rounded too when they are read. */
np_status np_model_open(const char *path, const np_model_options *options, np_model **out,
                        np_error *err)
{
    static const np_model_options defaults;
    TRY(need_pointer(out, "out", err));
    *out = NULL;
    if (err) memset(err, 0, sizeof *err);
    if (!options) options = &defaults;
    if (!path) return error_set(err, NP_EINPUT, "path", NO_OFFSET, "no model was named");
    TRY(check_options(options, err));
    struct fpenv saved = fpenv_enter();
    np_status status = open_model(path, options, out, err);
    fpenv_leave(saved);
    return status;
}

void np_model_close(np_model *model)
{
    if (!model) return;
    model_free(model->model);
    chat_close(model);
    tokenizer_close(model->tokenizer);
    arena_free(&model->arena);
    mem_free(model);
}

np_info np_model_info(const np_model *model)
{
    const struct model_config *config = &model->model->config;
    const struct tokenizer *tokenizer = model->tokenizer;
    return (np_info){.path = model->path,
                     .container = model->container,
                     .architecture = config->architecture,
                     .name = model->name,
                     .weight_types = model->weight_types,
                     .tokenizer = tokenizer ? tokenizer_describe(tokenizer) : "none",
                     .profile = profile_names[model->model->profile],
                     .cpu = model->model->kernels->name,
                     .cpu_reason = model->cpu_reason,
                     .n_parameters = (int64_t)model->model->n_parameters,
                     .weight_bytes = (int64_t)model->model->weight_bytes,
                     .kv_bytes_per_token = (int64_t)(kv_page_bytes(&model->model->kv) / PANEL),
                     .n_vocab = (int32_t)config->n_vocab,
                     .n_layers = (int32_t)config->n_layers,
                     .dim = (int32_t)config->dim,
                     .n_heads = (int32_t)config->n_heads,
                     .n_kv_heads = (int32_t)config->n_kv_heads,
                     .head_dim = (int32_t)config->head_dim,
                     .ffn_dim = (int32_t)config->ffn_dim,
                     .n_context = (int32_t)config->n_context,
                     .bos_id = tokenizer ? tokenizer_bos(tokenizer) : -1,
                     .eos_id = tokenizer ? tokenizer_eos(tokenizer) : -1,
                     .adds_bos = tokenizer && tokenizer_adds_bos(tokenizer),
                     .adds_eos = tokenizer && tokenizer_adds_eos(tokenizer),
                     .has_tokenizer = tokenizer != NULL,
                     .has_chat_template = model->has_chat_template,
                     .head_tied = config->head_tied,
                     .weights_rounded = model->model->rounded};
}

np_status np_engine_open(np_model *model, const np_engine_options *options, np_engine **out,
                         np_error *err)
{
    static const np_engine_options defaults;
    if (!options) options = &defaults;
    const struct engine_limits limits = {.n_threads = options->n_threads,
                                         .oversubscribe = options->oversubscribe != 0,
                                         .n_context = options->n_context,
                                         .chunk_rows = options->chunk_rows,
                                         .max_memory = options->max_memory,
                                         .cache_memory = options->cache_memory,
                                         .no_cache = options->no_cache != 0};
    TRY(need_pointer(out, "out", err));
    *out = NULL;
    TRY(need_pointer(model, "model", err));
    if (err) memset(err, 0, sizeof *err);
    if (options->n_threads < 0)
        return error_set(err, NP_EINPUT, "threads", NO_OFFSET,
                         "a positive number is expected, or 0");
    np_engine *engine = mem_alloc(1, sizeof *engine);
    if (!engine) return error_nomem(err, "engine", sizeof *engine);
    engine->model = model;
    np_status status = engine_open(model->model, &limits, &engine->engine, err);
    if (status == NP_OK)
        *out = engine;
    else
        mem_free(engine);
    return status;
}

void np_engine_close(np_engine *engine)
{
    if (!engine) return;
    engine_close(engine->engine);
    mem_free(engine);
}

void np_engine_cancel(np_engine *engine)
{
    engine_cancel(engine->engine);
}

np_stats np_engine_stats(np_engine *engine)
{
    struct engine_stats stats = engine_stats(engine->engine);
    return (np_stats){.n_requests = stats.n_jobs,
                      .n_tokens = stats.n_tokens,
                      .n_computed = stats.n_computed,
                      .n_steps = stats.n_steps,
                      .n_evicted_pages = stats.n_evicted,
                      .n_preempted = stats.n_preempted,
                      .n_waiting = stats.n_waiting,
                      .n_running = stats.n_running,
                      .n_pages = stats.n_pages,
                      .n_cached_pages = stats.n_cached,
                      .page_bytes = stats.page_bytes,
                      .cache_bytes = stats.cache_bytes,
                      .n_generated = stats.n_generated,
                      .busy_s = 1e-9 * (double)stats.busy_ns};
}

void np_engine_clear_cache(np_engine *engine)
{
    engine_clear_cache(engine->engine);
}

static np_status cache_path(const np_engine *engine, const char *path, np_error *err)
{
    if (err) memset(err, 0, sizeof *err);
    TRY(need_pointer(engine, "engine", err));
    return need_pointer(path, "path", err);
}

np_status np_engine_save_cache(np_engine *engine, const char *path, np_error *err)
{
    TRY(cache_path(engine, path, err));
    return engine_save_cache(engine->engine, path, err);
}

np_status np_engine_load_cache(np_engine *engine, const char *path, np_error *err)
{
    TRY(cache_path(engine, path, err));
    return engine_load_cache(engine->engine, path, err);
}
