/*
 * tokenizer_config.c - vocabularies in JSON, and what tokenizer_config.json and its like add to
 * them.
 */
#include "text/recipe_json.h"
#include <inttypes.h>

static void raise_to(int64_t *highest, int64_t id)
{
    if (id > *highest) *highest = id;
}

/* "151643" as a number; -1: it is none. */
static int64_t id_of_key(const char *key)
{
    int64_t id = 0;
    size_t n = strlen(key);
    if (!n || n > 9) return -1;
    for (size_t i = 0; i < n; i++) {
        if (key[i] < '0' || key[i] > '9') return -1;
        id = 10 * id + (key[i] - '0');
    }
    return id;
}

/* The highest id that a file beside the vocabulary names. */
static int64_t highest_beside(const struct folder_files *files)
{
    int64_t highest = -1;
    const char *key;
    json_t *value;
    json_object_foreach(files->added, key, value) raise_to(&highest, json_integer_value(value));
    json_object_foreach(json_object_get(files->config, "added_tokens_decoder"), key, value)
        raise_to(&highest, id_of_key(key));
    for (size_t i = 0; i < json_array_size(files->added_tokens); i++)
        raise_to(&highest,
                 json_integer_value(json_object_get(json_array_get(files->added_tokens, i), "id")));
    return highest;
}

np_status recipe_read_vocab(struct recipe *recipe, const json_t *vocab,
                            const struct folder_files *files, size_t n_merges, np_error *err)
{
    int64_t highest = highest_beside(files);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)vocab, key, value)
    {
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return error_given(err,
                               error_set(err, NP_EFORMAT, recipe->where, NO_OFFSET,
                                         "the id of a token is not a number from 0 on"),
                               "%.60s", key);
        raise_to(&highest, json_integer_value(value));
    }
    if (highest < 0)
        return error_set(err, NP_EFORMAT, recipe->where, NO_OFFSET, "the vocabulary is empty");
    TRY(recipe_reserve(recipe, (uint64_t)highest < SIZE_MAX ? (size_t)highest + 1 : SIZE_MAX,
                       n_merges, err));
    json_object_foreach((json_t *)vocab, key, value)
    {
        struct recipe_token *token = &recipe->tokens[json_integer_value(value)];
        if (token->text)
            return error_given(err,
                               error_set(err, NP_EFORMAT, recipe->where, NO_OFFSET,
                                         "two tokens have the id %" PRId64,
                                         (int64_t)json_integer_value(value)),
                               "%.60s", key);
        size_t n = strlen(key);
        if (n) *token = (struct recipe_token){key, (uint32_t)n, TOKEN_IN_MODEL};
    }
    return NP_OK;
}

int32_t recipe_find(const struct recipe *recipe, const char *text, size_t n_bytes)
{
    for (uint32_t id = 0; id < recipe->n_vocab; id++) {
        const struct recipe_token *token = &recipe->tokens[id];
        if (token->text && token->n_bytes == n_bytes && !memcmp(token->text, text, n_bytes))
            return (int32_t)id;
    }
    return -1;
}

static np_status add_text(struct recipe *recipe, int64_t id, const char *text, size_t n_bytes,
                          uint32_t flags, const char *path, np_error *err)
{
    if (id < 0 || id >= recipe->n_vocab)
        return error_set(err, NP_EFORMAT, recipe->where, NO_OFFSET,
                         "%s has the id %" PRId64 ", which is not allowed", path, id);
    struct recipe_token *token = &recipe->tokens[id];
    if (token->text && (token->n_bytes != n_bytes || memcmp(token->text, text, n_bytes)))
        return error_given(err,
                           error_set(err, NP_EFORMAT, recipe->where, NO_OFFSET,
                                     "%s has the id %" PRId64 " of another token", path, id),
                           "%.60s", text);
    *token = (struct recipe_token){text, (uint32_t)n_bytes,
                                   (token->flags & TOKEN_IN_MODEL) | TOKEN_ADDED | flags};
    return NP_OK;
}

np_status recipe_add_token(struct recipe *recipe, int64_t id, const json_t *token, const char *path,
                           np_error *err)
{
    static const struct {
        const char *key;
        uint32_t flag;
    } keys[] = {{"special", TOKEN_SPECIAL},
                {"lstrip", TOKEN_LSTRIP},
                {"rstrip", TOKEN_RSTRIP},
                {"single_word", TOKEN_SINGLE_WORD},
                {"normalized", TOKEN_NORMALIZED}};
    const json_t *content = json_object_get(token, "content");
    uint32_t flags = 0;
    if (!json_string_length(content))
        return error_set(err, NP_EFORMAT, recipe->where, NO_OFFSET,
                         "%s.content is missing or empty", path);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_is_true(json_object_get(token, keys[i].key))) flags |= keys[i].flag;
    return add_text(recipe, id, json_string_value(content), json_string_length(content), flags,
                    path, err);
}

/* A token that config or map names ("bos_token": a text, or an object with its content); -1: none.
 */
static int32_t named_token(const struct recipe *recipe, const struct folder_files *files,
                           const char *name)
{
    const json_t *token = json_object_get(files->config, name);
    if (!token || json_is_null(token)) token = json_object_get(files->map, name);
    if (json_is_object(token)) token = json_object_get(token, "content");
    return json_is_string(token)
               ? recipe_find(recipe, json_string_value(token), json_string_length(token))
               : -1;
}

/* The texts of named tokens, and the class; as they stand there, known tokens or not. */
static void read_names(struct recipe *recipe, const struct folder_files *files)
{
    for (int i = 0; i < TOKENIZER_NAMES; i++) {
        const json_t *name = json_object_get(files->config, tokenizer_names[i]);
        if (!name || json_is_null(name)) name = json_object_get(files->map, tokenizer_names[i]);
        if (json_is_object(name)) name = json_object_get(name, "content");
        if (json_is_string(name))
            recipe->named[i] =
                (struct text_view){json_string_value(name), json_string_length(name)};
    }
}

/* chat_template: a text, or a list of them with names. One that has a file of its own is read. */
static void read_templates(struct recipe *recipe, const struct folder_files *files)
{
    static const char *const names[TOKENIZER_TEMPLATES] = {"default", "tool_use"};
    const json_t *given = json_object_get(files->config, "chat_template");
    if (recipe->templates[TOKENIZER_TEMPLATE].bytes) return;
    if (json_is_string(given))
        recipe->templates[TOKENIZER_TEMPLATE] =
            (struct text_view){json_string_value(given), json_string_length(given)};
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *one = json_array_get(given, i), *text = json_object_get(one, "template");
        const char *name = json_string_value(json_object_get(one, "name"));
        for (int k = 0; k < TOKENIZER_TEMPLATES && name && json_is_string(text); k++)
            if (!strcmp(name, names[k]))
                recipe->templates[k] =
                    (struct text_view){json_string_value(text), json_string_length(text)};
    }
}

static void mark_special(struct recipe *recipe, int32_t id)
{
    if (id >= 0 && !(recipe->tokens[id].flags & TOKEN_ADDED))
        recipe->tokens[id].flags |= TOKEN_ADDED | TOKEN_SPECIAL;
}

static np_status read_edges(struct recipe *recipe, const struct folder_files *files, np_error *err)
{
    const json_t *bos = json_object_get(files->config, "add_bos_token");
    const json_t *eos = json_object_get(files->config, "add_eos_token");
    if (!json_is_boolean(bos) && !json_is_boolean(eos)) return NP_OK;
    recipe->n_before = recipe->n_after = 0;
    if (json_is_true(bos) && recipe->bos >= 0) recipe->before[recipe->n_before++] = recipe->bos;
    if (json_is_true(eos) && recipe->eos >= 0) recipe->after[recipe->n_after++] = recipe->eos;
    return NP_OK;
}

np_status recipe_read_config(struct recipe *recipe, const struct folder_files *files, np_error *err)
{
    static const char *const names[] = {"unk_token", "pad_token", "sep_token", "cls_token",
                                        "mask_token"};
    const char *key;
    json_t *value;
    char path[96];
    json_object_foreach(files->added, key, value)
    {
        if (!json_is_integer(value) || !*key)
            return error_given(err,
                               error_set(err, NP_EFORMAT, recipe->where, NO_OFFSET,
                                         "added_tokens.json: the id of a token is not a number"),
                               "%.60s", key);
        int64_t id = json_integer_value(value);
        bool known = id >= 0 && id < recipe->n_vocab && recipe->tokens[id].flags & TOKEN_ADDED;
        if (!known) TRY(add_text(recipe, id, key, strlen(key), 0, "added_tokens.json", err));
    }
    json_object_foreach(json_object_get(files->config, "added_tokens_decoder"), key, value)
    {
        snprintf(path, sizeof path, "added_tokens_decoder.%.40s", key);
        TRY(recipe_add_token(recipe, id_of_key(key), value, path, err));
    }
    int32_t bos = named_token(recipe, files, "bos_token"),
            eos = named_token(recipe, files, "eos_token");
    if (bos >= 0) recipe->bos = bos;
    if (eos >= 0) recipe->eos = eos;
    mark_special(recipe, bos);
    mark_special(recipe, eos);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        mark_special(recipe, named_token(recipe, files, names[i]));
    read_names(recipe, files);
    read_templates(recipe, files);
    return read_edges(recipe, files, err);
}
