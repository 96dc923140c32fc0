/*
 * recipe.h - what every kind of tokenizer file says, in one form; tokenizer.c makes a tokenizer of
 * it.
 *
 * A new kind of file is a function that fills a recipe, and a line in tokenizer_open. Texts are
 * borrowed from the file until the tokenizer is built; arrays come from `arena`.
 */
#ifndef TEXT_RECIPE_H
#define TEXT_RECIPE_H

#include "format/modelfile.h"
#include <jansson.h>
#include "text/split.h"
#include "text/tokenizer.h"

#define RECIPE_MAX_VOCAB (1u << 22)
#define RECIPE_MAX_MERGES (1u << 22)
#define RECIPE_MAX_EDGE 8
#define RECIPE_WHERE_BYTES 512

/* Flags of a token. An added token's text is its bytes; any other is written in the byte-level
 * alphabet. */
enum {
    TOKEN_IN_MODEL = 1, /* merges may give it */
    TOKEN_ADDED = 2,
    TOKEN_SPECIAL = 4,
    TOKEN_LSTRIP = 8,
    TOKEN_RSTRIP = 16,
    TOKEN_SINGLE_WORD = 32,
    TOKEN_NORMALIZED = 64, /* an added token that is looked for in the normalised text */
};
struct recipe_token {
    const char *text;
    uint32_t n_bytes, flags;
}; /* text NULL: a hole */
struct recipe_merge {
    struct text_view left, right;
};

struct recipe {
    struct arena arena;
    char where[RECIPE_WHERE_BYTES]; /* the file that errors name */
    struct recipe_token *tokens;    /* [n_vocab] by id */
    uint32_t n_vocab;
    struct recipe_merge *merges; /* [n_merges] by rank */
    size_t n_merges;
    struct split_step steps[SPLIT_MAX_STEPS];
    size_t n_steps;
    char rule[64]; /* the splitting rule's name */
    bool nfc, prefix_space, ignore_merges;
    int32_t bos, eos;     /* -1: none */
    json_t *documents[8]; /* what the texts are borrowed from */
    char *texts[4];
    size_t n_documents, n_texts;
    int32_t before[RECIPE_MAX_EDGE],
        after[RECIPE_MAX_EDGE]; /* what add_special puts around a text */
    size_t n_before, n_after;
    struct text_view templates[TOKENIZER_TEMPLATES], named[TOKENIZER_NAMES]; /* bytes NULL: none */
};

/* A known splitting rule, by the names that GGUF has for it. */
struct known_rule {
    const char *names[5];
    const char *regexes[2];
    bool nfc, ignore_merges;
    bool adds_bos; /* where the file does not say */
};
const struct known_rule *rule_find(const char *name, size_t n_bytes); /* NULL: unknown */
void rule_apply(const struct known_rule *rule, struct recipe *recipe);
extern const char rule_gpt2_regex[];

void recipe_init(struct recipe *recipe, const char *where);
void recipe_free(struct recipe *recipe);

/* Room for n_vocab tokens, and for n_merges merges. */
np_status recipe_reserve(struct recipe *recipe, size_t n_vocab, size_t n_merges, np_error *err);

/* The next merge, written "left right". */
np_status recipe_add_merge(struct recipe *recipe, const char *text, size_t n_bytes, np_error *err);

/* The readers. *found: whether there is a tokenizer at all. */
np_status recipe_from_gguf(struct recipe *recipe, const struct modelfile *file, bool *found,
                           np_error *err);
np_status recipe_from_folder(struct recipe *recipe, const char *folder, const char *model_type,
                             bool *found, np_error *err);

/* Makes a tokenizer of a recipe, which is not needed afterwards. */
np_status tokenizer_build(const struct recipe *recipe, struct tokenizer **out, np_error *err);

#endif
