/*
 * pages.c - GET /docs: the reference as one page, made of the same tables as /openapi.json. It
 * needs nothing from elsewhere and runs no script.
 */
#include "inside.h"
#include "openapi.h"
#include "routes.h"

#include <float.h>

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" "
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\"><title>nepit: the server</title>\n"
    "<style>body{font:16px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em;"
    "color:#222;background:#fff}h2{margin-top:2em;font-size:1.2em}table{border-collapse:collapse;"
    "width:100%}td,th{border-top:1px solid #ccc;padding:.2em .6em .2em 0;text-align:left;"
    "vertical-align:top}code{font-family:monospace;overflow-wrap:anywhere}</style></head><body>\n";

static const char foot[] =
    "<h2>Errors</h2><p><code>{\"error\":{\"message\",\"type\",\"param\",\"code\"}}</code>: "
    "<code>code</code> is the status, <code>param</code> the path of the field. What a client did "
    "wrong is 4xx; 408 a time limit, 429 (with Retry-After) too many requests at a time, 503 no "
    "model yet.</p>\n</body></html>\n";

static void put_escaped(struct buf *out, const char *text)
{
    static const char special[] = "&<>\"'";
    static const char *const written[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (const char *at = text; *at; at++) {
        const char *found = strchr(special, *at);
        if (found)
            buf_puts(out, written[found - special]);
        else
            buf_push(out, at, 1);
    }
}

static void put_number(struct buf *out, double value)
{
    char text[32];
    if (value >= INT32_MIN && value <= INT32_MAX && value == (double)(int64_t)value)
        snprintf(text, sizeof text, "%.0f", value);
    else
        format_double(value, text);
    buf_puts(out, text);
}

/* "integer, 0 to 128": no bound where it only says what a machine can hold. */
static void put_range(struct buf *out, const struct field *field, const char *type)
{
    buf_puts(out, type);
    if (field->kind == FIELD_ABOVE0) {
        buf_puts(out, " above 0");
        if (field->high >= (double)FLT_MAX) return;
        buf_puts(out, ", to ");
        put_number(out, field->high);
        return;
    }
    buf_puts(out, field->high >= INT32_MAX ? ", at least " : ", ");
    put_number(out, field->low);
    if (field->high >= INT32_MAX) return;
    buf_puts(out, " to ");
    put_number(out, field->high);
}

static void put_names(struct buf *out, const char *const *names)
{
    for (; *names; names++) {
        buf_printf(out, "\"%s\"", *names);
        if (names[1]) buf_puts(out, ", ");
    }
}

static void put_type(struct buf *out, const struct field *field)
{
    static const char *const types[] = {
        [FIELD_FLAG] = "true or false",
        [FIELD_CHOICE] = "true or false",
        [FIELD_TEXT] = "text",
        [FIELD_WORD] = "text",
        [FIELD_IDS] = "list of token ids",
        [FIELD_TEXTS] = "text, or list of texts",
        [FIELD_SEED] = "integer, at least -1",
        [FIELD_BIASES] = "object of numbers by token id",
        [FIELD_PROMPT] = "text, texts, token ids, or lists of ids",
        [FIELD_ID_LISTS] = "token ids, or lists of ids",
        [FIELD_CANDIDATES] = "token ids, lists of ids, or base64 of .npy",
        [FIELD_PIECES] = "text, ids, both mixed, or a list of such",
        [FIELD_ARRAY] = "list",
        [FIELD_MAP] = "object",
        [FIELD_OBJECT] = "object",
        [FIELD_IGNORED] = "anything; changes nothing",
    };
    if (field->kind == FIELD_NAME)
        put_names(out, field->more);
    else if (field->kind == FIELD_ONLY)
        buf_printf(out, "only null or one of %s", (const char *)field->more);
    else if (types[field->kind])
        buf_puts(out, types[field->kind]);
    else
        put_range(out, field,
                  field->kind == FIELD_INTS                                    ? "integers"
                  : field->kind == FIELD_NUMBER || field->kind == FIELD_ABOVE0 ? "number"
                                                                               : "integer");
}

static void put_cell(struct buf *out, const char *text, bool code)
{
    buf_puts(out, code ? "<td><code>" : "<td>");
    put_escaped(out, text);
    buf_puts(out, code ? "</code></td>" : "</td>");
}

static void put_fields(struct buf *out, const struct field *const *groups, const char *prefix)
{
    for (; *groups; groups++)
        for (const struct field *field = *groups; field->name; field++) {
            struct buf type;
            char name[128];
            buf_init(&type, 4096);
            put_type(&type, field);
            snprintf(name, sizeof name, "%s%s", prefix, field->name);
            buf_puts(out, "<tr>");
            put_cell(out, name, true);
            put_cell(out, type.data ? type.data : "", false);
            put_cell(out,
                     field->required   ? "required"
                     : field->fallback ? field->fallback
                                       : "",
                     true);
            put_cell(out, field->by ? field->by : "nepit", false);
            put_cell(out, field->about ? field->about : "", false);
            buf_puts(out, "</tr>\n");
            buf_free(&type);
            snprintf(name, sizeof name, "%s%s.", prefix, field->name);
            if (field->kind == FIELD_OBJECT) put_fields(out, field->more, name);
        }
}

static void put_answer(struct buf *out, const struct answer_shape *answer)
{
    if (!answer) return;
    buf_puts(out, "<p>Answer: <code>");
    put_escaped(out, answer->shape);
    buf_puts(out, "</code></p>\n");
}

static void put_named(struct buf *out)
{
    buf_puts(out, "<h2>Shapes</h2>\n<p>A question mark: may be missing. <code>&lt;x&gt;</code>: an "
                  "object with any keys. <code>count</code>: an integer, at least 0.</p>\n<dl>\n");
    for (size_t i = 0; i < n_named_shapes; i++) {
        buf_printf(out, "<dt>%s</dt><dd><code>", named_shapes[i].path);
        put_escaped(out, named_shapes[i].shape);
        buf_puts(out, "</code> ");
        put_escaped(out, named_shapes[i].about ? named_shapes[i].about : "");
        buf_puts(out, "</dd>\n");
    }
    buf_puts(out, "</dl>\n");
}

static void put_route(struct buf *out, const struct route *route)
{
    const struct answer_shape *answer = answer_shape_of(route->path);
    buf_puts(out, "<h2><code>");
    buf_printf(out, "%s %s", route->method, route->path);
    buf_puts(out, "</code></h2>\n<p>");
    put_escaped(out, route->about);
    if (route->event) buf_puts(out, " Streams.");
    if (answer && answer->npy) buf_puts(out, " Scores as a .npy file by Accept.");
    if (route->flags & ROUTE_OPEN) buf_puts(out, " Needs no key.");
    if (route->flags & ROUTE_STRICT) buf_puts(out, " Refuses fields that are not listed.");
    buf_puts(out, "</p>\n");
    put_answer(out, answer);
    if (!route->fields) return;
    buf_puts(out, "<table><tr><th>field</th><th>value</th><th>default</th><th>known from</th>"
                  "<th></th></tr>\n");
    put_fields(out, route->fields, "");
    buf_puts(out, "</table>\n");
}

np_status docs_reply(struct exchange *exchange, np_error *err)
{
    struct buf *out = &exchange->out;
    exchange->form = BODY_HTML;
    buf_puts(out, head);
    buf_printf(out, "<h1>nepit %s: the server</h1>\n<p>Serves <code>", np_version());
    put_escaped(out, exchange_model_name(exchange));
    buf_puts(out, "</code>. The same for programs: <a href=\"openapi.json\">openapi.json</a>. "
                  "Numbers are natural logarithms, the shortest decimals of the float32; minus "
                  "infinity is written -9999.0.</p>\n");
    for (size_t i = 0; i < n_routes; i++)
        if (!(routes[i].flags & ROUTE_HIDDEN)) put_route(out, &routes[i]);
    put_named(out);
    buf_puts(out, foot);
    return NP_OK;
}
