/*
 * watch.h - the text of a generated choice as it grows: where it ends, what may be shown.
 *
 *   text   |........................|.....|....|
 *          0                  n_final  maybe a stop text, or part of a character
 */
#ifndef API_WATCH_H
#define API_WATCH_H

#include "base/arena.h"
#include "base/buf.h"
#include "nepit.h"

#define MAX_STOPS 64

/* The stop texts of a request, for all its choices. */
struct stops {
    const np_string *texts; /* borrowed; each at least one byte */
    size_t n;
    const size_t **borders; /* [n][n_bytes]: of its first i + 1 bytes, the longest beginning that is
                               an end too */
};
/* False: no memory. */
bool stops_init(struct stops *stops, const np_string *texts, size_t n, struct arena *arena);

struct watch {
    struct buf text;
    const struct stops *stops;
    size_t *matched; /* [n] bytes of each stop that the text ends with; never all */
    bool include_stop;
    size_t n_final;
    int32_t stop_index; /* -1: none met */
};

/* False: no memory. stops: borrowed. */
bool watch_init(struct watch *watch, const struct stops *stops, bool include_stop,
                struct arena *arena);
void watch_free(struct watch *watch);

/* The bytes of one more token. True: a stop text is complete (the first to end; of those, the first
 * to begin), and the text is cut there. With !may_stop what is complete by now never counts. */
bool watch_push(struct watch *watch, const char *bytes, size_t n_bytes, bool may_stop);
/* Nothing follows: all of the text is final. */
void watch_end(struct watch *watch);

#endif
