/*
 * reply.c - how an answer goes out: errors as statuses, headers, the bytes of a stream.
 *
 * Whatever a client did wrong is 4xx, with the path of the field: trainers send a 500 again.
 */
#include "errors.h"
#include "inside.h"
#include "routes.h"

/* ---- errors ---------------------------------------------------------------------------------- */

static const char *type_of(int status)
{
    static const struct client_error types[] = {{400, "BadRequestError"},
                                                {401, "AuthenticationError"},
                                                {403, "PermissionDeniedError"},
                                                {404, "NotFoundError"},
                                                {405, "MethodNotAllowedError"},
                                                {408, "RequestTimeoutError"},
                                                {411, "LengthRequiredError"},
                                                {413, "PayloadTooLargeError"},
                                                {415, "UnsupportedMediaTypeError"},
                                                {422, "UnprocessableEntityError"},
                                                {429, "RateLimitError"},
                                                {503, "ServiceUnavailableError"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].code == status) return types[i].type;
    return "InternalServerError";
}

static void error_object(struct exchange *exchange, int status, const char *field,
                         const char *message)
{
    struct json *json = &exchange->writer;
    json_begin(json, '{');
    json_key(json, "error");
    json_begin(json, '{');
    json_key(json, "message");
    json_str(json, message);
    json_key(json, "type");
    json_str(json, type_of(status));
    json_key(json, "param");
    json_str(json, field && *field ? field : NULL);
    json_key(json, "code");
    json_int(json, status);
    json_end(json, '}');
    json_end(json, '}');
    snprintf(exchange->error, sizeof exchange->error, "%s", message);
}

void reply_refuse(struct exchange *exchange, int status, const char *field, const char *message)
{
    buf_free(&exchange->out);
    json_init(&exchange->writer, &exchange->out);
    exchange->status = status;
    exchange->form = BODY_JSON;
    exchange->squeeze = SQUEEZE_NONE;
    error_object(exchange, status, field, message);
}

/* The field has its own place in the answer, so the message does without. */
static void message_of(const np_error *err, char *out, size_t n_bytes)
{
    np_error bare = *err;
    bare.where[0] = 0;
    np_error_line(&bare, out, n_bytes);
}

/* A status that was set before stands: a route may know better. */
void reply_error(struct exchange *exchange, const np_error *err)
{
    char message[600];
    message_of(err, message, sizeof message);
    reply_refuse(exchange, exchange->status ? exchange->status : client_error_of(err->status).code,
                 err->where, message);
}

void reply_error_event(struct exchange *exchange, const np_error *err)
{
    char message[600];
    message_of(err, message, sizeof message);
    buf_free(&exchange->out);
    exchange_event(exchange);
    error_object(exchange, client_error_of(err->status).code, err->where, message);
    exchange_event_end(exchange);
    if (!(exchange->route->flags & ROUTE_BARE)) buf_puts(&exchange->out, "data: [DONE]\n\n");
}

/* ---- headers --------------------------------------------------------------------------------- */

static void add_headers(struct exchange *exchange, struct MHD_Response *response)
{
    static const char *const types[] = {[BODY_JSON] = "application/json",
                                        [BODY_NPY] = "application/octet-stream",
                                        [BODY_EVENTS] = "text/event-stream",
                                        [BODY_TEXT] = "text/plain; version=0.0.4; charset=utf-8",
                                        [BODY_HTML] = "text/html; charset=utf-8"};
    static const char *const encodings[] = {NULL, "gzip", "zstd"};
    char allowed[64];
    MHD_add_response_header(response, "Content-Type", types[exchange->form]);
    MHD_add_response_header(response, "X-Request-Id", exchange->request_id);
    if (exchange->squeeze && !exchange->streaming)
        MHD_add_response_header(response, "Content-Encoding", encodings[exchange->squeeze]);
    if (exchange->form != BODY_EVENTS) MHD_add_response_header(response, "Vary", "Accept-Encoding");
    if (exchange->form == BODY_EVENTS)
        MHD_add_response_header(response, "Cache-Control", "no-cache");
    if (exchange->unknown.n_bytes)
        MHD_add_response_header(response, "Nepit-Ignored-Fields", exchange->unknown.data);
    if (exchange->status == 429 || exchange->status == 503)
        MHD_add_response_header(response, "Retry-After", "1");
    if (exchange->status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (exchange->status == 405 || exchange->status == 204) {
        (void)route_find("", exchange->path, allowed);
        MHD_add_response_header(response, "Allow", allowed);
    }
    if (exchange->close) MHD_add_response_header(response, "Connection", "close");
    access_headers(exchange, response);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* libmicrohttpd's thread. No worker writes `out` while it is read: they do so only when the
 * connection is suspended. */
static ssize_t read_stream(void *user, uint64_t position, char *to, size_t n_bytes)
{
    struct exchange *exchange = user;
    struct server *server = exchange->server;
    size_t n_left = exchange->out.n_bytes - exchange->n_sent;
    if (n_left) {
        size_t n = n_left < n_bytes ? n_left : n_bytes;
        memcpy(to, exchange->out.data + exchange->n_sent, n);
        exchange->n_sent += n;
        exchange->n_out_bytes += n;
        return (ssize_t)n;
    }
    pthread_mutex_lock(&server->lock);
    bool ended = exchange->ended;
    pthread_mutex_unlock(&server->lock);
    if (ended) return MHD_CONTENT_READER_END_OF_STREAM;
    MHD_suspend_connection(exchange->connection);
    client_watch(exchange);
    pthread_mutex_lock(&server->lock);
    exchange->suspended = true;
    if (!exchange->queued && exchange_wants_work(exchange)) work_queue(exchange);
    pthread_mutex_unlock(&server->lock);
    return 0;
}

enum MHD_Result reply_send(struct exchange *exchange)
{
    struct MHD_Response *response;
    /* Or a client that asks again and again would keep the server from ending. */
    if (exchange->server->state == SERVER_STOPPING) exchange->close = true;
    if (exchange->streaming) {
        response =
            MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 65536, read_stream, exchange, NULL);
    } else {
        size_t n_bytes;
        char *bytes = buf_take(&exchange->out, &n_bytes);
        exchange->n_out_bytes = n_bytes;
        response = MHD_create_response_from_buffer(
            n_bytes, bytes, bytes ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
        if (!response) free(bytes);
    }
    if (!response) return MHD_NO;
    add_headers(exchange, response);
    enum MHD_Result result =
        MHD_queue_response(exchange->connection, (unsigned)exchange->status, response);
    MHD_destroy_response(response);
    return result;
}
