/*
 * generate.c - the tokens of a step: logits of the last rows, a draw for each, what is told of it.
 *
 * A few rows of logits are in memory at a time: the draw works on a copy, since the raw row answers
 * afterwards.
 */
#include "engine/state.h"

#include <math.h>

/* One row of logits and the job that draws from it. */
struct draw {
    struct job *job;
    struct node *node;
    struct plan plan; /* of this row alone: what is told of it */
    int32_t id;
    np_error error;
};

size_t generate_bytes(size_t n_vocab, int n_threads)
{
    size_t row = (n_vocab * sizeof(float) + 63) / 64 * 64;
    return DRAW_ROWS * (row + sizeof(struct draw) + 64) +
           (size_t)n_threads * (row + (sample_space_bytes(n_vocab) + 63) / 64 * 64);
}

np_status generate_open(struct engine *engine, np_error *err)
{
    size_t n_vocab = engine->model->config.n_vocab, threads = (size_t)engine->n_threads;
    engine->ld_logits = (n_vocab + TILE - 1) / TILE * TILE;
    engine->sample_bytes = (sample_space_bytes(n_vocab) + 63) / 64 * 64;
    engine->draws = arena_push_array(&engine->arena, DRAW_ROWS, sizeof *engine->draws);
    engine->logits = arena_push_array(&engine->arena, DRAW_ROWS * engine->ld_logits, sizeof(float));
    engine->drawn = arena_push_array(&engine->arena, threads * engine->ld_logits, sizeof(float));
    engine->sample_space = arena_push_array(&engine->arena, threads, engine->sample_bytes);
    if (engine->draws && engine->logits && engine->drawn && engine->sample_space) return NP_OK;
    return error_nomem(err, "rows of logits", generate_bytes(n_vocab, engine->n_threads));
}

struct draw_task {
    struct engine *engine;
    size_t n;
};

/* Processed values of the row that the draw left. */
static void tell_processed(const struct engine *engine, const struct draw *draw, const float *row)
{
    struct generation *g = draw->job->generation;
    size_t at = g->n_generated, n_vocab = engine->model->config.n_vocab;
    struct token_scores scores = {.logits = draw->plan.logits, .n_top = g->n_top};
    if (g->n_top) {
        scores.top_ids = g->top_ids + at * g->n_top;
        scores.top_values = g->top_logprobs + at * g->n_top;
    }
    scores.n_ids = g->n_candidates;
    scores.ids = g->candidate_ids;
    if (g->scores) scores.values = g->scores + at * g->n_candidates;
    token_scores(engine->model->kernels, row, n_vocab, draw->id, &scores);
    for (size_t i = scores.n_top; i < g->n_top; i++) {
        scores.top_ids[i] = -1;
        scores.top_values[i] = -INFINITY;
    }
    if (g->logprobs) g->logprobs[at] = scores.value;
    if (g->ranks) g->ranks[at] = scores.rank;
}

static void draw_some(void *ctx, int thread, int n_threads)
{
    const struct draw_task *task = ctx;
    struct engine *engine = task->engine;
    size_t n_vocab = engine->model->config.n_vocab, begin, end;
    float *row = engine->drawn + (size_t)thread * engine->ld_logits;
    pool_share(task->n, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        struct draw *draw = &engine->draws[i];
        const struct generation *g = draw->job->generation;
        const struct sample_input input = {
            .kernels = engine->model->kernels,
            .sampling = g->sampling,
            .history = sampling_wants_history(g->sampling) ? &g->history : NULL,
            .output_ids = g->token_ids + draw->job->plan->n_tokens,
            .n_output = g->n_generated,
            .choice = g->choice,
            .space = engine->sample_space + (size_t)thread * engine->sample_bytes};
        memcpy(row, engine->logits + i * engine->ld_logits, n_vocab * sizeof *row);
        draw->error = (np_error){0};
        if (sample_row(&input, row, n_vocab, g->processed, &draw->id, &draw->error) == NP_OK &&
            g->processed)
            tell_processed(engine, draw, row);
    }
}

/* What the raw row tells of the token that was drawn. */
static struct head_row raw_row(struct draw *draw, size_t row)
{
    const struct generation *g = draw->job->generation;
    size_t at = g->n_generated;
    struct head_row out = {.plan = &draw->plan, .target = -1};
    bool raw = !g->processed;
    if (raw && g->logprobs) out.logprob = g->logprobs + at;
    if (raw && g->ranks) out.rank = g->ranks + at;
    if (out.logprob || out.rank) out.target = draw->id;
    if (raw && g->n_top) {
        out.top_ids = g->top_ids + at * g->n_top;
        out.top_logprobs = g->top_logprobs + at * g->n_top;
    }
    if (raw && g->n_candidates) out.scores = g->scores + at * g->n_candidates;
    if (g->entropies) out.entropy = g->entropies + at;
    /* Choices that begin alike draw from one row: one of them writes. */
    uint64_t bit = (uint64_t)1 << row % PANEL;
    if ((draw->node->known | draw->node->lent) & bit) return out;
    draw->node->lent |= bit;
    out.lse = &draw->node->lse[row % PANEL];
    return out;
}

/* The token joins its sequence. */
static void push_token(struct engine *engine, struct job *job, int32_t id)
{
    struct generation *g = job->generation;
    g->token_ids[job->plan->n_tokens + g->n_generated++] = id;
    engine->n_generated++;
    if (sampling_wants_history(g->sampling) && !history_push(&g->history, id))
        job_fail(job, NP_EINTERNAL, "sampling", "no place is left in the history");
    bool ended = sampling_stops(g->sampling, id), stopped = g->stops && g->stops(job, ended);
    if (ended)
        g->finish = FINISH_STOP_ID;
    else if (stopped)
        g->finish = FINISH_STOP_TEXT;
    else if (g->n_generated == g->max_tokens)
        g->finish = FINISH_LENGTH;
}

static void draw_rows(struct engine *engine, size_t n)
{
    const struct model *model = engine->model;
    struct draw_task task = {engine, n};
    head_logits(engine->pool, model->kernels, model_head(model), engine->head_space,
                engine->head_rows, n, engine->logits, engine->ld_logits);
    pool_run(engine->pool, draw_some, &task);
    for (size_t i = 0; i < n; i++) {
        struct draw *draw = &engine->draws[i];
        size_t row = job_length(draw->job) - 1;
        engine->head_rows[i] = raw_row(draw, row);
    }
    head_answer_logits(engine->pool, model->kernels, engine->head_space, engine->head_rows, n,
                       engine->logits, engine->ld_logits, engine->bad);
    for (size_t i = 0; i < n; i++) {
        struct draw *draw = &engine->draws[i];
        struct job *job = draw->job;
        size_t row = job_length(job) - 1;
        draw->node->lent = 0;
        if (engine->bad[i] >= 0) step_bad_logit(job, 1, row, engine->bad[i]);
        if (draw->error.status != NP_OK && job->error.status == NP_OK) job->error = draw->error;
        if (job->error.status != NP_OK) continue;
        if (engine->head_rows[i].lse) {
            uint64_t bit = (uint64_t)1 << row % PANEL;
            draw->node->known |= bit;
            draw->node->known_entropy = job->generation->entropies
                                            ? draw->node->known_entropy | bit
                                            : draw->node->known_entropy & ~bit;
        }
        push_token(engine, job, draw->id);
    }
}

void generate_tokens(struct engine *engine)
{
    size_t n = 0;
    for (size_t i = 0; i < engine->n_members; i++) {
        struct job *job = engine->members[i];
        struct generation *g = job->generation;
        if (!g || !g->draws || job->error.status != NP_OK) continue;
        size_t row = job_length(job) - 1;
        struct node *node = job->path[row / PANEL];
        engine->draws[n] = (struct draw){.job = job, .node = node, .id = -1};
        engine->draws[n].plan = (struct plan){.n_top = g->n_top,
                                              .n_candidates = g->n_candidates,
                                              .candidate_ids = g->candidate_ids,
                                              .wanted = g->wanted,
                                              .logits = job->plan->logits,
                                              .temperature = 1};
        engine->head_rows[n] = (struct head_row){
            .hidden = kv_hidden(&engine->model->kv, node->page, row % PANEL), .target = -1};
        g->draws = false;
        if (++n < DRAW_ROWS) continue;
        draw_rows(engine, n);
        n = 0;
    }
    if (n) draw_rows(engine, n);
}
