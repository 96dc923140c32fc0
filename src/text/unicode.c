/*
 * unicode.c - classes of characters.
 *
 * A byte that is not part of valid UTF-8 counts as one character of the class UC_INVALID: no byte
 * of a text is ever lost or replaced, and no rule takes it for a letter, a digit or a space.
 */
#include "text/unicode.h"

size_t utf8_write(uint32_t c, char out[4])
{
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

static uint8_t class_of(uint32_t c)
{
    return c < 0x80 ? (uint8_t)c : (uint8_t)CLASS_OF(unicode_info(c) & UNICODE_CLASS_MASK);
}

size_t unicode_classes(const char *text, size_t n, uint8_t *classes)
{
    size_t n_classes = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c = (unsigned char)text[i];
        size_t length = c < 0x80 ? 1 : utf8_read(text + i, n - i, &c);
        classes[n_classes++] = length ? class_of(c) : CLASS_OF(UC_INVALID);
        i += length ? length : 1;
    }
    return n_classes;
}

enum unicode_class class_category(uint8_t cls)
{
    static const enum unicode_class singles[] = {UC_CC, UC_LL, UC_LU, UC_INVALID};
    if (cls < 0x80) return (enum unicode_class)(unicode_info(cls) & UNICODE_CLASS_MASK);
    int uc = cls & 0x7F;
    if (uc >= UC_INVALID) return UC_INVALID;
    return uc < UNICODE_CATEGORIES ? (enum unicode_class)uc : singles[uc - UNICODE_CATEGORIES];
}

bool class_is_space(uint8_t cls)
{
    if (cls < 0x80) return cls == ' ' || (cls >= '\t' && cls <= '\r');
    return cls == CLASS_OF(UC_ZS) || cls == CLASS_OF(UC_ZL) || cls == CLASS_OF(UC_ZP) ||
           cls == CLASS_OF(UC_NEXT_LINE);
}

bool unicode_is_space(uint32_t c)
{
    return class_is_space(class_of(c));
}

/* \w of UTS 18: Alphabetic, M, Nd, Pc and the two joiners. Alphabetic beyond L, M and Nl are the
 * circled letters. */
bool unicode_is_word(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } others[] = {{0x200C, 0x200D},
                  {0x24B6, 0x24E9},
                  {0x1F130, 0x1F149},
                  {0x1F150, 0x1F169},
                  {0x1F170, 0x1F189}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (c >= others[i].first && c <= others[i].last) return true;
    enum unicode_class category = class_category(class_of(c));
    return (category >= UC_LL && category <= UC_NL) || category == UC_PC;
}

size_t utf8_last(const char *text, size_t n, uint32_t *c)
{
    for (size_t length = 1; length <= 4 && length <= n; length++)
        if (utf8_read(text + n - length, length, c) == length) return length;
    return 0;
}
