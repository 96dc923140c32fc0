/*
 * hfconfig.c - config.json as settings: {"rope_scaling": {"type": "linear"}} becomes
 * rope_scaling.type.
 *
 * The surprising decision: nothing is left out. What cannot be expressed as a setting (an array of
 * objects) still appears under its key, without elements, so that the model can refuse it by name.
 */
#include "format/jsonread.h"
#include "format/modelparts.h"

#include <string.h>

struct flattener {
    struct modelfile *file;
    const char *where;
    char key[MODELFILE_MAX_NAME_BYTES + 1];
    np_error *err;
};

static np_status no_memory(const struct flattener *flat, size_t n_bytes)
{
    return error_nomem(flat->err, flat->where, n_bytes);
}

static np_status take_text(struct flattener *flat, const json_t *value, struct text_view *out)
{
    out->n_bytes = json_string_length(value);
    out->bytes = modelfile_copy(flat->file, json_string_value(value), out->n_bytes);
    return out->bytes ? NP_OK : no_memory(flat, out->n_bytes);
}

static enum setting_type type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING: return SETTING_STRING;
    case JSON_INTEGER: return SETTING_INT;
    case JSON_REAL: return SETTING_FLOAT;
    case JSON_TRUE:
    case JSON_FALSE: return SETTING_BOOL;
    case JSON_NULL: return SETTING_NULL;
    case JSON_ARRAY: return SETTING_ARRAY;
    case JSON_OBJECT: break;
    }
    return SETTING_OBJECT;
}

static enum setting_type element_type(const json_t *array)
{
    size_t n = json_array_size(array);
    if (n == 0) return SETTING_NULL;
    enum setting_type all = type_of(json_array_get(array, 0));
    for (size_t i = 1; i < n; i++) {
        enum setting_type one = type_of(json_array_get(array, i));
        bool numbers = (all == SETTING_INT || all == SETTING_FLOAT) &&
                       (one == SETTING_INT || one == SETTING_FLOAT);
        if (one != all && !numbers) return SETTING_OBJECT;
        if (numbers && one == SETTING_FLOAT) all = SETTING_FLOAT;
    }
    return all == SETTING_ARRAY || all == SETTING_NULL ? SETTING_OBJECT : all;
}

static np_status take_array(struct flattener *flat, const json_t *array, struct setting *setting)
{
    size_t n = json_array_size(array);
    setting->element_type = element_type(array);
    setting->n_elements = n;
    if (n == 0 || setting->element_type == SETTING_OBJECT) return NP_OK;
    bool is_text = setting->element_type == SETTING_STRING,
         is_float = setting->element_type == SETTING_FLOAT;
    size_t size = is_text ? sizeof(struct text_view) : 8;
    void *values = arena_push_array(&flat->file->arena, n, size);
    if (!values) return no_memory(flat, n * size);
    struct text_view *texts = is_text ? values : NULL;
    double *numbers = is_float ? values : NULL;
    int64_t *integers = is_text || is_float ? NULL : values;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);
        if (is_text)
            TRY(take_text(flat, value, &texts[i]));
        else if (is_float)
            numbers[i] = json_number_value(value);
        else
            integers[i] = json_is_integer(value) ? json_integer_value(value) : json_is_true(value);
    }
    setting->texts = texts;
    setting->numbers = numbers;
    setting->integers = integers;
    return NP_OK;
}

static np_status add_setting(struct flattener *flat, size_t n_key_bytes, const json_t *value)
{
    struct setting *setting;
    const char *key = modelfile_copy(flat->file, flat->key, n_key_bytes);
    if (!key) return no_memory(flat, n_key_bytes);
    TRY(modelfile_add_setting(flat->file, key, &setting, flat->err));
    setting->type = type_of(value);
    setting->integer = json_is_integer(value) ? json_integer_value(value) : json_is_true(value);
    setting->number = json_is_number(value) ? json_number_value(value) : (double)setting->integer;
    if (setting->type == SETTING_STRING) TRY(take_text(flat, value, &setting->text));
    if (setting->type == SETTING_ARRAY) TRY(take_array(flat, value, setting));
    return NP_OK;
}

/* The members of an object under the prefix key[0 .. n_key_bytes). Depth is limited by jsonread. */
static np_status add_object(struct flattener *flat, size_t n_key_bytes, json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        size_t n_dot = n_key_bytes ? 1 : 0, n_name = strlen(name), n = n_key_bytes + n_dot + n_name;
        if (n_name == 0 || n > MODELFILE_MAX_NAME_BYTES)
            return error_set(flat->err, NP_EFORMAT, flat->where, NO_OFFSET,
                             "a key of %zu bytes under \"%.*s\"; 1 to %d in all are allowed",
                             n_name, (int)n_key_bytes, flat->key, MODELFILE_MAX_NAME_BYTES);
        if (n_dot) flat->key[n_key_bytes] = '.';
        memcpy(flat->key + n_key_bytes + n_dot, name, n_name);
        TRY(modelfile_check_name(flat->key, n, "key", flat->where, NO_OFFSET, flat->err));
        bool go_down = json_is_object(value) && json_object_size(value) > 0;
        TRY(go_down ? add_object(flat, n, value) : add_setting(flat, n, value));
    }
    return NP_OK;
}

np_status hfconfig_parse(struct modelfile *file, const char *json, size_t n_bytes,
                         const char *where, np_error *err)
{
    struct flattener flat = {.file = file, .where = where, .err = err};
    json_t *root;
    TRY(jsonread(json, n_bytes, where, 0, &root, err));
    np_status status = NP_OK;
    if (!json_is_object(root))
        status = error_set(err, NP_EFORMAT, where, 0, "an object { } is expected");
    if (status == NP_OK) status = add_object(&flat, 0, root);
    if (status == NP_OK) status = modelfile_index(file, &file->settings, "key", where, err);
    json_decref(root);
    return status;
}
