/*
 * Results are written as they are ready. A file named by -o appears under its name only when it is
 * whole; what is not a regular file (a device, a pipe) is written directly, for a rename would
 * replace it. A closed pipe is no error: the reader had enough.
 */
#include "cli.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static bool wants_colour(void)
{
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    if (no_colour && *no_colour) return false;
    return isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
}

static bool output_fault(struct output *out)
{
    int cause = errno;
    if (cause == EPIPE)
        out->closed_pipe = true;
    else if (!out->failed)
        complain(out->path ? out->path : "standard output", "%s", strerror(cause));
    out->failed = true;
    return false;
}

/* A new file beside `path`, with the rights that a plain open would have given. */
static FILE *open_beside(struct output *out)
{
    size_t n_bytes = strlen(out->path) + sizeof ".XXXXXX";
    out->temporary = malloc(n_bytes);
    if (!out->temporary) return NULL;
    snprintf(out->temporary, n_bytes, "%s.XXXXXX", out->path);
    int fd = mkstemp(out->temporary);
    if (fd < 0) {
        free(out->temporary);
        out->temporary = NULL;
        return NULL;
    }
    mode_t mask = umask(0);
    umask(mask);
    if (fchmod(fd, 0666 & ~mask) != 0) errno = 0;
    return fdopen(fd, "wb");
}

bool output_open(struct output *out, const char *path)
{
    struct stat info;
    *out = (struct output){.file = stdout};
    if (!path) {
        out->colour = wants_colour();
        return true;
    }
    bool exists = stat(path, &info) == 0;
    /* A symbolic link is followed, so that the file it names is replaced and not the link. */
    out->path = exists ? realpath(path, NULL) : NULL;
    if (!out->path) out->path = strdup(path);
    if (!out->path) return output_fault(out);
    bool direct = exists && !S_ISREG(info.st_mode);
    out->file = direct ? fopen(path, "wb") : open_beside(out);
    if (out->file) return true;
    output_fault(out);
    free(out->path);
    out->path = NULL;
    return false;
}

/* A pipe is left alone: opening and closing it would be its reader's end of the file. */
bool output_can_open(const char *path)
{
    struct stat info;
    struct output out = {.path = NULL};
    bool exists = path && stat(path, &info) == 0;
    if (!path || (exists && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))) return true;
    return output_open(&out, path) && output_close(&out, false);
}

bool output_write(struct output *out, const void *bytes, size_t n_bytes)
{
    if (out->failed) return false;
    if (n_bytes == 0 || fwrite(bytes, 1, n_bytes, out->file) == n_bytes) return true;
    return output_fault(out);
}

bool output_flush(struct output *out)
{
    if (out->failed || !out->file) return !out->failed;
    return fflush(out->file) == 0 || output_fault(out);
}

bool output_close(struct output *out, bool keep)
{
    bool good = output_flush(out);
    if (out->file && out->file != stdout && fclose(out->file) != 0 && good)
        good = output_fault(out);
    if (out->temporary) {
        if (good && keep && rename(out->temporary, out->path) != 0) good = output_fault(out);
        if (!good || !keep) unlink(out->temporary);
    }
    free(out->temporary);
    free(out->path);
    out->file = NULL;
    out->path = out->temporary = NULL;
    return good;
}

bool output_spill(struct cli *cli, bool all)
{
    if (!all && cli->text.n_bytes < (size_t)1 << 20) return true;
    bool good = output_write(&cli->out, cli->text.data, cli->text.n_bytes);
    cli->text.n_bytes = 0;
    return good;
}
