/*
 * alphabet.h - the byte-level alphabet: how vocabularies of GPT-2's kind write bytes as printable
 * characters.
 */
#ifndef TEXT_ALPHABET_H
#define TEXT_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ALPHABET_MAX_BYTES 4096 /* of one side of a merge, as written */

/* Text in the alphabet as the bytes that it stands for; out holds n bytes, and may be text. False,
 * with out spoilt: a character is not in the alphabet. */
bool alphabet_decode(const char *text, size_t n, char *out, uint32_t *n_out);

/* The character of a byte. */
uint32_t alphabet_char(uint8_t byte);

#endif
