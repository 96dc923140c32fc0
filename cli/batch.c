/*
 * The loop of all commands that answer requests: read some, run them together, print them in their
 * order. A batch is bounded in requests, tokens and cells of the answer, so that memory stays
 * bounded however long the input is; since no bit depends on the batch, where it is cut is free. A
 * request that cannot be asked keeps its place and gets an error there.
 */
#include "requests.h"
#include "parts.h"
#include "source.h"

#include <errno.h>

enum { MAX_BATCH_REQUESTS = 256 };
#define MAX_BATCH_TOKENS ((size_t)1 << 14)
#define MAX_BATCH_CELLS ((size_t)1 << 24)
#define MAX_BATCH_BYTES ((size_t)1 << 34)
#define MAX_TEXT_BYTES ((size_t)1 << 30)
#define MAX_ANSWER_BYTES ((size_t)1 << 32)

struct batch {
    struct question questions[MAX_BATCH_REQUESTS];
    np_request requests[MAX_BATCH_REQUESTS];
    np_result results[MAX_BATCH_REQUESTS];
    size_t asked[MAX_BATCH_REQUESTS]; /* requests[i] belongs to questions[asked[i]] */
    size_t count, n_asked, n_tokens, n_cells;
    struct arena arena;
};

struct loop {
    struct cli *cli;
    const struct asker *asker;
    struct source source;
    bool many; /* --jsonl */
    bool ended;
    size_t n_read;
    char *file_text; /* -f */
    size_t n_file_bytes;
    struct question defaults; /* candidates of the command line, and its options */
    struct arena arena;       /* owns them */
    struct batch batch;
};

/* ---- what the command line says ----------------------------------------------------------- */

static np_status usage(np_error *err, const char *where, const char *why)
{
    return error_set(err, NP_EINPUT, where, NO_OFFSET, "%s", why);
}

static const char bits_of_logits[] = "--unit goes with log-probabilities, not with raw logits";

/* On given tokens the processed modes are the raw ones: nothing was sampled. */
static bool wants_logits(const struct asked *asked)
{
    return asked->logprobs_mode != 0 && asked->logprobs_mode % 2 == 0;
}

/* Nobody means the name of an array as a text; who does has -f. */
static bool names_array(const char *text)
{
    return text && text[0] == '@' && (text_ends_with(text, ".npy") || text_ends_with(text, ".npz"));
}

static np_status check_array_names(const struct options *options, np_error *err)
{
    const struct {
        const char *text, *name;
    } texts[] = {
        {options->prompt, "--prompt"}, {options->response, "--response"}, {options->text, NULL}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && !options->ids; i++) {
        if (!names_array(texts[i].text)) continue;
        error_set(err, NP_EINPUT, texts[i].name, NO_OFFSET, "add --ids to take ids from a file");
        return error_given(err, NP_EINPUT, "%.200s", texts[i].text);
    }
    return NP_OK;
}

static np_status check_options(const struct options *options, unsigned command, np_error *err)
{
    int n_inputs = (options->text != NULL) + (options->file != NULL) + (options->jsonl != NULL) +
                   (options->prompt || options->response) + (options->decode != NULL);
    if (n_inputs == 0)
        return usage(err, NULL,
                     command == FOR_GATHER
                         ? "nothing to score; give --prompt and --response, a text, -f FILE "
                           "or --jsonl FILE"
                         : "no text; give one in quotes, -f FILE or --jsonl FILE");
    if (n_inputs > 1) return usage(err, NULL, "one input only: a text, -f, --jsonl or a prompt");
    if (!options->prompt != !options->response)
        return usage(err, options->prompt ? "--response" : "--prompt",
                     "--prompt and --response go together; one is missing");
    if (options->asked.condition && options->asked.add_special)
        return usage(err, "--condition", "give this or --[no-]add-special-tokens, not both");
    if (options->unit == UNIT_BITS && wants_logits(&options->asked))
        return usage(err, NULL, bits_of_logits);
    return check_array_names(options, err);
}

static np_status read_candidates(struct loop *loop, const char *text, np_error *err)
{
    struct question *defaults = &loop->defaults;
    if (text[0] == '@') return ids_from_file(text + 1, "top_ids", &loop->arena, defaults, err);
    return ids_parse(text, strlen(text), "candidates", &loop->arena, &defaults->candidate_ids,
                     &defaults->n_candidates, err);
}

static np_status loop_open(struct loop *loop, np_error *err)
{
    const struct options *options = &loop->cli->options;
    loop->defaults.asked = options->asked;
    loop->defaults.candidates_name = "candidates";
    arena_init(&loop->arena, MAX_BATCH_BYTES);
    TRY(check_options(options, loop->cli->command->bit, err));
    if (options->candidates) TRY(read_candidates(loop, options->candidates, err));
    if (options->jsonl) {
        loop->many = true;
        return source_open(&loop->source, options->jsonl, err);
    }
    if (options->file)
        return source_read_all(options->file, MAX_TEXT_BYTES, &loop->file_text, &loop->n_file_bytes,
                               err);
    return NP_OK;
}

/* Ids of the command line: themselves, or @ and a file of them; `member` of a .npz, NULL: all. */
static np_status given_ids(const char *text, size_t n_bytes, const char *where, const char *member,
                           struct arena *arena, const int32_t **ids, size_t *n_ids, np_error *err)
{
    struct question file = {0};
    if (text[0] != '@') return ids_parse(text, n_bytes, where, arena, ids, n_ids, err);
    if (member)
        TRY(ids_from_file(text + 1, member, arena, &file, err));
    else
        TRY(ids_from_whole(text + 1, arena, &file, err));
    if (file.n_candidate_rows)
        return error_set(err, NP_EINPUT, text + 1, NO_OFFSET, "one list of ids is expected");
    *ids = file.candidate_ids;
    *n_ids = file.n_candidates;
    return NP_OK;
}

/* The one request of the command line. */
static np_status question_from_options(struct loop *loop, struct question *question)
{
    const struct options *options = &loop->cli->options;
    struct arena *arena = &loop->batch.arena;
    np_error *err = &question->error;
    const char *text = options->decode   ? options->decode
                       : options->prompt ? options->prompt
                       : loop->file_text ? loop->file_text
                                         : options->text;
    size_t n_bytes = text == loop->file_text ? loop->n_file_bytes : strlen(text);
    const char *response = options->response;
    if (!options->ids && !options->decode) {
        question->text = text;
        question->n_bytes = n_bytes;
        question->response_text = response;
        question->n_response_bytes = response ? strlen(response) : 0;
        return NP_OK;
    }
    question->has_ids = true;
    question->has_response_ids = response != NULL;
    if (text == loop->file_text)
        TRY(ids_parse(text, n_bytes, "token_ids", arena, &question->token_ids, &question->n_tokens,
                      err));
    else
        TRY(given_ids(text, n_bytes, response ? "prompt" : "token_ids",
                      response ? "prompt_token_ids" : NULL, arena, &question->token_ids,
                      &question->n_tokens, err));
    if (!response) return NP_OK;
    return given_ids(response, strlen(response), "response", "token_ids", arena,
                     &question->response_ids, &question->n_response, err);
}

/* ---- reading a batch ---------------------------------------------------------------------- */

/* Fills the next question; false at the end of the input. */
static bool question_read(struct loop *loop, struct question *question)
{
    if (!loop->many) {
        loop->ended = true;
        if (loop->n_read > 0) return false;
        *question = loop->defaults;
        question_from_options(loop, question);
        return true;
    }
    /* In slices: a signal between the question and a blocking read would be noticed too late. */
    while (!workplace_signal() && source_would_wait(&loop->source, 200)) continue;
    enum source_state state = workplace_signal() ? SOURCE_END : source_next(&loop->source);
    if (state == SOURCE_FAULT || state == SOURCE_END) {
        if (state == SOURCE_FAULT && !workplace_signal()) {
            complain(loop->cli->options.jsonl, "%s", strerror(errno));
            loop->cli->status = EXIT_REQUEST;
        }
        loop->ended = true;
        return false;
    }
    *question = loop->defaults;
    question->line = loop->source.line;
    if (state == SOURCE_TOO_LONG) {
        error_set(&question->error, NP_ELIMIT, "line", NO_OFFSET,
                  "line %zu is too long; at most %zu bytes are allowed", question->line,
                  SOURCE_MAX_LINE_BYTES);
        return true;
    }
    const struct buf *line = &loop->source.text;
    question->hash = hash_bytes(0, line->data, line->n_bytes);
    fields_read(question, loop->cli->command->bit, line->data, line->n_bytes, &loop->batch.arena);
    return true;
}

/* What all commands check in the same way; then the command's own part. */
static np_status question_finish(struct loop *loop, struct question *question)
{
    struct asked *asked = &question->asked;
    np_request *request = &question->request;
    np_error *err = &question->error;
    if (!question->text && !question->has_ids)
        return error_set(err, NP_EINPUT, "prompt", NO_OFFSET, "no input; give prompt or token_ids");
    if (asked->condition && asked->add_special)
        return error_set(err, NP_EINPUT, "condition", NO_OFFSET,
                         "give this or add_special_tokens, not both");
    if (question->has_ids && asked->condition == NP_CONDITION_BOS)
        return error_set(err, NP_EINPUT, "condition", NO_OFFSET,
                         "token ids are used as they are; put the BOS id in front of them");
    if (loop->cli->options.unit == UNIT_BITS && wants_logits(asked))
        return error_set(err, NP_EINPUT, "logprobs_mode", NO_OFFSET, "%s", bits_of_logits);
    question->temperature = (float)asked->score_temperature;
    request->token_ids = question->has_ids ? question->token_ids : NULL;
    request->n_tokens = question->n_tokens;
    request->text = question->text;
    request->n_bytes = question->n_bytes;
    request->add_special = (np_choice)asked->add_special;
    request->parse_special = (np_choice)asked->parse_special;
    request->condition = (np_condition)asked->condition;
    request->start = asked->start == NOT_GIVEN ? 0 : (size_t)asked->start;
    request->logprobs_mode = wants_logits(asked) ? NP_RAW_LOGITS : NP_RAW_LOGPROBS;
    request->score_temperature = question->temperature != 1 ? &question->temperature : NULL;
    return loop->asker->prepare(loop->cli, question, &loop->batch.arena, err);
}

static size_t tokens_to_follow(const np_request *request)
{
    enum { CONTEXT = 1 << 20 }; /* and no more, whatever was asked */
    size_t n = request->max_tokens < CONTEXT ? request->max_tokens : CONTEXT;
    return request->sampling && request->sampling->n > 1 ? n * (size_t)request->sampling->n : n;
}

/* Tokens and cells that the question may cost; n bytes of text are at most n tokens and 2 added. */
static void batch_weigh(struct batch *batch, const struct question *question)
{
    const np_request *request = &question->request;
    size_t n_tokens = request->token_ids ? request->n_tokens : request->n_bytes + 2;
    int32_t top = request->sampling ? request->sampling->top : request->top;
    size_t n_top = top < 0 ? (size_t)1 << 18 : (size_t)top;
    size_t width = n_top + request->n_candidates + 1;
    n_tokens += tokens_to_follow(request);
    batch->n_tokens += n_tokens;
    batch->n_cells += width > SIZE_MAX / 2 / (n_tokens + 1) ? SIZE_MAX / 2 : n_tokens * width;
}

static bool batch_has_room(const struct loop *loop)
{
    const struct batch *batch = &loop->batch;
    return batch->count < MAX_BATCH_REQUESTS && batch->n_tokens < MAX_BATCH_TOKENS &&
           batch->n_cells < MAX_BATCH_CELLS;
}

static void batch_read(struct loop *loop)
{
    struct batch *batch = &loop->batch;
    while (!loop->ended && batch_has_room(loop) && !workplace_signal()) {
        /* Whoever waits for an answer before writing on gets it. */
        if (loop->many && batch->count > 0 && source_would_wait(&loop->source, 0)) break;
        struct question *question = &batch->questions[batch->count];
        if (!question_read(loop, question)) break;
        question->number = loop->n_read++;
        if (loop->asker->done && question->error.status == NP_OK &&
            loop->asker->done(loop->cli, question))
            continue;
        if (question->error.status == NP_OK) question_finish(loop, question);
        if (question->error.status == NP_OK) {
            batch_weigh(batch, question);
            batch->asked[batch->n_asked] = batch->count;
            batch->requests[batch->n_asked++] = question->request;
        }
        batch->count++;
    }
}

/* ---- answering ---------------------------------------------------------------------------- */

void json_id(struct json *json, const struct question *question)
{
    if (question->line == 0) return;
    json_key(json, "id");
    if (!question->id)
        json_int(json, (int64_t)question->number);
    else if (question->id_is_text)
        json_str(json, question->id);
    else
        json_int(json, question->id_int);
}

/* The library says "candidate_ids[3][1]"; the request may have called them by another name. */
static void rename_place(np_error *err, const char *own, const char *name)
{
    char rest[sizeof err->where];
    size_t n_own = strlen(own);
    if (!name || strncmp(err->where, own, n_own) != 0) return;
    snprintf(rest, sizeof rest, "%.100s", err->where + n_own);
    snprintf(err->where, sizeof err->where, "%.60s%.100s", name, rest);
}

/* Whoever gave a text knows no token_ids; a single token of it has no other name, though. */
static void rename_places(const struct question *question, np_error *err)
{
    bool joined = question->response_text || question->has_response_ids;
    rename_place(err, "candidate_ids", question->candidates_name);
    if (question->text || joined) {
        if (strcmp(err->where, "token_ids") == 0) rename_place(err, "token_ids", "prompt");
    } else {
        rename_place(err, "token_ids", question->tokens_name);
    }
}

static void print_error(struct loop *loop, const struct question *question, const np_error *why)
{
    struct cli *cli = loop->cli;
    struct json *json = &cli->json;
    np_error as_typed = *why;
    cli->status = EXIT_REQUEST;
    if (!loop->many) options_name_place(&as_typed, cli->command->bit);
    if (!cli->options.json && !loop->many) {
        complain_error(cli->command->name, &as_typed);
        return;
    }
    json_begin(json, '{');
    json_id(json, question);
    json_error(json, why);
    json_end(json, '}');
    buf_puts(&cli->text, "\n");
}

static void print_answer(struct loop *loop, struct question *question, np_result *result)
{
    struct cli *cli = loop->cli;
    const struct asker *asker = loop->asker;
    np_error err = question->error;
    json_init(&cli->json, &cli->text);
    if (err.status == NP_OK && result) err = result->error;
    rename_places(question, &err);
    if (err.status == NP_OK && asker->deliver)
        asker->deliver(cli, question, result, &err);
    else if (err.status == NP_OK && (cli->options.json || loop->many)) {
        if (asker->json(cli, question, result, &err) == NP_OK) buf_puts(&cli->text, "\n");
    } else if (err.status == NP_OK) {
        asker->table(cli, question, result, &err);
    }
    if (err.status != NP_OK) print_error(loop, question, &err);
    if (cli->text.failed && !cli->out.failed) {
        complain("output", "an answer is longer than memory allows");
        cli->out.failed = true;
    }
    if (!result) return;
    cli->n_tokens += result->n_tokens;
    cli->n_rows += result->n_rows;
}

static np_status batch_run(struct loop *loop, np_error *err)
{
    struct batch *batch = &loop->batch;
    struct progress progress;
    if (batch->n_asked == 0 || !loop->asker->runs) return NP_OK;
    progress_begin(&progress, loop->cli, loop->cli->command->name);
    double began_s = seconds_now();
    np_status status = loop->asker->run ? loop->asker->run(loop->cli, &batch->questions[0],
                                                           &batch->results[0], err)
                                        : np_run(loop->cli->engine, batch->requests, batch->n_asked,
                                                 batch->results, progress_tick, &progress, err);
    loop->cli->compute_s += seconds_now() - began_s;
    progress_end(&progress);
    return status;
}

/* Prints in order, up to the first request that was cancelled. */
static void batch_print(struct loop *loop)
{
    struct cli *cli = loop->cli;
    struct batch *batch = &loop->batch;
    size_t next = 0;
    for (size_t i = 0; i < batch->count && !cli->out.failed; i++) {
        struct question *question = &batch->questions[i];
        np_result *result = NULL;
        if (next < batch->n_asked && batch->asked[next] == i) {
            if (loop->asker->runs) result = &batch->results[next];
            next++;
        }
        if (result && result->error.status == NP_ECANCELLED) break;
        print_answer(loop, question, result);
        output_spill(cli, true);
    }
    output_flush(&cli->out);
}

static void batch_reset(struct batch *batch, bool ran)
{
    for (size_t i = 0; ran && i < batch->n_asked; i++) np_result_free(&batch->results[i]);
    memset(batch->results, 0, sizeof batch->results);
    arena_free(&batch->arena);
    batch->count = batch->n_asked = batch->n_tokens = batch->n_cells = 0;
}

static void loop_run(struct loop *loop)
{
    struct cli *cli = loop->cli;
    struct batch *batch = &loop->batch;
    while (!loop->ended && !cli->out.failed && !workplace_signal()) {
        np_error err = {0};
        arena_init(&batch->arena, MAX_BATCH_BYTES);
        batch_read(loop);
        np_status status = batch_run(loop, &err);
        batch_print(loop);
        batch_reset(batch, loop->asker->runs);
        cli->whole = loop->ended && status == NP_OK && !cli->out.failed && !workplace_signal();
        if (status != NP_OK && status != NP_ECANCELLED) {
            complain_error(cli->command->name, &err);
            cli->status = EXIT_REQUEST;
            return;
        }
    }
}

/* Opens everything in the order in which a mistake is cheapest: the command line first. */
static int loop_begin(struct loop *loop)
{
    struct cli *cli = loop->cli;
    np_error err = {0};
    if (loop_open(loop, &err) != NP_OK) {
        complain_error(cli->command->name, &err);
        return EXIT_USAGE;
    }
    int status = workplace_open_model(cli);
    if (status == EXIT_DONE && loop->asker->runs) status = workplace_open_engine(cli);
    if (status != EXIT_DONE) return status;
    if (loop->asker->begin && loop->asker->begin(cli, &err) != NP_OK) {
        complain_error(cli->command->name, &err);
        return err.status == NP_EIO ? EXIT_REQUEST : EXIT_USAGE;
    }
    return output_open(&cli->out, cli->options.output) ? EXIT_DONE : EXIT_REQUEST;
}

/* The file of -o gets its name when all was answered; after a signal it goes. */
static int loop_end(struct loop *loop, int status)
{
    struct cli *cli = loop->cli;
    int number = workplace_signal();
    /* A lone failure whose message went to standard error leaves no empty file. */
    bool whole = number == 0 && (loop->many || cli->options.json || status == EXIT_DONE);
    bool good = output_close(&cli->out, whole);
    if (number) return EXIT_SIGNAL + number;
    if (cli->out.closed_pipe) return EXIT_DONE;
    return good ? status : EXIT_REQUEST;
}

int requests_answer(struct cli *cli, const struct asker *asker)
{
    /* Large: its batch holds all requests that run together. */
    struct loop *loop = calloc(1, sizeof *loop);
    if (!loop) {
        complain("memory", "none left for the first batch");
        return EXIT_REQUEST;
    }
    loop->cli = cli;
    loop->asker = asker;
    loop->source.fd = -1;
    buf_init(&cli->text, MAX_ANSWER_BYTES);
    json_init(&cli->json, &cli->text);
    int status = loop_begin(loop);
    if (status == EXIT_DONE) {
        loop_run(loop);
        status = loop_end(loop, cli->status);
    }
    source_close(&loop->source);
    buf_free(&cli->text);
    free(loop->file_text);
    arena_free(&loop->arena);
    free(loop);
    return status;
}
