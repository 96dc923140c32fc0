/* error.c - see error.h. Truncation is silent on purpose: an error must never fail. */
#include "base/error.h"

#include <stdarg.h>
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

char *np_error_line(const np_error *err, char *out, size_t n_bytes)
{
    char offset[32] = "";
    const char *message = err->message[0] ? err->message : np_status_text(err->status);
    if (err->offset >= 0) snprintf(offset, sizeof offset, "byte %lld", (long long)err->offset);
    const char *comma = err->where[0] && offset[0] ? ", " : "";
    const char *colon = err->given[0] ? ": " : "";
    if (err->where[0] || offset[0])
        snprintf(out, n_bytes, "%s%s%s (%s%s%s)", message, colon, err->given, err->where, comma,
                 offset);
    else
        snprintf(out, n_bytes, "%s%s%s", message, colon, err->given);
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
    return status;
}

np_status error_given(np_error *err, np_status status, const char *fmt, ...)
{
    if (!err) return status;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->given, sizeof err->given, fmt, args);
    va_end(args);
    return status;
}

np_status error_nomem(np_error *err, const char *what, size_t n_bytes)
{
    return error_set(err, NP_ENOMEM, what, NO_OFFSET, "out of memory: %zu bytes could not be had",
                     n_bytes);
}
