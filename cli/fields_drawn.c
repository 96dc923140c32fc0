/*
 * Fields of a request that steer what is generated and are not plain values. Texts and lists go to
 * the arena; whether ids are in the vocabulary, and numbers in their range, the library checks.
 */
#include "fields.h"

np_status field_seed(struct reading *reading, const char *name, json_t *value, np_error *err)
{
    return value_seed(&reading->values, name, value, &reading->question->asked.drawn.seed, err);
}

np_status field_stop(struct reading *reading, const char *name, json_t *value, np_error *err)
{
    struct drawn *drawn = &reading->question->asked.drawn;
    return value_strings(&reading->values, name, value, &drawn->stop, &drawn->n_stop, err);
}

np_status field_bad_words(struct reading *reading, const char *name, json_t *value, np_error *err)
{
    struct drawn *drawn = &reading->question->asked.drawn;
    return value_strings(&reading->values, name, value, &drawn->bad_words, &drawn->n_bad_words,
                         err);
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

np_status field_logit_bias(struct reading *reading, const char *name, json_t *value, np_error *err)
{
    struct drawn *drawn = &reading->question->asked.drawn;
    return value_biases(&reading->values, name, value, &drawn->biases, &drawn->n_biases, err);
}

np_status field_cache_salt(struct reading *reading, const char *name, json_t *value, np_error *err)
{
    np_string salt;
    const char *text = json_string_value(value);
    if (!text || !*text || strlen(text) != json_string_length(value))
        return value_wrong(name, "a text without NUL, and not empty", value, err);
    TRY(value_string(&reading->values, name, value, &salt, err));
    reading->question->asked.drawn.cache_salt = salt.bytes;
    return NP_OK;
}
