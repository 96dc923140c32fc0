/*
 * template_json.c - JSON: what a template writes (tojson), and the caller's data that it reads.
 *
 * Writing is json.dumps of Python with ensure_ascii=False: ", " and ": " between, floats as repr.
 *
 * Reading does what transformers does to messages before a template sees them: keys whose value is
 * null are dropped, and a message's reasoning is found under each of its three names. And it notes
 * where bytes come from: the content of the last message has a source of its own, a role that is
 * one of the usual names counts as the template's (Phi writes '<|' + role + '|>').
 */
#include "text/template_run.h"
#include "base/json.h"
#include "format/jsonread.h"
#include "text/unicode.h"

/* ---- writing ----------------------------------------------------------------------------------
 */

static np_status put(struct run *run, struct output *out, const char *text)
{
    return output_push(run, out, text, strlen(text), SOURCE_DATA);
}

/* The escape of a character; 0: itself. */
static size_t json_escape(uint32_t c, bool ascii, char out[16])
{
    static const char plain[] = "\"\"\\\\\nn\rr\tt\ff\bb";
    for (const char *row = plain; *row; row += 2)
        if ((uint32_t)(unsigned char)row[0] == c) return (size_t)snprintf(out, 16, "\\%c", row[1]);
    if (c >= 0x20 && (c < 0x7F || !ascii)) return 0;
    if (c == 0x7F) return 0;
    if (c < 0x10000) return (size_t)snprintf(out, 16, "\\u%04x", (unsigned)c);
    c -= 0x10000;
    return (size_t)snprintf(out, 16, "\\u%04x\\u%04x", (unsigned)(0xD800 + (c >> 10)),
                            (unsigned)(0xDC00 + (c & 0x3FF)));
}

static np_status quoted(struct run *run, struct output *out, const struct text *text, bool ascii)
{
    char escape[16];
    uint32_t c;
    TRY(put(run, out, "\""));
    for (size_t at = 0, length; at < text->n_bytes; at += length) {
        length = text_read(text, at, &c);
        size_t n = json_escape(c, ascii, escape);
        if (n)
            TRY(output_push(run, out, escape, n, SOURCE_DATA));
        else
            TRY(output_slice(run, out, text, at, at + length));
    }
    return put(run, out, "\"");
}

static np_status json_number(struct run *run, struct output *out, struct value value)
{
    char number[32];
    if (value.kind == VALUE_INT) {
        snprintf(number, sizeof number, "%lld", (long long)value.integer);
        return put(run, out, number);
    }
    format_double(value.number, number);
    const char *names[][2] = {{"nan", "NaN"}, {"inf", "Infinity"}, {"-inf", "-Infinity"}};
    for (size_t i = 0; i < 3; i++)
        if (!strcmp(number, names[i][0])) return put(run, out, names[i][1]);
    return put(run, out, number);
}

/* A line end and its indent, where the style has them. */
static np_status json_line(struct run *run, struct output *out, const struct json_style *style,
                           int depth)
{
    if (!style->has_indent) return NP_OK;
    TRY(put(run, out, "\n"));
    for (int i = 0; i < depth; i++) {
        if (style->indent_text) TRY(output_text(run, out, style->indent_text));
        for (int k = 0; k < style->indent; k++) TRY(put(run, out, " "));
    }
    return NP_OK;
}

static np_status json_value(struct run *run, struct output *out, struct value value,
                            const struct json_style *style, int depth);

static np_status json_between(struct run *run, struct output *out, const struct json_style *style,
                              bool first, int depth)
{
    if (!first)
        TRY(style->item ? output_text(run, out, style->item)
                        : put(run, out, style->has_indent ? "," : ", "));
    return json_line(run, out, style, depth);
}

static np_status json_list(struct run *run, struct output *out, const struct list *list,
                           const struct json_style *style, int depth)
{
    TRY(put(run, out, "["));
    for (size_t i = 0; i < list->n; i++) {
        TRY(json_between(run, out, style, i == 0, depth + 1));
        TRY(json_value(run, out, list->items[i], style, depth + 1));
    }
    if (list->n) TRY(json_line(run, out, style, depth));
    return put(run, out, "]");
}

static np_status json_key_of(struct run *run, struct output *out, struct value key, bool ascii)
{
    if (key.kind == VALUE_TEXT) return quoted(run, out, key.text, ascii);
    TRY(put(run, out, "\""));
    if (key.kind == VALUE_NONE)
        TRY(put(run, out, "null"));
    else if (key.kind == VALUE_BOOL)
        TRY(put(run, out, key.integer ? "true" : "false"));
    else if (key.kind == VALUE_INT || key.kind == VALUE_FLOAT)
        TRY(json_number(run, out, key));
    else
        return RUN_ERROR(run, NP_EINPUT, "%s cannot be a key in JSON", value_type(key));
    return put(run, out, "\"");
}

/* Sorted by insertion: only texts, by code points. */
static np_status sorted_pairs(struct run *run, const struct dict *dict, struct pair **out)
{
    struct pair *pairs = run_push(run, dict->n, sizeof *pairs);
    *out = pairs;
    if (!pairs) return run->status;
    for (size_t i = 0; i < dict->n; i++) {
        size_t at = i;
        for (int order = 1; at > 0; at--) {
            TRY(value_order(run, pairs[at - 1].key, dict->pairs[i].key, "sort_keys", &order));
            if (order <= 0) break;
            pairs[at] = pairs[at - 1];
        }
        pairs[at] = dict->pairs[i];
    }
    return NP_OK;
}

static np_status json_dict(struct run *run, struct output *out, const struct dict *dict,
                           const struct json_style *style, int depth)
{
    struct pair *pairs = dict->pairs;
    if (style->sort_keys) TRY(sorted_pairs(run, dict, &pairs));
    TRY(put(run, out, "{"));
    for (size_t i = 0; i < dict->n; i++) {
        TRY(json_between(run, out, style, i == 0, depth + 1));
        TRY(json_key_of(run, out, pairs[i].key, style->ascii));
        TRY(style->key ? output_text(run, out, style->key) : put(run, out, ": "));
        TRY(json_value(run, out, pairs[i].value, style, depth + 1));
    }
    if (dict->n) TRY(json_line(run, out, style, depth));
    return put(run, out, "}");
}

static np_status json_value(struct run *run, struct output *out, struct value value,
                            const struct json_style *style, int depth)
{
    np_status status;
    TRY(run_enter(run));
    switch (value.kind) {
    case VALUE_NONE: status = put(run, out, "null"); break;
    case VALUE_BOOL: status = put(run, out, value.integer ? "true" : "false"); break;
    case VALUE_INT:
    case VALUE_FLOAT: status = json_number(run, out, value); break;
    case VALUE_TEXT: status = quoted(run, out, value.text, style->ascii); break;
    case VALUE_LIST:
    case VALUE_TUPLE: status = json_list(run, out, value.list, style, depth); break;
    case VALUE_DICT: status = json_dict(run, out, value.dict, style, depth); break;
    default: status = RUN_ERROR(run, NP_EINPUT, "%s cannot be written as JSON", value_type(value));
    }
    run_leave(run);
    return status;
}

np_status output_json(struct run *run, struct output *out, struct value value,
                      const struct json_style *style)
{
    return json_value(run, out, value, style, 0);
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static np_status read_value(struct run *run, const json_t *json, uint32_t source,
                            struct value *out);

static np_status read_text(struct run *run, const char *bytes, size_t n, uint32_t source,
                           struct value *out)
{
    char *copy = run_push(run, n + 1, 1);
    if (!copy) return run->status;
    memcpy(copy, bytes, n);
    return text_new(run, copy, n, source, out);
}

static np_status read_array(struct run *run, const json_t *json, uint32_t source, struct value *out)
{
    struct value *items;
    size_t n = json_array_size(json);
    TRY(value_list(run, n, VALUE_LIST, out, &items));
    for (size_t i = 0; i < n; i++) TRY(read_value(run, json_array_get(json, i), source, &items[i]));
    return NP_OK;
}

/* Appends a pair whose key is not there yet. */
static np_status append_pair(struct run *run, struct dict *dict, const char *key,
                             struct value value)
{
    struct pair *pair = &dict->pairs[dict->n++];
    pair->value = value;
    return read_text(run, key, strlen(key), SOURCE_DATA, &pair->key);
}

static np_status new_dict(struct run *run, size_t n, struct value *out)
{
    struct dict *dict = run_push(run, 1, sizeof *dict);
    if (!dict) return run->status;
    dict->n_allocated = n ? n : 1;
    dict->pairs = run_push(run, dict->n_allocated, sizeof *dict->pairs);
    if (!dict->pairs) return run->status;
    *out = (struct value){.kind = VALUE_DICT, .dict = dict};
    return NP_OK;
}

static np_status read_object(struct run *run, const json_t *json, uint32_t source,
                             struct value *out)
{
    const char *key;
    json_t *member;
    TRY(new_dict(run, json_object_size(json), out));
    json_object_foreach((json_t *)json, key, member)
    {
        struct value value;
        TRY(read_value(run, member, source, &value));
        TRY(append_pair(run, out->dict, key, value));
    }
    return NP_OK;
}

static np_status read_value(struct run *run, const json_t *json, uint32_t source, struct value *out)
{
    TRY(run_step(run, 1));
    switch (json_typeof(json)) {
    case JSON_OBJECT: return read_object(run, json, source, out);
    case JSON_ARRAY: return read_array(run, json, source, out);
    case JSON_STRING:
        return read_text(run, json_string_value(json), json_string_length(json), source, out);
    case JSON_INTEGER: *out = value_int(json_integer_value(json)); break;
    case JSON_REAL: *out = value_float(json_real_value(json)); break;
    case JSON_NULL: *out = value_none(); break;
    default: *out = value_bool(json_is_true(json)); break;
    }
    return NP_OK;
}

static uint32_t source_of(const char *key, const json_t *value, bool last)
{
    static const char *const roles[] = {"system", "user",      "assistant", "tool",
                                        "model",  "developer", "function",  "ipython"};
    if (last && !strcmp(key, "content")) return SOURCE_LAST;
    if (strcmp(key, "role") || !json_is_string(value)) return SOURCE_DATA;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(json_string_value(value), roles[i])) return SOURCE_TEMPLATE;
    return SOURCE_DATA;
}

static np_status read_message(struct run *run, const json_t *json, bool last, struct value *out)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const json_t *reasoning = NULL;
    const char *key;
    json_t *member;
    for (size_t i = 0; i < 3 && (!reasoning || json_is_null(reasoning)); i++)
        reasoning = json_object_get(json, names[i]);
    bool reasons = reasoning && !json_is_null(reasoning);
    TRY(new_dict(run, json_object_size(json) + 2, out));
    struct value thought = value_none(), value;
    if (reasons) {
        TRY(read_value(run, reasoning, SOURCE_DATA, &thought));
        TRY(append_pair(run, out->dict, "thinking", thought));
    }
    json_object_foreach((json_t *)json, key, member)
    {
        if (json_is_null(member)) continue;
        TRY(read_value(run, member, source_of(key, member, last), &value));
        struct value *old = reasons ? dict_find(out->dict, key, strlen(key)) : NULL;
        if (old)
            *old = value;
        else
            TRY(append_pair(run, out->dict, key, value));
    }
    struct value *old = dict_find(out->dict, names[0], strlen(names[0]));
    if (reasons && old) *old = thought;
    return reasons && !old ? append_pair(run, out->dict, names[0], thought) : NP_OK;
}

/* Parses a text of the caller's; `name` is its field. */
static np_status parse(struct run *run, const char *name, const char *bytes, size_t n_bytes,
                       json_t **out)
{
    run->status = jsonread(bytes, n_bytes, name, 0, out, run->err);
    if (run->status == NP_EFORMAT) {
        run->status = NP_EINPUT;
        if (run->err) run->err->status = NP_EINPUT;
    }
    return run->status;
}

static np_status read_messages(struct run *run, const json_t *json, struct value *out)
{
    struct value *items;
    size_t n = json_array_size(json);
    if (!n)
        return run->status = error_set(run->err, NP_EINPUT, "messages", NO_OFFSET,
                                       "an array of at least one message is expected");
    TRY(value_list(run, n, VALUE_LIST, out, &items));
    for (size_t i = 0; i < n; i++) {
        char where[48];
        const json_t *message = json_array_get(json, i);
        snprintf(where, sizeof where, "messages[%zu]", i);
        if (!json_is_object(message))
            return run->status = error_set(run->err, NP_EINPUT, where, NO_OFFSET,
                                           "a message must be an object");
        TRY(read_message(run, message, i + 1 == n, &items[i]));
    }
    return NP_OK;
}

np_status template_data(struct run *run, const struct template_input *input, struct value *messages,
                        struct value *variables)
{
    json_t *json;
    TRY(parse(run, "messages", input->messages, input->n_messages_bytes, &json));
    np_status status = read_messages(run, json, messages);
    json_decref(json);
    TRY(status);
    if (!input->variables) return new_dict(run, 0, variables);
    TRY(parse(run, "variables", input->variables, input->n_variables_bytes, &json));
    status = json_is_object(json) ? read_object(run, json, SOURCE_DATA, variables)
                                  : (run->status = error_set(run->err, NP_EINPUT, "variables",
                                                             NO_OFFSET, "an object is expected"));
    json_decref(json);
    return status;
}

bool template_data_has(const char *variables, size_t n_bytes, const char *name)
{
    json_t *json = NULL;
    if (!n_bytes || jsonread(variables, n_bytes, "variables", 0, &json, NULL)) return false;
    const json_t *value = json_object_get(json, name);
    bool has = value && !json_is_null(value);
    json_decref(json);
    return has;
}
