/*
 * bpe.h - byte-pair merges: the bytes of one piece become ids.
 *
 * Every byte starts as the token of that byte. Again and again the neighbours whose merge has the
 * lowest rank are joined, the leftmost of equals first, until no neighbours have a merge.
 */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "base/arena.h"
#include <stdbool.h>

struct bpe_token {
    const char *bytes;
    uint32_t n_bytes;
};
struct bpe_merge {
    uint32_t left, right, joined;
};
struct bpe_slot {
    uint32_t hash, n;
}; /* id + 1, 0 is free */

struct bpe {
    const struct bpe_token *tokens; /* [n_vocab] by id; bytes NULL: no token */
    uint32_t n_vocab;
    struct bpe_slot *token_slots; /* open addressing */
    uint32_t token_mask;
    int32_t byte_ids[256];    /* -1: no token of that byte */
    struct bpe_merge *merges; /* [n_merges] by rank */
    uint32_t n_merges, max_merges;
    uint32_t *merge_slots; /* rank + 1, 0 is free */
    uint32_t merge_mask;
    bool whole_pieces; /* a piece that is a token is that token, whatever the merges say */
};

/* Room for tokens and merges in `arena`. `tokens` is borrowed. */
np_status bpe_init(struct bpe *bpe, struct arena *arena, const struct bpe_token *tokens,
                   uint32_t n_vocab, size_t n_merges, np_error *err);

/* Makes token `id` one that merges may give. NP_EFORMAT: another token has the same bytes. */
np_status bpe_add_token(struct bpe *bpe, uint32_t id, const char *where, np_error *err);

/* The next merge in order of rank, by the bytes of its two sides. NP_EFORMAT: a side, or both
 * together, is no token, or the pair has a merge already. */
np_status bpe_add_merge(struct bpe *bpe, struct bpe_token left, struct bpe_token right,
                        const char *where, np_error *err);

int32_t bpe_find(const struct bpe *bpe, const char *bytes, size_t n_bytes); /* -1: no such token */

/* Work space of one thread; grows with the longest piece. */
struct bpe_space {
    struct bpe_symbol *symbols;
    uint64_t *heap;
    size_t n_allocated;
};
void bpe_space_free(struct bpe_space *space);

/* Encodes a piece. symbols: where the ids stand afterwards, a chain from symbol 0 by `next`; each
 * covers bytes [symbol number, symbol number + n_bytes) of the piece. NP_EINPUT: a byte has no
 * token (offset in the piece). */
struct bpe_symbol {
    uint32_t id;
    uint32_t n_bytes;
    uint32_t previous, next; /* BPE_END: none */
};
#define BPE_END UINT32_MAX
np_status bpe_encode(const struct bpe *bpe, struct bpe_space *space, const char *piece,
                     size_t n_bytes, np_error *err);

#endif
