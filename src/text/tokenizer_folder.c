/*
 * tokenizer_folder.c - a recipe from the files beside a model's weights.
 *
 *   chat_template.jinja                         wins over the one in tokenizer_config.json
 *   tokenizer.json                              everything (tokenizer_json.c)
 *   vocab.json + merges.txt                     GPT-2's and Qwen2's own files, where there is no
 * tokenizer.json; encoder.json + vocab.bpe                    the rule follows from
 * tokenizer_class, or from the model's type added_tokens.json, tokenizer_config.json,   added
 * tokens, BOS and EOS special_tokens_map.json
 *
 * Surprise: add_bos_token and add_eos_token of tokenizer_config.json, where one of them is there,
 * win over the post-processor of tokenizer.json, as in transformers.
 */
#include "text/recipe.h"
#include "text/recipe_json.h"
#include "base/file.h"
#include "format/jsonread.h"
#include <errno.h>
#include <sys/stat.h>

#define MAX_FILE_BYTES ((size_t)256 << 20)

/* Reads a file of the folder; *out NULL: there is none. */
static np_status load_text(struct recipe *recipe, const char *folder, const char *name, char **out,
                           size_t *n_bytes, np_error *err)
{
    char path[4096];
    struct stat status;
    *out = NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
        return error_set(err, NP_EINPUT, folder, NO_OFFSET, "the path is too long");
    if (stat(path, &status) && (errno == ENOENT || errno == ENOTDIR)) return NP_OK;
    TRY(file_read_all(path, MAX_FILE_BYTES, out, n_bytes, err));
    recipe->texts[recipe->n_texts++] = *out;
    return NP_OK;
}

static np_status load_json(struct recipe *recipe, const char *folder, const char *name,
                           json_t **out, np_error *err)
{
    char *text, where[RECIPE_WHERE_BYTES];
    size_t n_bytes = 0;
    *out = NULL;
    TRY(load_text(recipe, folder, name, &text, &n_bytes, err));
    if (!text) return NP_OK;
    snprintf(where, sizeof where, "%s/%s", folder, name);
    np_status status = jsonread(text, n_bytes, where, 0, out, err);
    mem_free(text); /* jansson keeps copies */
    recipe->n_texts--;
    TRY(status);
    recipe->documents[recipe->n_documents++] = *out;
    if (json_is_object(*out)) return NP_OK;
    *out = NULL;
    return error_set(err, NP_EFORMAT, where, NO_OFFSET, "is not a JSON object");
}

/* ---- vocab.json and merges.txt ----------------------------------------------------------------
 */

static np_status read_merges(struct recipe *recipe, const char *text, size_t n_bytes, np_error *err)
{
    for (size_t at = 0, end; at < n_bytes; at = end + 1) {
        const char *newline = memchr(text + at, '\n', n_bytes - at);
        end = newline ? (size_t)(newline - text) : n_bytes;
        size_t n = end - at;
        if (n && text[end - 1] == '\r') n--;
        if (!n || (n >= 8 && !memcmp(text + at, "#version", 8))) continue;
        TRY(recipe_add_merge(recipe, text + at, n, err));
    }
    return NP_OK;
}

static size_t count_lines(const char *text, size_t n_bytes)
{
    size_t n = 1;
    for (size_t i = 0; i < n_bytes; i++) n += text[i] == '\n';
    return n;
}

static const struct known_rule *rule_of_class(const char *name)
{
    static const struct {
        const char *class_name, *rule;
    } classes[] = {
        {"GPT2Tokenizer", "gpt-2"},  {"GPT2TokenizerFast", "gpt-2"},  {"gpt2", "gpt-2"},
        {"Qwen2Tokenizer", "qwen2"}, {"Qwen2TokenizerFast", "qwen2"}, {"qwen2", "qwen2"}};
    for (size_t i = 0; name && i < sizeof classes / sizeof *classes; i++)
        if (!strcmp(name, classes[i].class_name))
            return rule_find(classes[i].rule, strlen(classes[i].rule));
    return NULL;
}

/* The vocabulary and merges of `vocab_name` and `merges_name`; *found: whether they are there. */
static np_status read_pair(struct recipe *recipe, const char *folder,
                           const struct folder_files *files, const char *vocab_name,
                           const char *merges_name, bool *found, np_error *err)
{
    json_t *vocab;
    char *merges;
    size_t n_bytes = 0;
    TRY(load_json(recipe, folder, vocab_name, &vocab, err));
    if (!vocab) return NP_OK;
    TRY(load_text(recipe, folder, merges_name, &merges, &n_bytes, err));
    snprintf(recipe->where, sizeof recipe->where, "%s/%s", folder, vocab_name);
    if (!merges)
        return error_set(err, NP_EFORMAT, recipe->where, NO_OFFSET, "%s is missing beside it",
                         merges_name);
    const char *class_name = json_string_value(json_object_get(files->config, "tokenizer_class"));
    if (!class_name) class_name = files->model_type;
    const struct known_rule *rule = rule_of_class(class_name);
    if (!rule)
        return error_given(
            err,
            error_set(err, NP_EUNSUPPORTED, recipe->where, NO_OFFSET,
                      "this tokenizer_class or model_type is not supported without a "
                      "tokenizer.json; supported are GPT2Tokenizer and Qwen2Tokenizer"),
            "%.40s", class_name ? class_name : "none");
    TRY(recipe_read_vocab(recipe, vocab, files, count_lines(merges, n_bytes), err));
    rule_apply(rule, recipe);
    recipe->prefix_space = json_is_true(json_object_get(files->config, "add_prefix_space"));
    TRY(read_merges(recipe, merges, n_bytes, err));
    static const char end_of_text[] =
        "<|endoftext|>"; /* of both classes, where no file says otherwise */
    int32_t id = recipe_find(recipe, end_of_text, strlen(end_of_text));
    if (id >= 0 && !files->config && !files->map) {
        recipe->tokens[id].flags |= TOKEN_ADDED | TOKEN_SPECIAL;
        recipe->eos = id;
        if (!strcmp(rule->names[0], "gpt-2")) recipe->bos = id;
    }
    *found = true;
    return NP_OK;
}

np_status recipe_from_folder(struct recipe *recipe, const char *folder, const char *model_type,
                             bool *found, np_error *err)
{
    struct folder_files files = {.model_type = model_type};
    json_t *root;
    *found = false;
    TRY(load_json(recipe, folder, "tokenizer_config.json", &files.config, err));
    TRY(load_json(recipe, folder, "special_tokens_map.json", &files.map, err));
    TRY(load_json(recipe, folder, "added_tokens.json", &files.added, err));
    TRY(load_json(recipe, folder, "tokenizer.json", &root, err));
    if (root) {
        snprintf(recipe->where, sizeof recipe->where, "%s/tokenizer.json", folder);
        TRY(recipe_from_json(recipe, root, &files, err));
        *found = true;
    }
    if (!*found) TRY(read_pair(recipe, folder, &files, "vocab.json", "merges.txt", found, err));
    if (!*found) TRY(read_pair(recipe, folder, &files, "encoder.json", "vocab.bpe", found, err));
    char *text;
    struct text_view *view = &recipe->templates[TOKENIZER_TEMPLATE];
    TRY(load_text(recipe, folder, "chat_template.jinja", &text, &view->n_bytes, err));
    view->bytes = text;
    return *found ? recipe_read_config(recipe, &files, err) : NP_OK;
}
