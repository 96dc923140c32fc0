/*
 * requests.h - a request as the command line or a line of --jsonl gives it, and the loop that
 * answers them. A command says by a `struct asker` how it completes a request and how it prints an
 * answer.
 */
#ifndef CLI_REQUESTS_H
#define CLI_REQUESTS_H

#include "cli.h"

/* One request as it was read; memory belongs to the batch's arena. */
struct question {
    np_request request; /* filled by question_finish */
    struct asked asked;
    size_t number;  /* among the requests, from 0 */
    size_t line;    /* of the --jsonl file, from 1; 0: the command line */
    const char *id; /* as given, or NULL */
    bool id_is_text;
    int64_t id_int;
    uint64_t hash; /* of the line */
    const char *text, *response_text;
    size_t n_bytes, n_response_bytes;
    const int32_t *token_ids, *response_ids;
    size_t n_tokens, n_response;
    bool has_ids, has_response_ids;
    const char *candidates_name; /* the field that gave them */
    const char *tokens_name;     /* as above; NULL: token_ids */
    const int32_t *candidate_ids;
    size_t n_candidates, n_candidate_rows;
    float temperature;
    np_error error; /* why it cannot be asked */
};

/* How a command uses the loop. */
struct asker {
    bool runs; /* through np_run; else `json` and `table` get a NULL result */
    /* Once, when the model is open; may be NULL. */
    np_status (*begin)(struct cli *cli, np_error *err);
    /* Completes the request (what is wanted of each row). */
    np_status (*prepare)(struct cli *cli, struct question *question, struct arena *arena,
                         np_error *err);
    /* Instead of np_run, for the one request of the command line; may be NULL. */
    np_status (*run)(struct cli *cli, const struct question *question, np_result *result,
                     np_error *err);
    /* Print into cli->text. */
    np_status (*json)(struct cli *cli, struct question *question, np_result *result, np_error *err);
    np_status (*table)(struct cli *cli, struct question *question, np_result *result,
                       np_error *err);
    /* Instead of printing, when not NULL. */
    np_status (*deliver)(struct cli *cli, struct question *question, np_result *result,
                         np_error *err);
    /* Whether this request is done already (--resume); may be NULL. */
    bool (*done)(struct cli *cli, struct question *question);
};

/* Opens model and output, answers all requests in their order, and returns the exit status. */
int requests_answer(struct cli *cli, const struct asker *asker);

/* "id": as given, or the number of the request; nothing for the request of the command line. */
void json_id(struct json *json, const struct question *question);

/* fields.c: a line of JSON into a question that holds the defaults; the error is left in it too. */
np_status fields_read(struct question *question, unsigned command, const char *line, size_t n_bytes,
                      struct arena *arena);

/* ids.c: "1 2, 3"; where: the name for errors ("token_ids"). Arrays belong to the arena. */
np_status ids_parse(const char *text, size_t n_bytes, const char *where, struct arena *arena,
                    const int32_t **ids, size_t *n_ids, np_error *err);
/* A file of ids: .npy, or the array `member` of a .npz. */
np_status ids_from_file(const char *path, const char *member, struct arena *arena,
                        struct question *question, np_error *err);
/* A whole text: .npy, or of a .npz prompt_token_ids, where it has them, and token_ids behind. */
np_status ids_from_whole(const char *path, struct arena *arena, struct question *question,
                         np_error *err);

/* archive.c: the bytes of <name>.npy in the bytes of a .npz. NP_EFORMAT, NP_EUNSUPPORTED
 * (compressed), NP_EINPUT (it is not there). */
np_status archive_member(const char *bytes, size_t n_bytes, const char *where, const char *name,
                         const char **data, size_t *n_data, np_error *err);

#endif
