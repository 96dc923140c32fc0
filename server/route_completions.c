/*
 * POST /v1/completions: text or ids in, text out; with `echo` the prompt comes back with its
 * numbers, which is how evaluation harnesses score. Prompts come first, then their choices: index
 * runs over everything.
 *
 * A stream tells an echoed prompt as soon as its rows are known, once for each of its choices,
 * since every choice of the plain answer begins with it.
 */
#include "ask_fields.h"
#include "openai.h"
#include "routes.h"

static const struct field completion_fields[] = {
    REQUIRED("prompt", FIELD_PROMPT, prompts, "OpenAI", "token_ids",
             "A text, a list of texts, token ids, or a list of lists of ids. Nothing is added to "
             "ids."),
    NUMBERS("max_tokens", FIELD_INT, max_tokens, 0, COUNT_MAX, "16", "OpenAI", NULL,
            "At most so many tokens follow; 0: none."),
    NUMBERS(
        "logprobs", FIELD_COUNT, logprobs, -1, COUNT_MAX, "null", "OpenAI", "sampling.top",
        "The log-probability of each token and of so many likeliest ones; 0: its own alone; -1: "
        "of the whole vocabulary; true is 1, false none."),
    ROW("echo", FIELD_FLAG, echo, "false", "OpenAI", NULL,
        "The prompt stands before each choice, its numbers among those that logprobs asks for."),
    ONLY("suffix", "[\"\"]", "OpenAI", "Nothing is put between two texts."),
    ONLY("prompt_embeds", "[[]]", "vLLM", "Prompts are tokens."),
    LAST_ROW};
const struct field *const completions_groups[] = {
    completion_fields, openai_fields,  identity_fields, stream_fields, special_fields,
    drawing_fields,    scoring_fields, running_fields,  NULL};

/* What an echo tells of a prompt, and what a stream has told of it. */
struct echoed {
    const char *text;
    size_t n_bytes;
    size_t n_tokens, n_characters;
    bool begun;
};
struct completions {
    struct echoed *prompts; /* [n_requests] */
    bool begun;             /* the stream */
};

/* The text that was given, from the first token that is kept; of ids, theirs. */
static np_status echo_text(struct exchange *exchange, size_t request, struct echoed *echoed,
                           np_error *err)
{
    const struct prompt *prompt = &exchange->ask.prompts.at[request];
    const struct encoded *encoded = &exchange->encoded[request];
    char *text;
    if (!prompt->ids.ids) {
        size_t n_cut = encoded->n_dropped ? encoded->begin[0] : 0;
        echoed->text = prompt->text.bytes + n_cut;
        echoed->n_bytes = prompt->text.n_bytes - n_cut;
        return NP_OK;
    }
    echoed->text = "";
    if (!exchange_info(exchange)->has_tokenizer) return NP_OK;
    TRY(np_detokenize(exchange_model(exchange), encoded->ids, encoded->n, &text, &echoed->n_bytes,
                      err));
    echoed->text = exchange_copy(exchange, text, echoed->n_bytes);
    np_free(text);
    return echoed->text ? NP_OK : error_nomem(err, "prompt", echoed->n_bytes);
}

np_status completions_prepare(struct exchange *exchange, np_error *err)
{
    size_t n = exchange->ask.prompts.n;
    struct completions *extra = arena_push(&exchange->arena, sizeof *extra);
    if (extra) extra->prompts = arena_push_array(&exchange->arena, n, sizeof *extra->prompts);
    if (!extra || !extra->prompts) return error_nomem(err, "prompt", n * sizeof *extra->prompts);
    exchange->extra = extra;
    TRY(openai_begin(exchange, "cmpl-", err));
    TRY(prepare_prompts(exchange, err));
    for (size_t i = 0; i < n && exchange->ask.echo; i++)
        TRY(echo_text(exchange, i, &extra->prompts[i], err));
    return NP_OK;
}

/* ---- the plain answer ------------------------------------------------------------------------ */

static void tell_text(struct exchange *exchange, const struct echoed *echoed,
                      const np_generated *choice)
{
    struct buf text;
    buf_init(&text, SIZE_MAX);
    if (echoed->n_bytes) buf_push(&text, echoed->text, echoed->n_bytes);
    if (choice->text) buf_push(&text, choice->text, choice->n_text_bytes);
    if (text.failed) exchange->out.failed = true;
    json_key(&exchange->writer, "text");
    json_text(&exchange->writer, text.data ? text.data : "", text.n_bytes);
    buf_free(&text);
}

static void tell_choice(struct exchange *exchange, size_t request, size_t choice_number)
{
    struct json *json = &exchange->writer;
    const struct completions *extra = exchange->extra;
    const struct encoded *encoded = &exchange->encoded[request];
    const np_generated *choice = choice_of(exchange, request, choice_number);
    struct legacy legacy = {.prompt_ids = encoded->ids,
                            .result = &exchange->results[request],
                            .prompt_to = exchange->ask.echo ? encoded->n : 0,
                            .choice = choice,
                            .to = choice->n_tokens};
    json_begin(json, '{');
    json_key(json, "index");
    json_int(json, (int64_t)choice_index(exchange, request, choice_number));
    tell_text(exchange, &extra->prompts[request], choice);
    json_key(json, "logprobs");
    if (exchange->ask.logprobs != NOT_GIVEN)
        tell_legacy(exchange, &legacy);
    else
        json_nil(json);
    tell_ending(exchange, choice, true);
    json_key(json, "token_ids");
    if (exchange->ask.return_token_ids)
        tell_ids(exchange, choice->token_ids, choice->n_tokens);
    else
        json_nil(json);
    tell_prompt(exchange, request);
    json_end(json, '}');
}

np_status completions_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    if (reply_npy(exchange)) return NP_OK;
    json_begin(json, '{');
    tell_head(exchange, "id", "text_completion");
    json_key(json, "choices");
    json_begin(json, '[');
    for (size_t i = 0; i < exchange->n_requests; i++)
        for (size_t k = 0; k < n_choices_of(exchange, i); k++) tell_choice(exchange, i, k);
    json_end(json, ']');
    tell_meaning(exchange);
    tell_warnings(exchange);
    json_key(json, "usage");
    tell_usage(exchange, exchange->n_prompt_tokens, exchange->n_generated);
    json_end(json, '}');
    return NP_OK;
}

/* ---- the stream ------------------------------------------------------------------------------ */

static void begin_event(struct exchange *exchange)
{
    struct completions *extra = exchange->extra;
    exchange_event(exchange);
    json_begin(&exchange->writer, '{');
    tell_head(exchange, "id", "text_completion");
    if (!extra->begun) {
        tell_meaning(exchange);
        tell_warnings(exchange);
    }
    extra->begun = true;
    json_key(&exchange->writer, "choices");
    json_begin(&exchange->writer, '[');
}

static void end_event(struct exchange *exchange, const struct part *part)
{
    json_end(&exchange->writer, ']');
    tell_usage_part(exchange, part);
    json_end(&exchange->writer, '}');
    exchange_event_end(exchange);
}

/* The choice of an event, up to its numbers; `legacy` says which, and counts their characters. */
static void begin_choice(struct exchange *exchange, size_t request, size_t choice,
                         const struct buf *text, struct legacy *legacy)
{
    struct json *json = &exchange->writer;
    json_begin(json, '{');
    json_key(json, "index");
    json_int(json, (int64_t)choice_index(exchange, request, choice));
    json_key(json, "text");
    json_text(json, text->data ? text->data : "", text->n_bytes);
    json_key(json, "logprobs");
    if (legacy && exchange->ask.logprobs != NOT_GIVEN)
        tell_legacy(exchange, legacy);
    else
        json_nil(json);
}

/* What a choice's first event says of a prompt that had no row to tell. */
static void tell_rowless(struct exchange *exchange, const np_result *result,
                         const struct part *part)
{
    struct part none = {.kind = PART_ROWS, .request = part->request, .first = true};
    bool wanted = exchange->ask.return_token_ids || ask_told(&exchange->ask) != NOT_GIVEN;
    if (wanted && part->first && !exchange->told[part->request].begun)
        tell_prompt_part(exchange, result, &none);
}

/* Tokens of a prompt up to `to`, if it is echoed, and its text, for each of its choices. */
static void event_prompt(struct exchange *exchange, const np_result *result,
                         const struct part *part, size_t to)
{
    struct completions *extra = exchange->extra;
    struct echoed *echoed = &extra->prompts[part->request];
    bool echo = exchange->ask.echo;
    struct buf text = {.data = (char *)echoed->text,
                       .n_bytes = echoed->begun ? 0 : echoed->n_bytes};
    struct legacy legacy = {0};
    begin_event(exchange);
    for (size_t k = 0; k < n_choices_of(exchange, part->request); k++) {
        legacy = (struct legacy){.prompt_ids = exchange->encoded[part->request].ids,
                                 .result = result,
                                 .prompt_from = echoed->n_tokens,
                                 .prompt_to = to,
                                 .n_characters = echoed->n_characters};
        begin_choice(exchange, part->request, k, &text, echo ? &legacy : NULL);
        json_key(&exchange->writer, "finish_reason");
        json_nil(&exchange->writer);
        if (part->kind == PART_ROWS) tell_prompt_part(exchange, result, part);
        json_end(&exchange->writer, '}');
    }
    echoed->begun = true;
    echoed->n_tokens = to;
    echoed->n_characters = legacy.n_characters;
    end_event(exchange, part);
}

/* An echoed prompt of which no row was to be told. */
static void event_unscored(struct exchange *exchange, const np_result *result,
                           const struct part *part)
{
    const struct completions *extra = exchange->extra;
    if (exchange->ask.echo && !extra->prompts[part->request].begun)
        event_prompt(exchange, result, part, exchange->encoded[part->request].n);
}

static void event_tokens(struct exchange *exchange, const struct heard *heard,
                         const struct part *part)
{
    const struct completions *extra = exchange->extra;
    const np_generated *choice = &heard->choices[part->choice];
    struct told_choice *told = &exchange->told[part->request].choices[part->choice];
    struct legacy legacy = {.choice = choice, .from = part->from, .to = part->to};
    struct buf text;
    if (part->first) told->n_characters = extra->prompts[part->request].n_characters;
    legacy.n_characters = told->n_characters;
    buf_init(&text, SIZE_MAX);
    exchange_text(exchange, part->request, part->choice, part->text_from, part->text_to, &text);
    if (text.failed) exchange->out.failed = true;
    begin_event(exchange);
    begin_choice(exchange, part->request, part->choice, &text, &legacy);
    buf_free(&text);
    told->n_characters = legacy.n_characters;
    tell_ending(exchange, choice, part->last);
    if (exchange->ask.return_token_ids) {
        json_key(&exchange->writer, "token_ids");
        tell_ids(exchange, choice->token_ids + part->from, part->to - part->from);
    }
    tell_rowless(exchange, &heard->result, part);
    json_end(&exchange->writer, '}');
    end_event(exchange, part);
}

/* Choices of a request of which nothing was to follow, each with its end. */
static void event_nothing(struct exchange *exchange, const struct part *part)
{
    static const struct buf empty;
    for (size_t k = 0; k < n_choices_of(exchange, part->request); k++) {
        begin_event(exchange);
        begin_choice(exchange, part->request, k, &empty, NULL);
        tell_ending(exchange, choice_of(exchange, part->request, k), true);
        if (exchange->ask.return_token_ids) {
            json_key(&exchange->writer, "token_ids");
            tell_ids(exchange, NULL, 0);
        }
        tell_rowless(exchange, &exchange->results[part->request], part);
        json_end(&exchange->writer, '}');
        end_event(exchange, part);
    }
}

static void event_end(struct exchange *exchange, const struct part *part)
{
    for (size_t i = 0; i < exchange->n_requests; i++) {
        struct part nothing = {.kind = PART_CHOICE, .request = i, .first = true, .last = true};
        if (exchange->requests[i].max_tokens > 0) continue;
        event_unscored(exchange, &exchange->results[i], &nothing);
        event_nothing(exchange, &nothing);
    }
    if (!exchange->ask.include_usage) return;
    begin_event(exchange);
    end_event(exchange, part);
}

np_status completions_event(struct exchange *exchange, const struct heard *heard,
                            const struct part *part, np_error *err)
{
    const np_result *result = &heard[part->request].result;
    size_t n = exchange->encoded[part->request].n, to = result->start + part->to + 1;
    switch (part->kind) {
    case PART_ROWS: event_prompt(exchange, result, part, to < n ? to : n); break;
    case PART_CHOICE:
        if (part->first) event_unscored(exchange, result, part);
        event_tokens(exchange, &heard[part->request], part);
        break;
    case PART_END: event_end(exchange, part); break;
    }
    return NP_OK;
}
