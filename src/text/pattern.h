/*
 * pattern.h - a tokenizer's regular expression as one over the class bytes of unicode.h.
 */
#ifndef TEXT_PATTERN_H
#define TEXT_PATTERN_H

#include "base/buf.h"

/* Errors (NP_EUNSUPPORTED, with the byte offset in the expression) name what is not understood. */
np_status pattern_translate(const char *regex, size_t n_bytes, const char *where, struct buf *out,
                            np_error *err);

#endif
