/*
 * Opens the model and the engine, and ends them. Signals: until the engine is open Ctrl-C ends the
 * program as usual; then the first one cancels the running call and the loop stops behind its last
 * complete line, the second one kills. SIGPIPE is ignored: the write fails instead (output.c).
 */
#include "cli.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

static np_engine *volatile running;
static volatile sig_atomic_t signalled;

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int workplace_signal(void)
{
    return signalled;
}

static void on_signal(int number)
{
    signalled = number;
    if (running) np_engine_cancel(running);
}

/* Without SA_RESTART, so that waiting for a line of input ends too. */
static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static uint64_t env_number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

/* Whether all that is written when the work is done can be written. */
static bool has_places(const struct cli *cli)
{
    const char *const places[] = {cli->options.output, cli->archive, cli->options.arrays};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (!output_can_open(places[i])) return false;
    return true;
}

int workplace_open_model(struct cli *cli)
{
    const struct options *options = &cli->options;
    if (!has_places(cli)) return EXIT_REQUEST;
    const char *name = options->model ? options->model : getenv("NEPIT_MODEL");
    char path[4096];
    if (!name || !*name) {
        complain("model", "none is named; give -m PATH or set NEPIT_MODEL");
        return EXIT_USAGE;
    }
    const char *found = model_find(name, path);
    if (!found) return EXIT_MODEL;
    struct progress progress;
    progress_begin(&progress, cli, "loading");
    np_model_options how = {.profile = options->profile,
                            .cpu = options->cpu,
                            .n_threads = (int)options->n_threads,
                            .max_memory = options->max_memory,
                            .progress = progress_tick,
                            .progress_user = &progress};
    np_error err = {0};
    double began_s = seconds_now();
    np_status status = np_model_open(found, &how, &cli->model, &err);
    progress_end(&progress);
    cli->load_s = seconds_now() - began_s;
    if (status != NP_OK) {
        complain_error("model", &err);
        return EXIT_MODEL;
    }
    cli->info = np_model_info(cli->model);
    return EXIT_DONE;
}

int workplace_open_engine(struct cli *cli)
{
    const struct options *options = &cli->options;
    np_engine_options how = {.n_threads = (int)options->n_threads,
                             .oversubscribe = env_number("NEPIT_OVERSUBSCRIBE") == 1,
                             .n_context = (size_t)options->n_context,
                             .chunk_rows = (size_t)env_number("NEPIT_CHUNK_ROWS"),
                             .max_memory = options->max_memory,
                             .cache_memory = options->cache_memory,
                             .no_cache = options->cache_memory == 0};
    np_error err = {0};
    double began_s = seconds_now();
    np_status status = np_engine_open(cli->model, &how, &cli->engine, &err);
    cli->load_s += seconds_now() - began_s;
    if (status != NP_OK) {
        complain_error("model", &err);
        return EXIT_MODEL;
    }
    running = cli->engine;
    watch_signals();
    return EXIT_DONE;
}

void workplace_close(struct cli *cli)
{
    /* The handler must not meet a closed engine. */
    running = NULL;
    np_engine_close(cli->engine);
    np_model_close(cli->model);
    cli->engine = NULL;
    cli->model = NULL;
}

/* ---- progress ----------------------------------------------------------------------------- */

enum { BAR_COLUMNS = 40 };

void progress_begin(struct progress *progress, const struct cli *cli, const char *label)
{
    bool never = cli->options.progress == PROGRESS_NEVER;
    *progress = (struct progress){
        .label = label, .wanted = !never && isatty(STDERR_FILENO), .began_s = seconds_now()};
}

void progress_tick(void *user, size_t done, size_t total)
{
    struct progress *progress = user;
    double now_s = seconds_now();
    if (!progress->wanted || total == 0 || now_s - progress->began_s < 1.0 ||
        now_s - progress->drawn_s < 0.1)
        return;
    progress->drawn = true;
    progress->drawn_s = now_s;
    int filled = (int)((double)BAR_COLUMNS * (double)done / (double)total);
    fprintf(stderr, "\r%s [", progress->label);
    for (int i = 0; i < BAR_COLUMNS; i++) fputc(i < filled ? '#' : '.', stderr);
    fprintf(stderr, "] %3d%%", (int)(100.0 * (double)done / (double)total));
    fflush(stderr);
}

void progress_end(struct progress *progress)
{
    if (progress->drawn) fputs("\r\033[K", stderr);
    progress->drawn = false;
}
