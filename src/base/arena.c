/*
 * arena.c - a chain of blocks, newest first.
 *
 * Pushes zero what they hand out, since a rewound block is dirty. Under the address sanitizer all
 * that is not handed out is poisoned, with a gap behind every push: an overrun inside a block is
 * then seen as it would be behind malloc. The gap does not count against the ceiling.
 */
#include "base/arena.h"

#include <stdbool.h>

#define ALIGN_BYTES ((size_t)64)
#define FIRST_BLOCK_BYTES ((size_t)32 << 10)

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_POISONS 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_POISONS 1
#endif

#ifdef ARENA_POISONS
#include <sanitizer/asan_interface.h>
#define GAP_BYTES ALIGN_BYTES
#define HIDE(at, n_bytes) ASAN_POISON_MEMORY_REGION(at, n_bytes)
#define SHOW(at, n_bytes) ASAN_UNPOISON_MEMORY_REGION(at, n_bytes)
#else
#define GAP_BYTES ((size_t)0)
#define HIDE(at, n_bytes) ((void)(at), (void)(n_bytes))
#define SHOW(at, n_bytes) ((void)(at), (void)(n_bytes))
#endif

/* Followed by its bytes, 64 behind the start. */
struct arena_block {
    struct arena_block *previous;
    size_t capacity, used; /* without this header */
    size_t touched;        /* what lies behind was never handed out: it is still zero */
};

static char *block_bytes(struct arena_block *block)
{
    return (char *)block + ALIGN_BYTES;
}

static void block_free(struct arena_block *block)
{
    if (!block) return;
    SHOW(block_bytes(block), block->capacity);
    big_free(block, ALIGN_BYTES + block->capacity);
}

void arena_init(struct arena *arena, size_t max_bytes)
{
    *arena = (struct arena){.max_bytes = max_bytes};
}

void arena_free(struct arena *arena)
{
    if (!arena) return;
    arena_rewind(arena, (struct arena_mark){0});
    block_free(arena->spare);
    arena->spare = NULL;
}

/* Makes a block with room for `needed` bytes the head: the spare one, or one twice the last. */
static bool arena_grow(struct arena *arena, size_t needed)
{
    struct arena_block *block = arena->spare;
    if (block && block->capacity >= needed) {
        arena->spare = NULL;
    } else {
        size_t left = arena->max_bytes - arena->used_bytes;
        size_t capacity = arena->head ? arena->head->capacity : FIRST_BLOCK_BYTES / 2;
        capacity = capacity < left / 2 ? capacity * 2 : left;
        if (capacity < needed) capacity = needed;
        if (capacity > SIZE_MAX / 4) return false;
        block = big_alloc(ALIGN_BYTES + capacity);
        if (!block) return false;
        block->capacity = capacity;
        HIDE(block_bytes(block), capacity);
    }
    block->previous = arena->head;
    arena->head = block;
    return true;
}

void *arena_push(struct arena *arena, size_t n_bytes)
{
    size_t left = arena->max_bytes - arena->used_bytes;
    if (n_bytes > left || n_bytes > SIZE_MAX / 4) return NULL;
    size_t rounded = ((n_bytes ? n_bytes : 1) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    if (rounded > left) return NULL;
    struct arena_block *head = arena->head;
    if (!head || head->capacity - head->used < rounded + GAP_BYTES) {
        if (!arena_grow(arena, rounded + GAP_BYTES)) return NULL;
        head = arena->head;
    }
    char *at = block_bytes(head) + head->used;
    size_t again = head->touched > head->used ? head->touched - head->used : 0;
    head->used += rounded + GAP_BYTES;
    if (head->touched < head->used) head->touched = head->used;
    arena->used_bytes += rounded;
    SHOW(at, n_bytes);
    memset(at, 0, again < n_bytes ? again : n_bytes);
    return at;
}

void *arena_push_array(struct arena *arena, size_t count, size_t size_bytes)
{
    if (size_bytes && count > SIZE_MAX / size_bytes) return NULL;
    return arena_push(arena, count * size_bytes);
}

char *arena_strndup(struct arena *arena, const char *text, size_t n_bytes)
{
    char *copy = n_bytes < SIZE_MAX ? arena_push(arena, n_bytes + 1) : NULL;
    if (copy && n_bytes) memcpy(copy, text, n_bytes);
    return copy;
}

struct arena_mark arena_mark(const struct arena *arena)
{
    size_t used_in_head = arena->head ? arena->head->used : 0;
    return (struct arena_mark){arena->head, used_in_head, arena->used_bytes};
}

/* Of two blocks that are not needed now, the larger stays. */
static void arena_keep(struct arena *arena, struct arena_block *block)
{
    struct arena_block *smaller = arena->spare;
    if (!smaller || block->capacity > smaller->capacity)
        arena->spare = block;
    else
        smaller = block;
    block_free(smaller);
}

void arena_rewind(struct arena *arena, struct arena_mark mark)
{
    while (arena->head != mark.head) {
        struct arena_block *block = arena->head;
        arena->head = block->previous;
        block->used = 0;
        HIDE(block_bytes(block), block->capacity);
        arena_keep(arena, block);
    }
    if (arena->head) {
        arena->head->used = mark.used_in_head;
        HIDE(block_bytes(arena->head) + mark.used_in_head,
             arena->head->capacity - mark.used_in_head);
    }
    arena->used_bytes = mark.used_bytes;
}
