/*
 * options.h - the command line as values. One table (options.c) holds every option of every
 * command: adding one is one row there and one member here.
 *
 * `struct asked` is what an option and a field of a JSON request have in common: the options are
 * the defaults of every request, a field of the request overrides them.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "base/buf.h"
#include "base/names.h"
#include <stdbool.h>

/* Which commands take an option. */
enum {
    FOR_TOKENIZE = 1,
    FOR_SCORE = 2,
    FOR_NEXT = 4,
    FOR_GATHER = 8,
    FOR_INFO = 16,
    FOR_PERPLEXITY = 32,
    FOR_GENERATE = 64,
    FOR_SERVE = 128,
    FOR_ROWS = FOR_SCORE | FOR_NEXT | FOR_GATHER,
    FOR_TEXT = FOR_TOKENIZE | FOR_ROWS | FOR_GENERATE,
    FOR_SPECIAL = FOR_TEXT | FOR_PERPLEXITY,
    FOR_PRINT = FOR_TEXT | FOR_INFO | FOR_PERPLEXITY, /* commands that print and end */
    FOR_ALL = FOR_PRINT | FOR_SERVE
};

#define NOT_GIVEN (-2) /* start, top */

/* How tokens are drawn. Lists belong to the arena of whoever read them. */
struct drawn {
    int64_t max_tokens, min_tokens, n, top_k; /* max_tokens -1: to the end of the context */
    int64_t seed, priority;                   /* seed -1: a random one */
    double temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
    int ignore_eos, include_stop, skip_special, skip_cache; /* skip_special: np_choice */
    const np_string *stop, *bad_words;
    size_t n_stop, n_bad_words;
    np_ids stop_ids, allowed_ids;
    const np_bias *biases;
    size_t n_biases;
    const char *cache_salt;
};

struct asked {
    int64_t start, top; /* NOT_GIVEN: the command's own */
    double score_temperature;
    int condition, add_special, parse_special; /* np_condition, np_choice */
    int logprobs_mode;                         /* place in mode_names + 1; 0: not given */
    int entropy, tail;
    struct drawn drawn;
};

#define MAX_TEXTS 64
/* An option that may be given many times. */
struct texts {
    const char *at[MAX_TEXTS];
    size_t n;
};

/* What serve takes and no other command does. */
struct serving {
    const char *host, *name, *api_key_file, *allowed_hosts, *allowed_origins, *access_log;
    const char *chat_template;
    int64_t port, max_logprobs, max_concurrency, max_per_key, max_connections;
    double timeout_s, receive_s;
    uint64_t max_body, max_answer;
    int log_texts, logprobs_mode;
};

struct options {
    struct asked asked;
    struct serving serving;
    const char *model, *profile, *cpu;
    int64_t n_threads, n_context;
    uint64_t max_memory, cache_memory;
    const char *file, *jsonl, *output;
    const char *decode, *prompt, *response, *candidates;
    const char *arrays, *stop_ids, *allowed_ids, *logit_bias;
    struct texts stop, bad_words;
    int ids, json, timing, resume, help, version;
    int progress, unit; /* place in the names + 1 */
    int64_t n_lowest, window, stride;
    const char *text; /* the positional argument, NULL without one */
    char **files;     /* [n_files] the positional arguments where a command takes many */
    size_t n_files;
};

extern const char *const condition_names[]; /* each list ends with NULL */
extern const char *const mode_names[];
extern const char next_needs_top[];
#define CACHE_MEMORY ((uint64_t)256 << 20) /* default of --cache-memory */
enum { UNIT_NATS = 1, UNIT_BITS = 2, PROGRESS_NEVER = 2 };

void options_init(struct options *options);

/* Reads argv[0..n_args) for the command of bit `command`. NP_EINPUT: a usage error, the option in
 * err->where. Strings are borrowed from argv. */
np_status options_parse(struct options *options, unsigned command, int n_args, char **args,
                        np_error *err);

/* An error's place that is called as the field of an option of the command ("max_tokens") becomes
 * that option ("--max-tokens"). */
void options_name_place(np_error *err, unsigned command);

/* The list for --help. */
void options_help(struct buf *out, unsigned command);

#endif
