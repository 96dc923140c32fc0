/*
 * windows.c - which layers see a sliding window, from settings that mean something only together.
 *
 * Qwen2 (transformers' Qwen2Config): use_sliding_window false, or sliding_window null: none.
 * layer_types names the kind of every layer; without it the layers from max_window_layers on have
 * the window. llama.cpp writes none of this into GGUF, so such files have no window.
 */
#include "model/settings.h"

#include <stdio.h>

#define WINDOW_DEFAULT 4096 /* of a config.json that does not say */
#define MAX_WINDOW_LAYERS_DEFAULT 28

static bool is_null(const struct setting *setting)
{
    return setting && setting->type == SETTING_NULL;
}

static np_status get_flag(const struct modelfile *file, const char *key, bool *out, np_error *err)
{
    const struct setting *setting = modelfile_get(file, key);
    *out = setting && setting->type == SETTING_BOOL && setting->integer;
    if (!setting || is_null(setting) || setting->type == SETTING_BOOL) return NP_OK;
    return error_set(err, NP_EFORMAT, key, NO_OFFSET, "true or false is expected");
}

/* An integer from `least` to what a size may be; `absent` where the file has none. */
static np_status get_count(const struct modelfile *file, const char *key, int64_t least,
                           size_t absent, size_t *out, np_error *err)
{
    const struct setting *setting = modelfile_get(file, key);
    *out = absent;
    if (!setting) return NP_OK;
    if (setting->type == SETTING_INT && setting->integer >= least &&
        setting->integer <= INT32_MAX) {
        *out = (size_t)setting->integer;
        return NP_OK;
    }
    error_set(err, NP_EFORMAT, key, NO_OFFSET, "an integer from %lld to %ld is expected",
              (long long)least, (long)INT32_MAX);
    if (setting->type != SETTING_INT) return NP_EFORMAT;
    return error_given(err, NP_EFORMAT, "%lld", (long long)setting->integer);
}

static np_status bad_kind(size_t layer, struct text_view kind, const char *allowed, np_error *err)
{
    char where[48];
    snprintf(where, sizeof where, "layer_types[%zu]", layer);
    error_set(err, NP_EUNSUPPORTED, where, NO_OFFSET, "only %s is supported", allowed);
    return error_given(err, NP_EUNSUPPORTED, "%.*s", kind.n_bytes < 40 ? (int)kind.n_bytes : 40,
                       kind.bytes);
}

static bool text_is(struct text_view text, const char *word)
{
    return text.n_bytes == strlen(word) && memcmp(text.bytes, word, text.n_bytes) == 0;
}

/* layer_types names every layer; a window must exist where one is named. */
static np_status apply_kinds(const struct setting *kinds, struct model_config *config,
                             np_error *err)
{
    if (kinds->type != SETTING_ARRAY || kinds->element_type != SETTING_STRING ||
        kinds->n_elements != config->n_layers)
        return error_set(err, NP_EFORMAT, kinds->key, NO_OFFSET,
                         "a list of %zu names is expected, one per layer", config->n_layers);
    for (size_t i = 0; i < config->n_layers; i++) {
        config->windowed[i] = text_is(kinds->texts[i], "sliding_attention");
        if (config->windowed[i] && !config->window)
            return bad_kind(i, kinds->texts[i],
                            "\"full_attention\" without use_sliding_window and sliding_window",
                            err);
        if (!config->windowed[i] && !text_is(kinds->texts[i], "full_attention"))
            return bad_kind(i, kinds->texts[i], "\"full_attention\" or \"sliding_attention\"", err);
    }
    return NP_OK;
}

np_status windows_qwen2(const struct modelfile *file, struct model_config *config, np_error *err)
{
    const struct setting *kinds = modelfile_get(file, "layer_types");
    size_t first = 0;
    bool used;
    TRY(get_flag(file, "use_sliding_window", &used, err));
    if (used && !is_null(modelfile_get(file, "sliding_window"))) {
        TRY(get_count(file, "sliding_window", 1, WINDOW_DEFAULT, &config->window, err));
        TRY(get_count(file, "max_window_layers", 0, MAX_WINDOW_LAYERS_DEFAULT, &first, err));
    }
    if (kinds && !is_null(kinds)) return apply_kinds(kinds, config, err);
    for (size_t i = first; config->window && i < config->n_layers; i++) config->windowed[i] = true;
    return NP_OK;
}
