/*
 * Routes that tell of the server itself. None of them asks the engine, so they answer at once
 * whatever else is computed.
 */
#include "inside.h"
#include "routes.h"

np_status health_reply(struct exchange *exchange, np_error *err)
{
    static const char *const states[] = {"loading", "ok", "failed", "stopping"};
    const struct server *server = exchange->server;
    struct json *json = &exchange->writer;
    int state = server->state;
    exchange->status = state == SERVER_READY ? 200 : 503;
    json_begin(json, '{');
    json_key(json, "status");
    json_str(json, states[state]);
    if (state == SERVER_FAILED) {
        json_key(json, "reason");
        json_str(json, server->failure);
    }
    json_end(json, '}');
    return NP_OK;
}

np_status version_reply(struct exchange *exchange, np_error *err)
{
    struct json *json = &exchange->writer;
    json_begin(json, '{');
    json_key(json, "version");
    json_str(json, np_version());
    json_key(json, "numerics");
    json_str(json, np_numerics());
    json_end(json, '}');
    return NP_OK;
}

/* One entry per name: clients look for theirs. */
static void tell_model(struct json *json, const struct server *server, const char *name)
{
    json_begin(json, '{');
    json_key(json, "id");
    json_str(json, name);
    json_key(json, "object");
    json_str(json, "model");
    json_key(json, "created");
    json_int(json, (int64_t)server->opened_s);
    json_key(json, "owned_by");
    json_str(json, "nepit");
    json_key(json, "root");
    json_str(json, server->info.path);
    json_key(json, "parent");
    json_nil(json);
    json_key(json, "max_model_len");
    json_int(json, (int64_t)server->n_context);
    json_key(json, "system_fingerprint");
    json_str(json, server->fingerprint);
    json_key(json, "vocab_size");
    json_int(json, server->info.n_vocab);
    json_end(json, '}');
}

np_status models_reply(struct exchange *exchange, np_error *err)
{
    const struct server *server = exchange->server;
    struct json *json = &exchange->writer;
    char name[sizeof server->model_name];
    json_begin(json, '{');
    json_key(json, "object");
    json_str(json, "list");
    json_key(json, "data");
    json_begin(json, '[');
    for (size_t i = 0; server_name(server, i, name); i++) tell_model(json, server, name);
    json_end(json, ']');
    json_end(json, '}');
    return NP_OK;
}

np_status metrics_reply(struct exchange *exchange, np_error *err)
{
    exchange->form = BODY_TEXT;
    metrics_write(exchange->server, &exchange->out);
    return NP_OK;
}
