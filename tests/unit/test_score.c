/* test_score.c - the answers of the head against plain loops, and their bits in every way of work.
 * */
#include "test_score_world.h"

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
    world_matrix(&w, w.V, weights);
    float *bias = arena_push_array(&w.arena, w.V, sizeof *bias);
    for (size_t i = 0; i < w.V; i++) bias[i] = (float)uniform();
    w.head.bias = bias;
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

/* What comes of combining two sums with their maxima, a before b. */
static void declared_add(double *m, double *S, double mp, double Sp)
{
    if (mp > *m) {
        *S = *S * exp64(*m - mp) + Sp;
        *m = mp;
    } else {
        *S = *S + Sp * exp64(mp - *m);
    }
}

static double declared_panel(const float *logits, size_t n, double *m)
{
    double lanes[16] = {0};
    *m = logits[0];
    for (size_t c = 1; c < n; c++) *m = logits[c] > *m ? logits[c] : *m;
    for (size_t c = 0; c < n; c++) lanes[c % 16] += exp64(logits[c] - *m);
    for (size_t half = 8; half; half /= 2)
        for (size_t c = 0; c < half; c++) lanes[c] += lanes[c + half];
    return lanes[0];
}

/* The order of docs/NUMERICS.md, item 7, in plain loops: panels of 64 in segments of 4,096, then
 * segments. */
static float declared_logprob(const float *logits, size_t V, size_t id)
{
    double m = 0, S = 0, segment_m = 0, segment_S = 0, mp;
    for (size_t i = 0; i < V; i += 64) {
        double Sp = declared_panel(logits + i, V - i < 64 ? V - i : 64, &mp);
        if (i % 4096) {
            declared_add(&segment_m, &segment_S, mp, Sp);
        } else {
            segment_m = mp;
            segment_S = Sp;
        }
        if ((i + 64) % 4096 && i + 64 < V) continue;
        if (i >= 4096) {
            declared_add(&m, &S, segment_m, segment_S);
        } else {
            m = segment_m;
            S = segment_S;
        }
    }
    return (float)((logits[id] - m) - log64(S));
}

/* The log-probability of a nearly certain token is -log(1 + a little): there f32 shows the bits of
 * S, and with them any other order of addition. */
static void sums_in_the_declared_order(void **state)
{
    struct world w;
    world_init(&w, 21000, 24, EQUAL);
    for (size_t r = 0; r < 24; r++) {
        w.ids[r] = (int32_t)(r * 875);
        for (size_t v = 0; v < 21000; v++) w.logits[r * 21000 + v] = (float)(-36 + 6 * uniform());
        if (r + 1 < 24) w.logits[r * 21000 + (r + 1) * 875] = 0;
    }
    world_head(&w, 3);
    world_plan(&w, &(np_request){.want = NP_WANT_LOGPROB});
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        float *out = answer(&w, (struct way){n_threads, cpu_detect(), 24, 24, 0, false});
        for (size_t r = 0; r + 1 < 24; r++) {
            struct head_row row = world_row(&w, r, out);
            float right = declared_logprob(w.logits + r * 21000, 21000, (size_t)row.target);
            assert_memory_equal(row.logprob, &right, sizeof right);
        }
        free(out);
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

/* C107: the same for every block of rows and length of list; what grows with the vocabulary is less
 * than a 256th of the logits. */
static void work_space_is_bounded_and_checked(void **state)
{
    size_t most = head_space_bytes(262144, 576, 128, 100, 2);
    assert_true(most <= 2 * 1200 * 1024);
    assert_int_equal(head_space_bytes(262144, 576, 100000, 100, 2), most);
    size_t half = head_space_bytes(131072, 576, 128, 100, 2);
    assert_true(most - half <= 128 * 131072 * sizeof(float) / 256);
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
        cmocka_unit_test(same_bits_for_threads_groups_and_levels),
        cmocka_unit_test(true_token_has_the_bits_of_its_candidate),
        cmocka_unit_test(sums_in_the_declared_order),
        cmocka_unit_test(logit_that_is_not_finite_names_its_id),
        cmocka_unit_test(work_space_is_bounded_and_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
