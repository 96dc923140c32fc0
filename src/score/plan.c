/*
 * plan.c - checks a request against the model and lays out what its rows keep.
 *
 * The wanted ids are sorted here, once, so that the sweep of head.c walks over them with a cursor
 * and never looks one up. Flat candidates are sorted once for all rows. The one surprising
 * decision: padding (-1) stays in the sorted list, at its front, where a search for the first id of
 * a panel steps over it.
 */
#include "score/plan.h"

#include <math.h>

static const unsigned all_wants =
    NP_WANT_LOGPROB | NP_WANT_RANK | NP_WANT_ENTROPY | NP_WANT_TAIL | NP_WANT_MASS;

static np_status plan_tokens(struct plan *plan, size_t n_vocab, size_t n_context, np_error *err)
{
    if (plan->n_tokens == 0)
        return error_set(err, NP_EINPUT, "token_ids", NO_OFFSET, "at least one token is needed");
    if (plan->n_tokens > n_context) {
        np_status status =
            error_set(err, NP_ELIMIT, "token_ids", NO_OFFSET,
                      "%zu tokens do not fit the context of %zu tokens", plan->n_tokens, n_context);
        return error_given(err, status, "%zu tokens", plan->n_tokens);
    }
    if (!plan->token_ids)
        return error_set(err, NP_EINPUT, "token_ids", NO_OFFSET, "the ids are missing");
    for (size_t i = 0; i < plan->n_tokens; i++) {
        int32_t id = plan->token_ids[i];
        if (id >= 0 && (size_t)id < n_vocab) continue;
        char where[64];
        snprintf(where, sizeof where, "token_ids[%zu]", i);
        np_status status =
            error_set(err, NP_EINPUT, where, NO_OFFSET,
                      "a token id must lie in 0 to %zu (vocabulary %zu)", n_vocab - 1, n_vocab);
        return error_given(err, status, "%d", id);
    }
    return NP_OK;
}

/* The next row is there whatever the start. Token scores from a row that the sequence does not have
 * are a mistake of whoever counted; candidates there have no rows, as on the wire. */
static np_status plan_rows(struct plan *plan, const np_request *request, np_error *err)
{
    size_t last = plan->n_tokens - 1;
    bool candidates = request->candidate_ids || request->n_candidates;
    plan->start = request->next && request->start > last ? last : request->start;
    if (plan->start > last && !candidates && request->want & (NP_WANT_LOGPROB | NP_WANT_RANK)) {
        np_status status = error_set(err, NP_EINPUT, "start", NO_OFFSET,
                                     "the sequence has %zu tokens: a row from 0 to %zu is expected",
                                     plan->n_tokens, last);
        return error_given(err, status, "%zu", plan->start);
    }
    plan->n_scored = plan->start < last ? last - plan->start : 0;
    plan->n_rows = plan->n_scored + (request->next && plan->start <= last);
    return NP_OK;
}

static np_status plan_options(struct plan *plan, const np_request *request, size_t n_vocab,
                              np_error *err)
{
    plan->want = request->want;
    if (plan->want & ~all_wants) {
        np_status status =
            error_set(err, NP_EINPUT, "want", NO_OFFSET, "only bits of %#x are known", all_wants);
        return error_given(err, status, "%#x", plan->want);
    }
    if (request->top < -1) {
        np_status status = error_set(err, NP_EINPUT, "top", NO_OFFSET,
                                     "must be -1 (the whole vocabulary) or at least 0");
        return error_given(err, status, "%d", request->top);
    }
    plan->n_top =
        request->top < 0 || (size_t)request->top > n_vocab ? n_vocab : (size_t)request->top;
    if ((plan->want & NP_WANT_MASS) && plan->n_top == 0)
        return error_set(err, NP_EINPUT, "want", NO_OFFSET,
                         "the mass beside the top tokens needs top to be set");
    if (request->logprobs_mode != NP_RAW_LOGPROBS && request->logprobs_mode != NP_RAW_LOGITS) {
        np_status status = error_set(err, NP_EINPUT, "logprobs_mode", NO_OFFSET,
                                     "must be raw_logprobs (0) or raw_logits (1)");
        return error_given(err, status, "%d", (int)request->logprobs_mode);
    }
    plan->logits = request->logprobs_mode == NP_RAW_LOGITS;
    plan->temperature = request->score_temperature ? *request->score_temperature : 1.0f;
    if (!(plan->temperature > 0) || isinf(plan->temperature)) {
        np_status status = error_set(err, NP_EINPUT, "score_temperature", NO_OFFSET,
                                     "must be a finite number above 0");
        return error_given(err, status, "%g", (double)plan->temperature);
    }
    return NP_OK;
}

static int wanted_order(const void *a, const void *b)
{
    const struct wanted_id *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return (x->cell > y->cell) - (x->cell < y->cell);
}

/* The shape of the candidates; *n_lists: 1 for flat ones, the number of rows for nested ones. */
static np_status candidate_shape(struct plan *plan, const np_request *request, size_t *n_lists,
                                 np_error *err)
{
    size_t n_given = request->n_candidate_rows;
    plan->per_row = n_given > 0;
    *n_lists = plan->per_row ? n_given : 1;
    if (!request->candidate_ids)
        return error_set(err, NP_EINPUT, "candidate_ids", NO_OFFSET,
                         "the ids are missing, %zu per row are announced", request->n_candidates);
    if (request->n_candidates == 0)
        return error_set(err, NP_EINPUT, "candidate_ids", NO_OFFSET, "at least one id is needed");
    if (plan->per_row && n_given != plan->n_rows) {
        np_status status = error_set(err, NP_EINPUT, "candidate_ids", NO_OFFSET,
                                     "rows expected: %zu (%zu tokens, start %zu); rows given",
                                     plan->n_rows, plan->n_tokens, plan->start);
        return error_given(err, status, "%zu", n_given);
    }
    if (request->n_candidates > INT32_MAX || request->n_candidates > SIZE_MAX / 16 / *n_lists) {
        np_status status = error_set(err, NP_ELIMIT, "candidate_ids", NO_OFFSET,
                                     "%zu rows of %zu ids are above what can be addressed",
                                     *n_lists, request->n_candidates);
        return error_given(err, status, "%zu ids per row", request->n_candidates);
    }
    return NP_OK;
}

static np_status candidate_bad(const struct plan *plan, size_t row, size_t column, int32_t id,
                               size_t n_vocab, np_error *err)
{
    char where[96];
    const char *padding = plan->per_row ? ", or be -1 for padding" : "";
    if (plan->per_row)
        snprintf(where, sizeof where, "candidate_ids[%zu][%zu]", row, column);
    else
        snprintf(where, sizeof where, "candidate_ids[%zu]", column);
    np_status status =
        error_set(err, NP_EINPUT, where, NO_OFFSET,
                  "row %zu, column %zu: an id must lie in 0 to %zu (vocabulary %zu)%s", row, column,
                  n_vocab - 1, n_vocab, padding);
    return error_given(err, status, "%d", id);
}

static np_status plan_candidates(struct plan *plan, const np_request *request, size_t n_vocab,
                                 struct arena *arena, np_error *err)
{
    size_t n = request->n_candidates, n_lists = 0, n_padding = 0;
    TRY(candidate_shape(plan, request, &n_lists, err));
    struct wanted_id *wanted = arena_push_array(arena, n_lists * n, sizeof *wanted);
    if (!wanted) return error_nomem(err, "candidate_ids", n_lists * n * sizeof *wanted);
    for (size_t row = 0; row < n_lists; row++) {
        struct wanted_id *list = wanted + row * n;
        for (size_t c = 0; c < n; c++) {
            int32_t id = request->candidate_ids[row * n + c];
            bool padding = id == -1 && plan->per_row;
            if (!padding && (id < 0 || (size_t)id >= n_vocab))
                return candidate_bad(plan, row, c, id, n_vocab, err);
            n_padding += padding;
            list[c] = (struct wanted_id){.id = id, .cell = (int32_t)c};
        }
        qsort(list, n, sizeof *list, wanted_order);
    }
    if (n_padding == n_lists * n)
        return error_set(err, NP_EINPUT, "candidate_ids", NO_OFFSET,
                         "all %zu rows are empty; at least one id is needed", n_lists);
    plan->n_candidates = n;
    plan->candidate_ids = request->candidate_ids;
    plan->wanted = wanted;
    return NP_OK;
}

np_status plan_init(struct plan *plan, const np_request *request, const int32_t *token_ids,
                    size_t n_tokens, size_t n_vocab, size_t n_context, struct arena *arena,
                    np_error *err)
{
    *plan = (struct plan){.n_tokens = n_tokens, .token_ids = token_ids};
    TRY(plan_tokens(plan, n_vocab, n_context, err));
    TRY(plan_options(plan, request, n_vocab, err));
    TRY(plan_rows(plan, request, err));
    if (request->candidate_ids || request->n_candidates || request->n_candidate_rows)
        return plan_candidates(plan, request, n_vocab, arena, err);
    if (plan->want & NP_WANT_TAIL)
        return error_set(err, NP_EINPUT, "want", NO_OFFSET,
                         "the mass beside the candidates needs candidate_ids to be set");
    return NP_OK;
}
