/*
 * Texts of tokens for people: whitespace, control bytes and broken UTF-8 are shown and never sent
 * to a terminal as they are, so that a hostile token cannot move its cursor. Widths are display
 * columns.
 */
#include "cli.h"
#include "server/errors.h"

#include <math.h>
#include <utf8proc.h>

#define MAX_CELL 4096

/* Characters that would not be seen, or would move what stands beside them. */
static bool is_hidden(utf8proc_int32_t code)
{
    switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return true;
    default: return utf8proc_charwidth(code) == 0;
    }
}

/* One character or byte as it is shown; returns the bytes taken from the text. */
static size_t visible_char(const char *bytes, size_t n_bytes, char *shown, size_t n_shown,
                           size_t *columns)
{
    static const char plain[] = "\n\t\r\\", letter[] = "ntr\\";
    unsigned char byte = (unsigned char)bytes[0];
    const char *escaped = byte ? strchr(plain, byte) : NULL;
    utf8proc_int32_t code = -1;
    utf8proc_ssize_t n_code = utf8proc_iterate(
        (const utf8proc_uint8_t *)bytes, (utf8proc_ssize_t)(n_bytes < 8 ? n_bytes : 8), &code);
    if (byte == ' ') {
        snprintf(shown, n_shown, "\xc2\xb7");
        *columns = 1;
        return 1;
    }
    if (escaped) {
        snprintf(shown, n_shown, "\\%c", letter[escaped - plain]);
        *columns = 2;
        return 1;
    }
    if (n_code < 1 || byte < 32 || byte == 127) {
        *columns = (size_t)snprintf(shown, n_shown, "\\x%02x", byte);
        return 1;
    }
    if (is_hidden(code)) {
        *columns = (size_t)snprintf(shown, n_shown, "\\u{%x}", (unsigned)code);
        return (size_t)n_code;
    }
    snprintf(shown, n_shown, "%.*s", (int)n_code, bytes);
    *columns = (size_t)utf8proc_charwidth(code);
    return (size_t)n_code;
}

void visible_text(struct buf *out, const char *bytes, size_t n_bytes, size_t n_columns)
{
    char shown[16], cell[MAX_CELL] = "";
    size_t used = 0, at = 0, columns, cut_at = 0, cut_used = 0;
    size_t limit = n_columns ? n_columns : SIZE_MAX;
    while (n_bytes > 0) {
        size_t taken = visible_char(bytes, n_bytes, shown, sizeof shown, &columns);
        size_t n_shown = strlen(shown);
        if (used + columns > limit || at + n_shown > sizeof cell - 4) break;
        /* The last place where "…" still fits. */
        if (used + 1 <= limit) cut_at = at, cut_used = used;
        memcpy(cell + at, shown, n_shown);
        at += n_shown;
        used += columns;
        bytes += taken;
        n_bytes -= taken;
        if (at + 64 > sizeof cell && n_columns == 0) {
            buf_push(out, cell, at);
            at = 0;
        }
    }
    if (n_bytes > 0) {
        if (used + 1 <= limit) cut_at = at, cut_used = used;
        memcpy(cell + cut_at, "\xe2\x80\xa6", 3);
        at = cut_at + 3;
        used = cut_used + 1;
    }
    buf_push(out, cell, at);
    for (; n_columns && used < n_columns; used++) buf_push(out, " ", 1);
}

void visible_end(struct buf *out, const char *bytes, size_t n_bytes, size_t n_columns)
{
    char shown[16];
    size_t used = 0, columns, taken;
    for (size_t at = 0; at < n_bytes; at += taken, used += columns)
        taken = visible_char(bytes + at, n_bytes - at, shown, sizeof shown, &columns);
    bool cut = used > n_columns;
    while (cut && used > n_columns - 1) {
        taken = visible_char(bytes, n_bytes, shown, sizeof shown, &columns);
        used -= columns;
        bytes += taken;
        n_bytes -= taken;
    }
    if (cut) buf_puts(out, "\xe2\x80\xa6");
    visible_text(out, bytes, n_bytes, n_columns - cut);
}

void visible_lines(struct buf *out, const char *bytes, size_t n_bytes)
{
    char shown[16];
    size_t columns, taken;
    for (size_t at = 0; at < n_bytes; at += taken) {
        taken = visible_char(bytes + at, n_bytes - at, shown, sizeof shown, &columns);
        if (strchr(" \n\t\\", bytes[at]) && bytes[at])
            buf_push(out, bytes + at, 1);
        else
            buf_puts(out, shown);
    }
}

void visible_token(struct cli *cli, int32_t token_id, size_t n_columns)
{
    const char *bytes;
    size_t n_bytes;
    if (np_token_bytes(cli->model, token_id, &bytes, &n_bytes, NULL) != NP_OK)
        bytes = "", n_bytes = 0;
    visible_text(&cli->text, bytes, n_bytes, n_columns);
}

void visible_logprob(struct cli *cli, double value)
{
    /* Likely is green, surprising is yellow, very surprising is red (in nats). */
    const char *colour = value > -1 ? "\033[32m" : value > -5 ? "\033[33m" : "\033[31m";
    if (cli->out.colour) buf_puts(&cli->text, colour);
    buf_printf(&cli->text, "%10.4f", value);
    if (cli->out.colour) buf_puts(&cli->text, "\033[0m");
}

void json_token(struct cli *cli, int32_t token_id)
{
    const char *bytes;
    size_t n_bytes;
    if (np_token_bytes(cli->model, token_id, &bytes, &n_bytes, NULL) == NP_OK)
        json_text(&cli->json, bytes, n_bytes);
    else
        json_nil(&cli->json);
}

void json_ranked(struct cli *cli, int32_t token_id, const char *value_name, float value,
                 const double *probability, size_t rank)
{
    struct json *json = &cli->json;
    json_key(json, "token_id");
    json_int(json, token_id);
    json_key(json, "token");
    json_token(cli, token_id);
    json_key(json, value_name);
    json_float(json, value);
    if (probability) json_finite(json, "probability", *probability);
    json_key(json, "rank");
    json_int(json, (int64_t)rank);
}

void json_ids(struct json *json, const char *key, const int32_t *ids, size_t count)
{
    json_key(json, key);
    json_begin(json, '[');
    for (size_t i = 0; i < count; i++) json_int(json, ids[i]);
    json_end(json, ']');
}

void json_finite(struct json *json, const char *key, double value)
{
    json_key(json, key);
    if (isfinite(value))
        json_double(json, value);
    else
        json_nil(json);
}

void json_conditions(struct cli *cli, const np_request *request)
{
    struct json *json = &cli->json;
    if (request) {
        json_key(json, "logprobs_mode");
        json_str(json, mode_names[request->logprobs_mode]);
        if (request->score_temperature) {
            json_key(json, "score_temperature");
            json_float(json, *request->score_temperature);
        }
    }
    json_key(json, "model");
    json_str(json, cli->info.path);
    json_key(json, "profile");
    json_str(json, cli->info.profile);
    json_key(json, "numerics");
    json_str(json, np_numerics());
}

void json_error(struct json *json, const np_error *why)
{
    np_error shown = *why;
    char line[512];
    struct client_error error = client_error_of(why->status);
    shown.where[0] = 0;
    json_key(json, "error");
    json_begin(json, '{');
    json_key(json, "message");
    json_str(json, np_error_line(&shown, line, sizeof line));
    json_key(json, "type");
    json_str(json, error.type);
    json_key(json, "param");
    json_str(json, why->where[0] ? why->where : NULL);
    json_key(json, "code");
    json_int(json, error.code);
    json_end(json, '}');
}
