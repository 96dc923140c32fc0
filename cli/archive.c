/*
 * One array of a .npz: a zip archive of .npy files, stored and not compressed, in memory. Only what
 * the central directory names is looked at; every place in it is checked before it is read. No
 * zip64: no file of that size is read whole.
 */
#include "requests.h"

#define END_BYTES 22
#define RECORD_BYTES 46
#define LOCAL_BYTES 30

struct archive {
    const uint8_t *bytes;
    size_t n_bytes;
    const char *where;
};

static uint32_t number(const uint8_t *at, size_t n_bytes)
{
    uint32_t value = 0;
    while (n_bytes-- > 0) value = value << 8 | at[n_bytes];
    return value;
}

static np_status damaged(const struct archive *archive, size_t at, np_error *err)
{
    return error_set(err, NP_EFORMAT, archive->where, (int64_t)at,
                     "not a whole .npz archive, or one above 4 GiB");
}

/* Where the directory begins and ends, in *end its end record. */
static np_status find_end(const struct archive *archive, size_t *begin, size_t *end, np_error *err)
{
    size_t n = archive->n_bytes, least = n > 65536 + END_BYTES ? n - 65536 - END_BYTES : 0;
    for (size_t at = n < END_BYTES ? 0 : n - END_BYTES + 1; at-- > least;) {
        const uint8_t *record = archive->bytes + at;
        if (number(record, 4) != 0x06054b50 || number(record + 20, 2) != n - at - END_BYTES)
            continue;
        size_t size = number(record + 12, 4), offset = number(record + 16, 4);
        if (offset > at || size > at - offset) return damaged(archive, at, err);
        *begin = offset;
        *end = offset + size;
        return NP_OK;
    }
    return damaged(archive, n, err);
}

static np_status take_entry(const struct archive *archive, const uint8_t *record, const char **data,
                            size_t *n_data, np_error *err)
{
    size_t size = number(record + 20, 4), offset = number(record + 42, 4);
    if (number(record + 10, 2) != 0 || number(record + 8, 2) & 1)
        return error_set(err, NP_EUNSUPPORTED, archive->where, (int64_t)offset,
                         "the archive is compressed; numpy.savez writes one that is not");
    if (offset > archive->n_bytes || archive->n_bytes - offset < LOCAL_BYTES)
        return damaged(archive, offset, err);
    const uint8_t *local = archive->bytes + offset;
    size_t head = LOCAL_BYTES + number(local + 26, 2) + number(local + 28, 2);
    if (number(local, 4) != 0x04034b50 || size != number(record + 24, 4) ||
        archive->n_bytes - offset < head || archive->n_bytes - offset - head < size)
        return damaged(archive, offset, err);
    *data = (const char *)local + head;
    *n_data = size;
    return NP_OK;
}

np_status archive_member(const char *bytes, size_t n_bytes, const char *where, const char *name,
                         const char **data, size_t *n_data, np_error *err)
{
    struct archive archive = {(const uint8_t *)bytes, n_bytes, where};
    size_t at = 0, end = 0, n_name = strlen(name);
    TRY(find_end(&archive, &at, &end, err));
    while (end - at >= RECORD_BYTES) {
        const uint8_t *record = archive.bytes + at;
        size_t n_own = number(record + 28, 2);
        size_t n = RECORD_BYTES + n_own + number(record + 30, 2) + number(record + 32, 2);
        if (number(record, 4) != 0x02014b50 || n > end - at) return damaged(&archive, at, err);
        const uint8_t *own = record + RECORD_BYTES;
        if (n_own == n_name + 4 && !memcmp(own, name, n_name) && !memcmp(own + n_name, ".npy", 4))
            return take_entry(&archive, record, data, n_data, err);
        at += n;
    }
    return error_set(err, NP_EINPUT, where, NO_OFFSET, "the archive has no array \"%s\"", name);
}
