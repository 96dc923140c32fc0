/* test_sample.c - the sampler step by step, and whole rows against a plain sort of all tokens. */
#include "score/head.h"
#include "score/sample_parts.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define MAX_VOCAB 9000
#define IDS(...)                                          \
    ((struct token_list){.ids = (int32_t[]){__VA_ARGS__}, \
                         .n = sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t)})

static uint64_t seed = 1;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 0x1p-53;
}

struct draw {
    np_status status;
    int32_t id;
    np_error err;
};

static struct sample_input input_of(const struct sampling *sampling)
{
    return (struct sample_input){.kernels = kernels_get(cpu_detect()), .sampling = sampling};
}

/* In blocks of just the size asked for, the row anywhere, the work space full of rubbish. */
static struct draw draw_input(struct sample_input *input, float *logits, size_t n)
{
    static unsigned n_calls;
    struct draw draw = {.id = -1};
    size_t offset = n_calls++ % 16, n_bytes = sample_space_bytes(n);
    float *block = malloc((offset + n) * sizeof *block), *row = block + offset;
    input->space = aligned_alloc(64, n_bytes);
    assert_true(block && input->space);
    memset(input->space, (int)(n_calls % 256), n_bytes);
    memcpy(row, logits, n * sizeof *row);
    assert_int_equal(sampling_check(input->sampling, n, &draw.err), NP_OK);
    draw.status = sample_row(input, row, n, true, &draw.id, &draw.err);
    memcpy(logits, row, n * sizeof *row);
    free(block);
    free(input->space);
    return draw;
}

static struct draw draw_row(const struct sampling *sampling, float *logits, size_t n)
{
    struct sample_input input = input_of(sampling);
    return draw_input(&input, logits, n);
}

static size_t n_left(const float *logits, size_t n)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++) left += logits[i] > -INFINITY;
    return left;
}

/* ---- random numbers and lists ---- */

/* Known answers of Random123's kat_vectors, the library of the paper. */
static void philox_known_answers(void **state)
{
    static const uint32_t known[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        philox(known[i], known[i] + 4, out);
        assert_memory_equal(out, known[i] + 6, sizeof out);
    }
    assert_true(sample_uniform(0, 0, 0) == (double)(0xe169c58d6627e8d5u >> 11) * 0x1p-53);
    double first = sample_uniform(7, 1, 2);
    assert_true(first == sample_uniform(7, 1, 2) && first >= 0 && first < 1);
    assert_true(first != sample_uniform(8, 1, 2) && first != sample_uniform(7, 2, 2));
    assert_true(first != sample_uniform(7, 1, 3) && first != sample_uniform(7, 2, 1));
    assert_true(first != sample_uniform(7 + ((uint64_t)1 << 32), 1, 2));
    double chi = 0, counts[64] = {0}; /* by position: 63 degrees of freedom, 99.9 % below 104 */
    for (uint64_t i = 0; i < 64000; i++) counts[(size_t)(64 * sample_uniform(3, 0, i))]++;
    for (size_t i = 0; i < 64; i++) chi += (counts[i] - 1000) * (counts[i] - 1000) / 1000;
    assert_true(chi < 104);
}

static void keys_in_the_order_of_logits(void **state)
{
    static uint32_t keys[2][MAX_VOCAB], counts[SORT_COUNTS];
    static const float special[] = {0.0f, -0.0f, FLT_MAX, -FLT_MAX, 1e-45f, -1e-45f, -INFINITY, 1};
    for (int round = 0; round < 40; round++) {
        size_t n = round < 4 ? (size_t)round : (size_t)(uniform() * MAX_VOCAB);
        double before = 0, after = 0;
        for (size_t i = 0; i < n; i++) {
            float l = round % 2 ? special[(size_t)(uniform() * 8)] : (float)(uniform() * 9 - 4);
            keys[0][i] = key_of(l);
            assert_true(key_logit(keys[0][i]) == l);
            before += keys[0][i];
        }
        const uint32_t *sorted = keys_sort(keys[0], keys[1], n, counts);
        for (size_t i = 0; i < n; i++) {
            after += sorted[i];
            assert_true(i == 0 || key_logit(sorted[i - 1]) >= key_logit(sorted[i]));
        }
        assert_true(before == after);
    }
}

/* ---- the check ---- */

static void refused(struct sampling sampling, const char *where, const char *given)
{
    np_error err = {0};
    assert_int_equal(sampling_check(&sampling, 100, &err), NP_EINPUT);
    assert_string_equal(err.where, where);
    assert_string_equal(err.given, given);
    assert_true(err.message[0]);
}

/* C057: NaN and values out of range are refused, each by its name. */
static void C057_numbers_out_of_range(void **state)
{
    static const struct {
        size_t offset;
        const char *name;
        float right[3], wrong[5];
    } fields[] = {
#define FIELD(name) offsetof(struct sampling, name), #name
        {FIELD(temperature), {0, 1, 2}, {-0.1f, 2.01f, NAN, INFINITY, -INFINITY}},
        {FIELD(top_p), {1e-30f, 0.5f, 1}, {0, -1, 1.001f, NAN, INFINITY}},
        {FIELD(min_p), {0, 0.5f, 1}, {-1e-9f, 1.001f, NAN, INFINITY, -1}},
        {FIELD(presence_penalty), {-2, 0, 2}, {-2.1f, 2.1f, NAN, INFINITY, -INFINITY}},
        {FIELD(frequency_penalty), {-2, 0, 2}, {-2.1f, 2.1f, NAN, INFINITY, -INFINITY}},
        {FIELD(repetition_penalty), {1e-30f, 1, 1e30f}, {0, -1, NAN, INFINITY, -INFINITY}},
#undef FIELD
    };
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        for (int i = 0; i < 8; i++) {
            struct sampling sampling = sampling_defaults();
            float value = i < 3 ? fields[f].right[i] : fields[f].wrong[i - 3];
            char given[64];
            memcpy((char *)&sampling + fields[f].offset, &value, sizeof value);
            snprintf(given, sizeof given, "%g", (double)value);
            if (i < 3)
                assert_int_equal(sampling_check(&sampling, 100, NULL), NP_OK);
            else
                refused(sampling, fields[f].name, given);
        }
    }
    struct sampling sampling = sampling_defaults();
    for (sampling.top_k = -1; sampling.top_k < 200; sampling.top_k++)
        assert_int_equal(sampling_check(&sampling, 100, NULL), NP_OK);
    sampling.top_k = -2;
    refused(sampling, "top_k", "-2");
}

/* C179: an id of the vocabulary's size in any list is refused; a row beside it is as it was. */
static void C179_ids_outside_the_vocabulary(void **state)
{
    struct sampling good = sampling_defaults();
    good.seed = 5;
    float logits[100], beside[100];
    for (size_t i = 0; i < 100; i++) logits[i] = beside[i] = (float)(i % 7);
    int32_t before = draw_row(&good, logits, 100).id;
    struct sampling sampling = good;
    sampling.stop_ids = IDS(3, 100);
    refused(sampling, "stop_token_ids[1]", "100");
    sampling = good;
    sampling.biases = (struct token_bias[]){{0, 1}, {101, 5}};
    sampling.n_biases = 2;
    refused(sampling, "logit_bias[1]", "101");
    sampling.biases = (struct token_bias[]){{0, 1}, {99, NAN}};
    refused(sampling, "logit_bias[1]", "nan");
    sampling = good;
    sampling.allowed = IDS(0, 99, -1);
    refused(sampling, "allowed_token_ids[2]", "-1");
    sampling.allowed.n = 0;
    refused(sampling, "allowed_token_ids", "");
    sampling = good;
    sampling.eos_ids = IDS(INT32_MAX);
    refused(sampling, "eos_token_ids[0]", "2147483647");
    sampling = good;
    sampling.bad_words = (struct token_list[]){IDS(1), IDS(2, 200)};
    sampling.n_bad_words = 2;
    refused(sampling, "bad_words[1][1]", "200");
    sampling.bad_words = (struct token_list[]){{NULL, 0}};
    sampling.n_bad_words = 1;
    refused(sampling, "bad_words[0]", "");
    sampling.n_bad_words = MAX_BAD_WORDS + 1;
    refused(sampling, "bad_words", "129");
    sampling = good;
    sampling.n_bad_words = 1;
    refused(sampling, "bad_words", "");
    sampling = good;
    sampling.n_biases = 1;
    refused(sampling, "logit_bias", "");
    sampling = good;
    sampling.stop_ids.n = 1;
    refused(sampling, "stop_token_ids", "");
    assert_int_equal(draw_row(&good, beside, 100).id, before);
}

/* ---- steps 1 to 5 ---- */

static void history_counts(void **state)
{
    _Alignas(8) char memory[4096];
    struct history history;
    assert_true(history_bytes(3, 100) == 8 * 8 && history_bytes(1000, 4) == 8 * 8);
    assert_true(history_bytes(0, 4) > 0);
    history_init(&history, memory, history_bytes(3, 100));
    assert_true(history_prompt(&history, (int32_t[]){7, 7, 0}, 3));
    for (int i = 0; i < 5; i++) assert_true(history_push(&history, i % 2 ? 99 : 7));
    assert_int_equal(history.n_used, 3);
    struct sampling sampling = sampling_defaults();
    sampling.repetition_penalty = 2;
    sampling.frequency_penalty = 0.25f;
    sampling.presence_penalty = -0.5f;
    struct sample_input input = input_of(&sampling);
    input.history = &history;
    float logits[100];
    uint64_t bits[2];
    for (size_t i = 0; i < 100; i++) logits[i] = 4;
    logits[99] = -1;
    row_adjust(&input, logits, 100, bits);
    assert_true(logits[0] == 2);                        /* prompt alone: repetition alone */
    assert_true(logits[7] == 4.0f / 2 - 0.75f + 0.5f);  /* three times */
    assert_true(logits[99] == -1.0f * 2 - 0.5f + 0.5f); /* negative: times r */
    assert_true(logits[50] == 4);
    for (int32_t id = 20; history_push(&history, id); id++) assert_true(id < 30);
    assert_true(history_push(&history, 7)); /* known ids still count */
    history_init(&history, memory, 0);
    assert_false(history_push(&history, 1));
}

static void masks_and_biases(void **state)
{
    struct sampling sampling = sampling_defaults();
    sampling.bad_words = (struct token_list[]){IDS(1),    IDS(5, 6, 2),       IDS(9, 6, 3),
                                               IDS(6, 4), IDS(8, 8, 5, 6, 7), IDS(6, 6)};
    sampling.n_bad_words = 6;
    sampling.biases = (struct token_bias[]){{1, 50}, {8, 3}, {8, -1}, {9, 1e30f}, {10, -INFINITY}};
    sampling.n_biases = 5;
    sampling.stop_ids = IDS(12);
    sampling.eos_ids = IDS(13);
    sampling.ignore_eos = true;
    sampling.min_tokens = 4;
    struct sample_input input = input_of(&sampling);
    input.output_ids = (int32_t[]){8, 5, 6, 9};
    input.n_output = 3;
    float logits[16] = {0};
    uint64_t bits[1];
    row_adjust(&input, logits, 16, bits);
    const float right[16] = {
        [1] = -INFINITY, [2] = -INFINITY, [4] = -INFINITY,  [6] = -INFINITY, [8] = 2,
        [9] = 100,       [10] = -100,     [12] = -INFINITY, [13] = -INFINITY};
    assert_memory_equal(logits, right, sizeof logits);
    float again[16] = {0}; /* the fourth token: no stop is masked; nothing ends in 5 6 */
    input.n_output = 4;
    row_adjust(&input, again, 16, bits);
    assert_true(again[12] == 0 && again[13] == 0 && again[2] == 0 && again[1] == -INFINITY);
    assert_true(sampling_stops(&sampling, 12) && !sampling_stops(&sampling, 13));
    sampling.ignore_eos = false;
    assert_true(sampling_stops(&sampling, 13) && !sampling_stops(&sampling, 14));
}

/* C096: masked tokens, all but one and all. */
static void C096_one_token_left_and_none(void **state)
{
    struct sampling sampling = sampling_defaults();
    sampling.allowed = IDS(130, 130);
    for (int mode = 0; mode < 2; mode++) {
        sampling.temperature = (float)mode;
        float logits[200];
        for (size_t i = 0; i < 200; i++) logits[i] = (float)i;
        assert_int_equal(draw_row(&sampling, logits, 200).id, 130);
        assert_int_equal(n_left(logits, 200), 1);
        int32_t ids[3];
        float values[3];
        struct token_scores scores = {.n_top = 3, .top_ids = ids, .top_values = values};
        token_scores(kernels_get(CPU_REF), logits, 200, 130, &scores);
        assert_true(scores.n_top == 1 && ids[0] == 130 && values[0] == 0 && scores.value == 0);
        token_scores(kernels_get(CPU_REF), logits, 200, 5, &scores);
        assert_true(scores.value == -INFINITY && scores.rank == 7);

        sampling.bad_words = (struct token_list[]){IDS(130)};
        sampling.n_bad_words = 1;
        for (size_t i = 0; i < 200; i++) logits[i] = (float)i;
        struct draw draw = draw_row(&sampling, logits, 200);
        assert_int_equal(draw.status, NP_EINPUT);
        assert_string_equal(draw.err.where, "allowed_token_ids");
        sampling.n_bad_words = 0;
    }
}

static void logits_that_are_not_finite(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct sampling sampling = sampling_defaults();
    for (size_t i = 0; i < 3; i++) {
        float logits[70] = {0};
        logits[66] = bad[i];
        struct draw draw = draw_row(&sampling, logits, 70);
        assert_int_equal(draw.status, NP_ENUMERIC);
        assert_non_null(strstr(draw.err.message, "token 66"));
    }
    float logits[70] = {[3] = 1e37f};
    sampling.temperature = 0.01f;
    struct draw draw = draw_row(&sampling, logits, 70);
    assert_int_equal(draw.status, NP_ENUMERIC);
    assert_non_null(strstr(draw.err.message, "token 3"));
    float extreme[2] = {FLT_MAX, -FLT_MAX};
    sampling.temperature = 1;
    assert_int_equal(draw_row(&sampling, extreme, 2).id, 0);
}

/* ---- steps 6 to 9 ---- */

static void greedy_takes_the_lowest_of_equals(void **state)
{
    struct sampling sampling = sampling_defaults();
    sampling.temperature = 0;
    float logits[300] = {[70] = 2, [250] = 2, [251] = 1.5f};
    sampling.top_k = 1; /* neither is seen at temperature 0 */
    sampling.min_p = 1;
    assert_int_equal(draw_row(&sampling, logits, 300).id, 70);
    assert_int_equal(n_left(logits, 300), 300);
    float zeros[3] = {-0.0f, 0.0f, -1};
    assert_int_equal(draw_row(&sampling, zeros, 3).id, 0);
    sampling = sampling_defaults();
    sampling.top_k = 1;
    for (sampling.seed = 0; sampling.seed < 50; sampling.seed++) {
        float row[300] = {[70] = 2, [250] = 2, [251] = 1.5f};
        assert_int_equal(draw_row(&sampling, row, 300).id, 70);
    }
}

static size_t left_of(float top_p, float min_p, int32_t top_k, const float *logits, size_t n)
{
    static float row[MAX_VOCAB];
    struct sampling sampling = sampling_defaults();
    sampling.top_p = top_p;
    sampling.min_p = min_p;
    sampling.top_k = top_k;
    memcpy(row, logits, n * sizeof *row);
    struct draw draw = draw_row(&sampling, row, n);
    assert_int_equal(draw.status, NP_OK);
    assert_true(row[draw.id] == logits[draw.id]);
    return n_left(row, n);
}

static void boundaries_of_the_cuts(void **state)
{
    static float equal[MAX_VOCAB];
    float rising[100], steps[4] = {0, 1, 2, 3};
    for (size_t i = 0; i < 100; i++) rising[i] = (float)i;
    /* A token stays while p is not reached before it: 2 of 4 equal ones reach 0.5. */
    assert_int_equal(left_of(0.5f, 0, 0, equal, 4), 2);
    assert_int_equal(left_of(0.500001f, 0, 0, equal, 4), 3);
    assert_int_equal(left_of(0.499999f, 0, 0, equal, 4), 2);
    assert_int_equal(left_of(0.25f, 0, 0, equal, MAX_VOCAB - MAX_VOCAB % 4), MAX_VOCAB / 4);
    assert_int_equal(left_of(1, 0, 0, equal, MAX_VOCAB), MAX_VOCAB);
    assert_int_equal(left_of(1 - 0x1p-24f, 0, 0, equal, MAX_VOCAB), MAX_VOCAB);
    assert_int_equal(left_of(1e-30f, 0, 0, equal, MAX_VOCAB), 1);
    assert_int_equal(left_of(FLT_TRUE_MIN, 0, 0, rising, 100), 1);
    assert_int_equal(left_of(0.5f, 0, 3, equal, MAX_VOCAB), 2); /* of the three, not of all */
    assert_int_equal(left_of(1, 0, 3, equal, MAX_VOCAB), 3);    /* ties by id */
    assert_int_equal(left_of(1, 0, 100, rising, 100), 100);
    assert_int_equal(left_of(1, 0, INT32_MAX, rising, 100), 100);
    assert_int_equal(left_of(1, 0, -1, rising, 100), 100);
    assert_int_equal(left_of(1, 1, 0, equal, MAX_VOCAB), MAX_VOCAB);
    assert_int_equal(left_of(1, 1, 0, rising, 100), 1);
    assert_int_equal(left_of(1, expf(-2.0001f), 0, steps, 4), 3);
    assert_int_equal(left_of(1, expf(-1.9999f), 0, steps, 4), 2);
    assert_int_equal(left_of(1, FLT_TRUE_MIN, 0, rising, 100), 100);
    assert_int_equal(left_of(0.9f, 1, 10, equal, 1), 1);
}

/* C054, C059: alternatives of the raw row keep their raw values under top_p and temperature. */
static void C054_raw_alternatives_under_top_p(void **state)
{
    struct sampling sampling = sampling_defaults();
    sampling.top_p = 0.5f;
    sampling.temperature = 0.7f;
    float raw[100], row[100], values[2][3];
    int32_t ids[2][3];
    for (size_t i = 0; i < 100; i++) raw[i] = row[i] = i < 50 ? (float)i / 5 : 0;
    const struct kernels *kernels = kernels_get(cpu_detect());
    struct draw draw = draw_row(&sampling, row, 100);
    struct token_scores before = {.n_top = 3, .top_ids = ids[0], .top_values = values[0]};
    struct token_scores after = {.n_top = 3, .top_ids = ids[1], .top_values = values[1]};
    token_scores(kernels, raw, 100, draw.id, &before);
    token_scores(kernels, row, 100, draw.id, &after);
    assert_true(before.n_top == 3 && ids[0][2] == 47 && isfinite(values[0][2]));
    double Z = 0;
    for (size_t i = 0; i < 100; i++) Z += exp(raw[i] - raw[49]);
    for (size_t i = 0; i < 3; i++)
        assert_true(fabs(values[0][i] - (raw[49 - i] - raw[49] - log(Z))) < 1e-6);
    assert_true(after.n_top < 6 && after.n_top <= n_left(row, 100) && after.value > before.value);
    before.logits = true;
    before.n_top = 3;
    token_scores(kernels, raw, 100, 2, &before);
    assert_true(before.value == raw[2] && values[0][0] == raw[49]);
}

/* ---- whole rows against a plain sort ---- */

static const float *order_logits;
static int by_rank(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    float x = order_logits[i], y = order_logits[j];
    if (x != y) return x > y ? -1 : 1;
    return (i > j) - (i < j);
}

struct plain {
    int32_t order[MAX_VOCAB];
    float logits[MAX_VOCAB], sorted[MAX_VOCAB];
    size_t n;
    double max, total;
};

static double plain_mass(const float *logits, size_t n, double max)
{
    struct lse_part part = kernels_get(CPU_REF)->lse_panel(logits, n, false);
    return part.m == -INFINITY ? 0 : part.m == max ? part.S : part.S * exp64(part.m - max);
}

/* The rule of docs/NUMERICS.md, on a list of all tokens in order. */
static void plain_cut(struct plain *p, double limit)
{
    double sum = 0;
    size_t i = 0;
    while (i + 64 < p->n && !(sum + plain_mass(p->sorted + i, 64, p->max) >= limit)) {
        sum += plain_mass(p->sorted + i, 64, p->max);
        i += 64;
    }
    for (size_t end = i + 64; i < p->n && i < end && sum < limit; i++)
        sum += exp64(p->sorted[i] - p->max);
    p->n = i;
    p->total = sum;
}

static void plain_row(struct plain *p, const struct sampling *sampling, size_t n)
{
    double panels = 0;
    order_logits = p->logits;
    for (size_t i = 0; i < n; i++) p->order[i] = (int32_t)i;
    qsort(p->order, n, sizeof p->order[0], by_rank);
    for (size_t i = 0; i < n; i++) p->sorted[i] = p->logits[p->order[i]];
    p->max = p->sorted[0];
    for (size_t i = 0; i < n; i += 64)
        panels += plain_mass(p->logits + i, n - i < 64 ? n - i : 64, p->max);
    p->n = n;
    p->total = panels;
    bool top_k = sampling->top_k > 0 && (size_t)sampling->top_k < n;
    if (top_k) p->n = (size_t)sampling->top_k;
    if (top_k) plain_cut(p, INFINITY);
    if (sampling->top_p < 1) plain_cut(p, sampling->top_p * p->total);
}

/* No shortcut changes which tokens are left, at any level and any alignment of the row. */
static void cuts_equal_those_of_a_plain_sort(void **state)
{
    static struct plain plain;
    static float row[MAX_VOCAB], first[MAX_VOCAB];
    static const float ps[] = {1, 0.999999f, 0.99f, 0.9f, 0.5f, 0.01f};
    static const int32_t ks[] = {0, 1, 2, 20, 64, 65, 139, 140, 141, 700, 8999};
    static const double spreads[] = {0.5, 4, 30, 1e4};
    for (int round = 0; round < 300; round++) {
        size_t n = round % 3 ? 1 + (size_t)(uniform() * MAX_VOCAB) : MAX_VOCAB;
        struct sampling sampling = sampling_defaults();
        sampling.top_p = ps[round % 6];
        sampling.top_k = ks[(size_t)(uniform() * 11)];
        sampling.seed = (uint64_t)round;
        double spread = spreads[round % 4];
        for (size_t i = 0; i < n; i++) {
            float l = (float)(spread * (uniform() + uniform() + uniform()));
            plain.logits[i] = round % 5 ? l : rintf(l);
        }
        plain_row(&plain, &sampling, n);
        int32_t id = -1;
        for (int level = 0; level <= (int)cpu_detect(); level++) {
            struct sample_input input = input_of(&sampling);
            input.kernels = kernels_get((enum cpu_level)level);
            memcpy(row, plain.logits, n * sizeof *row);
            struct draw draw = draw_input(&input, row, n);
            if (level == 0) memcpy(first, row, n * sizeof *row);
            if (level == 0) id = draw.id;
            assert_int_equal(draw.id, id);
            assert_memory_equal(row, first, n * sizeof *row);
        }
        assert_int_equal(n_left(first, n), plain.n);
        for (size_t i = 0; i < plain.n; i++) assert_true(first[plain.order[i]] == plain.sorted[i]);
        assert_true(first[id] > -INFINITY);
    }
}

/* Ids of many draws as one number: a change of it is a new version of the arithmetic. Logits and
 * settings are exact in any arithmetic. */
static void no_draw_changes_in_silence(void **state)
{
    static float row[MAX_VOCAB];
    uint64_t hash = 0xcbf29ce484222325u;
    seed = 2026;
    for (int round = 0; round < 400; round++) {
        size_t n = 1 + (size_t)(uniform() * 2000);
        struct sampling sampling = sampling_defaults();
        sampling.temperature = (float)(1 + round % 4) / 2;
        sampling.top_p = round % 3 ? 0.75f : 1;
        sampling.top_k = round % 5 ? 0 : 70;
        sampling.min_p = round % 7 ? 0 : 0x1p-9f;
        sampling.seed = 1234567890123456789u * (uint64_t)round;
        for (size_t i = 0; i < n; i++) row[i] = (float)(int)(1000 * uniform()) / 128;
        struct sample_input input = input_of(&sampling);
        input.n_output = (size_t)round;
        input.output_ids = (int32_t[]){0};
        input.choice = (uint64_t)(round % 2);
        hash = (hash ^ (uint64_t)draw_input(&input, row, n).id) * 0x100000001b3u;
    }
    assert_true(hash == 0x6c3ad53d55ba4ae8u);
}

/* Without masks the scores are head.c's: the same parts, joined in the same order. */
static void scores_of_a_whole_row(void **state)
{
    static float row[MAX_VOCAB], values[20];
    static int32_t ids[20];
    const struct kernels *kernels = kernels_get(CPU_REF);
    for (size_t i = 0; i < MAX_VOCAB; i++) row[i] = (float)(int)(uniform() * 4000) / 64;
    struct lse_part total = {0}, segment = {0};
    for (size_t i = 0; i < MAX_VOCAB; i += 64) {
        size_t n = MAX_VOCAB - i < 64 ? MAX_VOCAB - i : 64;
        struct lse_part part = kernels->lse_panel(row + i, n, false);
        segment = i % SEGMENT ? lse_combine(segment, part) : part;
        if (i + 64 >= MAX_VOCAB || (i + 64) % SEGMENT == 0)
            total = i < SEGMENT ? segment : lse_combine(total, segment);
    }
    struct row_lse lse = lse_finish(total);
    struct token_scores scores = {.n_top = 20, .top_ids = ids, .top_values = values};
    for (int32_t id = 0; id < MAX_VOCAB; id += 997) {
        scores.n_top = 20;
        token_scores(kernels, row, MAX_VOCAB, id, &scores);
        int32_t rank = 1;
        for (int32_t i = 0; i < MAX_VOCAB; i++)
            rank += row[i] > row[id] || (row[i] == row[id] && i < id);
        assert_true(scores.value == logprob_of(lse, row[id]) && scores.rank == rank);
        assert_true(scores.n_top == 20 && values[0] == logprob_of(lse, row[ids[0]]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(keys_in_the_order_of_logits),
        cmocka_unit_test(C057_numbers_out_of_range),
        cmocka_unit_test(C179_ids_outside_the_vocabulary),
        cmocka_unit_test(history_counts),
        cmocka_unit_test(masks_and_biases),
        cmocka_unit_test(C096_one_token_left_and_none),
        cmocka_unit_test(logits_that_are_not_finite),
        cmocka_unit_test(greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(boundaries_of_the_cuts),
        cmocka_unit_test(C054_raw_alternatives_under_top_p),
        cmocka_unit_test(cuts_equal_those_of_a_plain_sort),
        cmocka_unit_test(no_draw_changes_in_silence),
        cmocka_unit_test(scores_of_a_whole_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
