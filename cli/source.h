/* source.h - the lines of a --jsonl file, read as they come. */
#ifndef CLI_SOURCE_H
#define CLI_SOURCE_H

#include "base/buf.h"
#include <stdbool.h>

#define SOURCE_MAX_LINE_BYTES ((size_t)1 << 28)

struct source {
    int fd;
    size_t line; /* of the last line handed out, from 1 */
    char *block;
    size_t begin, end; /* what is unread in `block` */
    struct buf text;   /* the current line */
    bool ended;
};

enum source_state { SOURCE_LINE, SOURCE_END, SOURCE_TOO_LONG, SOURCE_FAULT };

np_status source_open(struct source *source, const char *path,
                      np_error *err); /* "-": standard input */
void source_close(struct source *source);

/* The next line, in source->text, without its end; empty lines are passed over. A line over the
 * limit is skipped to its end. SOURCE_FAULT leaves errno. */
enum source_state source_next(struct source *source);

/* Whether no line comes within so long: asking for one would wait for whoever writes the input. A
 * signal ends the wait with false. */
bool source_would_wait(const struct source *source, int milliseconds);

/* A whole file or standard input. */
np_status source_read_all(const char *path, size_t max_bytes, char **out, size_t *n_bytes,
                          np_error *err);

#endif
