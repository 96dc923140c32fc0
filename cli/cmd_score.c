/*
 * score: the log-probability of every token of a text given those before it. Token 0 has no row
 * before it, so its cell is empty. Sums are made of the float32 values that are printed, in order,
 * in double: whoever adds up the printed numbers gets the same total, bit for bit.
 */
#include "requests.h"
#include "server/rows.h"

#include <math.h>

static const double LN2 = 0.69314718055994530942;

struct totals {
    double total; /* in the unit of the answer */
    double total_nats;
    size_t n_scored, n_bytes, n_scored_bytes;
    bool has_bytes; /* else the model has no tokenizer */
};

static bool in_bits(const struct cli *cli)
{
    return cli->options.unit == UNIT_BITS;
}

/* -inf as JSON has it, so that sums of printed values are finite. */
static float as_printed(const struct cli *cli, float nats)
{
    if (isinf(nats)) return -9999.0f;
    return in_bits(cli) ? (float)((double)nats / LN2) : nats;
}

static size_t token_n_bytes(struct cli *cli, const np_result *result, size_t i)
{
    const char *bytes;
    size_t n_bytes = 0;
    if (result->begin) return result->end[i] - result->begin[i];
    if (np_token_bytes(cli->model, result->token_ids[i], &bytes, &n_bytes, NULL) != NP_OK) return 0;
    return n_bytes;
}

static struct totals add_up(struct cli *cli, const struct question *question,
                            const np_result *result)
{
    struct totals sums = {.n_scored = result->n_scored, .has_bytes = cli->info.has_tokenizer};
    for (size_t j = 0; j < result->n_scored; j++) {
        sums.total += (double)as_printed(cli, result->logprobs[j]);
        sums.total_nats += isinf(result->logprobs[j]) ? -9999.0 : (double)result->logprobs[j];
        sums.n_scored_bytes += token_n_bytes(cli, result, result->start + j + 1);
    }
    if (question->request.text)
        sums.n_bytes = question->request.n_bytes;
    else
        for (size_t i = 0; i < result->n_tokens; i++) sums.n_bytes += token_n_bytes(cli, result, i);
    return sums;
}

static const char *conditioning(const struct cli *cli, const np_result *result)
{
    bool bos =
        cli->info.bos_id >= 0 && result->n_tokens > 0 && result->token_ids[0] == cli->info.bos_id;
    return bos ? "bos" : "none";
}

static np_status prepare(struct cli *cli, struct question *question, struct arena *arena,
                         np_error *err)
{
    const struct asked *asked = &question->asked;
    question->request.want =
        NP_WANT_LOGPROB | NP_WANT_RANK | (asked->entropy ? NP_WANT_ENTROPY : 0);
    question->request.top = asked->top == NOT_GIVEN ? 0 : (int32_t)asked->top;
    return NP_OK;
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void print_top(struct cli *cli, const np_result *result, int64_t row, const char *value_name)
{
    struct json *json = &cli->json;
    json_begin(json, '[');
    for (size_t k = 0; k < result->n_top; k++) {
        size_t cell = (size_t)row * result->n_top + k;
        json_begin(json, '{');
        json_ranked(cli, result->top_ids[cell], value_name,
                    as_printed(cli, result->top_logprobs[cell]), NULL, k + 1);
        json_end(json, '}');
    }
    json_end(json, ']');
}

/* One array with an entry per token, null where no row scores it. */
static void print_column(struct cli *cli, const np_result *result, const char *key,
                         const float *values, const int32_t *ranks)
{
    struct json *json = &cli->json;
    json_key(json, key);
    json_begin(json, '[');
    for (size_t i = 0; i < result->n_tokens; i++) {
        int64_t row = row_of(result, i);
        if (row < 0)
            json_nil(json);
        else if (ranks)
            json_int(json, ranks[row]);
        else
            json_float(json, as_printed(cli, values[row]));
    }
    json_end(json, ']');
}

static void print_totals(struct cli *cli, const struct totals *sums, bool logits)
{
    double count = (double)sums->n_scored, mean_nats = sums->total_nats / count;
    double bits = -sums->total_nats / LN2;
    if (logits) return;
    json_finite(&cli->json, "total", sums->total);
    json_finite(&cli->json, "mean", count > 0 ? sums->total / count : NAN);
    json_finite(&cli->json, "perplexity", count > 0 ? exp(-mean_nats) : NAN);
    json_finite(&cli->json, "bits_per_byte",
                sums->n_scored_bytes ? bits / (double)sums->n_scored_bytes : NAN);
}

static void print_count(struct json *json, const char *key, size_t count, bool known)
{
    json_key(json, key);
    if (known)
        json_int(json, (int64_t)count);
    else
        json_nil(json);
}

/* The n least likely tokens, lowest first: their places in `order`; returns how many. */
static size_t find_lowest(const np_result *result, size_t n, size_t *order)
{
    size_t count = 0;
    for (size_t j = 0; j < result->n_scored; j++) {
        size_t at = count < n ? count++ : n - 1;
        if (at == n - 1 && count == n && j >= n &&
            result->logprobs[order[at]] <= result->logprobs[j])
            continue;
        for (; at > 0 && result->logprobs[order[at - 1]] > result->logprobs[j]; at--)
            order[at] = order[at - 1];
        order[at] = j;
    }
    return count;
}

static np_status print_lowest(struct cli *cli, const np_result *result, const char *value_name,
                              np_error *err)
{
    struct json *json = &cli->json;
    size_t n = (size_t)cli->options.n_lowest;
    if (n == 0) return NP_OK;
    if (n > result->n_scored) n = result->n_scored;
    size_t *order = calloc(n + 1, sizeof *order);
    if (!order) return error_nomem(err, "the lowest tokens", n * sizeof *order);
    size_t count = n ? find_lowest(result, n, order) : 0;
    json_key(json, "lowest");
    json_begin(json, '[');
    for (size_t i = 0; i < count; i++) {
        size_t j = order[i], position = result->start + j + 1;
        json_begin(json, '{');
        json_key(json, "position");
        json_int(json, (int64_t)position);
        json_ranked(cli, result->token_ids[position], value_name,
                    as_printed(cli, result->logprobs[j]), NULL, (size_t)result->ranks[j]);
        json_end(json, '}');
    }
    json_end(json, ']');
    free(order);
    return NP_OK;
}

static np_status as_json(struct cli *cli, struct question *question, np_result *result,
                         np_error *err)
{
    struct json *json = &cli->json;
    bool logits = question->request.logprobs_mode == NP_RAW_LOGITS;
    struct totals sums = add_up(cli, question, result);
    json_begin(json, '{');
    json_id(json, question);
    json_ids(json, "token_ids", result->token_ids, result->n_tokens);
    json_key(json, "tokens");
    json_begin(json, '[');
    for (size_t i = 0; i < result->n_tokens; i++) json_token(cli, result->token_ids[i]);
    json_end(json, ']');
    print_column(cli, result, logits ? "logits" : "logprobs", result->logprobs, NULL);
    print_column(cli, result, "ranks", NULL, result->ranks);
    if (result->entropies) print_column(cli, result, "entropies", result->entropies, NULL);
    if (result->top_ids) {
        json_key(json, logits ? "top_logits" : "top_logprobs");
        json_begin(json, '[');
        for (size_t i = 0; i < result->n_tokens && output_spill(cli, false); i++) {
            if (row_of(result, i) < 0)
                json_nil(json);
            else
                print_top(cli, result, row_of(result, i), logits ? "logit" : "logprob");
        }
        json_end(json, ']');
    }
    np_status status = print_lowest(cli, result, logits ? "logit" : "logprob", err);
    print_totals(cli, &sums, logits);
    print_count(json, "n_tokens", result->n_tokens, true);
    print_count(json, "n_scored", sums.n_scored, true);
    print_count(json, "n_bytes", sums.n_bytes, sums.has_bytes);
    print_count(json, "n_scored_bytes", sums.n_scored_bytes, sums.has_bytes);
    json_key(json, "conditioning");
    json_str(json, conditioning(cli, result));
    if (in_bits(cli)) {
        json_key(json, "unit");
        json_str(json, "bits");
    }
    json_conditions(cli, &question->request);
    json_end(json, '}');
    return status;
}

/* ---- the table ---------------------------------------------------------------------------- */

static void table_line(struct cli *cli, const np_result *result, size_t i)
{
    struct buf *out = &cli->text;
    int64_t row = row_of(result, i);
    buf_printf(out, "%6zu  ", i);
    visible_token(cli, result->token_ids[i], 36);
    if (row < 0) {
        buf_printf(out, " %10s %9s%s\n", "-", "-", result->entropies ? "          -" : "");
        return;
    }
    buf_puts(out, " ");
    visible_logprob(cli, (double)as_printed(cli, result->logprobs[row]));
    buf_printf(out, " %9d", (int)result->ranks[row]);
    if (result->entropies)
        buf_printf(out, " %10.4f", (double)as_printed(cli, result->entropies[row]));
    buf_puts(out, "\n");
    for (size_t k = 0; k < result->n_top && output_spill(cli, false); k++) {
        size_t cell = (size_t)row * result->n_top + k;
        buf_puts(out, "           ");
        visible_token(cli, result->top_ids[cell], 33);
        buf_printf(out, " %10.4f %9zu\n", (double)as_printed(cli, result->top_logprobs[cell]),
                   k + 1);
    }
}

static np_status table_lowest(struct cli *cli, const np_result *result, np_error *err)
{
    size_t n = (size_t)cli->options.n_lowest;
    if (n > result->n_scored) n = result->n_scored;
    size_t *order = calloc(n + 1, sizeof *order);
    if (!order) return error_nomem(err, "the lowest tokens", n * sizeof *order);
    size_t count = n ? find_lowest(result, n, order) : 0;
    for (size_t i = 0; i < count; i++) table_line(cli, result, result->start + order[i] + 1);
    free(order);
    return NP_OK;
}

static void table_totals(struct cli *cli, const struct totals *sums)
{
    struct buf *out = &cli->text;
    const char *unit = in_bits(cli) ? "bits" : "nats";
    double count = (double)sums->n_scored, bits = -sums->total_nats / LN2;
    buf_printf(out, "\n%-14s%14.4f %s\n", "total", sums->total, unit);
    if (count > 0) {
        buf_printf(out, "%-14s%14.4f %s\n", "mean", sums->total / count, unit);
        buf_printf(out, "%-14s%14.4f\n", "perplexity", exp(-sums->total_nats / count));
    }
    if (sums->n_scored_bytes)
        buf_printf(out, "%-14s%14.4f\n", "bits per byte", bits / (double)sums->n_scored_bytes);
}

static np_status as_table(struct cli *cli, struct question *question, np_result *result,
                          np_error *err)
{
    struct buf *out = &cli->text;
    bool logits = question->request.logprobs_mode == NP_RAW_LOGITS;
    struct totals sums = add_up(cli, question, result);
    buf_printf(out, "%s%6s  %-36s %10s %9s%s%s\n", cli->out.colour ? "\033[1m" : "", "pos", "token",
               logits ? "logit" : "logprob", "rank", result->entropies ? "    entropy" : "",
               cli->out.colour ? "\033[0m" : "");
    if (cli->options.n_lowest > 0) TRY(table_lowest(cli, result, err));
    for (size_t i = 0; i < result->n_tokens && !cli->options.n_lowest; i++)
        table_line(cli, result, i);
    if (!logits)
        table_totals(cli, &sums);
    else
        buf_puts(out, "\n");
    buf_printf(out, "%-14s%14zu, %zu scored\n", "tokens", result->n_tokens, sums.n_scored);
    if (sums.has_bytes)
        buf_printf(out, "%-14s%14zu, %zu scored\n", "bytes", sums.n_bytes, sums.n_scored_bytes);
    buf_printf(out, "%-14s%14s\n", "conditioning", conditioning(cli, result));
    return NP_OK;
}

int command_score(struct cli *cli)
{
    static const struct asker asker = {
        .runs = true, .prepare = prepare, .json = as_json, .table = as_table};
    return requests_answer(cli, &asker);
}
