/*
 * file.c - see file.h. Opened without blocking, so that a named pipe in place of a model is refused
 * at once; the size is asked again when a read comes up short, so that the message tells today's
 * size.
 */
#include "base/file.h"

#include "base/arena.h"
#include "base/pool.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_READ_BYTES ((size_t)1 << 30)

static np_status file_error(np_error *err, const char *path, int64_t offset, const char *what)
{
    return error_set(err, NP_EIO, path, offset, "%s: %s", what, strerror(errno));
}

np_status file_open(struct file *file, const char *path, np_error *err)
{
    struct stat about;
    size_t n_chars = strlen(path);
    file->fd = -1;
    file->n_bytes = 0;
    file->path[0] = 0;
    if (n_chars >= sizeof file->path)
        return error_set(err, NP_EIO, path, NO_OFFSET,
                         "the path is %zu bytes; at most %zu are allowed", n_chars,
                         sizeof file->path - 1);
    memcpy(file->path, path, n_chars + 1);
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file->fd < 0) return file_error(err, path, NO_OFFSET, "cannot be opened");
    if (fstat(file->fd, &about) != 0) {
        np_status status = file_error(err, path, NO_OFFSET, "cannot be examined");
        file_close(file);
        return status;
    }
    if (!S_ISREG(about.st_mode)) {
        file_close(file);
        return error_set(err, NP_EIO, path, NO_OFFSET, "%s, not a file",
                         S_ISDIR(about.st_mode) ? "is a folder" : "is a device, pipe or socket");
    }
    file->n_bytes = (uint64_t)about.st_size;
    return NP_OK;
}

void file_close(struct file *file)
{
    if (!file || file->fd < 0) return;
    close(file->fd);
    file->fd = -1;
}

static np_status file_too_short(const struct file *file, uint64_t offset, size_t n_bytes,
                                np_error *err)
{
    struct stat about;
    uint64_t size = fstat(file->fd, &about) == 0 ? (uint64_t)about.st_size : file->n_bytes;
    int64_t where = offset <= INT64_MAX ? (int64_t)offset : NO_OFFSET;
    return error_set(err, NP_EIO, file->path, where,
                     "file is %llu bytes, needs %llu: %zu bytes from here do not exist",
                     (unsigned long long)size, (unsigned long long)(offset + n_bytes), n_bytes);
}

np_status file_read(const struct file *file, uint64_t offset, void *out, size_t n_bytes,
                    np_error *err)
{
    if (offset > file->n_bytes || n_bytes > file->n_bytes - offset)
        return file_too_short(file, offset, n_bytes, err);
    for (size_t done = 0; done < n_bytes;) {
        size_t wanted = n_bytes - done < MAX_READ_BYTES ? n_bytes - done : MAX_READ_BYTES;
        struct fpenv saved = fpenv_enter(); /* a preloaded pread may leave another mode behind */
        ssize_t got = pread(file->fd, (char *)out + done, wanted, (off_t)(offset + done));
        fpenv_leave(saved);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_error(err, file->path, (int64_t)(offset + done), "cannot be read");
        if (got == 0) return file_too_short(file, offset, n_bytes, err);
        done += (size_t)got;
    }
    return NP_OK;
}

np_status file_read_all(const char *path, size_t max_bytes, char **out, size_t *n_bytes,
                        np_error *err)
{
    struct file file;
    char *data = NULL;
    *out = NULL;
    *n_bytes = 0;
    np_status status = file_open(&file, path, err);
    if (status) goto done;
    if (file.n_bytes > max_bytes) {
        status = error_set(err, NP_ELIMIT, path, NO_OFFSET,
                           "file is %llu bytes; at most %zu are allowed",
                           (unsigned long long)file.n_bytes, max_bytes);
        goto done;
    }
    data = file.n_bytes < SIZE_MAX ? mem_alloc((size_t)file.n_bytes + 1, 1) : NULL;
    status = data ? file_read(&file, 0, data, (size_t)file.n_bytes, err)
                  : error_nomem(err, path, (size_t)file.n_bytes);
    if (status) goto done;
    *out = data;
    *n_bytes = (size_t)file.n_bytes;
    data = NULL;
done:
    mem_free(data);
    file_close(&file);
    return status;
}
