/*
 * handles.h - what stands behind the opaque types of nepit.h, and the stations of a request in this
 * room: submit.c checks it and makes its plan, engine runs it, result.c holds its arrays.
 */
#ifndef API_HANDLES_H
#define API_HANDLES_H

#include "engine/engine.h"
#include "text/tokenizer.h"

#define NUMERICS_VERSION "1" /* a changed bit of any answer is a new version */

/* An answer larger than this is refused before any work; both numbers are named. */
#define MAX_ANSWER_BYTES ((size_t)4 << 30)

struct np_model {
    struct model *model;
    struct tokenizer *tokenizer; /* NULL: ids only */
    enum cpu_level level;
    char cpu_reason[96];
    char *path, *name, *container;
    char weight_types[256];
    bool has_chat_template;
    struct arena arena;
};

struct np_engine {
    np_model *model;
    struct engine *engine;
};

/* A pointer that the caller must give: NP_EINPUT, with its name, where it is NULL. */
np_status need_pointer(const void *pointer, const char *where, np_error *err);

/* Encodes text as ids with the request's choices; NP_EUNSUPPORTED without a tokenizer. */
np_status encode_request(const np_model *model, const np_request *request, struct encoding *out,
                         np_error *err);

/* Everything of one request: its plan, and the result's arrays, all in one arena which
 * np_result.memory keeps. On an error the result holds it and the job must not run. */
np_status submit_request(const np_engine *engine, const np_request *request, struct plan *plan,
                         struct job *job, np_result *result);

/* Arrays of a result for a plan, tied to a job. */
np_status result_init(np_result *result, const struct plan *plan, struct job *job,
                      struct arena *arena, np_error *err);
/* After the run: a failed job leaves only its error. */
void result_finish(np_result *result, const struct job *job);

#endif
