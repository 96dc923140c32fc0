/*
 * pieces.c - reads a document in blocks and encodes what is settled of it.
 *
 * The surprise: a piece is encoded together with the unsettled text behind it, and only the tokens
 * before the place to cut are kept. That place is safe for what follows; how the text before it is
 * split, though, may have been decided by a look ahead across it.
 */
#include "api/pieces.h"

#include <inttypes.h>

void pieces_begin(struct pieces *pieces, const struct tokenizer *tokenizer,
                  const np_document *document, bool parse_special, size_t block_bytes)
{
    *pieces = (struct pieces){.tokenizer = tokenizer,
                              .document = document,
                              .parse_special = parse_special,
                              .block_bytes = block_bytes};
    buf_init(&pieces->text, 2 * PIECES_MAX_BYTES + block_bytes);
}

void pieces_end(struct pieces *pieces)
{
    buf_free(&pieces->text);
}

/* At most n bytes to `out`; 0 at the end. */
static np_status read_some(struct pieces *pieces, char *out, size_t n, size_t *n_read,
                           np_error *err)
{
    const np_document *document = pieces->document;
    *n_read = 0;
    if (document->text) {
        uint64_t left = document->n_bytes - pieces->n_read;
        *n_read = left < n ? (size_t)left : n;
        memcpy(out, document->text + pieces->n_read, *n_read);
        return NP_OK;
    }
    if (!document->read) return NP_OK; /* a text of no bytes */
    np_error why = {0};
    int64_t got = document->read(document->read_user, out, n, &why);
    if (got >= 0 && (uint64_t)got <= n) {
        *n_read = (size_t)got;
        return NP_OK;
    }
    if (got >= 0 || why.status == NP_OK)
        return error_set(err, NP_EIO, "read", (int64_t)pieces->n_read,
                         got < 0 ? "the document cannot be read"
                                 : "more bytes were given than asked for");
    if (err) *err = why;
    return why.status;
}

/* Reads n more bytes, fewer at the end of the document. */
static np_status read_block(struct pieces *pieces, size_t n, np_error *err)
{
    struct buf *text = &pieces->text;
    size_t got = 0;
    char *out = buf_extend(text, n);
    if (!out) return error_nomem(err, "a piece of the document", n);
    text->n_bytes -= n;
    for (size_t part = 1; got < n && part > 0; got += part) {
        TRY(read_some(pieces, out + got, n - got, &part, err));
        pieces->n_read += part;
        text->n_bytes += part;
        pieces->read_all = part == 0;
    }
    return NP_OK;
}

/* Drops the first n bytes of the text. */
static void drop(struct pieces *pieces, size_t n)
{
    struct buf *text = &pieces->text;
    memmove(text->data, text->data + n, text->n_bytes - n);
    text->n_bytes -= n;
    pieces->text_begin += n;
}

/* Encodes the text; keeps the tokens that end at n or before. */
static np_status encode(struct pieces *pieces, size_t n, struct encoding *out, np_error *err)
{
    const struct buf *text = &pieces->text;
    TRY(tokenizer_encode(pieces->tokenizer, text->n_bytes ? text->data : "", text->n_bytes, false,
                         pieces->parse_special, out, err));
    while (out->n_tokens > 0 && out->tokens[out->n_tokens - 1].end > n) out->n_tokens--;
    return NP_OK;
}

np_status pieces_next(struct pieces *pieces, struct encoding *out, np_error *err)
{
    struct buf *text = &pieces->text;
    np_error why = {0};
    *out = (struct encoding){0};
    for (size_t n = pieces->block_bytes;; n = text->n_bytes) {
        size_t settled = 0;
        if (!pieces->read_all) TRY(read_block(pieces, n, err));
        if (pieces->read_all)
            settled = text->n_bytes;
        else
            TRY(tokenizer_settled(pieces->tokenizer, text->data, text->n_bytes,
                                  pieces->parse_special, &settled, err));
        if (settled > 0 || pieces->read_all) {
            np_status status = encode(pieces, settled, out, &why);
            /* A fault behind the place may be gone when more is known. */
            bool later = status == NP_EINPUT && why.offset >= (int64_t)settled && !pieces->read_all;
            if (status == NP_OK) {
                drop(pieces, settled);
                pieces->ended = pieces->read_all;
                return NP_OK;
            }
            if (!later) {
                if (why.offset >= 0) why.offset += (int64_t)pieces->text_begin;
                if (err) *err = why;
                return status;
            }
        }
        if (text->n_bytes > PIECES_MAX_BYTES)
            return error_set(err, NP_ELIMIT, "text", (int64_t)pieces->text_begin,
                             "%zu bytes from here are one word, or have no other place where they "
                             "may be cut; at most %zu are allowed",
                             text->n_bytes, PIECES_MAX_BYTES);
    }
}
