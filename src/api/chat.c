/*
 * chat.c - chats at the door of the library: rendered by the model's template (or the caller's),
 * and encoded so that special tokens are looked for only in what the template wrote.
 *
 * The model's template is compiled when the model is opened; an error of it is kept and told when
 * somebody asks for a chat, since a model that cannot chat can still score.
 */
#include "api/handles.h"
#include "base/pool.h"

static const struct np_chat_text nothing;

np_status chat_open(np_model *model, np_error *err)
{
    for (int i = 0; i < TOKENIZER_TEMPLATES && model->tokenizer; i++) {
        size_t n_bytes;
        const char *source =
            tokenizer_template(model->tokenizer, (enum tokenizer_template)i, &n_bytes);
        if (!source) continue;
        model->has_chat_template = true;
        np_status status =
            template_compile(source, n_bytes, &model->templates[i], &model->template_errors[i]);
        if (status == NP_ENOMEM) {
            if (err) *err = model->template_errors[i];
            return status;
        }
    }
    return NP_OK;
}

void chat_close(np_model *model)
{
    for (int i = 0; i < TOKENIZER_TEMPLATES; i++) template_free(model->templates[i]);
}

np_tokenizer_info np_model_tokenizer(const np_model *model)
{
    const struct tokenizer *tokenizer = model->tokenizer;
    size_t n_bytes;
    if (!tokenizer) return (np_tokenizer_info){0};
    return (np_tokenizer_info){.bos_token = tokenizer_named(tokenizer, TOKENIZER_BOS),
                               .eos_token = tokenizer_named(tokenizer, TOKENIZER_EOS),
                               .pad_token = tokenizer_named(tokenizer, TOKENIZER_PAD),
                               .unk_token = tokenizer_named(tokenizer, TOKENIZER_UNK),
                               .tokenizer_class = tokenizer_named(tokenizer, TOKENIZER_CLASS),
                               .chat_template =
                                   tokenizer_template(tokenizer, TOKENIZER_TEMPLATE, &n_bytes)};
}

static np_status check_chat(const np_model *model, const np_chat *chat, np_error *err)
{
    TRY(need_tokenizer(model, err));
    if (chat->messages.n_bytes) TRY(need_pointer(chat->messages.bytes, "messages", err));
    if (chat->variables.n_bytes) TRY(need_pointer(chat->variables.bytes, "variables", err));
    if (chat->chat_template.n_bytes)
        TRY(need_pointer(chat->chat_template.bytes, "chat_template", err));
    TRY(check_choice("add_special", (int)chat->add_special, NP_NO, err));
    return check_choice("parse_special", (int)chat->parse_special, NP_NO, err);
}

/* The template to use: with tools, the one that is made for them, as transformers chooses. *own is
 * freed by the caller. */
static np_status choose_template(const np_model *model, const np_chat *chat,
                                 const struct template **out, struct template **own, np_error *err)
{
    *own = NULL;
    if (chat->chat_template.bytes) {
        TRY(template_compile(chat->chat_template.bytes, chat->chat_template.n_bytes, own, err));
        *out = *own;
        return NP_OK;
    }
    size_t n_bytes;
    enum tokenizer_template which = TOKENIZER_TEMPLATE;
    if (tokenizer_template(model->tokenizer, TOKENIZER_TEMPLATE_TOOLS, &n_bytes) &&
        template_data_has(chat->variables.bytes, chat->variables.n_bytes, "tools"))
        which = TOKENIZER_TEMPLATE_TOOLS;
    if (!tokenizer_template(model->tokenizer, which, &n_bytes))
        return error_set(err, NP_EUNSUPPORTED, model->path, NO_OFFSET,
                         "the model has no chat template: give one");
    *out = model->templates[which];
    if (*out) return NP_OK;
    if (err) *err = model->template_errors[which];
    return model->template_errors[which].status;
}

/* Not inlined: no arithmetic may move across fpenv_enter and fpenv_leave. */
__attribute__((noinline)) static np_status render(const np_model *model, const np_chat *chat,
                                                  struct template_output *out, np_error *err)
{
    struct template_token tokens[TOKENIZER_CLASS];
    const struct template *compiled;
    struct template *own;
    TRY(choose_template(model, chat, &compiled, &own, err));
    for (int i = 0; i < TOKENIZER_CLASS; i++) {
        const char *text = tokenizer_named(model->tokenizer, (enum tokenizer_name)i);
        tokens[i] = (struct template_token){tokenizer_names[i], text, text ? strlen(text) : 0};
    }
    struct template_input input = {
        .messages = chat->messages.n_bytes ? chat->messages.bytes : "[]",
        .n_messages_bytes = chat->messages.n_bytes ? chat->messages.n_bytes : 2,
        .variables = chat->variables.n_bytes ? chat->variables.bytes : NULL,
        .n_variables_bytes = chat->variables.n_bytes,
        .tokens = tokens,
        .n_tokens = TOKENIZER_CLASS,
        .add_generation_prompt = chat->add_generation_prompt != 0,
        .continue_final_message = chat->continue_final_message != 0};
    np_status status = template_render(compiled, &input, out, err);
    template_free(own);
    return status;
}

/* Where both the tokenizer and the template put a BOS, one goes. */
static void drop_second_bos(const np_model *model, struct encoding *encoding)
{
    size_t n;
    const int32_t *before = tokenizer_edge(model->tokenizer, false, &n);
    int32_t bos = tokenizer_bos(model->tokenizer);
    if (!n || before[n - 1] != bos || encoding->n_tokens <= n || encoding->tokens[n].id != bos)
        return;
    encoding->n_tokens--;
    memmove(encoding->tokens + n - 1, encoding->tokens + n,
            (encoding->n_tokens - n + 1) * sizeof *encoding->tokens);
}

np_status np_chat_render(const np_model *model, const np_chat *chat, np_chat_text *out,
                         np_error *err)
{
    struct template_output text;
    struct encoding encoding = {0};
    TRY(need_pointer(out, "out", err));
    *out = nothing;
    TRY(need_pointer(model, "model", err));
    TRY(need_pointer(chat, "chat", err));
    if (err) memset(err, 0, sizeof *err);
    TRY(check_chat(model, chat, err));
    struct fpenv saved = fpenv_enter(); /* numbers of the caller's data are read and written */
    np_status status = render(model, chat, &text, err);
    fpenv_leave(saved);
    TRY(status);
    bool add = chat->add_special == NP_YES;
    const unsigned char *literal = chat->parse_special == NP_YES ? NULL : text.is_data;
    status = tokenizer_encode_parts(model->tokenizer, text.text, literal, text.n_bytes, add, true,
                                    &encoding, err);
    if (!status && add) drop_second_bos(model, &encoding);
    if (!status) status = encoding_tokens(&encoding, &out->tokens, err);
    if (!status) {
        out->text = text.text;
        out->n_bytes = text.n_bytes;
        out->content_begin = text.content_begin;
        out->content_end = text.content_end;
        text.text = NULL;
    }
    encoding_free(&encoding);
    template_output_free(&text);
    return status;
}

void np_chat_text_free(np_chat_text *text)
{
    if (!text) return;
    np_tokens_free(&text->tokens);
    mem_free(text->text);
    *text = nothing;
}
