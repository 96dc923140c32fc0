/*
 * nepit.h - token log-probabilities of causal language models, exactly.
 *
 * The only public header. Compiles alone as C11 and as C++17.
 *
 *   np_model_open   a file or folder  -> weights and tokenizer, never changed afterwards
 *   np_engine_open  a model           -> threads and key/value memory that run requests
 *   np_score / np_next / np_gather    -> one question each; np_run asks many of any kind
 *
 * Rows. For P tokens, causal row r is the distribution after token r; it scores token r+1. Rows 0
 * to P-2 score given tokens; row P-1 is the distribution of the next, ungiven token. Token 0 has no
 * score.
 *
 * Units. Log-probabilities and entropies are in nats; sizes in bytes; positions in tokens.
 *
 * Bits. Same model, same ids, same profile: same bits, whatever the threads, the batch or the CPU.
 * The order of every sum is written in docs/NUMERICS.md; np_numerics() names its version.
 *
 * Options. In every options or request struct all-zero bytes mean the defaults.
 *
 * Errors. Functions return a status and fill *err when it is not NP_OK. A failed function leaves
 * *out zeroed; one that answers a single request (np_score, np_next, np_gather) keeps the error in
 * out->error too. Any function that allocates may return NP_ENOMEM. No function prints, exits or
 * raises a signal.
 *
 * Pointers. err, options, score_temperature and callbacks may be NULL, and so may what a closing or
 * freeing function is given. Everything else must be there: the model or engine, out, results,
 * n_bytes, and an array or text whose length is not 0. For those a status function answers NULL
 * with NP_EINPUT; np_model_info and np_engine_cancel, which have no status, do not look.
 *
 * Threads. An np_model and an np_engine may be used by any number of threads at once; requests that
 * run at the same time share the engine's threads evenly by call, and share what their sequences
 * have in common. np_engine_cancel may be called from anywhere, a signal handler included.
 */
#ifndef NEPIT_H
#define NEPIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define NP_API __attribute__((visibility("default")))
#else
#define NP_API
#endif

#define NP_VERSION "0.1.0"

/* ---- status and errors ------------------------------------------------------------------------
 * */

/* One list makes the enum and its texts. */
#define NP_STATUS_MAP(X)                                     \
    X(NP_OK, 0, "done")                                      \
    X(NP_ENOMEM, 1, "out of memory")                         \
    X(NP_EIO, 2, "a file could not be read or written")      \
    X(NP_EFORMAT, 3, "a file does not follow its format")    \
    X(NP_EUNSUPPORTED, 4, "valid, but not supported here")   \
    X(NP_EINPUT, 5, "a value in the request is not allowed") \
    X(NP_ELIMIT, 6, "a size is above its limit")             \
    X(NP_ENUMERIC, 7, "a value is not a finite number")      \
    X(NP_ECANCELLED, 8, "cancelled by the caller")           \
    X(NP_EINTERNAL, 9, "a fault of nepit itself")            \
    X(NP_ETIMEOUT, 10, "not done in the time that was given")

typedef enum np_status {
#define NP_STATUS_ENUM(name, value, text) name = value,
    NP_STATUS_MAP(NP_STATUS_ENUM)
#undef NP_STATUS_ENUM
} np_status;

/* What went wrong and where. Plain values: copy freely, nothing to free. Texts are UTF-8, cut at
 * the end of the array when longer, always terminated. */
typedef struct np_error {
    np_status status;
    int64_t offset;    /* byte offset in the file or text, -1 where there is none; 0 with NP_OK */
    char where[192];   /* file path, field path ("candidate_ids[3][1]") or tensor name; may be "" */
    char given[64];    /* the offending value as given; may be "" */
    char message[320]; /* one line: what is wrong and what is allowed, without where and given */
} np_error;

/* The text of a status, never NULL; a static string. */
NP_API const char *np_status_text(np_status status);

/* Writes "message: given (where, byte offset)" as one line of at most n_bytes-1 bytes; returns out.
 * An error that is all zeros is "done". */
NP_API char *np_error_line(const np_error *err, char *out, size_t n_bytes);

/* The library's version ("0.1.0") and the version of its arithmetic ("1"): a changed bit is a new
 * one. */
NP_API const char *np_version(void);
NP_API const char *np_numerics(void);

/* ---- model ------------------------------------------------------------------------------------
 * */

typedef struct np_model np_model;

typedef struct np_model_options {
    /* How linear layers compute (docs/NUMERICS.md): NULL or "f32", for any file; "bf16", for files
     * without quantised matrices; "int16", for files with some. */
    const char *profile;
    const char *cpu;   /* the level to use: "ref", "avx2", "avx512", "avx512bf16" or "neon". NULL
                        or "auto": what the environment variable NEPIT_CPU says, else the highest
                        this CPU has */
    int n_threads;     /* threads used for packing; 0 = one per core */
    size_t max_memory; /* bytes of weights allowed; 0 = no limit; above: NP_ELIMIT before loading */
    void (*progress)(void *user, size_t done, size_t total); /* tensors packed; may be NULL */
    void *progress_user;
} np_model_options;

/* Opens `path`: a .gguf file, or a folder with config.json and *.safetensors (or one such file's
 * folder). The file is read and packed, then closed. out: owned by the caller, ended by
 * np_model_close. Errors: NP_EINPUT (an option, or a profile that is not for this file), NP_EIO,
 * NP_EFORMAT (with byte offset), NP_EUNSUPPORTED (names the key, type or rule; a level that this
 * CPU lacks), NP_ELIMIT, NP_ENUMERIC (a weight is not finite; names the tensor), NP_ENOMEM. */
NP_API np_status np_model_open(const char *path, const np_model_options *options, np_model **out,
                               np_error *err);

/* Ends the model; NULL is allowed. Every engine on it must have been closed before. */
NP_API void np_model_close(np_model *model);

/* What a model is. Strings belong to the model. */
typedef struct np_info {
    const char *path;
    const char *container;    /* "gguf" or "safetensors" */
    const char *architecture; /* "llama", "qwen2", "gpt2" */
    const char *name;         /* the model's own name, or "" */
    const char
        *weight_types;     /* "Q4_1 x 210, Q8_0 x 1, F32 x 61": stored types and how many tensors */
    const char *tokenizer; /* "byte-level BPE, splitting rule smollm", or "none" */
    const char *profile;   /* "f32", "bf16" or "int16" */
    const char *cpu;       /* level in use: "avx2" */
    const char *cpu_reason; /* why: "highest level this CPU has", "asked for", ... */
    int64_t n_parameters;
    int64_t weight_bytes; /* resident: each type in its own width, matrices under bf16 in 16 bits */
    int64_t kv_bytes_per_token;
    int32_t n_vocab, n_layers, dim, n_heads, n_kv_heads, head_dim, ffn_dim;
    int32_t n_context;      /* the context that the model was trained for, tokens */
    int32_t bos_id, eos_id; /* -1 where there is none */
    int adds_bos, adds_eos; /* whether its tokenizer adds them by default */
    int has_tokenizer, has_chat_template, head_tied;
    int weights_rounded; /* profile bf16, and some matrix of the file is F16 or F32 */
} np_info;

NP_API np_info np_model_info(const np_model *model);

/* ---- text <-> ids -----------------------------------------------------------------------------
 * */

typedef enum np_choice { NP_DEFAULT = 0, NP_YES = 1, NP_NO = 2 } np_choice;

/* Token i covers bytes [begin[i], end[i]) of the text; added special tokens cover an empty span. */
typedef struct np_tokens {
    size_t n_tokens;
    int32_t *token_ids;  /* [n_tokens] */
    size_t *begin, *end; /* [n_tokens] byte offsets in the text as given */
} np_tokens;

/* Encodes n_bytes of text. Bytes that are not UTF-8 are kept as they are; a byte for which the
 * vocabulary has no token (SmolLM2 lacks 21, 0xff is one) is an error with its offset.
 * add_special: BOS and EOS as the tokenizer itself adds them (NP_DEFAULT, NP_YES) or none (NP_NO).
 * parse_special: whether "<|im_end|>" in the text is that token (NP_DEFAULT, NP_YES) or plain text.
 * Limit: 1 GiB of text. out is freed by np_tokens_free. Errors: NP_EUNSUPPORTED (the model has no
 * tokenizer), NP_EINPUT (such a byte), NP_ELIMIT, NP_ENOMEM. */
NP_API np_status np_tokenize(const np_model *model, const char *text, size_t n_bytes,
                             np_choice add_special, np_choice parse_special, np_tokens *out,
                             np_error *err);

/* Frees the arrays and zeroes *tokens; NULL and zeroed tokens are allowed. */
NP_API void np_tokens_free(np_tokens *tokens);

/* The bytes that one token stands for (may be a fragment of a character; not terminated). Belongs
 * to the model. Errors: NP_EINPUT (id outside [0, n_vocab)), NP_EUNSUPPORTED (no tokenizer). */
NP_API np_status np_token_bytes(const np_model *model, int32_t token_id, const char **bytes,
                                size_t *n_bytes, np_error *err);

/* Bytes of a sequence of ids, special tokens included as their texts. *out (n_bytes long, one zero
 * byte behind) is freed by np_free. Errors: NP_EINPUT (an id outside [0, n_vocab), named by its
 * place), NP_EUNSUPPORTED (no tokenizer), NP_ENOMEM (also above 1 GiB of text). */
NP_API np_status np_detokenize(const np_model *model, const int32_t *token_ids, size_t n_tokens,
                               char **out, size_t *n_bytes, np_error *err);

/* Frees what np_detokenize gave; NULL is allowed. */
NP_API void np_free(void *memory);

typedef struct np_string {
    const char *bytes;
    size_t n_bytes;
} np_string;

/* What the tokenizer calls its tokens, its class and its chat template; NULL: there is none. The
 * texts belong to the model. */
typedef struct np_tokenizer_info {
    const char *bos_token, *eos_token, *pad_token, *unk_token, *tokenizer_class, *chat_template;
} np_tokenizer_info;
NP_API np_tokenizer_info np_model_tokenizer(const np_model *model);

/* A chat, to become a text and its ids as transformers' apply_chat_template makes them. */
typedef struct np_chat {
    np_string messages;      /* JSON: [{"role": "user", "content": "..."}, ...] */
    np_string variables;     /* JSON: {"tools": [...], ...}, what else the template asks for */
    np_string chat_template; /* Jinja; bytes NULL: the model's own */
    int add_generation_prompt, continue_final_message; /* not both */
    np_choice add_special;   /* NP_YES: the tokenizer's BOS and EOS too; never a second BOS */
    np_choice parse_special; /* in contents and variables: NP_YES; else they are plain text */
} np_chat;
typedef struct np_chat_text {
    char *text;                                 /* [n_bytes], one zero byte behind */
    size_t n_bytes, content_begin, content_end; /* of the last message's content in the text */
    np_tokens tokens;
} np_chat_text;

/* Renders and encodes a chat; out is freed by np_chat_text_free. Errors: NP_EINPUT (messages; what
 * the template says, or cannot do with them, with its line), NP_EUNSUPPORTED (no tokenizer, no
 * template, or a part of it, by name and line), NP_ELIMIT (64 MiB of text, ...), NP_ENOMEM. */
NP_API np_status np_chat_render(const np_model *model, const np_chat *chat, np_chat_text *out,
                                np_error *err);
NP_API void np_chat_text_free(np_chat_text *text);

/* ---- engine -----------------------------------------------------------------------------------
 * */

typedef struct np_engine np_engine;

typedef struct np_engine_options {
    int n_threads;     /* 0 = one per core; more than there are cores are cut to that */
    int oversubscribe; /* tests only: allow more threads than cores */
    size_t n_context;  /* longest sequence, tokens; 0 = the model's own */
    size_t chunk_rows; /* rows of one forward pass; 0 = 512. No bit of any answer depends on it */
    /* Bytes for weights, key/value memory and work space; 0 = as much as one sequence takes, and up
     * to three quarters of the machine's memory where there are more. */
    size_t max_memory;
    /* The prefix cache: keys, values and last hidden rows of what was computed, kept for requests
     * that begin alike and for others questions about the same tokens. It is a part of the
     * key/value memory. Bytes; 0 = 256 MiB. no_cache: nothing is kept once no request uses it. */
    size_t cache_memory;
    int no_cache;
} np_engine_options;

/* Opens an engine on a model, which must outlive it. out: owned by the caller, ended by
 * np_engine_close. Errors: NP_EINPUT (n_threads below 0, n_context above the model's, chunk_rows
 * above 8192), NP_ELIMIT (max_memory; the message names the sum that is needed), NP_ENOMEM. */
NP_API np_status np_engine_open(np_model *model, const np_engine_options *options, np_engine **out,
                                np_error *err);

/* Ends the engine; NULL is allowed. No other call may be running. Requests that run are cancelled;
 * their tickets can still be waited for, and only that. */
NP_API void np_engine_close(np_engine *engine);

/* Ends the running calls soon (within a layer of one forward pass): requests that are not done fail
 * with NP_ECANCELLED, those that are done stay. The next call works again. With no call running it
 * ends the next one, so that a signal just before a call is not lost. Async-signal-safe. */
NP_API void np_engine_cancel(np_engine *engine);

/* What an engine has done and holds, as of the end of the last step. */
typedef struct np_stats {
    uint64_t n_requests; /* taken so far */
    uint64_t n_tokens;   /* of their sequences */
    uint64_t n_computed; /* tokens that went through the model; the rest was shared or not needed */
    uint64_t n_steps, n_evicted_pages, n_preempted;
    size_t n_waiting, n_running;    /* requests */
    size_t n_pages, n_cached_pages; /* of 64 tokens: that exist, and those that no request uses */
    size_t page_bytes, cache_bytes; /* of one page; the limit of the cache */
    uint64_t n_generated;           /* tokens */
    double busy_s;                  /* seconds spent in the model and in the head */
} np_stats;
NP_API np_stats np_engine_stats(np_engine *engine);

/* Forgets the prefix cache. These three wait until the step that runs is over. */
NP_API void np_engine_clear_cache(np_engine *engine);

/* Writes the prefix cache to a file: under another name first (path + ".part"), which is renamed
 * when it is whole. About as large as the cache; requests wait meanwhile. Errors: NP_EIO,
 * NP_ENOMEM. */
NP_API np_status np_engine_save_cache(np_engine *engine, const char *path, np_error *err);
/* Adds what a file holds to the prefix cache, as far as its limit allows; answers have the same
 * bits as without it. Errors: NP_EIO, NP_EFORMAT (damaged, or of another model, profile, arithmetic
 * or kind of machine; with the byte offset; what was read before it stays), NP_ENOMEM. */
NP_API np_status np_engine_load_cache(np_engine *engine, const char *path, np_error *err);

/* ---- requests ---------------------------------------------------------------------------------
 * */

typedef enum np_condition {
    NP_CONDITION_DEFAULT = 0, /* BOS where the model's tokenizer adds it */
    NP_CONDITION_BOS = 1,     /* BOS always (error where the model has none) */
    NP_CONDITION_NONE = 2     /* nothing: the first token of the text stays unscored */
} np_condition;

typedef enum np_logprobs_mode {
    NP_RAW_LOGPROBS = 0, /* log-softmax of the logits */
    /* The logits: logprobs, scores and top_logprobs then hold logits; entropies, mass and tail are
     * what they are with NP_RAW_LOGPROBS. */
    NP_RAW_LOGITS = 1
} np_logprobs_mode;

/* What to keep of each row, beside candidates and top: bits for np_request.want. */
#define NP_WANT_LOGPROB 1u /* of the token that follows in the request */
#define NP_WANT_RANK 2u /* its rank: 1 + tokens before it (larger logit first, ties by lower id) */
#define NP_WANT_ENTROPY 4u /* of the whole distribution */
#define NP_WANT_TAIL 8u    /* log(1 - sum of the distinct candidates' probabilities) */
#define NP_WANT_MASS 16u   /* log(1 - sum of the top tokens' probabilities) */

/* ---- generation -------------------------------------------------------------------------------
 * */

typedef struct np_ids {
    const int32_t *ids;
    size_t n;
} np_ids;
typedef struct np_bias {
    int32_t id;
    float bias;
} np_bias;

/* How tokens are drawn: the parameters of vLLM, with its limits and in its order (docs/NUMERICS.md,
 * "Sampling"). Zeros are the defaults. The same seed gives the same text whatever else runs. */
typedef struct np_sampling {
    const float *temperature;                  /* 0 (the likeliest token) to 2; NULL = 1 */
    int32_t top_k;                             /* 0, -1: all */
    float top_p;                               /* above 0, to 1; 0 = 1: all */
    float min_p;                               /* 0 to 1 */
    float presence_penalty, frequency_penalty; /* -2 to 2 */
    float repetition_penalty;                  /* above 0; 0 = 1: none */
    const uint64_t *seed;                      /* NULL: a random one */
    const np_bias *logit_bias;
    size_t n_logit_bias;
    np_ids allowed_token_ids; /* ids NULL: all */
    const np_ids *bad_words;
    size_t n_bad_words;
    np_ids stop_token_ids; /* end the text; they stay in token_ids, and out of the text */
    const np_string *stop; /* texts that end it; at most 64, none empty */
    size_t n_stop;
    int include_stop; /* leaves the stop text, or token, in the text */
    size_t min_tokens;
    int ignore_eos;
    int keep_special;     /* special tokens appear in the text */
    int32_t n;            /* choices, 0 = 1, at most 128 */
    int processed;        /* values told are those after penalties, masks and temperature */
    unsigned want;        /* of each token: NP_WANT_LOGPROB, _RANK, _ENTROPY (always raw) */
    int32_t top;          /* likeliest tokens told beside each; -1 all */
    np_ids candidate_ids; /* tokens told beside each, in this order; duplicates allowed */
} np_sampling;

typedef enum np_finish {
    NP_NOT_FINISHED = 0,
    NP_FINISH_LENGTH = 1, /* max_tokens, or the end of the context */
    NP_FINISH_TOKEN = 2,  /* EOS, or one of stop_token_ids: the last of token_ids */
    NP_FINISH_TEXT = 3    /* one of stop */
} np_finish;

/* One choice. Values are those of the token in the same place, bit for bit what scoring the
 * finished sequence gives (unless `processed`). Beside token i, `text` has text_end[i] bytes; while
 * it grows, the first n_text_bytes are final: they never end within a character or in what may be
 * the beginning of a stop text. */
typedef struct np_generated {
    size_t n_tokens;
    int32_t *token_ids;  /* [n_tokens] */
    float *logprobs;     /* [n_tokens]; these three NULL where np_sampling.want does not ask */
    int32_t *ranks;      /* [n_tokens] */
    float *entropies;    /* [n_tokens] */
    size_t n_top;        /* 0: both lists are NULL */
    int32_t *top_ids;    /* [n_tokens][n_top] by rank; -1 where masks leave fewer */
    float *top_logprobs; /* [n_tokens][n_top] */
    const int32_t *candidate_ids; /* [n_candidates] np_sampling.candidate_ids, borrowed */
    size_t n_candidates;
    float *scores; /* [n_tokens][n_candidates] */
    char *text;    /* NULL without a tokenizer */
    size_t n_text_bytes;
    size_t *text_end; /* [n_tokens]; NULL without a tokenizer */
    np_finish finish;
    int32_t stop_index; /* NP_FINISH_TEXT: which of stop; else -1 */
    uint64_t seed;      /* that was drawn with: np_sampling.seed, or a random one */
} np_generated;

/* One request. Pointers are borrowed until the call returns. */
typedef struct np_request {
    /* The sequence: ids, or text (token_ids NULL) which is encoded first. */
    const int32_t *token_ids; /* [n_tokens], each in [0, n_vocab); nothing is added to them */
    size_t n_tokens;          /* 1 to the engine's context */
    const char *text;
    size_t n_bytes;
    np_choice add_special, parse_special; /* for text */
    np_condition condition;               /* for text; not together with add_special */

    /* The rows: [start, P-1), and P-1 too if `next`: a start past the end is then cut to P-1, and
     * np_result.start says where the rows begin. Without `next`, a start past the end leaves no
     * rows for candidates and is an error (NP_EINPUT) for token scores. */
    size_t start;
    int next;

    /* What is kept of each row. */
    unsigned want;
    int32_t top; /* the `top` most likely tokens; 0 none; -1 the whole vocabulary */

    /* Candidates: flat (n_candidate_rows 0): n_candidates ids for every row, duplicates allowed.
     * Per row: [n_candidate_rows][n_candidates] ids, n_candidate_rows = number of rows (the next
     * row counts where it is asked for), -1 is padding and scores -inf. */
    const int32_t *candidate_ids;
    size_t n_candidates;
    size_t n_candidate_rows;

    np_logprobs_mode logprobs_mode;
    const float *score_temperature; /* > 0, finite, NULL = 1: divides logits before the softmax */

    /* What is to follow: up to max_tokens (0: nothing; SIZE_MAX: to the end of the context). */
    size_t max_tokens;
    const np_sampling *sampling; /* NULL: all defaults */

    /* When it runs. */
    int32_t priority;   /* lower numbers go first; requests of one number share evenly */
    int64_t timeout_ms; /* from now on, above 0; 0 = none. Else NP_ETIMEOUT, within one step */

    /* What it shares. Pages are found only by requests with the same salt (NULL = none), so that
     * nobody learns by timing what others have sent. */
    const char *cache_salt;        /* text of at most 64 KiB */
    int skip_reading_prefix_cache; /* computes everything itself, and leaves nothing behind */
} np_request;

/* The answer to one request; arrays belong to it until np_result_free. Row j of an array is causal
 * row start+j and scores token start+j+1. Arrays that were not asked for are NULL. An answer of
 * more than 4 GiB is refused before any work (NP_ELIMIT): a whole vocabulary of 49,152 tokens, ids
 * and log-probabilities, fits for about 10,900 rows. */
typedef struct np_result {
    np_error error; /* status NP_OK, or why this request failed (then all arrays are NULL) */
    size_t n_tokens;
    int32_t *token_ids;  /* [n_tokens] the ids that were scored */
    size_t *begin, *end; /* [n_tokens] spans in the text; NULL for id requests */
    size_t start;        /* first row; see np_request.start for where it is not the one given */
    size_t n_rows;       /* with the next row, if asked for */
    size_t n_scored;     /* rows that score a given token: n_rows, or n_rows - 1 with `next` */
    float *logprobs;     /* [n_scored] */
    int32_t *ranks;      /* [n_scored] */
    float *entropies;    /* [n_rows] */
    size_t n_top;        /* tokens kept per row: min(top, n_vocab) */
    int32_t *top_ids;    /* [n_rows][n_top] by rank */
    float *top_logprobs; /* [n_rows][n_top] */
    float *mass;         /* [n_rows] log of the mass left: log(1 - sum of the top's exp), <= 0 */
    size_t n_candidates;
    float *scores;     /* [n_rows][n_candidates] in the order of the request */
    float *tail;       /* [n_rows] log of the mass left beside the distinct candidates, <= 0 */
    size_t n_computed; /* tokens that went through the model for it; others were shared or cached */
    np_generated *choices; /* [n_choices]; NULL where nothing was to follow */
    size_t n_choices;
    void *memory; /* private: owns the arrays */
} np_result;

/* Runs n requests together. results[n] is filled in the order of the requests; every one must be
 * freed. A request that fails has its error there and harms no other. Returns NP_OK if the batch
 * ran (also when single requests failed), else NP_ECANCELLED, NP_ENOMEM or NP_EINTERNAL with every
 * result filled, or NP_EINPUT (a pointer is NULL) with every result zeroed. progress (may be NULL)
 * is told forward-pass rows done and total, from the calling thread. */
NP_API np_status np_run(np_engine *engine, const np_request *requests, size_t n_requests,
                        np_result *results, void (*progress)(void *user, size_t done, size_t total),
                        void *progress_user, np_error *err);

/* What follows a text: out->choices (one, or sampling->n), each of 1 to max_tokens tokens
 * (SIZE_MAX: to the end of the context; 0 is NP_EINPUT). One np_run. */
NP_API np_status np_generate(np_engine *engine, const char *text, size_t n_bytes, size_t max_tokens,
                             const np_sampling *sampling, np_result *out, np_error *err);

/* ---- requests that are not waited for ---------------------------------------------------------
 * */

typedef struct np_ticket np_ticket;

/* Hands requests to the engine and returns. They are one caller together, with one share of every
 * step, however many they are. `ready` (may be NULL) is called on the engine's thread, after every
 * step that did something for a request, with its place among them. What is final then and not
 * before: rows [0, n_rows) of the arrays of `result`; of each choice its first n_tokens tokens with
 * all that is told of them, and n_text_bytes of its text. A call may bring nothing new of a choice.
 * Arrays that were told can be read until np_wait, also if the request fails; `text` moves as it
 * grows and may be read within the call alone. Once for each request, as its last call, it comes
 * with finished = 1: result->error says whether all is well. Requests finish in any order; after
 * the last of them no call follows. It must not wait, nor call the engine except for np_submit and
 * np_cancel. `requests` itself may go at once; the arrays of each are borrowed until it is
 * finished. Where one is refused, its error is returned (of several, err->where begins with
 * "requests[3]."), none is submitted and `ready` is never called. Errors: as np_run for one
 * request; NP_EINPUT (n_requests is 0); NP_ECANCELLED (the engine is closing). */
typedef void np_ready(void *user, size_t request, const np_result *result, size_t n_rows,
                      int finished);
NP_API np_status np_submit(np_engine *engine, const np_request *requests, size_t n_requests,
                           np_ready *ready, void *user, np_ticket **out, np_error *err);

/* Ends what is not done of a ticket before its next step: NP_ECANCELLED; requests that were
 * finished by then stay. Any thread. */
NP_API void np_cancel(np_ticket *ticket);

/* Whether all is finished, so that np_wait will not wait: 1 or 0. Waits for that up to timeout_ms
 * (below 0: for ever). Any thread, before np_wait only. */
NP_API int np_poll(np_ticket *ticket, int64_t timeout_ms);

/* Waits until all requests are finished, gives their results (each freed by np_result_free) and
 * ends the ticket: exactly once for each, by one thread, never inside `ready`. results [n_requests]
 * may be NULL: then they are freed. NP_OK, or the status of the first request that failed, whose
 * error is *err; each result's error holds its own. */
NP_API np_status np_wait(np_ticket *ticket, np_result *results, np_error *err);

/* Frees the arrays and zeroes *result, its error too; NULL and zeroed results are allowed. */
NP_API void np_result_free(np_result *result);

/* One request each. The status is that of the call or else of the request; *err and out->error hold
 * why, and nothing is left to free when it is not NP_OK. */

/* Log-probability and rank of every token of a text. One np_run with those wants. */
NP_API np_status np_score(np_engine *engine, const char *text, size_t n_bytes, np_result *out,
                          np_error *err);

/* The `top` most likely next tokens after a text, entropy, and the log of the mass not listed:
 * exp(out->mass[0]) is the probability of everything else. */
NP_API np_status np_next(np_engine *engine, const char *text, size_t n_bytes, int32_t top,
                         np_result *out, np_error *err);

/* Teacher scoring: scores [n_tokens-1-start][n_candidates] float32 of the same candidates for every
 * row. */
NP_API np_status np_gather(np_engine *engine, const int32_t *token_ids, size_t n_tokens,
                           size_t start, const int32_t *candidate_ids, size_t n_candidates,
                           np_result *out, np_error *err);

/* ---- long documents ---------------------------------------------------------------------------
 * */

/* A text of any size: in memory, or read piece by piece. */
typedef struct np_document {
    const char *text; /* [n_bytes], borrowed until the call returns; NULL: `read` gives the text */
    uint64_t n_bytes; /* with `read`: what progress expects, 0 where that is not known */
    /* Puts 1 to n_bytes bytes at `out` and returns how many; 0: the text ends; below 0: it cannot
     * be read, and *err (never NULL) says why. NP_ECANCELLED there ends the whole call. */
    int64_t (*read)(void *user, char *out, size_t n_bytes, np_error *err);
    void *read_user;
} np_document;

typedef struct np_perplexity_options {
    size_t window; /* rows of one window, at most the engine's context; 0 = that */
    size_t stride; /* rows from one window to the next, 1 to window; 0 = window */
    np_choice add_special, parse_special; /* as in np_request */
    np_condition condition;
    void (*progress)(void *user, size_t done, size_t total); /* bytes; total 0 where unknown */
    /* results[document] is what it will be; in order, from the calling thread */
    void (*finished)(void *user, size_t document);
    void *user;
} np_perplexity_options;

/* Sums over one document. Plain values: nothing to free. */
typedef struct np_perplexity_result {
    np_error error; /* NP_OK, or why it was not finished: the rest is then what was done before */
    uint64_t n_tokens; /* with BOS and EOS where they are added */
    uint64_t n_scored; /* all but the first */
    uint64_t n_bytes;
    uint64_t n_scored_bytes; /* of the scored tokens */
    uint64_t n_windows;
    uint64_t n_computed;  /* tokens that went through the model */
    double total;         /* nats: the float32 log-probabilities, added in order; -inf as -9999 */
    double perplexity;    /* exp(-total / n_scored); NaN where nothing is scored */
    double bits_per_byte; /* -total / ln 2 / n_scored_bytes; NaN where there are none */
    size_t window, stride;
    int has_bos; /* the first token is BOS */
} np_perplexity_result;

/* Scores every token of each document but its first exactly once. A window of W rows runs W tokens
 * and scores the W next ones; windows begin every `stride` tokens, and each token is scored by the
 * first window that holds its row. So a token sees all that stands before it in the first window,
 * later between W - stride + 1 and W tokens. The window slides over the tokens as they are: BOS
 * stands before the first one alone. A document of at most W+1 tokens is one window and gives the
 * numbers of np_score; no later text changes an earlier number.
 * Memory does not grow with a document: it is read and encoded in pieces, to the very ids of the
 * whole. Where 8 MiB follow one another without a place to cut (one word of letters alone, say),
 * the document fails with NP_ELIMIT. results[n]: filled in order. Returns NP_OK if all was run
 * (also when single documents failed); NP_EINPUT (an option), NP_EUNSUPPORTED (no tokenizer):
 * nothing was run; NP_ECANCELLED (np_engine_cancel), NP_ENOMEM, NP_EINTERNAL: documents that were
 * not finished hold the error. */
NP_API np_status np_perplexity(np_engine *engine, const np_document *documents, size_t n_documents,
                               const np_perplexity_options *options, np_perplexity_result *results,
                               np_error *err);

#ifdef __cplusplus
}
#endif
#endif
