/*
 * split.h - the splitting rule of a tokenizer: regular expressions applied one after the other.
 *
 * Expressions run over the classes of unicode.h, one byte per character, not over the text: \p{L}
 * becomes a set of bytes, so that any rule is fast, knows the Unicode version of our tables and not
 * that of PCRE2, and may meet any bytes. Understood: ASCII literals, \p{..} of general categories,
 * \s \S \d \D, sets, groups,
 * (?i:..) around letters, look-ahead, quantifiers. Anything else is refused by name.
 */
#ifndef TEXT_SPLIT_H
#define TEXT_SPLIT_H

#include "base/arena.h"
#include <stdbool.h>

#define SPLIT_MAX_STEPS 8
#define SPLIT_MAX_REGEX_BYTES 4096

/* A step as it is described; what matches, and what lies between matches, become pieces or are
 * dropped. */
struct split_step {
    const char *regex;
    size_t n_bytes;
    bool drop_matches, drop_gaps;
};

struct splitter {
    struct split_code *steps; /* [n_steps] */
    size_t n_steps;
};

/* where: the file and place that errors name. */
np_status splitter_init(struct splitter *splitter, struct arena *arena,
                        const struct split_step *steps, size_t n_steps, const char *where,
                        np_error *err);
void splitter_free(struct splitter *splitter);

/* What one call of splitter_run needs; may be used again and again by one thread. */
struct split_space {
    uint8_t *classes;
    size_t n_allocated;
    void *match;
};
np_status split_space_init(struct split_space *space, const struct splitter *splitter,
                           np_error *err);
void split_space_free(struct split_space *space);

/* Calls piece(ctx, begin, end) for every piece of text[0..n), ascending, until it fails. */
typedef np_status split_piece(void *ctx, size_t begin, size_t end, np_error *err);
np_status splitter_run(const struct splitter *splitter, struct split_space *space, const char *text,
                       size_t n, split_piece *piece, void *ctx, np_error *err);

/* Calls place(ctx, at), ascending, for places where text[0..n) may be cut whatever follows it: the
 * pieces of `text + anything` are those of text[0..n) up to there, then those of the rest split by
 * itself. n must not stand inside a character. Some such places may be missing, above all near n.
 */
typedef void split_place(void *ctx, size_t at);
np_status splitter_places(const struct splitter *splitter, struct split_space *space,
                          const char *text, size_t n, split_place *place, void *ctx, np_error *err);

#endif
