/*
 * Fields of a request that steer what is generated and are not plain values. Texts and lists go to
 * the arena; whether ids are in the vocabulary, and numbers in their range, the library checks.
 */
#include "fields.h"

#include <errno.h>

np_status field_seed(struct reading *reading, const char *name, json_t *value, np_error *err)
{
    int64_t *seed = &reading->question->asked.drawn.seed;
    if (field_whole(reading, value, seed) && *seed >= -1) return NP_OK;
    return field_wrong(name, "an integer from 0 to 2^63 - 1, or -1 for a random one", value, err);
}

static np_status one_text(struct reading *reading, const char *name, json_t *value, np_string *text,
                          np_error *err)
{
    size_t n_bytes = json_string_length(value);
    text->bytes = arena_strndup(reading->arena, json_string_value(value), n_bytes);
    text->n_bytes = n_bytes;
    return text->bytes ? NP_OK : error_nomem(err, name, n_bytes);
}

/* A text, or a list of texts. */
static np_status read_texts(struct reading *reading, const char *name, json_t *value,
                            const np_string **texts, size_t *n_texts, np_error *err)
{
    bool one = json_is_string(value);
    if (!one && !json_is_array(value))
        return field_wrong(name, "a text or a list of texts", value, err);
    size_t n = one ? 1 : json_array_size(value);
    np_string *list = arena_push_array(reading->arena, n + 1, sizeof *list);
    if (!list) return error_nomem(err, name, n * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        json_t *text = one ? value : json_array_get(value, i);
        char where[96];
        snprintf(where, sizeof where, "%s[%zu]", name, i);
        if (!json_is_string(text)) return field_wrong(where, "a text", text, err);
        TRY(one_text(reading, name, text, &list[i], err));
    }
    *texts = list;
    *n_texts = n;
    return NP_OK;
}

np_status field_stop(struct reading *reading, const char *name, json_t *value, np_error *err)
{
    struct drawn *drawn = &reading->question->asked.drawn;
    return read_texts(reading, name, value, &drawn->stop, &drawn->n_stop, err);
}

np_status field_bad_words(struct reading *reading, const char *name, json_t *value, np_error *err)
{
    struct drawn *drawn = &reading->question->asked.drawn;
    return read_texts(reading, name, value, &drawn->bad_words, &drawn->n_bad_words, err);
}

np_status field_stop_token_ids(struct reading *reading, const char *name, json_t *value,
                               np_error *err)
{
    np_ids *ids = &reading->question->asked.drawn.stop_ids;
    return field_ids(reading, name, value, &ids->ids, &ids->n, err);
}

np_status field_allowed_token_ids(struct reading *reading, const char *name, json_t *value,
                                  np_error *err)
{
    np_ids *ids = &reading->question->asked.drawn.allowed_ids;
    return field_ids(reading, name, value, &ids->ids, &ids->n, err);
}

/* {"id": bias, ...} */
np_status field_logit_bias(struct reading *reading, const char *name, json_t *value, np_error *err)
{
    struct drawn *drawn = &reading->question->asked.drawn;
    const char *key;
    json_t *bias;
    if (!json_is_object(value))
        return field_wrong(name, "an object of numbers by token id", value, err);
    np_bias *list = arena_push_array(reading->arena, json_object_size(value) + 1, sizeof *list);
    if (!list) return error_nomem(err, name, json_object_size(value) * sizeof *list);
    drawn->n_biases = 0;
    json_object_foreach(value, key, bias)
    {
        char where[96], *end;
        errno = 0;
        long id = strtol(key, &end, 10);
        snprintf(where, sizeof where, "%s.%.60s", name, key);
        if (key[0] < '0' || key[0] > '9' || *end || errno || id > INT32_MAX)
            return error_set(err, NP_EINPUT, where, NO_OFFSET,
                             "the name of a bias must be a token id");
        if (!json_is_number(bias)) return field_wrong(where, "a number", bias, err);
        list[drawn->n_biases++] = (np_bias){(int32_t)id, (float)json_number_value(bias)};
    }
    drawn->biases = list;
    return NP_OK;
}

np_status field_cache_salt(struct reading *reading, const char *name, json_t *value, np_error *err)
{
    np_string salt;
    const char *text = json_string_value(value);
    if (!text || !*text || strlen(text) != json_string_length(value))
        return field_wrong(name, "a text without NUL, and not empty", value, err);
    TRY(one_text(reading, name, value, &salt, err));
    reading->question->asked.drawn.cache_salt = salt.bytes;
    return NP_OK;
}
