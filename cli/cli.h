/*
 * cli.h - what the commands share: the open model, the output, the requests, the loop that answers them.
 *
 * To add a command: one file cmd_<word>.c with its function, one row in the table of main.c, a bit
 * FOR_<WORD> in options.h and that bit in the rows of its options. A command that answers requests hands a
 * `struct asker` to requests_answer and does nothing else.
 *
 *   main.c      the commands          source.c   lines of a --jsonl file        output.c  -o, pipes
 *   options.c   the command line      fields.c   a line as a request            visible.c texts in tables
 *   workplace.c model, engine, signals, progress, timing      batch.c  the loop  parts.c   .npz, --resume
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/arena.h"
#include "base/json.h"
#include "options.h"

#include <stdbool.h>
#include <stdio.h>

enum { EXIT_DONE = 0, EXIT_REQUEST = 1, EXIT_USAGE = 2, EXIT_MODEL = 3, EXIT_SIGNAL = 128 };

/* Where results go: standard output, or a file that is written beside its name and renamed when whole. */
struct output {
    FILE *file;
    char *path, *temporary;   /* NULL for standard output */
    bool closed_pipe;         /* the reader has left: end quietly */
    bool failed;              /* already complained about */
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
int command_info(struct cli *cli);

/* ---- errors (main.c): "nepit: what: why (where)" on one line of standard error --------------------- */

void complain(const char *what, const char *fmt, ...) PRINTF_LIKE(2, 3);
void complain_error(const char *what, const np_error *err);

/* ---- workplace.c: opens what a command needs; a status other than EXIT_DONE has been complained about -- */

int workplace_open_model(struct cli *cli);
int workplace_open_engine(struct cli *cli); /* from here on Ctrl-C cancels the running call */
void workplace_close(struct cli *cli);
int workplace_signal(void);                 /* the signal that asked for an end, 0 for none */
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

/* ---- output.c ---------------------------------------------------------------------------------- */

bool output_open(struct output *out, const char *path); /* NULL: standard output */
bool output_write(struct output *out, const void *bytes, size_t n_bytes);
bool output_flush(struct output *out);
bool output_close(struct output *out, bool keep);       /* keep: rename into place, else remove */

/* Hands what cli->text holds to the output when that is over 1 MiB (or `all`). */
bool output_spill(struct cli *cli, bool all);

/* ---- visible.c --------------------------------------------------------------------------------- */

/* Text as one can see it: "·" for a space, "\n", "\x07"; cut with "…" and filled to exactly n_columns
 * (0: neither). */
void visible_text(struct buf *out, const char *bytes, size_t n_bytes, size_t n_columns);
void visible_token(struct cli *cli, int32_t token_id, size_t n_columns);
/* A log-probability with 4 decimals, right-aligned in 10 columns, coloured on a terminal. */
void visible_logprob(struct cli *cli, double value);
void json_token(struct cli *cli, int32_t token_id); /* its text, null without a tokenizer */
void json_ids(struct json *json, const char *key, const int32_t *ids, size_t count);
void json_finite(struct json *json, const char *key, double value); /* null when it is not finite */
void json_conditions(struct cli *cli, const np_request *request); /* mode, model, profile, numerics */

/* ---- requests ---------------------------------------------------------------------------------- */

/* One request as it was read; memory belongs to the batch's arena. */
struct question {
    np_request request;       /* filled by question_finish */
    struct asked asked;
    size_t number;            /* among the requests, from 0 */
    size_t line;              /* of the --jsonl file, from 1; 0: the command line */
    const char *id;           /* as given, or NULL */
    bool id_is_text;
    int64_t id_int;
    uint64_t hash;            /* of the line */
    const char *text, *response_text;
    size_t n_bytes, n_response_bytes;
    const int32_t *token_ids, *response_ids;
    size_t n_tokens, n_response;
    bool has_ids, has_response_ids;
    const int32_t *candidate_ids;
    size_t n_candidates, n_candidate_rows;
    float temperature;
    np_error error;           /* why it cannot be asked */
};

/* How a command uses the loop. */
struct asker {
    bool runs;                /* through np_run; else `json` and `table` get a NULL result */
    /* Once, when the model is open; may be NULL. */
    np_status (*begin)(struct cli *cli, np_error *err);
    /* Completes the request (what is wanted of each row). */
    np_status (*prepare)(struct cli *cli, struct question *question, struct arena *arena, np_error *err);
    /* Print into cli->text. */
    np_status (*json)(struct cli *cli, struct question *question, np_result *result, np_error *err);
    np_status (*table)(struct cli *cli, struct question *question, np_result *result, np_error *err);
    /* Instead of printing, when not NULL. */
    np_status (*deliver)(struct cli *cli, struct question *question, np_result *result, np_error *err);
    /* Whether this request is done already (--resume); may be NULL. */
    bool (*done)(struct cli *cli, struct question *question);
};

/* Opens the model and the output, answers all requests in their order, and returns the exit status. */
int requests_answer(struct cli *cli, const struct asker *asker);

/* "id": as given, or the number of the request; nothing for the request of the command line. */
void json_id(struct json *json, const struct question *question);

/* fields.c: one line of JSON into a question that holds the defaults; the error is left in it too. */
np_status fields_read(struct question *question, unsigned command, const char *line, size_t n_bytes,
                      struct arena *arena);

/* ids.c: "1 2, 3"; where: the name for errors ("token_ids"). Arrays belong to the arena. */
np_status ids_parse(const char *text, size_t n_bytes, const char *where, struct arena *arena,
                    const int32_t **ids, size_t *n_ids, np_error *err);
/* The bytes of a .npy file as candidates: [K] or [rows, K]. */
np_status ids_from_npy(const char *bytes, size_t n_bytes, const char *where, struct arena *arena,
                       struct question *question, np_error *err);
/* Standard base64; the error names the byte. */
np_status base64_decode(const char *text, size_t n_bytes, const char *where, struct arena *arena,
                        char **bytes, size_t *n_decoded, np_error *err);

#endif
