/* error.c - see error.h. Truncation is silent on purpose: an error must never fail. */
#include "base/error.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *np_status_text(np_status status)
{
    switch (status) {
#define NP_STATUS_CASE(name, value, text) \
    case name: return text;
        NP_STATUS_MAP(NP_STATUS_CASE)
#undef NP_STATUS_CASE
    }
    return "unknown status";
}

/* Files and requests are cited, whatever bytes they hold: what is no UTF-8 becomes '?'. The start
 * of a character that the end of a full array cut off goes. */
static void keep_utf8(char *text, size_t n_bytes)
{
    unsigned char *at = (unsigned char *)text;
    for (size_t left = strlen(text), n; left; at += n, left -= n) {
        int length = utf8_length(at, left);
        n = (size_t)(length < 0 ? -length : length);
        if (length > 0) continue;
        if (n == left && (char *)at + n == text + n_bytes - 1 && at[0] >= 0xC2)
            *at = 0;
        else
            memset(at, '?', n);
    }
}

/* Control bytes as \xNN, so that a line stays one. Returns the end. */
static size_t put_text(char *out, size_t n_bytes, size_t at, const char *text)
{
    for (; *text && at + 1 < n_bytes; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte >= 32 && byte != 127)
            out[at++] = *text;
        else if (at + 4 < n_bytes)
            at += (size_t)snprintf(out + at, n_bytes - at, "\\x%02x", byte);
        else
            break;
    }
    out[at] = 0;
    return at;
}

char *np_error_line(const np_error *err, char *out, size_t n_bytes)
{
    char offset[32] = "";
    const char *message = err->message[0] ? err->message : np_status_text(err->status);
    if (n_bytes == 0) return out;
    if (err->status != NP_OK && err->offset >= 0)
        snprintf(offset, sizeof offset, "byte %lld", (long long)err->offset);
    bool has_place = err->where[0] || offset[0];
    const char *const pieces[] = {message,    err->given[0] ? ": " : "",
                                  err->given, has_place ? " (" : "",
                                  err->where, err->where[0] && offset[0] ? ", " : "",
                                  offset,     has_place ? ")" : ""};
    for (size_t i = 0, at = 0; i < sizeof pieces / sizeof *pieces; i++)
        at = put_text(out, n_bytes, at, pieces[i]);
    return out;
}

np_status error_set(np_error *err, np_status status, const char *where, int64_t offset,
                    const char *fmt, ...)
{
    if (!err) return status;
    memset(err, 0, sizeof *err);
    err->status = status;
    err->offset = offset;
    if (where) snprintf(err->where, sizeof err->where, "%s", where);
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    keep_utf8(err->where, sizeof err->where);
    keep_utf8(err->message, sizeof err->message);
    return status;
}

np_status error_given(np_error *err, np_status status, const char *fmt, ...)
{
    if (!err) return status;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->given, sizeof err->given, fmt, args);
    va_end(args);
    keep_utf8(err->given, sizeof err->given);
    return status;
}

np_status error_nomem(np_error *err, const char *what, size_t n_bytes)
{
    return error_set(err, NP_ENOMEM, what, NO_OFFSET, "out of memory: %zu bytes could not be had",
                     n_bytes);
}
