/*
 * alloc.c - the door to memory: count, perhaps refuse, then ask the system.
 *
 * Big blocks are mapped, not allocated: fresh pages are zero without being touched, go back to the
 * system when freed, and start on a 2 MiB boundary so that the kernel can use huge pages.
 */
#include "base/arena.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

#define BIG_FROM_BYTES ((size_t)4 << 20)
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define ALIGN_BYTES ((size_t)64)
#define MAX_BYTES (SIZE_MAX / 4) /* what is above is refused here, so that round_up cannot wrap */

static atomic_uint_fast64_t n_calls;
static atomic_int_fast64_t calls_to_failure;

static bool alloc_allowed(void)
{
    atomic_fetch_add_explicit(&n_calls, 1, memory_order_relaxed);
    if (atomic_load_explicit(&calls_to_failure, memory_order_relaxed) <= 0) return true;
    return atomic_fetch_sub_explicit(&calls_to_failure, 1, memory_order_relaxed) != 1;
}

uint64_t alloc_count(void)
{
    return atomic_load_explicit(&n_calls, memory_order_relaxed);
}

void alloc_fail_after(uint64_t n)
{
    atomic_store_explicit(&calls_to_failure, n > INT64_MAX ? INT64_MAX : (int64_t)n,
                          memory_order_relaxed);
}

void *mem_alloc(size_t count, size_t size_bytes)
{
    if (size_bytes && count > MAX_BYTES / size_bytes) return NULL;
    if (!alloc_allowed()) return NULL;
    return count && size_bytes ? calloc(count, size_bytes) : calloc(1, 1);
}

void *mem_resize(void *memory, size_t n_bytes)
{
    if (n_bytes > MAX_BYTES || !alloc_allowed()) return NULL;
    return realloc(memory, n_bytes ? n_bytes : 1);
}

void mem_free(void *memory)
{
    free(memory);
}

static size_t round_up(size_t n_bytes, size_t unit)
{
    return (n_bytes + unit - 1) / unit * unit;
}

/* Maps one huge page more than needed and gives back what lies before and behind the aligned part.
 * */
static void *map_aligned(size_t n_bytes)
{
    size_t mapped = n_bytes + HUGE_PAGE_BYTES;
    char *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    size_t before = round_up((uintptr_t)base, HUGE_PAGE_BYTES) - (uintptr_t)base;
    size_t behind = HUGE_PAGE_BYTES - before;
    if (before) munmap(base, before);
    if (behind) munmap(base + before + n_bytes, behind);
#ifdef MADV_HUGEPAGE
    (void)madvise(base + before, n_bytes, MADV_HUGEPAGE); /* a wish: refusal costs speed only */
#endif
    return base + before;
}

void *big_alloc(size_t n_bytes)
{
    if (n_bytes > MAX_BYTES || !alloc_allowed()) return NULL;
    if (n_bytes >= BIG_FROM_BYTES) return map_aligned(round_up(n_bytes, HUGE_PAGE_BYTES));
    size_t rounded = round_up(n_bytes ? n_bytes : 1, ALIGN_BYTES);
    void *memory = aligned_alloc(ALIGN_BYTES, rounded);
    if (memory) memset(memory, 0, rounded);
    return memory;
}

void big_free(void *memory, size_t n_bytes)
{
    if (memory && n_bytes >= BIG_FROM_BYTES)
        munmap(memory, round_up(n_bytes, HUGE_PAGE_BYTES));
    else
        free(memory);
}
