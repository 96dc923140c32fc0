/*
 * chatdump.c - chat templates as a filter, for test_templates.py.
 *
 *     chatdump [MODEL]
 *
 * stdin: records of a template, messages, variables (each u32 length and that many bytes; no
 * variables: none) and u32 flags: 1 add_generation_prompt, 2 continue_final_message, 4 special
 * tokens in contents too. stdout, for each: u32 0, u32 length of the text, the text, u32 begin and
 * u32 end of the last message's content, u32 n, i32 ids[n] (n is 0 without a model); or u32 status,
 * u32 length and an error line. An empty template is the model's own. Without a model bos_token is
 * "<s>" and eos_token "</s>".
 */
#include "base/arena.h"
#include "text/template.h"
#include "text/tokenizer.h"

static void put(size_t value)
{
    uint32_t number = (uint32_t)value;
    fwrite(&number, 4, 1, stdout);
}

static void put_bytes(const char *bytes, size_t n)
{
    put(n);
    fwrite(bytes, 1, n, stdout);
}

struct field {
    char *bytes;
    uint32_t n;
};

static bool get(struct field *field)
{
    if (fread(&field->n, 4, 1, stdin) != 1) return false;
    field->bytes = mem_alloc((size_t)field->n + 1, 1);
    return field->bytes && fread(field->bytes, 1, field->n, stdin) == field->n;
}

static size_t names(const struct tokenizer *tokenizer, struct template_token *out)
{
    out[0] = (struct template_token){"bos_token", "<s>", 3};
    out[1] = (struct template_token){"eos_token", "</s>", 4};
    for (int i = 0; tokenizer && i < TOKENIZER_CLASS; i++) {
        const char *text = tokenizer_named(tokenizer, (enum tokenizer_name)i);
        out[i] = (struct template_token){tokenizer_names[i], text, text ? strlen(text) : 0};
    }
    return tokenizer ? TOKENIZER_CLASS : 2;
}

static np_status render(const struct tokenizer *tokenizer, struct field fields[3], uint32_t flags,
                        struct template_output *text, struct encoding *ids, np_error *err)
{
    struct template *compiled;
    struct template_token tokens[TOKENIZER_NAMES];
    struct template_input input = {.messages = fields[1].bytes,
                                   .n_messages_bytes = fields[1].n,
                                   .variables = fields[2].n ? fields[2].bytes : NULL,
                                   .n_variables_bytes = fields[2].n,
                                   .tokens = tokens,
                                   .n_tokens = names(tokenizer, tokens),
                                   .add_generation_prompt = flags & 1,
                                   .continue_final_message = flags & 2,
                                   .now = 1722000000};
    const char *source = fields[0].bytes;
    size_t n = fields[0].n;
    if (!n && tokenizer) source = tokenizer_template(tokenizer, TOKENIZER_TEMPLATE, &n);
    TRY(template_compile(source ? source : "", n, &compiled, err));
    np_status status = template_render(compiled, &input, text, err);
    template_free(compiled);
    if (status || !tokenizer) return status;
    return tokenizer_encode_parts(tokenizer, text->text, flags & 4 ? NULL : text->is_data,
                                  text->n_bytes, false, true, ids, err);
}

static bool one_record(const struct tokenizer *tokenizer)
{
    struct field fields[3] = {0};
    struct template_output text = {0};
    struct encoding ids = {0};
    uint32_t flags;
    np_error err = {0};
    char line[640];
    bool got = get(&fields[0]) && get(&fields[1]) && get(&fields[2]);
    if (got && fread(&flags, 4, 1, stdin) == 1) {
        np_status status = render(tokenizer, fields, flags, &text, &ids, &err);
        put(status);
        if (status) {
            np_error_line(&err, line, sizeof line);
            put_bytes(line, strlen(line));
        } else {
            put_bytes(text.text, text.n_bytes);
            put(text.content_begin);
            put(text.content_end);
            put(ids.n_tokens);
            for (size_t i = 0; i < ids.n_tokens; i++) put((size_t)(uint32_t)ids.tokens[i].id);
        }
    }
    for (int i = 0; i < 3; i++) mem_free(fields[i].bytes);
    template_output_free(&text);
    encoding_free(&ids);
    return got;
}

int main(int argc, char **argv)
{
    np_error err = {0};
    char line[640];
    struct modelfile *file = NULL;
    struct tokenizer *tokenizer = NULL;
    np_status status = argc > 1 ? modelfile_open(argv[1], &file, &err) : NP_OK;
    if (argc > 1 && !status) status = tokenizer_open(file, &tokenizer, &err);
    if (status) fprintf(stderr, "chatdump: %s\n", np_error_line(&err, line, sizeof line));
    while (!status && one_record(tokenizer))
        ;
    tokenizer_close(tokenizer);
    modelfile_close(file);
    return status || fflush(stdout) ? 1 : 0;
}
