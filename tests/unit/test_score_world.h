/*
 * test_score_world.h - a head with known logits, a request on it, its answers in any way of
 * dividing the work, and the same answers by plain loops.
 *
 * The head has as many inputs as rows, and hidden row r is the r-th unit vector: then the logits of
 * row r are column r of the head matrix, exactly, and a test can choose them.
 */
#ifndef TEST_SCORE_WORLD_H
#define TEST_SCORE_WORLD_H

#include "score/head.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static uint64_t seed = 1;

static inline double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 0x1p-53;
}

/* ---- a head with known logits, and a request on it ---- */

struct world {
    size_t V, R, dim, k, K; /* vocabulary, rows, inputs, top, candidates */
    float *logits;          /* [R][V] */
    float *hidden;          /* [R][dim] */
    struct matrix head;
    int32_t *ids; /* [R + 1] */
    struct arena arena;
    struct plan plan;
    size_t row_floats; /* of one row's answers */
};

enum kind { SPREAD, TIES, EQUAL, ONE_HOT, HUGE_ONES, N_KINDS };

static inline float logit_of(enum kind kind, size_t row, size_t id, size_t V)
{
    switch (kind) {
    case SPREAD: return (float)(16 * uniform() - 8);
    case TIES: return (float)(int)(5 * uniform()) - 2;
    case EQUAL: return 1.5f;
    case ONE_HOT: return id == (row * 37 + V / 2) % V ? 1e4f : 0;
    default: return (float)(2e4 * uniform() - 1e4);
    }
}

/* A matrix of N rows of dim weights in f32, in the world's arena. */
static inline void world_matrix(struct world *w, size_t N, const float *weights)
{
    w->head = (struct matrix){.dtype = DT_F32, .N = N, .K = w->dim};
    w->head.panels = arena_push(&w->arena, matrix_bytes(DT_F32, N, w->dim));
    assert_non_null(w->head.panels);
    for (size_t n = 0; n < N; n++) matrix_put(&w->head, n, 0, w->dim, weights + n * w->dim);
}

/* n_padding columns behind the vocabulary hold logits above all others, which nobody may see. */
static inline void world_head(struct world *w, size_t n_padding)
{
    float *weights = calloc((w->V + n_padding) * w->dim, sizeof *weights);
    assert_non_null(weights);
    for (size_t v = 0; v < w->V + n_padding; v++)
        for (size_t r = 0; r < w->dim; r++)
            weights[v * w->dim + r] = v < w->V ? w->logits[r * w->V + v] : 2e4f;
    world_matrix(w, w->V + n_padding, weights);
    free(weights);
}

static inline void world_init(struct world *w, size_t V, size_t R, enum kind kind)
{
    *w = (struct world){.V = V, .R = R, .dim = R};
    arena_init(&w->arena, (size_t)1 << 28);
    w->logits = arena_push_array(&w->arena, V * R, sizeof(float));
    w->hidden = arena_push_array(&w->arena, R * R, sizeof(float));
    w->ids = arena_push_array(&w->arena, R + 1, sizeof(int32_t));
    for (size_t r = 0; r < R; r++) {
        w->hidden[r * R + r] = 1;
        for (size_t v = 0; v < V; v++) w->logits[r * V + v] = logit_of(kind, r, v, V);
    }
    for (size_t i = 0; i <= R; i++) w->ids[i] = (int32_t)((i * 7919) % V);
    world_head(w, 3);
}

static inline void world_free(struct world *w)
{
    arena_free(&w->arena);
}

/* Every row of the sequence; the last one has no target. */
static inline void world_plan(struct world *w, const np_request *request)
{
    np_request all = *request;
    all.next = 1;
    assert_int_equal(plan_init(&w->plan, &all, w->ids, w->R, w->V, w->R, &w->arena, NULL), NP_OK);
    assert_int_equal(w->plan.n_rows, w->R);
    w->k = w->plan.n_top;
    w->K = w->plan.n_candidates;
    w->row_floats = 5 + 2 * w->k + w->K;
}

/* The answers of row r lie at out + r row_floats: logprob entropy mass tail rank top scores. */
static inline struct head_row world_row(const struct world *w, size_t r, float *out)
{
    float *place = out + r * w->row_floats;
    struct head_row row = {.plan = &w->plan, .hidden = w->hidden + r * w->dim, .j = r};
    row.target = r + 1 < w->R ? w->ids[r + 1] : -1;
    row.logprob = place;
    row.entropy = place + 1;
    if (w->k) row.mass = place + 2;
    if (w->K) row.tail = place + 3;
    row.rank = (int32_t *)(void *)(place + 4);
    if (w->k) row.top_ids = (int32_t *)(void *)(place + 5);
    if (w->k) row.top_logprobs = place + 5 + w->k;
    if (w->K) row.scores = place + 5 + 2 * w->k;
    return row;
}

struct way {
    int n_threads;
    enum cpu_level level;
    size_t group, max_rows, max_top; /* rows per call; what the work space is made for */
    bool backwards;
};

static const struct way plain = {
    .n_threads = 1, .level = CPU_REF, .group = 1000, .max_rows = 128, .max_top = 100};

/* Answers all rows in a way of dividing the work, and expects these bad ids (NULL: none); the
 * result is freed by the caller. */
static inline float *answer_bad(const struct world *w, struct way way, const int32_t *expected)
{
    float *out = calloc(w->R * w->row_floats, sizeof *out);
    struct head_row *rows = calloc(w->R, sizeof *rows);
    int32_t *bad = calloc(w->R, sizeof *bad);
    struct pool *pool;
    struct head_space *space;
    assert_true(out && rows && bad);
    assert_int_equal(pool_open(&pool, way.n_threads, NULL), NP_OK);
    assert_int_equal(
        head_space_open(w->V, w->dim, way.max_rows, way.max_top, way.n_threads, &space, NULL),
        NP_OK);
    for (size_t i = 0; i < w->R; i++) rows[i] = world_row(w, way.backwards ? w->R - 1 - i : i, out);
    uint64_t n_allocations = alloc_count();
    for (size_t i = 0; i < w->R; i += way.group) {
        size_t n = w->R - i < way.group ? w->R - i : way.group;
        head_answer(pool, kernels_get(way.level), &w->head, space, rows + i, n, bad + i);
    }
    assert_int_equal(alloc_count(), n_allocations);
    for (size_t i = 0; i < w->R; i++) assert_int_equal(bad[i], expected ? expected[i] : -1);
    head_space_close(space);
    pool_close(pool);
    free(bad);
    free(rows);
    return out;
}

static inline float *answer(const struct world *w, struct way way)
{
    return answer_bad(w, way, NULL);
}

/* ---- the same by plain loops ---- */

static inline void near(double got, double right)
{
    if (got == right) return;
    if (!(fabs(got - right) <= 1e-8 + fabs(right) * 0x1.01p-24))
        fail_msg("%.12g, not %.12g", got, right);
}

static const float *order_logits;

static inline int by_rank(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    float x = order_logits[i], y = order_logits[j];
    if (x != y) return x > y ? -1 : 1;
    return (i > j) - (i < j);
}

/* log(1 - sum p): compared as a probability, since the difference cancels. */
static inline void near_remaining(double got, long double sum, size_t n_distinct, size_t V)
{
    if (n_distinct == V) {
        assert_true(got == -INFINITY);
        return;
    }
    long double rest = 1 - sum, slack = 1e-13L + rest * 1e-7L * (1 + fmin(-got, 40));
    if (!(fabsl(expl(got) - rest) <= slack)) fail_msg("%.9g, not log of %.9Lg", got, rest);
}

/* One row by the book: logits after the temperature, their order, log-probabilities. */
struct exact {
    float *l;
    int32_t *order;
    long double *logprob, entropy;
    bool logits;
};

static inline void exact_init(struct exact *exact, const struct world *w, size_t r)
{
    size_t V = w->V;
    *exact = (struct exact){.l = calloc(V, sizeof *exact->l),
                            .order = calloc(V, sizeof *exact->order),
                            .logprob = calloc(V, sizeof *exact->logprob),
                            .logits = w->plan.logits};
    assert_true(exact->l && exact->order && exact->logprob);
    for (size_t v = 0; v < V; v++) {
        exact->l[v] = w->logits[r * V + v] / w->plan.temperature;
        exact->order[v] = (int32_t)v;
    }
    order_logits = exact->l;
    qsort(exact->order, V, sizeof *exact->order, by_rank);
    long double m = exact->l[exact->order[0]], sum = 0;
    for (size_t v = 0; v < V; v++) sum += expl(exact->l[v] - m);
    for (size_t v = 0; v < V; v++) {
        exact->logprob[v] = exact->l[v] - m - logl(sum);
        exact->entropy -= expl(exact->logprob[v]) * exact->logprob[v];
    }
}

static inline double exact_value(const struct exact *exact, int32_t id)
{
    return exact->logits ? exact->l[id] : (double)exact->logprob[id];
}

static void check_candidates(const struct world *w, const struct exact *exact,
                             const struct head_row *row)
{
    if (w->K == 0) return;
    const int32_t *ids = w->plan.candidate_ids + (w->plan.per_row ? row->j * w->K : 0);
    size_t n_distinct = 0;
    long double listed = 0;
    for (size_t c = 0; c < w->K; c++) {
        bool first = ids[c] >= 0;
        for (size_t b = 0; b < c; b++) first = first && ids[b] != ids[c];
        if (ids[c] < 0)
            assert_true(row->scores[c] == -INFINITY);
        else
            near(row->scores[c], exact_value(exact, ids[c]));
        n_distinct += first;
        if (first) listed += expl(exact->logprob[ids[c]]);
    }
    near_remaining(*row->tail, listed, n_distinct, w->V);
}

static inline void check_row(const struct world *w, size_t r, float *out)
{
    struct head_row row = world_row(w, r, out);
    struct exact exact;
    exact_init(&exact, w, r);
    near(*row.entropy, (double)exact.entropy);
    if (row.target >= 0) {
        near(*row.logprob, exact_value(&exact, row.target));
        assert_int_equal(exact.order[*row.rank - 1], row.target);
    }
    long double listed = 0;
    for (size_t i = 0; i < w->k; i++) {
        assert_int_equal(row.top_ids[i], exact.order[i]);
        near(row.top_logprobs[i], exact_value(&exact, exact.order[i]));
        listed += expl(exact.logprob[exact.order[i]]);
    }
    if (w->k) near_remaining(*row.mass, listed, w->k, w->V);
    check_candidates(w, &exact, &row);
    free(exact.l);
    free(exact.order);
    free(exact.logprob);
}

static inline void check(const struct world *w, float *out)
{
    for (size_t r = 0; r < w->R; r++) check_row(w, r, out);
    free(out);
}

#endif
