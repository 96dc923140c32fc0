/*
 * arena.h - memory with one lifetime, and the one door to memory of the whole project.
 *
 *   block 1                      block 2 (twice as large)
 *   [used.......|free......] --> [used..|mark|used...|free...............]
 *
 * Everything pushed lives until the arena is freed or rewound to a mark taken earlier. Allocations
 * are aligned to 64 bytes and zeroed; fresh memory is so without being touched, so that a large
 * push costs what is used of it. An arena has a ceiling in bytes, given at birth. One thread at a
 * time. Rewinding keeps the largest block for the next pushes, so that a step which is repeated
 * soon gets by without the system.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/error.h"

struct arena_block;
struct arena {
    struct arena_block *head;
    struct arena_block *spare; /* kept by arena_rewind; NULL or empty */
    size_t used_bytes;         /* in all blocks, each push rounded up to 64 */
    size_t max_bytes;
};
struct arena_mark {
    struct arena_block *head;
    size_t used_in_head, used_bytes;
};

void arena_init(struct arena *arena, size_t max_bytes);
void arena_free(struct arena *arena);

/* NULL when the ceiling or the memory is reached, or count * size overflows. */
void *arena_push(struct arena *arena, size_t n_bytes);
void *arena_push_array(struct arena *arena, size_t count, size_t size_bytes);
char *arena_strndup(struct arena *arena, const char *text, size_t n_bytes); /* adds a zero byte */

struct arena_mark arena_mark(const struct arena *arena);
void arena_rewind(struct arena *arena, struct arena_mark mark);

/* Big blocks outside arenas: aligned to 64 bytes (2 MiB from 4 MiB up, huge pages asked for),
 * zeroed. big_free takes the size that was asked for; NULL is allowed. */
void *big_alloc(size_t n_bytes);
void big_free(void *memory, size_t n_bytes);

/* What must be freed singly: calloc and realloc (count * size checked, 0 bytes give a block;
 * mem_resize does not zero), so free() ends it too. Use these, never malloc itself: then the
 * countdown below can make any allocation of the project fail, in every build and without a linker
 * trick that would fail libc's and the test program's own as well. What jansson, PCRE2 and utf8proc
 * allocate goes by uncounted. */
void *mem_alloc(size_t count, size_t size_bytes);
void *mem_resize(void *memory, size_t n_bytes);
void mem_free(void *memory);

/* Calls that obtained memory so far (all threads): a forward pass must not raise it. */
uint64_t alloc_count(void);

/* Tests: the nth call from now fails (0: none), of any thread and any of the kinds above. */
void alloc_fail_after(uint64_t n);

#endif
