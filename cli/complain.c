/*
 * complain.c - errors of a command: "nepit: what: why (where)", one line on standard error.
 */
#include "cli.h"

#include <stdarg.h>

/* One line whatever the texts hold: control bytes are shown, not sent. */
static void put_line(const char *text)
{
    fputs("nepit: ", stderr);
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at < 32 || *at == 127)
            fprintf(stderr, "\\x%02x", *at);
        else
            fputc(*at, stderr);
    }
    fputc('\n', stderr);
}

void complain(const char *what, const char *fmt, ...)
{
    char line[1024];
    int at = snprintf(line, sizeof line, "%.400s: ", what);
    va_list args;
    va_start(args, fmt);
    vsnprintf(line + at, sizeof line - (size_t)at, fmt, args);
    va_end(args);
    put_line(line);
}

void complain_error(const char *what, const np_error *err)
{
    char line[768];
    complain(what, "%s", np_error_line(err, line, sizeof line));
}
