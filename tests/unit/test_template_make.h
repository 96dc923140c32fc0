/* test_template_make.h - rendering in one call, for test_template*.c. */
#ifndef TEST_TEMPLATE_MAKE_H
#define TEST_TEMPLATE_MAKE_H

#include "test_text_make.h"
#include "text/template.h"

enum { PROMPT = 1, CONTINUE = 2 };

/* Compiles and renders; bos_token is "<s>". */
static inline np_status render_with(const char *source, size_t n, const char *messages,
                                    const char *variables, int flags, struct template_output *out,
                                    np_error *err)
{
    const struct template_token tokens[] = {{"bos_token", "<s>", 3}, {"eos_token", "</s>", 4}};
    struct template *compiled;
    struct template_input input = {.messages = messages,
                                   .n_messages_bytes = strlen(messages),
                                   .variables = variables,
                                   .n_variables_bytes = variables ? strlen(variables) : 0,
                                   .tokens = tokens,
                                   .n_tokens = 2,
                                   .add_generation_prompt = flags & PROMPT,
                                   .continue_final_message = flags & CONTINUE,
                                   .now = 1722000000};
    *out = (struct template_output){0};
    np_status status = template_compile(source, n, &compiled, err);
    if (status) assert_null(compiled);
    if (status) return status;
    status = template_render(compiled, &input, out, err);
    template_free(compiled);
    if (status) assert_null(out->text);
    return status;
}

static inline struct template_output rendered(const char *source, const char *messages,
                                              const char *variables, int flags)
{
    struct template_output out;
    np_error err;
    char line[640];
    if (render_with(source, strlen(source), messages, variables, flags, &out, &err))
        fail_msg("%s: %s", source, np_error_line(&err, line, sizeof line));
    assert_int_equal(strlen(out.text), out.n_bytes);
    return out;
}

/* Compiling or rendering fails, with this status, and an error that holds these words. */
static inline void refused(const char *source, const char *messages, const char *variables,
                           int flags, np_status status, const char *says)
{
    struct template_output out;
    np_error err;
    char line[640];
    np_status got = render_with(source, strlen(source), messages, variables, flags, &out, &err);
    np_error_line(&err, line, sizeof line);
    if (got != status || !strstr(line, says))
        fail_msg("%.200s: status %d: %s\nnot %d: %s", source, got, got ? line : "", status, says);
    assert_int_equal(err.status, status);
    assert_null(strchr(line, '\n'));
}

#endif
