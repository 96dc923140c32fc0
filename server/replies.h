/*
 * replies.h - parts of answers that routes share.
 */
#ifndef SERVER_REPLIES_H
#define SERVER_REPLIES_H

#include "exchange.h"
#include "streaming.h"

/* One np_request per prompt of the ask. */
np_status prepare_prompts(struct exchange *exchange, np_error *err);
/* The one of prompt i; its errors name the request. */
np_status prepare_prompt(struct exchange *exchange, size_t i, np_error *err);

/* The members that every answer begins with: its id under `id_key`, object (unless NULL), created,
 * model, system_fingerprint. */
void tell_head(struct exchange *exchange, const char *id_key, const char *object);

/* "token_id", "logprob", "rank" (null below 1), within an object. */
void tell_ranked(struct exchange *exchange, int32_t token_id, float logprob, int64_t rank);

/* The members that tell of prompts, at the top level of an answer: prompt_logprobs,
 * prompt_token_id_logprobs, prompt_token_ids, and what was asked beside them. One prompt's values
 * stand as they are, those of a list of prompts in a list. */
void tell_prompts(struct exchange *exchange);
/* The same of one prompt, where it stands inside a choice. */
void tell_prompt(struct exchange *exchange, size_t request);
/* What the numbers are: their mode, profile and arithmetic; within tell_prompts already. */
void tell_meaning(struct exchange *exchange);
/* The same for rows of a stream. */
void tell_prompt_part(struct exchange *exchange, const np_result *result, const struct part *part);

/* "text" of a part, and of nothing else. */
void tell_text_part(struct exchange *exchange, const struct part *part);
/* "usage", where the client asked for it in this event. */
void tell_usage_part(struct exchange *exchange, const struct part *part);

/* Choices of each prompt, and a choice's number over all prompts. */
size_t n_choices_of(const struct exchange *exchange, size_t request);
size_t choice_index(const struct exchange *exchange, size_t request, size_t choice);
/* A choice of a finished request; an empty one where nothing was to follow. */
const np_generated *choice_of(const struct exchange *exchange, size_t request, size_t choice);

/* Tokens of a prompt that were not computed for it; known once the request is finished. */
size_t cached_tokens(const np_result *result, const np_generated *choices);

/* The scores of a lone prompt as a .npy file, if the client accepts that and nothing else can be
 * lost by it; true: that was the answer. */
bool reply_npy(struct exchange *exchange);

#endif
