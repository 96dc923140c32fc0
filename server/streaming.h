/*
 * streaming.h - a stream as a sequence of parts. The core finds what is new; a route writes one
 * event for each part (routes.h), and all parts together say what the plain answer says.
 */
#ifndef SERVER_STREAMING_H
#define SERVER_STREAMING_H

#include "exchange.h"

enum part_kind {
    PART_ROWS,   /* scored rows [from, to) of a request; `first` comes even with no row */
    PART_CHOICE, /* tokens [from, to) of a choice, and its text [text_from, text_to) */
    PART_END     /* behind everything, once */
};
struct part {
    enum part_kind kind;
    size_t request, choice;
    size_t from, to;
    size_t text_from, text_to;
    bool first, last; /* of its rows, or of its choice */
};

/* The next thing that was heard and not told; marks it as told. False: there is nothing. */
bool streaming_next(struct exchange *exchange, const struct heard *heard, bool finished,
                    struct part *part);

#endif
