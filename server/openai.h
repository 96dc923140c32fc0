/*
 * openai.h - what the OpenAI routes share: completions, chat, and the tokenizer's chats.
 */
#ifndef SERVER_OPENAI_H
#define SERVER_OPENAI_H

#include "ask_fields.h"
#include "logprobs.h"
#include "replies.h"

/* Fields of OpenAI and vLLM that both routes know. */
extern const struct field openai_fields[];
/* How messages become a prompt. */
extern const struct field chat_text_fields[];

/* Checks what the fields' rows cannot; puts the prefix before the id that the answer tells. */
np_status openai_begin(struct exchange *exchange, const char *prefix, np_error *err);

/* ---- chats (chat_prompt.c) ------------------------------------------------------------------- */

/* Renders and encodes the messages of the ask; out is freed by np_chat_text_free. Places of errors
 * are the client's. */
np_status chat_prompt(struct exchange *exchange, np_chat_text *out, np_error *err);

/* ---- numbers of tokens (openai_logprobs.c) --------------------------------------------------- */

/* The bytes of a token, as a list; null without a tokenizer. */
void tell_token_bytes(struct exchange *exchange, int32_t token_id);

/* Tokens of a prompt, and behind them some of a choice: one legacy object of completions. */
struct legacy {
    const int32_t *prompt_ids;
    const np_result *result;
    size_t prompt_from, prompt_to; /* tokens */
    const np_generated *choice;
    size_t from, to;
    size_t n_characters; /* before the first of them; afterwards: before the next */
};
void tell_legacy(struct exchange *exchange, struct legacy *legacy);

/* An entry of chat's `content`, within its braces. */
void tell_content_entry(struct exchange *exchange, const struct told_row *row);
/* {"content": [...]} of tokens [from, to). */
void tell_content_of(struct exchange *exchange, const np_generated *choice, size_t from, size_t to);

/* ---- what else an answer says (openai.c) ----------------------------------------------------- */

/* "warnings", where prompts begin otherwise than the model is used to; else nothing. */
void tell_warnings(struct exchange *exchange);
/* "finish_reason" and "stop_reason". */
void tell_ending(struct exchange *exchange, const np_generated *choice, bool finished);

#endif
