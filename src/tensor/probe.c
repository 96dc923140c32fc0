/*
 * probe.c - does an instruction that multiplies pairs of bf16 add in the order of DOT?
 *
 * Intel's definition of VDPBF16PS says so, but instructions of this kind differ: Arm's BFDOT adds
 * the two products first, rounded to odd. So it is asked, with values close enough to each other
 * that another order, or another rounding, shows in the last bit, and with sums so small that an
 * instruction which flushed more than subnormals would show.
 */
#include "tensor/bits.h"
#include "tensor/levels.h"
#include <math.h>

#define PROBE_STEPS 64

/* A bf16 of random sign and mantissa, its exponent one of 8 from `lowest` on. */
static uint32_t some_bf16(uint64_t *state, uint32_t lowest)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint32_t r = (uint32_t)(*state >> 32);
    return (r & 0x807f) | (127 + lowest + (r >> 16) % 8) << 7;
}

static float high_half(uint32_t pair)
{
    return float_of(pair & 0xffff0000);
}
static float low_half(uint32_t pair)
{
    return float_of(pair << 16);
}

bool dot_adds_in_order(dot_pairs_fn *dot)
{
    /* Down to the smallest operands of the profile, up to where no sum is infinite yet. */
    static const int lowest[] = {-50, -4, 52};
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof lowest / sizeof *lowest; i++) {
        float got[TILE] = {0}, want[TILE] = {0};
        for (int step = 0; step < PROBE_STEPS; step++) {
            uint32_t x[TILE], w[TILE];
            for (size_t lane = 0; lane < TILE; lane++) {
                x[lane] = some_bf16(&state, (uint32_t)lowest[i]);
                x[lane] |= some_bf16(&state, (uint32_t)lowest[i]) << 16;
                w[lane] = some_bf16(&state, (uint32_t)lowest[i]);
                w[lane] |= some_bf16(&state, (uint32_t)lowest[i]) << 16;
                want[lane] = fmaf(high_half(x[lane]), high_half(w[lane]), want[lane]);
                want[lane] = fmaf(low_half(x[lane]), low_half(w[lane]), want[lane]);
            }
            dot(x, w, got);
            if (memcmp(got, want, sizeof got) != 0) return false;
        }
    }
    return true;
}
