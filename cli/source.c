/*
 * Lines are handed out one at a time and bounded, so that a file of any size is read in constant
 * memory. source_would_wait lets the loop answer what it has when a program at the other end of a
 * pipe waits for its answer before it writes the next request.
 */
#include "source.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#define BLOCK_BYTES ((size_t)1 << 16)

np_status source_open(struct source *source, const char *path, np_error *err)
{
    *source = (struct source){.fd = -1};
    buf_init(&source->text, SOURCE_MAX_LINE_BYTES + 1);
    source->block = malloc(BLOCK_BYTES);
    if (!source->block) return error_nomem(err, "a block of input", BLOCK_BYTES);
    bool is_input = strcmp(path, "-") == 0;
    source->fd = is_input ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0) return error_set(err, NP_EIO, path, NO_OFFSET, "%s", strerror(errno));
    return NP_OK;
}

void source_close(struct source *source)
{
    if (source->fd >= 0) close(source->fd);
    free(source->block);
    buf_free(&source->text);
    *source = (struct source){.fd = -1};
}

/* Fills the block; false at the end or at a fault (errno is then not 0). */
static bool refill(struct source *source)
{
    errno = 0;
    if (source->ended) return false;
    ssize_t got = read(source->fd, source->block, BLOCK_BYTES);
    if (got <= 0) {
        source->ended = got == 0;
        return false;
    }
    source->begin = 0;
    source->end = (size_t)got;
    return true;
}

static enum source_state read_line(struct source *source)
{
    bool too_long = false, any = false;
    source->text.n_bytes = 0;
    for (;;) {
        if (source->begin == source->end && !refill(source)) {
            if (errno != 0) return SOURCE_FAULT;
            if (!any) return SOURCE_END;
            break;
        }
        const char *from = source->block + source->begin;
        size_t n_left = source->end - source->begin;
        const char *newline = memchr(from, '\n', n_left);
        size_t n_part = newline ? (size_t)(newline - from) : n_left;
        any = true;
        if (!too_long && source->text.n_bytes + n_part > SOURCE_MAX_LINE_BYTES) too_long = true;
        if (!too_long && !buf_push(&source->text, from, n_part)) too_long = true;
        source->begin += n_part + (newline != NULL);
        if (newline) break;
    }
    source->line++;
    return too_long ? SOURCE_TOO_LONG : SOURCE_LINE;
}

static bool is_blank(const struct buf *text)
{
    for (size_t i = 0; i < text->n_bytes; i++)
        if (!strchr(" \t\r", text->data[i]) || text->data[i] == 0) return false;
    return true;
}

enum source_state source_next(struct source *source)
{
    enum source_state state;
    do state = read_line(source);
    while (state == SOURCE_LINE && is_blank(&source->text));
    return state;
}

bool source_would_wait(const struct source *source, int milliseconds)
{
    if (source->ended) return false;
    if (memchr(source->block + source->begin, '\n', source->end - source->begin)) return false;
    struct pollfd waiting = {.fd = source->fd, .events = POLLIN};
    return poll(&waiting, 1, milliseconds) == 0;
}

np_status source_read_all(const char *path, size_t max_bytes, char **out, size_t *n_bytes,
                          np_error *err)
{
    if (strcmp(path, "-") != 0) return file_read_all(path, max_bytes, out, n_bytes, err);
    struct buf all;
    char block[8192];
    ssize_t got;
    buf_init(&all, max_bytes);
    buf_push(&all, "", 0);
    while ((got = read(STDIN_FILENO, block, sizeof block)) > 0)
        if (!buf_push(&all, block, (size_t)got)) break;
    np_status status = NP_OK;
    if (got < 0)
        status = error_set(err, NP_EIO, "standard input", NO_OFFSET, "%s", strerror(errno));
    else if (all.failed)
        status = error_set(err, NP_ELIMIT, "standard input", NO_OFFSET,
                           "is too long; at most %zu bytes are allowed", max_bytes);
    if (status != NP_OK) {
        buf_free(&all);
        return status;
    }
    *out = buf_take(&all, n_bytes);
    return NP_OK;
}
