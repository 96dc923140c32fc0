/* tensor.c - the table of element types. */
#include "tensor/tensor.h"

const struct dtype_info dtype_infos[DT_COUNT + 1] = {
#define DTYPE_ROW(name, ggml, block, bytes) {#name, ggml, block, bytes},
    DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
        {"none", -1, 1, 0},
};
