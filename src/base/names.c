/*
 * names.c - lists of names. Nearness is Levenshtein's distance, up to a third of the word; else a
 * name that begins with it.
 */
#include "base/names.h"

#include <string.h>

int name_find(const char *const *names, const char *text, size_t n_bytes)
{
    for (int i = 0; names[i]; i++)
        if (strlen(names[i]) == n_bytes && memcmp(names[i], text, n_bytes) == 0) return i;
    return -1;
}

bool text_ends_with(const char *text, const char *end)
{
    size_t n_text = text ? strlen(text) : 0, n_end = strlen(end);
    return n_text > n_end && strcmp(text + n_text - n_end, end) == 0;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Levenshtein's distance, one row at a time. */
size_t name_distance(const char *a, const char *b)
{
    enum { MAX_WORD = 64 };
    size_t row[MAX_WORD + 1], n_a = strlen(a), n_b = strlen(b);
    if (n_a > MAX_WORD || n_b > MAX_WORD) return SIZE_MAX;
    for (size_t j = 0; j <= n_b; j++) row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[n_b];
}

const char *name_nearest(const char *const *first, size_t count, size_t stride, const char *word)
{
    const char *nearest = NULL, *begins = NULL;
    size_t n_word = strlen(word), least = 2 + n_word / 3;
    for (size_t i = 0; i < count; i++) {
        const char *name = *(const char *const *)(const void *)((const char *)first + i * stride);
        size_t distance = name_distance(name, word);
        if (distance < least) {
            least = distance;
            nearest = name;
        }
        if (!begins && n_word > 2 && strncmp(name, word, n_word) == 0) begins = name;
    }
    return nearest ? nearest : begins;
}
