/*
 * What generate prints. A streamed text is handed over by the engine's thread, which must not wait,
 * in a buffer per choice; this thread writes it. With several choices each is written when the one
 * before it is over, whatever is generated meanwhile.
 */
#include "generate.h"
#include "base/npy.h"

#include <pthread.h>
#include <unistd.h>

/* ---- a text that grows -------------------------------------------------------------------- */

#define MAX_WAITING_BYTES ((size_t)1 << 30)

struct growing {
    struct buf text;          /* what is not written yet */
    size_t n_bytes, n_tokens; /* taken so far */
    bool ended;
};

struct stream {
    const struct cli *cli;
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct growing *choices;
    size_t n_choices;
    bool finished;
};

/* Without a tokenizer the ids stand for the text. */
static void take_new(const struct stream *stream, struct growing *to, const np_generated *from)
{
    if (stream->cli->info.has_tokenizer) {
        buf_push(&to->text, from->text + to->n_bytes, from->n_text_bytes - to->n_bytes);
        to->n_bytes = from->n_text_bytes;
    } else {
        for (size_t i = to->n_tokens; i < from->n_tokens; i++)
            buf_printf(&to->text, "%s%d", i ? " " : "", (int)from->token_ids[i]);
    }
    to->n_tokens = from->n_tokens;
    to->ended = from->finish != NP_NOT_FINISHED;
}

/* On the engine's thread. */
static void on_news(void *user, size_t request, const np_result *result, size_t n_rows,
                    int finished)
{
    struct stream *stream = user;
    pthread_mutex_lock(&stream->lock);
    for (size_t i = 0; i < result->n_choices; i++)
        take_new(stream, &stream->choices[i], &result->choices[i]);
    stream->finished = finished != 0;
    pthread_cond_signal(&stream->news);
    pthread_mutex_unlock(&stream->lock);
}

/* Waits for more of a choice and takes it over, in `text`; true: there is no more. */
static bool wait_for_more(struct stream *stream, struct growing *choice, struct buf *text)
{
    pthread_mutex_lock(&stream->lock);
    while (choice->text.n_bytes == 0 && !choice->ended && !stream->finished)
        pthread_cond_wait(&stream->news, &stream->lock);
    struct buf taken = choice->text;
    choice->text = *text;
    *text = taken;
    bool ended = choice->ended || stream->finished;
    pthread_mutex_unlock(&stream->lock);
    return ended;
}

/* A terminal gets no control bytes, anything else the bytes as they are. */
static bool write_text(struct cli *cli, const struct buf *text, bool terminal)
{
    if (text->failed && !cli->out.failed) {
        complain("output", "a text is longer than memory allows");
        cli->out.failed = true;
    }
    if (!terminal) {
        output_write(&cli->out, text->data, text->n_bytes);
    } else {
        visible_lines(&cli->text, text->data, text->n_bytes);
        output_spill(cli, true);
    }
    return output_flush(&cli->out);
}

static void write_choices(struct cli *cli, struct stream *stream, np_ticket *ticket)
{
    struct buf text;
    bool terminal = isatty(fileno(cli->out.file)), good = true;
    buf_init(&text, MAX_WAITING_BYTES);
    for (size_t i = 0; i < stream->n_choices && good && !workplace_signal(); i++) {
        struct growing *choice = &stream->choices[i];
        bool ended = false;
        if (stream->n_choices > 1) buf_printf(&cli->text, "%schoice %zu:\n", i ? "\n" : "", i);
        output_spill(cli, true);
        while (!ended && good) {
            text.n_bytes = 0;
            ended = wait_for_more(stream, choice, &text);
            good = write_text(cli, &text, terminal);
        }
        if (choice->n_tokens == 0) break; /* it failed at once */
        good = good && output_write(&cli->out, "\n", 1) && output_flush(&cli->out);
    }
    if (!good) np_cancel(ticket); /* nobody reads on */
    buf_free(&text);
}

np_status generated_stream(struct cli *cli, const struct question *question, np_result *result,
                           np_error *err)
{
    np_error error = {0};
    np_ticket *ticket;
    struct stream stream = {.cli = cli, .n_choices = (size_t)question->asked.drawn.n};
    stream.choices = calloc(stream.n_choices, sizeof *stream.choices);
    if (!stream.choices) return error_nomem(err, "choices", stream.n_choices);
    for (size_t i = 0; i < stream.n_choices; i++)
        buf_init(&stream.choices[i].text, MAX_WAITING_BYTES);
    pthread_mutex_init(&stream.lock, NULL);
    pthread_cond_init(&stream.news, NULL);
    if (np_submit(cli->engine, &question->request, 1, on_news, &stream, &ticket, &error) == NP_OK) {
        write_choices(cli, &stream, ticket);
        np_wait(ticket, result, &error);
    }
    result->error = error;
    pthread_cond_destroy(&stream.news);
    pthread_mutex_destroy(&stream.lock);
    for (size_t i = 0; i < stream.n_choices; i++) buf_free(&stream.choices[i].text);
    free(stream.choices);
    if (error.status == NP_ECANCELLED && err) *err = error;
    return error.status == NP_ECANCELLED ? NP_ECANCELLED : NP_OK;
}

/* ---- arrays ------------------------------------------------------------------------------- */

static bool tells_logits(const struct question *question)
{
    return question->request.logprobs_mode == NP_RAW_LOGITS;
}

/* What a student records: the names that gather reads. */
static np_status write_arrays(const char *path, const np_result *result, bool logits, np_error *err)
{
    const np_generated *choice = result->choices;
    struct npz *npz;
    uint64_t shape[2] = {choice->n_tokens, choice->n_top}, n_prompt = result->n_tokens;
    const struct {
        const char *name;
        enum npy_type type;
        const uint64_t *shape;
        int n_dims;
        const void *data;
    } arrays[] = {
        {"prompt_token_ids.npy", NPY_I32, &n_prompt, 1, result->token_ids},
        {"token_ids.npy", NPY_I32, shape, 1, choice->token_ids},
        {logits ? "logits.npy" : "logprobs.npy", NPY_F32, shape, 1, choice->logprobs},
        {"top_ids.npy", NPY_I32, shape, 2, choice->top_ids},
        {logits ? "top_logits.npy" : "top_logprobs.npy", NPY_F32, shape, 2, choice->top_logprobs}};
    TRY(npz_open(&npz, path, err));
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        np_status status = npz_add(npz, arrays[i].name, arrays[i].type, arrays[i].shape,
                                   arrays[i].n_dims, arrays[i].data, err);
        if (status == NP_OK) continue;
        npz_abort(npz);
        return status;
    }
    return npz_close(npz, err);
}

/* Arrays that cannot be written cost no answer: what was generated is printed all the same. */
static void deliver_arrays(struct cli *cli, const struct question *question,
                           const np_result *result)
{
    const char *path = cli->options.arrays;
    np_error err = {0};
    if (!path || write_arrays(path, result, tells_logits(question), &err) == NP_OK) return;
    complain_error(cli->command->name, &err);
    cli->status = EXIT_REQUEST;
}

static void count(struct cli *cli, const np_generated *choice)
{
    cli->n_tokens += choice->n_tokens;
    cli->n_rows += choice->n_tokens;
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void print_tops(struct cli *cli, const np_generated *choice, bool logits)
{
    struct json *json = &cli->json;
    json_key(json, logits ? "top_logits" : "top_logprobs");
    json_begin(json, '[');
    for (size_t i = 0; i < choice->n_tokens && output_spill(cli, false); i++) {
        json_begin(json, '[');
        for (size_t k = i * choice->n_top; k < (i + 1) * choice->n_top; k++) {
            if (choice->top_ids[k] < 0) break;
            json_begin(json, '{');
            json_ranked(cli, choice->top_ids[k], logits ? "logit" : "logprob",
                        choice->top_logprobs[k], NULL, k - i * choice->n_top + 1);
            json_end(json, '}');
        }
        json_end(json, ']');
    }
    json_end(json, ']');
}

/* Where nothing is drawn by chance only a seed that was given is told: equal runs, equal bytes. */
static bool tells_seed(const struct question *question)
{
    return question->asked.drawn.seed >= 0 || *question->request.sampling->temperature > 0;
}

static const char *finish_name(const np_generated *choice)
{
    return choice->finish == NP_FINISH_LENGTH ? "length" : "stop";
}

/* What ended it, where the request named that: a text or an id. */
static void print_stop_reason(struct json *json, const struct question *question,
                              const np_generated *choice)
{
    const struct drawn *drawn = &question->asked.drawn;
    int32_t last = choice->n_tokens ? choice->token_ids[choice->n_tokens - 1] : -1;
    json_key(json, "stop_reason");
    if (choice->finish == NP_FINISH_TEXT) {
        const np_string *stop = &drawn->stop[choice->stop_index];
        json_text(json, stop->bytes, stop->n_bytes);
        return;
    }
    for (size_t i = 0; i < drawn->stop_ids.n && choice->finish == NP_FINISH_TOKEN; i++)
        if (drawn->stop_ids.ids[i] == last) {
            json_int(json, last);
            return;
        }
    json_nil(json);
}

static void print_choice(struct cli *cli, const struct question *question, const np_result *result,
                         size_t index)
{
    struct json *json = &cli->json;
    const np_generated *choice = &result->choices[index];
    bool logits = tells_logits(question);
    json_begin(json, '{');
    json_id(json, question);
    json_key(json, "index");
    json_int(json, (int64_t)index);
    json_key(json, "text");
    if (choice->text)
        json_text(json, choice->text, choice->n_text_bytes);
    else
        json_nil(json);
    json_ids(json, "token_ids", choice->token_ids, choice->n_tokens);
    json_key(json, "tokens");
    json_begin(json, '[');
    for (size_t i = 0; i < choice->n_tokens; i++) json_token(cli, choice->token_ids[i]);
    json_end(json, ']');
    json_key(json, logits ? "logits" : "logprobs");
    json_begin(json, '[');
    for (size_t i = 0; i < choice->n_tokens; i++) json_float(json, choice->logprobs[i]);
    json_end(json, ']');
    json_ids(json, "ranks", choice->ranks, choice->n_tokens);
    if (choice->n_top) print_tops(cli, choice, logits);
    json_key(json, "finish_reason");
    json_str(json, finish_name(choice));
    print_stop_reason(json, question, choice);
    json_key(json, "n_generated");
    json_int(json, (int64_t)choice->n_tokens);
    json_key(json, "n_tokens");
    json_int(json, (int64_t)result->n_tokens);
    json_ids(json, "prompt_token_ids", result->token_ids, result->n_tokens);
    json_key(json, "seed");
    if (tells_seed(question))
        json_int(json, (int64_t)*question->request.sampling->seed);
    else
        json_nil(json);
    json_key(json, "logprobs_mode");
    json_str(json, mode_names[(question->request.sampling->processed ? 2 : 0) + logits]);
    json_conditions(cli, NULL);
    json_end(json, '}');
}

np_status generated_json(struct cli *cli, struct question *question, np_result *result,
                         np_error *err)
{
    deliver_arrays(cli, question, result);
    for (size_t i = 0; i < result->n_choices; i++) {
        if (i) {
            buf_puts(&cli->text, "\n");
            json_init(&cli->json, &cli->text);
        }
        print_choice(cli, question, result, i);
        count(cli, &result->choices[i]);
    }
    return NP_OK;
}

/* ---- the table behind a streamed text ----------------------------------------------------- */

static void table_token(struct cli *cli, const np_generated *choice, size_t i)
{
    struct buf *out = &cli->text;
    buf_printf(out, "%6zu  ", i);
    visible_token(cli, choice->token_ids[i], 36);
    buf_puts(out, " ");
    visible_logprob(cli, (double)choice->logprobs[i]);
    buf_printf(out, " %9d\n", (int)choice->ranks[i]);
    for (size_t k = 0; k < choice->n_top && output_spill(cli, false); k++) {
        size_t cell = i * choice->n_top + k;
        if (choice->top_ids[cell] < 0) break;
        buf_puts(out, "           ");
        visible_token(cli, choice->top_ids[cell], 33);
        buf_printf(out, " %10.4f %9zu\n", (double)choice->top_logprobs[cell], k + 1);
    }
}

np_status generated_table(struct cli *cli, struct question *question, np_result *result,
                          np_error *err)
{
    struct buf *out = &cli->text;
    deliver_arrays(cli, question, result);
    for (size_t c = 0; c < result->n_choices; c++) {
        const np_generated *choice = &result->choices[c];
        count(cli, choice);
        if (question->asked.top == NOT_GIVEN) continue;
        if (result->n_choices > 1) buf_printf(out, "\nchoice %zu:", c);
        buf_printf(out, "\n%s%6s  %-36s %10s %9s%s\n", cli->out.colour ? "\033[1m" : "", "pos",
                   "token", tells_logits(question) ? "logit" : "logprob", "rank",
                   cli->out.colour ? "\033[0m" : "");
        for (size_t i = 0; i < choice->n_tokens; i++) table_token(cli, choice, i);
        buf_printf(out, "\n%-14s%14zu tokens\n", "prompt", result->n_tokens);
        buf_printf(out, "%-14s%14zu tokens\n", "generated", choice->n_tokens);
        buf_printf(out, "%-14s%14s\n", "finish", finish_name(choice));
        char seed[24] = "none";
        if (tells_seed(question))
            snprintf(seed, sizeof seed, "%llu",
                     (unsigned long long)*question->request.sampling->seed);
        buf_printf(out, "%-14s%14s\n", "seed", seed);
    }
    return NP_OK;
}
