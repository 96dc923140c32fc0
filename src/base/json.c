/*
 * json.c - see json.h. The writer keeps no stack: one bit says whether the next value needs a
 * comma, and failures wait in the buffer's own mark.
 */
#include "base/json.h"

#include "base/utf8.h"

#include <math.h>

void json_init(struct json *json, struct buf *out)
{
    *json = (struct json){.out = out};
}

static void json_before_value(struct json *json)
{
    if (json->need_comma && !json->after_key) buf_push(json->out, ",", 1);
    json->need_comma = true;
    json->after_key = false;
}

void json_begin(struct json *json, char bracket)
{
    json_before_value(json);
    buf_push(json->out, &bracket, 1);
    json->need_comma = false;
    json->depth++;
}

void json_end(struct json *json, char bracket)
{
    buf_push(json->out, &bracket, 1);
    json->need_comma = true;
    json->depth--;
}

static void json_escape(struct buf *out, unsigned char byte)
{
    static const char names[32] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    char name = byte < 32 ? names[byte] : (char)byte;
    if (name)
        buf_push(out, (char[2]){'\\', name}, 2);
    else
        buf_printf(out, "\\u%04x", (unsigned)byte);
}

static void json_quoted(struct buf *out, const char *bytes, size_t n_bytes)
{
    const unsigned char *at = (const unsigned char *)bytes, *end = at + n_bytes, *plain = at;
    buf_push(out, "\"", 1);
    while (at < end) {
        int length = utf8_length(at, (size_t)(end - at));
        if (length > 0 && *at >= 32 && *at != '"' && *at != '\\') {
            at += length;
            continue;
        }
        buf_push(out, plain, (size_t)(at - plain));
        if (length < 0)
            buf_puts(out, "\xEF\xBF\xBD");
        else
            json_escape(out, *at);
        at += length < 0 ? -length : 1;
        plain = at;
    }
    buf_push(out, plain, (size_t)(at - plain));
    buf_push(out, "\"", 1);
}

void json_key(struct json *json, const char *key)
{
    json_before_value(json);
    json_quoted(json->out, key, strlen(key));
    buf_push(json->out, ":", 1);
    json->after_key = true;
}

void json_text(struct json *json, const char *bytes, size_t n_bytes)
{
    json_before_value(json);
    json_quoted(json->out, bytes, n_bytes);
}

static void json_word(struct json *json, const char *word)
{
    json_before_value(json);
    buf_puts(json->out, word);
}

void json_str(struct json *json, const char *text)
{
    if (text)
        json_text(json, text, strlen(text));
    else
        json_nil(json);
}

void json_int(struct json *json, int64_t value)
{
    char text[24], *at = text + sizeof text;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0) *--at = '-';
    json_before_value(json);
    buf_push(json->out, at, (size_t)(text + sizeof text - at));
}

void json_raw(struct json *json, const char *text, size_t n_bytes)
{
    json_before_value(json);
    buf_push(json->out, text, n_bytes);
}

/* JSON has no infinities and no NaN. */
static const char *json_special(double value)
{
    return isinf(value) && value < 0 ? "-9999.0" : "null";
}

void json_float(struct json *json, float value)
{
    char text[32];
    if (isfinite(value)) format_float(value, text);
    json_word(json, isfinite(value) ? text : json_special((double)value));
}

void json_double(struct json *json, double value)
{
    char text[32];
    if (isfinite(value)) format_double(value, text);
    json_word(json, isfinite(value) ? text : json_special(value));
}

void json_bool(struct json *json, bool value)
{
    json_word(json, value ? "true" : "false");
}

void json_nil(struct json *json)
{
    json_word(json, "null");
}
