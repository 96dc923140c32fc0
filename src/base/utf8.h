/*
 * utf8.h - where a character of UTF-8 ends, and where a text is none.
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

/* Length of the well-formed UTF-8 character at `at`; or, negated, of the bytes to replace as one:
 * the longest start of a character, as Unicode recommends and Python does. left > 0. */
int utf8_length(const unsigned char *at, size_t left);

/* Bytes at the end of a text that are the beginning of a longer character (0 to 3). */
size_t utf8_unfinished(const char *text, size_t n_bytes);

#endif
