/*
 * cli.h - what the commands share: the open model, the output, the requests, the loop that answers
 * them.
 *
 * To add a command: one file cmd_<word>.c with its function, one row in the table of main.c, a bit
 * FOR_<WORD> in options.h and that bit in the rows of its options. A command that answers requests
 * hands a `struct asker` to requests_answer and does nothing else.
 *
 *   main.c       the commands                     source.c   lines of a --jsonl file
 *   options.c    the command line                 fields.c   a line as a request
 *   workplace.c  model, engine, signals, progress batch.c    the loop
 *   output.c     -o, pipes                        visible.c  texts in tables
 *   ids.c        lists of ids                     parts.c    .npz archives, --resume
 *   complain.c   errors                           archive.c  one array of a .npz
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/arena.h"
#include "base/json.h"
#include "options.h"

#include <stdbool.h>
#include <stdio.h>

enum { EXIT_DONE = 0, EXIT_REQUEST = 1, EXIT_USAGE = 2, EXIT_MODEL = 3, EXIT_SIGNAL = 128 };

/* Where results go: standard output, or a file, written beside its name and renamed when whole. */
struct output {
    FILE *file;
    char *path, *temporary; /* NULL for standard output */
    bool closed_pipe;       /* the reader has left: end quietly */
    bool failed;            /* already complained about */
    bool colour;
};

struct command;
struct parts;
struct cli {
    const struct command *command;
    struct options options;
    np_model *model;
    np_engine *engine;
    np_info info;
    struct output out;
    struct buf text;          /* what the current answer has printed so far */
    struct json json;         /* writes into `text` */
    int status;               /* exit status so far */
    bool whole;               /* the input was answered to its end */
    struct parts *parts;      /* gather into an archive */
    const char *archive;      /* its path */
    double load_s, compute_s; /* for --timing */
    uint64_t n_tokens, n_rows;
};

struct command {
    const char *name, *summary, *usage, *example;
    unsigned bit;
    int (*run)(struct cli *cli);
};

int command_tokenize(struct cli *cli);
int command_score(struct cli *cli);
int command_next(struct cli *cli);
int command_gather(struct cli *cli);
int command_generate(struct cli *cli);
int command_info(struct cli *cli);
int command_perplexity(struct cli *cli);
int command_serve(struct cli *cli);

/* ---- complain.c: "nepit: what: why (where)" on one line of standard error ----------------- */

void complain(const char *what, const char *fmt, ...) PRINTF_LIKE(2, 3);
void complain_error(const char *what, const np_error *err);

/* ---- workplace.c: opens what a command needs; a status but EXIT_DONE was complained about --- */

int workplace_open_model(struct cli *cli);

/* hubcache.c: `name` itself when it is a path, else its folder in the local Hugging Face cache;
 * NULL: it is not there, and that was complained about. */
const char *model_find(const char *name, char path[4096]);
int workplace_open_engine(struct cli *cli); /* from here on Ctrl-C cancels the running call */
void workplace_close(struct cli *cli);
int workplace_signal(void); /* the signal that asked for an end, 0 for none */
double seconds_now(void);

/* A bar on standard error, drawn when it is a terminal and the work takes more than a second. */
struct progress {
    const char *label;
    bool wanted, drawn;
    double began_s, drawn_s;
};
void progress_begin(struct progress *progress, const struct cli *cli, const char *label);
void progress_tick(void *progress, size_t done, size_t total);
void progress_end(struct progress *progress);

/* ---- output.c ----------------------------------------------------------------------------- */

bool output_open(struct output *out, const char *path); /* NULL: standard output */
bool output_can_open(const char *path); /* tried, and nothing is left; NULL: standard output */
bool output_write(struct output *out, const void *bytes, size_t n_bytes);
bool output_flush(struct output *out);
bool output_close(struct output *out, bool keep); /* keep: rename into place, else remove */

/* Hands what cli->text holds to the output when that is over 1 MiB (or `all`). */
bool output_spill(struct cli *cli, bool all);

/* ---- visible.c ---------------------------------------------------------------------------- */

/* Text as one can see it: "·" for a space, "\n", "\x07"; cut with "…", filled to exactly n_columns
 * (0: neither). */
void visible_text(struct buf *out, const char *bytes, size_t n_bytes, size_t n_columns);
/* The same, cut in front, where the end tells texts apart. */
void visible_end(struct buf *out, const char *bytes, size_t n_bytes, size_t n_columns);
/* What may go to a terminal as running text: line ends, tabs and spaces stay. */
void visible_lines(struct buf *out, const char *bytes, size_t n_bytes);
void visible_token(struct cli *cli, int32_t token_id, size_t n_columns);
/* A log-probability with 4 decimals, right-aligned in 10 columns, coloured on a terminal. */
void visible_logprob(struct cli *cli, double value);
void json_token(struct cli *cli, int32_t token_id); /* its text, null without a tokenizer */
/* What every list of tokens says of one, within its object: token_id, token, the value under its
 * name, probability (unless NULL; null when not finite), rank. */
void json_ranked(struct cli *cli, int32_t token_id, const char *value_name, float value,
                 const double *probability, size_t rank);
void json_ids(struct json *json, const char *key, const int32_t *ids, size_t count);
void json_finite(struct json *json, const char *key, double value); /* null when it is not finite */
void json_conditions(struct cli *cli,
                     const np_request *request);         /* mode, model, profile, numerics */
void json_error(struct json *json, const np_error *why); /* the key "error" and its object */

#endif
