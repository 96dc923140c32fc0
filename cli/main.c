/*
 * The commands, in one table. Everything a command prints about itself comes from its row here and
 * from the options that name it (options.c).
 */
#include "cli.h"

#include "base/pool.h"

#include <math.h>
#include <signal.h>
#include <unistd.h>

static const struct command commands[] = {
    {"tokenize", "text to token ids, and back",
     "tokenize TEXT | -f FILE | --jsonl FILE | --decode IDS",
     "nepit tokenize \"The capital of France is Paris.\"", FOR_TOKENIZE, command_tokenize},
    {"score", "log-probability of every token of a text", "score TEXT | -f FILE | --jsonl FILE",
     "nepit score \"The capital of France is Paris.\"", FOR_SCORE, command_score},
    {"next", "the most likely next tokens", "next TEXT | -f FILE | --jsonl FILE",
     "nepit next \"The capital of France is\" --top 5", FOR_NEXT, command_next},
    {"gather", "teacher scoring: chosen candidates at every row",
     "gather --prompt P --response R | TEXT | -f FILE | --jsonl FILE",
     "nepit gather --prompt \"The capital of France is\" --response \" Paris.\" \\\n"
     "               --candidates \"7042 8131 30\"",
     FOR_GATHER, command_gather},
    {"generate", "what follows a text, with log-probabilities",
     "generate TEXT | -f FILE | --jsonl FILE",
     "nepit generate \"The capital of France is\" --max-tokens 20 --temperature 0", FOR_GENERATE,
     command_generate},
    {"perplexity", "perplexity of long documents, by windows and strides",
     "perplexity FILE... --window W --stride S",
     "nepit perplexity README.md --window 512 --stride 256", FOR_PERPLEXITY, command_perplexity},
#if NEPIT_SERVER
    {"serve", "an HTTP server for trainers, harnesses and OpenAI clients",
     "serve -m MODEL --port N", "nepit serve --port 8000", FOR_SERVE, command_serve},
#endif
    {"info", "what the model file holds, memory, instruction set", "info", "nepit info", FOR_INFO,
     command_info},
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

/* ---- help --------------------------------------------------------------------------------- */

static int print(struct buf *text)
{
    struct output out;
    bool good = output_open(&out, NULL) && output_write(&out, text->data, text->n_bytes);
    good = output_close(&out, true) && good;
    buf_free(text);
    return good || out.closed_pipe ? EXIT_DONE : EXIT_REQUEST;
}

static int help_commands(void)
{
    struct buf text;
    buf_init(&text, 1 << 16);
    buf_puts(&text, "nepit computes token log-probabilities of causal language models, exactly.\n\n"
                    "  nepit COMMAND [options]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        buf_printf(&text, "  %-12s%s\n", commands[i].name, commands[i].summary);
    buf_puts(&text,
             "\nnepit COMMAND --help shows the options of one, nepit --version the version.\n");
    return print(&text);
}

static int help_command(const struct command *command)
{
    struct buf text;
    buf_init(&text, 1 << 16);
    buf_printf(&text, "nepit %s\n\n%s.\n\nOptions:\n", command->usage, command->summary);
    options_help(&text, command->bit);
    buf_puts(&text, "\nThe model, once for all commands:\n"
                    "  export NEPIT_MODEL=models/SmolLM2-135M-Instruct.Q4_1.gguf\n");
    buf_printf(&text, "\nExample:\n  %s\n", command->example);
    return print(&text);
}

static int print_version(void)
{
    struct buf text;
    buf_init(&text, 1 << 10);
    buf_printf(&text, "nepit %s (numerics %s)\n", np_version(), np_numerics());
    return print(&text);
}

/* ---- dispatch ----------------------------------------------------------------------------- */

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    const char *nearest = name_nearest(&commands[0].name, N_COMMANDS, sizeof commands[0], name);
    if (nearest)
        complain(name, "unknown command; did you mean %s?", nearest);
    else
        complain(name, "unknown command; nepit alone lists them");
    return NULL;
}

static double microseconds(double seconds)
{
    return rint(seconds * 1e6) / 1e6;
}

static void print_timing(const struct cli *cli)
{
    struct buf text;
    struct json json;
    double rate = cli->compute_s > 0 ? (double)cli->n_tokens / cli->compute_s : 0;
    buf_init(&text, 1 << 10);
    json_init(&json, &text);
    json_begin(&json, '{');
    json_key(&json, "timing");
    json_begin(&json, '{');
    json_finite(&json, "load_s", microseconds(cli->load_s));
    json_finite(&json, "compute_s", microseconds(cli->compute_s));
    json_key(&json, "n_tokens");
    json_int(&json, (int64_t)cli->n_tokens);
    json_key(&json, "n_rows");
    json_int(&json, (int64_t)cli->n_rows);
    json_finite(&json, "tokens_per_s", rint(rate * 10) / 10);
    json_end(&json, '}');
    json_end(&json, '}');
    if (!text.failed) fprintf(stderr, "%s\n", text.data);
    buf_free(&text);
}

static int run_command(const struct command *command, int n_args, char **args)
{
    struct cli cli = {.command = command};
    np_error err = {0};
    options_init(&cli.options);
    if (options_parse(&cli.options, command->bit, n_args, args, &err) != NP_OK) {
        complain_error(command->name, &err);
        return EXIT_USAGE;
    }
    if (cli.options.help) return help_command(command);
    int status = command->run(&cli);
    if (cli.options.timing && cli.model) print_timing(&cli);
    workplace_close(&cli);
    return status;
}

int main(int n_args, char **args)
{
    signal(SIGPIPE, SIG_IGN);
    (void)fpenv_enter(); /* for what the command itself reads and adds up */
    const char *word = n_args > 1 ? args[1] : "--help";
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) return print_version();
    bool wants_help =
        strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
    if (wants_help && n_args < 3) return help_commands();
    const struct command *command = find_command(wants_help ? args[2] : word);
    if (!command) return EXIT_USAGE;
    return wants_help ? help_command(command) : run_command(command, n_args - 2, args + 2);
}
