/*
 * POST /nepit/v1/choose: which of several texts follows a context best, by every rule in use. Each
 * option is encoded together with the context and scored from the first token that touches it:
 *
 *     context "good morn" + option "ing"  ->  |good| morning|    the last token straddles, and
 *                                                  ^ first row   counts whole
 *
 * Options share the context in the engine: its rows are computed once. An option may be a list of
 * variants ("yes", " yes"): its total is the log of the sum of their probabilities, its other
 * numbers are those of the variant that has most.
 */
#include "ownroutes.h"

#include <math.h>

enum rule { BY_MEAN, BY_TOTAL, BY_BYTES, BY_CHARS, BY_CALIBRATED, N_RULES };
static const char *const rule_names[] = {"mean", "total", "bytes", "chars", "calibrated", NULL};
static const char *const number_names[N_RULES] = {"mean", "total", "per_byte", "per_character",
                                                  "calibrated"};

static const struct field choose_fields[] = {
    REQUIRED("context", FIELD_TEXT, context, "nepit", NULL, "What stands before the options."),
    REQUIRED("options", FIELD_ARRAY, options, "nepit", NULL,
             "Texts; or lists of texts, whose probabilities are added."),
    NAMES("by", by, rule_names, "\"mean\"", "nepit",
          "The rule that names the winner: the log-probability per token, in all, per byte, per "
          "character, or beside that after the neutral text."),
    ROW("neutral", FIELD_TEXT, neutral, NULL, "nepit", NULL,
        "A context that says nothing, as \"Answer:\"; for the rule calibrated."),
    LAST_ROW};
const struct field *const own_choose_groups[] = {
    choose_fields, own_text_fields, own_numbers_fields, identity_fields, running_fields, NULL};

/* One text of an option, behind the context or the neutral text. */
struct variant {
    np_string text;
    size_t n_characters;
    size_t request, neutral; /* places in the requests */
    bool straddles;
};
struct option {
    struct variant *variants; /* [n_variants] */
    size_t n_variants;
    bool many; /* was a list */
};
struct choosing {
    struct option *options; /* [n_options] */
    size_t n_options, n_variants;
    struct encoded *encoded; /* [n_requests] */
    bool *straddles;         /* [n_requests] */
    size_t *first;           /* [n_requests] the first token that touches the option */
};

/* ---- options --------------------------------------------------------------------------------- */

static size_t count_characters(np_string text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n_bytes; i++) n += ((unsigned char)text.bytes[i] & 0xc0) != 0x80;
    return n;
}

static np_status read_option(struct exchange *exchange, size_t i, struct option *option,
                             np_error *err)
{
    struct ask *ask = &exchange->ask;
    const json_t *value = json_array_get(ask->options, i);
    const np_string *texts;
    char where[64];
    size_t n;
    snprintf(where, sizeof where, "options[%zu]", i);
    TRY(value_strings(&ask->values, where, value, &texts, &n, err));
    if (n == 0) return error_set(err, NP_EINPUT, where, NO_OFFSET, "at least one text is expected");
    option->many = json_is_array(value);
    option->n_variants = n;
    option->variants = arena_push_array(&exchange->arena, n, sizeof *option->variants);
    if (!option->variants) return error_nomem(err, where, n * sizeof *option->variants);
    for (size_t k = 0; k < n; k++) {
        snprintf(where, sizeof where, option->many ? "options[%zu][%zu]" : "options[%zu]", i, k);
        if (texts[k].n_bytes == 0)
            return error_set(err, NP_EINPUT, where, NO_OFFSET, "the text is empty");
        option->variants[k] =
            (struct variant){.text = texts[k], .n_characters = count_characters(texts[k])};
    }
    return NP_OK;
}

static np_status read_options(struct exchange *exchange, struct choosing *choosing, np_error *err)
{
    size_t n = json_array_size(exchange->ask.options);
    if (n == 0)
        return error_set(err, NP_EINPUT, "options", NO_OFFSET, "at least one text is expected");
    choosing->options = arena_push_array(&exchange->arena, n, sizeof *choosing->options);
    if (!choosing->options) return error_nomem(err, "options", n * sizeof *choosing->options);
    choosing->n_options = n;
    for (size_t i = 0; i < n; i++) {
        TRY(read_option(exchange, i, &choosing->options[i], err));
        choosing->n_variants += choosing->options[i].n_variants;
    }
    return NP_OK;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Context and option as one text; request `at` scores it from the first token that has a byte of
 * the option. */
static np_status encode_both(struct exchange *exchange, struct choosing *choosing, size_t at,
                             np_string context, np_string option, bool bos, np_error *err)
{
    struct encoded *encoded = &choosing->encoded[at];
    size_t n_bytes = context.n_bytes + option.n_bytes, first = 0;
    char *text = arena_push(&exchange->arena, n_bytes + 1);
    if (!text) return error_nomem(err, "options", n_bytes);
    if (context.n_bytes) memcpy(text, context.bytes, context.n_bytes);
    memcpy(text + context.n_bytes, option.bytes, option.n_bytes);
    TRY(ask_encode(exchange, (np_string){text, n_bytes}, NP_NO, bos, encoded, err));
    TRY(own_check_ids(exchange, "", (np_ids){encoded->ids, encoded->n}, err));
    while (first < encoded->n && encoded->end[first] <= context.n_bytes) first++;
    if (first == 0)
        return error_set(err, NP_EINPUT, "", NO_OFFSET,
                         "its first token has nothing before it, and so no score: a context, or "
                         "condition \"bos\", is required");
    choosing->first[at] = first;
    choosing->straddles[at] = encoded->begin[first] < context.n_bytes;
    return NP_OK;
}

static np_status encode_variant(struct exchange *exchange, struct choosing *choosing, size_t at,
                                const struct variant *variant, bool bos, np_error *err)
{
    const struct ask *ask = &exchange->ask;
    TRY(encode_both(exchange, choosing, at, ask->context, variant->text, bos, err));
    if (!ask->neutral.bytes) return NP_OK;
    return encode_both(exchange, choosing, at + choosing->n_variants, ask->neutral, variant->text,
                       bos, err);
}

static np_status encode_all(struct exchange *exchange, struct choosing *choosing, np_error *err)
{
    size_t at = 0;
    bool bos = false;
    TRY(own_bos(exchange, &bos, err));
    for (size_t i = 0; i < choosing->n_options; i++)
        for (size_t k = 0; k < choosing->options[i].n_variants; k++, at++) {
            struct variant *variant = &choosing->options[i].variants[k];
            np_status status = encode_variant(exchange, choosing, at, variant, bos, err);
            variant->request = at;
            variant->neutral = at + choosing->n_variants;
            if (status != NP_OK && !*err->where)
                snprintf(err->where, sizeof err->where, "options[%zu]", i);
            if (status != NP_OK) return status;
        }
    return NP_OK;
}

np_status own_choose_prepare(struct exchange *exchange, np_error *err)
{
    enum { TOKEN_BYTES = 60, OPTION_BYTES = 800 };
    struct ask *ask = &exchange->ask;
    struct arena *arena = &exchange->arena;
    struct choosing *choosing = arena_push_array(arena, 1, sizeof *choosing);
    if (!choosing) return error_nomem(err, "options", sizeof *choosing);
    exchange->extra = choosing;
    if (ask->by == BY_CALIBRATED + 1 && !ask->neutral.bytes)
        return error_set(err, NP_EINPUT, "neutral", NO_OFFSET,
                         "the rule calibrated needs a neutral text");
    TRY(read_options(exchange, choosing, err));
    size_t n = choosing->n_variants * (ask->neutral.bytes ? 2 : 1);
    struct prompt *prompts = arena_push_array(arena, n, sizeof *prompts);
    choosing->encoded = arena_push_array(arena, n, sizeof *choosing->encoded);
    choosing->straddles = arena_push_array(arena, n, sizeof *choosing->straddles);
    choosing->first = arena_push_array(arena, n, sizeof *choosing->first);
    if (!prompts || !choosing->encoded || !choosing->straddles || !choosing->first)
        return error_nomem(err, "options", n * sizeof *prompts);
    TRY(encode_all(exchange, choosing, err));
    for (size_t i = 0; i < n; i++)
        prompts[i].ids = (np_ids){choosing->encoded[i].ids, choosing->encoded[i].n};
    ask->prompts = (struct prompts){.at = prompts, .n = n};
    ask->prompt_logprobs = 0;
    ask->max_tokens = 0;
    TRY(exchange_requests(exchange, n, err));
    for (size_t i = 0; i < n; i++) {
        ask->start = (int64_t)choosing->first[i] - 1;
        TRY(prepare_prompt(exchange, i, err));
        exchange->requests[i].logprobs_mode = NP_RAW_LOGPROBS;
        size_t n_rows = choosing->encoded[i].n - choosing->first[i];
        TRY(ask_expect(exchange, (double)n_rows * TOKEN_BYTES + OPTION_BYTES, err));
    }
    return NP_OK;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static double total_of(const np_result *result)
{
    double total = 0;
    for (size_t j = 0; j < result->n_scored; j++) total += own_value(result->logprobs[j]);
    return total;
}

static void numbers_of(const struct exchange *exchange, const struct variant *variant,
                       double numbers[N_RULES])
{
    const np_result *result = &exchange->results[variant->request];
    double total = total_of(result);
    numbers[BY_MEAN] = total / (double)result->n_scored;
    numbers[BY_TOTAL] = total;
    numbers[BY_BYTES] = total / (double)variant->text.n_bytes;
    numbers[BY_CHARS] = variant->n_characters ? total / (double)variant->n_characters : NAN;
    numbers[BY_CALIBRATED] =
        exchange->ask.neutral.bytes ? total - total_of(&exchange->results[variant->neutral]) : NAN;
}

static double sum_of_logs(const double *logs, size_t n)
{
    double highest = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        if (logs[i] > highest) highest = logs[i];
    for (size_t i = 0; i < n; i++) sum += exp(logs[i] - highest);
    return highest + log(sum);
}

static np_status option_numbers(struct exchange *exchange, const struct option *option,
                                double numbers[N_RULES], np_error *err)
{
    double *totals = arena_push_array(&exchange->arena, option->n_variants, sizeof *totals);
    if (!totals) return error_nomem(err, "options", option->n_variants * sizeof *totals);
    for (int rule = 0; rule < N_RULES; rule++) numbers[rule] = NAN;
    for (size_t k = 0; k < option->n_variants; k++) {
        double own[N_RULES];
        numbers_of(exchange, &option->variants[k], own);
        totals[k] = own[BY_TOTAL];
        for (int rule = 0; rule < N_RULES; rule++)
            if (isnan(numbers[rule]) || own[rule] > numbers[rule]) numbers[rule] = own[rule];
    }
    if (option->n_variants > 1) numbers[BY_TOTAL] = sum_of_logs(totals, option->n_variants);
    return NP_OK;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void tell_numbers(struct json *json, const double numbers[N_RULES])
{
    for (int rule = 0; rule < N_RULES; rule++)
        own_tell_double(json, number_names[rule], numbers[rule]);
}

static void tell_variant(struct exchange *exchange, const struct choosing *choosing,
                         const struct variant *variant)
{
    struct json *json = &exchange->writer;
    const np_result *result = &exchange->results[variant->request];
    json_key(json, "token_ids");
    tell_ids(exchange, result->token_ids + result->start + 1, result->n_scored);
    json_key(json, "tokens");
    json_begin(json, '[');
    for (size_t j = 0; j < result->n_scored; j++)
        tell_token(exchange, result->token_ids[result->start + 1 + j], false);
    json_end(json, ']');
    json_key(json, "logprobs");
    tell_values(exchange, result->logprobs, 0, result->n_scored);
    own_tell_count(json, "start", result->start);
    json_key(json, "straddles");
    json_bool(json, choosing->straddles[variant->request]);
    own_tell_count(json, "n_tokens", result->n_scored);
    own_tell_count(json, "n_bytes", variant->text.n_bytes);
    own_tell_count(json, "n_characters", variant->n_characters);
}

static void tell_text(struct json *json, np_string text)
{
    json_key(json, "text");
    json_text(json, text.bytes, text.n_bytes);
}

static void tell_option(struct exchange *exchange, const struct choosing *choosing,
                        const struct option *option)
{
    struct json *json = &exchange->writer;
    if (!option->many) {
        tell_text(json, option->variants[0].text);
        tell_variant(exchange, choosing, &option->variants[0]);
        return;
    }
    json_key(json, "variants");
    json_begin(json, '[');
    for (size_t k = 0; k < option->n_variants; k++) {
        double numbers[N_RULES];
        numbers_of(exchange, &option->variants[k], numbers);
        json_begin(json, '{');
        tell_text(json, option->variants[k].text);
        tell_numbers(json, numbers);
        tell_variant(exchange, choosing, &option->variants[k]);
        json_end(json, '}');
    }
    json_end(json, ']');
}

static int64_t winner_of(const double (*numbers)[N_RULES], size_t n, int rule)
{
    int64_t winner = -1;
    for (size_t i = 0; i < n; i++)
        if (!isnan(numbers[i][rule]) &&
            (winner < 0 || numbers[i][rule] > numbers[(size_t)winner][rule]))
            winner = (int64_t)i;
    return winner;
}

static void tell_winners(struct exchange *exchange, const double (*numbers)[N_RULES], size_t n)
{
    struct json *json = &exchange->writer;
    int by = exchange->ask.by - 1;
    json_key(json, "by");
    json_str(json, rule_names[by]);
    json_key(json, "winner");
    json_int(json, winner_of(numbers, n, by));
    json_key(json, "winners");
    json_begin(json, '{');
    for (int rule = 0; rule < N_RULES; rule++) {
        int64_t winner = winner_of(numbers, n, rule);
        json_key(json, rule_names[rule]);
        if (winner < 0)
            json_nil(json);
        else
            json_int(json, winner);
    }
    json_end(json, '}');
}

/* What is likely not meant. */
static void tell_warnings_of(struct exchange *exchange)
{
    struct json *json = &exchange->writer;
    np_string context = exchange->ask.context;
    bool white = context.n_bytes > 0 && strchr(" \t\r\n", context.bytes[context.n_bytes - 1]);
    json_key(json, "warnings");
    json_begin(json, '[');
    if (white)
        json_str(json, "the context ends with white space, which tokens that begin with a space "
                       "cannot follow as in running text");
    json_end(json, ']');
}

np_status own_choose_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    const struct choosing *choosing = exchange->extra;
    size_t n = choosing->n_options;
    double(*numbers)[N_RULES] = arena_push_array(&exchange->arena, n, sizeof *numbers);
    double *totals = arena_push_array(&exchange->arena, n, sizeof *totals);
    if (!numbers || !totals) return error_nomem(err, "options", n * sizeof *numbers);
    for (size_t i = 0; i < n; i++) {
        TRY(option_numbers(exchange, &choosing->options[i], numbers[i], err));
        totals[i] = numbers[i][BY_TOTAL];
    }
    double all = sum_of_logs(totals, n);
    json_begin(json, '{');
    tell_head(exchange, "request_id", NULL);
    tell_winners(exchange, (const double(*)[N_RULES])numbers, n);
    json_key(json, "options");
    json_begin(json, '[');
    for (size_t i = 0; i < n; i++) {
        json_begin(json, '{');
        own_tell_count(json, "index", i);
        tell_numbers(json, numbers[i]);
        own_tell_double(json, "probability", exp(totals[i] - all));
        tell_option(exchange, choosing, &choosing->options[i]);
        json_end(json, '}');
    }
    json_end(json, ']');
    json_key(json, "split");
    json_str(json, "together");
    own_tell_conditioning(exchange, choosing->encoded[0].ids, choosing->encoded[0].n);
    tell_warnings_of(exchange);
    tell_meaning(exchange);
    json_key(json, "usage");
    tell_usage(exchange, exchange->n_prompt_tokens, 0);
    json_end(json, '}');
    return NP_OK;
}
