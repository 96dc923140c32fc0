/*
 * exchange.h - one HTTP request and its answer, from the first header to the last byte.
 *
 *   http.c        READING   its body comes in; suspended once it is whole
 *   a worker      WORKING   JSON -> ask -> np_request -> np_submit
 *   the engine              tells what is ready (exchange_heard)
 *   a worker                writes the answer, or the next part of a stream, into `out`
 *   http.c        ANSWERING sends it; OVER when libmicrohttpd has let go of it
 *
 * `heard` is what the engine has told, copied under the server's lock; a worker that writes takes a
 * copy of it, and the arrays of the results are final as far as it says. References: one of the
 * connection, one of the ticket; whoever drops the last one frees.
 */
#ifndef SERVER_EXCHANGE_H
#define SERVER_EXCHANGE_H

#include "ask.h"
#include "base/json.h"
#include "server.h"

#include <pthread.h>

struct route;
struct MHD_Connection;

/* Of one request, as of the last event: arrays of `result` are final in rows [0, n_rows), those of
 * a choice in its first n_tokens. A choice's `text` is not to be read: see exchange_text. */
struct heard {
    np_result result;
    np_generated *choices; /* [n_room], of which result.n_choices hold something */
    size_t n_rows;
    bool finished;
    struct buf *texts; /* [n_room]: the text so far, for streams alone */
    size_t n_room;     /* of both; a failed result has no choices any more */
};

/* What a stream has told of one request. */
struct told_choice {
    size_t n_tokens, n_text_bytes;
    size_t n_characters; /* for offsets */
    bool begun, finished;
};
struct told {
    size_t n_rows;
    bool begun, finished;
    struct told_choice *choices; /* [n_choices] */
};

/* A prompt as ids. */
struct encoded {
    const int32_t *ids;
    size_t n;
    const size_t *begin, *end; /* bytes of the text; NULL for ids */
    size_t n_dropped;          /* tokens before the first one */
};

enum body_form { BODY_JSON, BODY_NPY, BODY_EVENTS, BODY_TEXT, BODY_HTML };
enum squeeze { SQUEEZE_NONE, SQUEEZE_GZIP, SQUEEZE_ZSTD };

struct exchange {
    struct server *server;
    const struct route *route;
    struct arena arena; /* all that lives as long as the exchange */

    /* The request. */
    struct MHD_Connection *connection;
    int socket;
    char request_id[80], peer[64];
    const char *method, *path; /* in the arena */
    int key;                   /* place of its key, -1 without one */
    bool accepts_npy;
    enum squeeze squeeze;
    struct buf body;
    bool body_too_large;
    size_t n_dropped_bytes; /* of a body that is not kept */
    json_t *json;
    struct ask ask;
    struct buf unknown; /* names of fields that nobody knows, by commas */

    /* The work. */
    struct encoded *encoded; /* [ask.prompts.n] */
    double n_expected_bytes; /* of the answer, at most */
    np_request *requests;    /* [n_requests] */
    np_result *results;      /* [n_requests], valid once it is finished */
    size_t n_requests;
    np_ticket *ticket;
    void *extra; /* the route's own, in the arena */

    /* The answer. */
    int status; /* of HTTP; 0: not known yet */
    enum body_form form;
    struct buf out;
    struct json writer; /* writes into `out` */
    size_t n_sent;      /* bytes of `out` that are sent */
    char error[600];    /* its message, for the log */

    /* Guarded by the server's lock. */
    struct heard *heard; /* [n_requests] */
    size_t n_finished;   /* requests */
    uint64_t serial;
    int n_references;
    bool queued;    /* a worker has it, or will */
    bool suspended; /* libmicrohttpd waits for us */
    bool started;   /* a worker has seen it */
    bool news;      /* the engine told something since a worker last looked */
    bool finished;  /* all is computed: the results are there */
    bool streaming; /* its headers are sent, or will be */
    bool ended;     /* nothing will be added to `out` */
    bool gone;      /* the client has left */
    bool over;      /* libmicrohttpd has let go of it: nobody reads `out` any more */
    struct exchange *next_task;
    struct exchange *next, *previous; /* of all that are open */

    struct told *told; /* [n_requests], a stream's */
    bool told_end;

    /* Times, nanoseconds of the monotonic clock. */
    uint64_t began_ns, read_ns, submitted_ns, first_token_ns;
    size_t n_prompt_tokens, n_generated, n_computed, n_cached;
    uint64_t n_out_bytes;
    bool counted; /* among those that run */
    bool close;   /* the connection, behind the answer */
    bool aborted; /* the answer did not get there */
};

struct exchange *exchange_new(struct server *server); /* NULL: no memory */
void exchange_drop(struct exchange *exchange);        /* one reference; the lock is not held */

/* What a worker does: starts it, writes the next part of its stream, or its answer. */
void exchange_work(struct exchange *exchange);
/* Whether there is such work. The lock is held. */
bool exchange_wants_work(const struct exchange *exchange);

/* The client has left: ends its work soon. The lock is held. */
void exchange_abandon(struct exchange *exchange);

/* ---- for routes ------------------------------------------------------------------------------ */

/* [n] requests, zeroed, and their results. */
np_status exchange_requests(struct exchange *exchange, size_t n, np_error *err);

/* Model and vocabulary. */
const np_info *exchange_info(const struct exchange *exchange);
const struct server_options *exchange_options(const struct exchange *exchange);
np_model *exchange_model(const struct exchange *exchange);
const char *exchange_model_name(const struct exchange *exchange);
size_t exchange_context(const struct exchange *exchange);

/* Bytes [from, to) of what a choice's text is so far, behind what `out` holds. */
void exchange_text(struct exchange *exchange, size_t request, size_t choice, size_t from, size_t to,
                   struct buf *out);

/* An event of a stream: between these `writer` writes one JSON value into `out`. */
void exchange_event(struct exchange *exchange);
void exchange_event_end(struct exchange *exchange);

/* A copy that ends with NUL; NULL: no memory. */
char *exchange_copy(struct exchange *exchange, const char *bytes, size_t n_bytes);

#endif
