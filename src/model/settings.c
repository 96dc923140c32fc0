/*
 * settings.c - see settings.h. The common list holds what transformers writes into every
 * config.json and what old files carry of generation defaults: none of it touches a
 * log-probability.
 */
#include "model/settings.h"

#include <math.h>
#include <stdio.h>

#define LIMIT_SIZE 1e9 /* no size of a model comes near; products of two stay far inside 64 bits */

static const char *const harmless_hf[] = {"_name_or_path",
                                          "_num_labels",
                                          "_commit_hash",
                                          "_attn_implementation*",
                                          "architectures",
                                          "attention_dropout",
                                          "auto_map*",
                                          "bad_words_ids",
                                          "begin_suppress_tokens",
                                          "bos_token_id",
                                          "chunk_size_feed_forward",
                                          "cross_attention_hidden_size",
                                          "decoder_start_token_id",
                                          "diversity_penalty",
                                          "do_sample",
                                          "dtype",
                                          "early_stopping",
                                          "encoder_no_repeat_ngram_size",
                                          "eos_token_id",
                                          "exponential_decay_length_penalty",
                                          "finetuning_task",
                                          "forced_bos_token_id",
                                          "forced_eos_token_id",
                                          "gradient_checkpointing",
                                          "hidden_dropout",
                                          "id2label*",
                                          "initializer_range",
                                          "is_decoder",
                                          "is_encoder_decoder",
                                          "keep_quantized",
                                          "label2id*",
                                          "length_penalty",
                                          "max_length",
                                          "min_length",
                                          "model_type",
                                          "no_repeat_ngram_size",
                                          "num_beam_groups",
                                          "num_beams",
                                          "num_return_sequences",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "output_past",
                                          "output_scores",
                                          "pad_token_id",
                                          "prefix",
                                          "problem_type",
                                          "pruned_heads",
                                          "remove_invalid_values",
                                          "repetition_penalty",
                                          "return_dict",
                                          "return_dict_in_generate",
                                          "sep_token_id",
                                          "suppress_tokens",
                                          "task_specific_params*",
                                          "temperature",
                                          "tf_legacy_loss",
                                          "tie_encoder_decoder",
                                          "tokenizer_class",
                                          "top_k",
                                          "top_p",
                                          "torch_dtype",
                                          "torchscript",
                                          "transformers.js_config*",
                                          "transformers_version",
                                          "typical_p",
                                          "unk_token_id",
                                          "unsloth_fixed",
                                          "unsloth_version",
                                          "use_bfloat16",
                                          "use_cache",
                                          NULL};

static bool key_matches(const char *pattern, const char *key)
{
    size_t n = strlen(pattern);
    if (n && pattern[n - 1] == '*') return strncmp(pattern, key, n - 1) == 0;
    return strcmp(pattern, key) == 0;
}

/* The setting's value as text, for comparison and for errors; of an array, element i. */
static void value_text(const struct setting *setting, size_t i, char *out, size_t n_bytes)
{
    bool array = setting->type == SETTING_ARRAY;
    struct text_view text = setting->text;
    switch (array ? setting->element_type : setting->type) {
    case SETTING_INT:
        snprintf(out, n_bytes, "%lld",
                 (long long)(array ? setting->integers[i] : setting->integer));
        break;
    case SETTING_BOOL:
        snprintf(out, n_bytes, "%s",
                 (array ? setting->integers[i] : setting->integer) ? "true" : "false");
        break;
    case SETTING_FLOAT:
        snprintf(out, n_bytes, "%.9g", array ? (double)setting->numbers[i] : setting->number);
        break;
    case SETTING_STRING:
        if (array) text = setting->texts[i];
        snprintf(out, n_bytes, "%.*s", text.n_bytes < n_bytes ? (int)text.n_bytes : (int)n_bytes,
                 text.bytes);
        break;
    case SETTING_NULL: snprintf(out, n_bytes, "null"); break;
    default: snprintf(out, n_bytes, "{...}");
    }
}

static bool expected(const char *expect, const char *value)
{
    size_t n = strlen(value);
    if (strcmp(value, "null") == 0) return true;
    for (const char *p = expect; p; p = strchr(p, '|'), p = p ? p + 1 : NULL)
        if (strncmp(p, value, n) == 0 && (p[n] == '|' || p[n] == 0)) return true;
    return false;
}

static np_status expect_value(const struct setting *setting, const char *expect, np_error *err)
{
    char value[64];
    size_t n = setting->type == SETTING_ARRAY ? (size_t)setting->n_elements : 1;
    if (setting->type == SETTING_OBJECT) return NP_OK; /* empty: what it holds is flattened */
    for (size_t i = 0; i < n; i++) {
        value_text(setting, i, value, sizeof value);
        if (expected(expect, value)) continue;
        error_set(err, NP_EUNSUPPORTED, setting->key, NO_OFFSET, "only \"%s\" is supported",
                  expect);
        return error_given(err, NP_EUNSUPPORTED, "%s", value);
    }
    return NP_OK;
}

static np_status bad_value(const struct setting *setting, const char *allowed, np_error *err)
{
    char value[64];
    if (setting->type == SETTING_ARRAY)
        snprintf(value, sizeof value, "[...]");
    else
        value_text(setting, 0, value, sizeof value);
    error_set(err, NP_EFORMAT, setting->key, NO_OFFSET, "%s is expected", allowed);
    return error_given(err, NP_EFORMAT, "%s", value);
}

/* A size that was set before (head_dim by two keys of GGUF) must be the same again. */
static np_status set_size(const struct setting *setting, size_t *field, np_error *err)
{
    if (setting->type != SETTING_INT || setting->integer < 1 ||
        setting->integer > (int64_t)LIMIT_SIZE)
        return bad_value(setting, "an integer from 1 to 1000000000", err);
    size_t value = (size_t)setting->integer;
    if (*field != 0 && *field != value) {
        error_set(err, NP_EUNSUPPORTED, setting->key, NO_OFFSET,
                  "%zu is expected, from another setting", *field);
        return error_given(err, NP_EUNSUPPORTED, "%zu", value);
    }
    *field = value;
    return NP_OK;
}

static np_status apply_rule(const struct setting_rule *rule, const struct setting *setting,
                            struct model_config *config, np_error *err)
{
    void *field = (char *)config + rule->field;
    if (rule->kind == RULE_IGNORE || (setting->type == SETTING_NULL && !rule->required))
        return NP_OK;
    switch (rule->kind) {
    case RULE_SIZE: return set_size(setting, field, err);
    case RULE_REAL:
        if ((setting->type != SETTING_FLOAT && setting->type != SETTING_INT) ||
            !isfinite(setting->number) || setting->number <= 0)
            return bad_value(setting, "a positive number", err);
        *(double *)field = setting->number;
        return NP_OK;
    case RULE_FLAG:
        if (setting->type != SETTING_BOOL) return bad_value(setting, "true or false", err);
        *(bool *)field = setting->integer != 0;
        return NP_OK;
    default: return expect_value(setting, rule->expect, err);
    }
}

static const struct setting_rule *find_rule(const struct setting_rule *rules, const char *key)
{
    for (; rules->key; rules++)
        if (key_matches(rules->key, key)) return rules;
    return NULL;
}

static bool harmless(const char *key)
{
    for (const char *const *p = harmless_hf; *p; p++)
        if (key_matches(*p, key)) return true;
    return false;
}

static np_status check_required(const struct modelfile *file, const struct setting_rule *rules,
                                const char *prefix, np_error *err)
{
    char key[MODELFILE_MAX_NAME_BYTES];
    for (; rules->key; rules++) {
        snprintf(key, sizeof key, "%s%s", prefix, rules->key);
        if (rules->required && !modelfile_get(file, key))
            return error_set(err, NP_EFORMAT, key, NO_OFFSET, "the setting is missing");
    }
    return NP_OK;
}

np_status settings_apply(const struct modelfile *file, const struct architecture *arch,
                         struct model_config *config, np_error *err)
{
    bool gguf = modelfile_container(file) == CONTAINER_GGUF;
    const struct setting_rule *rules = gguf ? arch->gguf : arch->hf;
    char prefix[64] = "";
    if (gguf) snprintf(prefix, sizeof prefix, "%s.", arch->name);
    size_t n_prefix = strlen(prefix);

    for (size_t i = 0; i < modelfile_n_settings(file); i++) {
        const struct setting *setting = modelfile_setting(file, i);
        if (strncmp(setting->key, prefix, n_prefix) != 0) continue;
        const struct setting_rule *rule = find_rule(rules, setting->key + n_prefix);
        if (rule)
            TRY(apply_rule(rule, setting, config, err));
        else if (gguf || !harmless(setting->key))
            return error_set(err, NP_EUNSUPPORTED, setting->key, NO_OFFSET,
                             "the setting is not known to the architecture \"%s\" and could change "
                             "a number",
                             arch->name);
    }
    return check_required(file, rules, prefix, err);
}
