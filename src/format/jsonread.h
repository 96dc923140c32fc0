/*
 * jsonread.h - jansson behind bounds: nesting and the number of values are limited before it
 * allocates.
 */
#ifndef FORMAT_JSONREAD_H
#define FORMAT_JSONREAD_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>

#define JSONREAD_MAX_DEPTH 64
#define JSONREAD_MAX_VALUES ((size_t)2 << 20) /* 32 for each tensor; at most about 160 MB */

/* Parses a whole text; duplicate keys, trailing bytes, integers above 63 bits and invalid UTF-8
 * are refused. offset: where the text begins in the file, for the error. *out is released with
 * json_decref. */
np_status jsonread(const char *bytes, size_t n_bytes, const char *where, int64_t offset,
                   json_t **out, np_error *err);

#endif
