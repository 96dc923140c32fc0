/*
 * template_text.c - texts of a template: bytes with the places that they came from.
 *
 *   "<|im_start|>" + role + "\n" + content
 *   [ template     | data | template | content of the last message ]     runs tile the bytes
 *
 * Whatever is done to a text is done by copying slices, and each slice takes its runs along; so a
 * trimmed, replaced or joined text still knows, byte by byte, what is the caller's.
 */
#include "text/template_run.h"
#include "base/json.h"
#include "text/unicode.h"

#define STEP_BYTES 256

np_status text_new(struct run *run, const char *bytes, size_t n_bytes, uint32_t source,
                   struct value *out)
{
    struct text *text = run_push(run, 1, sizeof *text);
    if (!text) return run->status;
    *text = (struct text){bytes, n_bytes, &text->only, 1, {n_bytes, source}};
    *out = (struct value){.kind = VALUE_TEXT, .text = text};
    return NP_OK;
}

/* The first run that reaches beyond byte `begin`, and where it begins. */
static size_t run_at(const struct text *text, size_t begin, size_t *start)
{
    size_t i = 0;
    *start = 0;
    while (i + 1 < text->n_runs && *start + text->runs[i].n_bytes <= begin)
        *start += text->runs[i++].n_bytes;
    return i;
}

np_status text_slice(struct run *run, const struct text *text, size_t begin, size_t end,
                     struct value *out)
{
    size_t start, first = run_at(text, begin, &start), n = 0;
    TRY(text_new(run, text->bytes + begin, end - begin, text->runs[first].source, out));
    for (size_t i = first, at = start; i < text->n_runs && (at < end || !n); i++, n++)
        at += text->runs[i].n_bytes;
    if (n <= 1) return NP_OK;
    struct text_run *runs = run_push(run, n, sizeof *runs);
    struct text *slice = (struct text *)out->text;
    if (!runs) return run->status;
    for (size_t i = 0; i < n; i++) {
        size_t next = start + text->runs[first + i].n_bytes;
        size_t from = start > begin ? start : begin, to = next < end ? next : end;
        runs[i] = (struct text_run){to - from, text->runs[first + i].source};
        start = next;
    }
    slice->runs = runs;
    slice->n_runs = n;
    return run_step(run, n / 16);
}

np_status text_join(struct run *run, const struct text *left, const struct text *right,
                    struct value *out)
{
    struct output output;
    output_init(&output);
    np_status status = output_text(run, &output, left);
    if (!status) status = output_text(run, &output, right);
    if (!status) status = output_take(run, &output, out);
    output_free(&output);
    return status;
}

size_t text_read(const struct text *text, size_t at, uint32_t *c)
{
    size_t length = utf8_read(text->bytes + at, text->n_bytes - at, c);
    if (!length) *c = 0xFFFD;
    return length ? length : 1;
}

size_t text_length(const struct text *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->n_bytes; i++) n += ((unsigned char)text->bytes[i] & 0xC0) != 0x80;
    return n;
}

size_t text_place(const struct text *text, size_t n_chars)
{
    size_t at = 0;
    for (; at < text->n_bytes; at++)
        if (((unsigned char)text->bytes[at] & 0xC0) != 0x80 && !n_chars--) break;
    return at;
}

bool text_is_space(uint32_t c)
{
    return (c >= 0x1C && c <= 0x1F) || unicode_is_space(c);
}

/* Whether a character is to be stripped: white space, or one of `chars`. */
static bool is_stripped(uint32_t c, const struct text *chars)
{
    if (!chars) return text_is_space(c);
    uint32_t other;
    for (size_t at = 0; at < chars->n_bytes;) {
        size_t length = text_read(chars, at, &other);
        if (!length || other == c) return other == c;
        at += length;
    }
    return false;
}

size_t text_strip_left(const struct text *text, const struct text *chars)
{
    size_t at = 0, length;
    uint32_t c;
    while (at < text->n_bytes && (length = text_read(text, at, &c)) && is_stripped(c, chars))
        at += length;
    return at;
}

size_t text_strip_right(const struct text *text, const struct text *chars, size_t from)
{
    size_t at = text->n_bytes, length;
    uint32_t c;
    while (at > from && (length = utf8_last(text->bytes, at, &c)) && is_stripped(c, chars))
        at -= length;
    return at;
}

size_t text_find(const struct text *in, size_t from, const struct text *what)
{
    if (!what->n_bytes) return from <= in->n_bytes ? from : SIZE_MAX;
    for (size_t at = from; in->n_bytes - at >= what->n_bytes && at < in->n_bytes; at++) {
        const char *next = memchr(in->bytes + at, what->bytes[0], in->n_bytes - at);
        if (!next) break;
        at = (size_t)(next - in->bytes);
        if (in->n_bytes - at >= what->n_bytes && !memcmp(next, what->bytes, what->n_bytes))
            return at;
    }
    return SIZE_MAX;
}

size_t text_find_last(const struct text *in, const struct text *what)
{
    if (what->n_bytes > in->n_bytes) return SIZE_MAX;
    for (size_t at = in->n_bytes - what->n_bytes + 1; at-- > 0;)
        if (!memcmp(in->bytes + at, what->bytes, what->n_bytes)) return at;
    return SIZE_MAX;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

void output_init(struct output *out)
{
    *out = (struct output){0};
    buf_init(&out->bytes, TEMPLATE_MAX_TEXT_BYTES);
}

void output_free(struct output *out)
{
    buf_free(&out->bytes);
    mem_free(out->runs);
    out->runs = NULL;
    out->n_runs = out->n_allocated = 0;
}

np_status output_push(struct run *run, struct output *out, const char *bytes, size_t n_bytes,
                      uint32_t source)
{
    if (!n_bytes) return NP_OK;
    TRY(run_step(run, n_bytes / STEP_BYTES));
    if (n_bytes > TEMPLATE_MAX_TEXT_BYTES - out->bytes.n_bytes)
        return RUN_ERROR(run, NP_ELIMIT, "a text is longer than %zu bytes",
                         TEMPLATE_MAX_TEXT_BYTES);
    if (!buf_push(&out->bytes, bytes, n_bytes))
        return run->status = error_nomem(run->err, "a chat template", n_bytes);
    if (out->n_runs && out->runs[out->n_runs - 1].source == source) {
        out->runs[out->n_runs - 1].n_bytes += n_bytes;
        return NP_OK;
    }
    if (out->n_runs == out->n_allocated) {
        size_t n = out->n_allocated ? 2 * out->n_allocated : 8;
        struct text_run *grown = mem_resize(out->runs, n * sizeof *grown);
        if (!grown)
            return run->status = error_nomem(run->err, "a chat template", n * sizeof *grown);
        out->runs = grown;
        out->n_allocated = n;
    }
    out->runs[out->n_runs++] = (struct text_run){n_bytes, source};
    return NP_OK;
}

np_status output_slice(struct run *run, struct output *out, const struct text *text, size_t begin,
                       size_t end)
{
    size_t start, i = run_at(text, begin, &start);
    while (begin < end) {
        size_t to = start + text->runs[i].n_bytes;
        if (to > end) to = end;
        TRY(output_push(run, out, text->bytes + begin, to - begin, text->runs[i].source));
        start += text->runs[i++].n_bytes;
        begin = to;
    }
    return NP_OK;
}

np_status output_text(struct run *run, struct output *out, const struct text *text)
{
    return output_slice(run, out, text, 0, text->n_bytes);
}

np_status output_take(struct run *run, struct output *out, struct value *value)
{
    size_t n = out->bytes.n_bytes;
    char *bytes = run_push(run, n + 1, 1);
    if (!bytes) return run->status;
    if (n) memcpy(bytes, out->bytes.data, n);
    TRY(text_new(run, bytes, n, out->n_runs ? out->runs[0].source : SOURCE_TEMPLATE, value));
    if (out->n_runs > 1) {
        struct text *text = (struct text *)value->text;
        struct text_run *runs = run_push(run, out->n_runs, sizeof *runs);
        if (!runs) return run->status;
        memcpy(runs, out->runs, out->n_runs * sizeof *runs);
        text->runs = runs;
        text->n_runs = out->n_runs;
    }
    output_free(out);
    return NP_OK;
}

/* ---- values as texts --------------------------------------------------------------------------
 */

static bool is_printable(uint32_t c)
{
    static const uint8_t not [] = {UC_CC, UC_CF, UC_CN, UC_CO,       UC_CS,
                                   UC_ZL, UC_ZP, UC_ZS, UC_NEXT_LINE};
    uint8_t kind = unicode_info(c) & UNICODE_CLASS_MASK;
    for (size_t i = 0; i < sizeof not ; i++)
        if (kind == not [i]) return c == ' ';
    return true;
}

/* The escape that repr() writes for a character; 0: itself. */
static size_t repr_escape(uint32_t c, char quote, char out[16])
{
    static const char plain[] = "\nn\rr\tt\\\\";
    for (const char *row = plain; *row; row += 2)
        if ((uint32_t)(unsigned char)row[0] == c) return (size_t)snprintf(out, 16, "\\%c", row[1]);
    if (c == (uint32_t)(unsigned char)quote) return (size_t)snprintf(out, 16, "\\%c", quote);
    if (is_printable(c)) return 0;
    return (size_t)snprintf(out, 16,
                            c < 0x100     ? "\\x%02x"
                            : c < 0x10000 ? "\\u%04x"
                                          : "\\U%08x",
                            (unsigned)c);
}

static np_status repr_text(struct run *run, struct output *out, const struct text *text)
{
    bool single = memchr(text->bytes, '\'', text->n_bytes) != NULL;
    char quote = single && !memchr(text->bytes, '"', text->n_bytes) ? '"' : '\'';
    char escape[16];
    uint32_t c;
    TRY(output_push(run, out, &quote, 1, SOURCE_DATA));
    for (size_t at = 0, length, n; at < text->n_bytes; at += length) {
        length = text_read(text, at, &c);
        n = repr_escape(c, quote, escape);
        if (n)
            TRY(output_push(run, out, escape, n, SOURCE_DATA));
        else
            TRY(output_slice(run, out, text, at, at + length));
    }
    return output_push(run, out, &quote, 1, SOURCE_DATA);
}

static np_status put(struct run *run, struct output *out, const char *text)
{
    return output_push(run, out, text, strlen(text), SOURCE_DATA);
}

static np_status repr_list(struct run *run, struct output *out, struct value value)
{
    bool tuple = value.kind == VALUE_TUPLE;
    TRY(put(run, out, tuple ? "(" : "["));
    for (size_t i = 0; i < value.list->n; i++) {
        if (i) TRY(put(run, out, ", "));
        TRY(output_repr(run, out, value.list->items[i]));
    }
    if (tuple && value.list->n == 1) TRY(put(run, out, ","));
    return put(run, out, tuple ? ")" : "]");
}

static np_status repr_dict(struct run *run, struct output *out, const struct dict *dict)
{
    TRY(put(run, out, "{"));
    for (size_t i = 0; i < dict->n; i++) {
        if (i) TRY(put(run, out, ", "));
        TRY(output_repr(run, out, dict->pairs[i].key));
        TRY(put(run, out, ": "));
        TRY(output_repr(run, out, dict->pairs[i].value));
    }
    return put(run, out, "}");
}

np_status output_repr(struct run *run, struct output *out, struct value value)
{
    TRY(run_enter(run));
    np_status status;
    if (value.kind == VALUE_TEXT)
        status = repr_text(run, out, value.text);
    else if (value.kind == VALUE_UNDEFINED)
        status = put(run, out, "Undefined");
    else
        status = output_value(run, out, value);
    run_leave(run);
    return status;
}

np_status output_value(struct run *run, struct output *out, struct value value)
{
    char number[32];
    switch (value.kind) {
    case VALUE_UNDEFINED: return NP_OK;
    case VALUE_TEXT: return output_text(run, out, value.text);
    case VALUE_NONE: return put(run, out, "None");
    case VALUE_BOOL: return put(run, out, value.integer ? "True" : "False");
    case VALUE_INT:
        snprintf(number, sizeof number, "%lld", (long long)value.integer);
        return put(run, out, number);
    case VALUE_FLOAT: format_double(value.number, number); return put(run, out, number);
    case VALUE_LIST:
    case VALUE_TUPLE: return repr_list(run, out, value);
    case VALUE_DICT: return repr_dict(run, out, value.dict);
    default:
        return RUN_ERROR(run, NP_EUNSUPPORTED, "%s as text is not supported", value_type(value));
    }
}

np_status text_of(struct run *run, struct value value, const struct text **out)
{
    struct output output;
    if (value.kind == VALUE_TEXT) return *out = value.text, NP_OK;
    output_init(&output);
    np_status status = output_value(run, &output, value);
    if (!status) status = output_take(run, &output, &value);
    output_free(&output);
    *out = status ? NULL : value.text;
    return status;
}
