/*
 * template.h - chat templates: messages -> the text that a model was trained on.
 *
 * The part of Jinja that chat templates use, rendered as transformers' apply_chat_template renders
 * it (blocks trimmed and stripped, a tojson that keeps what is not ASCII, None-valued keys of
 * messages dropped, reasoning fields under all of their names). What is not supported is refused by
 * name and line when the template is compiled: a wrong prompt is worse than none.
 *
 * Every byte of the text knows where it came from: out of the template and the tokenizer's own
 * tokens, or out of the caller's data. Special tokens are looked for only in the former, so a
 * message that contains "<|im_end|>" does not end (tokenizer_encode_parts). A role is data too,
 * unless it is one of the usual names.
 *
 * A template is never changed once compiled; any number of threads may render it.
 */
#ifndef TEXT_TEMPLATE_H
#define TEXT_TEMPLATE_H

#include "base/error.h"
#include <stdbool.h>

/* Limits, each an NP_ELIMIT of its own. */
#define TEMPLATE_MAX_SOURCE_BYTES ((size_t)512 << 10)
#define TEMPLATE_MAX_NESTING 100                      /* of brackets and blocks in the source */
#define TEMPLATE_MAX_DEPTH 300                        /* of whatever is at work at a time */
#define TEMPLATE_MAX_STEPS ((uint64_t)10000000)       /* nodes, and 256 bytes of text each */
#define TEMPLATE_MAX_TEXT_BYTES ((size_t)64 << 20)    /* of one string, and of the answer */
#define TEMPLATE_MAX_MEMORY_BYTES ((size_t)512 << 20) /* of one rendering */
#define TEMPLATE_MAX_RANGE ((int64_t)100000)          /* numbers that range() gives */

struct template;

/* Errors: NP_EUNSUPPORTED (a construct, by name and line), NP_EINPUT (no valid template),
 * NP_ELIMIT, NP_ENOMEM. */
np_status template_compile(const char *source, size_t n_bytes, struct template **out,
                           np_error *err);
void template_free(struct template *compiled);

/* A variable whose text is trusted: "bos_token". A text that is NULL is left out. */
struct template_token {
    const char *name, *text;
    size_t n_bytes;
};

struct template_input {
    const char *messages; /* JSON: an array of objects */
    size_t n_messages_bytes;
    const char *variables; /* JSON: an object of further variables (tools, documents, ...); NULL */
    size_t n_variables_bytes;
    const struct template_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    bool add_generation_prompt;
    bool continue_final_message; /* the text ends with the content of the last message */
    int64_t now;                 /* for strftime_now, seconds since 1970; 0: the clock */
};

struct template_output {
    char *text; /* one zero byte behind; freed by template_output_free */
    size_t n_bytes;
    unsigned char *is_data; /* [n_bytes] 1: out of the caller's data */
    /* Where the content of the last message stands, from its first byte to its last; 0, 0: it does
     * not. */
    size_t content_begin, content_end;
};

/* Errors: NP_EINPUT (messages or variables, or what raise_exception said, or an operation that its
 * values do not allow; with the line), NP_EUNSUPPORTED, NP_ELIMIT, NP_ENOMEM. */
np_status template_render(const struct template *compiled, const struct template_input *input,
                          struct template_output *out, np_error *err);
/* Whether variables (JSON) hold one of that name that is not null; false where they are no JSON. */
bool template_data_has(const char *variables, size_t n_bytes, const char *name);
void template_output_free(struct template_output *out);

#endif
