/*
 * json.h - a small JSON writer. Reading is jansson's; writing is ours because a float32 must be
 * printed as the shortest decimal that reads back to the same float32, and equal values with equal
 * digits, in any locale.
 *
 *     json_begin(w, '{');
 *     json_key(w, "ids");
 *     json_begin(w, '[');
 *     json_int(w, 7);
 *     json_end(w, ']');
 *     json_end(w, '}');
 *
 * Commas are the writer's; failures wait in the buffer (buf.h). Numbers: -inf is written -9999.0
 * (the wire's convention); NaN and +inf, which no answer holds, are written null. Text is taken as
 * bytes: invalid UTF-8 becomes U+FFFD (one for the longest start of a character), control
 * characters are escaped.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/buf.h"

struct json {
    struct buf *out;
    int depth;
    bool need_comma, after_key;
};

void json_init(struct json *json, struct buf *out);
void json_begin(struct json *json, char bracket); /* '{' or '[' */
void json_end(struct json *json, char bracket);   /* '}' or ']' */
void json_key(struct json *json, const char *key);
void json_text(struct json *json, const char *bytes, size_t n_bytes);
void json_str(struct json *json, const char *text); /* zero-terminated; NULL is null */
void json_int(struct json *json, int64_t value);
void json_float(struct json *json, float value);   /* shortest float32 */
void json_double(struct json *json, double value); /* shortest float64 */
void json_bool(struct json *json, bool value);
void json_nil(struct json *json);
/* JSON as it is: one value, or members of the object that is open. */
void json_raw(struct json *json, const char *text, size_t n_bytes);

/* The shortest decimal that reads back to `value`, and of those the closest, written as Python
 * does: "-0.25", "3.0", "1e-07" (exponents below 1e-4 and from 1e16 up), "nan", "inf", "-inf". out
 * holds 32 bytes, zero-terminated; returns the length. No locale, no rounding mode changes it. */
int format_float(float value, char out[32]);
int format_double(double value, char out[32]);

#endif
