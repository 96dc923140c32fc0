/* test_score_cases.c - single rows whose right answer can be read off: ranks, ties, modes,
 * remaining mass. */
#include "test_score_world.h"

/* One row with chosen logits, answered. */
static float *answer_logits(struct world *w, const float *logits, size_t V, int32_t target,
                            const np_request *request)
{
    world_init(w, V, 2, EQUAL);
    memcpy(w->logits, logits, V * sizeof *logits);
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

/* Candidates that are the whole vocabulary leave nothing, whatever the rounding of their sum; with
 * one missing (and another twice) it is the missing one that remains. */
static void tail_of_the_whole_vocabulary(void **state)
{
    struct world w;
    world_init(&w, 300, 3, TIES);
    int32_t ids[300];
    for (int32_t i = 0; i < 300; i++) ids[i] = (i * 7) % 300;
    np_request request = {.candidate_ids = ids, .n_candidates = 300};
    world_plan(&w, &request);
    float *out = answer(&w, plain);
    for (size_t r = 0; r < 3; r++) assert_true(*world_row(&w, r, out).tail == -INFINITY);
    float missing = world_row(&w, 1, out).scores[299];
    check(&w, out);
    ids[299] = ids[0];
    world_plan(&w, &request);
    out = answer(&w, plain);
    assert_true(fabs(*world_row(&w, 1, out).tail - missing) < 1e-5);
    check(&w, out);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_before_the_softmax_C056),
        cmocka_unit_test(ranks_of_distinct_logits_C061),
        cmocka_unit_test(chosen_token_on_top_C062),
        cmocka_unit_test(ties_by_lower_id),
        cmocka_unit_test(logits_only_when_asked_for_C069),
        cmocka_unit_test(tail_of_the_whole_vocabulary),
        cmocka_unit_test(top_and_mass_make_one_C121),
        cmocka_unit_test(nested_rows_padding_and_duplicates_C119),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
