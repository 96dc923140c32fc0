/*
 * fuzz_body.c - a request's body: it is read by the fields of every route that has any, or refused
 * in one line that names a field; and whatever place the library names in an error becomes a place
 * of that route. A route that is added to routes.c is tried too.
 */
#include "mutate.h"
#include "base/error.h"
#include "server/inside.h"
#include "server/routes.h"

#include <assert.h>

#define MAX_DEPTH 64

/* It stands in one line of a log and in a header. */
static void plain(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) assert(text[i] > ' ' && text[i] < 127);
}

static void one_line(np_status status, const np_error *err)
{
    char line[1024];
    assert(status == err->status);
    assert(memchr(err->where, 0, sizeof err->where));
    assert(!strpbrk(np_error_line(err, line, sizeof line), "\r\n"));
}

/* Every byte of it is looked at. */
static void look(const void *bytes, size_t n_bytes)
{
    const volatile uint8_t *at = bytes;
    for (size_t i = 0; i < n_bytes; i++) (void)at[i];
}

static void look_at(const struct ask *ask)
{
    for (size_t i = 0; i < ask->prompts.n; i++) {
        const struct prompt *prompt = &ask->prompts.at[i];
        assert(!prompt->text.bytes || !prompt->ids.ids);
        look(prompt->text.bytes, prompt->text.n_bytes);
        look(prompt->ids.ids, prompt->ids.n * sizeof *prompt->ids.ids);
    }
    for (size_t i = 0; i < ask->stop.n; i++) look(ask->stop.at[i].bytes, ask->stop.at[i].n_bytes);
    look(ask->stop_ids.ids, ask->stop_ids.n * sizeof *ask->stop_ids.ids);
    look(ask->biases.at, ask->biases.n * sizeof *ask->biases.at);
    if (ask->model) look(ask->model, strlen(ask->model));
    assert(!(ask->temperature < 0) && !(ask->top_p <= 0) && !(ask->top_p > 1));
    assert(!(ask->score_temperature <= 0) && ask->n <= 128);
}

/* A place of the library, made of the input, as the client's. */
static void name(const struct field *const *groups, const char *place, const uint8_t *bytes,
                 size_t n_bytes)
{
    np_error err = {.status = NP_EINPUT};
    snprintf(err.where, sizeof err.where, "%s%.*s", place, (int)(n_bytes < 400 ? n_bytes : 400),
             (const char *)bytes);
    body_name_place(groups, NULL, &err);
    assert(memchr(err.where, 0, sizeof err.where));
}

/* One row of many: which, the input says. */
static void name_one(const struct field *const *groups, const struct field *const *among,
                     const uint8_t *bytes, size_t n_bytes)
{
    size_t n = 0, chosen = 0;
    for (const struct field *const *at = among; *at; at++)
        for (const struct field *field = *at; field->name; field++) n++;
    for (size_t i = 0; i < n_bytes; i++) chosen += bytes[i];
    chosen %= n ? n : 1;
    for (; *among; among++)
        for (const struct field *field = *among; field->name; field++) {
            if (chosen-- != 0) continue;
            name(groups, field->becomes ? field->becomes : field->name, bytes, n_bytes);
            if (field->kind == FIELD_OBJECT) name_one(groups, field->more, bytes, n_bytes);
        }
}

static void read_as(const struct route *route, const uint8_t *bytes, size_t n_bytes)
{
    struct arena arena;
    struct ask ask = {.values = {.arena = &arena}};
    struct buf unknown;
    json_t *json;
    np_error err = {0};
    arena_init(&arena, (size_t)256 << 20);
    buf_init(&unknown, 4096);
    np_status status =
        values_parse(&ask.values, (const char *)bytes, n_bytes, "body", MAX_DEPTH, &json, &err);
    assert(!json == (status != NP_OK));
    if (status == NP_OK)
        status = body_read(route->fields, json, route->flags & ROUTE_STRICT, &ask, &unknown, &err);
    one_line(status, &err);
    plain(unknown.data, unknown.n_bytes);
    if (status == NP_OK)
        look_at(&ask);
    else
        body_name_place(route->fields, json, &err);
    one_line(status, &err);
    json_decref(json);
    buf_free(&unknown);
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_routes; i++) {
        if (!routes[i].fields) continue;
        read_as(&routes[i], bytes, n_bytes);
        name(routes[i].fields, "", bytes, n_bytes);
        name_one(routes[i].fields, routes[i].fields, bytes, n_bytes);
    }
    return 0;
}
