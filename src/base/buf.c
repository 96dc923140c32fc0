/*
 * buf.c - see buf.h. Capacity doubles, so n pushes cost O(n); it counts the zero byte behind the
 * data, which the maximum does not.
 */
#include "base/buf.h"

#include "base/arena.h"
#include <stdarg.h>

#define FIRST_CAPACITY_BYTES 256

void buf_init(struct buf *buf, size_t max_bytes)
{
    *buf = (struct buf){.max_bytes = max_bytes < SIZE_MAX / 4 ? max_bytes : SIZE_MAX / 4};
}

void buf_free(struct buf *buf)
{
    if (!buf) return;
    mem_free(buf->data);
    *buf = (struct buf){.max_bytes = buf->max_bytes};
}

/* Room for n_bytes more and the zero byte. */
static bool buf_reserve(struct buf *buf, size_t n_bytes)
{
    if (buf->failed) return false;
    if (n_bytes > buf->max_bytes - buf->n_bytes) return !(buf->failed = true);
    size_t needed = buf->n_bytes + n_bytes + 1;
    if (needed <= buf->capacity) return true;
    size_t capacity = buf->capacity ? buf->capacity * 2 : FIRST_CAPACITY_BYTES;
    if (capacity > buf->max_bytes + 1) capacity = buf->max_bytes + 1;
    if (capacity < needed) capacity = needed;
    char *data = mem_resize(buf->data, capacity);
    if (!data) return !(buf->failed = true);
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

char *buf_extend(struct buf *buf, size_t n_bytes)
{
    if (!buf_reserve(buf, n_bytes)) return NULL;
    char *at = buf->data + buf->n_bytes;
    buf->n_bytes += n_bytes;
    buf->data[buf->n_bytes] = 0;
    return at;
}

bool buf_push(struct buf *buf, const void *bytes, size_t n_bytes)
{
    char *at = buf_extend(buf, n_bytes);
    if (at && n_bytes) memcpy(at, bytes, n_bytes);
    return at != NULL;
}

bool buf_puts(struct buf *buf, const char *text)
{
    return buf_push(buf, text, strlen(text));
}

bool buf_printf(struct buf *buf, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n_chars = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n_chars < 0) return !(buf->failed = true);
    if (!buf_reserve(buf, (size_t)n_chars)) return false;
    va_start(args, fmt);
    vsnprintf(buf->data + buf->n_bytes, (size_t)n_chars + 1, fmt, args);
    va_end(args);
    buf->n_bytes += (size_t)n_chars;
    return true;
}

char *buf_take(struct buf *buf, size_t *n_bytes)
{
    bool whole = buf_extend(buf, 0) != NULL; /* an empty buffer is taken as "" */
    char *data = whole ? buf->data : NULL;
    if (n_bytes) *n_bytes = whole ? buf->n_bytes : 0;
    if (whole) buf->data = NULL;
    buf_free(buf);
    return data;
}
