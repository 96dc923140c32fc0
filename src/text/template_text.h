/*
 * template_text.h - texts of a template, whose bytes know where they came from; and writing
 * them.
 */
#ifndef TEXT_TEMPLATE_TEXT_H
#define TEXT_TEMPLATE_TEXT_H

#include "base/buf.h"
#include "text/template.h"

struct run;
struct value;

/* Where bytes came from. Content of message i of the last one: SOURCE_LAST. */
enum { SOURCE_TEMPLATE, SOURCE_DATA, SOURCE_LAST, SOURCE_TAG };
struct text_run {
    size_t n_bytes;
    uint32_t source;
};
/* Valid UTF-8; runs tile it, none is empty unless it is the only one. */
struct text {
    const char *bytes;
    size_t n_bytes;
    const struct text_run *runs;
    size_t n_runs;
    struct text_run only; /* what `runs` is where there is one */
};

/* Text that is being written. */
struct output {
    struct buf bytes;
    struct text_run *runs; /* [n_runs] */
    size_t n_runs, n_allocated;
};

/* template_text.c */
np_status text_new(struct run *run, const char *bytes, size_t n_bytes, uint32_t source,
                   struct value *out); /* borrows the bytes */
np_status text_slice(struct run *run, const struct text *text, size_t begin, size_t end,
                     struct value *out);
np_status text_join(struct run *run, const struct text *left, const struct text *right,
                    struct value *out);
size_t text_read(const struct text *text, size_t at, uint32_t *c); /* length of a character */
size_t text_length(const struct text *text);                       /* characters */
size_t text_place(const struct text *text, size_t n_chars);        /* byte of a character */
size_t text_strip_left(const struct text *text, const struct text *chars);
size_t text_strip_right(const struct text *text, const struct text *chars, size_t from);
bool text_is_space(uint32_t c);                                                /* Python's */
size_t text_find(const struct text *in, size_t from, const struct text *what); /* SIZE_MAX: not */
size_t text_find_last(const struct text *in, const struct text *what);
void output_init(struct output *out);
void output_free(struct output *out);
np_status output_push(struct run *run, struct output *out, const char *bytes, size_t n_bytes,
                      uint32_t source);
np_status output_slice(struct run *run, struct output *out, const struct text *text, size_t begin,
                       size_t end);
np_status output_text(struct run *run, struct output *out, const struct text *text);
/* The text, copied; ends the output. */
np_status output_take(struct run *run, struct output *out, struct value *value);
np_status output_value(struct run *run, struct output *out, struct value value); /* str(value) */
np_status output_repr(struct run *run, struct output *out, struct value value);
np_status text_of(struct run *run, struct value value, const struct text **out); /* str(value) */

/* template_case.c */
enum text_case { CASE_LOWER, CASE_UPPER, CASE_TITLE, CASE_CAPITALIZE, CASE_WORDS };
np_status text_case(struct run *run, const struct text *text, enum text_case wanted,
                    struct value *out);
bool text_is_cased(uint32_t c, bool upper);
bool text_is_letter(uint32_t c);

/* template_json.c */
struct json_style {
    bool ascii, sort_keys, has_indent;
    int indent;
    const struct text *indent_text, *item, *key; /* NULL: Python's own */
};
np_status output_json(struct run *run, struct output *out, struct value value,
                      const struct json_style *style);
/* Reads the caller's data. */
np_status template_data(struct run *run, const struct template_input *input, struct value *messages,
                        struct value *variables);

#endif
