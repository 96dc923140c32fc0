/*
 * POST /v1/chat/completions: messages in, a message out, through the model's own template.
 *
 * score_final_message (nepit's own) turns it around: the last message is the answer whose numbers
 * are asked for. It is left open, so that no token of the template stands behind it, and only the
 * tokens of its content are told, with the bytes of the content that each stands for.
 */
#include "ask_fields.h"
#include "openai.h"
#include "routes.h"

static const struct field chat_fields[] = {
    REQUIRED("messages", FIELD_ARRAY, messages, "OpenAI", NULL,
             "Objects of role and content; a content is a text or a list of parts of type text."),
    NUMBERS("max_completion_tokens", FIELD_INT, max_completion_tokens, 0, COUNT_MAX, "null",
            "OpenAI", NULL,
            "At most so many tokens follow; 0: none; null: max_tokens, else to the end of the "
            "context."),
    NUMBERS("max_tokens", FIELD_INT, max_tokens, 0, COUNT_MAX, "null", "OpenAI", NULL,
            "The older name of max_completion_tokens."),
    ROW("logprobs", FIELD_FLAG, wants_logprobs, "false", "OpenAI", "wants_logprobs",
        "The log-probability of each token that is generated."),
    NUMBERS("top_logprobs", FIELD_INT, top_logprobs, -1, COUNT_MAX, "null", "OpenAI", "logprobs",
            "And of so many likeliest ones; 0: none; -1: the whole vocabulary; needs logprobs."),
    ROW("echo", FIELD_FLAG, echo, "false", "vLLM", NULL,
        "What the last message says stands before each answer, if that continues it."),
    ROW("score_final_message", FIELD_FLAG, score_final_message, "false", "nepit", NULL,
        "Scores the content of the last message, which is the assistant's: adds "
        "final_message_logprobs. Nothing follows unless max_tokens says so."),
    ROW("return_prompt_text", FIELD_FLAG, return_text, "false", "vLLM", NULL,
        "Tells what the template wrote."),
    NUMBERS("truncate_prompt_tokens", FIELD_INT, truncate, -1, COUNT_MAX, "null", "vLLM", NULL,
            "Keeps the last so many tokens of the prompt; -1: as many as fit."),
    ONLY("tool_choice", "[\"none\",\"auto\"]", "OpenAI", "Calls of tools are not parsed."),
    ONLY("functions", "[[]]", "OpenAI", "Use tools."),
    ONLY("function_call", "[\"none\",\"auto\"]", "OpenAI", "Calls of tools are not parsed."),
    ONLY("modalities", "[[\"text\"]]", "OpenAI", "Answers are texts."),
    ONLY("audio", "[]", "OpenAI", "Answers are texts."),
    ONLY("prediction", "[]", "OpenAI", "Texts are not predicted."),
    ONLY("web_search_options", "[]", "OpenAI", "Nothing is searched."),
    ONLY("verbosity", "[\"medium\"]", "OpenAI", "Say it in a message."),
    ONLY("mm_processor_kwargs", "[{}]", "vLLM", "Messages are texts."),
    IGNORED("parallel_tool_calls", "OpenAI", "Calls of tools are not parsed."),
    IGNORED("include_reasoning", "vLLM", "Reasoning is text like any other."),
    IGNORED("prompt_cache_key", "OpenAI", "Requests that begin alike share what is cached anyway."),
    IGNORED("safety_identifier", "OpenAI", "Who asks."),
    LAST_ROW};
const struct field *const chat_groups[] = {chat_fields,     chat_text_fields, openai_fields,
                                           identity_fields, stream_fields,    drawing_fields,
                                           scoring_fields,  running_fields,   NULL};

struct chat {
    const char *role, *prompt_text;
    size_t n_prompt_bytes;
    const char *echoed; /* text that stands before each answer */
    size_t n_echoed_bytes;

    /* The message that is scored: tokens [first, last) of the prompt; n_before + what a token
     * covers of [content_begin, content_end) are bytes of the content that was sent. */
    size_t first, last, content_begin, content_end, n_before;
    const size_t *begin, *end; /* [n_tokens] */

    bool begun, prompt_told; /* of a stream */
};

/* ---- what is asked --------------------------------------------------------------------------- */

static const json_t *last_message(const struct exchange *exchange)
{
    const json_t *messages = exchange->ask.messages;
    size_t n = json_array_size(messages);
    return n ? json_array_get(messages, n - 1) : NULL;
}

static np_status settle_ask(struct ask *ask, np_error *err)
{
    if (ask->max_completion_tokens != NOT_GIVEN) ask->max_tokens = ask->max_completion_tokens;
    if (ask->score_final_message && ask->max_tokens == NOT_GIVEN) ask->max_tokens = 0;
    if (ask->wants_logprobs)
        ask->logprobs = ask->top_logprobs == NOT_GIVEN ? 0 : ask->top_logprobs;
    else if (ask->top_logprobs != NOT_GIVEN && ask->top_logprobs != 0)
        return error_set(err, NP_EINPUT, "top_logprobs", NO_OFFSET, "needs logprobs to be true");
    return NP_OK;
}

/* Where the scored message stands. */
static np_status find_final(struct exchange *exchange, const np_chat_text *text, np_error *err)
{
    struct chat *extra = exchange->extra;
    const np_tokens *tokens = &text->tokens;
    const json_t *content = json_object_get(last_message(exchange), "content");
    size_t n = text->content_end - text->content_begin;
    char where[60];
    snprintf(where, sizeof where, "messages[%zu].content",
             json_array_size(exchange->ask.messages) - 1);
    if (n == 0)
        return error_set(err, NP_EINPUT, where, NO_OFFSET,
                         "there is nothing to score: it is empty, or the template leaves it out");
    while (extra->first < tokens->n_tokens && (tokens->end[extra->first] <= text->content_begin ||
                                               tokens->begin[extra->first] >= text->content_end))
        extra->first++;
    extra->last = extra->first;
    while (extra->last < tokens->n_tokens && tokens->begin[extra->last] < text->content_end)
        extra->last++;
    extra->content_begin = text->content_begin;
    extra->content_end = text->content_end;
    const char *sent = json_string_value(content), *found = NULL;
    if (sent)
        found = memmem(sent, json_string_length(content), text->text + text->content_begin, n);
    extra->n_before = found ? (size_t)(found - sent) : 0;
    return NP_OK;
}

static np_status keep_text(struct exchange *exchange, const np_chat_text *text, np_error *err)
{
    struct arena *arena = &exchange->arena;
    struct chat *extra = exchange->extra;
    size_t n = text->tokens.n_tokens;
    if (n == 0)
        return error_set(err, NP_EINPUT, "messages", NO_OFFSET, "the template makes no token");
    struct prompt *prompt = arena_push(arena, sizeof *prompt);
    int32_t *ids = arena_push_array(arena, n + 1, sizeof *ids);
    size_t *begin = arena_push_array(arena, n + 1, sizeof *begin);
    size_t *end = arena_push_array(arena, n + 1, sizeof *end);
    extra->prompt_text = exchange_copy(exchange, text->text, text->n_bytes);
    extra->n_prompt_bytes = text->n_bytes;
    if (!prompt || !ids || !begin || !end || !extra->prompt_text)
        return error_nomem(err, "messages", n * sizeof *begin);
    if (n) {
        memcpy(ids, text->tokens.token_ids, n * sizeof *ids);
        memcpy(begin, text->tokens.begin, n * sizeof *begin);
        memcpy(end, text->tokens.end, n * sizeof *end);
    }
    prompt->ids = (np_ids){ids, n};
    extra->begin = begin;
    extra->end = end;
    exchange->ask.prompts = (struct prompts){.at = prompt, .n = 1};
    return exchange->ask.score_final_message ? find_final(exchange, text, err) : NP_OK;
}

/* The rows of the scored message, beside those that were asked for anyway. */
static np_status score_final(struct exchange *exchange, np_error *err)
{
    struct chat *extra = exchange->extra;
    const struct ask *ask = &exchange->ask;
    np_request *request = &exchange->requests[0];
    size_t n_dropped = exchange->encoded[0].n_dropped;
    if (extra->first <= n_dropped)
        return error_set(err, NP_EINPUT, n_dropped ? "truncate_prompt_tokens" : "messages",
                         NO_OFFSET, "no token is left before the message that is scored");
    extra->first -= n_dropped;
    extra->last -= n_dropped;
    extra->begin += n_dropped;
    extra->end += n_dropped;
    if (ask->prompt_logprobs == NOT_GIVEN && !ask->candidates) request->start = extra->first - 1;
    if (request->start >= extra->first)
        return error_set(err, NP_EINPUT, "start", NO_OFFSET,
                         "at most %zu: there begins the message that is scored", extra->first - 1);
    return NP_OK;
}

static np_status prepare_scores(struct exchange *exchange, np_error *err)
{
    struct ask *ask = &exchange->ask;
    int64_t told = ask->logprobs;
    /* The library's echo scores the prompt; a chat's is a text, or the scored message's numbers. */
    ask->echo = ask->score_final_message;
    if (ask->echo && told == NOT_GIVEN) ask->logprobs = 0;
    np_status status = prepare_prompts(exchange, err);
    ask->echo = false;
    ask->logprobs = told;
    return status;
}

/* The role of who answers, and what an echo puts before the answer: the text of the last message,
 * if it is of that role. */
static np_status settle_role(struct exchange *exchange, np_error *err)
{
    struct chat *extra = exchange->extra;
    const struct ask *ask = &exchange->ask;
    const json_t *last = last_message(exchange), *content = json_object_get(last, "content");
    const char *role = json_string_value(json_object_get(last, "role"));
    bool stays_open = ask->continue_final_message || ask->score_final_message;
    bool begins = ask->add_generation_prompt != NP_NO && !stays_open;
    if (ask->score_final_message && strcmp(role, "assistant") != 0) {
        char where[60];
        snprintf(where, sizeof where, "messages[%zu].role", json_array_size(ask->messages) - 1);
        error_set(err, NP_EINPUT, where, NO_OFFSET,
                  "the message that is scored is the assistant's");
        return error_given(err, NP_EINPUT, "%s", role);
    }
    extra->role = begins ? "assistant" : role;
    extra->echoed = "";
    if (!ask->echo || strcmp(extra->role, role) != 0 || !json_is_string(content)) return NP_OK;
    extra->echoed = json_string_value(content);
    extra->n_echoed_bytes = json_string_length(content);
    return NP_OK;
}

np_status chat_prepare(struct exchange *exchange, np_error *err)
{
    np_chat_text text;
    struct chat *extra = arena_push(&exchange->arena, sizeof *extra);
    if (!extra) return error_nomem(err, "messages", sizeof *extra);
    exchange->extra = extra;
    TRY(settle_ask(&exchange->ask, err));
    TRY(openai_begin(exchange, "chatcmpl-", err));
    TRY(chat_prompt(exchange, &text, err));
    np_status status = settle_role(exchange, err);
    if (status == NP_OK) status = keep_text(exchange, &text, err);
    np_chat_text_free(&text);
    if (status == NP_OK) status = prepare_scores(exchange, err);
    if (status == NP_OK && exchange->ask.score_final_message) status = score_final(exchange, err);
    return status;
}

/* ---- parts of the answer --------------------------------------------------------------------- */

/* The scored message's tokens in rows [from, to). */
static void tell_final(struct exchange *exchange, const np_result *result, size_t from, size_t to)
{
    struct json *json = &exchange->writer;
    const struct chat *extra = exchange->extra;
    int64_t most = exchange->ask.logprobs == NOT_GIVEN ? 0 : exchange->ask.logprobs;
    json_key(json, "final_message_logprobs");
    json_begin(json, '[');
    for (size_t i = from; i < to && i < result->n_scored; i++) {
        size_t token = result->start + i + 1;
        struct told_row row = row_of_prompt(result, i);
        if (token < extra->first || token >= extra->last) continue;
        size_t begin = extra->begin[token], end = extra->end[token];
        if (begin < extra->content_begin) begin = extra->content_begin;
        if (end > extra->content_end) end = extra->content_end;
        if (most >= 0 && row.n_top > (size_t)most) row.n_top = (size_t)most;
        json_begin(json, '{');
        tell_content_entry(exchange, &row);
        json_key(json, "begin");
        json_int(json, (int64_t)(begin - extra->content_begin + extra->n_before));
        json_key(json, "end");
        json_int(json, (int64_t)(end - extra->content_begin + extra->n_before));
        json_end(json, '}');
    }
    json_end(json, ']');
}

/* What an answer or the first event of a stream says of the prompt. */
static void tell_chat(struct exchange *exchange)
{
    const struct chat *extra = exchange->extra;
    tell_warnings(exchange);
    if (!exchange->ask.return_text) return;
    json_key(&exchange->writer, "prompt_text");
    json_text(&exchange->writer, extra->prompt_text, extra->n_prompt_bytes);
}

static void tell_message(struct exchange *exchange, const np_generated *choice)
{
    struct json *json = &exchange->writer;
    const struct chat *extra = exchange->extra;
    struct buf text;
    buf_init(&text, SIZE_MAX);
    buf_push(&text, extra->echoed, extra->n_echoed_bytes);
    if (choice->text) buf_push(&text, choice->text, choice->n_text_bytes);
    if (text.failed) exchange->out.failed = true;
    json_key(json, "message");
    json_begin(json, '{');
    json_key(json, "role");
    json_str(json, extra->role);
    json_key(json, "content");
    json_text(json, text.data ? text.data : "", text.n_bytes);
    json_key(json, "refusal");
    json_nil(json);
    json_end(json, '}');
    buf_free(&text);
}

static void tell_numbers(struct exchange *exchange, const np_generated *choice, size_t from,
                         size_t to)
{
    json_key(&exchange->writer, "logprobs");
    if (exchange->ask.logprobs != NOT_GIVEN)
        tell_content_of(exchange, choice, from, to);
    else
        json_nil(&exchange->writer);
}

np_status chat_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    if (reply_npy(exchange)) return NP_OK;
    json_begin(json, '{');
    tell_head(exchange, "id", "chat.completion");
    json_key(json, "choices");
    json_begin(json, '[');
    for (size_t k = 0; k < n_choices_of(exchange, 0); k++) {
        const np_generated *choice = choice_of(exchange, 0, k);
        json_begin(json, '{');
        json_key(json, "index");
        json_int(json, (int64_t)k);
        tell_message(exchange, choice);
        tell_numbers(exchange, choice, 0, choice->n_tokens);
        tell_ending(exchange, choice, true);
        json_key(json, "token_ids");
        if (exchange->ask.return_token_ids)
            tell_ids(exchange, choice->token_ids, choice->n_tokens);
        else
            json_nil(json);
        json_end(json, '}');
    }
    json_end(json, ']');
    tell_prompts(exchange);
    if (exchange->ask.score_final_message)
        tell_final(exchange, &exchange->results[0], 0, exchange->results[0].n_scored);
    tell_chat(exchange);
    json_key(json, "usage");
    tell_usage(exchange, exchange->n_prompt_tokens, exchange->n_generated);
    json_end(json, '}');
    return NP_OK;
}

/* ---- the stream ------------------------------------------------------------------------------ */

static void begin_event(struct exchange *exchange)
{
    struct chat *extra = exchange->extra;
    exchange_event(exchange);
    json_begin(&exchange->writer, '{');
    tell_head(exchange, "id", "chat.completion.chunk");
    if (!extra->begun) {
        tell_meaning(exchange);
        tell_chat(exchange);
    }
    extra->begun = true;
}

/* Behind the choices. */
static void end_event(struct exchange *exchange, const np_result *result, const struct part *part)
{
    struct json *json = &exchange->writer;
    struct chat *extra = exchange->extra;
    if (part->kind == PART_ROWS) {
        tell_prompt_part(exchange, result, part);
        if (exchange->ask.score_final_message) tell_final(exchange, result, part->from, part->to);
    } else if (!extra->prompt_told) {
        struct part none = {.kind = PART_ROWS, .first = true};
        bool wanted = exchange->ask.return_token_ids || ask_told(&exchange->ask) != NOT_GIVEN;
        if (wanted) tell_prompt_part(exchange, result, &none);
    }
    extra->prompt_told = true;
    tell_usage_part(exchange, part);
    json_end(json, '}');
    exchange_event_end(exchange);
}

/* A choice's delta; role NULL: none. */
static void begin_delta(struct exchange *exchange, size_t choice, const char *role,
                        const char *text, size_t n_bytes)
{
    struct json *json = &exchange->writer;
    json_key(json, "choices");
    json_begin(json, '[');
    json_begin(json, '{');
    json_key(json, "index");
    json_int(json, (int64_t)choice);
    json_key(json, "delta");
    json_begin(json, '{');
    if (role) {
        json_key(json, "role");
        json_str(json, role);
    }
    json_key(json, "content");
    json_text(json, text, n_bytes);
    json_end(json, '}');
}

static void end_delta(struct exchange *exchange)
{
    json_end(&exchange->writer, '}');
    json_end(&exchange->writer, ']');
}

/* A choice begins: who speaks, and what is echoed. */
static void event_role(struct exchange *exchange, const np_result *result, const struct part *part)
{
    struct json *json = &exchange->writer;
    const struct chat *extra = exchange->extra;
    begin_event(exchange);
    begin_delta(exchange, part->choice, extra->role, extra->echoed, extra->n_echoed_bytes);
    json_key(json, "logprobs");
    json_nil(json);
    json_key(json, "finish_reason");
    json_nil(json);
    end_delta(exchange);
    end_event(exchange, result, part);
}

static void event_tokens(struct exchange *exchange, const np_result *result,
                         const np_generated *choice, const struct part *part)
{
    struct buf text;
    if (part->first) event_role(exchange, result, part);
    buf_init(&text, SIZE_MAX);
    if (part->text_to > part->text_from)
        exchange_text(exchange, 0, part->choice, part->text_from, part->text_to, &text);
    if (text.failed) exchange->out.failed = true;
    begin_event(exchange);
    begin_delta(exchange, part->choice, NULL, text.data ? text.data : "", text.n_bytes);
    buf_free(&text);
    tell_numbers(exchange, choice, part->from, part->to);
    tell_ending(exchange, choice, part->last);
    if (exchange->ask.return_token_ids) {
        json_key(&exchange->writer, "token_ids");
        tell_ids(exchange, choice->token_ids + part->from, part->to - part->from);
    }
    end_delta(exchange);
    end_event(exchange, result, part);
}

static void event_end(struct exchange *exchange, const struct part *part)
{
    const np_result *result = &exchange->results[0];
    bool nothing = exchange->requests[0].max_tokens == 0;
    for (size_t k = 0; nothing && k < n_choices_of(exchange, 0); k++) {
        struct part whole = {.kind = PART_CHOICE, .choice = k, .first = true, .last = true};
        event_tokens(exchange, result, choice_of(exchange, 0, k), &whole);
    }
    if (!exchange->ask.include_usage) return;
    begin_event(exchange);
    json_key(&exchange->writer, "choices");
    json_begin(&exchange->writer, '[');
    json_end(&exchange->writer, ']');
    end_event(exchange, result, part);
}

np_status chat_event(struct exchange *exchange, const struct heard *heard, const struct part *part,
                     np_error *err)
{
    switch (part->kind) {
    case PART_ROWS:
        begin_event(exchange);
        json_key(&exchange->writer, "choices");
        json_begin(&exchange->writer, '[');
        json_end(&exchange->writer, ']');
        end_event(exchange, &heard->result, part);
        break;
    case PART_CHOICE:
        event_tokens(exchange, &heard->result, &heard->choices[part->choice], part);
        break;
    case PART_END: event_end(exchange, part); break;
    }
    return NP_OK;
}
