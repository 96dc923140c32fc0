/*
 * added.h - added tokens: texts that are one token wherever they stand, found before anything else.
 *
 * The search is leftmost, and the longest of those that begin there. Once a set is sealed it never
 * changes.
 */
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H

#include "base/arena.h"
#include <stdbool.h>

#define ADDED_MAX_BYTES 1024

struct added_token {
    const char *bytes; /* borrowed; at least one byte */
    uint32_t n_bytes;
    int32_t id;
    bool special;        /* not looked for when special tokens are ordinary text */
    bool lstrip, rstrip; /* takes the white space before, behind it */
    bool single_word;    /* only where no letter touches it */
};

struct added_set {
    struct added_token *tokens; /* [n_tokens], by bytes */
    size_t n_tokens;
    uint32_t first[257];      /* tokens that begin with byte b: [first[b], first[b + 1]) */
    size_t max_bytes;         /* of the longest token */
    bool lstrip, single_word; /* some token has it */
};

/* Sorts the tokens, drops repetitions of a text. */
void added_seal(struct added_set *set);

/* The first match at or behind `from` in text[0..n). What stands before *begin is ordinary text.
 * literal: NULL, or [n] bytes, not 0 where no special token may stand: neither whole nor in part.
 */
const struct added_token *added_find(const struct added_set *set, const char *text,
                                     const unsigned char *literal, size_t n, size_t from,
                                     bool parse_special, size_t *begin, size_t *end);

/* Where a search that starts at 0 stands whatever follows text[0..n): returns the end of the last
 * token that is certain (0: there is none); behind it no token, with the space that it takes,
 * begins before *horizon. */
size_t added_settled(const struct added_set *set, const char *text, size_t n, bool parse_special,
                     size_t *horizon);

/* Whether a search that starts anew at `at`, outside of tokens, finds there what one from the
 * beginning of the text would. */
bool added_restarts(const struct added_set *set, const char *text, size_t n, size_t at,
                    bool parse_special);

#endif
