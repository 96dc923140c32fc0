/*
 * test_score.c - the answers of the head against plain loops, and their bits in every way of work.
 *
 * Most heads here have as many inputs as rows, and hidden row r is the r-th unit vector: then the
 * logits of row r are column r of the head matrix, exactly, and a test can choose them.
 */
#include "score/head.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static uint64_t seed = 1;

static double uniform(void)
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

static float logit_of(enum kind kind, size_t row, size_t id, size_t V)
{
    switch (kind) {
    case SPREAD: return (float)(16 * uniform() - 8);
    case TIES: return (float)(int)(5 * uniform()) - 2;
    case EQUAL: return 1.5f;
    case ONE_HOT: return id == (row * 37 + V / 2) % V ? 1e4f : 0;
    default: return (float)(2e4 * uniform() - 1e4);
    }
}

/* n_padding columns behind the vocabulary hold logits above all others, which nobody may see. */
static void world_head(struct world *w, size_t n_padding)
{
    float *weights = calloc((w->V + n_padding) * w->dim, sizeof *weights);
    assert_non_null(weights);
    assert_int_equal(matrix_init(&w->head, w->V + n_padding, w->dim, false, NULL), NP_OK);
    for (size_t v = 0; v < w->V + n_padding; v++)
        for (size_t r = 0; r < w->dim; r++)
            weights[v * w->dim + r] = v < w->V ? w->logits[r * w->V + v] : 2e4f;
    matrix_pack_rows(&w->head, 0, w->V + n_padding, weights, w->dim);
    free(weights);
}

static void world_init(struct world *w, size_t V, size_t R, enum kind kind)
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

static void world_free(struct world *w)
{
    matrix_free(&w->head);
    arena_free(&w->arena);
}

/* Every row of the sequence; the last one has no target. */
static void world_plan(struct world *w, const np_request *request)
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
static struct head_row world_row(const struct world *w, size_t r, float *out)
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
static float *answer_bad(const struct world *w, struct way way, const int32_t *expected)
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

static float *answer(const struct world *w, struct way way)
{
    return answer_bad(w, way, NULL);
}

/* ---- the same by plain loops ---- */

static void near(double got, double right)
{
    if (got == right) return;
    if (!(fabs(got - right) <= 1e-8 + fabs(right) * 0x1.01p-24))
        fail_msg("%.12g, not %.12g", got, right);
}

static const float *order_logits;

static int by_rank(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    float x = order_logits[i], y = order_logits[j];
    if (x != y) return x > y ? -1 : 1;
    return (i > j) - (i < j);
}

/* log(1 - sum p): compared as a probability, since the difference cancels. */
static void near_remaining(double got, long double sum, size_t n_distinct, size_t V)
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

static void exact_init(struct exact *exact, const struct world *w, size_t r)
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

static double exact_value(const struct exact *exact, int32_t id)
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

static void check_row(const struct world *w, size_t r, float *out)
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

static void check(const struct world *w, float *out)
{
    for (size_t r = 0; r < w->R; r++) check_row(w, r, out);
    free(out);
}

/* ---- tests ---- */

static const size_t vocabularies[] = {1, 63, 64, 65, 4095, 4096, 4097, 9000};
#define N_VOCABULARIES (sizeof vocabularies / sizeof vocabularies[0])

/* Every kind of row, vocabularies around the sizes of panels and segments, several k, both
 * temperatures. */
static void answers_match_plain_loops(void **state)
{
    static const float temperatures[] = {1, 0.5f, 3};
    for (size_t i = 0; i < N_VOCABULARIES; i++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            struct world w;
            size_t V = vocabularies[i];
            world_init(&w, V, 5, (enum kind)kind);
            int32_t ids[7] = {(int32_t)V - 1,       0, (int32_t)V / 2, 0, (int32_t)V / 3,
                              (int32_t)(V * 2 / 3), 0};
            int32_t tops[] = {0, 1, 5, 70, -1};
            for (size_t t = 0; t < 5; t++) {
                np_request request = {.top = tops[t],
                                      .candidate_ids = ids,
                                      .n_candidates = 7,
                                      .logprobs_mode = t == 2 ? NP_RAW_LOGITS : NP_RAW_LOGPROBS,
                                      .score_temperature = &temperatures[t % 3]};
                world_plan(&w, &request);
                check(&w, answer(&w, plain));
            }
            world_free(&w);
        }
}

static void nested_rows_padding_and_duplicates_C119(void **state)
{
    struct world w;
    world_init(&w, 4200, 6, SPREAD);
    static const int32_t ids[6][4] = {{7, 7, -1, 4199}, {-1, -1, -1, -1}, {4096, 4095, 64, 63},
                                      {0, 0, 0, 0},     {-1, 5, -1, 5},   {4199, 1, 2, -1}};
    np_request request = {
        .candidate_ids = ids[0], .n_candidates = 4, .n_candidate_rows = 6, .top = 3};
    world_plan(&w, &request);
    float *out = answer(&w, plain);
    struct head_row row = world_row(&w, 1, out);
    assert_true(*row.tail == 0); /* nothing is listed: everything remains */
    row = world_row(&w, 3, out);
    assert_memory_equal(&row.scores[0], &row.scores[3], sizeof(float));
    check(&w, out);
    world_free(&w);
}

static void same_bits_in_every_way(const struct world *w)
{
    static const int threads[] = {1, 2, 3, 5};
    static const size_t groups[] = {1, 2, 7, 1000};
    float *right = answer(w, plain);
    for (size_t t = 0; t < 4; t++)
        for (size_t g = 0; g < 4; g++)
            for (int level = 0; level <= (int)cpu_detect(); level++) {
                struct way way = {.n_threads = threads[t],
                                  .level = (enum cpu_level)level,
                                  .group = groups[g],
                                  .max_rows = g == 2 ? 4 : 1000,
                                  .max_top = g == 3 ? 2 : 100,
                                  .backwards = g % 2};
                float *out = answer(w, way);
                if (memcmp(out, right, w->R * w->row_floats * sizeof *out))
                    fail_msg("%d threads, %zu rows a call, level %d", way.n_threads, way.group,
                             level);
                free(out);
            }
    check(w, right);
}

static void same_bits_for_threads_groups_and_levels(void **state)
{
    static const struct {
        size_t V, R;
        enum kind kind;
        int32_t top;
    } shapes[] = {{9000, 9, SPREAD, 20},
                  {9000, 9, TIES, 20},
                  {4097, 5, EQUAL, 4097},
                  {21000, 3, ONE_HOT, 1},
                  {300, 140, SPREAD, 10}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct world w;
        world_init(&w, shapes[i].V, shapes[i].R, shapes[i].kind);
        int32_t ids[] = {0, 299, 1, 64, 63, 128};
        np_request request = {.top = shapes[i].top, .candidate_ids = ids, .n_candidates = 6};
        world_plan(&w, &request);
        same_bits_in_every_way(&w);
        world_free(&w);
    }
}

/* A dense head with a bias: the true token's sum is that of its cell in the tile, bit for bit. */
static void true_token_has_the_bits_of_its_candidate(void **state)
{
    struct world w = {.V = 333, .R = 40, .dim = 259};
    arena_init(&w.arena, 1 << 24);
    w.hidden = arena_push_array(&w.arena, w.R * w.dim, sizeof(float));
    w.ids = arena_push_array(&w.arena, w.R + 1, sizeof(int32_t));
    float *weights = arena_push_array(&w.arena, w.V * w.dim, sizeof(float));
    float temperature = 0.7f;
    for (size_t i = 0; i < w.R * w.dim; i++) w.hidden[i] = (float)(2 * uniform() - 1);
    for (size_t i = 0; i < w.V * w.dim; i++) weights[i] = (float)(uniform() - 0.5);
    for (size_t i = 0; i <= w.R; i++) w.ids[i] = (int32_t)((i * 101) % w.V);
    assert_int_equal(matrix_init(&w.head, w.V, w.dim, true, NULL), NP_OK);
    matrix_pack_rows(&w.head, 0, w.V, weights, w.dim);
    for (size_t i = 0; i < w.V; i++) w.head.bias[i] = (float)uniform();
    np_request request = {.candidate_ids = w.ids + 1,
                          .n_candidates = 1,
                          .n_candidate_rows = w.R,
                          .top = -1,
                          .score_temperature = &temperature};
    world_plan(&w, &request);
    float *right = answer(&w, plain);
    for (size_t r = 0; r + 1 < w.R; r++) {
        struct head_row row = world_row(&w, r, right);
        assert_memory_equal(row.logprob, row.scores, sizeof(float));
        assert_int_equal(row.top_ids[*row.rank - 1], row.target);
        assert_memory_equal(row.logprob, &row.top_logprobs[*row.rank - 1], sizeof(float));
        assert_true(*row.mass == -INFINITY);
    }
    for (int level = 0; level <= (int)cpu_detect(); level++)
        for (int n_threads = 1; n_threads <= 5; n_threads += 2) {
            struct way way = {n_threads, (enum cpu_level)level, 11, 8, 400, true};
            float *out = answer(&w, way);
            assert_memory_equal(out, right, w.R * w.row_floats * sizeof *out);
            free(out);
        }
    free(right);
    world_free(&w);
}

/* One row with chosen logits, answered. */
static float *answer_logits(struct world *w, const float *logits, size_t V, int32_t target,
                            const np_request *request)
{
    world_init(w, V, 2, EQUAL);
    memcpy(w->logits, logits, V * sizeof *logits);
    matrix_free(&w->head);
    world_head(w, 0);
    w->ids[1] = target;
    world_plan(w, request);
    return answer(w, plain);
}

static void temperature_before_the_softmax_C056(void **state)
{
    static const float logits[] = {1, -2, 0.5f, 3};
    const float half = 0.5f;
    np_request request = {.score_temperature = &half};
    struct world w;
    float *out = answer_logits(&w, logits, 4, 2, &request);
    double sum = exp(2) + exp(-4) + exp(1) + exp(6);
    near(*world_row(&w, 0, out).logprob, 1 - log(sum));
    free(out);
    world_free(&w);
}

static void ranks_of_distinct_logits_C061(void **state)
{
    static const float logits[] = {0.1f, 3, -1, 2, 5, 0, 4};
    static const int32_t order[] = {4, 6, 1, 3, 0, 5, 2};
    for (int32_t i = 0; i < 7; i++) {
        np_request request = {.top = 5};
        struct world w;
        float *out = answer_logits(&w, logits, 7, order[i], &request);
        struct head_row row = world_row(&w, 0, out);
        assert_int_equal(*row.rank, i + 1); /* exact outside the list too */
        assert_memory_equal(row.top_ids, order, 5 * sizeof order[0]);
        free(out);
        world_free(&w);
    }
}

static void chosen_token_on_top_C062(void **state)
{
    static const float logits[] = {9, 8, 7, 6};
    np_request request = {.top = 4};
    struct world w;
    float *out = answer_logits(&w, logits, 4, 0, &request);
    struct head_row row = world_row(&w, 0, out);
    assert_int_equal(*row.rank, 1);
    for (int32_t i = 0; i < 4; i++) assert_int_equal(row.top_ids[i], i);
    assert_memory_equal(row.logprob, row.top_logprobs, sizeof(float));
    free(out);
    world_free(&w);
}

/* Equal logits: the lower id comes first, in ranks and in lists. */
static void ties_by_lower_id(void **state)
{
    static const float logits[] = {1, 2, 2, 0.0f, 2, -0.0f};
    static const int32_t ranks[] = {4, 1, 2, 5, 3, 6}, order[] = {1, 2, 4, 0, 3, 5};
    for (int32_t id = 0; id < 6; id++) {
        np_request request = {.top = -1};
        struct world w;
        float *out = answer_logits(&w, logits, 6, id, &request);
        struct head_row row = world_row(&w, 0, out);
        assert_int_equal(*row.rank, ranks[id]);
        assert_memory_equal(row.top_ids, order, sizeof order);
        free(out);
        world_free(&w);
    }
}

/* A logit never stands where a log-probability was asked for, and the other way round. */
static void logits_only_when_asked_for_C069(void **state)
{
    static const float logits[] = {5, 4, 1};
    static const int32_t ids[] = {2, 0};
    struct world w;
    np_request request = {
        .top = 2, .candidate_ids = ids, .n_candidates = 2, .logprobs_mode = NP_RAW_LOGITS};
    float *out = answer_logits(&w, logits, 3, 1, &request);
    struct head_row row = world_row(&w, 0, out);
    assert_true(*row.logprob == 4 && row.scores[0] == 1 && row.scores[1] == 5 &&
                row.top_logprobs[1] == 4);
    float raw_entropy = *row.entropy, raw_mass = *row.mass, raw_tail = *row.tail;
    free(out);
    world_free(&w);
    request.logprobs_mode = NP_RAW_LOGPROBS;
    out = answer_logits(&w, logits, 3, 1, &request);
    row = world_row(&w, 0, out);
    double log_sum = log(exp(5) + exp(4) + exp(1));
    near(*row.logprob, 4 - log_sum);
    near(row.scores[0], 1 - log_sum);
    near(row.top_logprobs[0], 5 - log_sum);
    assert_true(*row.entropy == raw_entropy && *row.mass == raw_mass && *row.tail == raw_tail);
    free(out);
    world_free(&w);
}

/* Beside the top k stands the log of what they leave: together they are the whole. */
static void top_and_mass_make_one_C121(void **state)
{
    struct world w;
    world_init(&w, 1000, 3, SPREAD);
    static const int32_t tops[] = {1, 10, 999, 1000};
    for (size_t t = 0; t < 4; t++) {
        np_request request = {.top = tops[t]};
        world_plan(&w, &request);
        float *out = answer(&w, plain);
        for (size_t r = 0; r < 3; r++) {
            struct head_row row = world_row(&w, r, out);
            double sum = exp(*row.mass);
            for (int32_t i = 0; i < tops[t]; i++) sum += exp(row.top_logprobs[i]);
            assert_true(fabs(sum - 1) < 1e-6);
        }
        check(&w, out);
    }
    world_free(&w);
}

/* Inputs of 3e38 make logits overflow where weights are above 1: the lowest such id is named,
 * whoever swept it, and the rows beside are unharmed. */
static void logit_that_is_not_finite_names_its_id(void **state)
{
    struct world w;
    world_init(&w, 9000, 4, SPREAD);
    for (size_t v = 0; v < 9000; v++) {
        w.logits[1 * 9000 + v] = v == 77 ? 2 : 0.5f;
        w.logits[2 * 9000 + v] = v == 8999 || v == 4500 || v == 4503 ? -2 : 0.5f;
    }
    matrix_free(&w.head);
    world_head(&w, 3);
    np_request request = {.top = 3};
    world_plan(&w, &request);
    float *right = answer(&w, plain);
    w.hidden[1 * 4 + 1] = w.hidden[2 * 4 + 2] = 3e38f;
    for (int n_threads = 1; n_threads <= 5; n_threads++) {
        static const int32_t bad[4] = {-1, 77, 4500, -1};
        float *out = answer_bad(&w, (struct way){n_threads, cpu_detect(), 4, 4, 3, false}, bad);
        assert_memory_equal(out, right, w.row_floats * sizeof *out);
        assert_memory_equal(out + 3 * w.row_floats, right + 3 * w.row_floats,
                            w.row_floats * sizeof *out);
        free(out);
    }
    w.hidden[3] = NAN; /* row 0: the first id is not finite, and with it all */
    w.hidden[3 * 4 + 3] = -INFINITY;
    static const int32_t all_bad[4] = {0, 77, 4500, 0};
    free(answer_bad(&w, plain, all_bad));
    free(right);
    world_free(&w);
}

static void work_space_is_bounded_and_checked(void **state)
{
    size_t most = head_space_bytes(262144, 576, 128, 100, 2);
    assert_true(most <= 2 * 1200 * 1024);
    assert_int_equal(head_space_bytes(262144, 576, 100000, 100, 2), most);
    assert_true(head_space_bytes(262144, 576, 128, SIZE_MAX, 2) <= most + (1 << 20));
    assert_int_equal(head_space_bytes(262144, 576, 128, 0, 2),
                     head_space_bytes(262144, 576, 128, SIZE_MAX, 2));
    assert_true(head_space_bytes(262144, 576, 1, 1, 2) < most / 20);
    struct head_space *space;
    np_error err;
    alloc_fail_after(1);
    assert_int_equal(head_space_open(1000, 16, 8, 5, 2, &space, &err), NP_ENOMEM);
    assert_null(space);
    head_space_close(NULL);
    assert_int_equal(head_space_open(1000, 16, 0, 0, 1, &space, &err), NP_OK);
    head_space_close(space);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_match_plain_loops),
        cmocka_unit_test(nested_rows_padding_and_duplicates_C119),
        cmocka_unit_test(same_bits_for_threads_groups_and_levels),
        cmocka_unit_test(true_token_has_the_bits_of_its_candidate),
        cmocka_unit_test(temperature_before_the_softmax_C056),
        cmocka_unit_test(ranks_of_distinct_logits_C061),
        cmocka_unit_test(chosen_token_on_top_C062),
        cmocka_unit_test(ties_by_lower_id),
        cmocka_unit_test(logits_only_when_asked_for_C069),
        cmocka_unit_test(top_and_mass_make_one_C121),
        cmocka_unit_test(logit_that_is_not_finite_names_its_id),
        cmocka_unit_test(work_space_is_bounded_and_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
