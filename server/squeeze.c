/*
 * squeeze.c - answers in fewer bytes, for clients that take them so. The fastest level: on one
 * machine the bytes cost nothing, and on a network a JSON of numbers shrinks to a third even so.
 */
#include "inside.h"

#include <strings.h>
#include <zlib.h>
#include <zstd.h>

enum { WORTH_BYTES = 1024 };

static bool gzip(const struct buf *from, struct buf *to)
{
    z_stream stream;
    memset(&stream, 0, sizeof stream);
    if (from->n_bytes > UINT32_MAX) return false;
    if (deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) return false;
    size_t most = deflateBound(&stream, from->n_bytes);
    char *out = most <= UINT32_MAX ? buf_extend(to, most) : NULL;
    stream.next_in = (Bytef *)from->data;
    stream.avail_in = (uInt)from->n_bytes;
    stream.next_out = (Bytef *)out;
    stream.avail_out = out ? (uInt)most : 0;
    bool good = out && deflate(&stream, Z_FINISH) == Z_STREAM_END;
    to->n_bytes = good ? stream.total_out : 0;
    deflateEnd(&stream);
    return good;
}

static bool zstd(const struct buf *from, struct buf *to)
{
    size_t most = ZSTD_compressBound(from->n_bytes);
    char *out = buf_extend(to, most);
    size_t n = out ? ZSTD_compress(out, most, from->data, from->n_bytes, 1) : 0;
    bool good = out && !ZSTD_isError(n);
    to->n_bytes = good ? n : 0;
    return good;
}

/* Whether a list ("gzip;q=0.5, zstd") takes a coding: by its name, and with a weight above 0. */
static bool takes(const char *list, const char *coding)
{
    size_t n_coding = strlen(coding);
    for (list += strspn(list, ", \t"); *list; list += strspn(list, ", \t")) {
        size_t n_item = strcspn(list, ","), n_name = strcspn(list, ",; \t");
        if (n_name == n_coding && strncasecmp(list, coding, n_name) == 0) {
            const char *weight = strstr(list + n_name, "q=");
            if (!weight || weight > list + n_item) return true;
            size_t n_weight = strcspn(weight + 2, ",; \t");
            return strspn(weight + 2, "0.") < n_weight;
        }
        list += n_item;
    }
    return false;
}

enum squeeze squeeze_for(const char *accepted)
{
    if (accepted && takes(accepted, "zstd")) return SQUEEZE_ZSTD;
    return accepted && takes(accepted, "gzip") ? SQUEEZE_GZIP : SQUEEZE_NONE;
}

void reply_squeeze(struct exchange *exchange)
{
    struct buf smaller;
    bool worth = exchange->out.n_bytes >= WORTH_BYTES && !exchange->out.failed &&
                 exchange->form != BODY_NPY && exchange->form != BODY_EVENTS;
    buf_init(&smaller, SIZE_MAX);
    bool good = worth && exchange->squeeze &&
                (exchange->squeeze == SQUEEZE_GZIP ? gzip(&exchange->out, &smaller)
                                                   : zstd(&exchange->out, &smaller));
    if (!good) {
        exchange->squeeze = SQUEEZE_NONE;
        buf_free(&smaller);
        return;
    }
    buf_free(&exchange->out);
    exchange->out = smaller;
}
