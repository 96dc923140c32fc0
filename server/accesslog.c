/*
 * accesslog.c - one JSON object per request and line, written whole by one write, so that lines of
 * several processes do not mix. No text of a prompt or an answer unless the options ask for it.
 */
#include "inside.h"
#include "routes.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

np_status log_begin(struct server *server, np_error *err)
{
    const char *path = server->options.access_log;
    if (!path) return NP_OK;
    server->log_fd = strcmp(path, "-") == 0
                         ? dup(STDERR_FILENO)
                         : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    if (server->log_fd >= 0) return NP_OK;
    return error_set(err, NP_EIO, path, NO_OFFSET, "--access-log: %s", strerror(errno));
}

void log_end(struct server *server)
{
    if (server->log_fd >= 0) close(server->log_fd);
    server->log_fd = -1;
}

static double ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns && to_ns > from_ns ? rint((double)(to_ns - from_ns) / 1e3) / 1e3 : 0;
}

static void put_time(struct json *json)
{
    struct timespec now;
    struct tm parts;
    char text[40];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + n, sizeof text - n, ".%03ldZ", now.tv_nsec / 1000000);
    json_key(json, "time");
    json_str(json, text);
}

static void put_counts(struct json *json, const struct exchange *exchange)
{
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {{"status", exchange->status},
                  {"request_bytes", (int64_t)exchange->body.n_bytes},
                  {"answer_bytes", (int64_t)exchange->n_out_bytes},
                  {"prompt_tokens", (int64_t)exchange->n_prompt_tokens},
                  {"computed_tokens", (int64_t)exchange->n_computed},
                  {"generated_tokens", (int64_t)exchange->n_generated}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        json_key(json, counts[i].name);
        json_int(json, counts[i].value);
    }
}

/* Unknown fields are told once per name. */
static bool is_new(struct server *server, const char *names)
{
    char line[1100];
    if (!names) return false;
    snprintf(line, sizeof line, "\n%s\n", names);
    pthread_mutex_lock(&server->lock);
    bool known = server->reported.data && strstr(server->reported.data, line);
    if (!known) buf_puts(&server->reported, line);
    pthread_mutex_unlock(&server->lock);
    return !known;
}

void log_exchange(struct exchange *exchange)
{
    struct server *server = exchange->server;
    struct buf line;
    struct json json;
    if (server->log_fd < 0) return;
    buf_init(&line, (size_t)16 << 20);
    json_init(&json, &line);
    json_begin(&json, '{');
    put_time(&json);
    json_key(&json, "request_id");
    json_str(&json, exchange->request_id);
    json_key(&json, "peer");
    json_str(&json, exchange->peer);
    json_key(&json, "method");
    json_str(&json, exchange->method);
    json_key(&json, "path");
    json_str(&json, exchange->path);
    put_counts(&json, exchange);
    json_key(&json, "ms");
    json_double(&json, ms_between(exchange->began_ns, clock_ns()));
    if (exchange->key >= 0) {
        json_key(&json, "key");
        json_int(&json, exchange->key + 1);
    }
    if (exchange->aborted) {
        json_key(&json, "aborted");
        json_bool(&json, true);
    }
    if (exchange->error[0]) {
        json_key(&json, "error");
        json_str(&json, exchange->error);
    }
    if (is_new(server, exchange->unknown.data)) {
        json_key(&json, "ignored_fields");
        json_str(&json, exchange->unknown.data);
    }
    if (server->options.log_texts && exchange->body.n_bytes) {
        json_key(&json, "body");
        json_text(&json, exchange->body.data, exchange->body.n_bytes);
    }
    json_end(&json, '}');
    buf_puts(&line, "\n");
    ssize_t unused = line.failed ? 0 : write(server->log_fd, line.data, line.n_bytes);
    (void)unused;
    buf_free(&line);
}
