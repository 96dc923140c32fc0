/*
 * strides.h - windows and strides: how a sequence that is longer than the context is scored.
 *
 * Row r is the distribution after token r and scores token r+1; N tokens have N-1 rows that score.
 * A window of W rows runs tokens [begin, begin + W) and scores W next tokens. Windows begin at 0,
 * S, 2S, ...; each row is answered by the first window that holds it, so every token but the first
 * is scored exactly once, with the longest left context that the stride allows: the first W rows
 * see all that stands before them, later ones W - S + 1 to W tokens, their own counted.
 *
 *   W = 4, S = 2     rows 0 1 2 3 4 5 6 7 8          # scored   . only context
 *   window 0              # # # #
 *   window 1                  . . # #
 *   window 2                      . . # #
 *   window 3                          . . #          shorter: the sequence ends
 *
 * The last window begins at its multiple of S like any other, so that what follows a token never
 * changes its score. The window slides over the tokens as they are: a BOS stands before the first
 * window alone.
 */
#ifndef SCORE_STRIDES_H
#define SCORE_STRIDES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows [begin, begin + n_rows); the first n_before of them were scored by earlier windows. */
struct window {
    uint64_t begin;
    size_t n_rows, n_before;
};

struct strides {
    size_t window, stride; /* rows; 1 <= stride <= window */
    uint64_t begin;        /* of the next window */
    uint64_t n_scored;     /* rows that windows handed out have scored */
};

struct strides strides_start(size_t window, size_t stride);

/* The next window of a sequence of which n_rows rows are known; ended: there are no more. False:
 * more rows are needed, or all are scored. */
bool strides_next(struct strides *strides, uint64_t n_rows, bool ended, struct window *out);

#endif
