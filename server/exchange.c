/*
 * exchange.c - the stations of a request. A worker has an exchange from work_queue until
 * exchange_work returns; what the engine tells meanwhile is noted, and looked at afterwards.
 *
 * The engine's thread only copies a few counters here (on_ready): the answer is written by workers,
 * and a stream only as fast as its client reads, from arrays that are there anyway. So a client
 * that stops reading holds its own answer and nothing else.
 */
#include "inside.h"
#include "routes.h"

#include <time.h>

uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct exchange *exchange_new(struct server *server)
{
    struct exchange *exchange = mem_alloc(1, sizeof *exchange);
    if (!exchange) return NULL;
    exchange->server = server;
    exchange->socket = -1;
    exchange->key = -1;
    exchange->n_references = 1;
    exchange->began_ns = clock_ns();
    arena_init(&exchange->arena, SIZE_MAX);
    buf_init(&exchange->body, server->options.max_body_bytes);
    buf_init(&exchange->out, server->options.max_answer_bytes);
    buf_init(&exchange->unknown, 4096);
    json_init(&exchange->writer, &exchange->out);
    exchange->ask.values.arena = &exchange->arena;
    pthread_mutex_lock(&server->lock);
    exchange->serial = ++server->n_exchanges;
    exchange->next = server->exchanges;
    if (exchange->next) exchange->next->previous = exchange;
    server->exchanges = exchange;
    server->n_open++;
    pthread_mutex_unlock(&server->lock);
    return exchange;
}

static void exchange_free(struct exchange *exchange)
{
    for (size_t i = 0; i < exchange->n_requests; i++) {
        np_result_free(&exchange->results[i]);
        struct heard *heard = &exchange->heard[i];
        for (size_t k = 0; heard->texts && k < heard->n_room; k++) buf_free(&heard->texts[k]);
    }
    json_decref(exchange->json);
    buf_free(&exchange->body);
    buf_free(&exchange->out);
    buf_free(&exchange->unknown);
    arena_free(&exchange->arena);
    mem_free(exchange);
}

void exchange_drop(struct exchange *exchange)
{
    struct server *server = exchange->server;
    pthread_mutex_lock(&server->lock);
    bool last = --exchange->n_references == 0;
    if (last) {
        if (exchange->next) exchange->next->previous = exchange->previous;
        if (exchange->previous)
            exchange->previous->next = exchange->next;
        else
            server->exchanges = exchange->next;
        server->n_body_bytes -= exchange->body.n_bytes;
    }
    pthread_mutex_unlock(&server->lock);
    if (!last) return;
    exchange_free(exchange);
    pthread_mutex_lock(&server->lock);
    if (--server->n_open == 0) pthread_cond_broadcast(&server->idle);
    pthread_mutex_unlock(&server->lock);
}

/* ---- what the engine tells ------------------------------------------------------------------- */

/* A copy of what may be read while the next step runs. */
static void hear(struct exchange *exchange, struct heard *heard, const np_result *result)
{
    np_generated *choices = heard->choices;
    heard->result = *result;
    heard->choices = choices;
    if (!result->choices || !choices) return;
    for (size_t k = 0; k < result->n_choices; k++) {
        choices[k] = result->choices[k];
        size_t n_had = heard->texts ? heard->texts[k].n_bytes : 0;
        if (heard->texts && choices[k].n_text_bytes > n_had)
            buf_push(&heard->texts[k], choices[k].text + n_had, choices[k].n_text_bytes - n_had);
        if (choices[k].n_tokens && !exchange->first_token_ns) exchange->first_token_ns = clock_ns();
    }
}

/* The engine's thread. */
static void on_ready(void *user, size_t request, const np_result *result, size_t n_rows,
                     int finished)
{
    struct exchange *exchange = user;
    struct heard *heard = &exchange->heard[request];
    pthread_mutex_lock(&exchange->server->lock);
    hear(exchange, heard, result);
    heard->n_rows = n_rows;
    heard->finished = finished;
    exchange->news = true;
    exchange->n_finished += finished != 0;
    exchange->finished = exchange->n_finished == exchange->n_requests;
    if (!exchange->queued && exchange_wants_work(exchange)) work_queue(exchange);
    pthread_mutex_unlock(&exchange->server->lock);
}

bool exchange_wants_work(const struct exchange *exchange)
{
    if (exchange->ticket && exchange->finished)
        return !exchange->streaming || exchange->suspended || exchange->over;
    return exchange->streaming && exchange->suspended && exchange->news && !exchange->ended;
}

void exchange_abandon(struct exchange *exchange)
{
    exchange->gone = true;
    np_cancel(exchange->ticket);
    if (!exchange->queued && exchange_wants_work(exchange)) work_queue(exchange);
}

/* ---- from a body to the engine --------------------------------------------------------------- */

static np_status no_memory(np_error *err)
{
    return error_nomem(err, "request", 0);
}

np_status exchange_requests(struct exchange *exchange, size_t n, np_error *err)
{
    struct arena *arena = &exchange->arena;
    exchange->requests = arena_push_array(arena, n, sizeof *exchange->requests);
    exchange->results = arena_push_array(arena, n, sizeof *exchange->results);
    exchange->heard = arena_push_array(arena, n, sizeof *exchange->heard);
    exchange->told = arena_push_array(arena, n, sizeof *exchange->told);
    exchange->encoded = arena_push_array(arena, n, sizeof *exchange->encoded);
    if (!exchange->requests || !exchange->results || !exchange->heard || !exchange->told ||
        !exchange->encoded)
        return no_memory(err);
    exchange->n_requests = n;
    return NP_OK;
}

/* Room for what will be heard of choices, and told of them. */
static np_status prepare_hearing(struct exchange *exchange, np_error *err)
{
    struct arena *arena = &exchange->arena;
    for (size_t i = 0; i < exchange->n_requests; i++) {
        const np_sampling *sampling = exchange->requests[i].sampling;
        struct heard *heard = &exchange->heard[i];
        size_t n = sampling && sampling->n > 0 ? (size_t)sampling->n : 1;
        if (exchange->requests[i].max_tokens == 0) continue;
        heard->choices = arena_push_array(arena, n, sizeof *heard->choices);
        exchange->told[i].choices = arena_push_array(arena, n, sizeof(struct told_choice));
        if (!heard->choices || !exchange->told[i].choices) return no_memory(err);
        heard->n_room = n;
        if (!exchange->ask.stream) continue;
        heard->texts = arena_push_array(arena, n, sizeof *heard->texts);
        if (!heard->texts) return no_memory(err);
        for (size_t k = 0; k < n; k++) buf_init(&heard->texts[k], (size_t)1 << 30);
    }
    return NP_OK;
}

/* By its path, or one of the names that it was given; "" is no name. */
static bool is_served(const struct server *server, const char *name)
{
    char served[sizeof server->model_name];
    bool found = !*name || strcmp(name, server->info.path) == 0;
    for (size_t i = 0; !found && server_name(server, i, served); i++)
        found = strcmp(name, served) == 0;
    return found;
}

/* What every body may say of the model that it wants. */
static np_status check_identity(struct exchange *exchange, np_error *err)
{
    const struct ask *ask = &exchange->ask;
    const struct server *server = exchange->server;
    if (ask->model && !is_served(server, ask->model)) {
        exchange->status = 404;
        error_set(err, NP_EINPUT, "model", NO_OFFSET, "%s is served here, and no other model",
                  server->model_name);
        return error_given(err, NP_EINPUT, "%s", ask->model);
    }
    size_t n_given = ask->fingerprint ? strlen(ask->fingerprint) : 0;
    if (n_given && strncmp(ask->fingerprint, server->fingerprint, n_given) != 0) {
        error_set(err, NP_EINPUT, "fingerprint", NO_OFFSET, "the model served here has %s",
                  server->fingerprint);
        return error_given(err, NP_EINPUT, "%s", ask->fingerprint);
    }
    if (ask->stream && !exchange->route->event)
        return error_set(err, NP_EUNSUPPORTED, "stream", NO_OFFSET, "this route does not stream");
    if (!ask->stream && json_object_get(exchange->json, "stream_options") &&
        !json_is_null(json_object_get(exchange->json, "stream_options")))
        return error_set(err, NP_EINPUT, "stream_options", NO_OFFSET, "needs stream to be true");
    return NP_OK;
}

/* What a body becomes in memory can be fifty times its bytes. */
static np_status check_json(struct exchange *exchange, np_error *err)
{
    enum { LIST_BYTES = 160, VALUE_BYTES = 48 };
    const struct buf *body = &exchange->body;
    size_t n_lists = 0, n_values = 0;
    for (size_t i = 0; i < body->n_bytes; i++) {
        char c = body->data[i];
        n_lists += c == '[' || c == '{';
        n_values += c == ',';
    }
    if (n_lists * LIST_BYTES + n_values * VALUE_BYTES <= MAX_JSON_BYTES) return NP_OK;
    exchange->status = 413;
    return error_set(err, NP_ELIMIT, "body", NO_OFFSET,
                     "%zu lists and %zu values are too many; a list of ids may be base64 of a .npy",
                     n_lists, n_values);
}

static np_status read_body(struct exchange *exchange, np_error *err)
{
    const struct route *route = exchange->route;
    struct buf *body = &exchange->body;
    if (!route->fields) return NP_OK;
    if (body->n_bytes == 0)
        return error_set(err, NP_EINPUT, "body", NO_OFFSET,
                         "a JSON object is expected; it is empty");
    TRY(check_json(exchange, err));
    TRY(values_parse(&exchange->ask.values, body->data, body->n_bytes, "body", MAX_JSON_DEPTH,
                     &exchange->json, err));
    TRY(body_read(route->fields, exchange->json, route->flags & ROUTE_STRICT, &exchange->ask,
                  &exchange->unknown, err));
    return check_identity(exchange, err);
}

static np_status submit(struct exchange *exchange, np_error *err)
{
    struct server *server = exchange->server;
    np_ticket *ticket;
    TRY(prepare_hearing(exchange, err));
    exchange->submitted_ns = clock_ns();
    TRY(np_submit(server->engine, exchange->requests, exchange->n_requests, on_ready, exchange,
                  &ticket, err));
    pthread_mutex_lock(&server->lock);
    exchange->ticket = ticket;
    exchange->n_references++; /* until np_wait */
    if (exchange->gone) np_cancel(ticket);
    pthread_mutex_unlock(&server->lock);
    return NP_OK;
}

/* "requests[1].candidate_ids[3]": what the client numbers himself by prompts keeps the number. */
static void name_place(struct exchange *exchange, np_error *err)
{
    size_t request = 0;
    const json_t *candidates = exchange->ask.candidates, *first = json_array_get(candidates, 0);
    bool by_prompt = json_is_array(json_array_get(first, 0));
    const char *numbered = exchange->ask.prompts.many ? "token_ids" : NULL;
    const char *dot = strchr(err->where, '.');
    if (dot && sscanf(err->where, "requests[%zu]", &request) == 1)
        memmove(err->where, dot + 1, strlen(dot + 1) + 1);
    if (by_prompt && strncmp(err->where, "candidate_ids", 13) == 0) numbered = "candidate_ids";
    size_t n = numbered ? strlen(numbered) : 0;
    if (n && strncmp(err->where, numbered, n) == 0 && strchr("[", err->where[n])) {
        char rest[sizeof err->where];
        snprintf(rest, sizeof rest, "%s", err->where + n);
        snprintf(err->where, sizeof err->where, "%s[%zu]%.160s", numbered, request, rest);
    }
    if (exchange->route->fields) body_name_place(exchange->route->fields, exchange->json, err);
}

static np_status start(struct exchange *exchange, np_error *err)
{
    const struct route *route = exchange->route;
    np_status status = read_body(exchange, err);
    if (status == NP_OK && route->prepare) {
        status = route->prepare(exchange, err);
        if (status == NP_OK && exchange->n_requests) status = submit(exchange, err);
        if (status != NP_OK) name_place(exchange, err);
    }
    return status;
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* What a request took; one that was cut off has only what was heard of it. */
static void count_tokens(struct exchange *exchange, size_t i)
{
    const np_result *result = &exchange->results[i];
    const struct heard *heard = &exchange->heard[i];
    bool cut = result->error.status != NP_OK && heard->choices && !result->n_choices;
    const np_generated *choices = cut ? heard->choices : result->choices;
    size_t n_choices = cut ? heard->result.n_choices : result->n_choices;
    size_t n_tokens = result->n_tokens ? result->n_tokens : heard->result.n_tokens;
    if (!n_tokens) n_tokens = exchange->requests[i].n_tokens;
    size_t n_needed = n_tokens ? n_tokens - 1 : 0; /* the last has no row */
    exchange->n_prompt_tokens += n_tokens;
    exchange->n_computed += result->n_computed;
    for (size_t k = 0; k < n_choices; k++) {
        n_needed += choices[k].n_tokens;
        exchange->n_generated += choices[k].n_tokens;
    }
    if (result->error.status == NP_OK && n_needed > result->n_computed)
        exchange->n_cached += n_needed - result->n_computed;
}

/* The results, once all is finished; the first that failed decides. */
static np_status collect(struct exchange *exchange, np_error *err)
{
    struct server *server = exchange->server;
    pthread_mutex_lock(&server->lock);
    np_ticket *ticket = exchange->ticket;
    exchange->ticket = NULL;
    pthread_mutex_unlock(&server->lock);
    np_status status = np_wait(ticket, exchange->results, err);
    for (size_t i = 0; i < exchange->n_requests; i++) count_tokens(exchange, i);
    if (status != NP_OK) name_place(exchange, err);
    return status;
}

void exchange_event(struct exchange *exchange)
{
    buf_puts(&exchange->out, "data: ");
    json_init(&exchange->writer, &exchange->out);
}

void exchange_event_end(struct exchange *exchange)
{
    buf_puts(&exchange->out, "\n\n");
}

void exchange_text(struct exchange *exchange, size_t request, size_t choice, size_t from, size_t to,
                   struct buf *out)
{
    pthread_mutex_lock(&exchange->server->lock);
    const struct buf *text = &exchange->heard[request].texts[choice];
    if (to > from && to <= text->n_bytes) buf_push(out, text->data + from, to - from);
    pthread_mutex_unlock(&exchange->server->lock);
}

/* More is written when this much is sent. */
#define STREAM_BYTES ((size_t)256 << 10)

/* Writes events until nothing is new, or enough is waiting to be sent. */
static np_status write_events(struct exchange *exchange, const struct heard *heard, bool finished,
                              np_error *err)
{
    struct part part;
    while (exchange->out.n_bytes < STREAM_BYTES && streaming_next(exchange, heard, finished, &part))
        TRY(exchange->route->event(exchange, heard, &part, err));
    if (exchange->out.failed) return no_memory(err);
    if (exchange->told_end && !(exchange->route->flags & ROUTE_BARE))
        buf_puts(&exchange->out, "data: [DONE]\n\n");
    return NP_OK;
}

/* What was heard so far, in one piece of memory: the engine tells more meanwhile. NULL: no memory,
 * here or for a text. The lock is held. */
static struct heard *copy_heard(const struct exchange *exchange)
{
    size_t n = exchange->n_requests, n_room = 0;
    bool failed = false;
    for (size_t i = 0; i < n; i++) n_room += exchange->heard[i].n_room;
    struct heard *heard = mem_alloc(1, n * sizeof *heard + n_room * sizeof(np_generated));
    np_generated *choices = heard ? (np_generated *)(void *)(heard + n) : NULL;
    for (size_t i = 0; heard && i < n; i++) {
        const struct heard *from = &exchange->heard[i];
        heard[i] = *from;
        for (size_t k = 0; from->texts && k < from->n_room; k++) failed |= from->texts[k].failed;
        if (from->n_room == 0) continue;
        heard[i].choices = memcpy(choices, from->choices, from->n_room * sizeof *choices);
        if (from->result.choices) heard[i].result.choices = choices;
        choices += from->n_room;
    }
    if (!failed) return heard;
    mem_free(heard);
    return NULL;
}

/* The next part of a stream; `out` is empty, for all of it is sent. */
static void write_stream(struct exchange *exchange)
{
    struct server *server = exchange->server;
    np_error err = {0};
    pthread_mutex_lock(&server->lock);
    struct heard *heard = copy_heard(exchange);
    bool finished = exchange->finished, gone = exchange->gone;
    exchange->news = false;
    pthread_mutex_unlock(&server->lock);
    exchange->out.n_bytes = exchange->n_sent = 0;
    np_status status = finished && exchange->ticket ? collect(exchange, &err) : NP_OK;
    if (status == NP_OK && !heard) status = no_memory(&err);
    if (status == NP_OK && !gone) status = write_events(exchange, heard, finished, &err);
    if (status != NP_OK) reply_error_event(exchange, &err);
    mem_free(heard);
    pthread_mutex_lock(&server->lock);
    exchange->ended = status != NP_OK || gone || exchange->told_end;
    exchange->news = exchange->news || exchange->out.n_bytes >= STREAM_BYTES;
    if (status != NP_OK) np_cancel(exchange->ticket);
    pthread_mutex_unlock(&server->lock);
}

static void write_answer(struct exchange *exchange, np_status status, np_error *err)
{
    if (status == NP_OK) status = exchange->route->reply(exchange, err);
    if (status == NP_OK && exchange->out.failed)
        status = error_set(err, NP_ELIMIT, "", NO_OFFSET,
                           "the answer is larger than the %zu bytes that are sent (--max-answer)",
                           exchange->out.max_bytes);
    if (status != NP_OK) reply_error(exchange, err);
    if (!exchange->status) exchange->status = 200;
    reply_squeeze(exchange);
}

void exchange_work(struct exchange *exchange)
{
    struct server *server = exchange->server;
    np_error err = {0};
    np_status status = NP_OK;
    bool had_ticket = exchange->ticket != NULL;
    if (!exchange->started) {
        exchange->started = true;
        status = start(exchange, &err);
        had_ticket = exchange->ticket != NULL;
        if (status == NP_OK && had_ticket && !exchange->ask.stream) return;
        if (status == NP_OK && had_ticket) {
            exchange->status = 200;
            exchange->form = BODY_EVENTS;
            pthread_mutex_lock(&server->lock);
            exchange->streaming = true;
            pthread_mutex_unlock(&server->lock);
            http_resume(exchange);
            return;
        }
    }
    if (exchange->streaming) {
        if (!exchange->ended)
            write_stream(exchange);
        else if (exchange->ticket)
            (void)collect(exchange, &err);
    } else {
        if (had_ticket) status = collect(exchange, &err);
        write_answer(exchange, status, &err);
        exchange->ended = true;
    }
    bool collected = had_ticket && !exchange->ticket;
    http_resume(exchange);
    if (collected) exchange_drop(exchange);
}

/* ---- what routes ask for --------------------------------------------------------------------- */

const np_info *exchange_info(const struct exchange *exchange)
{
    return &exchange->server->info;
}

const struct server_options *exchange_options(const struct exchange *exchange)
{
    return &exchange->server->options;
}

np_model *exchange_model(const struct exchange *exchange)
{
    return exchange->server->model;
}

const char *exchange_model_name(const struct exchange *exchange)
{
    return exchange->server->model_name;
}

size_t exchange_context(const struct exchange *exchange)
{
    return exchange->server->n_context;
}

char *exchange_copy(struct exchange *exchange, const char *bytes, size_t n_bytes)
{
    return arena_strndup(&exchange->arena, bytes, n_bytes);
}
