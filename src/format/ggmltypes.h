/*
 * ggmltypes.h - the element types of ggml by number, so that one which is not supported is refused
 * by name.
 */
#ifndef FORMAT_GGMLTYPES_H
#define FORMAT_GGMLTYPES_H

#include "tensor/tensor.h"

struct ggml_type {
    const char *name;                     /* NULL: this number has no type */
    uint32_t block_elements, block_bytes; /* 0: its size is not known here */
};

/* Never fails: a number without a type gives the all-zero row. */
struct ggml_type ggml_type_of(uint32_t number);

/* The dtype with that ggml number, or DT_NONE. */
enum dtype dtype_of_ggml(uint32_t number);

#endif
