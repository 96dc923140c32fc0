/*
 * head_rows.c - what becomes of one row: its logits are taken panel by panel, then its answers are
 * written (docs/NUMERICS.md, items 7 to 9).
 *
 * The surprising decision: the wanted logits wait in the cells of the answer (as f32, exactly)
 * until the log-sum-exp of the row is known, so a row needs no memory for them.
 */
#include "score/head_work.h"

#include <math.h>

/* ---- what a row wants ------------------------------------------------------------------------ */

bool row_wants_target(const struct head_row *row)
{
    return row->target >= 0 && (row->logprob || row->rank);
}

struct topk row_top(const struct head_row *row)
{
    size_t k = row->top_ids ? row->plan->n_top : 0;
    return (struct topk){.logits = row->top_logprobs, .ids = row->top_ids, .k = k};
}

bool row_is_known(const struct head_row *row)
{
    bool ranks = row->target >= 0 && row->rank;
    return row->lse && row->known && !ranks && !row->top_ids && !row->mass &&
           (!row->entropy || row->known_entropy);
}

size_t rows_skip(const struct task *task, size_t n, bool known)
{
    size_t at = task->begin;
    for (; n > 0; at++) n -= row_is_known(&task->rows[at]) == known;
    return at;
}

/* Where a row's candidates begin in the plan's arrays. */
static size_t first_cell(const struct head_row *row)
{
    return row->plan->per_row ? row->j * row->plan->n_candidates : 0;
}

/* ---- its logits ------------------------------------------------------------------------------ */

void row_begin(const struct head_row *row, struct row_state *state, size_t first_id)
{
    const struct plan *plan = row->plan;
    *state = (struct row_state){.row = row, .bad = -1};
    if (!row->scores) return;
    size_t low = 0, high = plan->n_candidates;
    const struct wanted_id *list = plan->wanted + first_cell(row);
    state->wanted_end = list + plan->n_candidates;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        bool left = list[middle].id < 0 || (size_t)list[middle].id < first_id;
        if (left)
            low = middle + 1;
        else
            high = middle;
    }
    state->wanted = list + low;
}

int32_t row_cells(struct row_state *state, const float *logits, size_t n, size_t first_id)
{
    int32_t bad = -1;
    for (; state->wanted < state->wanted_end; state->wanted++) {
        size_t i = (size_t)state->wanted->id - first_id;
        if (i >= n) break;
        state->row->scores[state->wanted->cell] = logits[i];
        if (bad < 0 && !isfinite(logits[i])) bad = state->wanted->id;
    }
    return bad;
}

void row_take(const struct task *task, struct row_state *state, struct lse_part *parts,
              float *logits, size_t n, size_t first_id)
{
    const struct kernels *kernels = task->kernels;
    const struct head_row *row = state->row;
    float temperature = row->plan->temperature;
    if (state->bad >= 0) return;
    if (temperature != 1) kernels->divide(n, logits, temperature, logits);
    size_t bad = first_nonfinite(logits, n);
    if (bad < n) { /* before any kernel meets NaN */
        state->bad = (int32_t)(first_id + bad);
        return;
    }
    struct lse_part part = kernels->lse_panel(logits, n, row->entropy != NULL);
    struct lse_part *segment = &parts[first_id / SEGMENT];
    *segment = first_id % SEGMENT ? lse_combine(*segment, part) : part;
    row_cells(state, logits, n, first_id);
    if (row->rank && row->target >= 0) {
        size_t target = (size_t)row->target;
        size_t n_lower = target < first_id ? 0 : target - first_id < n ? target - first_id : n;
        state->n_before += kernels->count_before(logits, n, state->target_logit, n_lower);
    }
    topk_panel(&state->top, logits, n, (int32_t)first_id, (float)part.m);
}

/* ---- its answers ----------------------------------------------------------------------------- */

/* Before the scores are converted: the sorted list meets equal ids together, in ascending order.
 * */
static double row_tail(const struct task *task, const struct head_row *row, struct row_lse lse)
{
    const struct plan *plan = row->plan;
    const struct wanted_id *list = plan->wanted + first_cell(row);
    size_t n_distinct = 0;
    double sum = 0;
    for (size_t c = 0; c < plan->n_candidates; c++) {
        if (list[c].id < 0 || (c > 0 && list[c].id == list[c - 1].id)) continue;
        sum = sum + prob_of(lse, row->scores[list[c].cell]);
        n_distinct++;
    }
    return log_remaining(sum, n_distinct, task->space->sizes.n_vocab);
}

static double row_mass(const struct task *task, struct topk *top, struct row_lse lse)
{
    double sum = 0;
    topk_sort_ids(top);
    for (size_t i = 0; i < top->n; i++) sum = sum + prob_of(lse, top->logits[i]);
    return log_remaining(sum, top->n, task->space->sizes.n_vocab);
}

static float row_value(const struct plan *plan, struct row_lse lse, float logit)
{
    return plan->logits ? logit : logprob_of(lse, logit);
}

void row_answer(const struct task *task, struct row_state *state, struct row_lse lse)
{
    const struct head_row *row = state->row;
    const struct plan *plan = row->plan;
    struct topk *top = &state->top;
    task->bad[row - task->rows] = state->bad;
    if (state->bad >= 0) return;
    if (row->target >= 0 && row->logprob) *row->logprob = row_value(plan, lse, state->target_logit);
    if (row->target >= 0 && row->rank) *row->rank = (int32_t)(state->n_before + 1);
    if (row->entropy) *row->entropy = (float)lse.entropy;
    if (row->tail) *row->tail = (float)row_tail(task, row, lse);
    if (row->mass) *row->mass = (float)row_mass(task, top, lse);
    topk_sort(top);
    for (size_t i = 0; i < top->n; i++) top->logits[i] = row_value(plan, lse, top->logits[i]);
    if (!row->scores) return;
    const int32_t *ids = plan->candidate_ids + first_cell(row);
    for (size_t c = 0; c < plan->n_candidates; c++)
        row->scores[c] = ids[c] < 0 ? -INFINITY : row_value(plan, lse, row->scores[c]);
}

/* What a later call need not sum again. */
static void row_learn(const struct head_row *row, struct row_lse lse)
{
    if (!row->lse) return;
    if (!row->known) {
        row->lse->m = lse.m;
        row->lse->log_S = lse.log_S;
    }
    if (row->entropy && !(row->known && row->known_entropy)) row->lse->entropy = lse.entropy;
}

void row_finish(const struct task *task, struct row_state *state, const struct lse_part *parts)
{
    struct row_lse lse = {0};
    if (state->bad < 0) {
        struct lse_part total = parts[0];
        for (size_t s = 1; s < task->space->sizes.n_segments; s++)
            total = lse_combine(total, parts[s]);
        lse = lse_finish(total);
        row_learn(state->row, lse);
    }
    row_answer(task, state, lse);
}
