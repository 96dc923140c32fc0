/*
 * A line of --jsonl: one flat JSON object. One table names every field, its type and its range. A
 * field that is not in it, or that would change a number and is not served here, is refused by
 * name: an answer must never differ in silence from what was asked. Where nothing is generated,
 * fields that steer only the choice of tokens are checked for their type and have no effect. null
 * means "not given".
 */
#include "fields.h"

#include <math.h>

enum kind {
    FIELD_READ,   /* by its function */
    FIELD_FLAG,   /* int in asked: true is 1 */
    FIELD_CHOICE, /* np_choice in asked */
    FIELD_NAME,   /* place in names + 1 */
    FIELD_INT,    /* int64_t in asked */
    FIELD_ABOVE0, /* double in asked, at least the smallest float32 */
    FIELD_NUMBER, /* double in asked */
    FIELD_NO_EFFECT_NUMBER,
    FIELD_NO_EFFECT_FLAG,
    FIELD_NO_EFFECT_ANY,
    FIELD_REFUSED
};

struct field {
    const char *name;
    unsigned commands;
    enum kind kind;
    size_t at; /* offset in struct asked */
    double low, high;
    const char *const *names;
    read_fn *read;
};

static read_fn read_id, read_prompt, read_response, read_token_ids, read_candidates;

#define AT(member) offsetof(struct asked, member)
#define MAX_DEPTH 2048
#define ROWS_MAX 1099511627776.0 /* 2^40: past every context */
#define NO_EFFECT_NUMBER(name, low, high)                                \
    {                                                                    \
        name, FOR_ROWS, FIELD_NO_EFFECT_NUMBER, 0, low, high, NULL, NULL \
    }
#define NO_EFFECT_FLAG(name)                                                     \
    {                                                                            \
        name, FOR_ROWS | FOR_GENERATE, FIELD_NO_EFFECT_FLAG, 0, 0, 0, NULL, NULL \
    }
#define NO_EFFECT_ANY(name)                                      \
    {                                                            \
        name, FOR_TEXT, FIELD_NO_EFFECT_ANY, 0, 0, 0, NULL, NULL \
    }
#define REFUSED(name)                                      \
    {                                                      \
        name, FOR_TEXT, FIELD_REFUSED, 0, 0, 0, NULL, NULL \
    }

static const struct field table[] = {
    {"id", FOR_TEXT, FIELD_READ, 0, 0, 0, NULL, read_id},
    {"prompt", FOR_TEXT, FIELD_READ, 0, 0, 0, NULL, read_prompt},
    {"token_ids", FOR_TEXT, FIELD_READ, 0, 0, 0, NULL, read_token_ids},
    {"response", FOR_GATHER, FIELD_READ, 0, 0, 0, NULL, read_response},
    {"add_special_tokens", FOR_TEXT, FIELD_CHOICE, AT(add_special), 0, 0, NULL, NULL},
    {"parse_special", FOR_TEXT, FIELD_CHOICE, AT(parse_special), 0, 0, NULL, NULL},
    {"condition", FOR_ROWS | FOR_GENERATE, FIELD_NAME, AT(condition), 0, 0, condition_names, NULL},
    {"start", FOR_SCORE | FOR_GATHER, FIELD_INT, AT(start), 0, ROWS_MAX, NULL, NULL},
    {"prompt_logprob_start", FOR_SCORE | FOR_GATHER, FIELD_INT, AT(start), 0, ROWS_MAX, NULL, NULL},
    {"top", FOR_SCORE | FOR_NEXT | FOR_GENERATE, FIELD_INT, AT(top), -1, INT32_MAX, NULL, NULL},
    {"prompt_logprobs", FOR_SCORE, FIELD_INT, AT(top), -1, INT32_MAX, NULL, NULL},
    {"logprobs", FOR_GENERATE, FIELD_INT, AT(top), -1, INT32_MAX, NULL, NULL},
    {"entropy", FOR_SCORE, FIELD_FLAG, AT(entropy), 0, 0, NULL, NULL},
    {"score_temperature", FOR_ROWS, FIELD_ABOVE0, AT(score_temperature), 0, 0, NULL, NULL},
    {"prompt_logprobs_temperature", FOR_ROWS, FIELD_ABOVE0, AT(score_temperature), 0, 0, NULL,
     NULL},
    {"logprobs_mode", FOR_ROWS | FOR_GENERATE, FIELD_NAME, AT(logprobs_mode), 0, 0, mode_names,
     NULL},
    {"candidates", FOR_GATHER, FIELD_READ, 0, 0, 0, NULL, read_candidates},
    {"prompt_logprob_token_ids", FOR_GATHER, FIELD_READ, 0, 0, 0, NULL, read_candidates},
    {"tail", FOR_GATHER, FIELD_FLAG, AT(tail), 0, 0, NULL, NULL},
    {"prompt_logprob_tail", FOR_GATHER, FIELD_FLAG, AT(tail), 0, 0, NULL, NULL},
    {"n", FOR_GENERATE, FIELD_INT, AT(drawn.n), 1, 128, NULL, NULL},
    {"temperature", FOR_GENERATE, FIELD_NUMBER, AT(drawn.temperature), 0, 2, NULL, NULL},
    {"top_p", FOR_GENERATE, FIELD_ABOVE0, AT(drawn.top_p), 0, 0, NULL, NULL},
    {"top_k", FOR_GENERATE, FIELD_INT, AT(drawn.top_k), -1, INT32_MAX, NULL, NULL},
    {"min_p", FOR_GENERATE, FIELD_NUMBER, AT(drawn.min_p), 0, 1, NULL, NULL},
    {"seed", FOR_GENERATE, FIELD_READ, 0, 0, 0, NULL, field_seed},
    {"max_tokens", FOR_GENERATE, FIELD_INT, AT(drawn.max_tokens), 1, INT32_MAX, NULL, NULL},
    {"min_tokens", FOR_GENERATE, FIELD_INT, AT(drawn.min_tokens), 0, INT32_MAX, NULL, NULL},
    {"presence_penalty", FOR_GENERATE, FIELD_NUMBER, AT(drawn.presence_penalty), -2, 2, NULL, NULL},
    {"frequency_penalty", FOR_GENERATE, FIELD_NUMBER, AT(drawn.frequency_penalty), -2, 2, NULL,
     NULL},
    {"repetition_penalty", FOR_GENERATE, FIELD_ABOVE0, AT(drawn.repetition_penalty), 0, 0, NULL,
     NULL},
    {"priority", FOR_GENERATE, FIELD_INT, AT(drawn.priority), INT32_MIN, INT32_MAX, NULL, NULL},
    {"ignore_eos", FOR_GENERATE, FIELD_FLAG, AT(drawn.ignore_eos), 0, 0, NULL, NULL},
    {"skip_special_tokens", FOR_GENERATE, FIELD_CHOICE, AT(drawn.skip_special), 0, 0, NULL, NULL},
    {"include_stop_str_in_output", FOR_GENERATE, FIELD_FLAG, AT(drawn.include_stop), 0, 0, NULL,
     NULL},
    {"skip_reading_prefix_cache", FOR_GENERATE, FIELD_FLAG, AT(drawn.skip_cache), 0, 0, NULL, NULL},
    {"stop", FOR_GENERATE, FIELD_READ, 0, 0, 0, NULL, field_stop},
    {"stop_token_ids", FOR_GENERATE, FIELD_READ, 0, 0, 0, NULL, field_stop_token_ids},
    {"allowed_token_ids", FOR_GENERATE, FIELD_READ, 0, 0, 0, NULL, field_allowed_token_ids},
    {"logit_bias", FOR_GENERATE, FIELD_READ, 0, 0, 0, NULL, field_logit_bias},
    {"bad_words", FOR_GENERATE, FIELD_READ, 0, 0, 0, NULL, field_bad_words},
    {"cache_salt", FOR_GENERATE, FIELD_READ, 0, 0, 0, NULL, field_cache_salt},
    NO_EFFECT_NUMBER("n", 1, INT32_MAX),
    NO_EFFECT_NUMBER("temperature", 0, 1e30),
    NO_EFFECT_NUMBER("top_p", 0, 1),
    NO_EFFECT_NUMBER("top_k", -1, INT32_MAX),
    NO_EFFECT_NUMBER("min_p", 0, 1),
    NO_EFFECT_NUMBER("seed", -1e30, 1e30),
    NO_EFFECT_NUMBER("max_tokens", 0, INT32_MAX),
    NO_EFFECT_NUMBER("min_tokens", 0, INT32_MAX),
    NO_EFFECT_NUMBER("presence_penalty", -1e30, 1e30),
    NO_EFFECT_NUMBER("frequency_penalty", -1e30, 1e30),
    NO_EFFECT_NUMBER("repetition_penalty", 0, 1e30),
    NO_EFFECT_NUMBER("priority", -1e30, 1e30),
    NO_EFFECT_FLAG("ignore_eos"),
    NO_EFFECT_FLAG("detokenize"),
    NO_EFFECT_FLAG("skip_special_tokens"),
    NO_EFFECT_FLAG("flat_logprobs"),
    NO_EFFECT_FLAG("include_stop_str_in_output"),
    NO_EFFECT_FLAG("skip_reading_prefix_cache"),
    NO_EFFECT_FLAG("return_token_ids"),
    NO_EFFECT_ANY("stop"),
    NO_EFFECT_ANY("stop_token_ids"),
    NO_EFFECT_ANY("cache_salt"),
    NO_EFFECT_ANY("request_id"),
    NO_EFFECT_ANY("user"),
    REFUSED("model"),
    REFUSED("logprobs"),
    REFUSED("logprob_token_ids"),
    REFUSED("logit_bias"),
    REFUSED("allowed_token_ids"),
    REFUSED("bad_words"),
    REFUSED("echo"),
    REFUSED("stream"),
    REFUSED("messages"),
    REFUSED("truncate_prompt_tokens"),
    REFUSED("sampling_params"),
    REFUSED("extra_args"),
};
#define N_FIELDS (sizeof table / sizeof table[0])

/* ---- the fields that are not plain values ------------------------------------------------- */

static np_status read_id(struct reading *reading, const char *name, json_t *value, np_error *err)
{
    struct question *question = reading->question;
    if (value_whole(&reading->values, value, &question->id_int)) {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)question->id_int);
        question->id = arena_strndup(reading->values.arena, text, strlen(text));
    } else if (json_is_string(value) &&
               strlen(json_string_value(value)) == json_string_length(value)) {
        question->id_is_text = true;
        question->id = arena_strndup(reading->values.arena, json_string_value(value),
                                     json_string_length(value));
    } else {
        return value_wrong(name, "a text without NUL or an integer", value, err);
    }
    return question->id ? NP_OK : error_nomem(err, name, json_string_length(value));
}

np_status field_ids(struct reading *reading, const char *name, json_t *value, const int32_t **ids,
                    size_t *n_ids, np_error *err)
{
    np_ids list;
    if (!json_is_array(value)) return value_wrong(name, "a list of token ids", value, err);
    TRY(value_ids(&reading->values, name, value, &list, err));
    *ids = list.ids;
    *n_ids = list.n;
    return NP_OK;
}

static np_status read_token_ids(struct reading *reading, const char *name, json_t *value,
                                np_error *err)
{
    struct question *question = reading->question;
    question->has_ids = true;
    question->tokens_name = name;
    return field_ids(reading, name, value, &question->token_ids, &question->n_tokens, err);
}

static np_status read_text(struct reading *reading, const char *name, json_t *value,
                           const char **text, size_t *n_bytes, np_error *err)
{
    np_string string;
    TRY(value_string(&reading->values, name, value, &string, err));
    *text = string.bytes;
    *n_bytes = string.n_bytes;
    return NP_OK;
}

static np_status read_prompt(struct reading *reading, const char *name, json_t *value,
                             np_error *err)
{
    struct question *question = reading->question;
    if (json_is_array(value)) return read_token_ids(reading, name, value, err);
    if (!json_is_string(value))
        return value_wrong(name, "a text or a list of token ids", value, err);
    return read_text(reading, name, value, &question->text, &question->n_bytes, err);
}

static np_status read_response(struct reading *reading, const char *name, json_t *value,
                               np_error *err)
{
    struct question *question = reading->question;
    if (json_is_array(value)) {
        question->has_response_ids = true;
        return field_ids(reading, name, value, &question->response_ids, &question->n_response, err);
    }
    if (!json_is_string(value))
        return value_wrong(name, "a text or a list of token ids", value, err);
    return read_text(reading, name, value, &question->response_text, &question->n_response_bytes,
                     err);
}

static np_status read_candidates(struct reading *reading, const char *name, json_t *value,
                                 np_error *err)
{
    struct question *question = reading->question;
    struct candidates ids;
    question->candidates_name = name;
    TRY(value_candidates(&reading->values, name, value, &ids, err));
    question->candidate_ids = ids.ids;
    question->n_candidates = ids.n_candidates;
    question->n_candidate_rows = ids.n_rows;
    return NP_OK;
}

/* ---- plain values ------------------------------------------------------------------------- */

static np_status read_name(const struct field *field, json_t *value, int *to, np_error *err)
{
    char must_be[160] = "one of";
    int place = -1;
    if (json_is_string(value))
        place = name_find(field->names, json_string_value(value), json_string_length(value));
    if (place >= 0) {
        *to = place + 1;
        return NP_OK;
    }
    for (int i = 0; field->names[i]; i++) {
        size_t at = strlen(must_be);
        snprintf(must_be + at, sizeof must_be - at, "%s \"%s\"", i ? "," : "", field->names[i]);
    }
    return value_wrong(field->name, must_be, value, err);
}

static np_status read_number(const struct field *field, json_t *value, bool good, double *to,
                             np_error *err)
{
    char must_be[96];
    double number = json_number_value(value);
    if (good && number >= field->low && number <= field->high) {
        *to = number;
        return NP_OK;
    }
    snprintf(must_be, sizeof must_be, "%s from %.15g to %.15g",
             field->kind == FIELD_INT ? "an integer" : "a number", field->low, field->high);
    return value_wrong(field->name, must_be, value, err);
}

static np_status read_field(struct reading *reading, const struct field *field, json_t *value,
                            np_error *err)
{
    void *to = (char *)&reading->question->asked + field->at;
    bool is_bool = json_is_boolean(value);
    int64_t integer;
    double number = 0;
    switch (field->kind) {
    case FIELD_READ: return field->read(reading, field->name, value, err);
    case FIELD_NAME: return read_name(field, value, to, err);
    case FIELD_FLAG:
        *(int *)to = json_is_true(value);
        return is_bool ? NP_OK : value_wrong(field->name, "true or false", value, err);
    case FIELD_CHOICE:
        *(int *)to = json_is_true(value) ? NP_YES : NP_NO;
        return is_bool ? NP_OK : value_wrong(field->name, "true or false", value, err);
    case FIELD_NO_EFFECT_FLAG:
        return is_bool ? NP_OK : value_wrong(field->name, "true or false", value, err);
    case FIELD_INT:
        TRY(read_number(field, value, value_whole(&reading->values, value, &integer), &number,
                        err));
        *(int64_t *)to = (int64_t)number;
        return NP_OK;
    case FIELD_ABOVE0:
        number = json_number_value(value);
        *(double *)to = number;
        if (json_is_number(value) && (float)number > 0 && isfinite((float)number)) return NP_OK;
        return value_wrong(field->name, "a finite number above 0", value, err);
    case FIELD_NUMBER: return read_number(field, value, json_is_number(value), to, err);
    case FIELD_NO_EFFECT_NUMBER:
        return read_number(field, value, json_is_number(value), &number, err);
    case FIELD_NO_EFFECT_ANY: return NP_OK;
    case FIELD_REFUSED:
        if (json_is_false(value)) return NP_OK;
        break;
    }
    return error_set(err, NP_EUNSUPPORTED, field->name, NO_OFFSET,
                     "this field is not served here; leave it out or set it to null");
}

/* ---- the object --------------------------------------------------------------------------- */

static np_status unknown(const char *key, unsigned command, np_error *err)
{
    const char *mine[N_FIELDS];
    size_t count = 0;
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (strcmp(table[i].name, key) == 0)
            return error_set(err, NP_EINPUT, key, NO_OFFSET,
                             "this field belongs to another command");
        if (table[i].commands & command && table[i].kind != FIELD_REFUSED)
            mine[count++] = table[i].name;
    }
    const char *nearest = name_nearest(mine, count, sizeof mine[0], key);
    if (nearest)
        return error_set(err, NP_EINPUT, key, NO_OFFSET, "unknown field; did you mean \"%s\"?",
                         nearest);
    return error_set(err, NP_EINPUT, key, NO_OFFSET, "unknown field");
}

/* Two names of one value must not both be there. */
static np_status check_aliases(json_t *object, np_error *err)
{
    static const char *const pairs[][2] = {{"prompt", "token_ids"},
                                           {"start", "prompt_logprob_start"},
                                           {"top", "prompt_logprobs"},
                                           {"top", "logprobs"},
                                           {"score_temperature", "prompt_logprobs_temperature"},
                                           {"candidates", "prompt_logprob_token_ids"},
                                           {"tail", "prompt_logprob_tail"},
                                           {"condition", "add_special_tokens"},
                                           {"response", "token_ids"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        json_t *first = json_object_get(object, pairs[i][0]),
               *second = json_object_get(object, pairs[i][1]);
        if (first && second && !json_is_null(first) && !json_is_null(second))
            return error_set(err, NP_EINPUT, pairs[i][1], NO_OFFSET,
                             "give this or \"%s\", not both", pairs[i][0]);
    }
    return NP_OK;
}

static np_status read_object(struct reading *reading, json_t *object, np_error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object)) return value_wrong("request", "an object", object, err);
    /* The id first, so that an error of another field carries it. */
    value = json_object_get(object, "id");
    if (value && !json_is_null(value)) TRY(read_id(reading, "id", value, err));
    TRY(check_aliases(object, err));
    json_object_foreach(object, key, value)
    {
        const struct field *field = NULL;
        for (size_t i = 0; i < N_FIELDS && !field; i++)
            if (table[i].commands & reading->command && strcmp(table[i].name, key) == 0)
                field = &table[i];
        if (!field) return unknown(key, reading->command, err);
        if (!json_is_null(value)) TRY(read_field(reading, field, value, err));
    }
    return NP_OK;
}

np_status fields_read(struct question *question, unsigned command, const char *line, size_t n_bytes,
                      struct arena *arena)
{
    struct reading reading = {.values.arena = arena, .question = question, .command = command};
    np_error *err = &question->error;
    json_t *object;
    char where[32];
    snprintf(where, sizeof where, "line %zu", question->line);
    TRY(values_parse(&reading.values, line, n_bytes, where, MAX_DEPTH, &object, err));
    np_status status = read_object(&reading, object, err);
    json_decref(object);
    return status;
}
