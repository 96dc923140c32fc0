/*
 * recipe.c - the known splitting rules, and the parts of a recipe that every reader needs.
 *
 * A rule's name in a GGUF is taken only where it means exactly this rule; llama.cpp has more names
 * for some of them whose own tokenizers do differ.
 */
#include "text/recipe.h"

#define RECIPE_MAX_BYTES ((size_t)1 << 31)

const char rule_gpt2_regex[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#define REGEX_LLAMA3                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| " \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"                                           \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define REGEX_QWEN2                                                       \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| " \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"                                      \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct known_rule rules[] = {
    {{"gpt-2"}, {rule_gpt2_regex}, false, false, false},
    {{"smollm"}, {"\\p{N}", rule_gpt2_regex}, false, false, false},
    {{"llama-bpe", "llama3", "llama-v3"}, {REGEX_LLAMA3}, false, true, true},
    {{"qwen2", "deepseek-r1-qwen"}, {REGEX_QWEN2}, true, false, false},
};

const struct known_rule *rule_find(const char *name, size_t n_bytes)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        for (const char *const *known = rules[i].names; *known; known++)
            if (strlen(*known) == n_bytes && !memcmp(*known, name, n_bytes)) return &rules[i];
    return NULL;
}

void rule_apply(const struct known_rule *rule, struct recipe *recipe)
{
    recipe->n_steps = 0;
    for (size_t i = 0; i < 2 && rule->regexes[i]; i++)
        recipe->steps[recipe->n_steps++] =
            (struct split_step){.regex = rule->regexes[i], .n_bytes = strlen(rule->regexes[i])};
    recipe->nfc = rule->nfc;
    recipe->ignore_merges = rule->ignore_merges;
    snprintf(recipe->rule, sizeof recipe->rule, "%s", rule->names[0]);
}

void recipe_init(struct recipe *recipe, const char *where)
{
    *recipe = (struct recipe){.bos = -1, .eos = -1};
    arena_init(&recipe->arena, RECIPE_MAX_BYTES);
    snprintf(recipe->where, sizeof recipe->where, "%s", where);
}

void recipe_free(struct recipe *recipe)
{
    for (size_t i = 0; i < recipe->n_documents; i++) json_decref(recipe->documents[i]);
    for (size_t i = 0; i < recipe->n_texts; i++) mem_free(recipe->texts[i]);
    arena_free(&recipe->arena);
    *recipe = (struct recipe){.bos = -1, .eos = -1};
}

np_status recipe_reserve(struct recipe *recipe, size_t n_vocab, size_t n_merges, np_error *err)
{
    if (n_vocab > RECIPE_MAX_VOCAB || n_merges > RECIPE_MAX_MERGES)
        return error_set(err, NP_ELIMIT, recipe->where, NO_OFFSET,
                         "%zu tokens and %zu merges; at most %u of each are allowed", n_vocab,
                         n_merges, RECIPE_MAX_VOCAB);
    recipe->tokens = arena_push_array(&recipe->arena, n_vocab + 1, sizeof *recipe->tokens);
    recipe->merges = arena_push_array(&recipe->arena, n_merges + 1, sizeof *recipe->merges);
    if (!recipe->tokens || !recipe->merges)
        return error_nomem(err, "the vocabulary", n_vocab * 16 + n_merges * 32);
    recipe->n_vocab = (uint32_t)n_vocab;
    recipe->n_merges = 0;
    return NP_OK;
}

np_status recipe_add_merge(struct recipe *recipe, const char *text, size_t n_bytes, np_error *err)
{
    const char *space = n_bytes ? memchr(text, ' ', n_bytes) : NULL;
    size_t left = space ? (size_t)(space - text) : 0;
    if (!space || !left || left + 1 == n_bytes || memchr(space + 1, ' ', n_bytes - left - 1))
        return error_given(err,
                           error_set(err, NP_EFORMAT, recipe->where, NO_OFFSET,
                                     "merge %zu is not two tokens with a space between",
                                     recipe->n_merges),
                           "%.*s", (int)(n_bytes < 60 ? n_bytes : 60), text);
    recipe->merges[recipe->n_merges++] =
        (struct recipe_merge){{text, left}, {space + 1, n_bytes - left - 1}};
    return NP_OK;
}
