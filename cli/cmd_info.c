/*
 * info: what a model file holds, what it takes in memory, and what computes here. One list of rows
 * feeds the table and the JSON object.
 */
#include "parts.h"

#include <math.h>

struct row {
    const char *key, *title;
    const char *text; /* NULL: a number */
    int64_t number;
    bool is_bytes, is_flag;
};

static void print_bytes(struct buf *out, int64_t n_bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (unit < 4 && n_bytes >> (10 * (unit + 1))) unit++;
    if (unit == 0)
        buf_printf(out, "%lld bytes", (long long)n_bytes);
    else
        buf_printf(out, "%.1f %s (%lld bytes)", ldexp((double)n_bytes, -10 * (int)unit),
                   units[unit], (long long)n_bytes);
}

/* Texts of the file are shown as they are, without what could steer a terminal. */
static void print_text(struct buf *out, const char *text)
{
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < 32 || byte == 127)
            buf_printf(out, "\\x%02x", byte);
        else
            buf_push(out, text, 1);
    }
}

static void print_table(struct cli *cli, const struct row *rows, size_t count)
{
    struct buf *out = &cli->text;
    for (size_t i = 0; i < count; i++) {
        buf_printf(out, "%-22s", rows[i].title);
        if (rows[i].text)
            print_text(out, rows[i].text);
        else if (rows[i].is_bytes)
            print_bytes(out, rows[i].number);
        else if (rows[i].is_flag)
            buf_puts(out, rows[i].number ? "yes" : "no");
        else if (rows[i].number < 0)
            buf_puts(out, "none");
        else
            buf_printf(out, "%lld", (long long)rows[i].number);
        buf_puts(out, "\n");
    }
}

static void print_json(struct cli *cli, const struct row *rows, size_t count)
{
    struct json *json = &cli->json;
    json_begin(json, '{');
    for (size_t i = 0; i < count; i++) {
        json_key(json, rows[i].key);
        if (rows[i].text)
            json_str(json, rows[i].text);
        else if (rows[i].is_flag)
            json_bool(json, rows[i].number != 0);
        else if (rows[i].number < 0)
            json_nil(json);
        else
            json_int(json, rows[i].number);
    }
    json_end(json, '}');
    buf_puts(&cli->text, "\n");
}

static bool print_info(struct cli *cli, const char *fingerprint)
{
    const np_info *info = &cli->info;
    int64_t n_context = cli->options.n_context ? cli->options.n_context : info->n_context;
    int64_t kv_bytes = n_context * info->kv_bytes_per_token;
    const struct row rows[] = {
        {"model", "model", info->path, 0, false, false},
        {"fingerprint", "fingerprint", fingerprint, 0, false, false},
        {"name", "name", info->name, 0, false, false},
        {"container", "container", info->container, 0, false, false},
        {"architecture", "architecture", info->architecture, 0, false, false},
        {"n_parameters", "parameters", NULL, info->n_parameters, false, false},
        {"weight_types", "stored as", info->weight_types, 0, false, false},
        {"n_vocab", "vocabulary", NULL, info->n_vocab, false, false},
        {"n_layers", "layers", NULL, info->n_layers, false, false},
        {"dim", "width", NULL, info->dim, false, false},
        {"n_heads", "heads", NULL, info->n_heads, false, false},
        {"n_kv_heads", "key/value heads", NULL, info->n_kv_heads, false, false},
        {"head_dim", "head width", NULL, info->head_dim, false, false},
        {"ffn_dim", "feed-forward width", NULL, info->ffn_dim, false, false},
        {"head_tied", "head tied", NULL, info->head_tied, false, true},
        {"tokenizer", "tokenizer", info->tokenizer, 0, false, false},
        {"bos_id", "BOS id", NULL, info->bos_id, false, false},
        {"eos_id", "EOS id", NULL, info->eos_id, false, false},
        {"adds_bos", "adds BOS", NULL, info->adds_bos, false, true},
        {"adds_eos", "adds EOS", NULL, info->adds_eos, false, true},
        {"has_chat_template", "chat template", NULL, info->has_chat_template, false, true},
        {"model_context", "context, model", NULL, info->n_context, false, false},
        {"n_context", "context, here", NULL, n_context, false, false},
        {"weight_bytes", "weights", NULL, info->weight_bytes, true, false},
        {"kv_bytes_per_token", "key/value per token", NULL, info->kv_bytes_per_token, true, false},
        {"kv_bytes", "key/value, full", NULL, kv_bytes, true, false},
        {"profile", "profile", info->profile, 0, false, false},
        {"weights_rounded", "rounded to bf16", NULL, info->weights_rounded, false, true},
        {"numerics", "numerics", np_numerics(), 0, false, false},
        {"cpu", "instruction set", info->cpu, 0, false, false},
        {"cpu_reason", "chosen because", info->cpu_reason, 0, false, false},
        {"version", "nepit", np_version(), 0, false, false},
    };
    size_t count = sizeof rows / sizeof rows[0];
    if (cli->options.json)
        print_json(cli, rows, count);
    else
        print_table(cli, rows, count);
    return output_spill(cli, true);
}

int command_info(struct cli *cli)
{
    char fingerprint[17];
    uint64_t hash;
    np_error err = {0};
    int status = workplace_open_model(cli);
    if (status != EXIT_DONE) return status;
    if (fingerprint_model(cli->info.path, &hash, &err) != NP_OK) {
        complain_error("info", &err);
        return EXIT_MODEL;
    }
    snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)hash);
    buf_init(&cli->text, (size_t)1 << 20);
    json_init(&cli->json, &cli->text);
    bool good = output_open(&cli->out, cli->options.output) && print_info(cli, fingerprint);
    good = output_close(&cli->out, good) && good;
    buf_free(&cli->text);
    return good || cli->out.closed_pipe ? EXIT_DONE : EXIT_REQUEST;
}
