/*
 * Messages become a prompt: what a client sends is made into the JSON that templates expect, and
 * rendered by the library.
 *
 * A content may be a list of parts, as OpenAI has it. Most templates know texts alone, so texts of
 * parts are joined by newlines, as vLLM joins them; a part that is no text is refused by name.
 */
#include "ask_fields.h"
#include "openai.h"

const struct field chat_text_fields[] = {
    ROW("tools", FIELD_ARRAY, tools, NULL, "OpenAI", NULL,
        "Told to the template. Calls of tools are not parsed: they are text."),
    ROW("documents", FIELD_ARRAY, documents, NULL, "vLLM", NULL, "Told to the template."),
    ROW("reasoning_effort", FIELD_WORD, reasoning_effort, NULL, "OpenAI", NULL,
        "Told to the template."),
    ROW("chat_template", FIELD_WORD, chat_template, NULL, "vLLM", NULL,
        "A Jinja template in place of the model's; an empty one is none."),
    ROW("chat_template_kwargs", FIELD_MAP, template_values, NULL, "vLLM", NULL,
        "Further variables of the template."),
    ROW("add_generation_prompt", FIELD_CHOICE, add_generation_prompt, NULL, "vLLM", NULL,
        "Whether the template begins a message of the assistant; true unless the last message "
        "stays open."),
    ROW("continue_final_message", FIELD_FLAG, continue_final_message, "false", "vLLM", NULL,
        "The last message stays open, and is continued."),
    ROW("add_special_tokens", FIELD_CHOICE, add_special, "false", "vLLM", "add_special",
        "BOS and EOS as the tokenizer adds them, beside what the template writes; never a second "
        "BOS."),
    ROW("parse_special_in_content", FIELD_FLAG, parse_special_in_content, "false", "nepit",
        "parse_special",
        "Whether the text of a special token is that token within messages too; else it is text."),
    LAST_ROW};

/* Adds the text of one part. */
static np_status add_part(const char *where, size_t i, const json_t *part, struct buf *text,
                          np_error *err)
{
    char place[120];
    const json_t *kind = json_object_get(part, "type"), *words = json_object_get(part, "text");
    snprintf(place, sizeof place, "%.80s[%zu]", where, i);
    if (!json_is_object(part)) return value_wrong(place, "an object", part, err);
    if (!json_is_string(kind) || strcmp(json_string_value(kind), "text") != 0) {
        error_set(err, NP_EUNSUPPORTED, place, NO_OFFSET, "only parts of type \"text\" are served");
        return error_given(err, NP_EUNSUPPORTED, "%s",
                           json_is_string(kind) ? json_string_value(kind) : "no type");
    }
    if (!json_is_string(words)) return value_wrong(place, "a part with a text", part, err);
    if (i) buf_push(text, "\n", 1);
    buf_push(text, json_string_value(words), json_string_length(words));
    return NP_OK;
}

/* A list of parts, in its message's place, becomes their text. */
static np_status join_parts(const char *where, json_t *message, np_error *err)
{
    json_t *content = json_object_get(message, "content"), *part;
    struct buf text;
    size_t i;
    np_status status = NP_OK;
    if (!json_is_array(content)) return NP_OK;
    buf_init(&text, SIZE_MAX);
    json_array_foreach(content, i, part)
    {
        status = add_part(where, i, part, &text, err);
        if (status != NP_OK) break;
    }
    json_t *joined = text.failed ? NULL : json_stringn(text.data ? text.data : "", text.n_bytes);
    if (status == NP_OK && (!joined || json_object_set(message, "content", joined) != 0))
        status = error_nomem(err, where, text.n_bytes);
    json_decref(joined);
    buf_free(&text);
    return status;
}

static np_status check_message(size_t i, json_t *message, np_error *err)
{
    char where[80];
    snprintf(where, sizeof where, "messages[%zu]", i);
    if (!json_is_object(message)) return value_wrong(where, "an object", message, err);
    const json_t *role = json_object_get(message, "role");
    const json_t *content = json_object_get(message, "content");
    snprintf(where, sizeof where, "messages[%zu].role", i);
    if (!role) return error_set(err, NP_EINPUT, where, NO_OFFSET, "a message needs a role");
    if (!json_is_string(role)) return value_wrong(where, "a text", role, err);
    snprintf(where, sizeof where, "messages[%zu].content", i);
    if (content && !json_is_string(content) && !json_is_array(content) && !json_is_null(content))
        return value_wrong(where, "a text or a list of parts", content, err);
    return join_parts(where, message, err);
}

/* JSON as text, in the arena. */
static np_status write_json(struct exchange *exchange, const json_t *value, const char *where,
                            np_string *out, np_error *err)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (text) out->n_bytes = strlen(text);
    if (text) out->bytes = exchange_copy(exchange, text, out->n_bytes);
    free(text);
    return out->bytes ? NP_OK : error_nomem(err, where, 0);
}

static np_status write_messages(struct exchange *exchange, np_string *out, np_error *err)
{
    json_t *messages = exchange->ask.messages, *message;
    size_t i;
    if (json_array_size(messages) == 0)
        return error_set(err, NP_EINPUT, "messages", NO_OFFSET, "at least one message is needed");
    json_array_foreach(messages, i, message) TRY(check_message(i, message, err));
    return write_json(exchange, messages, "messages", out, err);
}

/* What the template is told beside the messages. */
static np_status write_variables(struct exchange *exchange, np_string *out, np_error *err)
{
    const struct ask *ask = &exchange->ask;
    json_t *variables = ask->template_values ? json_copy(ask->template_values) : json_object();
    bool good = variables != NULL;
    if (good && ask->tools) good = json_object_set(variables, "tools", ask->tools) == 0;
    if (good && ask->documents) good = json_object_set(variables, "documents", ask->documents) == 0;
    if (good && ask->reasoning_effort)
        good = json_object_set_new(variables, "reasoning_effort",
                                   json_string(ask->reasoning_effort)) == 0;
    np_status status = good ? write_json(exchange, variables, "chat_template_kwargs", out, err)
                            : error_nomem(err, "chat_template_kwargs", 0);
    json_decref(variables);
    return status;
}

np_status chat_prompt(struct exchange *exchange, np_chat_text *out, np_error *err)
{
    const struct ask *ask = &exchange->ask;
    const np_info *info = exchange_info(exchange);
    const char *own = exchange_options(exchange)->chat_template;
    const char *source = ask->chat_template && *ask->chat_template ? ask->chat_template : own;
    bool stays_open = ask->continue_final_message || ask->score_final_message;
    np_chat chat = {.chat_template = {source, source ? strlen(source) : 0},
                    .add_generation_prompt = ask->add_generation_prompt != NP_NO && !stays_open,
                    .continue_final_message = stays_open,
                    .add_special = (np_choice)ask->add_special,
                    .parse_special = ask->parse_special_in_content ? NP_YES : NP_NO};
    TRY(write_messages(exchange, &chat.messages, err));
    if (!info->has_tokenizer || (!source && !info->has_chat_template))
        return error_set(err, NP_EUNSUPPORTED, info->has_tokenizer ? "chat_template" : "messages",
                         NO_OFFSET, "the model has no %s",
                         info->has_tokenizer ? "chat template: give one" : "tokenizer");
    if (ask->add_generation_prompt == NP_YES && stays_open)
        return error_set(err, NP_EINPUT, "add_generation_prompt", NO_OFFSET,
                         "no other message is begun while the last one stays open");
    TRY(write_variables(exchange, &chat.variables, err));
    return np_chat_render(exchange_model(exchange), &chat, out, err);
}
