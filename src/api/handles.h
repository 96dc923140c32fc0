/*
 * handles.h - what stands behind the opaque types of nepit.h, and the stations of a request in this
 * room: submit.c checks it and makes its plan, engine runs it, result.c holds its arrays.
 */
#ifndef API_HANDLES_H
#define API_HANDLES_H

#include "api/watch.h"
#include "engine/engine.h"
#include "engine/tree.h"
#include "text/template.h"
#include "text/tokenizer.h"

#define MAX_CHOICES 128
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
    struct template *templates[TOKENIZER_TEMPLATES]; /* compiled; NULL: none, or an error */
    np_error template_errors[TOKENIZER_TEMPLATES];
    struct arena arena;
};

struct np_engine {
    np_model *model;
    struct engine *engine;
};

/* A pointer that the caller must give: NP_EINPUT, with its name, where it is NULL. */
np_status need_pointer(const void *pointer, const char *where, np_error *err);

np_status need_tokenizer(const np_model *model, np_error *err);
/* What a caller's enum may hold: 0 to `highest`. */
np_status check_choice(const char *where, int given, int highest, np_error *err);
/* An encoding as the caller's arrays. */
np_status encoding_tokens(const struct encoding *encoding, np_tokens *out, np_error *err);

/* chat.c: the chat templates of a model, once its tokenizer is there. */
np_status chat_open(np_model *model, np_error *err);
void chat_close(np_model *model);

/* Encodes text as ids with the request's choices; NP_EUNSUPPORTED without a tokenizer. */
np_status encode_request(const np_model *model, const np_request *request, struct encoding *out,
                         np_error *err);

/* One sequence of a request: the request itself, and each further choice of what follows. */
struct work {
    struct job job; /* first: an event has its address */
    struct plan plan;
    struct generation generation;
    struct sampling sampling;
    struct watch watch;
    bool keep_special;
    const struct tokenizer *tokenizer;
    np_generated *out; /* NULL: nothing follows */
};
/* What np_result.memory keeps: all of a request, in one arena. */
struct answer_memory {
    struct arena arena;
    struct stops stops;
    struct work *works;
    size_t n_works;
};

/* A request becomes works that can be submitted (their caller, event and user still to be set) and
 * the result's arrays. On an error the result holds it, and there are none. */
np_status submit_request(const np_engine *engine, const np_request *request, np_result *result);
static inline struct work *result_works(const np_result *result, size_t *n_works)
{
    struct answer_memory *memory = result->memory;
    *n_works = memory ? memory->n_works : 0;
    return memory ? memory->works : NULL;
}

/* following.c: what is to follow: works->generation, sampling and watch of every choice. */
np_status submit_choices(const np_engine *engine, const np_request *request, np_result *result,
                         struct answer_memory *memory, np_error *err);
/* Brings what is told of a choice up to date: by the engine's thread, or when all is over. */
void following_tell(struct work *work);

/* Arrays of a result for a plan, tied to a job. */
np_status result_init(np_result *result, const struct plan *plan, struct job *job,
                      struct arena *arena, np_error *err);
/* After the run: what is told is up to date; the first error of its jobs. */
np_error result_settle(np_result *result);
/* The same; a failed job leaves only its error. */
void result_finish(np_result *result);

/* One array that an answer may want. */
struct answer {
    bool wanted;
    size_t count, size_bytes;
    void *place;
};
/* One of n_alike sets of arrays, which have one limit together. */
np_status push_answers(struct arena *arena, const struct answer *answers, size_t n, size_t n_alike,
                       np_error *err);

#endif
