/*
 * settings.h - rules that read a model file's settings into struct model_config.
 *
 * Every setting of the file must match a rule of its architecture or of the common lists; one that
 * does not is refused by name. In GGUF, keys begin with "<architecture>."; other groups (general.,
 * tokenizer., ...) are not arithmetic and belong to other readers.
 */
#ifndef MODEL_SETTINGS_H
#define MODEL_SETTINGS_H

#include "model/arch.h"

enum rule_kind {
    RULE_SIZE,   /* a positive integer into a size_t field */
    RULE_REAL,   /* a positive finite number into a double field */
    RULE_FLAG,   /* a boolean into a bool field */
    RULE_EXPECT, /* must be one of `expect` ("a|b"), null or absent; of an array: every element */
    RULE_IGNORE  /* changes no number */
};

struct setting_rule {
    const char *key; /* GGUF: without "<architecture>."; a trailing '*' matches any rest */
    enum rule_kind kind;
    size_t field; /* offset in struct model_config */
    bool required;
    const char *expect;
};

/* Applies rules[..] (ends with key NULL) to every setting of the file. */
np_status settings_apply(const struct modelfile *file, const struct architecture *arch,
                         struct model_config *config, np_error *err);

/* Sliding windows as Qwen2's config.json describes them (arch.h: windows); n_layers is known. */
np_status windows_qwen2(const struct modelfile *file, struct model_config *config, np_error *err);

#endif
