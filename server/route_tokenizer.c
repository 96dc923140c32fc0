/*
 * The tokenizer by HTTP, as vLLM has it: text or messages to ids, ids to text, and what its tokens
 * are called. Ids are those that the scoring routes use for the same text.
 */
#include "ask_fields.h"
#include "openai.h"
#include "routes.h"

static const struct field tokenize_fields[] = {
    ROW("prompt", FIELD_TEXT, prompt_text, NULL, "vLLM", NULL, "A text; or messages."),
    ROW("messages", FIELD_ARRAY, messages, NULL, "vLLM", NULL,
        "A chat, as on /v1/chat/completions; or prompt."),
    ROW("add_special_tokens", FIELD_CHOICE, add_special, NULL, "vLLM", "add_special",
        "BOS and EOS as the tokenizer adds them; true for a prompt, false for messages."),
    ROW("parse_special", FIELD_CHOICE, parse_special, NULL, "llama.cpp", NULL,
        "Whether the text of a special token in a prompt is that token; true by default."),
    ROW("return_token_strs", FIELD_FLAG, return_strings, "false", "vLLM", NULL,
        "Tells the text of each token."),
    LAST_ROW};
const struct field *const tokenize_groups[] = {tokenize_fields, chat_text_fields, identity_fields,
                                               NULL};

static const struct field detokenize_fields[] = {
    REQUIRED("tokens", FIELD_IDS, tokens, "vLLM", "token_ids", "Token ids; there may be none."),
    LAST_ROW};
const struct field *const detokenize_groups[] = {detokenize_fields, identity_fields, NULL};

/* One answer, whose ids are in the arena. */
struct tokenized {
    const int32_t *ids;
    size_t n;
};

static np_status keep_ids(struct exchange *exchange, const np_tokens *tokens, np_error *err)
{
    struct tokenized *extra = arena_push(&exchange->arena, sizeof *extra);
    int32_t *ids = arena_push_array(&exchange->arena, tokens->n_tokens + 1, sizeof *ids);
    if (!extra || !ids) return error_nomem(err, "prompt", tokens->n_tokens * sizeof *ids);
    if (tokens->n_tokens) memcpy(ids, tokens->token_ids, tokens->n_tokens * sizeof *ids);
    *extra = (struct tokenized){ids, tokens->n_tokens};
    exchange->extra = extra;
    return NP_OK;
}

static np_status no_tokenizer(const char *where, np_error *err)
{
    return error_set(err, NP_EUNSUPPORTED, where, NO_OFFSET, "the model has no tokenizer");
}

np_status tokenize_prepare(struct exchange *exchange, np_error *err)
{
    struct ask *ask = &exchange->ask;
    np_chat_text chat;
    np_tokens tokens;
    if (!ask->prompt_text.bytes == !ask->messages)
        return error_set(err, NP_EINPUT, "prompt", NO_OFFSET, "prompt or messages: one of them");
    if (!exchange_info(exchange)->has_tokenizer) return no_tokenizer("prompt", err);
    if (ask->messages) {
        TRY(chat_prompt(exchange, &chat, err));
        np_status status = keep_ids(exchange, &chat.tokens, err);
        np_chat_text_free(&chat);
        return status;
    }
    TRY(np_tokenize(exchange_model(exchange), ask->prompt_text.bytes, ask->prompt_text.n_bytes,
                    (np_choice)ask->add_special, (np_choice)ask->parse_special, &tokens, err));
    np_status status = keep_ids(exchange, &tokens, err);
    np_tokens_free(&tokens);
    return status;
}

np_status tokenize_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    const struct tokenized *extra = exchange->extra;
    json_begin(json, '{');
    json_key(json, "count");
    json_int(json, (int64_t)extra->n);
    json_key(json, "max_model_len");
    json_int(json, (int64_t)exchange_context(exchange));
    json_key(json, "tokens");
    tell_ids(exchange, extra->ids, extra->n);
    json_key(json, "token_strs");
    if (exchange->ask.return_strings) {
        json_begin(json, '[');
        for (size_t i = 0; i < extra->n; i++) tell_token(exchange, extra->ids[i], false);
        json_end(json, ']');
    } else {
        json_nil(json);
    }
    json_end(json, '}');
    return NP_OK;
}

np_status detokenize_prepare(struct exchange *exchange, np_error *err)
{
    const np_ids *tokens = &exchange->ask.tokens;
    np_string *extra = arena_push(&exchange->arena, sizeof *extra);
    char *text;
    if (!extra) return error_nomem(err, "tokens", sizeof *extra);
    if (!exchange_info(exchange)->has_tokenizer) return no_tokenizer("tokens", err);
    TRY(np_detokenize(exchange_model(exchange), tokens->ids, tokens->n, &text, &extra->n_bytes,
                      err));
    extra->bytes = exchange_copy(exchange, text, extra->n_bytes);
    np_free(text);
    exchange->extra = extra;
    return extra->bytes ? NP_OK : error_nomem(err, "tokens", extra->n_bytes);
}

np_status detokenize_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    const np_string *text = exchange->extra;
    json_begin(json, '{');
    json_key(json, "prompt");
    json_text(json, text->bytes, text->n_bytes);
    json_end(json, '}');
    return NP_OK;
}

np_status tokenizer_info_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    const np_info *info = exchange_info(exchange);
    np_tokenizer_info names = np_model_tokenizer(exchange_model(exchange));
    const char *own = exchange_options(exchange)->chat_template;
    const char *const texts[][2] = {{"tokenizer_class", names.tokenizer_class},
                                    {"bos_token", names.bos_token},
                                    {"eos_token", names.eos_token},
                                    {"pad_token", names.pad_token},
                                    {"unk_token", names.unk_token},
                                    {"chat_template", own ? own : names.chat_template}};
    if (!info->has_tokenizer) return no_tokenizer("", err);
    json_begin(json, '{');
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_key(json, texts[i][0]);
        json_str(json, texts[i][1]);
    }
    json_key(json, "add_bos_token");
    json_bool(json, info->adds_bos);
    json_key(json, "add_eos_token");
    json_bool(json, info->adds_eos);
    json_key(json, "bos_token_id");
    json_int(json, info->bos_id);
    json_key(json, "eos_token_id");
    json_int(json, info->eos_id);
    json_key(json, "vocab_size");
    json_int(json, info->n_vocab);
    json_key(json, "model_max_length");
    json_int(json, (int64_t)exchange_context(exchange));
    json_end(json, '}');
    return NP_OK;
}
