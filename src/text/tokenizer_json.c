/*
 * tokenizer_json.c - a recipe from tokenizer.json.
 *
 * Each part of the file is a table of the types that are understood. A type, an option or a whole
 * section that is not in a table is refused with its place in the file, since leaving it out would
 * change ids.
 *
 * Surprise: ByteLevel and Digits are Splits too. ByteLevel with use_regex is the GPT-2 rule, Digits
 * cuts at \p{N}; so a pre-tokenizer is a list of expressions and nothing else.
 */
#include "text/recipe_json.h"

#define PATH_BYTES 160
#define MAX_NESTING 8

struct reader {
    struct recipe *recipe;
    np_error *err;
    int depth;
    bool byte_level; /* seen: nothing may follow it */
    bool ends_open;  /* a post-processor before this one was a template */
};

typedef np_status read_part(struct reader *r, const json_t *part, const char *path);
struct part_type {
    const char *name;
    read_part *read;
};

static np_status refuse(struct reader *r, const char *path, const json_t *value)
{
    char *given =
        value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    np_status status = error_given(r->err,
                                   error_set(r->err, NP_EUNSUPPORTED, r->recipe->where, NO_OFFSET,
                                             "%s is not supported", path),
                                   "%.60s", given ? given : "");
    free(given);
    return status;
}

static np_status wrong(struct reader *r, const char *path, const char *what)
{
    return error_set(r->err, NP_EFORMAT, r->recipe->where, NO_OFFSET, "%s %s", path, what);
}

/* Reads `part` by its "type"; null is nothing. */
static np_status read_typed(struct reader *r, const struct part_type *types, const json_t *part,
                            const char *path)
{
    char place[PATH_BYTES];
    if (!part || json_is_null(part)) return NP_OK;
    const json_t *type = json_object_get(part, "type");
    snprintf(place, sizeof place, "%s.type", path);
    if (!json_is_string(type)) return wrong(r, place, "is missing");
    for (; types->name; types++)
        if (!strcmp(types->name, json_string_value(type))) return types->read(r, part, path);
    return refuse(r, place, type);
}

/* Reads every element of the list that is `key` of part. */
static np_status read_list(struct reader *r, const struct part_type *types, const json_t *part,
                           const char *key, const char *path)
{
    const json_t *list = json_object_get(part, key);
    char place[PATH_BYTES];
    snprintf(place, sizeof place, "%s.%s", path, key);
    if (!json_is_array(list)) return wrong(r, place, "is no list");
    if (++r->depth > MAX_NESTING) return wrong(r, place, "is nested too deep");
    for (size_t i = 0; i < json_array_size(list); i++) {
        snprintf(place, sizeof place, "%.100s.%s[%zu]", path, key, i);
        TRY(read_typed(r, types, json_array_get(list, i), place));
    }
    r->depth--;
    return NP_OK;
}

/* Refuses part[key] unless it is absent, null, or what `allowed` says. */
enum allowed { ALLOW_FALSE, ALLOW_EMPTY };
static np_status only(struct reader *r, const json_t *part, const char *path, const char *key,
                      enum allowed allowed)
{
    const json_t *value = json_object_get(part, key);
    char place[PATH_BYTES];
    if (!value || json_is_null(value)) return NP_OK;
    if (allowed == ALLOW_FALSE ? json_is_false(value)
                               : json_is_string(value) && !json_string_length(value))
        return NP_OK;
    snprintf(place, sizeof place, "%s.%s", path, key);
    return refuse(r, place, value);
}

/* ---- normalizer -------------------------------------------------------------------------------
 */

static np_status normalizer_nfc(struct reader *r, const json_t *part, const char *path)
{
    r->recipe->nfc = true;
    return NP_OK;
}

static read_part normalizer_sequence;
static const struct part_type normalizers[] = {
    {"NFC", normalizer_nfc}, {"Sequence", normalizer_sequence}, {NULL, NULL}};

static np_status normalizer_sequence(struct reader *r, const json_t *part, const char *path)
{
    return read_list(r, normalizers, part, "normalizers", path);
}

/* ---- pre_tokenizer ----------------------------------------------------------------------------
 */

static np_status add_step(struct reader *r, struct split_step step, const char *path)
{
    if (r->byte_level) return wrong(r, path, "stands behind ByteLevel, which has to be the last");
    if (r->recipe->n_steps == SPLIT_MAX_STEPS) return wrong(r, path, "is one step too many");
    r->recipe->steps[r->recipe->n_steps++] = step;
    return NP_OK;
}

static np_status pre_byte_level(struct reader *r, const json_t *part, const char *path)
{
    char place[PATH_BYTES];
    bool first = r->recipe->n_steps == 0;
    snprintf(place, sizeof place, "%s.add_prefix_space", path);
    const json_t *space = json_object_get(part, "add_prefix_space");
    if (json_is_true(space) && !first) return refuse(r, place, space);
    r->recipe->prefix_space = json_is_true(space);
    if (!json_is_false(json_object_get(part, "use_regex")))
        TRY(add_step(
            r, (struct split_step){.regex = rule_gpt2_regex, .n_bytes = strlen(rule_gpt2_regex)},
            path));
    else if (r->byte_level)
        return wrong(r, path, "stands behind another ByteLevel");
    r->byte_level = true;
    return NP_OK;
}

static np_status pre_digits(struct reader *r, const json_t *part, const char *path)
{
    bool single = json_is_true(json_object_get(part, "individual_digits"));
    const char *regex = single ? "\\p{N}" : "\\p{N}+";
    return add_step(r, (struct split_step){.regex = regex, .n_bytes = strlen(regex)}, path);
}

static np_status pre_split(struct reader *r, const json_t *part, const char *path)
{
    char place[PATH_BYTES];
    const json_t *pattern = json_object_get(part, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex"),
                 *behavior = json_object_get(part, "behavior");
    const char *how = json_is_string(behavior) ? json_string_value(behavior) : "";
    bool removed = !strcmp(how, "Removed"), invert = json_is_true(json_object_get(part, "invert"));
    snprintf(place, sizeof place, "%s.pattern", path);
    if (!json_string_length(regex)) return refuse(r, place, pattern);
    snprintf(place, sizeof place, "%s.behavior", path);
    if (!removed && strcmp(how, "Isolated") != 0) return refuse(r, place, behavior);
    return add_step(r,
                    (struct split_step){.regex = json_string_value(regex),
                                        .n_bytes = json_string_length(regex),
                                        .drop_matches = removed && !invert,
                                        .drop_gaps = removed && invert},
                    path);
}

static read_part pre_sequence;
static const struct part_type pre_tokenizers[] = {{"ByteLevel", pre_byte_level},
                                                  {"Digits", pre_digits},
                                                  {"Split", pre_split},
                                                  {"Sequence", pre_sequence},
                                                  {NULL, NULL}};

static np_status pre_sequence(struct reader *r, const json_t *part, const char *path)
{
    return read_list(r, pre_tokenizers, part, "pretokenizers", path);
}

/* ---- decoder and post_processor ---------------------------------------------------------------
 */

static np_status nothing(struct reader *r, const json_t *part, const char *path)
{
    return NP_OK;
}

static read_part decoder_sequence;
static const struct part_type decoders[] = {
    {"ByteLevel", nothing}, {"Sequence", decoder_sequence}, {NULL, NULL}};

static np_status decoder_sequence(struct reader *r, const json_t *part, const char *path)
{
    return read_list(r, decoders, part, "decoders", path);
}

/* The ids that a template's special token stands for, to the end of ids[*n]. */
static np_status template_ids(struct reader *r, const json_t *part, const char *name,
                              const char *path, int32_t *ids, size_t *n)
{
    const json_t *list =
        json_object_get(json_object_get(json_object_get(part, "special_tokens"), name), "ids");
    if (!json_array_size(list))
        return wrong(r, path, "names a token that special_tokens does not have");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= r->recipe->n_vocab)
            return wrong(r, path, "has an id outside of the vocabulary");
        if (*n == RECIPE_MAX_EDGE) return wrong(r, path, "adds too many tokens");
        ids[(*n)++] = (int32_t)json_integer_value(id);
    }
    return NP_OK;
}

static np_status post_template(struct reader *r, const json_t *part, const char *path)
{
    const json_t *single = json_object_get(part, "single");
    struct recipe *recipe = r->recipe;
    char place[PATH_BYTES];
    size_t n_sequences = 0;
    if (r->ends_open) return wrong(r, path, "is a second template");
    r->ends_open = true;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i),
                     *special = json_object_get(piece, "SpecialToken");
        const char *name = json_string_value(json_object_get(special, "id"));
        snprintf(place, sizeof place, "%.100s.single[%zu]", path, i);
        if (json_object_get(piece, "Sequence"))
            n_sequences++;
        else if (!name)
            return refuse(r, place, piece);
        else if (n_sequences)
            TRY(template_ids(r, part, name, place, recipe->after, &recipe->n_after));
        else
            TRY(template_ids(r, part, name, place, recipe->before, &recipe->n_before));
    }
    snprintf(place, sizeof place, "%s.single", path);
    return n_sequences == 1 ? NP_OK : wrong(r, place, "does not hold the text once");
}

static read_part post_sequence;
static const struct part_type post_processors[] = {{"ByteLevel", nothing},
                                                   {"TemplateProcessing", post_template},
                                                   {"Sequence", post_sequence},
                                                   {NULL, NULL}};

static np_status post_sequence(struct reader *r, const json_t *part, const char *path)
{
    return read_list(r, post_processors, part, "processors", path);
}

/* ---- model and added_tokens -------------------------------------------------------------------
 */

static np_status read_merge(struct reader *r, const json_t *merge)
{
    struct recipe *recipe = r->recipe;
    if (json_is_string(merge))
        return recipe_add_merge(recipe, json_string_value(merge), json_string_length(merge),
                                r->err);
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_string_length(left) || !json_string_length(right)) {
        char place[PATH_BYTES];
        snprintf(place, sizeof place, "model.merges[%zu]", recipe->n_merges);
        return wrong(r, place, "is not a pair of tokens");
    }
    recipe->merges[recipe->n_merges++] =
        (struct recipe_merge){{json_string_value(left), json_string_length(left)},
                              {json_string_value(right), json_string_length(right)}};
    return NP_OK;
}

static np_status read_model(struct reader *r, const json_t *model, const struct folder_files *files)
{
    static const struct {
        const char *key;
        enum allowed allowed;
    } options[] = {{"dropout", ALLOW_FALSE},
                   {"continuing_subword_prefix", ALLOW_EMPTY},
                   {"byte_fallback", ALLOW_FALSE},
                   {"end_of_word_suffix", ALLOW_EMPTY}};
    const json_t *type = json_object_get(model, "type"), *vocab = json_object_get(model, "vocab");
    const json_t *merges = json_object_get(model, "merges");
    if (!json_is_object(model)) return wrong(r, "model", "is missing");
    if (type && strcmp(json_is_string(type) ? json_string_value(type) : "", "BPE") != 0)
        return refuse(r, "model.type", type);
    if (!json_is_object(vocab)) return wrong(r, "model.vocab", "is no object");
    if (!json_is_array(merges)) return wrong(r, "model.merges", "is no list");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        TRY(only(r, model, "model", options[i].key, options[i].allowed));
    TRY(recipe_read_vocab(r->recipe, vocab, files, json_array_size(merges), r->err));
    for (size_t i = 0; i < json_array_size(merges); i++)
        TRY(read_merge(r, json_array_get(merges, i)));
    r->recipe->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    return NP_OK;
}

static np_status read_added(struct reader *r, const json_t *list)
{
    char path[PATH_BYTES];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *token = json_array_get(list, i), *id = json_object_get(token, "id");
        snprintf(path, sizeof path, "added_tokens[%zu]", i);
        if (!json_is_integer(id)) return wrong(r, path, "has no id");
        TRY(recipe_add_token(r->recipe, json_integer_value(id), token, path, r->err));
    }
    return NP_OK;
}

/* The name of a known rule that the steps are, else "of tokenizer.json". */
static void name_rule(struct recipe *recipe)
{
    static const char *const names[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
    snprintf(recipe->rule, sizeof recipe->rule, "of tokenizer.json");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct known_rule *rule = rule_find(names[i], strlen(names[i]));
        bool same = rule->nfc == recipe->nfc;
        for (size_t k = 0; k < 2 && same; k++) {
            const char *regex = k < recipe->n_steps ? recipe->steps[k].regex : NULL;
            same = regex && rule->regexes[k] ? !strcmp(regex, rule->regexes[k])
                                             : regex == rule->regexes[k];
        }
        if (same && recipe->n_steps <= 2)
            snprintf(recipe->rule, sizeof recipe->rule, "%s", names[i]);
    }
}

np_status recipe_from_json(struct recipe *recipe, const json_t *root,
                           const struct folder_files *beside, np_error *err)
{
    static const char *const keys[] = {"version",        "truncation", "padding",
                                       "added_tokens",   "normalizer", "pre_tokenizer",
                                       "post_processor", "decoder",    "model"};
    struct reader r = {.recipe = recipe, .err = err};
    struct folder_files files = *beside;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)root, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            known = known || !strcmp(key, keys[i]);
        if (!known) return refuse(&r, key, value);
    }
    files.added_tokens = json_object_get(root, "added_tokens");
    TRY(read_model(&r, json_object_get(root, "model"), &files));
    TRY(read_added(&r, files.added_tokens));
    TRY(read_typed(&r, normalizers, json_object_get(root, "normalizer"), "normalizer"));
    TRY(read_typed(&r, pre_tokenizers, json_object_get(root, "pre_tokenizer"), "pre_tokenizer"));
    if (!r.byte_level) return refuse(&r, "pre_tokenizer without ByteLevel", NULL);
    TRY(read_typed(&r, post_processors, json_object_get(root, "post_processor"), "post_processor"));
    TRY(read_typed(&r, decoders, json_object_get(root, "decoder"), "decoder"));
    name_rule(recipe);
    return NP_OK;
}
