/*
 * tokenizer_gguf.c - a recipe from the tokenizer.ggml.* settings of a GGUF.
 *
 * GGUF keeps no expression, only the name of a rule (`pre`). Surprise: for qwen2 the text is
 * normalised to form C, as Qwen's own tokenizer does, although llama.cpp does not do so.
 */
#include "text/recipe.h"

#define KEY(name) "tokenizer.ggml." name

/* Token types of GGUF. */
enum { GGUF_NORMAL = 1, GGUF_UNKNOWN, GGUF_CONTROL, GGUF_USER_DEFINED, GGUF_UNUSED, GGUF_BYTE };

static np_status get(const struct modelfile *file, const char *key, enum setting_type type,
                     enum setting_type element_type, bool needed, const struct setting **out,
                     np_error *err)
{
    *out = modelfile_get(file, key);
    if (!*out && needed)
        return error_set(err, NP_EFORMAT, modelfile_path(file), NO_OFFSET,
                         "the setting %s is missing", key);
    bool right = !*out || (*out)->type == type;
    if (right && *out && type == SETTING_ARRAY && (*out)->n_elements)
        right = (*out)->element_type == element_type;
    return right ? NP_OK
                 : error_set(err, NP_EFORMAT, modelfile_path(file), NO_OFFSET,
                             "the setting %s has a wrong type", key);
}

static np_status get_id(const struct modelfile *file, const char *key, uint32_t n_vocab,
                        int32_t *id, np_error *err)
{
    const struct setting *setting;
    TRY(get(file, key, SETTING_INT, SETTING_NULL, false, &setting, err));
    if (!setting) return NP_OK;
    if (setting->integer < 0 || setting->integer >= n_vocab)
        return error_set(err, NP_EFORMAT, modelfile_path(file), NO_OFFSET,
                         "%s is %lld; the vocabulary has %u tokens", key,
                         (long long)setting->integer, n_vocab);
    *id = (int32_t)setting->integer;
    return NP_OK;
}

static np_status get_bool(const struct modelfile *file, const char *key, bool *value, np_error *err)
{
    const struct setting *setting;
    TRY(get(file, key, SETTING_BOOL, SETTING_NULL, false, &setting, err));
    if (setting) *value = setting->integer != 0;
    return NP_OK;
}

static np_status read_tokens(struct recipe *recipe, const struct setting *texts,
                             const struct setting *types, np_error *err)
{
    for (uint32_t id = 0; id < recipe->n_vocab; id++) {
        int64_t type = types ? types->integers[id] : GGUF_NORMAL;
        struct recipe_token *token = &recipe->tokens[id];
        if (type < GGUF_NORMAL || type > GGUF_BYTE || type == GGUF_BYTE)
            return error_set(err, NP_EUNSUPPORTED, recipe->where, NO_OFFSET,
                             KEY("token_type") "[%u] is %lld; 1 to 5 are supported", id,
                             (long long)type);
        if (texts->texts[id].n_bytes > UINT32_MAX / 2)
            return error_set(err, NP_ELIMIT, recipe->where, NO_OFFSET,
                             KEY("tokens") "[%u] is too long", id);
        bool special = type == GGUF_CONTROL || type == GGUF_UNKNOWN;
        *token = (struct recipe_token){texts->texts[id].bytes, (uint32_t)texts->texts[id].n_bytes,
                                       TOKEN_IN_MODEL};
        if (special) token->flags = TOKEN_ADDED | TOKEN_SPECIAL;
        if (type == GGUF_USER_DEFINED) token->flags = TOKEN_ADDED;
        if (type == GGUF_UNUSED) token->flags = 0;
        if (!token->n_bytes) token->text = NULL;
    }
    return NP_OK;
}

static np_status read_edges(struct recipe *recipe, const struct modelfile *file, bool adds_bos,
                            np_error *err)
{
    bool adds_eos = false;
    TRY(get_id(file, KEY("bos_token_id"), recipe->n_vocab, &recipe->bos, err));
    TRY(get_id(file, KEY("eos_token_id"), recipe->n_vocab, &recipe->eos, err));
    TRY(get_bool(file, KEY("add_bos_token"), &adds_bos, err));
    TRY(get_bool(file, KEY("add_eos_token"), &adds_eos, err));
    TRY(get_bool(file, KEY("add_space_prefix"), &recipe->prefix_space, err));
    if (recipe->prefix_space)
        return error_set(
            err, NP_EUNSUPPORTED, recipe->where, NO_OFFSET,
            KEY("add_space_prefix") " is true, which is not supported for byte-level BPE");
    if (adds_bos && recipe->bos >= 0) recipe->before[recipe->n_before++] = recipe->bos;
    if (adds_eos && recipe->eos >= 0) recipe->after[recipe->n_after++] = recipe->eos;
    return NP_OK;
}

/* Names and templates are no reason to refuse a file: what is not there, or odd, is left out. */
static void read_chat(struct recipe *recipe, const struct modelfile *file)
{
    static const char *const templates[TOKENIZER_TEMPLATES] = {"tokenizer.chat_template",
                                                               "tokenizer.chat_template.tool_use"};
    static const char *const ids[TOKENIZER_NAMES] = {
        KEY("bos_token_id"),     KEY("eos_token_id"),       KEY("unknown_token_id"),
        KEY("padding_token_id"), KEY("seperator_token_id"), KEY("cls_token_id"),
        KEY("mask_token_id")};
    for (int i = 0; i < TOKENIZER_TEMPLATES; i++) {
        const struct setting *text = modelfile_get(file, templates[i]);
        if (text && text->type == SETTING_STRING) recipe->templates[i] = text->text;
    }
    for (int i = 0; i < TOKENIZER_NAMES; i++) {
        const struct setting *id = ids[i] ? modelfile_get(file, ids[i]) : NULL;
        if (!id || id->type != SETTING_INT || id->integer < 0 || id->integer >= recipe->n_vocab)
            continue;
        const struct recipe_token *token = &recipe->tokens[id->integer];
        recipe->named[i] = (struct text_view){token->text, token->n_bytes};
    }
}

np_status recipe_from_gguf(struct recipe *recipe, const struct modelfile *file, bool *found,
                           np_error *err)
{
    const struct setting *model, *pre, *texts, *types, *merges;
    *found = false;
    TRY(get(file, KEY("model"), SETTING_STRING, SETTING_NULL, false, &model, err));
    if (!model) return NP_OK;
    if (model->text.n_bytes != 4 || memcmp(model->text.bytes, "gpt2", 4))
        return error_given(
            err,
            error_set(err, NP_EUNSUPPORTED, recipe->where, NO_OFFSET,
                      KEY("model") " is not supported; supported is gpt2 (byte-level BPE)"),
            "%.40s", model->text.bytes);
    TRY(get(file, KEY("pre"), SETTING_STRING, SETTING_NULL, true, &pre, err));
    TRY(get(file, KEY("tokens"), SETTING_ARRAY, SETTING_STRING, true, &texts, err));
    TRY(get(file, KEY("token_type"), SETTING_ARRAY, SETTING_INT, false, &types, err));
    TRY(get(file, KEY("merges"), SETTING_ARRAY, SETTING_STRING, true, &merges, err));
    const struct known_rule *rule = rule_find(pre->text.bytes, pre->text.n_bytes);
    if (!rule)
        return error_given(
            err,
            error_set(err, NP_EUNSUPPORTED, recipe->where, NO_OFFSET,
                      KEY("pre") ": this splitting rule is not supported; supported are gpt-2, "
                                 "smollm, llama-bpe, qwen2, deepseek-r1-qwen"),
            "%.40s", pre->text.bytes);
    if (types && types->n_elements != texts->n_elements)
        return error_set(err, NP_EFORMAT, recipe->where, NO_OFFSET,
                         KEY("token_type") " has %llu elements and " KEY("tokens") " has %llu",
                         (unsigned long long)types->n_elements,
                         (unsigned long long)texts->n_elements);
    TRY(recipe_reserve(recipe, texts->n_elements, merges->n_elements, err));
    rule_apply(rule, recipe);
    TRY(read_tokens(recipe, texts, types, err));
    for (uint64_t i = 0; i < merges->n_elements; i++)
        TRY(recipe_add_merge(recipe, merges->texts[i].bytes, merges->texts[i].n_bytes, err));
    TRY(read_edges(recipe, file, rule->adds_bos, err));
    read_chat(recipe, file);
    *found = true;
    return NP_OK;
}
