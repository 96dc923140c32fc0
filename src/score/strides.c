/*
 * strides.c - hands out the windows of a sequence as its rows become known.
 *
 * Nothing is looked up in a list: the next window follows from two numbers, so a sequence may be of
 * any length and its end need not be known before it comes.
 */
#include "score/strides.h"

struct strides strides_start(size_t window, size_t stride)
{
    return (struct strides){.window = window, .stride = stride};
}

bool strides_next(struct strides *strides, uint64_t n_rows, bool ended, struct window *out)
{
    uint64_t known = n_rows - strides->begin; /* begin never passes n_scored, nor that n_rows */
    size_t length = known < strides->window ? (size_t)known : strides->window;
    if (strides->n_scored >= n_rows || (length < strides->window && !ended)) return false;
    *out = (struct window){strides->begin, length, (size_t)(strides->n_scored - strides->begin)};
    strides->n_scored = strides->begin + length;
    strides->begin += strides->stride;
    return true;
}
