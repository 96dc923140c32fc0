/*
 * fuzz_template.c - a template, messages and variables in one input, parted by zero bytes. What
 * compiles is rendered in each of its ways: the content lies in the text, errors are one line.
 */
#include "mutate.h"
#include "base/arena.h"
#include "text/template.h"

#include <assert.h>

static void render(const struct template *compiled, const struct template_input *input)
{
    struct template_output out;
    np_error err = {0};
    char line[640];
    if (template_render(compiled, input, &out, &err)) {
        assert(!out.text && err.status && !strchr(np_error_line(&err, line, sizeof line), '\n'));
        return;
    }
    assert(out.content_begin <= out.content_end && out.content_end <= out.n_bytes);
    assert(out.text[out.n_bytes] == 0);
    for (size_t i = 0; i < out.n_bytes; i++) assert(out.is_data[i] <= 1);
    if (out.content_begin < out.content_end) assert(out.is_data[out.content_begin]);
    template_output_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    const char *parts[3] = {(const char *)bytes, "[{\"role\":\"user\",\"content\":\"x\"}]", NULL};
    size_t lengths[3] = {n_bytes, strlen(parts[1]), 0};
    for (size_t i = 0, at = 0; i < 3 && at <= n_bytes; i++) {
        const uint8_t *end = at < n_bytes ? memchr(bytes + at, 0, n_bytes - at) : NULL;
        parts[i] = (const char *)bytes + at;
        lengths[i] = (end ? (size_t)(end - bytes) : n_bytes) - at;
        at += lengths[i] + 1;
    }
    struct template *compiled;
    np_error err = {0};
    char line[640];
    if (template_compile(parts[0], lengths[0], &compiled, &err)) {
        assert(!compiled && !strchr(np_error_line(&err, line, sizeof line), '\n'));
        return 0;
    }
    static const struct template_token tokens[] = {{"bos_token", "<s>", 3}, {"eos_token", "", 0}};
    for (int flags = 0; flags < 3; flags++)
        render(compiled, &(struct template_input){.messages = parts[1],
                                                  .n_messages_bytes = lengths[1],
                                                  .variables = parts[2],
                                                  .n_variables_bytes = lengths[2],
                                                  .tokens = tokens,
                                                  .n_tokens = 2,
                                                  .add_generation_prompt = flags & 1,
                                                  .continue_final_message = flags & 2,
                                                  .now = 1});
    template_free(compiled);
    return 0;
}
