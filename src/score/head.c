/*
 * head.c - one sweep over the vocabulary, for a block of rows (docs/NUMERICS.md, items 7 and 8).
 *
 *   columns  |- segment 0 ---------------|- segment 1 ...    a sweep of some rows and some
 *   rows     [panel][panel] ... [panel]  |[panel] ...        segments belongs to one thread
 *
 * Rows divided: a thread sweeps all segments of its rows and writes its top lists straight into the
 * answers. Segments divided: every thread sweeps all rows, keeps partial lists, and a second pass
 * merges. Surprising: the rows of a call that are swept need not lie side by side; those that are
 * known go first, to pick.c, and are skipped from then on.
 */
#include "score/head_work.h"

#define ROWS_PER_THREAD 32 /* from here on, rows are divided and not segments */
#define TOP_ENTRIES 32768  /* of partial top lists, per thread */

static int task_threads(const struct pool *pool, const struct head_space *space)
{
    int n_threads = pool_n_threads(pool);
    return n_threads < space->sizes.n_threads ? n_threads : space->sizes.n_threads;
}

/* ---- work space ------------------------------------------------------------------------------ */

/* Takes n_bytes, in cache lines, off a block of memory; only counts while base is NULL.  */
static void *take(char *base, size_t *used, size_t n_bytes)
{
    void *place = base ? base + *used : NULL;
    *used += (n_bytes + 63) & ~(size_t)63;
    return place;
}

/* Places the workers' arrays behind the struct; with NULL only adds up. Returns all bytes.  */
static size_t space_layout(struct head_space *space, const struct sizes *sizes)
{
    size_t n = sizes->block_rows, used = 0;
    char *base = (char *)space;
    take(base, &used, sizeof *space + (size_t)sizes->n_threads * sizeof space->workers[0]);
    for (int t = 0; t < sizes->n_threads; t++) {
        struct worker worker = {
            .operand = take(base, &used, n * sizes->dim * sizeof(float)),
            .gathered = take(base, &used, sizes->gather_rows * sizes->dim * sizeof(float)),
            .tile = take(base, &used, n * PANEL * sizeof(float)),
            .top_logits = take(base, &used, sizes->top_entries * sizeof(float)),
            .top_ids = take(base, &used, sizes->top_entries * sizeof(int32_t)),
            .parts = take(base, &used, n * sizes->n_segments * sizeof(struct lse_part)),
            .states = take(base, &used, sizes->pass_rows * sizeof(struct row_state)),
            .waiting = take(base, &used, sizes->n_tiles * sizeof(uint16_t)),
            .behind = take(base, &used, sizes->pass_rows * sizeof(uint16_t)),
        };
        if (space) space->workers[t] = worker;
    }
    return used;
}

static struct sizes space_sizes(size_t n_vocab, size_t dim, size_t max_rows, size_t max_top,
                                int n_threads)
{
    size_t rows = max_rows + !max_rows, block_rows = rows < BLOCK_ROWS ? rows : BLOCK_ROWS;
    bool small = max_top > 0 && max_top < TOP_ENTRIES / block_rows;
    struct sizes sizes = {
        .n_vocab = n_vocab,
        .dim = dim,
        .n_segments = (n_vocab + SEGMENT - 1) / SEGMENT,
        .n_tiles = (n_vocab + TILE - 1) / TILE,
        .block_rows = block_rows,
        .gather_rows = rows < GATHER_ROWS ? rows : GATHER_ROWS,
        .pass_rows = rows < BLOCK_ROWS ? rows : PASS_ROWS,
        .top_entries = small ? max_top * block_rows : TOP_ENTRIES,
        .n_threads = n_threads,
    };
    sizes.n_bytes = space_layout(NULL, &sizes);
    return sizes;
}

size_t head_space_bytes(size_t n_vocab, size_t dim, size_t max_rows, size_t max_top, int n_threads)
{
    return space_sizes(n_vocab, dim, max_rows, max_top, n_threads).n_bytes;
}

np_status head_space_open(size_t n_vocab, size_t dim, size_t max_rows, size_t max_top,
                          int n_threads, struct head_space **out, np_error *err)
{
    struct sizes sizes = space_sizes(n_vocab, dim, max_rows, max_top, n_threads);
    struct head_space *space = big_alloc(sizes.n_bytes);
    *out = space;
    if (!space) return error_nomem(err, "work space of the head", sizes.n_bytes);
    space->sizes = sizes;
    space_layout(space, &sizes);
    return NP_OK;
}

void head_space_close(struct head_space *space)
{
    if (space) big_free(space, space->sizes.n_bytes);
}

/* ---- the sweep ------------------------------------------------------------------------------- */

void head_pack(const struct task *task, size_t n_rows, const float *const *hidden, float *operand)
{
    const struct matrix *head = task->head;
    for (size_t block = 0; block < row_blocks(n_rows); block++) {
        size_t begin = block_row(n_rows, block), n = block_row(n_rows, block + 1) - begin;
        task->kernels->pack_rows[head->profile](n, hidden + begin, head->K,
                                                operand + begin * head->K);
    }
}

void head_columns(const struct task *task, size_t id, size_t n_cols, size_t n_rows,
                  const float *operand, float *y, size_t ldy)
{
    const struct matrix *head = task->head;
    const struct gemm gemm = {.dtype = head->dtype,
                              .panel = matrix_panel(head, id / PANEL),
                              .K = head->K,
                              .tile = id % PANEL / TILE,
                              .n_cols = n_cols,
                              .operand = operand,
                              .n_rows = n_rows,
                              .n_blocks = row_blocks(n_rows),
                              .y = y,
                              .ldy = ldy};
    task->kernels->gemm[head->profile](&gemm);
    for (size_t r = 0; r < n_rows && head->bias; r++)
        task->kernels->add(n_cols, head->bias + id, y + r * ldy);
}

/* The true token's logit: the same sum as its cell of the tile. */
static float target_logit(const struct task *task, const struct head_row *row, float *operand)
{
    size_t id = (size_t)row->target, column = id % TILE;
    float logits[TILE], temperature = row->plan->temperature;
    head_pack(task, 1, &row->hidden, operand);
    head_columns(task, id - column, column + 1, 1, operand, logits, TILE);
    if (temperature != 1) task->kernels->divide(1, logits + column, temperature, logits + column);
    return logits[column];
}

/* Begins the next n rows that are swept, from row `at` on; returns the row after them. */
static size_t block_begin(const struct task *task, struct worker *worker, size_t at, size_t n,
                          size_t first_id)
{
    for (size_t i = 0; i < n; at++)
        if (!row_is_known(&task->rows[at]))
            row_begin(&task->rows[at], &worker->states[i++], first_id);
    return at;
}

/* The n rows that have begun, over segments [first, last); parts and states stay in the worker. */
static void sweep(const struct task *task, struct worker *worker, size_t n, size_t first,
                  size_t last)
{
    const struct sizes *sizes = &task->space->sizes;
    const float *hidden[BLOCK_ROWS];
    size_t end = last * SEGMENT < sizes->n_vocab ? last * SEGMENT : sizes->n_vocab;
    for (size_t i = 0; i < n; i++) {
        struct row_state *state = &worker->states[i];
        hidden[i] = state->row->hidden;
        if (row_wants_target(state->row))
            state->target_logit = target_logit(task, state->row, worker->operand);
    }
    head_pack(task, n, hidden, worker->operand);
    for (size_t id = first * SEGMENT; id < end; id += PANEL) {
        size_t n_cols = end - id < PANEL ? end - id : PANEL;
        head_columns(task, id, n_cols, n, worker->operand, worker->tile, PANEL);
        for (size_t i = 0; i < n; i++)
            row_take(task, &worker->states[i], worker->parts + i * sizes->n_segments,
                     worker->tile + i * PANEL, n_cols, id);
    }
}

/* ---- rows divided ---------------------------------------------------------------------------- */

static void divide_rows(void *ctx, int thread, int n_threads)
{
    struct task *task = ctx;
    const struct sizes *sizes = &task->space->sizes;
    size_t begin, end, n;
    if (thread >= task->n_threads) return;
    struct worker *worker = &task->space->workers[thread];
    pool_share(task->n, thread, task->n_threads, &begin, &end);
    for (size_t at = rows_skip(task, begin, false); begin < end; begin += n) {
        n = end - begin < sizes->block_rows ? end - begin : sizes->block_rows;
        at = block_begin(task, worker, at, n, 0);
        for (size_t i = 0; i < n; i++) worker->states[i].top = row_top(worker->states[i].row);
        sweep(task, worker, n, 0, sizes->n_segments);
        for (size_t i = 0; i < n; i++)
            row_finish(task, &worker->states[i], worker->parts + i * sizes->n_segments);
    }
}

/* ---- segments divided: at most block_rows rows, whose top lists fit one worker's entries ----- */

static void divide_segments(void *ctx, int thread, int n_threads)
{
    struct task *task = ctx;
    size_t first, last, used = 0;
    if (thread >= task->n_threads) return;
    struct worker *worker = &task->space->workers[thread];
    pool_share(task->space->sizes.n_segments, thread, task->n_threads, &first, &last);
    block_begin(task, worker, task->begin, task->n, first * SEGMENT);
    for (size_t i = 0; i < task->n; i++) {
        size_t k = row_top(worker->states[i].row).k;
        worker->states[i].top = (struct topk){
            .logits = worker->top_logits + used, .ids = worker->top_ids + used, .k = k};
        used += k;
    }
    sweep(task, worker, task->n, first, last);
}

/* Adds up what the threads found of row i, in the order of their segments. */
static void merge_row(const struct task *task, size_t i)
{
    struct head_space *space = task->space;
    size_t n_segments = space->sizes.n_segments, first, last;
    struct row_state sum = space->workers[0].states[i];
    struct lse_part *parts = space->workers[0].parts + i * n_segments;
    sum.top = row_top(sum.row);
    sum.n_before = 0;
    for (int t = 0; t < task->n_threads; t++) {
        const struct row_state *state = &space->workers[t].states[i];
        if (sum.bad < 0) sum.bad = state->bad;
        sum.n_before += state->n_before;
        for (size_t e = 0; e < state->top.n; e++)
            topk_push(&sum.top, state->top.logits[e], state->top.ids[e]);
        pool_share(n_segments, t, task->n_threads, &first, &last);
        for (size_t s = first; s < last; s++)
            parts[s] = space->workers[t].parts[i * n_segments + s];
    }
    row_finish(task, &sum, parts);
}

static void merge_segments(void *ctx, int thread, int n_threads)
{
    struct task *task = ctx;
    size_t begin, end;
    pool_share(task->n, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++) merge_row(task, i);
}

/* ---- logits in memory ------------------------------------------------------------------------ */

static void divide_panels(void *ctx, int thread, int n_threads)
{
    struct task *task = ctx;
    size_t n_vocab = task->space->sizes.n_vocab, first, last;
    const float *hidden[BLOCK_ROWS];
    if (thread >= task->n_threads) return;
    struct worker *worker = &task->space->workers[thread];
    pool_share((n_vocab + PANEL - 1) / PANEL, thread, task->n_threads, &first, &last);
    for (size_t i = 0; i < task->n; i++) hidden[i] = task->rows[task->begin + i].hidden;
    head_pack(task, task->n, hidden, worker->operand);
    for (size_t panel = first; panel < last; panel++) {
        size_t id = panel * PANEL, n_cols = n_vocab - id < PANEL ? n_vocab - id : PANEL;
        head_columns(task, id, n_cols, task->n, worker->operand, task->wanted + id, task->ld);
    }
}

void head_logits(struct pool *pool, const struct kernels *kernels, const struct matrix *head,
                 struct head_space *space, const struct head_row *rows, size_t n_rows,
                 float *logits, size_t ld)
{
    struct task task = {.kernels = kernels,
                        .head = head,
                        .space = space,
                        .rows = rows,
                        .n_threads = task_threads(pool, space),
                        .ld = ld};
    size_t most = space->sizes.block_rows;
    for (; task.begin < n_rows; task.begin += task.n) {
        task.n = n_rows - task.begin < most ? n_rows - task.begin : most;
        task.wanted = logits + task.begin * ld;
        pool_run(pool, divide_panels, &task);
    }
}

/* Row i, its logits taken panel by panel as the sweep would. */
static void take_logits(const struct task *task, struct worker *worker, size_t i)
{
    const struct head_row *row = &task->rows[i];
    const float *logits = task->given + i * task->ld;
    size_t n_vocab = task->space->sizes.n_vocab;
    struct row_state *state = worker->states;
    row_begin(row, state, 0);
    state->top = row_top(row);
    if (row_wants_target(row))
        task->kernels->divide(1, logits + row->target, row->plan->temperature,
                              &state->target_logit);
    for (size_t id = 0; id < n_vocab; id += PANEL) {
        size_t n = n_vocab - id < PANEL ? n_vocab - id : PANEL;
        memcpy(worker->tile, logits + id, n * sizeof *logits);
        row_take(task, state, worker->parts, worker->tile, n, id);
    }
    row_finish(task, state, worker->parts);
}

static void divide_given(void *ctx, int thread, int n_threads)
{
    struct task *task = ctx;
    size_t begin, end;
    if (thread >= task->n_threads) return;
    pool_share(task->n, thread, task->n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++) take_logits(task, &task->space->workers[thread], i);
}

void head_answer_logits(struct pool *pool, const struct kernels *kernels, struct head_space *space,
                        const struct head_row *rows, size_t n_rows, const float *logits, size_t ld,
                        int32_t *bad)
{
    struct task task = {.kernels = kernels,
                        .space = space,
                        .rows = rows,
                        .bad = bad,
                        .n = n_rows,
                        .n_threads = task_threads(pool, space),
                        .given = logits,
                        .ld = ld};
    pool_run(pool, divide_given, &task);
}

/* ---- the call -------------------------------------------------------------------------------- */

/* How many of n rows, from task->begin on, are swept together. */
static size_t group_rows(const struct task *task, size_t n)
{
    const struct sizes *sizes = &task->space->sizes;
    size_t most = n < sizes->block_rows ? n : sizes->block_rows, used = 0;
    n = 0;
    for (size_t at = task->begin; n < most; at++) {
        if (row_is_known(&task->rows[at])) continue;
        used += row_top(&task->rows[at]).k;
        if (used > sizes->top_entries) break;
        n++;
    }
    return n;
}

void head_answer(struct pool *pool, const struct kernels *kernels, const struct matrix *head,
                 struct head_space *space, const struct head_row *rows, size_t n_rows, int32_t *bad)
{
    struct task task = {.kernels = kernels,
                        .head = head,
                        .space = space,
                        .rows = rows,
                        .bad = bad,
                        .n_threads = task_threads(pool, space)};
    size_t n_swept = 0, longest = 0;
    for (size_t i = 0; i < n_rows; i++) {
        size_t k = row_top(&rows[i]).k;
        longest = k > longest ? k : longest;
        n_swept += !row_is_known(&rows[i]);
    }
    task.n = n_rows - n_swept;
    if (task.n > 0) pool_run(pool, pick_rows, &task);
    if (task.n_threads == 1 || n_swept >= (size_t)task.n_threads * ROWS_PER_THREAD ||
        longest > space->sizes.top_entries) {
        task.n = n_swept;
        if (n_swept > 0) pool_run(pool, divide_rows, &task);
        return;
    }
    for (; n_swept > 0; n_swept -= task.n) {
        task.n = group_rows(&task, n_swept);
        pool_run(pool, divide_segments, &task);
        pool_run(pool, merge_segments, &task);
        task.begin = rows_skip(&task, task.n, false);
    }
}
