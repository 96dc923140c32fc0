/*
 * test_score_dense.h - a dense head of any stored type and profile, and calls that ask for a part
 * of the answers and may tell or learn the log-sum-exp of a row.
 */
#ifndef TEST_SCORE_DENSE_H
#define TEST_SCORE_DENSE_H

#include "test_score_world.h"

/* ---- a dense head of any type ---- */

struct kind_of_head {
    enum dtype dtype;
    enum profile profile;
    size_t dim;
};
static const struct kind_of_head heads[] = {
    {DT_F32, PROFILE_F32, 67},    {DT_F32, PROFILE_F32, 128},    {DT_F16, PROFILE_F32, 96},
    {DT_F16, PROFILE_F32, 128},   {DT_BF16, PROFILE_F32, 67},    {DT_BF16, PROFILE_BF16, 67},
    {DT_BF16, PROFILE_BF16, 128}, {DT_Q4_0, PROFILE_F32, 96},    {DT_Q4_1, PROFILE_F32, 128},
    {DT_Q5_0, PROFILE_F32, 96},   {DT_Q5_1, PROFILE_F32, 128},   {DT_Q8_0, PROFILE_F32, 96},
    {DT_Q4_0, PROFILE_INT16, 96}, {DT_Q4_1, PROFILE_INT16, 128}, {DT_Q5_0, PROFILE_INT16, 96},
    {DT_Q5_1, PROFILE_INT16, 96}, {DT_Q8_0, PROFILE_INT16, 96},
};
#define N_HEADS (sizeof heads / sizeof heads[0])

static inline uint32_t random_bits(void)
{
    return (uint32_t)(uniform() * 0x1p32);
}

static inline size_t below(size_t n)
{
    return (size_t)(uniform() * (double)n);
}

static inline void put16(uint8_t *at, uint32_t value)
{
    uint16_t word = (uint16_t)value;
    memcpy(at, &word, sizeof word);
}

/* One block as a file has it: any integers, scales that keep weights near 0.1. */
static inline void random_block(enum dtype dtype, uint8_t *block)
{
    float value = (float)(uniform() - 0.5);
    for (size_t i = 0; i < dtype_infos[dtype].block_bytes; i++) block[i] = (uint8_t)random_bits();
    switch (dtype) {
    case DT_F32: memcpy(block, &value, sizeof value); break;
    case DT_F16: put16(block, (random_bits() & 0x83ff) | 0x2c00); break;
    case DT_BF16: put16(block, (random_bits() & 0x807f) | 0x3d80); break;
    default:
        put16(block, (random_bits() & 0x83ff) | 0x1800);
        if (dtype_has_minimum(dtype)) put16(block + 2, (random_bits() & 0x83ff) | 0x2400);
    }
}

/* R hidden rows on a random head of V columns, and padding behind that nobody may see. */
static inline void dense_init(struct world *w, const struct kind_of_head *kind, size_t V, size_t R,
                              bool bias)
{
    const struct dtype_info *info = &dtype_infos[kind->dtype];
    size_t N = V + 3, n_blocks = kind->dim / info->block_elements;
    *w = (struct world){.V = V, .R = R, .dim = kind->dim};
    arena_init(&w->arena, (size_t)1 << 28);
    w->hidden = arena_push_array(&w->arena, R * w->dim, sizeof(float));
    w->ids = arena_push_array(&w->arena, R + 1, sizeof(int32_t));
    uint8_t *row = arena_push_array(&w->arena, n_blocks, info->block_bytes);
    float *biases = arena_push_array(&w->arena, N, sizeof *biases);
    w->head =
        (struct matrix){.dtype = kind->dtype, .profile = kind->profile, .N = N, .K = kind->dim};
    w->head.panels = arena_push(&w->arena, matrix_bytes(kind->dtype, N, kind->dim));
    assert_true(w->hidden && w->ids && row && biases && w->head.panels);
    for (size_t i = 0; i < R * w->dim; i++) w->hidden[i] = (float)(4 * uniform() - 2);
    for (size_t i = 0; i <= R; i++) w->ids[i] = (int32_t)below(V);
    for (size_t n = 0; n < N; n++) {
        biases[n] = (float)uniform();
        for (size_t b = 0; b < n_blocks; b++)
            random_block(kind->dtype, row + b * info->block_bytes);
        matrix_put(&w->head, n, 0, kind->dim, row);
    }
    if (bias) w->head.bias = biases;
}

#define PER_ROW 7

/* Per row: any ids, some twice, some -1; the second row has none. Flat: any ids. */
static inline int32_t *random_candidates(struct world *w, bool per_row)
{
    size_t n = PER_ROW * (per_row ? w->R : 1);
    int32_t *ids = arena_push_array(&w->arena, n, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < n; i++) {
        ids[i] = i % 3 == 2 && below(2) ? ids[i - 1] : (int32_t)below(w->V);
        if (per_row && i > 0 && (below(5) == 0 || i / PER_ROW == 1)) ids[i] = -1;
    }
    return ids;
}

/* ---- asking for a part of the answers ---- */

enum { LOGPROB = 1, ENTROPY = 2, MASS = 4, TAIL = 8, RANK = 16, TOP = 32, SCORES = 64, ALL = 127 };
#define PICKED (LOGPROB | ENTROPY | TAIL | SCORES)

static inline struct head_row row_with(const struct world *w, size_t r, float *out, unsigned wants)
{
    struct head_row row = world_row(w, r, out);
    if (!(wants & LOGPROB)) row.logprob = NULL;
    if (!(wants & ENTROPY)) row.entropy = NULL;
    if (!(wants & RANK)) row.rank = NULL;
    if (!(wants & TOP)) row.top_ids = NULL, row.top_logprobs = NULL;
    if (!(wants & SCORES)) row.scores = NULL;
    if (!(wants & MASS) || !row.top_ids) row.mass = NULL;
    if (!(wants & TAIL) || !row.scores) row.tail = NULL;
    return row;
}

static inline void ask(const struct world *w, struct way way, const struct kernels *kernels,
                       const struct head_row *rows, int32_t *bad)
{
    struct pool *pool;
    struct head_space *space;
    assert_int_equal(pool_open(&pool, way.n_threads, NULL), NP_OK);
    assert_int_equal(
        head_space_open(w->V, w->dim, way.max_rows, way.max_top, way.n_threads, &space, NULL),
        NP_OK);
    uint64_t n_allocations = alloc_count();
    for (size_t i = 0; i < w->R; i += way.group) {
        size_t n = w->R - i < way.group ? w->R - i : way.group;
        head_answer(pool, kernels, &w->head, space, rows + i, n, bad + i);
    }
    assert_int_equal(alloc_count(), n_allocations);
    head_space_close(space);
    pool_close(pool);
}

#define CANARY 0xa5

/* The rows of a call, its answers, and what they must be: a canary where nothing is wanted. */
struct call {
    size_t n_floats;
    float *out, *expected;
    struct head_row *rows;
    struct row_lse *lse;
    int32_t *bad;
};

static inline void call_init(struct call *call, const struct world *w)
{
    call->n_floats = w->R * w->row_floats;
    call->out = calloc(call->n_floats, sizeof(float));
    call->expected = calloc(call->n_floats, sizeof(float));
    call->rows = calloc(w->R, sizeof *call->rows);
    call->lse = calloc(w->R, sizeof *call->lse);
    call->bad = calloc(w->R, sizeof *call->bad);
    assert_true(call->out && call->expected && call->rows && call->lse && call->bad);
    memset(call->out, CANARY, call->n_floats * sizeof(float));
    memset(call->expected, CANARY, call->n_floats * sizeof(float));
    memset(call->lse, CANARY, w->R * sizeof *call->lse);
}

static inline void call_free(struct call *call)
{
    free(call->out);
    free(call->expected);
    free(call->rows);
    free(call->lse);
    free(call->bad);
}

static inline void expect_cells(struct call *call, const void *wanted, const float *right, size_t n)
{
    if (!wanted) return;
    size_t at = (size_t)((const float *)wanted - call->out);
    memcpy(call->expected + at, right + at, n * sizeof *right);
}

/* Row i of the call is row r of the world, whose answers `right` has. */
static inline void call_row(struct call *call, const struct world *w, size_t i, size_t r,
                            unsigned wants, const float *right)
{
    struct head_row row = row_with(w, r, call->out, wants);
    if (row.target >= 0) expect_cells(call, row.logprob, right, 1);
    if (row.target >= 0) expect_cells(call, row.rank, right, 1);
    expect_cells(call, row.entropy, right, 1);
    expect_cells(call, row.mass, right, 1);
    expect_cells(call, row.tail, right, 1);
    expect_cells(call, row.top_ids, right, w->k);
    expect_cells(call, row.top_logprobs, right, w->k);
    expect_cells(call, row.scores, right, w->K);
    call->rows[i] = row;
}

static inline void call_check(const struct call *call, const struct world *w, const char *what)
{
    for (size_t i = 0; i < w->R; i++) assert_int_equal(call->bad[i], -1);
    for (size_t i = 0; i < call->n_floats; i++)
        if (memcmp(&call->out[i], &call->expected[i], sizeof(float)))
            fail_msg("%s: row %zu, cell %zu: %.9g, not %.9g", what, i / w->row_floats,
                     i % w->row_floats, call->out[i], call->expected[i]);
}

static inline struct way plain_at(enum cpu_level level)
{
    struct way way = plain;
    way.level = level;
    return way;
}

/* The log-sum-exp of every row, as a call that wants `wants` hands it out. */
static inline struct row_lse *learn(const struct world *w, struct way way, unsigned wants)
{
    struct call call;
    float *right = answer(w, plain_at(way.level));
    call_init(&call, w);
    for (size_t r = 0; r < w->R; r++) {
        call_row(&call, w, r, r, wants, right);
        call.rows[r].lse = &call.lse[r];
    }
    ask(w, way, kernels_get(way.level), call.rows, call.bad);
    call_check(&call, w, "learning");
    struct row_lse *lse = call.lse;
    call.lse = NULL;
    call_free(&call);
    free(right);
    return lse;
}

#endif
