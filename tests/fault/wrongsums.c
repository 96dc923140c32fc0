/*
 * wrongsums.c - the negative control: linked with -Wl,--wrap=kernels_get it puts a product in the
 * table whose lanes lie along K, as every other engine has it. All hashes must notice.
 */
#include "tensor/kernels.h"

#include <math.h>

#define LANES 8

const struct kernels *__real_kernels_get(enum cpu_level level);
const struct kernels *__wrap_kernels_get(enum cpu_level level);

/* mix_values, K being the keys: lane k mod 8 adds the terms of key k, then the lanes are added. */
static void lanes_along_keys(size_t n_rows, const float *p, size_t ldp, const float *const *pages,
                             size_t n_keys, float *y, size_t ldy, size_t head_dim)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < head_dim; i++) {
            float lane[LANES] = {0}, sum = 0;
            for (size_t j = 0; j < n_keys; j++) {
                size_t at = i / TILE * PANEL * TILE + j % PANEL * TILE + i % TILE;
                lane[j % LANES] = fmaf(p[r * ldp + j], pages[j / PANEL][at], lane[j % LANES]);
            }
            for (size_t k = 0; k < LANES; k++) sum += lane[k];
            y[r * ldy + i] = sum;
        }
}

const struct kernels *__wrap_kernels_get(enum cpu_level level)
{
    static struct kernels wrong;
    wrong = *__real_kernels_get(level);
    wrong.mix_values = lanes_along_keys;
    return &wrong;
}
