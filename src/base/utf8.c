/* utf8.c - see utf8.h. One table instead of a decoder: nobody here needs the code points. */
#include "base/utf8.h"

/* The well-formed characters by their first byte, up to `last`: length, and the range of the second
 * byte, which shuts out overlong forms, surrogates and what lies above U+10FFFF (Unicode, table
 * 3-7). */
static const struct utf8_form {
    unsigned char last, low, high;
    int n_bytes;
} utf8_forms[] = {{0x7F, 0, 0, 1},       {0xC1, 0, 0, -1},      {0xDF, 0x80, 0xBF, 2},
                  {0xE0, 0xA0, 0xBF, 3}, {0xEC, 0x80, 0xBF, 3}, {0xED, 0x80, 0x9F, 3},
                  {0xEF, 0x80, 0xBF, 3}, {0xF0, 0x90, 0xBF, 4}, {0xF3, 0x80, 0xBF, 4},
                  {0xF4, 0x80, 0x8F, 4}, {0xFF, 0, 0, -1}};

int utf8_length(const unsigned char *at, size_t left)
{
    const struct utf8_form *form = utf8_forms;
    while (at[0] > form->last) form++;
    for (int i = 1; i < form->n_bytes; i++) {
        unsigned char low = i == 1 ? form->low : 0x80, high = i == 1 ? form->high : 0xBF;
        if ((size_t)i >= left || at[i] < low || at[i] > high) return -i;
    }
    return form->n_bytes;
}

size_t utf8_unfinished(const char *text, size_t n_bytes)
{
    for (size_t back = 1; back <= 3 && back <= n_bytes; back++) {
        unsigned char byte = (unsigned char)text[n_bytes - back];
        if ((byte & 0xc0) == 0x80) continue;
        size_t length = byte >= 0xf0 && byte < 0xf5 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;
        return byte < 0xf5 && length > back ? back : 0;
    }
    return 0;
}
