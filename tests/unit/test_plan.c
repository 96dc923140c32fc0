/* test_plan.c - what a request becomes: rows and wanted ids, or an error with its place. */
#include "score/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define N_VOCAB 100
#define N_CONTEXT 16

static const int32_t prompt[N_CONTEXT + 1] = {5, 99, 0, 17, 17, 3, 42, 8, 1};

struct fixture {
    struct arena arena;
    struct plan plan;
    np_error err;
};

static int setup(void **state)
{
    static struct fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    arena_init(&fixture.arena, 1 << 20);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    arena_free(&((struct fixture *)*state)->arena);
    return 0;
}

static np_status init(struct fixture *f, const np_request *request, size_t n_tokens)
{
    return plan_init(&f->plan, request, prompt, n_tokens, N_VOCAB, N_CONTEXT, &f->arena, &f->err);
}

/* The request fails with this status, at this place, and the text has both fragments. */
static void refuse(struct fixture *f, const np_request *request, size_t n_tokens, np_status status,
                   const char *where, const char *given, const char *text)
{
    char line[640];
    assert_int_equal(init(f, request, n_tokens), status);
    assert_int_equal(f->err.status, status);
    assert_string_equal(f->err.where, where);
    np_error_line(&f->err, line, sizeof line);
    if (!strstr(f->err.given, given) || !strstr(line, text)) fail_msg("%s", line);
}

static void rows_of_every_start_C002(void **state)
{
    struct fixture *f = *state;
    for (size_t P = 1; P <= 9; P++)
        for (size_t start = 0; start <= P + 1; start++)
            for (int next = 0; next < 2; next++) {
                np_request request = {.start = start, .next = next};
                assert_int_equal(init(f, &request, P), NP_OK);
                size_t scored = P - 1 > start ? P - 1 - start : 0;
                assert_int_equal(f->plan.n_scored, scored);
                assert_int_equal(f->plan.n_rows, scored + (size_t)next);
                assert_int_equal(f->plan.start, next && start > P - 1 ? P - 1 : start);
            }
    np_request far = {.start = SIZE_MAX, .next = 1};
    assert_int_equal(init(f, &far, 9), NP_OK);
    assert_int_equal(f->plan.n_rows, 1);
    assert_int_equal(f->plan.start, 8);
}

/* Token scores from a row past the ids: an error that names both numbers, never a short list. */
static void scores_past_the_end_C017(void **state)
{
    struct fixture *f = *state;
    np_request request = {.start = 8, .want = NP_WANT_LOGPROB};
    assert_int_equal(init(f, &request, 9), NP_OK);
    assert_int_equal(f->plan.n_rows, 0);
    request.start = 9;
    assert_int_equal(init(f, &request, 9), NP_EINPUT);
    assert_non_null(strstr(f->err.message, "9 tokens: a row from 0 to 8"));
    assert_string_equal(f->err.given, "9");
}

/* The last row scores the token that is not given: 4 ids have 3 scored rows, one id has none. */
static void last_row_scores_no_given_token_C001(void **state)
{
    struct fixture *f = *state;
    np_request request = {.want = NP_WANT_LOGPROB, .next = 1};
    assert_int_equal(init(f, &request, 4), NP_OK);
    assert_int_equal(f->plan.n_scored, 3);
    assert_int_equal(f->plan.n_rows, 4);
    assert_int_equal(init(f, &request, 1), NP_OK);
    assert_int_equal(f->plan.n_scored, 0);
    assert_int_equal(f->plan.n_rows, 1);
}

/* A context of 5 tokens and one label token: start 4 gives one row, the label's. */
static void one_row_per_label_token_C004(void **state)
{
    struct fixture *f = *state;
    np_request request = {.want = NP_WANT_LOGPROB, .start = 4};
    assert_int_equal(init(f, &request, 6), NP_OK);
    assert_int_equal(f->plan.n_rows, 1);
    assert_int_equal(f->plan.n_scored, 1);
}

static void flat_candidates_are_sorted_once_C119(void **state)
{
    struct fixture *f = *state;
    static const int32_t ids[] = {42, 0, 99, 42, 7};
    static const struct wanted_id sorted[] = {{0, 1}, {7, 4}, {42, 0}, {42, 3}, {99, 2}};
    np_request request = {.candidate_ids = ids, .n_candidates = 5, .want = NP_WANT_TAIL};
    assert_int_equal(init(f, &request, 9), NP_OK);
    assert_false(f->plan.per_row);
    assert_int_equal(f->plan.n_candidates, 5);
    assert_int_equal(f->plan.n_rows, 8);
    assert_memory_equal(f->plan.wanted, sorted, sizeof sorted);
    request.start = 8; /* past the end: no rows, no error */
    assert_int_equal(init(f, &request, 9), NP_OK);
    assert_int_equal(f->plan.n_rows, 0);
    request.start = 7;
    assert_int_equal(init(f, &request, 9), NP_OK);
    assert_int_equal(f->plan.n_rows, 1);
}

static void nested_candidates_C119(void **state)
{
    struct fixture *f = *state;
    static const int32_t ids[] = {9, 3, -1, -1, -1, -1, 99, 99, 0};
    static const struct wanted_id sorted[] = {{-1, 2}, {3, 1}, {9, 0},  {-1, 0}, {-1, 1},
                                              {-1, 2}, {0, 2}, {99, 0}, {99, 1}};
    np_request request = {.candidate_ids = ids, .n_candidates = 3, .n_candidate_rows = 3};
    assert_int_equal(init(f, &request, 4), NP_OK);
    assert_true(f->plan.per_row);
    assert_memory_equal(f->plan.wanted, sorted, sizeof sorted);
    assert_ptr_equal(f->plan.candidate_ids, ids);
    request.next = 1;
    refuse(f, &request, 4, NP_EINPUT, "candidate_ids", "3", "rows expected: 4 ");
    assert_int_equal(init(f, &request, 3), NP_OK);
    request.next = 0;
    refuse(f, &request, 5, NP_EINPUT, "candidate_ids", "3", "rows expected: 4 ");
    request.start = 9;
    refuse(f, &request, 4, NP_EINPUT, "candidate_ids", "3", "rows expected: 0 ");
}

static void tokens_out_of_range(void **state)
{
    struct fixture *f = *state;
    np_request request = {0};
    refuse(f, &request, 0, NP_EINPUT, "token_ids", "", "at least one token");
    refuse(f, &request, N_CONTEXT + 1, NP_ELIMIT, "token_ids", "17",
           "17 tokens do not fit the context of 16");
    assert_int_equal(init(f, &request, N_CONTEXT), NP_OK);
    static const int32_t bad[] = {N_VOCAB, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int32_t ids[] = {0, 1, bad[i], -7};
        char given[16];
        snprintf(given, sizeof given, "%d", bad[i]);
        assert_int_equal(
            plan_init(&f->plan, &request, ids, 4, N_VOCAB, N_CONTEXT, &f->arena, &f->err),
            NP_EINPUT);
        assert_string_equal(f->err.where, "token_ids[2]");
        assert_string_equal(f->err.given, given);
        assert_non_null(strstr(f->err.message, "0 to 99 (vocabulary 100)"));
    }
    assert_int_equal(plan_init(&f->plan, &request, NULL, 4, N_VOCAB, N_CONTEXT, &f->arena, &f->err),
                     NP_EINPUT);
    assert_int_equal(plan_init(&f->plan, &request, NULL, 0, N_VOCAB, N_CONTEXT, &f->arena, NULL),
                     NP_EINPUT);
}

/* Each bad id is named with its row, its column and the vocabulary. */
static void bad_candidates_C177(void **state)
{
    struct fixture *f = *state;
    int32_t ids[] = {1, 2, 3, 4, 5, 6};
    np_request flat = {.candidate_ids = ids, .n_candidates = 6};
    np_request nested = {.candidate_ids = ids, .n_candidates = 2, .n_candidate_rows = 3};
    static const int32_t bad[] = {N_VOCAB, -2, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ids[5] = bad[i];
        refuse(f, &flat, 4, NP_EINPUT, "candidate_ids[5]", "",
               "row 0, column 5: an id must lie in 0 to 99");
        refuse(f, &nested, 4, NP_EINPUT, "candidate_ids[2][1]", "", "row 2, column 1");
        refuse(f, &nested, 4, NP_EINPUT, "candidate_ids[2][1]", "", "(vocabulary 100), or be -1");
    }
    ids[5] = N_VOCAB - 1;
    assert_int_equal(init(f, &flat, 4), NP_OK);
    assert_int_equal(init(f, &nested, 4), NP_OK);
    ids[5] = -1;
    refuse(f, &flat, 4, NP_EINPUT, "candidate_ids[5]", "-1", "column 5");
    assert_int_equal(init(f, &nested, 4), NP_OK);

    for (size_t i = 0; i < 6; i++) ids[i] = -1;
    refuse(f, &nested, 4, NP_EINPUT, "candidate_ids", "", "all 3 rows are empty");
    np_request empty = {.candidate_ids = ids};
    refuse(f, &empty, 4, NP_EINPUT, "candidate_ids", "", "at least one id");
    np_request empty_rows = {.candidate_ids = ids, .n_candidate_rows = 3};
    refuse(f, &empty_rows, 4, NP_EINPUT, "candidate_ids", "", "at least one id");
    np_request missing = {.n_candidates = 3};
    refuse(f, &missing, 4, NP_EINPUT, "candidate_ids", "", "missing");
    np_request missing_rows = {.n_candidate_rows = 3};
    refuse(f, &missing_rows, 4, NP_EINPUT, "candidate_ids", "", "missing");
    np_request huge = {.candidate_ids = ids, .n_candidates = SIZE_MAX / 2};
    refuse(f, &huge, 4, NP_ELIMIT, "candidate_ids", "", "above what can be addressed");
    np_request big = {.candidate_ids = ids, .n_candidates = (size_t)INT32_MAX};
    assert_int_equal(init(f, &big, 4), NP_ENOMEM);
}

static void score_temperature_C057(void **state)
{
    struct fixture *f = *state;
    static const float bad[] = {0.0f, -0.0f, -1.0f, NAN, INFINITY, -INFINITY};
    static const float good[] = {0.5f, 2.0f, 1e-45f, 3e38f};
    np_request request = {0};
    assert_int_equal(init(f, &request, 4), NP_OK);
    assert_true(f->plan.temperature == 1.0f);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        request.score_temperature = &bad[i];
        refuse(f, &request, 4, NP_EINPUT, "score_temperature", "",
               "must be a finite number above 0");
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        request.score_temperature = &good[i];
        assert_int_equal(init(f, &request, 4), NP_OK);
        assert_true(f->plan.temperature == good[i]);
    }
}

static void top_and_wants(void **state)
{
    struct fixture *f = *state;
    static const struct {
        int32_t top;
        size_t n_top;
    } tops[] = {
        {0, 0},       {1, 1}, {N_VOCAB, N_VOCAB}, {N_VOCAB + 1, N_VOCAB}, {INT32_MAX, N_VOCAB},
        {-1, N_VOCAB}};
    for (size_t i = 0; i < sizeof tops / sizeof tops[0]; i++) {
        np_request request = {.top = tops[i].top};
        assert_int_equal(init(f, &request, 4), NP_OK);
        assert_int_equal(f->plan.n_top, tops[i].n_top);
    }
    np_request request = {.top = -2};
    refuse(f, &request, 4, NP_EINPUT, "top", "-2", "-1 (the whole vocabulary)");
    request = (np_request){.want = NP_WANT_MASS};
    refuse(f, &request, 4, NP_EINPUT, "want", "", "needs top");
    request = (np_request){.want = NP_WANT_TAIL};
    refuse(f, &request, 4, NP_EINPUT, "want", "", "needs candidate_ids");
    request = (np_request){.want = 32};
    refuse(f, &request, 4, NP_EINPUT, "want", "0x20", "known");
    request = (np_request){.logprobs_mode = (np_logprobs_mode)2};
    refuse(f, &request, 4, NP_EINPUT, "logprobs_mode", "2", "raw_logits");
    request = (np_request){.logprobs_mode = NP_RAW_LOGITS};
    assert_int_equal(init(f, &request, 4), NP_OK);
    assert_true(f->plan.logits);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(rows_of_every_start_C002),
        CASE(scores_past_the_end_C017),
        CASE(last_row_scores_no_given_token_C001),
        CASE(one_row_per_label_token_C004),
        CASE(flat_candidates_are_sorted_once_C119),
        CASE(nested_candidates_C119),
        CASE(tokens_out_of_range),
        CASE(bad_candidates_C177),
        CASE(score_temperature_C057),
        CASE(top_and_wants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
