/*
 * perplexity: files of any size, by windows and strides; one line per file as it is done, and one
 * for all. Files are opened when their turn comes and read as they are needed.
 *
 * A regular file is read up to the size that it had at opening: one that grows (a log) is scored as
 * it was, one that shrinks is an error. Pipes, devices and files without a size have their end.
 */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static const double LN2 = 0.69314718055994530942;

struct text_file {
    const char *path;
    int fd;
    bool opened;
    uint64_t n_bytes, n_read; /* n_bytes 0: not known */
};

struct work {
    struct cli *cli;
    struct text_file *files;       /* [n_files] */
    np_document *documents;        /* [n_files] */
    np_perplexity_result *results; /* [n_files] */
    size_t n_files, n_printed;
    np_perplexity_result all;
    size_t n_summed;
    struct progress progress;
};

/* ---- files -------------------------------------------------------------------------------- */

static bool is_input(const char *path)
{
    return strcmp(path, "-") == 0;
}

static const char *file_name(const char *path)
{
    return is_input(path) ? "standard input" : path;
}

static void file_shut(struct text_file *file)
{
    if (file->opened && file->fd >= 0) close(file->fd);
    file->fd = -1;
}

static np_status file_start(struct text_file *file, np_error *err)
{
    struct stat info;
    file->opened = true;
    file->fd = is_input(file->path) ? dup(STDIN_FILENO) : open(file->path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0 || fstat(file->fd, &info) != 0)
        return error_set(err, NP_EIO, NULL, NO_OFFSET, "%s", strerror(errno));
    if (S_ISDIR(info.st_mode))
        return error_set(err, NP_EIO, NULL, NO_OFFSET, "is a folder, not a file");
    file->n_bytes = S_ISREG(info.st_mode) && !is_input(file->path) ? (uint64_t)info.st_size : 0;
    return NP_OK;
}

static int64_t file_fault(const struct text_file *file, np_error *err, const char *what)
{
    error_set(err, NP_EIO, NULL, (int64_t)file->n_read, "%s", what);
    return -1;
}

static int64_t file_read_on(void *user, char *out, size_t n_bytes, np_error *err)
{
    struct text_file *file = user;
    ssize_t got;
    if (!file->opened && file_start(file, err) != NP_OK) return -1;
    if (file->n_bytes && file->n_bytes - file->n_read < n_bytes)
        n_bytes = (size_t)(file->n_bytes - file->n_read);
    if (n_bytes == 0) return 0;
    do got = read(file->fd, out, n_bytes);
    while (got < 0 && errno == EINTR && !workplace_signal());
    if (got < 0 && errno == EINTR) {
        error_set(err, NP_ECANCELLED, NULL, NO_OFFSET, "cancelled");
        return -1;
    }
    if (got < 0) return file_fault(file, err, strerror(errno));
    if (got == 0 && file->n_bytes) return file_fault(file, err, "the file has shrunk while read");
    file->n_read += (uint64_t)got;
    return got;
}

/* ---- one line ----------------------------------------------------------------------------- */

static void put_counts(struct json *json, const np_perplexity_result *result)
{
    const struct {
        const char *key;
        uint64_t count;
    } counts[] = {
        {"n_tokens", result->n_tokens},   {"n_scored", result->n_scored},
        {"n_bytes", result->n_bytes},     {"n_scored_bytes", result->n_scored_bytes},
        {"n_windows", result->n_windows}, {"n_computed", result->n_computed},
        {"window", result->window},       {"stride", result->stride},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        json_key(json, counts[i].key);
        json_int(json, (int64_t)counts[i].count);
    }
}

/* As `score` computes them, so that both print the same digits. */
static double perplexity_of(const np_perplexity_result *result)
{
    return exp(-result->total / (double)result->n_scored);
}

static double bits_per_byte(const np_perplexity_result *result)
{
    return -result->total / LN2 / (double)result->n_scored_bytes;
}

static const char *conditioning(const np_perplexity_result *result)
{
    return result->has_bos ? "bos" : "none";
}

/* path NULL: the sum of all. */
static void as_json(struct work *work, const char *path, const np_perplexity_result *result)
{
    struct cli *cli = work->cli;
    struct json *json = &cli->json;
    json_init(json, &cli->text);
    json_begin(json, '{');
    json_key(json, path ? "file" : "n_files");
    if (path)
        json_str(json, path);
    else
        json_int(json, (int64_t)work->n_summed);
    if (result->error.status != NP_OK) {
        json_error(json, &result->error);
    } else {
        json_finite(json, "total", result->total);
        json_finite(json, "mean", result->total / (double)result->n_scored);
        json_finite(json, "perplexity", perplexity_of(result));
        json_finite(json, "bits_per_byte", bits_per_byte(result));
        put_counts(json, result);
        json_key(json, "conditioning");
        json_str(json, conditioning(result));
        json_conditions(cli, NULL);
    }
    json_end(json, '}');
    buf_puts(&cli->text, "\n");
}

enum { NAME_COLUMNS = 20 };

static void put_number(struct buf *out, int n_columns, double value)
{
    if (isfinite(value))
        buf_printf(out, " %*.4f", n_columns, value);
    else
        buf_printf(out, " %*s", n_columns, "-");
}

/* A path too long for its column shows its end. */
static void as_row(struct work *work, const char *path, const np_perplexity_result *result)
{
    struct buf *out = &work->cli->text;
    const char *name = path ? path : "all";
    visible_end(out, name, strlen(name), NAME_COLUMNS);
    buf_printf(out, " %10llu %11llu", (unsigned long long)result->n_tokens,
               (unsigned long long)result->n_bytes);
    put_number(out, 14, result->total);
    put_number(out, 11, perplexity_of(result));
    put_number(out, 9, bits_per_byte(result));
    buf_puts(out, "\n");
}

static void table_head(struct cli *cli)
{
    buf_printf(&cli->text, "%s%-20s %10s %11s %14s %11s %9s%s\n", cli->out.colour ? "\033[1m" : "",
               "file", "tokens", "bytes", "total", "perplexity", "bits/byte",
               cli->out.colour ? "\033[0m" : "");
}

static void table_foot(struct work *work)
{
    struct buf *out = &work->cli->text;
    const np_perplexity_result *all = &work->all;
    buf_printf(out, "\n%-14s%14zu rows, stride %zu\n", "window", all->window, all->stride);
    buf_printf(out, "%-14s%14llu tokens, %llu bytes\n", "scored", (unsigned long long)all->n_scored,
               (unsigned long long)all->n_scored_bytes);
    buf_printf(out, "%-14s%14s\n", "conditioning", conditioning(all));
}

/* ---- results as they come ----------------------------------------------------------------- */

static void add_up(struct work *work, const np_perplexity_result *result)
{
    np_perplexity_result *all = &work->all;
    all->has_bos = work->n_summed == 0 ? result->has_bos : all->has_bos && result->has_bos;
    all->n_tokens += result->n_tokens;
    all->n_scored += result->n_scored;
    all->n_bytes += result->n_bytes;
    all->n_scored_bytes += result->n_scored_bytes;
    all->n_windows += result->n_windows;
    all->n_computed += result->n_computed;
    all->total += result->total;
    work->n_summed++;
}

static void print_text(struct work *work)
{
    struct cli *cli = work->cli;
    progress_end(&work->progress);
    output_spill(cli, true);
    output_flush(&cli->out);
    if (cli->out.failed) np_engine_cancel(cli->engine);
}

static void finished(void *user, size_t i)
{
    struct work *work = user;
    struct cli *cli = work->cli;
    const np_perplexity_result *result = &work->results[i];
    bool failed = result->error.status != NP_OK;
    file_shut(&work->files[i]);
    work->n_printed = i + 1;
    work->all.window = result->window;
    work->all.stride = result->stride;
    if (failed) cli->status = EXIT_REQUEST;
    if (!failed) add_up(work, result);
    if (cli->options.json) {
        as_json(work, work->files[i].path, result);
    } else if (failed) {
        progress_end(&work->progress);
        complain_error(file_name(work->files[i].path), &result->error);
    } else {
        if (work->n_summed == 1) table_head(cli);
        as_row(work, work->files[i].path, result);
    }
    print_text(work);
}

static void tell_progress(void *user, size_t done, size_t total)
{
    struct work *work = user;
    progress_tick(&work->progress, done, total);
}

static void print_all(struct work *work)
{
    if (work->cli->options.json) {
        as_json(work, NULL, &work->all);
    } else if (work->n_summed > 0) {
        if (work->n_files > 1) as_row(work, NULL, &work->all);
        table_foot(work);
    }
    print_text(work);
}

/* Hours of work are not lost without a word. */
static void tell_interrupted(const struct work *work)
{
    if (work->n_printed == work->n_files) return;
    const np_perplexity_result *result = &work->results[work->n_printed];
    if (result->n_scored == 0) return;
    complain(file_name(work->files[work->n_printed].path),
             "interrupted after %llu scored tokens: total %.4f, perplexity %.4f",
             (unsigned long long)result->n_scored, result->total, perplexity_of(result));
}

/* ---- the command -------------------------------------------------------------------------- */

static int check_files(const struct options *options)
{
    size_t n_input = 0;
    for (size_t i = 0; i < options->n_files; i++) n_input += is_input(options->files[i]);
    if (options->n_files > 0 && n_input < 2) return EXIT_DONE;
    if (n_input > 1)
        complain("-", "standard input can be read once only");
    else
        complain("perplexity", "a file is expected; - is standard input");
    return EXIT_USAGE;
}

/* What the progress bar expects; files are looked at again when they are opened. */
static uint64_t expected_bytes(const char *path)
{
    struct stat info;
    return !is_input(path) && stat(path, &info) == 0 && S_ISREG(info.st_mode)
               ? (uint64_t)info.st_size
               : 0;
}

static np_status run(struct work *work, np_error *err)
{
    struct cli *cli = work->cli;
    const struct options *options = &cli->options;
    np_perplexity_options how = {.window = (size_t)options->window,
                                 .stride = (size_t)options->stride,
                                 .add_special = (np_choice)options->asked.add_special,
                                 .parse_special = (np_choice)options->asked.parse_special,
                                 .condition = (np_condition)options->asked.condition,
                                 .progress = tell_progress,
                                 .finished = finished,
                                 .user = work};
    for (size_t i = 0; i < work->n_files; i++) {
        work->files[i] = (struct text_file){.path = options->files[i], .fd = -1};
        work->documents[i] = (np_document){.n_bytes = expected_bytes(options->files[i]),
                                           .read = file_read_on,
                                           .read_user = &work->files[i]};
    }
    progress_begin(&work->progress, cli, cli->command->name);
    double began_s = seconds_now();
    np_status status =
        np_perplexity(cli->engine, work->documents, work->n_files, &how, work->results, err);
    cli->compute_s = seconds_now() - began_s;
    progress_end(&work->progress);
    cli->n_tokens = work->all.n_tokens;
    cli->n_rows = work->all.n_scored;
    return status;
}

/* Runs all files; the exit status. */
static int answer(struct work *work)
{
    struct cli *cli = work->cli;
    np_error err = {0};
    if (!output_open(&cli->out, cli->options.output)) return EXIT_REQUEST;
    np_status status = run(work, &err);
    int number = workplace_signal();
    bool usage = status == NP_EINPUT || status == NP_EUNSUPPORTED;
    if (status == NP_OK) print_all(work);
    if (number) tell_interrupted(work);
    options_name_place(&err, cli->command->bit);
    if (status != NP_OK && !number && !cli->out.failed) complain_error("perplexity", &err);
    bool good = output_close(&cli->out, status == NP_OK && number == 0);
    if (number) return EXIT_SIGNAL + number;
    if (cli->out.closed_pipe) return EXIT_DONE;
    if (usage) return EXIT_USAGE;
    return good && status == NP_OK ? cli->status : EXIT_REQUEST;
}

int command_perplexity(struct cli *cli)
{
    struct work work = {.cli = cli, .n_files = cli->options.n_files};
    int status = check_files(&cli->options);
    if (status == EXIT_DONE) status = workplace_open_model(cli);
    if (status == EXIT_DONE) status = workplace_open_engine(cli);
    if (status != EXIT_DONE) return status;
    buf_init(&cli->text, (size_t)1 << 20);
    work.files = calloc(work.n_files, sizeof *work.files);
    work.documents = calloc(work.n_files, sizeof *work.documents);
    work.results = calloc(work.n_files, sizeof *work.results);
    if (work.files && work.documents && work.results) {
        status = answer(&work);
    } else {
        complain("memory", "none left for a list of %zu files", work.n_files);
        status = EXIT_REQUEST;
    }
    for (size_t i = 0; work.files && i < work.n_files; i++) file_shut(&work.files[i]);
    free(work.files);
    free(work.documents);
    free(work.results);
    buf_free(&cli->text);
    return status;
}
