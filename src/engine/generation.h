/*
 * generation.h - a job that goes on: its sequence grows by one drawn token a step.
 *
 * The rows that the tokens are drawn from are rows like all others: of the same pages, through the
 * same head. So what is told beside a generated token has the bits that scoring the finished text
 * would give, and a job that was preempted goes on as if nothing had been.
 */
#ifndef ENGINE_GENERATION_H
#define ENGINE_GENERATION_H

#include "score/plan.h"
#include "score/sample.h"

struct job;

enum finish { FINISH_NOT_YET, FINISH_LENGTH, FINISH_STOP_ID, FINISH_STOP_TEXT };

/* All memory is the caller's, and lives as long as the job. */
struct generation {
    const struct sampling *sampling; /* checked */
    uint64_t choice;                 /* of the request's choices: the same seed draws otherwise */
    size_t max_tokens;               /* at least 1; with the prompt at most the context */
    int32_t *token_ids; /* [n_tokens + max_tokens] the plan's ids; the engine writes behind them */
    struct history history; /* with the prompt in it, where sampling_wants_history */
    /* Told each token on the engine's thread, and whether it ends the text by its id; answers
     * whether the text shall end here. NULL: never. */
    bool (*stops)(struct job *job, bool ended);

    /* What is told of each token, [max_tokens]; NULL where not wanted. Raw values are those of the
     * plan's temperature (1) and mode; processed ones are of the row that the draw took. */
    bool processed;
    size_t n_top;
    float *logprobs, *entropies;
    int32_t *ranks;
    int32_t *top_ids;    /* [max_tokens][n_top]; -1 where fewer tokens were left */
    float *top_logprobs; /* [max_tokens][n_top] */
    const int32_t *candidate_ids;
    const struct wanted_id *wanted; /* [n_candidates] the same, as a plan has them */
    size_t n_candidates;
    float *scores; /* [max_tokens][n_candidates] in the order of candidate_ids */

    /* out */
    size_t n_generated;
    enum finish finish;
    /* the engine's own */
    bool draws; /* in the step at hand */
};

#endif
