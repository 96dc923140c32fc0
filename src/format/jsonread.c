/*
 * jsonread.c - see jsonread.h.
 *
 * The surprising decision: the text is scanned once before it is parsed. jansson stops at a
 * nesting of 2048, but "{},{},{}..." costs it 128 bytes of memory for each byte of text, so the
 * values are counted first, a bracket as four.
 */
#include "format/jsonread.h"

#include <string.h>

static np_status scan(const char *bytes, size_t n_bytes, const char *where, int64_t offset,
                      np_error *err)
{
    size_t depth = 0, n_values = 1;
    bool in_text = false;
    for (size_t i = 0; i < n_bytes; i++) {
        char c = bytes[i];
        if (in_text) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_text = false;
            continue;
        }
        if (c == '"')
            in_text = true;
        else if (c == '{' || c == '[')
            depth++, n_values += 4;
        else if ((c == '}' || c == ']') && depth)
            depth--;
        else if (c == ',')
            n_values++;
        if (depth > JSONREAD_MAX_DEPTH)
            return error_set(err, NP_ELIMIT, where, offset + (int64_t)i,
                             "JSON is nested more than %d levels deep", JSONREAD_MAX_DEPTH);
        if (n_values > JSONREAD_MAX_VALUES)
            return error_set(err, NP_ELIMIT, where, offset + (int64_t)i,
                             "JSON holds more than %zu values", JSONREAD_MAX_VALUES);
    }
    return NP_OK;
}

np_status jsonread(const char *bytes, size_t n_bytes, const char *where, int64_t offset,
                   json_t **out, np_error *err)
{
    json_error_t error;
    *out = NULL;
    TRY(scan(bytes, n_bytes, where, offset, err));
    json_t *root = json_loadb(bytes, n_bytes, JSON_REJECT_DUPLICATES, &error);
    bool no_memory = !root && (!error.text[0] || /* it does not always say so */
                               json_error_code(&error) == json_error_out_of_memory);
    if (no_memory) return error_nomem(err, where, n_bytes);
    for (char *c = error.text; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' '; /* it cites the text */
    if (!root)
        return error_set(err, NP_EFORMAT, where, offset + error.position, "no valid JSON: %s",
                         error.text);
    *out = root;
    return NP_OK;
}
