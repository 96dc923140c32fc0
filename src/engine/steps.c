/*
 * steps.c - a step through the model and the head, answers into the jobs.
 *
 * A row whose log-sum-exp the tree knows costs only the columns that are asked of it
 * (score/head.h).
 */
#include "engine/state.h"

/* The row's log-sum-exp: it is written by one row of a call, or read by some. */
static void lend_lse(struct node *node, size_t column, bool entropy, struct head_row *out)
{
    uint64_t bit = (uint64_t)1 << column;
    bool known_entropy = (node->known_entropy & bit) != 0;
    bool known = (node->known & bit) && (!entropy || known_entropy);
    if ((known ? node->lent : node->lent | node->read) & bit) return;
    *(known ? &node->read : &node->lent) |= bit;
    out->lse = &node->lse[column];
    out->known = known;
    out->known_entropy = known && known_entropy;
}

static struct head_row head_row_of(const struct engine *engine, const struct job *job, size_t j)
{
    const struct plan *plan = job->plan;
    size_t row = plan->start + j, column = row % PANEL;
    struct node *node = job->path[row / PANEL];
    struct head_row out = {.plan = plan, .j = j, .target = -1};
    out.hidden = kv_hidden(&engine->model->kv, node->page, column);
    if (plan->temperature == 1) lend_lse(node, column, job->entropies != NULL, &out);
    if (j < plan->n_scored) {
        if (job->logprobs) out.logprob = job->logprobs + j;
        if (job->ranks) out.rank = job->ranks + j;
        if (job->logprobs || job->ranks) out.target = plan->token_ids[row + 1];
    }
    if (job->entropies) out.entropy = job->entropies + j;
    if (job->mass) out.mass = job->mass + j;
    if (job->tail) out.tail = job->tail + j;
    if (job->top_ids) out.top_ids = job->top_ids + j * plan->n_top;
    if (job->top_logprobs) out.top_logprobs = job->top_logprobs + j * plan->n_top;
    if (job->scores) out.scores = job->scores + j * plan->n_candidates;
    return out;
}

void job_fail(struct job *job, np_status status, const char *where, const char *message)
{
    if (job->error.status == NP_OK) error_set(&job->error, status, where, NO_OFFSET, "%s", message);
}

static void fail_at(struct job *job, np_status status, size_t position, const char *message)
{
    char where[48];
    if (job->error.status != NP_OK) return;
    snprintf(where, sizeof where, "token_ids[%zu]", position);
    job_fail(job, status, where, message);
    error_given(&job->error, status, "%d", (int)job->plan->token_ids[position]);
}

/* A token whose key or value is not finite spoils every job that has it, now and from the cache. */
static void check_path(struct job *job)
{
    for (; job->n_sound < job->at; job->n_sound += PANEL - job->n_sound % PANEL) {
        size_t page = job->n_sound / PANEL, bad = page * PANEL + job->path[page]->bad;
        if (job->path[page]->bad < PANEL && bad < job->at)
            fail_at(
                job, NP_ENUMERIC, bad,
                "a key or value of this token is not a finite number: the model overflows here");
    }
    job->n_sound = job->at / PANEL * PANEL;
}

void step_bad_logit(struct job *job, float temperature, size_t position, int32_t id)
{
    char what[160];
    /* Below 1 it is the temperature that makes logits large, and that came with the request. */
    np_status status = temperature < 1 ? NP_EINPUT : NP_ENUMERIC;
    snprintf(what, sizeof what, "the logit of token %d after this token is not a finite number%s",
             (int)id, temperature != 1 ? " (the logits are divided by the score temperature)" : "");
    fail_at(job, status, position, what);
}

/* Rows that were asked for, of all members: through the head, into the jobs. */
static void answer_rows(struct engine *engine)
{
    const struct model *model = engine->model;
    size_t n = 0;
    for (size_t i = 0; i < engine->n_members; i++) {
        struct job *job = engine->members[i];
        if (job->error.status != NP_OK) continue;
        for (size_t j = job->n_answered; j < job->n_asked; j++, n++) {
            engine->row_jobs[n] = job;
            engine->row_nodes[n] = job->path[(job->plan->start + j) / PANEL];
            engine->head_rows[n] = head_row_of(engine, job, j);
        }
    }
    if (n == 0) return;
    head_answer(engine->pool, model->kernels, model_head(model), engine->head_space,
                engine->head_rows, n, engine->bad);
    for (size_t i = 0; i < n; i++) {
        const struct head_row *row = &engine->head_rows[i];
        struct node *node = engine->row_nodes[i];
        node->lent = node->read = 0;
        size_t position = row->plan->start + row->j;
        if (engine->bad[i] >= 0)
            step_bad_logit(engine->row_jobs[i], row->plan->temperature, position, engine->bad[i]);
        if (engine->bad[i] >= 0 || !row->lse || row->known) continue;
        uint64_t bit = (uint64_t)1 << position % PANEL;
        node->known |= bit;
        node->known_entropy = row->entropy ? node->known_entropy | bit : node->known_entropy & ~bit;
    }
}

/* All nodes of a run, from the one of its first row on. */
#define FOR_NODES(node, engine, i)                                                   \
    for (size_t p_ = (engine)->runs[i].first / PANEL,                                \
                end_ = kv_pages((engine)->runs[i].first + (engine)->runs[i].n_rows); \
         p_ < end_ && ((node) = (engine)->run_jobs[i]->path[p_], true); p_++)

/* What the step made of tokens that another page holds too, in the order of the copies. */
static void finish_copies(struct engine *engine)
{
    const struct kv_shape *kv = &engine->model->kv;
    for (size_t i = 0; i < engine->step.n_copies; i++) {
        const struct page_copy *copy = &engine->copies[i];
        const struct node *from = engine->copy_nodes[2 * i];
        struct node *to = engine->copy_nodes[2 * i + 1];
        to->n_done = to->n;
        to->wanted = 0;
        for (size_t c = copy->begin; c < copy->end; c++) {
            uint64_t bit = (uint64_t)1 << c;
            if (from->bad == c && c < to->bad) to->bad = c;
            if (!(from->hidden & bit)) continue;
            to->hidden |= bit;
            memcpy(kv_hidden(kv, to->page, c), kv_hidden(kv, from->page, c),
                   kv->dim * sizeof(float));
        }
    }
}

np_status step_run(struct engine *engine, np_error *err)
{
    struct step *step = &engine->step;
    struct node *node;
    np_status status = NP_OK;
    if (step->n_rows > 0)
        status = model_forward(engine->model, engine->workspace, engine->pool, step,
                               &engine->cancel, err);
    for (size_t i = 0; i < step->n_runs; i++) {
        size_t bad = step->runs[i].bad;
        FOR_NODES(node, engine, i)
        {
            if (status != NP_OK) {
                tree_forget(node);
                continue;
            }
            node->n_done = node->n;
            node->hidden |= node->wanted;
            node->wanted = 0;
        }
        if (status == NP_OK && bad != SIZE_MAX) {
            node = engine->run_jobs[i]->path[bad / PANEL];
            if (bad % PANEL < node->bad) node->bad = bad % PANEL;
        }
    }
    for (size_t i = 0; i < step->n_copies && status != NP_OK; i++)
        tree_forget(engine->copy_nodes[2 * i + 1]);
    if (status != NP_OK) return status;
    finish_copies(engine);
    engine->n_steps += step->n_rows > 0;
    engine->n_computed += step->n_rows;
    for (size_t i = 0; i < engine->n_members; i++)
        if (engine->members[i]->root) check_path(engine->members[i]);
    answer_rows(engine);
    generate_tokens(engine);
    return NP_OK;
}
