/*
 * openapi_shape.c - shapes (openapi.h) to JSON Schema, by descent. Shapes are our own constants:
 * what cannot be read is left out, and the test of the documents finds it.
 */
#include "openapi.h"

#include <string.h>

struct reader {
    struct json *json;
    const char *at;
};

static void put_union(struct reader *reader);

static void skip_blanks(struct reader *reader)
{
    reader->at += strspn(reader->at, " ");
}

static bool skip(struct reader *reader, char c)
{
    skip_blanks(reader);
    if (*reader->at != c) return false;
    reader->at++;
    return true;
}

static size_t word_length(const char *at)
{
    return strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
}

static void put_type(struct json *json, const char *type)
{
    json_key(json, "type");
    json_str(json, type);
}

/* Member by member; which are needed is known at the end. */
static void put_object(struct reader *reader)
{
    struct json *json = reader->json;
    const char *needed[64];
    size_t lengths[64], n_needed = 0;
    put_type(json, "object");
    json_key(json, "properties");
    json_begin(json, '{');
    do {
        char name[64];
        skip_blanks(reader);
        size_t n = word_length(reader->at);
        const char *begin = reader->at;
        if (n == 0) break;
        snprintf(name, sizeof name, "%.*s", (int)n, begin);
        reader->at += n;
        if (!skip(reader, '?') && n_needed < 64) {
            needed[n_needed] = begin;
            lengths[n_needed++] = n;
        }
        (void)skip(reader, ':');
        json_key(json, name);
        json_begin(json, '{');
        put_union(reader);
        json_end(json, '}');
    } while (skip(reader, ','));
    (void)skip(reader, '}');
    json_end(json, '}');
    json_key(json, "required");
    json_begin(json, '[');
    for (size_t i = 0; i < n_needed; i++) json_text(json, needed[i], lengths[i]);
    json_end(json, ']');
}

static void put_word(struct reader *reader)
{
    static const struct {
        const char *word, *type;
    } types[] = {{"text", "string"},   {"flag", "boolean"},  {"number", "number"},
                 {"whole", "integer"}, {"count", "integer"}, {"null", "null"}};
    struct json *json = reader->json;
    char word[64], path[96];
    size_t n = word_length(reader->at);
    snprintf(word, sizeof word, "%.*s", (int)n, reader->at);
    reader->at += n;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(word, types[i].word) == 0) put_type(json, types[i].type);
    if (strcmp(word, "count") == 0) {
        json_key(json, "minimum");
        json_int(json, 0);
    }
    if (*word < 'A' || *word > 'Z') return;
    snprintf(path, sizeof path, "#/components/schemas/%s", word);
    json_key(json, "$ref");
    json_str(json, path);
}

static void put_one(struct reader *reader)
{
    struct json *json = reader->json;
    if (skip(reader, '{')) {
        put_object(reader);
    } else if (skip(reader, '[') || skip(reader, '<')) {
        bool list = reader->at[-1] == '[';
        put_type(json, list ? "array" : "object");
        json_key(json, list ? "items" : "additionalProperties");
        json_begin(json, '{');
        put_union(reader);
        json_end(json, '}');
        (void)skip(reader, list ? ']' : '>');
    } else if (skip(reader, '\'')) {
        size_t n = strcspn(reader->at, "'");
        json_key(json, "const");
        json_text(json, reader->at, n);
        reader->at += n;
        (void)skip(reader, '\'');
    } else {
        put_word(reader);
    }
}

/* Whether a | follows the shape that begins here, within the same brackets. */
static bool is_union(const char *at)
{
    int depth = 0;
    for (; *at; at++) {
        if (strchr("{[<", *at)) depth++;
        if (strchr("}]>", *at) && depth-- == 0) return false;
        if (depth == 0 && *at == '|') return true;
        if (depth == 0 && *at == ',') return false;
    }
    return false;
}

static void put_union(struct reader *reader)
{
    struct json *json = reader->json;
    if (!is_union(reader->at)) {
        put_one(reader);
        return;
    }
    json_key(json, "anyOf");
    json_begin(json, '[');
    do {
        json_begin(json, '{');
        put_one(reader);
        json_end(json, '}');
    } while (skip(reader, '|'));
    json_end(json, ']');
}

void put_shape(struct json *json, const char *shape)
{
    struct reader reader = {json, shape};
    json_begin(json, '{');
    put_union(&reader);
    json_end(json, '}');
}
