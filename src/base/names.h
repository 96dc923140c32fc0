/*
 * names.h - lists of names: which one is meant.
 */
#ifndef BASE_NAMES_H
#define BASE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The place of `text` in a NULL-ended list of names, or -1. */
int name_find(const char *const *names, const char *text, size_t n_bytes);

bool text_ends_with(const char *text, const char *end); /* false for NULL */

/* Letters to change, add or drop; SIZE_MAX for words of more than 64. */
size_t name_distance(const char *a, const char *b);

/* The entry nearest to `word` by name_distance, else one that begins with it, or NULL.
 * Names lie `stride` bytes apart. */
const char *name_nearest(const char *const *first, size_t count, size_t stride, const char *word);

#endif
