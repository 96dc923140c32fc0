/*
 * schedule.c - what goes into a step: rows are dealt to callers, jobs find or plan their pages.
 *
 * A job's place is `at`: its tokens before it are in the nodes of its path, computed or planned in
 * this step. It first walks the tree as far as that knows its tokens, whoever put them there; what
 * is left it plans itself, page by page, and at once others can find it. Where a sequence leaves
 * another inside a page, it has a page of its own that takes over the columns before: now, those
 * that are done; those that this step computes, layer by layer as they come.
 */
#include "engine/state.h"

#include "base/arena.h"

/* ---- a job's path ---------------------------------------------------------------------------- */

static void path_set(struct job *job, size_t page, struct node *node)
{
    job->path[page] = node;
    job->pages[page] = node->page;
    if (job->n_path == page) job->n_path++;
}

void schedule_release(struct engine *engine, struct job *job)
{
    while (job->n_path > 0) tree_unpin(&engine->tree, job->path[--job->n_path]);
    job->at = job->n_sound = 0;
    job->n_asked = job->n_answered;
}

/* Makes a path that is empty. */
static bool job_begin(struct engine *engine, struct job *job)
{
    size_t n = kv_pages(job_most(job));
    const char *salt = job->skip_cache ? NULL : job->salt ? job->salt : "";
    job->path = mem_alloc(2 * n, sizeof *job->path);
    if (!job->path || !(job->root = tree_root(&engine->tree, salt, job->n_salt_bytes))) {
        error_nomem(&job->error, "pages of a job", 2 * n * sizeof *job->path);
        return false;
    }
    job->pages = (float **)(void *)(job->path + n);
    job->n_asked = job->n_answered;
    return true;
}

/* Whether a comes before b when there is not enough for both. */
static bool comes_before(const struct job *a, const struct job *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->number < b->number;
}

/* The last of the jobs behind `job` whose pages this step does not need gives them up. */
static bool preempt_for(struct engine *engine, const struct job *job)
{
    struct job *victim = NULL;
    for (struct caller *caller = engine->callers; caller; caller = caller->next)
        for (struct job *other = caller->first; other; other = other->next) {
            if (other == job || other->busy || other->n_path == 0) continue;
            if (comes_before(other, job) || (victim && comes_before(other, victim))) continue;
            victim = other;
        }
    if (!victim) return false;
    schedule_release(engine, victim);
    engine->n_preempted++;
    return true;
}

/* The step needs pages of this job: nobody else gets them. */
static void join_step(struct engine *engine, struct job *job)
{
    if (job->busy) return;
    job->busy = true;
    engine->members[engine->n_members++] = job;
}

/* Tokens of `from` that this step computes, for a page beside it. */
static void copy_in_step(struct engine *engine, struct node *from, struct node *to, size_t n_shared)
{
    size_t i = engine->step.n_copies++;
    engine->copies[i] = (struct page_copy){from->page, to->page, to->n_done, n_shared};
    engine->copy_nodes[2 * i] = from;
    engine->copy_nodes[2 * i + 1] = to;
}

/* A node of the next n tokens, for which later jobs may have to give way; NULL: none can be had. */
static struct node *node_for(struct engine *engine, struct job *job, size_t page, size_t n,
                             struct node *from, size_t n_shared)
{
    struct node *parent = page ? job->path[page - 1] : job->root, *node = NULL;
    np_error err = {0};
    np_status status;
    do {
        status = tree_add(&engine->tree, parent, job->plan->token_ids + page * PANEL, n, from,
                          n_shared, &node, &err);
    } while (status == NP_ELIMIT && preempt_for(engine, job));
    if (status == NP_ELIMIT)
        engine->no_page = true;
    else if (status != NP_OK)
        job->error = err;
    return status == NP_OK ? node : NULL;
}

/* A new node behind the path, or beside its last one with that one's first n_shared tokens. A job
 * whose turn will come waits (false); for want of memory it fails. */
static bool path_add(struct engine *engine, struct job *job, size_t page, size_t n,
                     struct node *from, size_t n_shared)
{
    if (from) tree_pin(&engine->tree, from); /* it may be a page of who gives way */
    struct node *node = node_for(engine, job, page, n, from, n_shared);
    if (node) {
        if (job->n_path > page) tree_unpin(&engine->tree, job->path[page]);
        path_set(job, page, node);
        if (n_shared > node->n_done) {
            copy_in_step(engine, from, node, n_shared);
            join_step(engine, job);
        }
    }
    if (from) tree_unpin(&engine->tree, from);
    return node != NULL;
}

static void path_share(struct engine *engine, struct job *job, size_t page, struct node *node)
{
    tree_pin(&engine->tree, node);
    if (job->n_path > page) tree_unpin(&engine->tree, job->path[page]);
    path_set(job, page, node);
}

/* Of tokens that this step computes, up to `at`: the rows that the plan will ask for, at once or,
 * where the head has no room for them, later. */
static void want_rows(struct job *job)
{
    const struct plan *plan = job->plan;
    size_t page = (job->at - 1) / PANEL, row = page * PANEL + job->path[page]->n_done;
    size_t end = plan->start + plan->n_rows < job->at ? plan->start + plan->n_rows : job->at;
    for (row = row > plan->start ? row : plan->start; row < end; row++)
        job->path[page]->wanted |= (uint64_t)1 << row % PANEL;
}

/* The node that knows most of the tokens of the page at `at`, and how many; NULL where nobody is
 * further than the job. If someone has gone on from where it stands to elsewhere, that is its own.
 * */
static struct node *next_node(const struct job *job, size_t most, size_t *match)
{
    size_t page = job->at / PANEL, own = job->at % PANEL;
    struct node *mine = job->n_path > page ? job->path[page] : NULL;
    struct node *node = tree_match(page ? job->path[page - 1] : job->root,
                                   job->plan->token_ids + page * PANEL, most, match);
    if (!mine || *match > own) return node;
    *match = own;
    return mine->n > own ? mine : NULL;
}

/* One page further along tokens that are known; false where there is nothing to share, or not yet
 * (*wait). Without *wait, the job's own tokens may follow at `at`. */
static bool walk_page(struct engine *engine, struct job *job, bool *wait)
{
    size_t page = job->at / PANEL, left = job_length(job) - page * PANEL, match;
    size_t most = left < PANEL ? left : PANEL;
    struct node *mine = job->n_path > page ? job->path[page] : NULL;
    struct node *node = next_node(job, most, &match);
    if (!node) return false;
    bool whole = match == most || match == node->n;
    if (!whole || node != mine) {
        /* The step may need the page that it has, and has room for so many copies. */
        *wait = (mine && job->busy) || engine->step.n_copies == engine->chunk_rows;
        if (!*wait && whole) path_share(engine, job, page, node);
        if (!*wait && !whole) *wait = !path_add(engine, job, page, match, node, match);
        if (*wait) return false;
    }
    job->at = page * PANEL + match;
    want_rows(job);
    return true;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static size_t step_room(const struct engine *engine)
{
    return engine->chunk_rows - engine->step.n_rows;
}

/* Rows [first, first + n) of a job, behind its run `last` if that ends there. The cost of a row is
 * that of its matrices, `deep`, and of the keys that it attends to: steps of texts that are far on
 * have fewer rows, or whoever comes then would wait for several times as long. */
static size_t add_rows(struct engine *engine, struct job *job, size_t last, size_t first, size_t n)
{
    struct run *run = last == SIZE_MAX ? NULL : &engine->runs[last];
    if (!run || run->first + run->n_rows != first) {
        last = engine->step.n_runs++;
        run = &engine->runs[last];
        *run = (struct run){.pages = job->pages, .first = first};
        engine->run_jobs[last] = job;
    }
    run->n_rows += n;
    join_step(engine, job);
    engine->step.n_rows += n;
    engine->step_cost += n * (engine->deep + first);
    job->n_computed += n;
    return last;
}

/* Tokens of the page at `at` that nobody has; returns how many were planned. */
static size_t plan_page(struct engine *engine, struct job *job)
{
    size_t page = job->at / PANEL, own = job->at % PANEL, n = PANEL - own;
    size_t left = job_length(job) - job->at, room = step_room(engine);
    n = n < left ? n : left;
    n = n < room ? n : room;
    if (n == 0) return 0;
    if (own > 0)
        tree_extend(job->path[page], job->plan->token_ids + job->at, n);
    else if (!path_add(engine, job, page, n, NULL, 0))
        return 0;
    job->run = add_rows(engine, job, job->run, job->at, n);
    job->at += n;
    want_rows(job);
    return n;
}

/* Asks for up to a page of the hidden rows that the plan wants of tokens before `at`. One whose
 * last layer was skipped when its token was computed passes the model again, alone. Returns what
 * that takes: rows of the model and rows of the head. */
static size_t ask_rows(struct engine *engine, struct job *job)
{
    const struct plan *plan = job->plan;
    size_t n = 0, run = SIZE_MAX, end = job->n_asked + PANEL;
    if (end > plan->n_rows) end = plan->n_rows;
    for (; job->n_asked < end && engine->n_asked < engine->chunk_rows; job->n_asked++) {
        size_t row = plan->start + job->n_asked;
        if (row >= job->at) break;
        struct node *node = job->path[row / PANEL];
        uint64_t bit = (uint64_t)1 << row % PANEL;
        if (!((node->hidden | node->wanted) & bit)) {
            if (row % PANEL < node->n_done) {
                if (step_room(engine) == 0) break;
                run = add_rows(engine, job, run, row, 1);
                n++;
            }
            node->wanted |= bit;
        }
        join_step(engine, job);
        engine->n_asked++;
        n++;
    }
    return n;
}

/* Asks for the last row of a sequence that grows. */
static size_t ask_draw(struct engine *engine, struct job *job)
{
    size_t row = job->at - 1, n = 0;
    struct node *node = job->path[row / PANEL];
    uint64_t bit = (uint64_t)1 << row % PANEL;
    if (job->generation->finish || job->generation->draws) return 0;
    if (!((node->hidden | node->wanted) & bit)) {
        if (row % PANEL < node->n_done) {
            if (step_room(engine) == 0) return 0;
            add_rows(engine, job, SIZE_MAX, row, 1);
            n = 1;
        }
        node->wanted |= bit;
    }
    job->generation->draws = true;
    join_step(engine, job);
    return n;
}

/* Lets a job plan up to a page of rows; 0: it can do no more in this step. */
static size_t plan_job(struct engine *engine, struct job *job)
{
    bool wait = false;
    size_t n = 0, length = job_length(job);
    if (job->seen != engine->n_plans) job->run = SIZE_MAX;
    job->seen = engine->n_plans;
    if (!job->root && !job_begin(engine, job)) goto failed;
    while (job->at < length && walk_page(engine, job, &wait)) continue;
    if (job->at < length && !wait) n = plan_page(engine, job);
    if (job->error.status != NP_OK) goto failed;
    n += ask_rows(engine, job);
    if (job->generation && job->at == length) n += ask_draw(engine, job);
    return n;
failed:
    join_step(engine, job);
    return n;
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Whose turn it is: the lowest priority number, then whoever had least. Once there is no page,
 * those whose job has not begun are passed over: there are enough that have. */
static struct caller *next_caller(const struct engine *engine)
{
    struct caller *best = NULL;
    for (struct caller *caller = engine->callers; caller; caller = caller->next) {
        if (!caller->at || (engine->no_page && caller->at->n_path == 0)) continue;
        if (best && caller->at->priority > best->at->priority) continue;
        if (best && caller->at->priority == best->at->priority && caller->served >= best->served)
            continue;
        best = caller;
    }
    return best;
}

/* Tokens [begin, end) of a page. */
static uint64_t bits_between(size_t begin, size_t end)
{
    return (end >= PANEL ? ~(uint64_t)0 : ((uint64_t)1 << end) - 1) & ~(((uint64_t)1 << begin) - 1);
}

/* Gives every run its rows, and the model what it needs of them. What is wanted of a copy is wanted
 * of what it copies, which may be a copy itself: so from the last to the first. */
static void lay_out(struct engine *engine)
{
    size_t row = 0;
    for (size_t i = engine->step.n_copies; i-- > 0;) {
        const struct page_copy *copy = &engine->copies[i];
        engine->copy_nodes[2 * i]->wanted |=
            engine->copy_nodes[2 * i + 1]->wanted & bits_between(copy->begin, copy->end);
    }
    for (size_t i = 0; i < engine->step.n_runs; i++) {
        struct run *run = &engine->runs[i];
        const struct job *job = engine->run_jobs[i];
        run->row = row;
        for (size_t r = 0; r < run->n_rows; r++, row++) {
            size_t position = run->first + r;
            engine->ids[row] = job->plan->token_ids[position];
            engine->wanted[row] =
                job->path[position / PANEL]->wanted >> position % PANEL & (uint64_t)1;
        }
    }
}

void schedule_step(struct engine *engine)
{
    engine->step = (struct step){.ids = engine->ids,
                                 .wanted = engine->wanted,
                                 .runs = engine->runs,
                                 .copies = engine->copies};
    engine->n_members = engine->n_asked = engine->step_cost = 0;
    engine->no_page = false;
    engine->n_plans++;
    for (struct caller *caller = engine->callers; caller; caller = caller->next)
        caller->at = caller->first;
    while (engine->n_members < engine->chunk_rows && engine->n_asked < engine->chunk_rows &&
           step_room(engine) > 0 && engine->step_cost < engine->max_cost) {
        struct caller *caller = next_caller(engine);
        if (!caller) break;
        size_t n = plan_job(engine, caller->at);
        caller->served += n;
        if (n == 0) caller->at = caller->at->next;
    }
    lay_out(engine);
}
