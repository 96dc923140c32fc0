/*
 * logprobs.h - how numbers of tokens are told: the forms that clients read, each written in one
 * place. All floats are the shortest decimals of the float32; equal values print equally.
 */
#ifndef SERVER_LOGPROBS_H
#define SERVER_LOGPROBS_H

#include "exchange.h"

/* The text of a token, as a JSON string: bytes that are no text become U+FFFD; with as_id (or
 * without a tokenizer) "token_id:N". */
void tell_token(struct exchange *exchange, int32_t token_id, bool as_id);
/* Its bytes; n 0 for a hole in the vocabulary or without a tokenizer. */
const char *token_text(const struct exchange *exchange, int32_t token_id, size_t *n_bytes);

/* One row of tokens: the true one (id -1: none), and the likeliest ones by rank. */
struct told_row {
    int32_t id, rank; /* rank 0: not known */
    float logprob;
    const int32_t *top_ids; /* [n_top]; -1 ends them */
    const float *top_logprobs;
    size_t n_top;
    bool chosen; /* these are the tokens that the client named, in its order */
};
/* 1 for the likeliest; 0: not known. */
int64_t rank_in(const struct told_row *row, size_t k);
struct told_row row_of_prompt(const np_result *result, size_t row);
struct told_row row_of_choice(const np_generated *choice, size_t token);

/* vLLM's prompt_logprobs: a list as long as the prompt, null where nothing is scored, else an
 * object by token id, the true token first. Rows [from, to) of the result, in a list; `first` puts
 * the nulls before them. */
void tell_prompt_logprobs(struct exchange *exchange, const np_result *result, size_t from,
                          size_t to, bool first);

/* Scores of candidates, rows [from, to): base64 of a .npy file, or lists, as asked. */
void tell_scores(struct exchange *exchange, const np_result *result, size_t from, size_t to);
/* The .npy file itself into `out`. */
bool put_scores_npy(const np_result *result, size_t from, size_t to, struct buf *out);
/* Bytes as base64, a JSON string. */
void tell_base64(struct exchange *exchange, const void *bytes, size_t n_bytes);
/* A list of one number per row: values[from, to). */
void tell_values(struct exchange *exchange, const float *values, size_t from, size_t to);

/* {"prompt_tokens":...}, of the whole exchange or of what a stream has told so far. */
void tell_usage(struct exchange *exchange, size_t n_prompt, size_t n_generated);

/* "stop", "length" or null. */
void tell_finish(struct exchange *exchange, np_finish finish);
/* The stop text, or the token id, that ended a choice; null where EOS or the length did. */
void tell_stop_reason(struct exchange *exchange, const np_generated *choice);

void tell_ids(struct exchange *exchange, const int32_t *ids, size_t n);

#endif
