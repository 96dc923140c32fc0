/*
 * functions.h - the scalar functions behind the slots `unary` and `softmax` of kernels.h: one fixed
 * sequence of operations each, so their bits do not depend on libm or on the CPU. Levels that have
 * no vector form of one of them call it through kernels_ref.c's table.
 */
#ifndef TENSOR_FUNCTIONS_H
#define TENSOR_FUNCTIONS_H

#include "tensor/kernels.h"

#define LOG2E32 0x1.715476p+0f
#define LN2_HI32 0x1.62e430p-1f
#define LN2_LO32 -0x1.05c610p-29f
#define ROUND32 0x1.8p23f /* adding it leaves a whole number in the low bits of the sum */
#define EXP32_MIN -104.0f /* below: 0 */
#define EXP32_MAX 89.0f   /* above: infinity */
/* exp(r) for |r| <= ln 2 / 2 from r^7 down to 1, relative error 2^-30 */
#define EXP32_P(X)     \
    X(0x1.a12564p-13f) \
    X(0x1.6d43a6p-10f) X(0x1.1110e0p-7f) X(0x1.5554e8p-5f) X(0x1.555556p-3f) X(0.5f) X(1.0f) X(1.0f)

#define LOG2E64 0x1.71547652b82fep+0
#define LN2_HI64 0x1.62e42fefa39efp-1
#define LN2_LO64 0x1.abc9e3b39803fp-56
#define ROUND64 0x1.8p52
#define EXP64_MIN -746.0
#define EXP64_MAX 710.0
/* Taylor's 1/12! ... 1/0!: exp(r) for |r| <= ln 2 / 2, relative error 2^-52 */
#define EXP64_P(X)     \
    X(1.0 / 479001600) \
    X(1.0 / 39916800)  \
    X(1.0 / 3628800)   \
    X(1.0 / 362880)    \
    X(1.0 / 40320)     \
    X(1.0 / 5040) X(1.0 / 720) X(1.0 / 120) X(1.0 / 24) X(1.0 / 6) X(0.5) X(1.0) X(1.0)

#define GELU_CUBIC 0.044715
#define GELU_SCALE -0x1.9884533d43651p+0 /* -2 sqrt(2 / pi) */

float exp32(float x);
float log32(float x);
float sin32(float x);
float cos32(float x);
float tanh32(float x);
float erf32(float x);
float silu32(float x);
float gelu_tanh32(float x);
float gelu_erf32(float x);

#endif
