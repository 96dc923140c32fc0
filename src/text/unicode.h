/*
 * unicode.h - UTF-8 and the classes of code points, from one Unicode version (unicode_version).
 *
 * A class is a byte: an ASCII character is its own class, any other code point has 0x80 + its
 * category, a few code points that splitting rules name have one of their own, and so has a byte
 * that is not UTF-8. The rules of a tokenizer run over classes, so they need no tables of their
 * own.
 */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The order of tools/unicode/make_tables.py. */
enum unicode_class {
    UC_CC,
    UC_CF,
    UC_CN,
    UC_CO,
    UC_CS,
    UC_LL,
    UC_LM,
    UC_LO,
    UC_LT,
    UC_LU,
    UC_MC,
    UC_ME,
    UC_MN,
    UC_ND,
    UC_NL,
    UC_NO,
    UC_PC,
    UC_PD,
    UC_PE,
    UC_PF,
    UC_PI,
    UC_PO,
    UC_PS,
    UC_SC,
    UC_SK,
    UC_SM,
    UC_SO,
    UC_ZL,
    UC_ZP,
    UC_ZS,
    UC_NEXT_LINE, /* U+0085: Cc, and white space */
    UC_LONG_S,    /* U+017F: Ll, an s in case-insensitive rules */
    UC_KELVIN,    /* U+212A: Lu, a k in case-insensitive rules */
    UC_INVALID,   /* a byte that belongs to no UTF-8 character */
    UC_COUNT
};
#define UNICODE_CATEGORIES (UC_ZS + 1)
#define CLASS_OF(uc) (0x80 | (uc))

#define UNICODE_BLOCK 128
#define UNICODE_CLASS_MASK 0x3F
#define UNICODE_NFC_UNSAFE 0x40 /* NFC may change it, or join it to what stands before */
#define UNICODE_NFC_STARTS 0x80 /* NFC may join what stands behind to it */

extern const char unicode_version[];
extern const uint16_t unicode_block_of[];
extern const uint8_t unicode_info_of[][UNICODE_BLOCK];

/* enum unicode_class and UNICODE_NFC_*; ASCII has its category here too. */
static inline uint8_t unicode_info(uint32_t c)
{
    return unicode_info_of[unicode_block_of[c / UNICODE_BLOCK]][c % UNICODE_BLOCK];
}

/* Reads the character at text[0..n), n >= 1. Returns its length, or 0 where no valid one starts. */
static inline size_t utf8_read(const char *text, size_t n, uint32_t *c)
{
    static const uint32_t lowest[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) return *c = s[0], 1;
    size_t length = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n < length) return 0;
    *c = s[0] & 0xFFu >> (length + 1);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        *c = *c << 6 | (s[i] & 0x3F);
    }
    bool surrogate = *c >> 11 == 0xD800 >> 11;
    return *c < lowest[length] || *c > 0x10FFFF || surrogate ? 0 : length;
}

/* Writes 1 to 4 bytes; returns how many. */
size_t utf8_write(uint32_t c, char out[4]);

/* Classes of the characters of text, one byte each; returns how many (at most n). */
size_t unicode_classes(const char *text, size_t n, uint8_t *classes);

bool class_is_space(uint8_t cls); /* Unicode's White_Space */
enum unicode_class class_category(
    uint8_t cls); /* UC_INVALID for a stray byte, else below UNICODE_CATEGORIES */

/* Whether the character at the start, or at the end, of text is of a word (\w) or is white space.
 */
size_t utf8_last(const char *text, size_t n,
                 uint32_t *c); /* length of the last character, 0: none */
bool unicode_is_word(uint32_t c);
bool unicode_is_space(uint32_t c);

#endif
