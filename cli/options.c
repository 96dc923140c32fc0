/*
 * One table, one small parser: --name value, --name=value, -x value, -xvalue, and "--" before a
 * text that begins with a dash. An option takes the next argument whatever it looks like, so that
 * "--top -1" works. Numbers are read strictly: the whole argument or nothing.
 */
#include "options.h"
#include "base/cpu.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>

const char *const condition_names[] = {"bos", "none", NULL};
const char *const mode_names[] = {"raw_logprobs", "raw_logits", "processed_logprobs",
                                  "processed_logits", NULL};
const char next_needs_top[] = "must be at least 1, or -1 for the whole vocabulary";
static const char *const unit_names[] = {"nats", "bits", NULL};
static const char *const progress_names[] = {"auto", "never", NULL};
static const char *const profile_names[] = {"f32", "bf16", "int16", NULL};

enum kind {
    KIND_SET,    /* int: takes no argument, stores `low` */
    KIND_TEXT,   /* const char * */
    KIND_INT,    /* int64_t within [low, high] */
    KIND_SIZE,   /* uint64_t: a number from `low` on with K, M, G or T (powers of 1024) */
    KIND_ABOVE0, /* double: finite and above 0; at most `high` where that is not 0 */
    KIND_REAL,   /* double within [low, high] */
    KIND_MANY,   /* struct texts: one more */
    KIND_NAME,   /* int: place in `names` + 1 */
    KIND_ONE_OF, /* const char *: one of `names` */
    KIND_CPU     /* const char *: a level that this machine has */
};

struct option {
    const char *name;
    char letter;
    unsigned commands;
    enum kind kind;
    size_t at; /* offset in struct options */
    const char *argument, *help;
    int64_t low, high;
    const char *const *names;
};

#define AT(member) offsetof(struct options, member)
#define MAX_ROWS_ARG ((int64_t)1 << 40)

static const struct option table[] = {
    {"model", 'm', FOR_ALL, KIND_TEXT, AT(model), "PATH",
     ".gguf file, folder, or name ($NEPIT_MODEL)", 0, 0, NULL},
    {"file", 'f', FOR_TEXT, KIND_TEXT, AT(file), "FILE", "the text (-: standard input)", 0, 0,
     NULL},
    {"ids", 0, FOR_TEXT, KIND_SET, AT(ids), NULL, "the text is ids: \"1 2,3\", or @FILE.npy, .npz",
     1, 0, NULL},
    {"jsonl", 0, FOR_TEXT, KIND_TEXT, AT(jsonl), "FILE",
     "requests, one JSON object a line (-: stdin)", 0, 0, NULL},
    {"add-special-tokens", 0, FOR_SPECIAL, KIND_SET, AT(asked.add_special), NULL,
     "BOS/EOS as the tokenizer adds them (default)", NP_YES, 0, NULL},
    {"no-add-special-tokens", 0, FOR_SPECIAL, KIND_SET, AT(asked.add_special), NULL,
     "no BOS, no EOS", NP_NO, 0, NULL},
    {"parse-special", 0, FOR_SPECIAL, KIND_SET, AT(asked.parse_special), NULL,
     "\"<|im_end|>\" in a text is that token (default)", NP_YES, 0, NULL},
    {"no-parse-special", 0, FOR_SPECIAL, KIND_SET, AT(asked.parse_special), NULL,
     "it is plain text", NP_NO, 0, NULL},
    {"decode", 0, FOR_TOKENIZE, KIND_TEXT, AT(decode), "IDS", "print the text of these ids", 0, 0,
     NULL},
    {"prompt", 0, FOR_GATHER, KIND_TEXT, AT(prompt), "P",
     "the prompt; with --ids: ids, or @FILE of them", 0, 0, NULL},
    {"response", 0, FOR_GATHER, KIND_TEXT, AT(response), "R",
     "what follows it; with --ids: ids, or @FILE", 0, 0, NULL},
    {"candidates", 0, FOR_GATHER, KIND_TEXT, AT(candidates), "IDS",
     "\"1 2 3\", or @ids.npy, @OUT.npz: [K], [rows, K]", 0, 0, NULL},
    {"top", 0, FOR_SCORE, KIND_INT, AT(asked.top), "K",
     "the K most likely tokens of each row (-1: all)", -1, INT32_MAX, NULL},
    {"top", 0, FOR_NEXT, KIND_INT, AT(asked.top), "K",
     "the K most likely tokens (default 10; -1: all)", -1, INT32_MAX, NULL},
    {"top", 0, FOR_GENERATE, KIND_INT, AT(asked.top), "K",
     "log-probabilities, beside the K most likely", -1, INT32_MAX, NULL},
    {"max-tokens", 0, FOR_GENERATE, KIND_INT, AT(asked.drawn.max_tokens), "N",
     "default 128; -1: to the end of the context", -1, INT32_MAX, NULL},
    {"temperature", 0, FOR_GENERATE, KIND_REAL, AT(asked.drawn.temperature), "T",
     "0: always the most likely token; default 1", 0, 2, NULL},
    {"top-k", 0, FOR_GENERATE, KIND_INT, AT(asked.drawn.top_k), "K",
     "draw from the K most likely (default: all)", -1, INT32_MAX, NULL},
    {"top-p", 0, FOR_GENERATE, KIND_ABOVE0, AT(asked.drawn.top_p), "P",
     "draw from the most likely that hold mass P", 0, 1, NULL},
    {"min-p", 0, FOR_GENERATE, KIND_REAL, AT(asked.drawn.min_p), "P",
     "none below P times the most likely", 0, 1, NULL},
    {"seed", 0, FOR_GENERATE, KIND_INT, AT(asked.drawn.seed), "N",
     "same seed, same text (default -1: a random one)", -1, INT64_MAX, NULL},
    {"n", 0, FOR_GENERATE, KIND_INT, AT(asked.drawn.n), "N", "how many texts (default 1)", 1, 128,
     NULL},
    {"stop", 0, FOR_GENERATE, KIND_MANY, AT(stop), "S", "ends the text; may be given many times", 0,
     0, NULL},
    {"stop-token-ids", 0, FOR_GENERATE, KIND_TEXT, AT(stop_ids), "IDS", "these end it too", 0, 0,
     NULL},
    {"include-stop-str-in-output", 0, FOR_GENERATE, KIND_SET, AT(asked.drawn.include_stop), NULL,
     "leave what ended it in the text", 1, 0, NULL},
    {"min-tokens", 0, FOR_GENERATE, KIND_INT, AT(asked.drawn.min_tokens), "N",
     "nothing ends the text before", 0, INT32_MAX, NULL},
    {"ignore-eos", 0, FOR_GENERATE, KIND_SET, AT(asked.drawn.ignore_eos), NULL,
     "the end-of-text token does not end it", 1, 0, NULL},
    {"presence-penalty", 0, FOR_GENERATE, KIND_REAL, AT(asked.drawn.presence_penalty), "X",
     "-2 to 2, of tokens that were generated", -2, 2, NULL},
    {"frequency-penalty", 0, FOR_GENERATE, KIND_REAL, AT(asked.drawn.frequency_penalty), "X",
     "-2 to 2, each time that they were", -2, 2, NULL},
    {"repetition-penalty", 0, FOR_GENERATE, KIND_ABOVE0, AT(asked.drawn.repetition_penalty), "X",
     "divides; of tokens of the prompt too (1: none)", 0, 0, NULL},
    {"logit-bias", 0, FOR_GENERATE, KIND_TEXT, AT(logit_bias), "ID:B,..",
     "adds B, -100 to 100, to the logit of token ID", 0, 0, NULL},
    {"allowed-token-ids", 0, FOR_GENERATE, KIND_TEXT, AT(allowed_ids), "IDS", "only these", 0, 0,
     NULL},
    {"bad-words", 0, FOR_GENERATE, KIND_MANY, AT(bad_words), "S",
     "never generated; may be given many times", 0, 0, NULL},
    {"no-skip-special-tokens", 0, FOR_GENERATE, KIND_SET, AT(asked.drawn.skip_special), NULL,
     "special tokens appear in the text", NP_NO, 0, NULL},
    {"arrays", 0, FOR_GENERATE, KIND_TEXT, AT(arrays), "OUT.npz",
     "token_ids, top_ids, top_logprobs; with --top K", 0, 0, NULL},
    {"entropy", 0, FOR_SCORE, KIND_SET, AT(asked.entropy), NULL, "entropy of each row", 1, 0, NULL},
    {"tail", 0, FOR_GATHER, KIND_SET, AT(asked.tail), NULL,
     "log of the mass that the candidates leave", 1, 0, NULL},
    {"start", 0, FOR_SCORE | FOR_GATHER, KIND_INT, AT(asked.start), "N",
     "first row; row N scores token N+1", 0, MAX_ROWS_ARG, NULL},
    {"score-temperature", 0, FOR_ROWS, KIND_ABOVE0, AT(asked.score_temperature), "T",
     "divide the logits by T before the softmax", 0, 0, NULL},
    {"logprobs-mode", 0, FOR_ROWS, KIND_NAME, AT(asked.logprobs_mode), "MODE",
     "raw_logprobs (default) or raw_logits", 0, 0, mode_names},
    {"logprobs-mode", 0, FOR_GENERATE, KIND_NAME, AT(asked.logprobs_mode), "MODE",
     "raw_logprobs, raw_logits, processed_...", 0, 0, mode_names},
    {"condition", 0, FOR_ROWS | FOR_GENERATE | FOR_PERPLEXITY, KIND_NAME, AT(asked.condition), "C",
     "bos or none (default: as the tokenizer does)", 0, 0, condition_names},
    {"unit", 0, FOR_SCORE | FOR_NEXT, KIND_NAME, AT(unit), "U", "nats (default) or bits", 0, 0,
     unit_names},
    {"lowest", 0, FOR_SCORE, KIND_INT, AT(n_lowest), "N", "only the N least likely tokens", 1,
     INT32_MAX, NULL},
    {"window", 0, FOR_PERPLEXITY, KIND_INT, AT(window), "W",
     "rows of one window (default: the context)", 1, INT32_MAX, NULL},
    {"stride", 0, FOR_PERPLEXITY, KIND_INT, AT(stride), "S",
     "rows from one window to the next (default: W)", 1, INT32_MAX, NULL},
    {"resume", 0, FOR_GATHER, KIND_SET, AT(resume), NULL,
     "continue an interrupted run with -o OUT.npz", 1, 0, NULL},
    {"host", 0, FOR_SERVE, KIND_TEXT, AT(serving.host), "ADDRESS",
     "listens there (default 127.0.0.1)", 0, 0, NULL},
    {"port", 0, FOR_SERVE, KIND_INT, AT(serving.port), "N", "default 8000; 0: any free one", 0,
     65535, NULL},
    {"served-model-name", 0, FOR_SERVE, KIND_TEXT, AT(serving.name), "NAME",
     "as clients call it; several by commas (default: the file's)", 0, 0, NULL},
    {"api-key-file", 0, FOR_SERVE, KIND_TEXT, AT(serving.api_key_file), "FILE",
     "a key per line; without it nobody needs one", 0, 0, NULL},
    {"max-logprobs", 0, FOR_SERVE, KIND_INT, AT(serving.max_logprobs), "N",
     "most tokens told per row (default -1: all)", -1, INT32_MAX, NULL},
    {"logprobs-mode", 0, FOR_SERVE, KIND_NAME, AT(serving.logprobs_mode), "MODE",
     "where a request names none: raw_logprobs, ...", 0, 0, mode_names},
    {"chat-template", 0, FOR_SERVE, KIND_TEXT, AT(serving.chat_template), "FILE",
     "in place of the model's own", 0, 0, NULL},
    {"max-body", 0, FOR_SERVE, KIND_SIZE, AT(serving.max_body), "SIZE",
     "of one request (default 256M)", 1, 0, NULL},
    {"max-answer", 0, FOR_SERVE, KIND_SIZE, AT(serving.max_answer), "SIZE",
     "of one answer (default 1G)", 1, 0, NULL},
    {"max-concurrency", 0, FOR_SERVE, KIND_INT, AT(serving.max_concurrency), "N",
     "requests at a time, else 429 (default 1024)", 1, 1000000, NULL},
    {"max-per-key", 0, FOR_SERVE, KIND_INT, AT(serving.max_per_key), "N",
     "the same for each key (default: no less)", 1, 1000000, NULL},
    {"max-connections", 0, FOR_SERVE, KIND_INT, AT(serving.max_connections), "N", "default 4096", 1,
     1000000, NULL},
    {"timeout", 0, FOR_SERVE, KIND_REAL, AT(serving.timeout_s), "SECONDS",
     "of a request, else 408 (default 0: none)", 0, 1000000000, NULL},
    {"receive-timeout", 0, FOR_SERVE, KIND_REAL, AT(serving.receive_s), "SECONDS",
     "for its headers and body (default 60)", 0, 1000000000, NULL},
    {"allowed-hosts", 0, FOR_SERVE, KIND_TEXT, AT(serving.allowed_hosts), "A,B",
     "names of this server beside its address; *: any", 0, 0, NULL},
    {"allowed-origins", 0, FOR_SERVE, KIND_TEXT, AT(serving.allowed_origins), "A,B",
     "web pages that may ask; *: any", 0, 0, NULL},
    {"access-log", 0, FOR_SERVE, KIND_TEXT, AT(serving.access_log), "FILE",
     "a JSON object per request; -: on stderr", 0, 0, NULL},
    {"log-texts", 0, FOR_SERVE, KIND_SET, AT(serving.log_texts), NULL, "with the bodies", 1, 0,
     NULL},
    {"output", 'o', FOR_PRINT, KIND_TEXT, AT(output), "FILE",
     "write there (gather: also .npy, .npz)", 0, 0, NULL},
    {"json", 0, FOR_PRINT, KIND_SET, AT(json), NULL, "one JSON object per result and line", 1, 0,
     NULL},
    {"timing", 0, FOR_PRINT, KIND_SET, AT(timing), NULL, "at the end, one JSON line on stderr", 1,
     0, NULL},
    {"progress", 0, FOR_ALL, KIND_NAME, AT(progress), "WHEN", "auto (default) or never", 0, 0,
     progress_names},
    {"threads", 0, FOR_ALL, KIND_INT, AT(n_threads), "N", "default: one per core", 1, 4096, NULL},
    {"context", 0, FOR_ROWS | FOR_GENERATE | FOR_INFO | FOR_PERPLEXITY | FOR_SERVE, KIND_INT,
     AT(n_context), "N", "longest sequence (default: the model's own)", 1, INT32_MAX, NULL},
    {"max-memory", 0, FOR_ALL, KIND_SIZE, AT(max_memory), "SIZE",
     "bytes, or K, M, G, T; refused when it takes more", 1, 0, NULL},
    {"cache-memory", 0, FOR_ROWS | FOR_GENERATE | FOR_PERPLEXITY | FOR_SERVE, KIND_SIZE,
     AT(cache_memory), "SIZE", "of the prefix cache (default 256M; 0: none)", 0, 0, NULL},
    {"profile", 0, FOR_ALL, KIND_ONE_OF, AT(profile), "P",
     "f32 (default), bf16, int16 (quantised files)", 0, 0, profile_names},
    {"cpu", 0, FOR_ALL, KIND_CPU, AT(cpu), "LEVEL", "auto, ref, avx2, avx512, avx512bf16 or neon",
     0, 0, NULL},
    {"help", 'h', FOR_ALL, KIND_SET, AT(help), NULL, "this page", 1, 0, NULL},
};
#define N_OPTIONS (sizeof table / sizeof table[0])

#define DRAWN_DEFAULTS                                                       \
    {                                                                        \
        .max_tokens = 128, .n = 1, .seed = -1, .temperature = 1, .top_p = 1, \
        .repetition_penalty = 1                                              \
    }

void options_init(struct options *options)
{
    *options = (struct options){.asked = {.start = NOT_GIVEN,
                                          .top = NOT_GIVEN,
                                          .score_temperature = 1,
                                          .drawn = DRAWN_DEFAULTS},
                                .serving = {.port = 8000, .max_logprobs = -1},
                                .cache_memory = CACHE_MEMORY};
}

/* ---- values ------------------------------------------------------------------------------- */

static bool read_int(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == 0 && !isspace((unsigned char)*text);
}

/* A decimal number; strtod alone would also take "nan", "inf" and hexadecimal. */
static bool read_real(const char *text, char **end, double *value)
{
    size_t n = strspn(text, "0123456789.eE+-");
    *value = strtod(text, end);
    return n > 0 && *end != text && *end <= text + n && isfinite(*value);
}

static bool read_size(const char *text, int64_t low, uint64_t *value)
{
    static const char units[] = "KMGT";
    char *end;
    double number;
    if (!read_real(text, &end, &number) || number < (double)low) return false;
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (*end && (!unit || end[1] != 0)) return false;
    if (unit) number *= ldexp(1, 10 * (int)(unit - units + 1));
    if (number >= ldexp(1, 62)) return false;
    *value = (uint64_t)number;
    return true;
}

static void join_names(const char *const *names, char *out, size_t n_bytes)
{
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; names[i] && at < n_bytes; i++)
        at += (size_t)snprintf(out + at, n_bytes - at, "%s%s", i ? ", " : "", names[i]);
}

static np_status store_int(const struct option *option, const char *text, void *to, np_error *err)
{
    int64_t value;
    if (!read_int(text, &value))
        return error_set(err, NP_EINPUT, NULL, NO_OFFSET, "a whole number is expected");
    /* A limit that only the type has tells nobody anything. */
    if (value < option->low && option->high >= INT32_MAX)
        return error_set(err, NP_EINPUT, NULL, NO_OFFSET, "must be at least %lld",
                         (long long)option->low);
    if (value < option->low || value > option->high)
        return error_set(err, NP_EINPUT, NULL, NO_OFFSET, "must lie between %lld and %lld",
                         (long long)option->low, (long long)option->high);
    *(int64_t *)to = value;
    return NP_OK;
}

static np_status store_name(const struct option *option, const char *text, void *to, np_error *err)
{
    char list[160];
    int place = name_find(option->names, text, strlen(text));
    if (place < 0) {
        join_names(option->names, list, sizeof list);
        return error_set(err, NP_EINPUT, NULL, NO_OFFSET, "one of these is expected: %s", list);
    }
    if (option->kind == KIND_NAME)
        *(int *)to = place + 1;
    else
        *(const char **)to = text;
    return NP_OK;
}

static np_status store_real(const struct option *option, const char *text, double *to,
                            np_error *err)
{
    char *end;
    if (read_real(text, &end, to) && *end == 0 && *to >= (double)option->low &&
        *to <= (double)option->high)
        return NP_OK;
    return error_set(err, NP_EINPUT, NULL, NO_OFFSET, "must be a number from %lld to %lld",
                     (long long)option->low, (long long)option->high);
}

static np_status store_above0(const struct option *option, const char *text, double *to,
                              np_error *err)
{
    char *end;
    bool good = read_real(text, &end, to) && *end == 0 && (float)*to > 0 && isfinite((float)*to);
    if (good && (option->high == 0 || *to <= (double)option->high)) return NP_OK;
    if (option->high == 0)
        return error_set(err, NP_EINPUT, NULL, NO_OFFSET, "must be a finite number above 0");
    return error_set(err, NP_EINPUT, NULL, NO_OFFSET, "must be a number above 0, at most %lld",
                     (long long)option->high);
}

static np_status store_text(const char *text, struct texts *to, np_error *err)
{
    if (to->n == MAX_TEXTS)
        return error_set(err, NP_EINPUT, NULL, NO_OFFSET, "at most %d may be given", MAX_TEXTS);
    to->at[to->n++] = text;
    return NP_OK;
}

static np_status store(const struct option *option, const char *text, struct options *options,
                       np_error *err)
{
    void *to = (char *)options + option->at;
    enum cpu_level level;
    const char *reason;
    switch (option->kind) {
    case KIND_SET: *(int *)to = (int)option->low; return NP_OK;
    case KIND_TEXT: *(const char **)to = text; return NP_OK;
    case KIND_INT: return store_int(option, text, to, err);
    case KIND_NAME:
    case KIND_ONE_OF: return store_name(option, text, to, err);
    case KIND_SIZE:
        if (read_size(text, option->low, to)) return NP_OK;
        return error_set(err, NP_EINPUT, NULL, NO_OFFSET,
                         "a size such as 800M or 1.5G is expected");
    case KIND_ABOVE0: return store_above0(option, text, to, err);
    case KIND_REAL: return store_real(option, text, to, err);
    case KIND_MANY: return store_text(text, to, err);
    case KIND_CPU: *(const char **)to = text; return cpu_choose(text, &level, &reason, err);
    }
    return NP_EINTERNAL;
}

/* ---- the parser --------------------------------------------------------------------------- */

static const struct option *find_long(const char *name, size_t n_bytes, unsigned command)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (table[i].commands & command && strlen(table[i].name) == n_bytes &&
            memcmp(table[i].name, name, n_bytes) == 0)
            return &table[i];
    return NULL;
}

static const struct option *find_letter(char letter, unsigned command)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (table[i].commands & command && table[i].letter && table[i].letter == letter)
            return &table[i];
    return NULL;
}

static np_status unknown(const char *arg, size_t n_bytes, unsigned command, np_error *err)
{
    const char *mine[N_OPTIONS];
    char word[80];
    size_t count = 0;
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (table[i].commands & command) mine[count++] = table[i].name;
    snprintf(word, sizeof word, "%.*s", (int)(n_bytes < 79 ? n_bytes : 79), arg);
    const char *name = word + strspn(word, "-");
    const char *nearest = word[1] == '-' ? name_nearest(mine, count, sizeof mine[0], name) : NULL;
    if (find_long(name, strlen(name), FOR_ALL))
        return error_set(err, NP_EINPUT, word, NO_OFFSET, "this option belongs to another command");
    if (nearest)
        return error_set(err, NP_EINPUT, word, NO_OFFSET, "unknown option; did you mean --%s?",
                         nearest);
    return error_set(
        err, NP_EINPUT, word, NO_OFFSET,
        "unknown option; --help lists them, -- stands before a text that begins with -");
}

/* The place where a list of arguments is kept is that of the arguments themselves. */
static np_status positional(struct options *options, unsigned command, char **args, int i,
                            np_error *err)
{
    char *text = args[i];
    if (command == FOR_PERPLEXITY) {
        options->files = args;
        args[options->n_files++] = text;
        return NP_OK;
    }
    if (command & (FOR_SERVE | FOR_INFO))
        return error_set(err, NP_EINPUT, text, NO_OFFSET,
                         "takes no text; the model is given by -m");
    if (options->text)
        return error_set(err, NP_EINPUT, text, NO_OFFSET,
                         "one text is expected; quote it: \"...\"");
    options->text = text;
    return NP_OK;
}

/* "-hi there" is no -h. */
static bool is_letters(const struct option *option, const char *arg, const char *value)
{
    return arg[1] != '-' && option->kind == KIND_SET && value;
}

/* One option at args[*i]; moves *i to its last argument. */
static np_status one_option(struct options *options, unsigned command, int n_args, char **args,
                            int *i, np_error *err)
{
    const char *arg = args[*i], *value = NULL;
    const struct option *option;
    size_t n_name = strcspn(arg, "=");
    if (arg[1] == '-') {
        option = find_long(arg + 2, n_name - 2, command);
        if (arg[n_name]) value = arg + n_name + 1;
    } else {
        option = find_letter(arg[1], command);
        n_name = 2;
        if (arg[2]) value = arg + 2;
    }
    if (!option || is_letters(option, arg, value))
        return unknown(arg, arg[1] == '-' ? n_name : strlen(arg), command, err);
    char shown[40];
    snprintf(shown, sizeof shown, "--%s", option->name);
    if (option->kind == KIND_SET && value)
        return error_set(err, NP_EINPUT, shown, NO_OFFSET, "this option takes no value");
    if (option->kind != KIND_SET && !value) {
        if (*i + 1 >= n_args)
            return error_set(err, NP_EINPUT, shown, NO_OFFSET, "a value is missing: %s",
                             option->argument);
        value = args[++*i];
    }
    np_error why = {0};
    if (store(option, value, options, &why) == NP_OK) return NP_OK;
    error_set(err, NP_EINPUT, shown, NO_OFFSET, "%s", why.message);
    return error_given(err, NP_EINPUT, "%.60s", value);
}

/* What a single value cannot tell. */
static np_status check_together(const struct options *options, unsigned command, np_error *err)
{
    bool npy = text_ends_with(options->output, ".npy");
    if (command != FOR_GATHER && (npy || text_ends_with(options->output, ".npz"))) {
        error_set(err, NP_EINPUT, "--output", NO_OFFSET,
                  "this command writes text; arrays come from gather");
        return error_given(err, NP_EINPUT, "%.60s", options->output);
    }
    if (npy && options->asked.tail)
        return error_set(err, NP_EINPUT, "--tail", NO_OFFSET,
                         "a .npy has no place for the tail; give -o OUT.npz");
    if (command == FOR_NEXT && options->asked.top == 0)
        return error_set(err, NP_EINPUT, "--top", NO_OFFSET, "%s", next_needs_top);
    enum cpu_level level;
    const char *reason;
    return cpu_choose(options->cpu, &level, &reason, err); /* the environment's too */
}

np_status options_parse(struct options *options, unsigned command, int n_args, char **args,
                        np_error *err)
{
    bool only_texts = false;
    for (int i = 0; i < n_args; i++) {
        if (!only_texts && strcmp(args[i], "--") == 0)
            only_texts = true;
        else if (only_texts || args[i][0] != '-' || args[i][1] == 0)
            TRY(positional(options, command, args, i, err));
        else
            TRY(one_option(options, command, n_args, args, &i, err));
    }
    return options->help ? NP_OK : check_together(options, command, err);
}

void options_name_place(np_error *err, unsigned command)
{
    char name[sizeof err->where], rest[sizeof err->where];
    size_t n_name = strcspn(err->where, "[.");
    snprintf(name, sizeof name, "%.*s", (int)n_name, err->where);
    snprintf(rest, sizeof rest, "%s", err->where + n_name);
    for (char *at = name; *at; at++)
        if (*at == '_') *at = '-';
    if (n_name && find_long(name, n_name, command))
        snprintf(err->where, sizeof err->where, "--%.60s%.60s", name, rest);
}

void options_help(struct buf *out, unsigned command)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option *option = &table[i];
        char left[48], letter[8] = "    ";
        if (!(option->commands & command)) continue;
        if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, option->name, option->argument ? " " : "",
                 option->argument ? option->argument : "");
        /* A name too wide for its column pushes its help to the next line. */
        buf_printf(out, strlen(left) > 26 ? "  %s\n%30s%s\n" : "  %-26s%s%s\n", left,
                   strlen(left) > 26 ? "" : "  ", option->help);
    }
}
