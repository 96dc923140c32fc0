/*
 * gather: teacher scoring. A prompt and a response are encoded separately and joined as ids, so
 * the rows are those of the response whatever their texts would merge to; nobody has to count
 * tokens. No EOS is put between them, even where the tokenizer would end a text with one.
 */
#include "requests.h"
#include "parts.h"
#include "base/npy.h"

static np_status encode(struct cli *cli, const struct question *question, const char *text,
                        size_t n_bytes, bool bos, struct arena *arena, const int32_t **ids,
                        size_t *n_ids, np_error *err)
{
    np_tokens tokens;
    TRY(np_tokenize(cli->model, text, n_bytes, NP_NO, (np_choice)question->asked.parse_special,
                    &tokens, err));
    int32_t *list = arena_push_array(arena, tokens.n_tokens + bos + 1, sizeof *list);
    if (list) {
        if (bos) list[0] = cli->info.bos_id;
        memcpy(list + bos, tokens.token_ids, tokens.n_tokens * sizeof *list);
        *ids = list;
        *n_ids = tokens.n_tokens + bos;
    }
    np_tokens_free(&tokens);
    return list ? NP_OK : error_nomem(err, "token ids", tokens.n_tokens * sizeof *list);
}

static np_status encode_both(struct cli *cli, struct question *question, struct arena *arena,
                             np_error *err)
{
    const struct asked *asked = &question->asked;
    bool bos =
        asked->condition == NP_CONDITION_BOS || (asked->condition == NP_CONDITION_DEFAULT &&
                                                 asked->add_special != NP_NO && cli->info.adds_bos);
    if (bos && cli->info.bos_id < 0)
        return error_set(err, NP_EINPUT, "condition", NO_OFFSET,
                         "the model has no beginning-of-sequence token");
    if (!question->has_ids)
        TRY(encode(cli, question, question->text, question->n_bytes, bos, arena,
                   &question->token_ids, &question->n_tokens, err));
    if (!question->has_response_ids)
        TRY(encode(cli, question, question->response_text, question->n_response_bytes, false, arena,
                   &question->response_ids, &question->n_response, err));
    return NP_OK;
}

static np_status join_response(struct cli *cli, struct question *question, struct arena *arena,
                               np_error *err)
{
    np_request *request = &question->request;
    TRY(encode_both(cli, question, arena, err));
    size_t n_prompt = question->n_tokens, n_response = question->n_response;
    if (n_prompt == 0)
        return error_set(err, NP_EINPUT, "prompt", NO_OFFSET,
                         "the prompt is empty: no row scores the first token of the response");
    if (n_response == 0)
        return error_set(err, NP_EINPUT, "response", NO_OFFSET, "the response is empty");
    int32_t *ids = arena_push_array(arena, n_prompt + n_response, sizeof *ids);
    if (!ids) return error_nomem(err, "token ids", (n_prompt + n_response) * sizeof *ids);
    memcpy(ids, question->token_ids, n_prompt * sizeof *ids);
    memcpy(ids + n_prompt, question->response_ids, n_response * sizeof *ids);
    request->text = NULL;
    request->n_bytes = 0;
    request->condition = NP_CONDITION_DEFAULT;
    request->add_special = request->parse_special = NP_DEFAULT;
    request->token_ids = ids;
    request->n_tokens = n_prompt + n_response;
    if (question->asked.start == NOT_GIVEN) request->start = n_prompt - 1;
    return NP_OK;
}

static np_status prepare(struct cli *cli, struct question *question, struct arena *arena,
                         np_error *err)
{
    np_request *request = &question->request;
    if (question->response_text || question->has_response_ids)
        TRY(join_response(cli, question, arena, err));
    if (!question->candidate_ids)
        return error_set(err, NP_EINPUT, "candidates", NO_OFFSET,
                         "no candidates; give --candidates or prompt_logprob_token_ids");
    if (question->n_candidates == 0)
        return error_set(err, NP_EINPUT, "candidates", NO_OFFSET, "the list is empty");
    request->candidate_ids = question->candidate_ids;
    request->n_candidates = question->n_candidates;
    request->n_candidate_rows = question->n_candidate_rows;
    request->want = question->asked.tail ? NP_WANT_TAIL : 0;
    return NP_OK;
}

/* ---- printing ----------------------------------------------------------------------------- */

static void print_scores(struct cli *cli, const np_result *result)
{
    struct json *json = &cli->json;
    json_key(json, "scores");
    json_begin(json, '[');
    for (size_t j = 0; j < result->n_rows && output_spill(cli, false); j++) {
        json_begin(json, '[');
        for (size_t k = 0; k < result->n_candidates; k++)
            json_float(json, result->scores[j * result->n_candidates + k]);
        json_end(json, ']');
    }
    json_end(json, ']');
}

static np_status as_json(struct cli *cli, struct question *question, np_result *result,
                         np_error *err)
{
    struct json *json = &cli->json;
    const int32_t *scored = result->n_rows ? result->token_ids + result->start + 1 : NULL;
    json_begin(json, '{');
    json_id(json, question);
    json_key(json, "start");
    json_int(json, (int64_t)result->start);
    json_ids(json, "row_token_ids", scored, result->n_rows);
    print_scores(cli, result);
    if (result->tail) {
        json_key(json, "tail");
        json_begin(json, '[');
        for (size_t j = 0; j < result->n_rows; j++) json_float(json, result->tail[j]);
        json_end(json, ']');
    }
    json_key(json, "n_tokens");
    json_int(json, (int64_t)result->n_tokens);
    if (question->response_text || question->has_response_ids) {
        json_key(json, "split");
        json_str(json, "separate");
    }
    json_conditions(cli, &question->request);
    json_end(json, '}');
    return NP_OK;
}

/* One line per candidate; a row's number and token stand on its first. */
static void table_row(struct cli *cli, const struct question *question, const np_result *result,
                      size_t j)
{
    struct buf *out = &cli->text;
    const np_request *request = &question->request;
    size_t first = request->n_candidate_rows ? j * request->n_candidates : 0;
    bool named = false;
    for (size_t k = 0; k < result->n_candidates && output_spill(cli, false); k++) {
        int32_t id = request->candidate_ids[first + k];
        if (id < 0) continue;
        if (named)
            buf_printf(out, "%31s", "");
        else {
            buf_printf(out, "%6zu  ", result->start + j);
            visible_token(cli, result->token_ids[result->start + j + 1], 22);
            buf_puts(out, " ");
        }
        named = true;
        buf_printf(out, "%8d  ", (int)id);
        visible_token(cli, id, 26);
        buf_puts(out, " ");
        visible_logprob(cli, (double)result->scores[j * result->n_candidates + k]);
        buf_puts(out, "\n");
    }
    if (result->tail && named) {
        buf_printf(out, "%31s%8s  %-26s ", "", "", "all other tokens");
        visible_logprob(cli, (double)result->tail[j]);
        buf_puts(out, "\n");
    }
}

static np_status as_table(struct cli *cli, struct question *question, np_result *result,
                          np_error *err)
{
    buf_printf(&cli->text, "%s%6s  %-22s %8s  %-26s %10s%s\n", cli->out.colour ? "\033[1m" : "",
               "row", "scores token", "id", "candidate",
               question->request.logprobs_mode == NP_RAW_LOGITS ? "logit" : "logprob",
               cli->out.colour ? "\033[0m" : "");
    for (size_t j = 0; j < result->n_rows && output_spill(cli, false); j++)
        table_row(cli, question, result, j);
    buf_printf(&cli->text, "\n%zu row%s of %zu candidate%s\n", result->n_rows,
               result->n_rows == 1 ? "" : "s", result->n_candidates,
               result->n_candidates == 1 ? "" : "s");
    return NP_OK;
}

/* ---- arrays ------------------------------------------------------------------------------- */

static np_status deliver_npy(struct cli *cli, struct question *question, np_result *result,
                             np_error *err)
{
    uint64_t shape[2] = {result->n_rows, result->n_candidates};
    size_t n_bytes = result->n_rows * result->n_candidates * sizeof(float);
    if (!npy_header(&cli->text, NPY_F32, shape, 2)) return error_nomem(err, "the header", 128);
    output_spill(cli, true);
    output_write(&cli->out, result->scores, n_bytes);
    return NP_OK;
}

static np_status deliver_part(struct cli *cli, struct question *question, np_result *result,
                              np_error *err)
{
    return parts_add(cli->parts, question, result, err);
}

static bool is_done(struct cli *cli, struct question *question)
{
    return parts_have(cli->parts, question);
}

/* All that decides a number, in one line: equal lines, equal numbers. */
static np_status describe_run(struct cli *cli, char *line, size_t n_bytes, np_error *err)
{
    const struct options *options = &cli->options;
    const struct asked *asked = &options->asked;
    const char *given[] = {options->candidates, options->prompt, options->response, options->text};
    uint64_t fingerprint, hash = 0;
    TRY(fingerprint_model(cli->info.path, &fingerprint, err));
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
        hash = hash_bytes(hash, given[i] ? given[i] : "", given[i] ? strlen(given[i]) + 1 : 0);
    snprintf(line, n_bytes,
             "nepit-parts 1 model %016llx numerics %s profile %s start %lld temperature %.17g "
             "condition %d "
             "special %d %d mode %d tail %d ids %d texts %016llx",
             (unsigned long long)fingerprint, np_numerics(), cli->info.profile,
             (long long)asked->start, asked->score_temperature, asked->condition,
             asked->add_special, asked->parse_special, asked->logprobs_mode, asked->tail,
             options->ids, (unsigned long long)hash);
    return NP_OK;
}

static np_status begin_parts(struct cli *cli, np_error *err)
{
    char line[512];
    TRY(describe_run(cli, line, sizeof line, err));
    return parts_open(&cli->parts, cli->archive, line, cli->options.resume, err);
}

int command_gather(struct cli *cli)
{
    static const struct asker print = {
        .runs = true, .prepare = prepare, .json = as_json, .table = as_table};
    static const struct asker npy = {.runs = true, .prepare = prepare, .deliver = deliver_npy};
    static const struct asker npz = {.runs = true,
                                     .prepare = prepare,
                                     .begin = begin_parts,
                                     .deliver = deliver_part,
                                     .done = is_done};
    np_error err = {0};
    if (cli->options.resume && !text_ends_with(cli->options.output, ".npz")) {
        complain("gather", "only a run with -o OUT.npz can be continued (--resume)");
        return EXIT_USAGE;
    }
    if (text_ends_with(cli->options.output, ".npy")) {
        if (!cli->options.jsonl) return requests_answer(cli, &npy);
        complain("gather", "a .npy holds one request; give -o OUT.npz for many (%s)",
                 cli->options.output);
        return EXIT_USAGE;
    }
    if (!text_ends_with(cli->options.output, ".npz")) return requests_answer(cli, &print);
    cli->archive = cli->options.output;
    cli->options.output = NULL;
    int status = requests_answer(cli, &npz);
    /* A run that was cut short leaves its parts for --resume. */
    bool whole = cli->parts && cli->whole;
    if (whole && parts_finish(cli->parts, status != EXIT_DONE, &err) != NP_OK) {
        complain_error("gather", &err);
        status = EXIT_REQUEST;
    }
    parts_close(cli->parts);
    return status;
}
