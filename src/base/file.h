/*
 * file.h - bounded reads of files that may be hostile or change while they are read.
 *
 * Nothing is mapped: a file that shrinks is an error (NP_EIO, "file is N bytes, needs M"), not a
 * signal. file_read may be called from several threads on one file.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/error.h"

struct file {
    int fd;
    uint64_t n_bytes; /* at opening */
    char path[4096];
};

/* Regular files only. file_close allows NULL, a file that failed to open, and a second call. */
np_status file_open(struct file *file, const char *path, np_error *err);
void file_close(struct file *file);

/* Reads exactly n_bytes at offset; NP_EIO when the file does not hold them (any more). */
np_status file_read(const struct file *file, uint64_t offset, void *out, size_t n_bytes,
                    np_error *err);

/* Reads a whole file of at most max_bytes (else NP_ELIMIT); *out has a zero byte behind it; freed
 * with free(). */
np_status file_read_all(const char *path, size_t max_bytes, char **out, size_t *n_bytes,
                        np_error *err);

#endif
