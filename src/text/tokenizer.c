/*
 * tokenizer.c - builds a tokenizer of a recipe, and encodes with it.
 *
 *   text --added tokens--> parts --NFC--> --added tokens of the normalised text--> parts
 *        --split--> pieces --merges--> ids
 *
 * Positions in a part are turned into bytes of the text when a token is written down, so spans
 * always tile the text as it was given.
 *
 * Surprise: pieces that came before in the same call are not merged again. What is remembered is
 * where their tokens stand in the answer, so the memory of that is one small table, and nothing
 * outlives the call.
 */
#include "text/alphabet.h"
#include "text/nfc.h"
#include "text/recipe.h"
#include "text/tokenizer_inside.h"

#define TOKENIZER_MAX_BYTES ((size_t)1 << 31)

/* ---- building ---------------------------------------------------------------------------------
 */

/* Copies the bytes of all tokens. Merges can give those of the model whose text is in the alphabet,
 * as long as an added token of that text has the same bytes. */
static np_status copy_tokens(struct tokenizer *tokenizer, const struct recipe *recipe,
                             np_error *err)
{
    size_t n_bytes = 0, n = recipe->n_vocab;
    for (size_t i = 0; i < n; i++) n_bytes += recipe->tokens[i].n_bytes;
    struct bpe_token *tokens = arena_push_array(&tokenizer->arena, n + 1, sizeof *tokens);
    char *bytes = arena_push(&tokenizer->arena, n_bytes + 1);
    tokenizer->flags = arena_push(&tokenizer->arena, n + 1);
    if (!tokens || !bytes || !tokenizer->flags)
        return error_nomem(err, "the vocabulary", n_bytes + n * 17);
    tokenizer->tokens = tokens;
    tokenizer->n_vocab = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const struct recipe_token *from = &recipe->tokens[i];
        if (!from->text) continue;
        bool written = alphabet_decode(from->text, from->n_bytes, bytes, &tokens[i].n_bytes);
        if (written && from->flags & TOKEN_ADDED && from->flags & TOKEN_IN_MODEL &&
            tokens[i].n_bytes != from->n_bytes)
            return error_set(
                err, NP_EUNSUPPORTED, recipe->where, NO_OFFSET,
                "added token %zu stands for two texts: its own, and that of a token of the model",
                i);
        tokenizer->flags[i] = (uint8_t)from->flags;
        if (!written || (from->flags & TOKEN_ADDED && tokens[i].n_bytes != from->n_bytes)) {
            tokens[i].n_bytes = from->n_bytes;
            memcpy(bytes, from->text, from->n_bytes);
            tokenizer->flags[i] &= (uint8_t)~TOKEN_IN_MODEL;
        }
        tokens[i].bytes = bytes;
        bytes += tokens[i].n_bytes;
    }
    return NP_OK;
}

static np_status build_merges(struct tokenizer *tokenizer, const struct recipe *recipe,
                              np_error *err)
{
    char scratch[2][ALPHABET_MAX_BYTES];
    for (size_t i = 0; i < recipe->n_merges; i++) {
        const struct text_view *sides[2] = {&recipe->merges[i].left, &recipe->merges[i].right};
        struct bpe_token bytes[2];
        for (int k = 0; k < 2; k++) {
            bytes[k].bytes = scratch[k];
            if (sides[k]->n_bytes > sizeof scratch[k] ||
                !alphabet_decode(sides[k]->bytes, sides[k]->n_bytes, scratch[k], &bytes[k].n_bytes))
                return error_set(err, NP_EFORMAT, recipe->where, NO_OFFSET,
                                 "merge %zu is not written in the byte-level alphabet", i);
        }
        TRY(bpe_add_merge(&tokenizer->bpe, bytes[0], bytes[1], recipe->where, err));
    }
    return NP_OK;
}

static np_status build_bpe(struct tokenizer *tokenizer, const struct recipe *recipe, np_error *err)
{
    struct bpe *bpe = &tokenizer->bpe;
    TRY(bpe_init(bpe, &tokenizer->arena, tokenizer->tokens, recipe->n_vocab, recipe->n_merges,
                 err));
    bpe->whole_pieces = recipe->ignore_merges;
    for (uint32_t id = 0; id < recipe->n_vocab; id++)
        if (tokenizer->flags[id] & TOKEN_IN_MODEL) TRY(bpe_add_token(bpe, id, recipe->where, err));
    return build_merges(tokenizer, recipe, err);
}

static np_status build_added(struct tokenizer *tokenizer, const struct recipe *recipe,
                             bool normalized, struct added_set *set, np_error *err)
{
    size_t n = 0;
    for (uint32_t id = 0; id < recipe->n_vocab; id++)
        n += (recipe->tokens[id].flags & TOKEN_ADDED) != 0;
    set->tokens = arena_push_array(&tokenizer->arena, n + 1, sizeof *set->tokens);
    if (!set->tokens) return error_nomem(err, "the added tokens", n * sizeof *set->tokens);
    for (uint32_t id = 0; id < recipe->n_vocab; id++) {
        const struct recipe_token *from = &recipe->tokens[id];
        if (!from->text || !(from->flags & TOKEN_ADDED) ||
            !(from->flags & TOKEN_NORMALIZED) == normalized)
            continue;
        if (from->n_bytes > ADDED_MAX_BYTES)
            return error_set(err, NP_ELIMIT, recipe->where, NO_OFFSET,
                             "added token %u has %u bytes; at most %d are allowed", id,
                             from->n_bytes, ADDED_MAX_BYTES);
        struct added_token *token = &set->tokens[set->n_tokens++];
        *token = (struct added_token){.bytes = tokenizer->tokens[id].bytes,
                                      .n_bytes = from->n_bytes,
                                      .id = (int32_t)id,
                                      .special = from->flags & TOKEN_SPECIAL,
                                      .lstrip = from->flags & TOKEN_LSTRIP,
                                      .rstrip = from->flags & TOKEN_RSTRIP,
                                      .single_word = from->flags & TOKEN_SINGLE_WORD};
        struct nfc nfc = {0};
        if (normalized && tokenizer->nfc)
            TRY(nfc_normalise(token->bytes, token->n_bytes, &nfc, err));
        if (nfc.bytes) {
            token->bytes = arena_strndup(&tokenizer->arena, nfc.bytes, nfc.n_bytes);
            token->n_bytes = (uint32_t)nfc.n_bytes;
            nfc_free(&nfc);
            if (!token->bytes) return error_nomem(err, "the added tokens", token->n_bytes);
        }
    }
    added_seal(set);
    return NP_OK;
}

static np_status copy_view(struct arena *arena, struct text_view from, const char **out,
                           np_error *err)
{
    *out = NULL;
    if (!from.bytes) return NP_OK;
    *out = arena_strndup(arena, from.bytes, from.n_bytes);
    return *out ? NP_OK : error_nomem(err, "the tokenizer", from.n_bytes);
}

static np_status copy_names(struct tokenizer *tokenizer, const struct recipe *recipe, np_error *err)
{
    const int32_t ids[] = {[TOKENIZER_BOS] = recipe->bos, [TOKENIZER_EOS] = recipe->eos};
    for (size_t i = 0; i < TOKENIZER_TEMPLATES; i++) {
        tokenizer->templates[i].n_bytes = recipe->templates[i].n_bytes;
        TRY(copy_view(&tokenizer->arena, recipe->templates[i], &tokenizer->templates[i].bytes,
                      err));
    }
    for (size_t i = 0; i < TOKENIZER_NAMES; i++) {
        struct text_view view = recipe->named[i];
        bool known = i < sizeof ids / sizeof *ids && ids[i] >= 0;
        if (!view.bytes && known)
            view = (struct text_view){recipe->tokens[ids[i]].text, recipe->tokens[ids[i]].n_bytes};
        TRY(copy_view(&tokenizer->arena, view, &tokenizer->names[i], err));
    }
    return NP_OK;
}

np_status tokenizer_build(const struct recipe *recipe, struct tokenizer **out, np_error *err)
{
    *out = NULL;
    struct tokenizer *tokenizer = mem_alloc(1, sizeof *tokenizer);
    if (!tokenizer) return error_nomem(err, "the tokenizer", sizeof *tokenizer);
    arena_init(&tokenizer->arena, TOKENIZER_MAX_BYTES);
    tokenizer->nfc = recipe->nfc;
    tokenizer->prefix_space = recipe->prefix_space;
    tokenizer->bos = recipe->bos;
    tokenizer->eos = recipe->eos;
    tokenizer->n_before = recipe->n_before;
    tokenizer->n_after = recipe->n_after;
    memcpy(tokenizer->before, recipe->before, sizeof recipe->before);
    memcpy(tokenizer->after, recipe->after, sizeof recipe->after);
    snprintf(tokenizer->describe, sizeof tokenizer->describe, "byte-level BPE, splitting rule %s",
             recipe->rule);
    np_status status = copy_names(tokenizer, recipe, err);
    if (!status) status = copy_tokens(tokenizer, recipe, err);
    if (!status) status = build_bpe(tokenizer, recipe, err);
    if (!status) status = build_added(tokenizer, recipe, false, &tokenizer->added, err);
    if (!status) status = build_added(tokenizer, recipe, true, &tokenizer->normalized, err);
    if (!status)
        status = splitter_init(&tokenizer->splitter, &tokenizer->arena, recipe->steps,
                               recipe->n_steps, recipe->where, err);
    if (status)
        tokenizer_close(tokenizer);
    else
        *out = tokenizer;
    return status;
}

np_status tokenizer_open(const struct modelfile *file, struct tokenizer **out, np_error *err)
{
    struct recipe recipe;
    bool found = false;
    *out = NULL;
    const struct setting *type = modelfile_get(file, "model_type");
    recipe_init(&recipe, modelfile_path(file));
    np_status status =
        modelfile_container(file) == CONTAINER_GGUF
            ? recipe_from_gguf(&recipe, file, &found, err)
            : recipe_from_folder(&recipe, modelfile_folder(file),
                                 type && type->type == SETTING_STRING ? type->text.bytes : NULL,
                                 &found, err);
    if (!status && found) status = tokenizer_build(&recipe, out, err);
    recipe_free(&recipe);
    return status;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer) return;
    splitter_free(&tokenizer->splitter);
    arena_free(&tokenizer->arena);
    mem_free(tokenizer);
}

/* ---- encoding ---------------------------------------------------------------------------------
 */

struct seen_piece {
    const char *bytes;
    size_t n_bytes, first_token, n_tokens;
};
#define MAX_SEEN ((size_t)1 << 13)
#define MAX_SEEN_BYTES 64

struct encoder {
    const struct tokenizer *tokenizer;
    struct encoding *out;
    size_t n_allocated;
    struct split_space split;
    struct bpe_space bpe;
    struct seen_piece *seen; /* [n_seen], a power of two */
    size_t n_seen;
    /* the part at hand */
    const unsigned char *literal; /* [of the text] where no special token may stand; NULL */
    const char *part;
    size_t inserted;       /* bytes at its start that are not of the text */
    size_t origin;         /* of its first other byte, in the text or in `nfc` */
    const struct nfc *nfc; /* NULL: the part is of the text itself */
    size_t nfc_base, nfc_run;
};

static np_status push_token(struct encoder *encoder, int32_t id, size_t begin, size_t end,
                            np_error *err)
{
    struct encoding *out = encoder->out;
    if (out->n_tokens == encoder->n_allocated) {
        size_t n = encoder->n_allocated ? 2 * encoder->n_allocated : 64;
        struct token_span *grown = mem_resize(out->tokens, n * sizeof *grown);
        if (!grown) return error_nomem(err, "the tokens of a text", n * sizeof *grown);
        out->tokens = grown;
        encoder->n_allocated = n;
    }
    out->tokens[out->n_tokens++] = (struct token_span){id, begin, end};
    return NP_OK;
}

/* Byte `at` of the part as a byte of the text. */
static size_t origin_of(struct encoder *encoder, size_t at)
{
    at = encoder->origin + (at > encoder->inserted ? at - encoder->inserted : 0);
    return encoder->nfc ? encoder->nfc_base + nfc_origin(encoder->nfc, at, &encoder->nfc_run) : at;
}

static struct seen_piece *seen_slot(struct encoder *encoder, const char *bytes, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    return &encoder->seen[(h ^ h >> 29) & (encoder->n_seen - 1)];
}

static np_status encode_piece(void *ctx, size_t begin, size_t end, np_error *err)
{
    struct encoder *encoder = ctx;
    const char *bytes = encoder->part + begin;
    size_t n = end - begin, first = encoder->out->n_tokens;
    bool plain = encoder->seen && !encoder->nfc && !encoder->inserted && n <= MAX_SEEN_BYTES;
    struct seen_piece *seen = plain ? seen_slot(encoder, bytes, n) : NULL;
    if (seen && seen->n_bytes == n && !memcmp(seen->bytes, bytes, n)) {
        size_t old = encoder->out->tokens[seen->first_token].begin, new = encoder->origin + begin;
        for (size_t i = 0; i < seen->n_tokens; i++) {
            struct token_span token = encoder->out->tokens[seen->first_token + i];
            TRY(push_token(encoder, token.id, token.begin - old + new, token.end - old + new, err));
        }
        return NP_OK;
    }
    np_status status = bpe_encode(&encoder->tokenizer->bpe, &encoder->bpe, bytes, n, err);
    if (status == NP_EINPUT && err)
        err->offset = (int64_t)origin_of(encoder, begin + (size_t)err->offset);
    TRY(status);
    for (uint32_t at = 0; at != BPE_END; at = encoder->bpe.symbols[at].next) {
        const struct bpe_symbol *symbol = &encoder->bpe.symbols[at];
        size_t from = origin_of(encoder, begin + at);
        size_t to = origin_of(encoder, begin + at + symbol->n_bytes);
        TRY(push_token(encoder, (int32_t)symbol->id, from, to, err));
    }
    if (seen) *seen = (struct seen_piece){bytes, n, first, encoder->out->n_tokens - first};
    return NP_OK;
}

/* Text without added tokens. */
static np_status encode_plain(struct encoder *encoder, const char *text, size_t n, np_error *err)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    char *spaced = NULL;
    encoder->part = text;
    encoder->inserted = 0;
    if (tokenizer->prefix_space && n && text[0] != ' ') {
        spaced = mem_alloc(n + 1, 1);
        if (!spaced) return error_nomem(err, "a text", n + 1);
        spaced[0] = ' ';
        memcpy(spaced + 1, text, n);
        encoder->part = spaced;
        encoder->inserted = 1;
    }
    np_status status = splitter_run(&tokenizer->splitter, &encoder->split, encoder->part,
                                    n + encoder->inserted, encode_piece, encoder, err);
    mem_free(spaced);
    return status;
}

/* What is literal of the part at hand, n bytes, in a copy. */
static np_status literal_part(struct encoder *encoder, size_t begin, size_t n, unsigned char **out,
                              np_error *err)
{
    if (!encoder->literal || !encoder->tokenizer->normalized.n_tokens) return NP_OK;
    *out = mem_alloc(n, 1);
    if (!*out) return error_nomem(err, "a text", n);
    encoder->inserted = 0;
    encoder->origin = encoder->nfc ? 0 : begin;
    for (size_t i = 0; i < n; i++) (*out)[i] = encoder->literal[origin_of(encoder, i)];
    encoder->nfc_run = 0;
    return NP_OK;
}

/* Text without added tokens that are looked for as given: [begin, end) of the whole text. */
static np_status encode_part(struct encoder *encoder, const char *text, size_t begin, size_t end,
                             bool parse_special, np_error *err)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    struct nfc nfc = {0};
    if (tokenizer->nfc) TRY(nfc_normalise(text + begin, end - begin, &nfc, err));
    unsigned char *literal = NULL;
    const char *bytes = nfc.bytes ? nfc.bytes : text + begin;
    size_t n = nfc.bytes ? nfc.n_bytes : end - begin, base = nfc.bytes ? 0 : begin;
    encoder->nfc = nfc.bytes ? &nfc : NULL;
    encoder->nfc_base = begin;
    encoder->nfc_run = 0;
    np_status status = literal_part(encoder, begin, n, &literal, err);
    for (size_t at = 0, from, to; at < n && !status; at = to) {
        const struct added_token *token =
            added_find(&tokenizer->normalized, bytes, literal, n, at, parse_special, &from, &to);
        if (!token) from = to = n;
        encoder->origin = base + at;
        status = encode_plain(encoder, bytes + at, from - at, err);
        if (status || !token) continue;
        encoder->origin = base + from;
        encoder->inserted = 0;
        size_t first = origin_of(encoder, 0);
        status = push_token(encoder, token->id, first, origin_of(encoder, to - from), err);
    }
    encoder->nfc = NULL;
    nfc_free(&nfc);
    mem_free(literal);
    return status;
}

static np_status encode_text(struct encoder *encoder, const char *text, size_t n,
                             bool parse_special, np_error *err)
{
    for (size_t at = 0, begin, end; at < n; at = end) {
        const struct added_token *token = added_find(
            &encoder->tokenizer->added, text, encoder->literal, n, at, parse_special, &begin, &end);
        if (!token) begin = end = n;
        TRY(encode_part(encoder, text, at, begin, parse_special, err));
        if (token) TRY(push_token(encoder, token->id, begin, end, err));
    }
    return NP_OK;
}

np_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t n_bytes,
                           bool add_special, bool parse_special, struct encoding *out,
                           np_error *err)
{
    return tokenizer_encode_parts(tokenizer, text, NULL, n_bytes, add_special, parse_special, out,
                                  err);
}

np_status tokenizer_encode_parts(const struct tokenizer *tokenizer, const char *text,
                                 const unsigned char *literal, size_t n_bytes, bool add_special,
                                 bool parse_special, struct encoding *out, np_error *err)
{
    struct encoder encoder = {.tokenizer = tokenizer, .out = out, .literal = literal};
    *out = (struct encoding){0};
    if (n_bytes > TOKENIZER_MAX_TEXT_BYTES)
        return error_set(err, NP_ELIMIT, "text", NO_OFFSET,
                         "a text of %zu bytes; at most %zu are allowed", n_bytes,
                         TOKENIZER_MAX_TEXT_BYTES);
    for (encoder.n_seen = 64; encoder.n_seen < n_bytes / 16 && encoder.n_seen < MAX_SEEN;)
        encoder.n_seen *= 2;
    encoder.seen = mem_alloc(encoder.n_seen, sizeof *encoder.seen);
    np_status status = encoder.seen
                           ? split_space_init(&encoder.split, &tokenizer->splitter, err)
                           : error_nomem(err, "a text", encoder.n_seen * sizeof *encoder.seen);
    for (size_t i = 0; add_special && i < tokenizer->n_before && !status; i++)
        status = push_token(&encoder, tokenizer->before[i], 0, 0, err);
    if (!status) status = encode_text(&encoder, text, n_bytes, parse_special, err);
    for (size_t i = 0; add_special && i < tokenizer->n_after && !status; i++)
        status = push_token(&encoder, tokenizer->after[i], n_bytes, n_bytes, err);
    split_space_free(&encoder.split);
    bpe_space_free(&encoder.bpe);
    mem_free(encoder.seen);
    if (status) encoding_free(out);
    return status;
}

void encoding_free(struct encoding *encoding)
{
    if (!encoding) return;
    mem_free(encoding->tokens);
    *encoding = (struct encoding){0};
}

/* ---- what a tokenizer knows -------------------------------------------------------------------
 */

int32_t tokenizer_n_vocab(const struct tokenizer *tokenizer)
{
    return (int32_t)tokenizer->n_vocab;
}

const char *tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *n_bytes)
{
    if (id < 0 || (uint32_t)id >= tokenizer->n_vocab) return *n_bytes = 0, NULL;
    *n_bytes = tokenizer->tokens[id].n_bytes;
    return tokenizer->tokens[id].bytes;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && (uint32_t)id < tokenizer->n_vocab && tokenizer->flags[id] & TOKEN_SPECIAL;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->bos;
}
int32_t tokenizer_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->eos;
}
const int32_t *tokenizer_edge(const struct tokenizer *tokenizer, bool behind, size_t *n)
{
    *n = behind ? tokenizer->n_after : tokenizer->n_before;
    return behind ? tokenizer->after : tokenizer->before;
}
bool tokenizer_adds_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->n_before > 0;
}
bool tokenizer_adds_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->n_after > 0;
}
const char *tokenizer_describe(const struct tokenizer *tokenizer)
{
    return tokenizer->describe;
}

const char *const tokenizer_names[TOKENIZER_NAMES] = {"bos_token",  "eos_token",      "unk_token",
                                                      "pad_token",  "sep_token",      "cls_token",
                                                      "mask_token", "tokenizer_class"};

const char *tokenizer_template(const struct tokenizer *tokenizer, enum tokenizer_template which,
                               size_t *n_bytes)
{
    *n_bytes = tokenizer->templates[which].n_bytes;
    return tokenizer->templates[which].bytes;
}
const char *tokenizer_named(const struct tokenizer *tokenizer, enum tokenizer_name which)
{
    return tokenizer->names[which];
}
