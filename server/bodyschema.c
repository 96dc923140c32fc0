/*
 * bodyschema.c - the rows of a body as a JSON Schema (2020-12, as OpenAPI 3.1 has it).
 */
#include "base/json.h"
#include "bodyfields.h"

#include <float.h>

#define ID_SCHEMA "\"type\":\"integer\",\"minimum\":0,\"maximum\":$LAST"
#define IDS_SCHEMA "\"type\":\"array\",\"items\":{" ID_SCHEMA "}"
#define LISTS_SCHEMA "\"type\":\"array\",\"minItems\":1,\"items\":{" IDS_SCHEMA ",\"minItems\":1}"
/* Base64 of bytes that begin as a .npy file does. */
#define NPY_SCHEMA                                                                           \
    "\"type\":\"string\",\"contentEncoding\":\"base64\",\"pattern\":\"^k05VTVBZ[A-Za-z0-9+/" \
    "]*=?=?$\""
#define PADDED_SCHEMA "\"type\":\"integer\",\"minimum\":-1,\"maximum\":$LAST"

/* Members of a schema, without the braces; where there are none they are made of the row. */
static const char *const schemas[] = {
    [FIELD_FLAG] = "\"type\":\"boolean\"",
    [FIELD_CHOICE] = "\"type\":\"boolean\"",
    [FIELD_TEXT] = "\"type\":\"string\"",
    [FIELD_WORD] = "\"type\":\"string\",\"pattern\":\"^[^\\\\u0000]*$\"",
    [FIELD_IDS] = "\"anyOf\":[{" IDS_SCHEMA "},{" NPY_SCHEMA "}]",
    [FIELD_TEXTS] =
        "\"anyOf\":[{\"type\":\"string\",\"minLength\":1},{\"type\":\"array\",\"items\":{"
        "\"type\":\"string\",\"minLength\":1}}]",
    [FIELD_SEED] = "\"type\":\"integer\",\"minimum\":-1,\"maximum\":9223372036854775807",
    [FIELD_BIASES] = "\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[0-9]+$\"},"
                     "\"additionalProperties\":{\"type\":\"number\"}",
    [FIELD_PROMPT] =
        "\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"minItems\":1,"
        "\"items\":{\"type\":\"string\"}},{" IDS_SCHEMA ",\"minItems\":1},{" LISTS_SCHEMA "}]",
    [FIELD_ID_LISTS] = "\"anyOf\":[{" IDS_SCHEMA ",\"minItems\":1},{" LISTS_SCHEMA "}]",
    [FIELD_CANDIDATES] =
        "\"anyOf\":[{" NPY_SCHEMA "},{" IDS_SCHEMA ",\"minItems\":1},{"
        "\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"array\",\"items\":{" PADDED_SCHEMA
        "}}},{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"array\",\"minItems\":1,"
        "\"items\":{\"type\":\"array\",\"items\":{" PADDED_SCHEMA "}}}}]",
    [FIELD_PIECES] = "\"type\":[\"string\",\"array\",\"object\"]",
    [FIELD_ARRAY] = "\"type\":\"array\"",
    [FIELD_MAP] = "\"type\":\"object\"",
    [FIELD_IGNORED] = "",
};

/* "$LAST" is the last id of the vocabulary. */
static void put_schema(const char *schema, int32_t n_vocab, struct buf *out)
{
    const char *at;
    for (; (at = strstr(schema, "$LAST")); schema = at + 5) {
        buf_push(out, schema, (size_t)(at - schema));
        buf_printf(out, "%d", (int)n_vocab - 1);
    }
    buf_puts(out, schema);
}

static void range_schema(const struct field *field, struct json *json)
{
    bool whole = field->kind != FIELD_NUMBER && field->kind != FIELD_ABOVE0;
    json_key(json, "type");
    json_str(json, whole ? "integer" : "number");
    json_key(json, "minimum");
    if (field->kind == FIELD_ABOVE0)
        json_double(json, (double)FLT_TRUE_MIN);
    else
        whole ? json_int(json, (int64_t)field->low) : json_double(json, field->low);
    json_key(json, "maximum");
    whole ? json_int(json, (int64_t)field->high) : json_double(json, field->high);
}

/* The value, or another kind of it: true and false of a count, a list of integers. */
static void one_or_other_schema(const struct field *field, struct json *json)
{
    json_key(json, "anyOf");
    json_begin(json, '[');
    json_begin(json, '{');
    range_schema(field, json);
    json_end(json, '}');
    if (field->kind == FIELD_COUNT) {
        json_raw(json, "{\"type\":\"boolean\"}", 18);
        json_end(json, ']');
        return;
    }
    json_begin(json, '{');
    json_key(json, "type");
    json_str(json, "array");
    json_key(json, "items");
    json_begin(json, '{');
    range_schema(field, json);
    json_end(json, '}');
    json_end(json, '}');
    json_end(json, ']');
}

static void schema_of(const struct field *field, bool strict, int32_t n_vocab, struct json *json);

static void members_schema(const struct field *const *groups, bool strict, int32_t n_vocab,
                           struct json *json)
{
    json_key(json, "type");
    json_str(json, "object");
    json_key(json, "additionalProperties");
    json_bool(json, !strict);
    json_key(json, "properties");
    json_begin(json, '{');
    bool required = false;
    for (const struct field *const *group = groups; *group; group++)
        for (const struct field *field = *group; field->name; field++) {
            if (body_find(groups, field->name) != field) continue;
            json_key(json, field->name);
            schema_of(field, strict, n_vocab, json);
            required = required || field->required;
        }
    json_end(json, '}');
    if (!required) return;
    json_key(json, "required");
    json_begin(json, '[');
    for (const struct field *const *group = groups; *group; group++)
        for (const struct field *field = *group; field->name; field++)
            if (field->required) json_str(json, field->name);
    json_end(json, ']');
}

/* The value itself, within the braces of a schema. */
static void value_schema(const struct field *field, bool strict, int32_t n_vocab, struct json *json)
{
    const char *schema = schemas[field->kind];
    if (field->kind == FIELD_OBJECT) {
        members_schema(field->more, strict, n_vocab, json);
    } else if (field->kind == FIELD_NAME || field->kind == FIELD_ONLY) {
        json_key(json, "enum");
        if (field->kind == FIELD_ONLY) {
            json_raw(json, field->more, strlen(field->more));
            return;
        }
        json_begin(json, '[');
        for (const char *const *name = field->more; *name; name++) json_str(json, *name);
        json_end(json, ']');
    } else if (schema && *schema) {
        struct buf text;
        buf_init(&text, 1 << 14);
        put_schema(schema, n_vocab, &text);
        json_raw(json, text.data, text.n_bytes);
        buf_free(&text);
    } else if (field->kind == FIELD_INTS || field->kind == FIELD_COUNT) {
        one_or_other_schema(field, json);
    } else if (!schema) {
        range_schema(field, json);
    }
}

static void schema_of(const struct field *field, bool strict, int32_t n_vocab, struct json *json)
{
    json_begin(json, '{');
    json_key(json, "description");
    json_str(json, field->about ? field->about : "");
    json_key(json, "x-known-from");
    json_str(json, field->by ? field->by : "nepit");
    json_key(json, "x-since");
    json_str(json, NP_VERSION);
    if (field->fallback) {
        json_key(json, "default");
        json_raw(json, field->fallback, strlen(field->fallback));
    }
    if (field->required || field->kind == FIELD_IGNORED) {
        value_schema(field, strict, n_vocab, json);
    } else {
        json_key(json, "anyOf");
        json_begin(json, '[');
        json_begin(json, '{');
        value_schema(field, strict, n_vocab, json);
        json_end(json, '}');
        json_raw(json, "{\"type\":\"null\"}", 15);
        json_end(json, ']');
    }
    json_end(json, '}');
}

void body_schema(const struct field *const *groups, bool strict, int32_t n_vocab, struct json *json)
{
    json_begin(json, '{');
    members_schema(groups, strict, n_vocab, json);
    json_end(json, '}');
}
