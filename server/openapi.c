/*
 * openapi.c - GET /openapi.json: OpenAPI 3.1, made of the table of routes and of the fields that
 * read their bodies. There is no second list of fields that could say something else.
 *
 * Statuses are those that a route can really answer with, each with the one shape that errors have.
 */
#include "openapi.h"
#include "inside.h"
#include "routes.h"

/* A member that is written with ' for ". */
static void put(struct json *json, const char *key, const char *text)
{
    struct buf quoted;
    buf_init(&quoted, 1 << 20);
    for (const char *at = text; *at; at++) buf_push(&quoted, *at == '\'' ? "\"" : at, 1);
    json_key(json, key);
    json_raw(json, quoted.data ? quoted.data : "", quoted.n_bytes);
    buf_free(&quoted);
}

/* ---- what a route answers -------------------------------------------------------------------- */

enum { ALWAYS, WITH_KEYS, WITH_BODY, WITH_MODEL };
#define ERROR_CONTENT \
    "'content':{'application/json':{'schema':{'$ref':'#/components/schemas/Error'}}}"
#define RETRY "'headers':{'Retry-After':{'description':'seconds','schema':{'type':'integer'}}},"

static const struct possible {
    const char *status, *text;
    int when;
} statuses[] = {
    {"400", "{'description':'What was wrong, and in which field.'," ERROR_CONTENT "}", ALWAYS},
    {"401", "{'description':'No key, or one that is not known.'," ERROR_CONTENT "}", WITH_KEYS},
    {"403", "{'description':'A Host or an Origin that may not ask.'," ERROR_CONTENT "}", ALWAYS},
    {"404", "{'description':'Another model than the one served.'," ERROR_CONTENT "}", WITH_BODY},
    {"408", "{'description':'A time limit was over.'," ERROR_CONTENT "}", WITH_BODY},
    {"411", "{'description':'A body without a length.'," ERROR_CONTENT "}", WITH_BODY},
    {"413", "{'description':'The body is too large.'," ERROR_CONTENT "}", ALWAYS},
    {"415", "{'description':'The body is compressed.'," ERROR_CONTENT "}", ALWAYS},
    {"422", "{'description':'The numbers are not finite.'," ERROR_CONTENT "}", WITH_BODY},
    {"429", "{'description':'Too many requests at a time.'," RETRY ERROR_CONTENT "}", WITH_BODY},
    {"500", "{'description':'A fault of the server.'," ERROR_CONTENT "}", WITH_BODY},
    {"503", "{'description':'No model yet, or no longer.'," RETRY ERROR_CONTENT "}", WITH_MODEL},
};

static bool can_happen(const struct server *server, const struct route *route, int when)
{
    switch (when) {
    case WITH_KEYS: return server->n_keys > 0 && !(route->flags & ROUTE_OPEN);
    case WITH_BODY: return route->fields != NULL;
    case WITH_MODEL: return !(route->flags & ROUTE_LOADING);
    default: return true;
    }
}

static const char *type_of_answer(const struct route *route)
{
    if (strcmp(route->path, "/metrics") == 0) return "text/plain";
    return strcmp(route->path, "/docs") == 0 ? "text/html" : "application/json";
}

static void tell_good(struct json *json, const struct route *route)
{
    const struct answer_shape *answer = answer_shape_of(route->path);
    json_begin(json, '{');
    put(json, "description", "'The answer.'");
    json_key(json, "content");
    json_begin(json, '{');
    json_key(json, type_of_answer(route));
    json_begin(json, '{');
    json_key(json, "schema");
    put_shape(json, answer ? answer->shape : "any");
    json_end(json, '}');
    if (route->event)
        put(json, "text/event-stream",
            "{'schema':{'description':'With stream: data: {...} and a blank line "
            "for each part, data: [DONE] at the end. Parts joined are the plain answer.'}}");
    if (answer && answer->npy)
        put(json, "application/octet-stream",
            "{'schema':{'type':'string','contentMediaType':'application/octet-stream','description'"
            ":'With Accept: application/octet-stream, one prompt and prompt_logprob_token_ids: the "
            ".npy file of float32 [rows, candidates].'}}");
    json_end(json, '}');
    json_end(json, '}');
}

static void tell_responses(struct json *json, const struct server *server,
                           const struct route *route)
{
    json_key(json, "responses");
    json_begin(json, '{');
    json_key(json, "200");
    tell_good(json, route);
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        if (can_happen(server, route, statuses[i].when))
            put(json, statuses[i].status, statuses[i].text);
    if (route->reply == health_reply)
        put(json, "503",
            "{'description':'Not ready; status says why.'," RETRY
            "'content':{'application/json':{'schema':{'$ref':'#/components/schemas/Health'}}}}");
    json_end(json, '}');
}

/* ---- routes ---------------------------------------------------------------------------------- */

/* post_v1_completions */
static void tell_operation_id(struct json *json, const struct route *route)
{
    struct buf name;
    buf_init(&name, 256);
    buf_printf(&name, "%s%s", route->method, route->path);
    for (size_t i = 0; i < name.n_bytes; i++) {
        char *c = &name.data[i];
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
        if ((*c < 'a' || *c > 'z') && (*c < '0' || *c > '9')) *c = '_';
    }
    json_key(json, "operationId");
    json_text(json, name.data ? name.data : "", name.n_bytes);
    buf_free(&name);
}

static void tell_operation(struct json *json, const struct server *server,
                           const struct route *route)
{
    json_key(json, strcmp(route->method, "GET") == 0 ? "get" : "post");
    json_begin(json, '{');
    tell_operation_id(json, route);
    json_key(json, "summary");
    json_str(json, route->about);
    if (server->n_keys > 0)
        put(json, "security", route->flags & ROUTE_OPEN ? "[]" : "[{'key':[]}]");
    if (route->fields) {
        json_key(json, "requestBody");
        json_begin(json, '{');
        put(json, "required", "true");
        json_key(json, "content");
        json_begin(json, '{');
        json_key(json, "application/json");
        json_begin(json, '{');
        json_key(json, "schema");
        body_schema(route->fields, route->flags & ROUTE_STRICT, server->info.n_vocab, json);
        json_end(json, '}');
        json_end(json, '}');
        json_end(json, '}');
    }
    tell_responses(json, server, route);
    json_end(json, '}');
}

/* Every method of a path stands beside the first of them. */
static void tell_paths(struct json *json, const struct server *server)
{
    json_key(json, "paths");
    json_begin(json, '{');
    for (size_t i = 0; i < n_routes; i++) {
        bool told = (routes[i].flags & ROUTE_HIDDEN) != 0;
        for (size_t k = 0; k < i; k++) told = told || strcmp(routes[k].path, routes[i].path) == 0;
        if (told) continue;
        json_key(json, routes[i].path);
        json_begin(json, '{');
        for (size_t k = i; k < n_routes; k++)
            if (strcmp(routes[k].path, routes[i].path) == 0)
                tell_operation(json, server, &routes[k]);
        json_end(json, '}');
    }
    json_end(json, '}');
}

np_status openapi_reply(struct exchange *exchange, np_error *err)
{
    const struct server *server = exchange->server;
    struct json *json = &exchange->writer;
    json_begin(json, '{');
    put(json, "openapi", "'3.1.0'");
    json_key(json, "info");
    json_begin(json, '{');
    put(json, "title", "'nepit'");
    put(json, "description",
        "'Token log-probabilities of causal language models, exactly. Numbers are the shortest "
        "decimals of the float32; minus infinity is -9999.0.'");
    json_key(json, "version");
    json_str(json, np_version());
    put(json, "license", "{'name':'MIT','identifier':'MIT'}");
    json_end(json, '}');
    put(json, "servers", "[{'url':'/'}]");
    tell_paths(json, server);
    json_key(json, "components");
    json_begin(json, '{');
    json_key(json, "schemas");
    json_begin(json, '{');
    for (size_t i = 0; i < n_named_shapes; i++) {
        json_key(json, named_shapes[i].path);
        put_shape(json, named_shapes[i].shape);
    }
    json_end(json, '}');
    if (server->n_keys > 0)
        put(json, "securitySchemes", "{'key':{'type':'http','scheme':'bearer'}}");
    json_end(json, '}');
    json_end(json, '}');
    return NP_OK;
}
