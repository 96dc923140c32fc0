/*
 * mutate.h - deterministic mutations of a valid input, and a main() for fuzz targets without
 * libFuzzer.
 *
 *   fuzz_NAME FILE...                            runs each file once
 *   fuzz_NAME -mutations=N -seed=S FILE...       and N mutated copies of each
 *
 * A target is LLVMFuzzerTestOneInput in fuzz_NAME.c. `meson setup -Dfuzz=true` builds it: linked
 * with libFuzzer where the compiler has that (clang with its runtime), else with the main() below.
 */
#ifndef FUZZ_MUTATE_H
#define FUZZ_MUTATE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

struct mutator {
    uint64_t state; /* the seed */
};

/* splitmix64 */
static inline uint64_t mutate_next(struct mutator *mutator)
{
    uint64_t z = mutator->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline size_t mutate_below(struct mutator *mutator, size_t n)
{
    return n ? (size_t)(mutate_next(mutator) % n) : 0;
}

/* Numbers that parsers get wrong, written little-endian in 1, 2, 4 or 8 bytes. */
static inline uint64_t mutate_number(struct mutator *mutator)
{
    static const uint64_t numbers[] = {0,  1,   2,   7,   8,   12,    13,   31,
                                       32, 127, 128, 255, 256, 65535, 65536};
    uint64_t power = (uint64_t)1 << mutate_below(mutator, 64);
    switch (mutate_below(mutator, 4)) {
    case 0: return numbers[mutate_below(mutator, sizeof numbers / sizeof numbers[0])];
    case 1: return power;
    case 2: return power - 1;
    default: return 0 - power;
    }
}

/* One change; returns the new length, at most `capacity`. */
static inline size_t mutate_once(struct mutator *mutator, uint8_t *bytes, size_t n, size_t capacity)
{
    static const char json[] = "{}[]\",:0123456789.-+eE\\u\n tfn";
    size_t at = mutate_below(mutator, n), other = mutate_below(mutator, n);
    size_t length = 1 + mutate_below(mutator, 16), width = (size_t)1 << mutate_below(mutator, 4);
    uint64_t number = mutate_number(mutator);
    if (n == 0) return 0;
    switch (mutate_below(mutator, 8)) {
    case 0: bytes[at] ^= (uint8_t)(1u << mutate_below(mutator, 8)); return n;
    case 1: bytes[at] = (uint8_t)mutate_next(mutator); return n;
    case 2: bytes[at] = (uint8_t)json[mutate_below(mutator, sizeof json - 1)]; return n;
    case 3:
    case 4: /* a number */
        if (width > n - at) width = n - at;
        memcpy(bytes + at, &number, width);
        return n;
    case 5: /* cut out */
        if (length > n - at) length = n - at;
        memmove(bytes + at, bytes + at + length, n - at - length);
        return n - length;
    case 6: /* copy one place over another */
        if (length > n - at) length = n - at;
        if (length > n - other) length = n - other;
        memmove(bytes + at, bytes + other, length);
        return n;
    default: /* insert */
        if (length > capacity - n) length = capacity - n;
        memmove(bytes + at + length, bytes + at, n - at);
        memset(bytes + at, (int)(number & 0xff), length);
        return n + length;
    }
}

/* 1 to 6 changes, sometimes also a cut of the end. */
static inline size_t mutate(struct mutator *mutator, uint8_t *bytes, size_t n, size_t capacity)
{
    for (size_t i = 1 + mutate_below(mutator, 6); i > 0; i--)
        n = mutate_once(mutator, bytes, n, capacity);
    if (mutate_below(mutator, 16) == 0) n = mutate_below(mutator, n + 1);
    return n;
}

/* Runs n mutated copies of an input through the target. Returns 0, or 1 without memory. */
static inline int mutate_run(const uint8_t *bytes, size_t n_bytes, uint64_t n_mutations,
                             uint64_t seed)
{
    size_t capacity = n_bytes + 256;
    struct mutator mutator = {seed};
    uint8_t *copy = malloc(capacity);
    if (!copy) return 1;
    for (uint64_t i = 0; i < n_mutations; i++) {
        memcpy(copy, bytes, n_bytes);
        LLVMFuzzerTestOneInput(copy, mutate(&mutator, copy, n_bytes, capacity));
    }
    free(copy);
    return 0;
}

#ifdef NEPIT_FUZZ_MAIN
static int mutate_file(const char *path, uint64_t n_mutations, uint64_t seed)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc((size_t)16 << 20);
    size_t n = file && bytes ? fread(bytes, 1, (size_t)16 << 20, file) : 0;
    int failed = !file || !bytes;
    if (failed) fprintf(stderr, "%s: cannot be read\n", path);
    if (!failed) LLVMFuzzerTestOneInput(bytes, n);
    if (!failed) failed = mutate_run(bytes, n, n_mutations, seed);
    if (file) fclose(file);
    free(bytes);
    return failed;
}

int main(int argc, char **argv)
{
    uint64_t n_mutations = 0, seed = 1;
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "-mutations=", 11) == 0)
            n_mutations = strtoull(argv[i] + 11, NULL, 10);
        else if (strncmp(argv[i], "-seed=", 6) == 0)
            seed = strtoull(argv[i] + 6, NULL, 10);
        else
            failed |= mutate_file(argv[i], n_mutations, seed);
    }
    return failed;
}
#endif

#endif
