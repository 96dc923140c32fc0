/*
 * alphabet.c - bytes that are printable in Latin-1 stand for themselves; the other 68 (0x00-0x20,
 * 0x7f-0xa0, 0xad) are, in order, U+0100 and what follows.
 */
#include "text/alphabet.h"
#include "text/unicode.h"

#define N_OTHERS 68

static bool stands_for_itself(uint32_t c)
{
    return (c > 0x20 && c < 0x7F) || (c > 0xA0 && c <= 0xFF && c != 0xAD);
}

/* The byte of character U+0100 + i. */
static uint8_t other(uint32_t i)
{
    return (uint8_t)(i <= 0x20 ? i : i < 67 ? i - 0x21 + 0x7F : 0xAD);
}

uint32_t alphabet_char(uint8_t byte)
{
    if (stands_for_itself(byte)) return byte;
    return 0x100u + (byte <= 0x20 ? byte : byte == 0xAD ? 67u : byte - 0x7Fu + 0x21u);
}

bool alphabet_decode(const char *text, size_t n, char *out, uint32_t *n_out)
{
    *n_out = 0;
    for (size_t at = 0; at < n;) {
        uint32_t c;
        size_t length = utf8_read(text + at, n - at, &c);
        if (!length) return false;
        if (stands_for_itself(c))
            out[(*n_out)++] = (char)c;
        else if (c >= 0x100 && c < 0x100 + N_OTHERS)
            out[(*n_out)++] = (char)other(c - 0x100);
        else
            return false;
        at += length;
    }
    return true;
}
