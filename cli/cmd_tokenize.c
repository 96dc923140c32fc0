/*
 * tokenize: text to ids with the bytes of each token and its place in the text; --decode: ids to
 * text. The decoded text is written byte for byte, with a line end added only on a terminal.
 */
#include "requests.h"

#include <unistd.h>

static np_status prepare(struct cli *cli, struct question *question, struct arena *arena,
                         np_error *err)
{
    if (cli->info.has_tokenizer) return NP_OK;
    return error_set(err, NP_EUNSUPPORTED, cli->info.path, NO_OFFSET, "the model has no tokenizer");
}

/* The tokens of the question, whether it gave a text or ids; begin and end are NULL for ids. */
static np_status take_tokens(struct cli *cli, struct question *question, np_tokens *tokens,
                             np_error *err)
{
    const np_request *request = &question->request;
    if (!question->has_ids)
        return np_tokenize(cli->model, request->text, request->n_bytes, request->add_special,
                           request->parse_special, tokens, err);
    *tokens = (np_tokens){.n_tokens = question->n_tokens};
    tokens->token_ids = malloc((question->n_tokens + 1) * sizeof *tokens->token_ids);
    if (!tokens->token_ids) return error_nomem(err, "token ids", question->n_tokens);
    for (size_t i = 0; i < question->n_tokens; i++) {
        const char *bytes;
        size_t n_bytes;
        tokens->token_ids[i] = question->token_ids[i];
        np_status status =
            np_token_bytes(cli->model, question->token_ids[i], &bytes, &n_bytes, err);
        if (status == NP_OK) continue;
        np_tokens_free(tokens);
        if (err) snprintf(err->where, sizeof err->where, "token_ids[%zu]", i);
        return status;
    }
    return NP_OK;
}

static void print_bytes(struct cli *cli, int32_t token_id)
{
    const char *bytes = "";
    size_t n_bytes = 0;
    np_token_bytes(cli->model, token_id, &bytes, &n_bytes, NULL);
    json_begin(&cli->json, '[');
    for (size_t i = 0; i < n_bytes; i++) json_int(&cli->json, (unsigned char)bytes[i]);
    json_end(&cli->json, ']');
}

/* Whether encoding their text gives these ids again. */
static bool is_canonical(struct cli *cli, const np_tokens *tokens, const char *text, size_t n_bytes)
{
    np_tokens again;
    if (np_tokenize(cli->model, text, n_bytes, NP_NO, NP_YES, &again, NULL) != NP_OK) return false;
    bool same = again.n_tokens == tokens->n_tokens &&
                memcmp(again.token_ids, tokens->token_ids, again.n_tokens * sizeof(int32_t)) == 0;
    np_tokens_free(&again);
    return same;
}

static void print_text(struct cli *cli, const np_tokens *tokens)
{
    char *text;
    size_t n_bytes;
    json_key(&cli->json, "text");
    if (np_detokenize(cli->model, tokens->token_ids, tokens->n_tokens, &text, &n_bytes, NULL) !=
        NP_OK) {
        json_nil(&cli->json);
        return;
    }
    json_text(&cli->json, text, n_bytes);
    json_key(&cli->json, "canonical");
    json_bool(&cli->json, is_canonical(cli, tokens, text, n_bytes));
    np_free(text);
}

static np_status as_json(struct cli *cli, struct question *question, np_result *result,
                         np_error *err)
{
    struct json *json = &cli->json;
    np_tokens tokens = {0};
    TRY(take_tokens(cli, question, &tokens, err));
    json_begin(json, '{');
    json_id(json, question);
    json_ids(json, "token_ids", tokens.token_ids, tokens.n_tokens);
    json_key(json, "tokens");
    json_begin(json, '[');
    for (size_t i = 0; i < tokens.n_tokens; i++) json_token(cli, tokens.token_ids[i]);
    json_end(json, ']');
    json_key(json, "bytes");
    json_begin(json, '[');
    for (size_t i = 0; i < tokens.n_tokens && output_spill(cli, false); i++)
        print_bytes(cli, tokens.token_ids[i]);
    json_end(json, ']');
    if (tokens.begin) {
        json_key(json, "offsets");
        json_begin(json, '[');
        for (size_t i = 0; i < tokens.n_tokens; i++) {
            json_begin(json, '[');
            json_int(json, (int64_t)tokens.begin[i]);
            json_int(json, (int64_t)tokens.end[i]);
            json_end(json, ']');
        }
        json_end(json, ']');
    } else {
        print_text(cli, &tokens);
    }
    json_key(json, "n_tokens");
    json_int(json, (int64_t)tokens.n_tokens);
    json_end(json, '}');
    np_tokens_free(&tokens);
    return NP_OK;
}

static np_status print_decoded(struct cli *cli, const np_tokens *tokens, np_error *err)
{
    char *text;
    size_t n_bytes;
    TRY(np_detokenize(cli->model, tokens->token_ids, tokens->n_tokens, &text, &n_bytes, err));
    buf_push(&cli->text, text, n_bytes);
    if (!cli->options.output && isatty(STDOUT_FILENO)) buf_puts(&cli->text, "\n");
    np_free(text);
    return NP_OK;
}

static np_status as_table(struct cli *cli, struct question *question, np_result *result,
                          np_error *err)
{
    np_tokens tokens = {0};
    TRY(take_tokens(cli, question, &tokens, err));
    np_status status = NP_OK;
    if (cli->options.decode) {
        status = print_decoded(cli, &tokens, err);
        goto done;
    }
    buf_puts(&cli->text, "   pos      id       bytes  token\n");
    for (size_t i = 0; i < tokens.n_tokens && output_spill(cli, false); i++) {
        char span[48] = "-";
        if (tokens.begin) snprintf(span, sizeof span, "%zu-%zu", tokens.begin[i], tokens.end[i]);
        buf_printf(&cli->text, "%6zu %7d %11s  ", i, (int)tokens.token_ids[i], span);
        visible_token(cli, tokens.token_ids[i], 50);
        while (cli->text.n_bytes && cli->text.data[cli->text.n_bytes - 1] == ' ')
            cli->text.n_bytes--;
        buf_puts(&cli->text, "\n");
    }
    buf_printf(&cli->text, "%zu token%s\n", tokens.n_tokens, tokens.n_tokens == 1 ? "" : "s");
done:
    np_tokens_free(&tokens);
    return status;
}

int command_tokenize(struct cli *cli)
{
    static const struct asker asker = {.prepare = prepare, .json = as_json, .table = as_table};
    return requests_answer(cli, &asker);
}
