/*
 * bpe.c - byte-pair merges in O(n log n).
 *
 * Symbols are a linked list over the bytes of the piece. A heap holds the possible joins as one
 * number, rank in the high half and place in the low one, so that the smallest is the lowest rank,
 * leftmost. Joins are not taken out of the heap when a neighbour changes: what is popped counts
 * only if the two symbols that its merge names still stand at its place.
 *
 * Surprise: a file is not trusted to hash well. A probe longer than MAX_PROBE is an error of the
 * file, so that opening a hostile vocabulary cannot take quadratic time.
 */
#include "text/bpe.h"

#define MAX_PROBE 4096

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0x9E3779B97F4A7C15u;
    return (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
}

static uint32_t hash_bytes(const char *bytes, size_t n)
{
    uint64_t h = n;
    for (; n >= 8; bytes += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        h = mix(h ^ word);
    }
    uint64_t word = 0;
    memcpy(&word, bytes, n);
    return (uint32_t)(mix(h ^ word) >> 32);
}

static uint32_t hash_pair(uint32_t left, uint32_t right)
{
    return (uint32_t)(mix((uint64_t)left << 32 | right) >> 32);
}

/* The mask of slots for n entries: a power of two of them, at most half full. */
static uint32_t slots_mask(size_t n)
{
    uint32_t count = 16;
    while (count < 2 * n) count *= 2;
    return count - 1;
}

np_status bpe_init(struct bpe *bpe, struct arena *arena, const struct bpe_token *tokens,
                   uint32_t n_vocab, size_t n_merges, np_error *err)
{
    *bpe = (struct bpe){.tokens = tokens, .n_vocab = n_vocab, .max_merges = (uint32_t)n_merges};
    for (int i = 0; i < 256; i++) bpe->byte_ids[i] = -1;
    if (n_merges >= UINT32_MAX / 4 || n_vocab >= UINT32_MAX / 4)
        return error_set(err, NP_ELIMIT, NULL, NO_OFFSET, "the vocabulary is too large");
    bpe->token_mask = slots_mask(n_vocab);
    bpe->merge_mask = slots_mask(n_merges);
    bpe->token_slots =
        arena_push_array(arena, (size_t)bpe->token_mask + 1, sizeof *bpe->token_slots);
    bpe->merge_slots =
        arena_push_array(arena, (size_t)bpe->merge_mask + 1, sizeof *bpe->merge_slots);
    bpe->merges = arena_push_array(arena, n_merges ? n_merges : 1, sizeof *bpe->merges);
    if (!bpe->token_slots || !bpe->merge_slots || !bpe->merges)
        return error_nomem(err, "the vocabulary", (n_vocab + n_merges) * 16);
    return NP_OK;
}

/* The slot of these bytes, or the free one where they would stand; *probes counts. */
static uint32_t token_slot(const struct bpe *bpe, const char *bytes, size_t n, uint32_t *probes)
{
    uint32_t hash = hash_bytes(bytes, n), at = hash & bpe->token_mask;
    for (*probes = 1;; at = (at + 1) & bpe->token_mask, ++*probes) {
        struct bpe_slot slot = bpe->token_slots[at];
        if (!slot.n) return at;
        if (slot.hash != hash) continue;
        const struct bpe_token *token = &bpe->tokens[slot.n - 1];
        if (token->n_bytes == n && !memcmp(token->bytes, bytes, n)) return at;
    }
}

static uint32_t merge_slot(const struct bpe *bpe, uint32_t left, uint32_t right, uint32_t *probes)
{
    uint32_t at = hash_pair(left, right) & bpe->merge_mask;
    for (*probes = 1;; at = (at + 1) & bpe->merge_mask, ++*probes) {
        uint32_t slot = bpe->merge_slots[at];
        if (!slot) return at;
        const struct bpe_merge *merge = &bpe->merges[slot - 1];
        if (merge->left == left && merge->right == right) return at;
    }
}

static np_status check_probes(uint32_t probes, const char *where, np_error *err)
{
    if (probes <= MAX_PROBE) return NP_OK;
    return error_set(err, NP_EFORMAT, where, NO_OFFSET,
                     "the vocabulary is made to collide in hash tables");
}

np_status bpe_add_token(struct bpe *bpe, uint32_t id, const char *where, np_error *err)
{
    const struct bpe_token *token = &bpe->tokens[id];
    uint32_t probes, at = token_slot(bpe, token->bytes, token->n_bytes, &probes);
    TRY(check_probes(probes, where, err));
    if (bpe->token_slots[at].n)
        return error_set(err, NP_EFORMAT, where, NO_OFFSET, "tokens %u and %u are the same text",
                         bpe->token_slots[at].n - 1, id);
    bpe->token_slots[at] = (struct bpe_slot){hash_bytes(token->bytes, token->n_bytes), id + 1};
    if (token->n_bytes == 1) bpe->byte_ids[(unsigned char)token->bytes[0]] = (int32_t)id;
    return NP_OK;
}

int32_t bpe_find(const struct bpe *bpe, const char *bytes, size_t n_bytes)
{
    uint32_t probes;
    return (int32_t)bpe->token_slots[token_slot(bpe, bytes, n_bytes, &probes)].n - 1;
}

np_status bpe_add_merge(struct bpe *bpe, struct bpe_token left, struct bpe_token right,
                        const char *where, np_error *err)
{
    char joined[4096];
    uint32_t rank = bpe->n_merges, probes;
    size_t n = (size_t)left.n_bytes + right.n_bytes;
    if (n > sizeof joined)
        return error_set(err, NP_ELIMIT, where, NO_OFFSET,
                         "merge %u has %zu bytes; at most %zu are allowed", rank, n, sizeof joined);
    memcpy(joined, left.bytes, left.n_bytes);
    memcpy(joined + left.n_bytes, right.bytes, right.n_bytes);
    int32_t ids[3] = {bpe_find(bpe, left.bytes, left.n_bytes),
                      bpe_find(bpe, right.bytes, right.n_bytes), bpe_find(bpe, joined, n)};
    static const char *const names[3] = {"left side", "right side", "result"};
    for (int i = 0; i < 3; i++)
        if (ids[i] < 0)
            return error_set(err, NP_EFORMAT, where, NO_OFFSET,
                             "the %s of merge %u is no token of the vocabulary", names[i], rank);
    uint32_t at = merge_slot(bpe, (uint32_t)ids[0], (uint32_t)ids[1], &probes);
    TRY(check_probes(probes, where, err));
    if (bpe->merge_slots[at])
        return error_set(err, NP_EFORMAT, where, NO_OFFSET, "merges %u and %u are the same",
                         bpe->merge_slots[at] - 1, rank);
    bpe->merges[rank] = (struct bpe_merge){(uint32_t)ids[0], (uint32_t)ids[1], (uint32_t)ids[2]};
    bpe->merge_slots[at] = ++bpe->n_merges;
    return NP_OK;
}

void bpe_space_free(struct bpe_space *space)
{
    mem_free(space->symbols);
    mem_free(space->heap);
    *space = (struct bpe_space){0};
}

/* n symbols, and 2 n joins: n - 1 at first, and every join that is done puts at most two in and
 * takes one. */
static np_status reserve(struct bpe_space *space, size_t n, np_error *err)
{
    if (n <= space->n_allocated) return NP_OK;
    bpe_space_free(space);
    if (n < 256) n = 256;
    space->symbols = mem_alloc(n, sizeof *space->symbols);
    space->heap = mem_alloc(n, 2 * sizeof *space->heap);
    if (!space->symbols || !space->heap) {
        bpe_space_free(space);
        return error_nomem(err, "merging a long piece of text", n);
    }
    space->n_allocated = n;
    return NP_OK;
}

static void sift_down(uint64_t *heap, size_t n, size_t at)
{
    uint64_t value = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (value <= heap[child]) break;
        heap[at] = heap[child];
    }
    heap[at] = value;
}

static void sift_up(uint64_t *heap, size_t at)
{
    uint64_t value = heap[at];
    for (; at && heap[(at - 1) / 2] > value; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = value;
}

/* Appends the join of symbols `left` and the one behind it, if there is one. */
static size_t offer(const struct bpe *bpe, const struct bpe_space *space, size_t n_heap,
                    uint32_t left)
{
    uint32_t probes, right = space->symbols[left].next;
    uint32_t slot = bpe->merge_slots[merge_slot(bpe, space->symbols[left].id,
                                                space->symbols[right].id, &probes)];
    if (slot) space->heap[n_heap++] = (uint64_t)(slot - 1) << 32 | left;
    return n_heap;
}

static void join_all(const struct bpe *bpe, const struct bpe_space *space, size_t n_heap)
{
    struct bpe_symbol *symbols = space->symbols;
    for (size_t i = n_heap / 2; i-- > 0;) sift_down(space->heap, n_heap, i);
    while (n_heap) {
        uint32_t left = (uint32_t)space->heap[0], right = symbols[left].next;
        const struct bpe_merge *merge = &bpe->merges[space->heap[0] >> 32];
        space->heap[0] = space->heap[--n_heap];
        if (n_heap) sift_down(space->heap, n_heap, 0);
        if (!symbols[left].n_bytes || right == BPE_END || symbols[left].id != merge->left ||
            symbols[right].id != merge->right)
            continue;
        symbols[left].id = merge->joined;
        symbols[left].n_bytes += symbols[right].n_bytes;
        symbols[left].next = symbols[right].next;
        symbols[right].n_bytes = 0;
        if (symbols[left].next != BPE_END) {
            symbols[symbols[left].next].previous = left;
            size_t n = offer(bpe, space, n_heap, left);
            if (n > n_heap) sift_up(space->heap, n_heap);
            n_heap = n;
        }
        if (symbols[left].previous != BPE_END) {
            size_t n = offer(bpe, space, n_heap, symbols[left].previous);
            if (n > n_heap) sift_up(space->heap, n_heap);
            n_heap = n;
        }
    }
}

np_status bpe_encode(const struct bpe *bpe, struct bpe_space *space, const char *piece,
                     size_t n_bytes, np_error *err)
{
    TRY(reserve(space, n_bytes, err));
    struct bpe_symbol *symbols = space->symbols;
    int32_t whole = bpe->whole_pieces ? bpe_find(bpe, piece, n_bytes) : -1;
    if (whole >= 0) {
        symbols[0] = (struct bpe_symbol){(uint32_t)whole, (uint32_t)n_bytes, BPE_END, BPE_END};
        return NP_OK;
    }
    for (size_t i = 0; i < n_bytes; i++) {
        int32_t id = bpe->byte_ids[(unsigned char)piece[i]];
        if (id < 0)
            return error_set(err, NP_EINPUT, "text", (int64_t)i,
                             "the vocabulary has no token for byte 0x%02x",
                             (unsigned char)piece[i]);
        symbols[i] = (struct bpe_symbol){(uint32_t)id, 1, (uint32_t)(i - 1), (uint32_t)(i + 1)};
    }
    symbols[0].previous = BPE_END;
    symbols[n_bytes - 1].next = BPE_END;
    size_t n_heap = 0;
    for (size_t i = 0; i + 1 < n_bytes; i++) n_heap = offer(bpe, space, n_heap, (uint32_t)i);
    join_all(bpe, space, n_heap);
    return NP_OK;
}
