/*
 * error.h - statuses and errors with a place. The list of statuses stands in nepit.h
 * (NP_STATUS_MAP).
 *
 * A function that can fail returns np_status and takes np_error *err last (NULL allowed). It
 * reports with
 *
 *     return error_set(err, NP_EFORMAT, path, offset, "n_tensors is %llu; at most %d", n, MAX);
 *
 * and passes on with TRY(call(..., err)), or `status = call(...); if (status) goto done;` where
 * something must be released. The message says what is wrong and what is allowed, without a
 * trailing full stop.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "nepit.h"

#if defined(__GNUC__)
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PRINTF_LIKE(fmt, args)
#endif

#define NO_OFFSET (-1)

/* Fills *err (if not NULL) and returns `status`. where may be NULL: "". */
np_status error_set(np_error *err, np_status status, const char *where, int64_t offset,
                    const char *fmt, ...) PRINTF_LIKE(5, 6);

/* Sets the offending value of an error already set; returns its status. */
np_status error_given(np_error *err, np_status status, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* "out of memory", with what it was for and how many bytes. */
np_status error_nomem(np_error *err, const char *what, size_t n_bytes);

#define TRY(call)                                     \
    do {                                              \
        np_status try_status_ = (call);               \
        if (try_status_ != NP_OK) return try_status_; \
    } while (0)

#endif
