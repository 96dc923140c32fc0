/*
 * encode.c - text and ids at the door of the library.
 */
#include "api/handles.h"

np_status need_pointer(const void *pointer, const char *where, np_error *err)
{
    if (pointer) return NP_OK;
    return error_set(err, NP_EINPUT, where, NO_OFFSET, "this pointer must not be NULL");
}

np_status need_tokenizer(const np_model *model, np_error *err)
{
    if (model->tokenizer) return NP_OK;
    return error_set(err, NP_EUNSUPPORTED, model->path, NO_OFFSET,
                     "the model has no tokenizer: give token ids instead of text");
}

np_status check_choice(const char *where, int given, int highest, np_error *err)
{
    if (given >= 0 && given <= highest) return NP_OK;
    error_set(err, NP_EINPUT, where, NO_OFFSET, "must be 0 to %d", highest);
    return error_given(err, NP_EINPUT, "%d", given);
}

np_status encode_request(const np_model *model, const np_request *request, struct encoding *out,
                         np_error *err)
{
    bool add = request->add_special != NP_NO, parse = request->parse_special != NP_NO;
    bool bos = request->condition == NP_CONDITION_BOS;
    memset(out, 0, sizeof *out);
    TRY(check_choice("condition", (int)request->condition, NP_CONDITION_NONE, err));
    TRY(check_choice("add_special", (int)request->add_special, NP_NO, err));
    TRY(check_choice("parse_special", (int)request->parse_special, NP_NO, err));
    TRY(need_tokenizer(model, err));
    if (request->condition != NP_CONDITION_DEFAULT) {
        if (request->add_special != NP_DEFAULT)
            return error_set(err, NP_EINPUT, "condition", NO_OFFSET,
                             "condition and add_special say the same thing: give one of them");
        add = false;
    }
    int32_t bos_id = tokenizer_bos(model->tokenizer);
    if (bos && bos_id < 0)
        return error_set(err, NP_EINPUT, "condition", NO_OFFSET,
                         "the model has no beginning-of-sequence token");
    TRY(tokenizer_encode(model->tokenizer, request->text, request->n_bytes, add, parse, out, err));
    if (!bos) return NP_OK;
    struct token_span *tokens = mem_resize(out->tokens, (out->n_tokens + 1) * sizeof *tokens);
    if (!tokens) {
        encoding_free(out);
        return error_nomem(err, "token ids", out->n_tokens * sizeof *tokens);
    }
    memmove(tokens + 1, tokens, out->n_tokens * sizeof *tokens);
    tokens[0] = (struct token_span){bos_id, 0, 0};
    out->tokens = tokens;
    out->n_tokens++;
    return NP_OK;
}

np_status encoding_tokens(const struct encoding *encoding, np_tokens *out, np_error *err)
{
    size_t n = encoding->n_tokens;
    out->token_ids = mem_alloc(n ? n : 1, sizeof(int32_t));
    out->begin = mem_alloc(n ? n : 1, sizeof(size_t));
    out->end = mem_alloc(n ? n : 1, sizeof(size_t));
    if (!out->token_ids || !out->begin || !out->end) {
        np_tokens_free(out);
        return error_nomem(err, "token ids", n * sizeof(size_t));
    }
    out->n_tokens = n;
    for (size_t i = 0; i < n; i++) {
        out->token_ids[i] = encoding->tokens[i].id;
        out->begin[i] = encoding->tokens[i].begin;
        out->end[i] = encoding->tokens[i].end;
    }
    return NP_OK;
}

np_status np_tokenize(const np_model *model, const char *text, size_t n_bytes,
                      np_choice add_special, np_choice parse_special, np_tokens *out, np_error *err)
{
    np_request request = {.text = text,
                          .n_bytes = n_bytes,
                          .add_special = add_special,
                          .parse_special = parse_special};
    struct encoding encoding;
    TRY(need_pointer(out, "out", err));
    memset(out, 0, sizeof *out);
    TRY(need_pointer(model, "model", err));
    if (n_bytes) TRY(need_pointer(text, "text", err));
    if (err) memset(err, 0, sizeof *err);
    TRY(encode_request(model, &request, &encoding, err));
    np_status status = encoding_tokens(&encoding, out, err);
    encoding_free(&encoding);
    return status;
}

void np_tokens_free(np_tokens *tokens)
{
    if (!tokens) return;
    mem_free(tokens->token_ids);
    mem_free(tokens->begin);
    mem_free(tokens->end);
    memset(tokens, 0, sizeof *tokens);
}

static np_status check_id(const np_model *model, size_t i, int32_t id, np_error *err)
{
    char where[48];
    size_t n_vocab = model->model->config.n_vocab;
    if (id >= 0 && (size_t)id < n_vocab) return NP_OK;
    snprintf(where, sizeof where, "token_ids[%zu]", i);
    error_set(err, NP_EINPUT, where, NO_OFFSET, "an id from 0 to %zu is expected", n_vocab - 1);
    return error_given(err, NP_EINPUT, "%d", (int)id);
}

np_status np_token_bytes(const np_model *model, int32_t token_id, const char **bytes,
                         size_t *n_bytes, np_error *err)
{
    TRY(need_pointer(bytes, "bytes", err));
    TRY(need_pointer(n_bytes, "n_bytes", err));
    *bytes = "";
    *n_bytes = 0;
    TRY(need_pointer(model, "model", err));
    if (err) memset(err, 0, sizeof *err);
    TRY(need_tokenizer(model, err));
    TRY(check_id(model, 0, token_id, err));
    const char *own = tokenizer_bytes(model->tokenizer, token_id, n_bytes);
    if (own)
        *bytes = own;
    else
        *n_bytes = 0;
    return NP_OK;
}

np_status np_detokenize(const np_model *model, const int32_t *token_ids, size_t n_tokens,
                        char **out, size_t *n_bytes, np_error *err)
{
    struct buf text;
    TRY(need_pointer(out, "out", err));
    TRY(need_pointer(n_bytes, "n_bytes", err));
    *out = NULL;
    *n_bytes = 0;
    TRY(need_pointer(model, "model", err));
    if (n_tokens) TRY(need_pointer(token_ids, "token_ids", err));
    if (err) memset(err, 0, sizeof *err);
    TRY(need_tokenizer(model, err));
    for (size_t i = 0; i < n_tokens; i++) TRY(check_id(model, i, token_ids[i], err));
    buf_init(&text, TOKENIZER_MAX_TEXT_BYTES);
    buf_push(&text, "", 0);
    for (size_t i = 0; i < n_tokens; i++) {
        size_t n;
        const char *bytes = tokenizer_bytes(model->tokenizer, token_ids[i], &n);
        if (bytes) buf_push(&text, bytes, n);
    }
    buf_extend(&text, 0);
    if (text.failed) {
        buf_free(&text);
        return error_nomem(err, "text", text.n_bytes);
    }
    *out = buf_take(&text, n_bytes);
    if (*out) return NP_OK;
    *out = mem_alloc(1, 1);
    return *out ? NP_OK : error_nomem(err, "text", 1);
}

void np_free(void *memory)
{
    mem_free(memory);
}
