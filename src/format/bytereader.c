/*
 * bytereader.c - see bytereader.h. A window of one fixed size, because the bytes that outlive it
 * (names, texts) are copied into the arena anyway; a long text goes from the file to its place
 * without the window.
 */
#include "format/bytereader.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers are copied out of little-endian files");

np_status reader_open(struct byte_reader *reader, const struct file *file, uint64_t max_bytes,
                      np_error *err)
{
    *reader = (struct byte_reader){.file = file, .err = err};
    reader->limit = file->n_bytes < max_bytes ? file->n_bytes : max_bytes;
    reader->window = mem_alloc(READER_WINDOW_BYTES, 1);
    return reader->window ? NP_OK : error_nomem(err, file->path, READER_WINDOW_BYTES);
}

void reader_close(struct byte_reader *reader)
{
    mem_free(reader->window);
    reader->window = NULL;
}

uint64_t reader_left(const struct byte_reader *reader)
{
    return reader->limit - reader->position;
}

np_status reader_check(struct byte_reader *reader, uint64_t n_bytes, const char *what)
{
    if (n_bytes <= reader_left(reader)) return NP_OK;
    bool cut = reader->limit == reader->file->n_bytes;
    return error_set(reader->err, cut ? NP_EFORMAT : NP_ELIMIT, reader->file->path,
                     (int64_t)reader->position, "%s needs %llu bytes, but %llu are left %s", what,
                     (unsigned long long)n_bytes, (unsigned long long)reader_left(reader),
                     cut ? "in the file" : "below the limit of a header");
}

np_status reader_take(struct byte_reader *reader, size_t n_bytes, const char *what,
                      const unsigned char **out)
{
    size_t have = reader->end - reader->begin;
    TRY(reader_check(reader, n_bytes, what));
    if (have < n_bytes) {
        uint64_t unread = reader_left(reader) - have;
        size_t room = READER_WINDOW_BYTES - have, piece = unread < room ? (size_t)unread : room;
        memmove(reader->window, reader->window + reader->begin, have);
        reader->begin = 0;
        reader->end = have;
        TRY(file_read(reader->file, reader->position + have, reader->window + have, piece,
                      reader->err));
        reader->end += piece;
    }
    *out = reader->window + reader->begin;
    reader->begin += n_bytes;
    reader->position += n_bytes;
    return NP_OK;
}

np_status reader_copy(struct byte_reader *reader, size_t n_bytes, const char *what, void *out)
{
    const unsigned char *bytes;
    if (n_bytes <= READER_WINDOW_BYTES) {
        TRY(reader_take(reader, n_bytes, what, &bytes));
        memcpy(out, bytes, n_bytes);
        return NP_OK;
    }
    TRY(reader_check(reader, n_bytes, what));
    TRY(file_read(reader->file, reader->position, out, n_bytes, reader->err));
    reader->position += n_bytes;
    reader->begin = reader->end = 0;
    return NP_OK;
}

np_status reader_u32(struct byte_reader *reader, const char *what, uint32_t *out)
{
    return reader_copy(reader, sizeof *out, what, out);
}

np_status reader_u64(struct byte_reader *reader, const char *what, uint64_t *out)
{
    return reader_copy(reader, sizeof *out, what, out);
}
