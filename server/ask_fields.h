/*
 * ask_fields.h - groups of fields that routes share, and the macros that write a row.
 */
#ifndef SERVER_ASK_FIELDS_H
#define SERVER_ASK_FIELDS_H

#include "bodyfields.h"

#include <float.h>

#define ASK(member) offsetof(struct ask, member)
#define COUNT_MAX INT32_MAX

/* A row whose kind needs no range. */
#define ROW(name, kind, member, fallback, by, becomes, about)                    \
    {                                                                            \
        name, kind, ASK(member), 0, 0, NULL, fallback, by, about, becomes, false \
    }
#define NUMBERS(name, kind, member, low, high, fallback, by, becomes, about)          \
    {                                                                                 \
        name, kind, ASK(member), low, high, NULL, fallback, by, about, becomes, false \
    }
#define NAMES(name, member, names, fallback, by, about)                              \
    {                                                                                \
        name, FIELD_NAME, ASK(member), 0, 0, names, fallback, by, about, NULL, false \
    }
#define IGNORED(name, by, about)                                         \
    {                                                                    \
        name, FIELD_IGNORED, 0, 0, 0, NULL, NULL, by, about, NULL, false \
    }
/* values: a JSON array of what is harmless. */
#define ONLY(name, values, by, about)                                   \
    {                                                                   \
        name, FIELD_ONLY, 0, 0, 0, values, NULL, by, about, NULL, false \
    }
#define OBJECT(name, fields, by, about)                                   \
    {                                                                     \
        name, FIELD_OBJECT, 0, 0, 0, fields, NULL, by, about, NULL, false \
    }
#define REQUIRED(name, kind, member, by, becomes, about)                    \
    {                                                                       \
        name, kind, ASK(member), 0, 0, NULL, NULL, by, about, becomes, true \
    }
#define LAST_ROW                                                          \
    {                                                                     \
        NULL, FIELD_IGNORED, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, false \
    }

#define LOGPROB_TOKEN_IDS                                                                    \
    ROW("logprob_token_ids", FIELD_IDS, logprob_ids, NULL, "vLLM", "sampling.candidate_ids", \
        "Beside each generated token the log-probabilities of these, in place of the likeliest.")

extern const struct field drawing_fields[];  /* how tokens are drawn */
extern const struct field scoring_fields[];  /* what is told of the prompt's rows */
extern const struct field running_fields[];  /* when it runs, what it shares */
extern const struct field identity_fields[]; /* model, request_id, fingerprint */
extern const struct field stream_fields[];
extern const struct field special_fields[]; /* how a text becomes ids */

extern const char *const score_format_names[];

#endif
