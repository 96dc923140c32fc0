/*
 * sample.h - which token follows: from one row of raw logits in memory to an id.
 *
 * Steps, in this order (vLLM's v1 sampler: vllm/v1/sample/sampler.py, logits_processor/builtin.py,
 * ops/topk_topp_sampler.py, model_executor/layers/utils.py; limits: vllm/sampling_params.py):
 *
 *   1 allowed_token_ids   all other tokens are masked: their logit becomes -inf
 *   2 bad_words           masks the last id of a sequence whose other ids end the generated ids
 *   3 min_tokens          masks stop_token_ids and eos ids (ignore_eos or not) until so many stand
 *   4 logit_bias          l + bias; beyond -100 or 100 it counts as that
 *   5 penalties           repetition: l > 0 ? l / r : l * r, of ids in prompt or output; then, of
 *                         ids in the output, l - frequency * count, then l - presence
 *   temperature 0: the first token in the order "larger logit first, ties by lower id". Else
 *   6 temperature         l / T; 0 < T < 0.01 counts as 0.01
 *   7 min_p               masks l - max < log(min_p)
 *   8 top_k, then top_p   masks all but the k first of the order; of what is left and by its
 *                         probabilities, all tokens before which p is already reached
 *   9 the draw            inverse of the cumulative distribution, at u(seed, choice, position)
 *
 * Steps 4 to 6 are f32, one rounding per operation; 7 to 9 are f64. Orders of addition, and where
 * ties and boundaries fall: docs/NUMERICS.md, "Sampling". No state: the same seed, choice and
 * position give the same u whatever else runs.
 *
 * Raw log-probabilities (the default of the wire) come from the untouched row: nothing here changes
 * them. The processed ones are those of the row that sample_row leaves behind.
 */
#ifndef SCORE_SAMPLE_H
#define SCORE_SAMPLE_H

#include "tensor/kernels.h"

#define MAX_BAD_WORDS 128

struct token_list {
    const int32_t *ids;
    size_t n;
};

struct token_bias {
    int32_t id;
    float bias;
};

/* Borrowed arrays. sampling_defaults: temperature 1, nothing else on. */
struct sampling {
    float temperature;                         /* 0 to 2 */
    int32_t top_k;                             /* 0 or -1: off */
    float top_p;                               /* above 0, to 1 (off) */
    float min_p;                               /* 0 (off) to 1 */
    float presence_penalty, frequency_penalty; /* -2 to 2 */
    float repetition_penalty;                  /* above 0; 1: off */
    const struct token_bias *biases;           /* added in this order */
    size_t n_biases;
    struct token_list allowed; /* ids NULL: all; else at least one */
    const struct token_list *bad_words;
    size_t n_bad_words;
    struct token_list stop_ids, eos_ids;
    size_t min_tokens;
    bool ignore_eos;
    uint64_t seed;
};
struct sampling sampling_defaults(void);

/* Refuses what vLLM refuses: NP_EINPUT with the field's path, what was given and what is allowed.
 * Also NaN anywhere. max_tokens against min_tokens is the caller's. */
np_status sampling_check(const struct sampling *sampling, size_t n_vocab, np_error *err);

/* Whether an id ends the text: a stop id, or an eos id unless ignored. */
bool sampling_stops(const struct sampling *sampling, int32_t id);

/* ---- history: which tokens a sequence holds, for the penalties ------------------------------- */

/* A hash table of the distinct ids, 8 bytes per slot, at least two slots per id that can come. Its
 * memory is the caller's (4-byte aligned); a fork of a sequence copies memory and struct. */
struct history_slot {
    uint32_t id_plus_1;          /* 0: free */
    uint32_t count_twice_prompt; /* times in the output * 2 + whether in the prompt */
};
struct history {
    struct history_slot *slots;
    size_t n_slots, n_used; /* n_slots: a power of two, or 0 */
};

bool sampling_wants_history(const struct sampling *sampling); /* has it penalties? */
size_t history_bytes(size_t max_tokens, size_t n_vocab);      /* prompt and output together */
void history_init(struct history *history, void *memory, size_t n_bytes);

/* False: no place is left for a new id (more tokens than history_bytes was told). */
bool history_prompt(struct history *history, const int32_t *ids, size_t n);
bool history_push(struct history *history, int32_t id); /* one generated token */

/* ---- a row ----------------------------------------------------------------------------------- */

struct sample_input {
    const struct kernels *kernels;
    const struct sampling *sampling; /* checked */
    const struct history *history;   /* NULL where no penalty is wanted */
    const int32_t *output_ids;       /* generated so far: for bad_words; their number is the */
    size_t n_output;                 /* position of the draw */
    uint64_t choice;                 /* 0 to n - 1 of the request's choices */
    void *space;                     /* sample_space_bytes, 64-byte aligned; nothing stays in it */
};
size_t sample_space_bytes(size_t n_vocab);

/* Draws *id from logits[n_vocab]; allocates nothing. With keep_row the processed row stays in
 * `logits`: after steps 1 to 5 at temperature 0, else after 1 to 8, masked tokens -inf. Without,
 * what it holds is undefined. Errors: NP_ENUMERIC (a raw logit that is not finite; one that is
 * infinite after step 6), NP_EINPUT (no token is left after step 5). */
np_status sample_row(const struct sample_input *input, float *logits, size_t n_vocab, bool keep_row,
                     int32_t *id, np_error *err);

/* What is asked of a row in memory, raw or processed, masked tokens being -inf: as head_answer
 * gives it, with the same bits where no token is masked. */
struct token_scores {
    bool logits;        /* in: values are logits, not log-probabilities */
    size_t n_top;       /* in: places in the lists; out: filled, masked tokens never are */
    int32_t *top_ids;   /* [n_top], in the order of item 8 */
    float *top_values;  /* [n_top] */
    float value;        /* of the token asked for; -inf where masked */
    int32_t rank;       /* of that token */
    const int32_t *ids; /* [n_ids] in: of these too */
    size_t n_ids;
    float *values; /* [n_ids] */
};
void token_scores(const struct kernels *kernels, const float *logits, size_t n_vocab, int32_t id,
                  struct token_scores *scores);

#endif
