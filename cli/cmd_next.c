/*
 * next: the most likely tokens after a text. One row only, the last: the start lies behind all
 * rows that score given tokens.
 */
#include "requests.h"

#include <math.h>

enum { DEFAULT_TOP = 10 };
static const double LN2 = 0.69314718055994530942;

static double as_printed(const struct cli *cli, float nats)
{
    return cli->options.unit == UNIT_BITS ? (double)(float)((double)nats / LN2) : (double)nats;
}

static np_status prepare(struct cli *cli, struct question *question, struct arena *arena,
                         np_error *err)
{
    np_request *request = &question->request;
    if (question->asked.top == 0)
        return error_set(err, NP_EINPUT, "top", NO_OFFSET, "%s", next_needs_top);
    request->next = 1;
    request->start = SIZE_MAX;
    request->top = question->asked.top == NOT_GIVEN ? DEFAULT_TOP : (int32_t)question->asked.top;
    request->want = NP_WANT_ENTROPY | NP_WANT_MASS;
    return NP_OK;
}

static np_status as_json(struct cli *cli, struct question *question, np_result *result,
                         np_error *err)
{
    struct json *json = &cli->json;
    bool logits = question->request.logprobs_mode == NP_RAW_LOGITS;
    json_begin(json, '{');
    json_id(json, question);
    json_key(json, logits ? "top_logits" : "top_logprobs");
    json_begin(json, '[');
    for (size_t k = 0; k < result->n_top && output_spill(cli, false); k++) {
        json_begin(json, '{');
        double probability = exp((double)result->top_logprobs[k]);
        json_ranked(cli, result->top_ids[k], logits ? "logit" : "logprob",
                    (float)as_printed(cli, result->top_logprobs[k]), logits ? NULL : &probability,
                    k + 1);
        json_end(json, '}');
    }
    json_end(json, ']');
    json_key(json, "entropy");
    json_float(json, (float)as_printed(cli, result->entropies[0]));
    json_finite(json, "mass_not_listed", exp((double)result->mass[0]));
    json_key(json, "log_mass_not_listed");
    json_float(json, (float)as_printed(cli, result->mass[0]));
    json_key(json, "n_tokens");
    json_int(json, (int64_t)result->n_tokens);
    if (cli->options.unit == UNIT_BITS) {
        json_key(json, "unit");
        json_str(json, "bits");
    }
    json_conditions(cli, &question->request);
    json_end(json, '}');
    return NP_OK;
}

static np_status as_table(struct cli *cli, struct question *question, np_result *result,
                          np_error *err)
{
    struct buf *out = &cli->text;
    bool logits = question->request.logprobs_mode == NP_RAW_LOGITS;
    const char *unit = cli->options.unit == UNIT_BITS ? "bits" : "nats";
    buf_printf(out, "%s%6s %7s  %-36s %10s %12s%s\n", cli->out.colour ? "\033[1m" : "", "rank",
               "id", "token", logits ? "logit" : "logprob", logits ? "" : "probability",
               cli->out.colour ? "\033[0m" : "");
    for (size_t k = 0; k < result->n_top && output_spill(cli, false); k++) {
        buf_printf(out, "%6zu %7d  ", k + 1, (int)result->top_ids[k]);
        visible_token(cli, result->top_ids[k], 36);
        buf_puts(out, " ");
        visible_logprob(cli, as_printed(cli, result->top_logprobs[k]));
        if (!logits) buf_printf(out, " %12.6f", exp((double)result->top_logprobs[k]));
        buf_puts(out, "\n");
    }
    buf_printf(out, "\n%-16s%12.4f %s\n", "entropy", as_printed(cli, result->entropies[0]), unit);
    buf_printf(out, "%-16s%12.6f\n", "mass not listed", exp((double)result->mass[0]));
    return NP_OK;
}

int command_next(struct cli *cli)
{
    static const struct asker asker = {
        .runs = true, .prepare = prepare, .json = as_json, .table = as_table};
    return requests_answer(cli, &asker);
}
