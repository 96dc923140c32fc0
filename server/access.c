/*
 * access.c - who may ask. Three doors, each closed unless the options open it: keys; the Host
 * header (a page whose name an attacker points at this machine sends that name); the Origin header
 * (a browser's page of somebody else can send a POST without asking first).
 */
#include "inside.h"
#include "routes.h"

#include <arpa/inet.h>
#include <strings.h>

static const char *header(struct exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* The key of a line: without white space around it, and a comment behind. */
static np_string key_of(const char *line, size_t n)
{
    size_t begin = 0;
    while (begin < n && strchr(" \t", line[begin])) begin++;
    for (size_t i = begin; i < n; i++)
        if (line[i] == '#' && (i == begin || strchr(" \t", line[i - 1]))) n = i;
    while (n > begin && strchr(" \t", line[n - 1])) n--;
    return (np_string){line + begin, n - begin};
}

np_status access_begin(struct server *server, np_error *err)
{
    const char *at = server->options.api_keys;
    for (size_t line = 1; at && *at; line++) {
        size_t n = strcspn(at, "\r\n");
        np_string key = key_of(at, n);
        if (key.n_bytes) {
            if (server->n_keys == MAX_KEYS || key.n_bytes > MAX_KEY_BYTES)
                return error_set(err, NP_ELIMIT, "--api-key-file", NO_OFFSET,
                                 "line %zu: at most %d keys of %d bytes are taken", line, MAX_KEYS,
                                 MAX_KEY_BYTES);
            key.bytes = arena_strndup(&server->arena, key.bytes, key.n_bytes);
            if (!key.bytes) return error_nomem(err, "--api-key-file", key.n_bytes);
            server->keys[server->n_keys++] = key;
        }
        at += n + (at[n] == '\r' && at[n + 1] == '\n') + (at[n] != 0);
    }
    if (server->options.api_keys && server->n_keys == 0)
        return error_set(err, NP_EINPUT, "--api-key-file", NO_OFFSET, "the file holds no key");
    return NP_OK;
}

/* Takes the same time whatever is in the key. */
static bool same_key(const np_string *key, const char *given, size_t n_given)
{
    unsigned char differs = key->n_bytes != n_given;
    for (size_t i = 0; i < MAX_KEY_BYTES; i++) {
        unsigned char a = i < key->n_bytes ? (unsigned char)key->bytes[i] : 0;
        unsigned char b = i < n_given ? (unsigned char)given[i] : 0;
        differs |= a ^ b;
    }
    return !differs;
}

static int check_key(struct exchange *exchange, const char **why)
{
    const struct server *server = exchange->server;
    const char *given = header(exchange, "Authorization");
    if (server->n_keys == 0) return 0;
    if (given && strncasecmp(given, "Bearer ", 7) == 0)
        given += 7;
    else
        given = header(exchange, "X-Api-Key");
    size_t n_given = given ? strlen(given) : 0;
    for (size_t i = 0; i < server->n_keys; i++)
        if (same_key(&server->keys[i], given ? given : "", n_given)) exchange->key = (int)i;
    if (exchange->key >= 0) return 0;
    char allowed[64];
    const struct route *route = route_find(exchange->method, exchange->path, allowed);
    if (route && route->flags & ROUTE_OPEN) return 0;
    *why = given ? "this key is not known"
                 : "a key is needed: Authorization: Bearer KEY, or X-Api-Key: KEY";
    return 401;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Whether `name` is in a list by commas; "*" holds every name. */
static bool listed(const char *list, const char *name, size_t n_name)
{
    for (const char *at = list; at && *at; at += strspn(at, ", ")) {
        size_t n = strcspn(at, ", ");
        if (n == 1 && *at == '*') return true;
        if (n == n_name && strncasecmp(at, name, n) == 0) return true;
        at += n;
    }
    return false;
}

/* Host without its port: "[::1]:8000", "localhost:8000". */
static size_t host_bytes(const char *host)
{
    const char *end = *host == '[' ? strchr(host, ']') : NULL;
    return end ? (size_t)(end - host) + 1 : strcspn(host, ":");
}

/* An address cannot be pointed elsewhere; a name can. */
static bool is_address(const char *host, size_t n)
{
    char text[64];
    unsigned char unused[sizeof(struct in6_addr)];
    bool six = n > 2 && *host == '[';
    if (n >= sizeof text) return false;
    snprintf(text, sizeof text, "%.*s", (int)(six ? n - 2 : n), host + six);
    return inet_pton(six ? AF_INET6 : AF_INET, text, unused) == 1;
}

static int check_host(struct exchange *exchange, const char **why)
{
    const struct server_options *options = &exchange->server->options;
    const char *host = header(exchange, "Host");
    if (!host) return 0; /* HTTP/1.0; libmicrohttpd asks for it in 1.1 */
    size_t n = host_bytes(host);
    if (is_address(host, n) || listed("localhost", host, n) || listed(options->host, host, n) ||
        listed(options->allowed_hosts, host, n))
        return 0;
    *why = "this name of the server is not known to it (--allowed-hosts)";
    return 403;
}

static bool origin_allowed(struct exchange *exchange, const char *origin)
{
    return listed(exchange->server->options.allowed_origins, origin, strlen(origin));
}

/* A page that this server sent asks as the server's own. */
static bool same_origin(struct exchange *exchange, const char *origin)
{
    const char *host = header(exchange, "Host"), *name = strstr(origin, "://");
    return host && name && strcasecmp(name + 3, host) == 0;
}

static int check_origin(struct exchange *exchange, const char **why)
{
    const char *origin = header(exchange, "Origin");
    if (!origin || same_origin(exchange, origin) || origin_allowed(exchange, origin)) return 0;
    *why = "pages of this origin may not ask here (--allowed-origins)";
    return 403;
}

int access_check(struct exchange *exchange, const char **why)
{
    int status;
    if ((status = check_host(exchange, why))) return status;
    if ((status = check_origin(exchange, why))) return status;
    if (strcmp(exchange->method, "OPTIONS") == 0) return 0; /* browsers send no key with it */
    return check_key(exchange, why);
}

void access_headers(struct exchange *exchange, struct MHD_Response *response)
{
    const char *origin = header(exchange, "Origin");
    if (!origin || !origin_allowed(exchange, origin)) return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Access-Control-Allow-Headers",
                            "authorization, content-type, x-api-key, x-request-id");
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    MHD_add_response_header(response, "Access-Control-Max-Age", "600");
    MHD_add_response_header(response, "Vary", "Origin");
}
