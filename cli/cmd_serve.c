/*
 * serve: the HTTP server. It listens before the model is read, so that whoever waits for it can ask
 * /health from the first moment on.
 */
#include "cli.h"
#include "base/file.h"
#include "parts.h"
#include "server/server.h"

#include <signal.h>

static struct server *volatile listening;

static void on_stop(int number)
{
    if (listening) server_stop(listening);
}

static void watch_stop(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* A small file as a text that ends with NUL; NULL, and complained, when it cannot be read. */
static char *read_whole(const char *path, np_error *err)
{
    struct file file;
    char *text = NULL;
    if (file_open(&file, path, err) != NP_OK) return NULL;
    if (file.n_bytes > (1 << 20))
        error_set(err, NP_ELIMIT, path, NO_OFFSET, "at most 1 MiB is expected");
    else if ((text = calloc((size_t)file.n_bytes + 1, 1)) == NULL)
        error_nomem(err, path, (size_t)file.n_bytes);
    else if (file_read(&file, 0, text, (size_t)file.n_bytes, err) != NP_OK) {
        free(text);
        text = NULL;
    }
    file_close(&file);
    return text;
}

/* The memory plan: what a sequence of the whole context takes is there from the start. */
static void print_start(struct cli *cli, const struct server *server, const char *fingerprint,
                        size_t n_context)
{
    const np_info *info = &cli->info;
    fprintf(stderr,
            "nepit: serving %s at http://%s (fingerprint %s, %s, %s; weights %lld MiB, keys and "
            "values of %zu tokens %zu MiB, prefix cache at most %llu MiB)\n",
            info->path, server_address(server), fingerprint, info->profile, info->cpu,
            (long long)(info->weight_bytes >> 20), n_context,
            (size_t)info->kv_bytes_per_token * n_context >> 20,
            (unsigned long long)(cli->options.cache_memory >> 20));
}

static int serve(struct cli *cli, struct server *server)
{
    char fingerprint[17];
    uint64_t hash = 0;
    np_error err = {0};
    int status = workplace_open_model(cli);
    if (status == EXIT_DONE) status = workplace_open_engine(cli);
    watch_stop(on_stop);
    if (status != EXIT_DONE) return status;
    if (fingerprint_model(cli->info.path, &hash, &err) != NP_OK) {
        complain_error("model", &err);
        return EXIT_MODEL;
    }
    snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)hash);
    size_t n_context =
        cli->options.n_context ? (size_t)cli->options.n_context : (size_t)cli->info.n_context;
    server_ready(server, cli->model, cli->engine, n_context, fingerprint);
    print_start(cli, server, fingerprint, n_context);
    server_wait(server);
    watch_stop(SIG_DFL); /* a second signal does not wait for requests that run */
    fprintf(stderr, "nepit: stopping; requests that run are answered\n");
    return EXIT_DONE;
}

/* What a place alone does not tell. */
static void name_option(np_error *err, const char *option)
{
    char message[sizeof err->message];
    snprintf(message, sizeof message, "%s: %.280s", option, err->message);
    memcpy(err->message, message, sizeof message);
}

static np_status check_asked(const struct serving *asked, np_error *err)
{
    if (asked->name && !asked->name[strspn(asked->name, ", ")])
        return error_set(err, NP_EINPUT, "--served-model-name", NO_OFFSET, "a name is expected");
    if (asked->log_texts && !asked->access_log)
        return error_set(err, NP_EINPUT, "--log-texts", NO_OFFSET, "needs --access-log");
    return NP_OK;
}

int command_serve(struct cli *cli)
{
    const struct serving *asked = &cli->options.serving;
    np_error err = {0};
    struct server *server = NULL;
    char *keys = NULL, *chat_template = NULL;
    int status = EXIT_USAGE;
    if (check_asked(asked, &err) != NP_OK) goto done;
    if (asked->api_key_file && !(keys = read_whole(asked->api_key_file, &err))) {
        name_option(&err, "--api-key-file");
        goto done;
    }
    if (asked->chat_template && !(chat_template = read_whole(asked->chat_template, &err))) {
        name_option(&err, "--chat-template");
        goto done;
    }
    struct server_options how = {.host = asked->host,
                                 .port = asked->port ? (int)asked->port : -1,
                                 .served_model_name = asked->name,
                                 .chat_template = chat_template,
                                 .api_keys = keys,
                                 .allowed_hosts = asked->allowed_hosts,
                                 .allowed_origins = asked->allowed_origins,
                                 .access_log = asked->access_log,
                                 .log_texts = asked->log_texts,
                                 .logprobs_mode =
                                     asked->logprobs_mode ? asked->logprobs_mode - 1 : 0,
                                 .max_logprobs = asked->max_logprobs,
                                 .max_body_bytes = asked->max_body,
                                 .max_answer_bytes = asked->max_answer,
                                 .max_concurrency = (int)asked->max_concurrency,
                                 .max_per_key = (int)asked->max_per_key,
                                 .max_connections = (int)asked->max_connections,
                                 .timeout_ms = (int64_t)(asked->timeout_s * 1000),
                                 .receive_ms = (int64_t)(asked->receive_s * 1000)};
    if (server_open(&how, &server, &err) != NP_OK) goto done;
    listening = server;
    status = serve(cli, server);
done:
    if (err.status != NP_OK) complain_error("serve", &err);
    listening = NULL;
    server_close(server);
    free(keys);
    free(chat_template);
    return status;
}
