/*
 * words.h - texts that must not be generated, as ids; for the server and the command.
 */
#ifndef SERVER_WORDS_H
#define SERVER_WORDS_H

#include "base/arena.h"
#include <stdbool.h>

/* As vLLM takes them: each word at the beginning of a text and, where that is another token, behind
 * a space. Sets sampling->bad_words, whose lists live in the arena. NP_EINPUT names "bad_words[i]".
 */
np_status words_encode(const np_model *model, const np_string *words, size_t n_words,
                       struct arena *arena, np_sampling *sampling, np_error *err);

/* `asked`, or a random one for -1: below 2^53, so that any reader of JSON keeps it. */
uint64_t words_seed(int64_t asked);

#endif
