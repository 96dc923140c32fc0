/*
 * pick.c - rows whose log-sum-exp is known: only the tiles of 16 columns with ids that they want
 * are computed.
 *
 * Each row of a pass waits at the tile of its next wanted id. Tiles are gone through in ascending
 * order; the rows that wait at one are packed, multiplied with it together, and wait again further
 * on. So nothing is sorted, and how many candidates a row has costs no memory.
 *
 *   waiting[tile] -> row -> behind[row] -> ... -> 0      rows of the pass, counted from 1
 *
 * The surprising decision: a tile that most of a block of rows wants is computed for all of it,
 * since a block is packed only once, and to pack a row costs as much as its tile.
 */
#include "score/head_work.h"

#include <math.h>

struct pass {
    const struct task *task;
    struct worker *worker;
    size_t n;    /* rows */
    bool packed; /* all of them, in the operand */
};

static void row_wait(struct worker *worker, size_t i)
{
    const struct row_state *state = &worker->states[i];
    size_t id = SIZE_MAX;
    if (state->wanted < state->wanted_end) id = (size_t)state->wanted->id;
    if (state->target_ahead && (size_t)state->row->target < id) id = (size_t)state->row->target;
    if (id == SIZE_MAX || state->bad >= 0) return;
    worker->behind[i] = worker->waiting[id / TILE];
    worker->waiting[id / TILE] = (uint16_t)(i + 1);
}

static void row_pick(const struct task *task, struct row_state *state, float *logits, size_t n,
                     size_t first_id)
{
    const struct head_row *row = state->row;
    float temperature = row->plan->temperature;
    if (temperature != 1) task->kernels->divide(n, logits, temperature, logits);
    state->bad = row_cells(state, logits, n, first_id);
    if (!state->target_ahead || (size_t)row->target - first_id >= n) return;
    state->target_ahead = false;
    state->target_logit = logits[(size_t)row->target - first_id];
    if (isfinite(state->target_logit)) return;
    if (state->bad < 0 || row->target < state->bad) state->bad = row->target;
}

static size_t tile_columns(const struct pass *pass, size_t tile)
{
    size_t left = pass->task->space->sizes.n_vocab - tile * TILE;
    return left < TILE ? left : TILE;
}

/* For all rows of the pass; picked by those that wait, from row `first` on. */
static void tile_of_all(struct pass *pass, size_t tile, size_t first)
{
    struct worker *worker = pass->worker;
    size_t n_cols = tile_columns(pass, tile), next;
    if (!pass->packed) {
        const float *hidden[BLOCK_ROWS];
        for (size_t i = 0; i < pass->n; i++) hidden[i] = worker->states[i].row->hidden;
        head_pack(pass->task, pass->n, hidden, worker->operand);
        pass->packed = true;
    }
    head_columns(pass->task, tile * TILE, n_cols, pass->n, worker->operand, worker->tile, TILE);
    for (size_t i = first; i > 0; i = next) {
        next = worker->behind[i - 1];
        row_pick(pass->task, &worker->states[i - 1], worker->tile + (i - 1) * TILE, n_cols,
                 tile * TILE);
        row_wait(worker, i - 1);
    }
}

static void tile_of_some(struct pass *pass, size_t tile, size_t first)
{
    struct worker *worker = pass->worker;
    size_t most = pass->task->space->sizes.gather_rows, n_cols = tile_columns(pass, tile), n;
    for (size_t i = first; i > 0;) {
        size_t members[GATHER_ROWS];
        const float *hidden[GATHER_ROWS];
        n = 0;
        do {
            members[n] = i - 1;
            hidden[n] = worker->states[i - 1].row->hidden;
            i = worker->behind[i - 1];
        } while (++n < most && i > 0);
        head_pack(pass->task, n, hidden, worker->gathered);
        head_columns(pass->task, tile * TILE, n_cols, n, worker->gathered, worker->tile, TILE);
        for (size_t r = 0; r < n; r++) {
            row_pick(pass->task, &worker->states[members[r]], worker->tile + r * TILE, n_cols,
                     tile * TILE);
            row_wait(worker, members[r]);
        }
    }
}

static void pass_tile(struct pass *pass, size_t tile)
{
    struct worker *worker = pass->worker;
    size_t first = worker->waiting[tile], n_waiting = 0;
    for (size_t i = first; i > 0; i = worker->behind[i - 1]) n_waiting++;
    worker->waiting[tile] = 0;
    bool in_block = pass->n <= pass->task->space->sizes.block_rows;
    if (in_block && 2 * n_waiting > pass->n)
        tile_of_all(pass, tile, first);
    else
        tile_of_some(pass, tile, first);
}

/* Starts a pass of at most n known rows, from row `at` on: rows of one flat list, whose tiles they
 * all want, fill a block; others are more, for there to be several at a tile. Returns the row after
 * the last. */
static size_t pass_begin(struct pass *pass, size_t at, size_t n)
{
    const struct task *task = pass->task;
    const struct sizes *sizes = &task->space->sizes;
    const struct plan *flat = NULL;
    for (pass->n = 0; pass->n < n; at++) {
        const struct head_row *row = &task->rows[at];
        const struct plan *plan = row->scores && !row->plan->per_row ? row->plan : NULL;
        if (!row_is_known(row)) continue;
        if (pass->n == 0) {
            size_t most = plan ? sizes->block_rows : sizes->pass_rows;
            n = n < most ? n : most;
            flat = plan;
        } else if (plan != flat) {
            break;
        }
        struct row_state *state = &pass->worker->states[pass->n];
        row_begin(row, state, 0);
        state->target_ahead = row_wants_target(row);
        row_wait(pass->worker, pass->n++);
    }
    pass->packed = false;
    return at;
}

void pick_rows(void *ctx, int thread, int n_threads)
{
    struct task *task = ctx;
    const struct sizes *sizes = &task->space->sizes;
    size_t begin, end;
    if (thread >= task->n_threads) return;
    struct worker *worker = &task->space->workers[thread];
    struct pass pass = {.task = task, .worker = worker};
    pool_share(task->n, thread, task->n_threads, &begin, &end);
    memset(worker->waiting, 0, sizes->n_tiles * sizeof *worker->waiting);
    for (size_t at = rows_skip(task, begin, true); begin < end; begin += pass.n) {
        at = pass_begin(&pass, at, end - begin);
        for (size_t tile = 0; tile < sizes->n_tiles; tile++)
            if (worker->waiting[tile]) pass_tile(&pass, tile);
        for (size_t i = 0; i < pass.n; i++)
            row_answer(task, &worker->states[i], *worker->states[i].row->lse);
    }
}
