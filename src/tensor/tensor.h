/*
 * tensor.h - what a tensor is: element types, shapes, and the f32 value of every stored weight.
 *
 * Shapes are in C order: shape[0] is the slowest dimension ("rows"), shape[n_dims-1] lies
 * contiguous. A weight matrix [n_out, n_in] has n_out rows of n_in elements. (GGUF writes
 * dimensions the other way round; its reader turns them.)
 */
#ifndef TENSOR_TENSOR_H
#define TENSOR_TENSOR_H

#include "base/error.h"
#include <stdbool.h>

/* X(name, ggml type number or -1, elements per block, bytes per block). New type: one row here and
 * one function in dequant.c. Quantised layouts are drawn there. */
#define DTYPE_MAP(X)   \
    X(F32, 0, 1, 4)    \
    X(F16, 1, 1, 2)    \
    X(Q4_0, 2, 32, 18) \
    X(Q4_1, 3, 32, 20) \
    X(Q5_0, 6, 32, 22) \
    X(Q5_1, 7, 32, 24) \
    X(Q8_0, 8, 32, 34) \
    X(BF16, 30, 1, 2)

enum dtype {
#define DTYPE_ENUM(name, ggml, block, bytes) DT_##name,
    DTYPE_MAP(DTYPE_ENUM)
#undef DTYPE_ENUM
        DT_COUNT,
    DT_NONE = DT_COUNT /* a type that is not in the table; its row of dtype_infos has 0 bytes */
};

struct dtype_info {
    const char *name;
    int ggml_type;
    uint32_t block_elements, block_bytes;
};
extern const struct dtype_info dtype_infos[DT_COUNT + 1];

#define MAX_DIMS 4

struct tensor {
    const char *name;
    enum dtype dtype;
    int n_dims;
    uint64_t shape[MAX_DIMS];
    uint64_t n_elements;
    uint64_t n_bytes;
    uint64_t offset; /* of its data in file number `file` */
    int file;
    const char *type_name; /* as the file calls it: "Q4_1", "BF16"; "Q4_K", "BOOL" with DT_NONE */
};

/* Converts n elements (a multiple of the block) to f32, exactly: one f32 rounding per operation of
 * the type's formula, nothing fused. */
void dequantize(enum dtype dtype, const void *blocks, float *out, size_t n_elements);

/* First index whose value is not finite, or n. */
size_t first_nonfinite(const float *values, size_t n);

#endif
