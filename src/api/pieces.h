/*
 * pieces.h - the tokens of a document of any size, piece by piece: the very ids of the whole text.
 *
 *   read --> |unsettled rest|new block| --encode--> |tokens that are settled|rest| --> next piece
 *
 * Memory: a block, the rest, and their tokens. Where no place to cut is found, twice as much is
 * read; more than PIECES_MAX_BYTES of such text are refused.
 */
#ifndef API_PIECES_H
#define API_PIECES_H

#include "base/buf.h"
#include "text/tokenizer.h"

#define PIECES_BLOCK_BYTES ((size_t)1 << 18)
#define PIECES_MAX_BYTES ((size_t)1 << 23)

struct pieces {
    const struct tokenizer *tokenizer;
    const np_document *document;
    bool parse_special;
    size_t block_bytes;  /* read at once */
    struct buf text;     /* what is not handed out yet */
    uint64_t text_begin; /* its place in the document */
    uint64_t n_read;
    bool read_all; /* the document has been read to its end */
    bool ended;    /* and handed out */
};

void pieces_begin(struct pieces *pieces, const struct tokenizer *tokenizer,
                  const np_document *document, bool parse_special, size_t block_bytes);
void pieces_end(struct pieces *pieces);

/* The next tokens, without BOS and EOS; their spans count from an arbitrary place. At the end there
 * may be none; pieces->ended says so. Freed by encoding_free, also after an error. Errors: those of
 * the document's `read`; NP_EINPUT (a byte without a token), NP_ELIMIT (no place to cut), with the
 * byte of the document; NP_ENOMEM. */
np_status pieces_next(struct pieces *pieces, struct encoding *out, np_error *err);

#endif
