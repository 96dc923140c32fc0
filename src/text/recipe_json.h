/*
 * recipe_json.h - the JSON files of a folder, as parts of a recipe.
 */
#ifndef TEXT_RECIPE_JSON_H
#define TEXT_RECIPE_JSON_H

#include "text/recipe.h"

/* What stands beside the vocabulary; each may be NULL. */
struct folder_files {
    json_t *config;         /* tokenizer_config.json */
    json_t *map;            /* special_tokens_map.json */
    json_t *added;          /* added_tokens.json */
    json_t *added_tokens;   /* of tokenizer.json */
    const char *model_type; /* of config.json */
};

/* tokenizer.json: everything but BOS and EOS. Each part that is not supported is refused with its
 * JSON path. */
np_status recipe_from_json(struct recipe *recipe, const json_t *root,
                           const struct folder_files *files, np_error *err);

/* Reserves room for every id that any file names, reads {"text": id, ...}. */
np_status recipe_read_vocab(struct recipe *recipe, const json_t *vocab,
                            const struct folder_files *files, size_t n_merges, np_error *err);

/* Added tokens, BOS and EOS of the files beside. */
np_status recipe_read_config(struct recipe *recipe, const struct folder_files *files,
                             np_error *err);

/* One element of added_tokens, or of added_tokens_decoder; path names it in errors. */
np_status recipe_add_token(struct recipe *recipe, int64_t id, const json_t *token, const char *path,
                           np_error *err);

int32_t recipe_find(const struct recipe *recipe, const char *text,
                    size_t n_bytes); /* -1: no such token */

#endif
