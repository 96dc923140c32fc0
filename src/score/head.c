/*
 * head.c - one sweep over the vocabulary, for a block of rows (docs/NUMERICS.md, items 7 and 8).
 *
 *   columns  |- segment 0 ---------------|- segment 1 ...    a sweep of some rows and some
 *   rows     [panel][panel] ... [panel]  |[panel] ...        segments belongs to one thread
 *
 * Rows divided: a thread sweeps all segments of its rows and writes its top lists straight into the
 * answers. Segments divided: every thread sweeps all rows, keeps partial lists, and a second pass
 * merges. The surprising decision: the wanted logits wait in the cells of the answer (as f32,
 * exactly) until the log-sum-exp of the row is known, so a row needs no memory for them.
 */
#include "score/head.h"

#include <math.h>

#define BLOCK_ROWS 128     /* rows of one sweep: what a panel of weights is read for */
#define ROWS_PER_THREAD 32 /* from here on, rows are divided and not segments */
#define TOP_ENTRIES 32768  /* of partial top lists, per thread */

/* What a thread has gathered of one row in its segments. */
struct row_state {
    const struct wanted_id *wanted, *wanted_end; /* the next wanted id, and the end of the list */
    struct topk top;
    size_t n_before; /* tokens before the target so far */
    float target_logit;
    int32_t bad;
};

struct worker {
    float *operand;    /* of block_rows rows */
    float *tile;       /* [block_rows][PANEL] */
    float *top_logits; /* [top_entries] */
    int32_t *top_ids;
    struct lse_part *parts;   /* [block_rows][n_segments] */
    struct row_state *states; /* [block_rows] */
};

struct sizes {
    size_t n_vocab, dim, n_segments, block_rows, top_entries, n_bytes;
    int n_threads;
};

struct head_space {
    struct sizes sizes;
    struct worker workers[];
};

/* One call, as the threads see it. */
struct task {
    const struct kernels *kernels;
    const struct matrix *head;
    struct head_space *space;
    const struct head_row *rows;
    size_t n_rows;
    int32_t *bad;
    int n_threads; /* that take part */
    const float *logits; /* [n_rows][ld], where they are given */
    float *y;            /* [n_rows][ld], where they are wanted */
    size_t ld;
};

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
            .tile = take(base, &used, n * PANEL * sizeof(float)),
            .top_logits = take(base, &used, sizes->top_entries * sizeof(float)),
            .top_ids = take(base, &used, sizes->top_entries * sizeof(int32_t)),
            .parts = take(base, &used, n * sizes->n_segments * sizeof(struct lse_part)),
            .states = take(base, &used, n * sizeof(struct row_state)),
        };
        if (space) space->workers[t] = worker;
    }
    return used;
}

static struct sizes space_sizes(size_t n_vocab, size_t dim, size_t max_rows, size_t max_top,
                                int n_threads)
{
    size_t block_rows = max_rows < BLOCK_ROWS ? max_rows + !max_rows : BLOCK_ROWS;
    bool small = max_top > 0 && max_top < TOP_ENTRIES / block_rows;
    struct sizes sizes = {
        .n_vocab = n_vocab,
        .dim = dim,
        .n_segments = (n_vocab + SEGMENT - 1) / SEGMENT,
        .block_rows = block_rows,
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

/* Asked before any kernel meets NaN: adding one to an exponent of all ones sets the sign bit. */
static bool all_finite(const float *logits, size_t n)
{
    uint32_t any = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        any |= (bits & 0x7f800000u) + 0x00800000u;
    }
    return !(any & 0x80000000u);
}

/* The true token's logit: the same sum as its cell of the tile. */
static float row_target_logit(const struct task *task, const struct head_row *row, float *operand)
{
    const struct matrix *head = task->head;
    size_t id = (size_t)row->target, column = id % TILE;
    float logits[TILE];
    task->kernels->pack_rows[head->profile](1, &row->hidden, head->K, operand);
    const struct gemm gemm = {.dtype = head->dtype,
                              .panel = matrix_panel(head, id / PANEL),
                              .K = head->K,
                              .tile = id % PANEL / TILE,
                              .n_cols = column + 1,
                              .operand = operand,
                              .n_rows = 1,
                              .n_blocks = 1,
                              .y = logits,
                              .ldy = TILE};
    task->kernels->gemm[head->profile](&gemm);
    float logit = logits[column];
    if (head->bias) task->kernels->add(1, head->bias + id, &logit);
    if (row->plan->temperature != 1)
        task->kernels->divide(1, &logit, row->plan->temperature, &logit);
    return logit;
}

/* Where a row's candidates begin in the plan's arrays. */
static size_t first_cell(const struct head_row *row)
{
    return row->plan->per_row ? row->j * row->plan->n_candidates : 0;
}

static void row_begin(const struct head_row *row, struct row_state *state, size_t first_id)
{
    const struct plan *plan = row->plan;
    *state = (struct row_state){.bad = -1};
    if (row->scores) {
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
}

static bool wants_target(const struct head_row *row)
{
    return row->target >= 0 && (row->logprob || row->rank);
}

static void row_take(const struct task *task, const struct head_row *row, struct row_state *state,
                     struct lse_part *parts, float *logits, size_t n, size_t first_id)
{
    const struct kernels *kernels = task->kernels;
    float temperature = row->plan->temperature;
    if (state->bad >= 0) return;
    if (temperature != 1) kernels->divide(n, logits, temperature, logits);
    if (!all_finite(logits, n)) {
        size_t i = 0;
        while (isfinite(logits[i])) i++;
        state->bad = (int32_t)(first_id + i);
        return;
    }
    struct lse_part part = kernels->lse_panel(logits, n, row->entropy != NULL);
    struct lse_part *segment = &parts[first_id / SEGMENT];
    *segment = first_id % SEGMENT ? lse_combine(*segment, part) : part;
    for (; state->wanted < state->wanted_end; state->wanted++) {
        size_t i = (size_t)state->wanted->id - first_id;
        if (i >= n) break;
        row->scores[state->wanted->cell] = logits[i];
    }
    if (row->rank && row->target >= 0) {
        size_t target = (size_t)row->target;
        size_t n_lower = target < first_id ? 0 : target - first_id < n ? target - first_id : n;
        state->n_before += kernels->count_before(logits, n, state->target_logit, n_lower);
    }
    topk_panel(&state->top, logits, n, (int32_t)first_id, (float)part.m);
}

static void pack_rows(const struct task *task, struct worker *worker, const struct head_row *rows,
                      size_t n)
{
    const struct matrix *head = task->head;
    for (size_t block = 0; block < row_blocks(n); block++) {
        size_t begin = block_row(n, block), count = block_row(n, block + 1) - begin;
        const float *hidden[ROW_BLOCK];
        for (size_t r = 0; r < count; r++) hidden[r] = rows[begin + r].hidden;
        task->kernels->pack_rows[head->profile](count, hidden, head->K,
                                                worker->operand + begin * head->K);
    }
}

/* Rows [0, n) of `rows` over segments [first, last); parts and states stay in the worker. */
static void sweep(const struct task *task, struct worker *worker, const struct head_row *rows,
                  size_t n, size_t first, size_t last)
{
    const struct sizes *sizes = &task->space->sizes;
    const struct matrix *head = task->head;
    size_t n_segments = sizes->n_segments;
    size_t end = last * SEGMENT < sizes->n_vocab ? last * SEGMENT : sizes->n_vocab;
    struct gemm gemm = {.dtype = head->dtype,
                        .K = head->K,
                        .operand = worker->operand,
                        .n_rows = n,
                        .n_blocks = row_blocks(n),
                        .y = worker->tile,
                        .ldy = PANEL};
    for (size_t i = 0; i < n; i++)
        if (wants_target(&rows[i]))
            worker->states[i].target_logit = row_target_logit(task, &rows[i], worker->operand);
    pack_rows(task, worker, rows, n);
    for (size_t id = first * SEGMENT; id < end; id += PANEL) {
        size_t n_cols = end - id < PANEL ? end - id : PANEL;
        gemm.panel = matrix_panel(head, id / PANEL);
        gemm.n_cols = n_cols;
        task->kernels->gemm[head->profile](&gemm);
        for (size_t i = 0; i < n; i++) {
            float *logits = worker->tile + i * PANEL;
            if (head->bias) task->kernels->add(n_cols, head->bias + id, logits);
            row_take(task, &rows[i], &worker->states[i], worker->parts + i * n_segments, logits,
                     n_cols, id);
        }
    }
}

/* ---- from logits to answers ------------------------------------------------------------------ */

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

static void row_finish(const struct task *task, const struct head_row *row,
                       const struct row_state *state, const struct lse_part *parts,
                       struct topk *top)
{
    const struct plan *plan = row->plan;
    struct lse_part total = parts[0];
    for (size_t s = 1; s < task->space->sizes.n_segments; s++) total = lse_combine(total, parts[s]);
    struct row_lse lse = lse_finish(total);

    row_learn(row, lse);
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

/* ---- rows divided ---------------------------------------------------------------------------- */

static struct topk answer_list(const struct head_row *row)
{
    size_t k = row->top_ids ? row->plan->n_top : 0;
    return (struct topk){.logits = row->top_logprobs, .ids = row->top_ids, .k = k};
}

static void divide_rows(void *ctx, int thread, int n_threads)
{
    struct task *task = ctx;
    struct head_space *space = task->space;
    size_t begin, end, n;
    if (thread >= task->n_threads) return;
    struct worker *worker = &space->workers[thread];
    pool_share(task->n_rows, thread, task->n_threads, &begin, &end);
    for (; begin < end; begin += n) {
        n = end - begin < space->sizes.block_rows ? end - begin : space->sizes.block_rows;
        const struct head_row *rows = task->rows + begin;
        for (size_t i = 0; i < n; i++) {
            row_begin(&rows[i], &worker->states[i], 0);
            worker->states[i].top = answer_list(&rows[i]);
        }
        sweep(task, worker, rows, n, 0, space->sizes.n_segments);
        for (size_t i = 0; i < n; i++) {
            struct row_state *state = &worker->states[i];
            task->bad[begin + i] = state->bad;
            if (state->bad < 0)
                row_finish(task, &rows[i], state, worker->parts + i * space->sizes.n_segments,
                           &state->top);
        }
    }
}

/* ---- segments divided: at most block_rows rows, whose top lists fit one worker's entries ----- */

static void divide_segments(void *ctx, int thread, int n_threads)
{
    struct task *task = ctx;
    struct head_space *space = task->space;
    size_t first, last, used = 0;
    if (thread >= task->n_threads) return;
    struct worker *worker = &space->workers[thread];
    pool_share(space->sizes.n_segments, thread, task->n_threads, &first, &last);
    for (size_t i = 0; i < task->n_rows; i++) {
        size_t k = answer_list(&task->rows[i]).k;
        row_begin(&task->rows[i], &worker->states[i], first * SEGMENT);
        worker->states[i].top = (struct topk){
            .logits = worker->top_logits + used, .ids = worker->top_ids + used, .k = k};
        used += k;
    }
    sweep(task, worker, task->rows, task->n_rows, first, last);
}

/* Adds up what the threads found of row i, in the order of their segments. */
static void merge_row(const struct task *task, size_t i)
{
    struct head_space *space = task->space;
    size_t n_segments = space->sizes.n_segments, first, last;
    const struct head_row *row = &task->rows[i];
    struct row_state sum = space->workers[0].states[i];
    struct lse_part *parts = space->workers[0].parts + i * n_segments;
    sum.top = answer_list(row);
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
    task->bad[i] = sum.bad;
    if (sum.bad < 0) row_finish(task, row, &sum, parts, &sum.top);
}

static void merge_segments(void *ctx, int thread, int n_threads)
{
    struct task *task = ctx;
    size_t begin, end;
    pool_share(task->n_rows, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++) merge_row(task, i);
}

/* ---- logits in memory ------------------------------------------------------------------------ */

static void divide_panels(void *ctx, int thread, int n_threads)
{
    struct task *task = ctx;
    const struct matrix *head = task->head;
    size_t n_vocab = task->space->sizes.n_vocab, first, last;
    if (thread >= task->n_threads) return;
    struct worker *worker = &task->space->workers[thread];
    pool_share((n_vocab + PANEL - 1) / PANEL, thread, task->n_threads, &first, &last);
    pack_rows(task, worker, task->rows, task->n_rows);
    for (size_t panel = first; panel < last; panel++) {
        size_t id = panel * PANEL, n_cols = n_vocab - id < PANEL ? n_vocab - id : PANEL;
        const struct gemm gemm = {.dtype = head->dtype,
                                  .panel = matrix_panel(head, panel),
                                  .K = head->K,
                                  .n_cols = n_cols,
                                  .operand = worker->operand,
                                  .n_rows = task->n_rows,
                                  .n_blocks = row_blocks(task->n_rows),
                                  .y = task->y + id,
                                  .ldy = task->ld};
        task->kernels->gemm[head->profile](&gemm);
        for (size_t i = 0; i < task->n_rows && head->bias; i++)
            task->kernels->add(n_cols, head->bias + id, task->y + i * task->ld + id);
    }
}

void head_logits(struct pool *pool, const struct kernels *kernels, const struct matrix *head,
                 struct head_space *space, const struct head_row *rows, size_t n_rows,
                 float *logits, size_t ld)
{
    struct task task = {.kernels = kernels,
                        .head = head,
                        .space = space,
                        .n_threads = task_threads(pool, space),
                        .ld = ld};
    size_t most = space->sizes.block_rows;
    for (size_t begin = 0; begin < n_rows; begin += task.n_rows) {
        task.n_rows = n_rows - begin < most ? n_rows - begin : most;
        task.rows = rows + begin;
        task.y = logits + begin * ld;
        pool_run(pool, divide_panels, &task);
    }
}

/* Row i, its logits taken panel by panel as the sweep would. */
static void take_logits(const struct task *task, struct worker *worker, size_t i)
{
    const struct head_row *row = &task->rows[i];
    const float *logits = task->logits + i * task->ld;
    size_t n_vocab = task->space->sizes.n_vocab;
    struct row_state *state = worker->states;
    row_begin(row, state, 0);
    state->top = answer_list(row);
    if (wants_target(row))
        task->kernels->divide(1, logits + row->target, row->plan->temperature,
                              &state->target_logit);
    for (size_t id = 0; id < n_vocab; id += PANEL) {
        size_t n = n_vocab - id < PANEL ? n_vocab - id : PANEL;
        memcpy(worker->tile, logits + id, n * sizeof *logits);
        row_take(task, row, state, worker->parts, worker->tile, n, id);
    }
    task->bad[i] = state->bad;
    if (state->bad < 0) row_finish(task, row, state, worker->parts, &state->top);
}

static void divide_given(void *ctx, int thread, int n_threads)
{
    struct task *task = ctx;
    size_t begin, end;
    if (thread >= task->n_threads) return;
    pool_share(task->n_rows, thread, task->n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++)
        take_logits(task, &task->space->workers[thread], i);
}

void head_answer_logits(struct pool *pool, const struct kernels *kernels, struct head_space *space,
                        const struct head_row *rows, size_t n_rows, const float *logits, size_t ld,
                        int32_t *bad)
{
    struct task task = {.kernels = kernels,
                        .space = space,
                        .rows = rows,
                        .n_rows = n_rows,
                        .bad = bad,
                        .n_threads = task_threads(pool, space),
                        .logits = logits,
                        .ld = ld};
    pool_run(pool, divide_given, &task);
}

/* ---- the call -------------------------------------------------------------------------------- */

void head_answer(struct pool *pool, const struct kernels *kernels, const struct matrix *head,
                 struct head_space *space, const struct head_row *rows, size_t n_rows, int32_t *bad)
{
    int n_threads = task_threads(pool, space);
    struct task task = {.kernels = kernels, .head = head, .space = space, .n_threads = n_threads};
    size_t n, longest = 0;
    for (size_t i = 0; i < n_rows; i++) {
        size_t k = answer_list(&rows[i]).k;
        longest = k > longest ? k : longest;
    }
    bool by_rows = n_threads == 1 || n_rows >= (size_t)n_threads * ROWS_PER_THREAD ||
                   longest > space->sizes.top_entries;
    for (size_t begin = 0; begin < n_rows; begin += n) {
        size_t used = 0;
        for (n = 0; begin + n < n_rows && (by_rows || n < space->sizes.block_rows); n++) {
            used += answer_list(&rows[begin + n]).k;
            if (!by_rows && used > space->sizes.top_entries) break;
        }
        task.rows = rows + begin;
        task.n_rows = n;
        task.bad = bad + begin;
        if (by_rows) {
            pool_run(pool, divide_rows, &task);
        } else {
            pool_run(pool, divide_segments, &task);
            pool_run(pool, merge_segments, &task);
        }
    }
}
