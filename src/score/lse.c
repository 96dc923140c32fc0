/*
 * lse.c - log-sum-exp parts, and the numbers that follow (docs/NUMERICS.md, items 7 and 8).
 *
 * All in f64 and in a fixed order; the maximum of a part is exact. Surprising: T = sum exp(l - m)
 * (l - m) travels along, since the entropy is then log S - T / S and needs no second sweep.
 */
#include "score/head.h"

#include <math.h>

struct lse_part lse_combine(struct lse_part a, struct lse_part b)
{
    bool rises = b.m > a.m;
    struct lse_part high = rises ? b : a, low = rises ? a : b;
    double d = low.m - high.m, e = exp64(d);
    return (struct lse_part){
        .m = high.m,
        .S = low.S * e + high.S,
        .T = (low.T + low.S * d) * e + high.T,
    };
}

struct row_lse lse_finish(struct lse_part part)
{
    double log_S = log64(part.S);
    return (struct row_lse){.m = part.m, .log_S = log_S, .entropy = log_S - part.T / part.S};
}

double logprob64_of(struct row_lse lse, float logit)
{
    return ((double)logit - lse.m) - lse.log_S;
}

float logprob_of(struct row_lse lse, float logit)
{
    return (float)logprob64_of(lse, logit);
}

double prob_of(struct row_lse lse, float logit)
{
    return exp64(logprob64_of(lse, logit));
}

double log_remaining(double sum, size_t n_distinct, size_t n_vocab)
{
    return n_distinct >= n_vocab || sum >= 1 ? -INFINITY : log1p64(-sum);
}
