/*
 * test_format_files.h - writers of tiny model files, in memory and on disk, for test_format_*.c.
 */
#ifndef TEST_FORMAT_FILES_H
#define TEST_FORMAT_FILES_H

#include "format/modelparts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

/* Bytes of a file that is being written. */
struct image {
    uint8_t bytes[1 << 16];
    size_t n;
};

static inline void put(struct image *image, const void *bytes, size_t n)
{
    assert_true(n <= sizeof image->bytes - image->n);
    memcpy(image->bytes + image->n, bytes, n);
    image->n += n;
}
static inline void put_number(struct image *image, uint64_t value, size_t n)
{
    put(image, &value, n);
}
static inline void put_u32(struct image *image, uint32_t value)
{
    put_number(image, value, 4);
}
static inline void put_u64(struct image *image, uint64_t value)
{
    put_number(image, value, 8);
}
static inline void put_text(struct image *image, const char *text)
{
    put_u64(image, strlen(text));
    put(image, text, strlen(text));
}
static inline void put_key(struct image *image, const char *key, uint32_t type)
{
    put_text(image, key);
    put_u32(image, type);
}

/* A file that lives in memory; path is good until memory_close. */
struct memory {
    int fd;
    char path[64];
};

static inline struct memory memory_open(const void *bytes, size_t n)
{
    struct memory memory = {.fd = memfd_create("model", MFD_CLOEXEC)};
    assert_true(memory.fd >= 0);
    assert_int_equal(write(memory.fd, bytes, n), (ssize_t)n);
    snprintf(memory.path, sizeof memory.path, "/proc/self/fd/%d", memory.fd);
    return memory;
}

/* A folder of its own for each test program's run; files are written into it. */
struct folder {
    char path[64];
};

static inline struct folder folder_make(void)
{
    struct folder folder = {"/tmp/nepit-format-XXXXXX"};
    assert_non_null(mkdtemp(folder.path));
    return folder;
}

static inline const char *folder_path(const struct folder *folder, const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder->path, name);
    return path;
}

static inline void folder_write(const struct folder *folder, const char *name, const void *bytes,
                                size_t n)
{
    FILE *file = fopen(folder_path(folder, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static inline void folder_write_text(const struct folder *folder, const char *name,
                                     const char *text)
{
    folder_write(folder, name, text, strlen(text));
}

static inline void folder_remove(const struct folder *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder->path);
    assert_int_equal(system(command), 0);
}

/* A safetensors file: header text, then n_data bytes 0, 1, 2, ... */
static inline void put_safetensors(struct image *image, const char *header, size_t n_data)
{
    put_text(image, header);
    for (size_t i = 0; i < n_data; i++) put_number(image, i & 0xff, 1);
}

/* `status` came, and the line has this fragment and no line break. */
static inline void check_refused(np_status status, np_status expected, const np_error *err,
                                 const char *fragment)
{
    char line[700] = "";
    if (status != NP_OK) np_error_line(err, line, sizeof line);
    if (status != expected || (status != NP_OK && err->status != status) ||
        !strstr(line, fragment) || strchr(line, '\n'))
        fail_msg("status %d, expected %d with \"%s\": %s", (int)status, (int)expected, fragment,
                 line);
}

/* Opening a path is refused that way. */
static inline void refuse_path(const char *path, np_status expected, const char *fragment)
{
    struct modelfile *file = NULL;
    np_error err;
    np_status status = modelfile_open(path, &file, &err);
    check_refused(status, expected, &err, fragment);
    assert_null(file);
}

static inline uint64_t n_mutations(void)
{
    const char *wanted = getenv("NEPIT_MUTATIONS");
    return wanted ? strtoull(wanted, NULL, 10) : 2000;
}

#endif
