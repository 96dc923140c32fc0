/*
 * ask.h - what a client asks, as plain values: the same struct for every route. Fields that were
 * not given hold what their row calls the default.
 */
#ifndef SERVER_ASK_H
#define SERVER_ASK_H

#include "values.h"

#define NOT_GIVEN INT64_MIN

struct prompt {
    np_string text; /* bytes NULL: the ids */
    np_ids ids;
};
struct prompts {
    const struct prompt *at; /* NULL: not given */
    size_t n;
    bool many; /* was a list of prompts */
};
struct texts {
    const np_string *at;
    size_t n;
};
struct ints {
    const int64_t *at; /* NULL: not given */
    size_t n;
    bool many; /* was a list: one for each prompt */
};
struct biases {
    const np_bias *at;
    size_t n;
};

struct ask {
    struct values values; /* where its arrays live */

    /* What is asked about. */
    const char *model, *request_id, *fingerprint;
    struct prompts prompts;
    np_string prompt_text;
    json_t *messages, *tools, *template_values; /* borrowed from the body */
    const char *chat_template;
    int add_special, parse_special; /* np_choice */
    int condition;                  /* np_condition */
    json_t *documents;
    const char *reasoning_effort;
    int add_generation_prompt; /* np_choice */
    int continue_final_message, score_final_message, parse_special_in_content;
    np_string context;
    int64_t truncate;

    /* Scores of the prompt. */
    int64_t prompt_logprobs, start; /* NOT_GIVEN */
    json_t *candidates;
    int tail, mass, entropy, ranks;
    int logprobs_mode; /* place in server_modes + 1; 0: the server's */
    double score_temperature;
    int score_format; /* SCORES_*: 0: base64 */
    int echo;

    /* What follows. */
    int64_t max_tokens, max_completion_tokens, min_tokens, n, top_k, seed;
    double temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
    int ignore_eos, skip_special, include_stop;
    struct texts stop, bad_words;
    np_ids stop_ids, allowed_ids;
    struct biases biases;
    int64_t logprobs, top_logprobs;
    np_ids logprob_ids;
    int wants_logprobs;

    /* How it is run and told. */
    int stream, include_usage, continuous_usage;
    int64_t priority, timeout_ms;
    const char *cache_salt;
    int skip_cache;
    int return_token_ids, tokens_as_ids, output_mode, return_strings;

    /* Single routes. */
    np_ids tokens;
    struct ints lengths, starts, tops; /* one, or one per prompt */
    struct prompts query, response;
    json_t *pieces, *targets, *target_positions, *options;
    int64_t window, stride;
    int return_text, flat, flat_base64, apply_softmax, item_first, response_format, by;
    int cache_prompt, sampled_probs;
    np_string neutral;
};

enum { SCORES_BASE64 = 1, SCORES_LIST };

struct exchange;

/* ask_request.c: the parts of *request that every route fills alike; prompt: its place in
 * ask->prompts. Checks what the server limits. Arrays live in the exchange's arena. */
np_status ask_request(struct exchange *exchange, size_t prompt, np_request *request, np_error *err);

/* A text as ids; bos: that token first. */
struct encoded;
np_status ask_encode(struct exchange *exchange, np_string text, np_choice add_special, bool bos,
                     struct encoded *out, np_error *err);

/* The parts that say when it runs and what it shares. */
void ask_running(const struct exchange *exchange, np_request *request);

/* So many bytes more will be told: NP_ELIMIT once that is above what is sent. */
np_status ask_expect(struct exchange *exchange, double n_bytes, np_error *err);

/* How many tokens are told beside each scored one; NOT_GIVEN: none is scored. */
int64_t ask_told(const struct ask *ask);

#endif
