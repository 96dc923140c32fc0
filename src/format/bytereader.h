/*
 * bytereader.h - a file read forwards through a small window, every step checked against the bytes
 * left.
 *
 *   file    [ consumed ........ | window: begin ... end | not read yet ............ ]
 *                                ^ position
 */
#ifndef FORMAT_BYTEREADER_H
#define FORMAT_BYTEREADER_H

#include "base/file.h"
#include <stdbool.h>

#define READER_WINDOW_BYTES ((size_t)256 << 10)

struct byte_reader {
    const struct file *file;
    uint64_t limit;    /* first byte that may not be read: MODELFILE_MAX_HEADER_BYTES or the end */
    uint64_t position; /* of window[begin] in the file */
    unsigned char *window; /* [READER_WINDOW_BYTES] */
    size_t begin, end;
    np_error *err;
};

np_status reader_open(struct byte_reader *reader, const struct file *file, uint64_t max_bytes,
                      np_error *err);
void reader_close(struct byte_reader *reader);
uint64_t reader_left(const struct byte_reader *reader);

/* Refuses to go on unless n bytes are left for `what`. */
np_status reader_check(struct byte_reader *reader, uint64_t n_bytes, const char *what);

/* The next n_bytes <= READER_WINDOW_BYTES, valid until the next call. */
np_status reader_take(struct byte_reader *reader, size_t n_bytes, const char *what,
                      const unsigned char **out);
np_status reader_copy(struct byte_reader *reader, size_t n_bytes, const char *what, void *out);
np_status reader_u32(struct byte_reader *reader, const char *what, uint32_t *out);
np_status reader_u64(struct byte_reader *reader, const char *what, uint64_t *out);

#endif
