/*
 * buf.h - a growing byte buffer that is given its maximum at birth.
 *
 * A failed push frees nothing and keeps what is there, but marks the buffer: every later push fails
 * too, so that a writer checks once, at the end. `data` is NULL or zero-terminated behind n_bytes.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/error.h"
#include <stdbool.h>

struct buf {
    char *data;
    size_t n_bytes, capacity, max_bytes;
    bool failed;
};

void buf_init(struct buf *buf, size_t max_bytes);
void buf_free(struct buf *buf); /* empty afterwards, with the same maximum; NULL allowed */

/* `bytes` must not point into the buffer itself. */
bool buf_push(struct buf *buf, const void *bytes, size_t n_bytes);
bool buf_puts(struct buf *buf, const char *text);
bool buf_printf(struct buf *buf, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Room for n_bytes that the caller fills; NULL: failed. */
char *buf_extend(struct buf *buf, size_t n_bytes);

/* Ends the buffer; the caller frees with free(). Empty: "". NULL when a push failed. n_bytes may be
 * NULL. */
char *buf_take(struct buf *buf, size_t *n_bytes);

#endif
