/*
 * fields.h - what a request may say: one row per field. The row checks the value, puts it into
 * struct ask, names the place in errors, and becomes the field's line in /openapi.json and in the
 * reference.
 *
 * A route has a list of groups of rows. Groups that routes share (how tokens are drawn, what is
 * scored) stand in ask_fields.c. A field that could change a number and is not served is there too,
 * as FIELD_ONLY: its harmless values are taken, any other is refused by name. Names that no row
 * knows are collected for the log and a header of the answer, or refused where the route says so.
 */
#ifndef SERVER_BODYFIELDS_H
#define SERVER_BODYFIELDS_H

#include "ask.h"
#include "base/json.h"

enum field_kind {
    FIELD_FLAG,       /* int: 0 or 1 */
    FIELD_CHOICE,     /* int: np_choice */
    FIELD_INT,        /* int64_t; NOT_GIVEN */
    FIELD_COUNT,      /* the same; true and false are 1 and NOT_GIVEN */
    FIELD_NUMBER,     /* double; NAN: not given */
    FIELD_ABOVE0,     /* double, at least the smallest float32 */
    FIELD_NAME,       /* int: place in the list `more`, NULL at its end, counted from 1 */
    FIELD_TEXT,       /* np_string; bytes NULL: not given */
    FIELD_WORD,       /* const char *: a text without NUL */
    FIELD_IDS,        /* np_ids; ids NULL: not given */
    FIELD_TEXTS,      /* struct texts: one or many */
    FIELD_SEED,       /* int64_t; -1: a random one */
    FIELD_BIASES,     /* struct biases */
    FIELD_PROMPT,     /* struct prompts: text, texts, ids, lists of ids */
    FIELD_ID_LISTS,   /* struct prompts: lists of ids alone */
    FIELD_CANDIDATES, /* json_t *, kept: what it means depends on the prompts */
    FIELD_INTS,       /* struct ints: one, or a list */
    FIELD_PIECES,     /* json_t *, kept: what llama.cpp takes for prompts */
    FIELD_ARRAY,      /* json_t *: the route reads it */
    FIELD_MAP,        /* json_t * */
    FIELD_OBJECT,     /* the groups of fields of `more` */
    FIELD_ONLY,       /* null, or a value of the JSON array `more` */
    FIELD_IGNORED     /* any value: it changes nothing here */
};

struct field {
    const char *name;
    enum field_kind kind;
    size_t at; /* in struct ask */
    double low, high;
    const void *more;
    const char *fallback; /* JSON; taken where the field is missing or null. NULL: none */
    const char *by;       /* who calls it so: "OpenAI", "vLLM", "SGLang", "TRL", "nepit" */
    const char *about;    /* one sentence for who reads the reference */
    const char *becomes;  /* the place's name in errors of the library, if that is another */
    bool required;
};

/* Groups end with a row whose name is NULL, lists of groups with NULL. */
typedef const struct field *const field_groups[];

struct exchange;

/* ask_fields.c: the rows whose defaults hold where a route has no row for a place. */
extern const struct field *const default_groups[];

/* Reads `json`, an object, into *ask, whose defaults come from the rows. `strict`: a field that no
 * row knows is an error; else its name is added to `unknown`. */
np_status body_read(const struct field *const *groups, const json_t *json, bool strict,
                    struct ask *ask, struct buf *unknown, np_error *err);

/* The row of a name: the first; a route's own rows stand before those that it shares. NULL: none.
 */
const struct field *body_find(const struct field *const *groups, const char *name);

/* The library's place ("candidate_ids[3][1]") as the client's
 * ("sampling_params.prompt_logprob_token_ids[3][1]"); of several names for one thing, the one that
 * was sent. */
void body_name_place(const struct field *const *groups, const json_t *body, np_error *err);

/* The schema of a body: a JSON object. n_vocab bounds ids. */
void body_schema(const struct field *const *groups, bool strict, int32_t n_vocab,
                 struct json *json);

#endif
