/*
 * words.c - see words.h.
 */
#include "words.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

static np_status encode_word(const np_model *model, np_string word, bool space, struct arena *arena,
                             np_ids *out, np_error *err)
{
    np_tokens tokens;
    while (word.n_bytes > 0 && strchr(" \t\n\r", *word.bytes)) word.bytes++, word.n_bytes--;
    char *text = arena_push(arena, word.n_bytes + 2);
    if (!text) return error_nomem(err, "bad_words", word.n_bytes);
    text[0] = ' ';
    memcpy(text + space, word.bytes, word.n_bytes);
    TRY(np_tokenize(model, text, word.n_bytes + space, NP_NO, NP_DEFAULT, &tokens, err));
    int32_t *ids = arena_push_array(arena, tokens.n_tokens + 1, sizeof *ids);
    if (ids) memcpy(ids, tokens.token_ids, tokens.n_tokens * sizeof *ids);
    *out = (np_ids){ids, tokens.n_tokens};
    np_tokens_free(&tokens);
    return ids ? NP_OK : error_nomem(err, "bad_words", out->n * sizeof *ids);
}

np_status words_encode(const np_model *model, const np_string *words, size_t n_words,
                       struct arena *arena, np_sampling *sampling, np_error *err)
{
    if (n_words == 0) return NP_OK;
    np_ids *list = arena_push_array(arena, 2 * n_words, sizeof *list);
    if (!list) return error_nomem(err, "bad_words", n_words * sizeof *list);
    for (size_t i = 0; i < n_words; i++) {
        np_ids *bare = &list[sampling->n_bad_words], *spaced = bare + 1;
        char where[32];
        TRY(encode_word(model, words[i], false, arena, bare, err));
        snprintf(where, sizeof where, "bad_words[%zu]", i);
        if (bare->n == 0) return error_set(err, NP_EINPUT, where, NO_OFFSET, "the text is empty");
        TRY(encode_word(model, words[i], true, arena, spaced, err));
        sampling->n_bad_words += 1 + (spaced->n == bare->n && spaced->ids[0] != bare->ids[0]);
    }
    sampling->bad_words = list;
    return NP_OK;
}

uint64_t words_seed(int64_t asked)
{
    uint32_t seed;
    struct timespec now;
    if (asked >= 0) return (uint64_t)asked;
    if (getrandom(&seed, sizeof seed, 0) == sizeof seed) return seed;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_nsec;
}
