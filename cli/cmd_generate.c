/*
 * generate: what follows a text, token by token. A lone request streams; with --json or --jsonl,
 * requests run side by side, and each choice is one object. The seed is drawn here when none is
 * given, so that the answer can name it and be had again.
 */
#include "generate.h"
#include "server/words.h"

#include <errno.h>

/* Lists of the command line; they live until the process ends its command. */
static np_status list_ids(const char *text, const char *where, struct arena *arena, np_ids *out,
                          np_error *err)
{
    if (!text) return NP_OK;
    TRY(ids_parse(text, strlen(text), where, arena, &out->ids, &out->n, err));
    if (out->n > 0) return NP_OK;
    return error_set(err, NP_EINPUT, where, NO_OFFSET, "at least one token id is expected");
}

static np_status list_texts(const struct texts *texts, struct arena *arena, const np_string **out,
                            size_t *n_out, np_error *err)
{
    np_string *list = arena_push_array(arena, texts->n + 1, sizeof *list);
    if (!list) return error_nomem(err, "texts", texts->n * sizeof *list);
    for (size_t i = 0; i < texts->n; i++) list[i] = (np_string){texts->at[i], strlen(texts->at[i])};
    *out = list;
    *n_out = texts->n;
    return NP_OK;
}

/* "ID:B"; where it ends, or NULL. */
static const char *one_bias(const char *text, np_bias *out)
{
    char *end;
    if (*text < '0' || *text > '9') return NULL;
    errno = 0;
    long id = strtol(text, &end, 10);
    if (errno || id > INT32_MAX || *end != ':') return NULL;
    const char *number = end + 1;
    double bias = strtod(number, &end);
    *out = (np_bias){(int32_t)id, (float)bias};
    return end > number && bias >= -100 && bias <= 100 ? end : NULL;
}

/* "ID:B,ID:B" */
static np_status list_biases(const char *text, struct arena *arena, struct drawn *drawn,
                             np_error *err)
{
    static const char where[] = "--logit-bias";
    if (!text) return NP_OK;
    np_bias *list = arena_push_array(arena, strlen(text) / 3 + 1, sizeof *list);
    if (!list) return error_nomem(err, where, strlen(text));
    for (const char *at = text; at; at++) {
        const char *end = one_bias(at, &list[drawn->n_biases]);
        if (!end || (*end && *end != ',')) {
            error_set(err, NP_EINPUT, where, at - text,
                      "a token id, a colon and a number from -100 to 100 are expected");
            return error_given(err, NP_EINPUT, "%.40s", at);
        }
        drawn->n_biases++;
        at = end;
        if (!*end) break;
    }
    drawn->biases = list;
    return NP_OK;
}

static np_status take_options(struct options *options, struct arena *arena, np_error *err)
{
    struct drawn *drawn = &options->asked.drawn;
    if (drawn->max_tokens == 0)
        return error_set(err, NP_EINPUT, "--max-tokens", NO_OFFSET,
                         "must be at least 1, or -1 to the end of the context");
    if (options->arrays && (options->jsonl || drawn->n > 1))
        return error_set(err, NP_EINPUT, "--arrays", NO_OFFSET, "one text of one request only");
    if (options->arrays && (options->asked.top == NOT_GIVEN || options->asked.top == 0))
        return error_set(err, NP_EINPUT, "--arrays", NO_OFFSET, "give --top K with it");
    if (options->arrays && !text_ends_with(options->arrays, ".npz"))
        return error_given(
            err, error_set(err, NP_EINPUT, "--arrays", NO_OFFSET, "a name in .npz is expected"),
            "%.60s", options->arrays);
    for (size_t i = 0; i < options->stop.n; i++)
        if (!*options->stop.at[i])
            return error_set(err, NP_EINPUT, "--stop", NO_OFFSET, "an empty text ends nothing");
    TRY(list_ids(options->stop_ids, "--stop-token-ids", arena, &drawn->stop_ids, err));
    TRY(list_ids(options->allowed_ids, "--allowed-token-ids", arena, &drawn->allowed_ids, err));
    TRY(list_biases(options->logit_bias, arena, drawn, err));
    TRY(list_texts(&options->stop, arena, &drawn->stop, &drawn->n_stop, err));
    return list_texts(&options->bad_words, arena, &drawn->bad_words, &drawn->n_bad_words, err);
}

/* ---- a request ---------------------------------------------------------------------------- */

/* What of a request must lie where it stays. */
struct drawing {
    np_sampling sampling;
    float temperature;
    uint64_t seed;
};

static np_status prepare(struct cli *cli, struct question *question, struct arena *arena,
                         np_error *err)
{
    const struct asked *asked = &question->asked;
    const struct drawn *drawn = &asked->drawn;
    np_request *request = &question->request;
    struct drawing *drawing = arena_push_array(arena, 1, sizeof *drawing);
    if (!drawing) return error_nomem(err, "sampling", sizeof *drawing);
    drawing->temperature = (float)drawn->temperature;
    drawing->seed = words_seed(drawn->seed);
    drawing->sampling = (np_sampling){.temperature = &drawing->temperature,
                                      .top_k = (int32_t)drawn->top_k,
                                      .top_p = (float)drawn->top_p,
                                      .min_p = (float)drawn->min_p,
                                      .presence_penalty = (float)drawn->presence_penalty,
                                      .frequency_penalty = (float)drawn->frequency_penalty,
                                      .repetition_penalty = (float)drawn->repetition_penalty,
                                      .seed = &drawing->seed,
                                      .logit_bias = drawn->biases,
                                      .n_logit_bias = drawn->n_biases,
                                      .allowed_token_ids = drawn->allowed_ids,
                                      .stop_token_ids = drawn->stop_ids,
                                      .stop = drawn->stop,
                                      .n_stop = drawn->n_stop,
                                      .include_stop = drawn->include_stop,
                                      .min_tokens = (size_t)drawn->min_tokens,
                                      .ignore_eos = drawn->ignore_eos,
                                      .keep_special = drawn->skip_special == NP_NO,
                                      .n = (int32_t)drawn->n,
                                      .processed = asked->logprobs_mode > 2,
                                      .want = NP_WANT_LOGPROB | NP_WANT_RANK,
                                      .top = asked->top == NOT_GIVEN ? 0 : (int32_t)asked->top};
    TRY(words_encode(cli->model, drawn->bad_words, drawn->n_bad_words, arena, &drawing->sampling,
                     err));
    request->sampling = &drawing->sampling;
    request->max_tokens = drawn->max_tokens < 0 ? SIZE_MAX : (size_t)drawn->max_tokens;
    request->priority = (int32_t)drawn->priority;
    request->cache_salt = drawn->cache_salt;
    request->skip_reading_prefix_cache = drawn->skip_cache;
    return NP_OK;
}

int command_generate(struct cli *cli)
{
    static const struct asker objects = {
        .runs = true, .prepare = prepare, .json = generated_json, .table = generated_table};
    static const struct asker stream = {.runs = true,
                                        .prepare = prepare,
                                        .run = generated_stream,
                                        .json = generated_json,
                                        .table = generated_table};
    struct arena arena;
    np_error err = {0};
    int status = EXIT_USAGE;
    arena_init(&arena, (size_t)1 << 30);
    if (take_options(&cli->options, &arena, &err) != NP_OK)
        complain_error("generate", &err);
    else
        status = requests_answer(cli, cli->options.json || cli->options.jsonl ? &objects : &stream);
    arena_free(&arena);
    return status;
}
