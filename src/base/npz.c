/*
 * npz.c - a zip archive of .npy files, stored, not compressed.
 *
 * All sizes are known before an entry is written, so the archive is written front to back and needs
 * no seeking: a pipe will do. Dates are fixed, so that equal arrays give equal files. A regular
 * file is written under a temporary name beside its place and renamed when whole; devices and pipes
 * are not.
 *
 *   [local header | name | (zip64) | .npy header | data]... [record | name | (zip64)]... [end]
 */
#include "base/npy.h"

#include "base/arena.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DIRECTORY_BYTES ((size_t)64 << 20)
#define MAX_NAME_BYTES 255
#define MAX_TRIES 100
#define FULL32 0xFFFFFFFFu
#define FULL16 0xFFFFu
#define DOS_DATE 0x0021u /* 1 January 1980 */
#define MADE_BY_UNIX 3u
#define UNIX_MODE 0100644u

struct npz {
    FILE *file;
    char *path, *temporary; /* temporary: NULL where the path itself is written */
    uint64_t n_written_bytes, n_entries;
    struct buf directory;
    uint32_t crc_table[8][256];
};

static const uint8_t value_bytes[] = {
    [NPY_F32] = 4, [NPY_F64] = 8, [NPY_I32] = 4, [NPY_I64] = 8, [NPY_U8] = 1};

/* Eight tables: byte b followed by j zero bytes, so that eight bytes are taken at a time. */
static void crc_init(uint32_t table[8][256])
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int j = 1; j < 8; j++)
            table[j][byte] = table[j - 1][byte] >> 8 ^ table[0][table[j - 1][byte] & 0xFF];
}

/* crc: 0 at first. */
static uint32_t crc_add(uint32_t table[8][256], uint32_t crc, const void *bytes, size_t n_bytes)
{
    if (!n_bytes) return crc; /* bytes may be NULL */
    const uint8_t *at = bytes, *end = at + n_bytes;
    crc = ~crc;
    for (; end - at >= 8; at += 8) {
        crc ^=
            (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = table[7][crc & 0xFF] ^ table[6][crc >> 8 & 0xFF] ^ table[5][crc >> 16 & 0xFF] ^
              table[4][crc >> 24] ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^
              table[0][at[7]];
    }
    for (; at < end; at++) crc = crc >> 8 ^ table[0][(crc ^ *at) & 0xFF];
    return ~crc;
}

/* n_bytes of value, little-endian. */
static void put(struct buf *out, uint64_t value, int n_bytes)
{
    uint8_t bytes[8];
    for (int i = 0; i < n_bytes; i++) bytes[i] = (uint8_t)(value >> (8 * i));
    buf_push(out, bytes, (size_t)n_bytes);
}

static np_status npz_error(const struct npz *npz, np_error *err)
{
    return error_set(err, NP_EIO, npz->path, (int64_t)npz->n_written_bytes, "cannot be written: %s",
                     strerror(errno));
}

static np_status npz_write(struct npz *npz, const void *bytes, size_t n_bytes, np_error *err)
{
    if (n_bytes && fwrite(bytes, 1, n_bytes, npz->file) != n_bytes) return npz_error(npz, err);
    npz->n_written_bytes += n_bytes;
    return NP_OK;
}

/* The file that is written: the path itself if something else than a regular file stands there. */
static int npz_create(struct npz *npz)
{
    struct stat about;
    if (stat(npz->path, &about) == 0 && !S_ISREG(about.st_mode))
        return open(npz->path, O_WRONLY | O_CLOEXEC);
    size_t n_bytes = strlen(npz->path) + 32;
    npz->temporary = mem_alloc(n_bytes, 1);
    if (!npz->temporary) {
        errno = ENOMEM;
        return -1;
    }
    for (int i = 0; i < MAX_TRIES; i++) {
        snprintf(npz->temporary, n_bytes, "%s.part%ld-%d", npz->path, (long)getpid(), i);
        int fd = open(npz->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

np_status npz_open(struct npz **out, const char *path, np_error *err)
{
    *out = NULL;
    struct npz *npz = mem_alloc(1, sizeof *npz);
    char *copy = mem_alloc(strlen(path) + 1, 1);
    if (!npz || !copy) {
        mem_free(npz);
        mem_free(copy);
        return error_nomem(err, path, sizeof *npz);
    }
    npz->path = memcpy(copy, path, strlen(path));
    buf_init(&npz->directory, MAX_DIRECTORY_BYTES);
    crc_init(npz->crc_table);
    int fd = npz_create(npz);
    if (fd >= 0) npz->file = fdopen(fd, "wb");
    if (!npz->file) {
        np_status status = errno == ENOMEM ? error_nomem(err, path, 0) : npz_error(npz, err);
        if (fd >= 0) {
            close(fd);
        } else {
            mem_free(npz->temporary); /* not ours to remove */
            npz->temporary = NULL;
        }
        npz_abort(npz);
        return status;
    }
    *out = npz;
    return NP_OK;
}

/* What the local header and the directory record have in common, from "version needed" to the
 * lengths. */
static void put_common(struct buf *out, bool wide, uint32_t crc, uint32_t size, size_t n_name,
                       size_t n_extra)
{
    put(out, wide ? 45 : 20, 2);
    put(out, 0x0800, 2); /* names are UTF-8 */
    put(out, 0, 2);      /* stored */
    put(out, 0, 2);
    put(out, DOS_DATE, 2);
    put(out, crc, 4);
    put(out, size, 4);
    put(out, size, 4);
    put(out, n_name, 2);
    put(out, n_extra, 2);
}

static void put_local(struct buf *out, const char *name, uint32_t crc, uint64_t size)
{
    bool wide = size >= FULL32;
    put(out, 0x04034b50, 4);
    put_common(out, wide, crc, wide ? FULL32 : (uint32_t)size, strlen(name), wide ? 20 : 0);
    buf_puts(out, name);
    if (!wide) return;
    put(out, 1, 2); /* zip64: both sizes */
    put(out, 16, 2);
    put(out, size, 8);
    put(out, size, 8);
}

static void put_record(struct buf *out, const char *name, uint32_t crc, uint64_t size,
                       uint64_t offset)
{
    bool wide_size = size >= FULL32, wide_offset = offset >= FULL32,
         wide = wide_size || wide_offset;
    size_t n_wide = (wide_size ? 16 : 0) + (wide_offset ? 8 : 0);
    put(out, 0x02014b50, 4);
    put(out, MADE_BY_UNIX << 8 | 45, 2);
    put_common(out, wide, crc, wide_size ? FULL32 : (uint32_t)size, strlen(name),
               wide ? n_wide + 4 : 0);
    put(out, 0, 2); /* comment length, disk, internal attributes */
    put(out, 0, 2);
    put(out, 0, 2);
    put(out, (uint64_t)UNIX_MODE << 16, 4);
    put(out, wide_offset ? FULL32 : offset, 4);
    buf_puts(out, name);
    if (!wide) return;
    put(out, 1, 2);
    put(out, n_wide, 2);
    if (wide_size) put(out, size, 8);
    if (wide_size) put(out, size, 8);
    if (wide_offset) put(out, offset, 8);
}

static void put_end(struct buf *out, uint64_t n_entries, uint64_t n_bytes, uint64_t offset)
{
    if (n_entries >= FULL16 || n_bytes >= FULL32 || offset >= FULL32) {
        put(out, 0x06064b50, 4); /* zip64 end record */
        put(out, 44, 8);
        put(out, MADE_BY_UNIX << 8 | 45, 2);
        put(out, 45, 2);
        put(out, 0, 4);
        put(out, 0, 4);
        put(out, n_entries, 8);
        put(out, n_entries, 8);
        put(out, n_bytes, 8);
        put(out, offset, 8);
        put(out, 0x07064b50, 4); /* its locator */
        put(out, 0, 4);
        put(out, offset + n_bytes, 8);
        put(out, 1, 4);
    }
    uint64_t count = n_entries < FULL16 ? n_entries : FULL16;
    put(out, 0x06054b50, 4);
    put(out, 0, 4);
    put(out, count, 2);
    put(out, count, 2);
    put(out, n_bytes < FULL32 ? n_bytes : FULL32, 4);
    put(out, offset < FULL32 ? offset : FULL32, 4);
    put(out, 0, 2);
}

/* Bytes of the array; false when they do not fit in memory's range, or name or shape are not
 * allowed. */
static bool npz_size(const char *name, enum npy_type type, const uint64_t *shape, int n_dims,
                     size_t *out)
{
    size_t n_bytes, n_name = strlen(name);
    if (n_name == 0 || n_name > MAX_NAME_BYTES || (unsigned)type > NPY_U8 || n_dims < 0 ||
        n_dims > 4)
        return false;
    n_bytes = value_bytes[type];
    for (int i = 0; i < n_dims; i++) {
        if (shape[i] && n_bytes > INT64_MAX / shape[i]) return false;
        n_bytes *= (size_t)shape[i];
    }
    *out = n_bytes;
    return true;
}

np_status npz_add(struct npz *npz, const char *name, enum npy_type type, const uint64_t *shape,
                  int n_dims, const void *data, np_error *err)
{
    struct buf npy, local;
    size_t n_bytes;
    if (!npz_size(name, type, shape, n_dims, &n_bytes))
        return error_set(
            err, NP_ELIMIT, npz->path, NO_OFFSET,
            "\"%.64s\" cannot be stored: 0 to 4 dimensions and names of 1 to %d bytes are allowed",
            name, MAX_NAME_BYTES);
    uint64_t offset = npz->n_written_bytes;
    buf_init(&npy, 1024);
    buf_init(&local, 1024);
    npy_header(&npy, type, shape, n_dims);
    uint32_t crc = crc_add(npz->crc_table, 0, npy.data, npy.n_bytes);
    crc = crc_add(npz->crc_table, crc, data, n_bytes);
    uint64_t size = (uint64_t)npy.n_bytes + n_bytes;
    put_local(&local, name, crc, size);
    put_record(&npz->directory, name, crc, size, offset);
    npz->n_entries++;
    np_status status = NP_OK;
    if (npy.failed || local.failed || npz->directory.failed)
        status = error_nomem(err, npz->path, npz->directory.n_bytes);
    if (!status) status = npz_write(npz, local.data, local.n_bytes, err);
    if (!status) status = npz_write(npz, npy.data, npy.n_bytes, err);
    if (!status) status = npz_write(npz, data, n_bytes, err);
    buf_free(&npy);
    buf_free(&local);
    return status;
}

static void npz_free(struct npz *npz)
{
    buf_free(&npz->directory);
    mem_free(npz->temporary);
    mem_free(npz->path);
    mem_free(npz);
}

np_status npz_close(struct npz *npz, np_error *err)
{
    uint64_t n_bytes = npz->directory.n_bytes;
    np_status status = NP_OK;
    put_end(&npz->directory, npz->n_entries, n_bytes, npz->n_written_bytes);
    if (npz->directory.failed) status = error_nomem(err, npz->path, npz->directory.n_bytes);
    if (!status) status = npz_write(npz, npz->directory.data, npz->directory.n_bytes, err);
    int closed = fclose(npz->file);
    npz->file = NULL;
    if (!status && closed != 0) status = npz_error(npz, err);
    if (!status && npz->temporary && rename(npz->temporary, npz->path) != 0)
        status = npz_error(npz, err);
    if (status)
        npz_abort(npz);
    else
        npz_free(npz);
    return status;
}

void npz_abort(struct npz *npz)
{
    if (!npz) return;
    if (npz->file) fclose(npz->file);
    if (npz->temporary) unlink(npz->temporary);
    npz_free(npz);
}
