/*
 * hostile_fp.c - a library to be preloaded (LD_PRELOAD) that does what fast-math libraries do, and
 * more: it flushes subnormals (FTZ, DAZ) and sets another rounding mode when it is loaded, in every
 * new thread, and in every pread, that is in the middle of the library.
 *
 * NEPIT_HOSTILE = "zero", "up" or "down" is the rounding mode. NEPIT_HOSTILE_MARK names a file that
 * is made when the mode was set in a thread too, so that a test knows that it did happen.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define HOOK __attribute__((visibility("default")))
/* Not from unistd.h, which may give one of the two names to the other. */
HOOK ssize_t pread(int fd, void *out, size_t n_bytes, int64_t offset);
HOOK ssize_t pread64(int fd, void *out, size_t n_bytes, int64_t offset);

static const struct mode {
    const char *name;
    uint64_t x86, arm; /* MXCSR, FPCR */
} modes[] = {
    {"zero", 0x1f80 | 0x8040 | 3u << 13, 1u << 24 | 3u << 22},
    {"up", 0x1f80 | 0x8040 | 2u << 13, 1u << 24 | 1u << 22},
    {"down", 0x1f80 | 0x8040 | 1u << 13, 1u << 24 | 2u << 22},
};

static void set_mode(void)
{
    const char *wanted = getenv("NEPIT_HOSTILE");
    for (size_t i = 0; wanted && i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(wanted, modes[i].name) != 0) continue;
#if defined(__x86_64__)
        uint32_t control = (uint32_t)modes[i].x86;
        __asm__ volatile("ldmxcsr %0" : : "m"(control));
#elif defined(__aarch64__)
        __asm__ volatile("msr fpcr, %0" : : "r"(modes[i].arm) : "memory");
#endif
    }
}

__attribute__((constructor)) static void loaded(void)
{
    set_mode();
}

/* dlsym gives an object pointer for a function: POSIX says that the bits are the same. */
static void next_symbol(const char *name, void *function)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof found);
}

struct start {
    void *(*fn)(void *);
    void *argument;
};

static void *hostile_start(void *argument)
{
    struct start start = *(struct start *)argument;
    const char *mark = getenv("NEPIT_HOSTILE_MARK");
    free(argument);
    set_mode();
    FILE *made = mark ? fopen(mark, "w") : NULL;
    if (made) fclose(made);
    return start.fn(start.argument);
}

HOOK int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *),
                        void *argument)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    struct start *start = malloc(sizeof *start);
    if (!start) return 11;
    *start = (struct start){fn, argument};
    next_symbol("pthread_create", &real);
    int failed = real(thread, attributes, hostile_start, start);
    if (failed) free(start);
    return failed;
}

static ssize_t read_at(const char *name, int fd, void *out, size_t n_bytes, int64_t offset)
{
    ssize_t (*real)(int, void *, size_t, int64_t);
    next_symbol(name, &real);
    set_mode();
    return real(fd, out, n_bytes, offset);
}

ssize_t pread(int fd, void *out, size_t n_bytes, int64_t offset)
{
    return read_at("pread", fd, out, n_bytes, offset);
}

ssize_t pread64(int fd, void *out, size_t n_bytes, int64_t offset)
{
    return read_at("pread64", fd, out, n_bytes, offset);
}
