/* tokenizer_inside.h - what a tokenizer is made of: for tokenizer.c and settle.c alone. */
#ifndef TEXT_TOKENIZER_INSIDE_H
#define TEXT_TOKENIZER_INSIDE_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/recipe.h"

struct tokenizer {
    struct arena arena;
    struct bpe bpe;
    struct splitter splitter;
    struct added_set added;         /* looked for in the text as given */
    struct added_set normalized;    /* looked for after normalising */
    const struct bpe_token *tokens; /* [n_vocab] */
    uint8_t *flags; /* [n_vocab] TOKEN_* of recipe.h; IN_MODEL only where merges can give it */
    uint32_t n_vocab;
    bool nfc, prefix_space;
    int32_t bos, eos;
    int32_t before[RECIPE_MAX_EDGE], after[RECIPE_MAX_EDGE];
    size_t n_before, n_after;
    char describe[128];
    struct text_view templates[TOKENIZER_TEMPLATES]; /* bytes NULL: none */
    const char *names[TOKENIZER_NAMES];
};

#endif
