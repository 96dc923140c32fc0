/*
 * test_engine_share.c - what requests share: beginnings in a batch, pages of the cache, rows that
 * are asked again. Every answer is compared with one that was computed alone, bit for bit, and the
 * work is counted.
 */
#include "tinymodel.h"

#include "engine/engine.h"

#include <fenv.h>
#include <pthread.h>
#include <unistd.h>

#define N_TEXTS 24
#define MAX_TOKENS 200
#define N_TOP 5
#define K 4

/* Texts that leave each other at random places. */
struct texts {
    np_model *model;
    int32_t n_vocab, ids[N_TEXTS][MAX_TOKENS];
    size_t n[N_TEXTS];
    np_result right[N_TEXTS]; /* all wants, every row */
};

static uint32_t random_next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static np_request all_of(const struct texts *texts, size_t i)
{
    return (np_request){.token_ids = texts->ids[i],
                        .n_tokens = texts->n[i],
                        .next = 1,
                        .want = NP_WANT_LOGPROB | NP_WANT_RANK | NP_WANT_ENTROPY | NP_WANT_TAIL |
                                NP_WANT_MASS,
                        .top = N_TOP,
                        .candidate_ids = texts->ids[0],
                        .n_candidates = K};
}

static struct texts *open_texts(const char *path)
{
    struct texts *texts = mem_alloc(1, sizeof *texts);
    uint32_t seed = 11;
    np_error err;
    texts->model = open_model(path);
    texts->n_vocab = np_model_info(texts->model).n_vocab;
    size_t n_context = (size_t)np_model_info(texts->model).n_context;
    size_t most = n_context < MAX_TOKENS ? n_context : MAX_TOKENS;
    for (size_t i = 0; i < N_TEXTS; i++) {
        size_t from = i ? random_next(&seed) % i : 0;
        size_t same = i ? random_next(&seed) % (texts->n[from] + 1) : 0;
        texts->n[i] = same + random_next(&seed) % (most - same + 1);
        texts->n[i] += texts->n[i] == 0;
        memcpy(texts->ids[i], texts->ids[from], same * sizeof(int32_t));
        fill_ids(texts->ids[i] + same, texts->n[i] - same, texts->n_vocab, seed);
    }
    np_engine *engine = open_engine(texts->model, 1, 512);
    for (size_t i = 0; i < N_TEXTS; i++) {
        np_request request = all_of(texts, i);
        request.skip_reading_prefix_cache = 1;
        assert_int_equal(np_run(engine, &request, 1, &texts->right[i], NULL, NULL, &err), NP_OK);
        assert_int_equal(texts->right[i].n_computed, texts->n[i]);
    }
    assert_int_equal(np_engine_stats(engine).n_cached_pages, 0);
    np_engine_close(engine);
    return texts;
}

static void close_texts(struct texts *texts)
{
    for (size_t i = 0; i < N_TEXTS; i++) np_result_free(&texts->right[i]);
    np_model_close(texts->model);
    mem_free(texts);
}

/* A result of rows from `start` on, of whatever wants, against the rows of the whole. */
static void same_rows(const np_result *right, const np_result *got, size_t start)
{
    assert_int_equal(got->error.status, NP_OK);
    size_t n = got->n_rows, scored = got->n_scored;
    assert_true(start + n <= right->n_rows);
    if (got->logprobs) assert_memory_equal(got->logprobs, right->logprobs + start, scored * 4);
    if (got->ranks) assert_memory_equal(got->ranks, right->ranks + start, scored * 4);
    if (got->entropies) assert_memory_equal(got->entropies, right->entropies + start, n * 4);
    if (got->tail) assert_memory_equal(got->tail, right->tail + start, n * 4);
    if (got->mass) assert_memory_equal(got->mass, right->mass + start, n * 4);
    if (got->scores) assert_memory_equal(got->scores, right->scores + start * K, n * K * 4);
    if (got->top_ids) {
        assert_memory_equal(got->top_ids, right->top_ids + start * N_TOP, n * N_TOP * 4);
        assert_memory_equal(got->top_logprobs, right->top_logprobs + start * N_TOP, n * N_TOP * 4);
    }
}

/* A request for a random part of what all_of asks. */
static np_request some_of(const struct texts *texts, size_t i, uint32_t *seed)
{
    np_request request = all_of(texts, i);
    request.start = random_next(seed) % texts->n[i];
    request.next = (int)(random_next(seed) % 2);
    request.priority = (int32_t)(random_next(seed) % 3);
    uint32_t drop = random_next(seed);
    if (drop & 1) request.want &= ~(NP_WANT_RANK | NP_WANT_ENTROPY);
    if (drop & 2) request.want &= ~NP_WANT_MASS, request.top = 0;
    if (drop & 4)
        request.want &= ~NP_WANT_TAIL, request.candidate_ids = NULL, request.n_candidates = 0;
    if (drop & 8) request.want &= ~NP_WANT_LOGPROB;
    if (!request.candidate_ids) request.want |= NP_WANT_LOGPROB;
    if (random_next(seed) % 8 == 0) request.skip_reading_prefix_cache = 1;
    if (random_next(seed) % 8 == 0) request.cache_salt = "salt";
    return request;
}

/* C014, C016, C041, C042, C124, C126: random company, order, parts, salts and priorities; cuts,
 * threads; no cache, one that is always too small, one that holds all. */
static void C124_shared_is_equal_to_alone_C126(void **state)
{
    static const char *const paths[] = {TINY("llama-mixed.gguf"), TINY("qwen2-window77"),
                                        TINY("gpt2-plain")};
    static const size_t chunks[] = {1, 7, 16, 64, 512};
    for (size_t m = 0; m < 3; m++) {
        struct texts *texts = open_texts(paths[m]);
        uint32_t seed = (uint32_t)m + 1;
        for (size_t way = 0; way < 34; way++) {
            size_t cache = way % 3;
            np_engine *engine = open_engine_how(
                texts->model, (np_engine_options){.n_threads = 1 + (int)(way % 2),
                                                  .chunk_rows = chunks[way % 5],
                                                  .no_cache = cache == 0,
                                                  .cache_memory = cache == 1 ? 40000 : 0});
            for (size_t round = 0; round < 2; round++) {
                np_request requests[N_TEXTS];
                np_result results[N_TEXTS];
                size_t which[N_TEXTS];
                np_error err;
                size_t n = 1 + random_next(&seed) % N_TEXTS;
                for (size_t i = 0; i < n; i++) {
                    which[i] = random_next(&seed) % N_TEXTS;
                    requests[i] = some_of(texts, which[i], &seed);
                }
                assert_int_equal(np_run(engine, requests, n, results, NULL, NULL, &err), NP_OK);
                for (size_t i = 0; i < n; i++) {
                    same_rows(&texts->right[which[i]], &results[i], requests[i].start);
                    np_result_free(&results[i]);
                }
                np_stats stats = np_engine_stats(engine);
                assert_true(stats.n_cached_pages * stats.page_bytes <= stats.cache_bytes);
            }
            np_engine_close(engine);
        }
        close_texts(texts);
    }
}

/* Tokens that a request passes through the model. */
static size_t cost(np_engine *engine, np_request request)
{
    np_result result;
    np_error err;
    assert_int_equal(np_run(engine, &request, 1, &result, NULL, NULL, &err), NP_OK);
    assert_int_equal(result.error.status, NP_OK);
    size_t n = result.n_computed;
    np_result_free(&result);
    return n;
}

/* C124, C127: a context is computed once for all that goes on from it, in one step if it fits, and
 * later. */
static void C127_a_context_is_computed_once(void **state)
{
    enum { CONTEXT = 150, OWN = 5, N = 8 };
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    int32_t ids[N][CONTEXT + OWN], n_vocab = np_model_info(model).n_vocab;
    for (size_t chunk = 64; chunk <= 512; chunk *= 8) {
        np_engine *engine = open_engine(model, 2, chunk);
        np_request requests[N];
        np_result results[N];
        np_error err;
        for (size_t i = 0; i < N; i++) {
            fill_ids(ids[i], CONTEXT, n_vocab, 1);
            for (size_t k = 0; k < OWN; k++) ids[i][CONTEXT + k] = (int32_t)(i / 2 + k * (i % 2));
            requests[i] = (np_request){.token_ids = ids[i],
                                       .n_tokens = CONTEXT + OWN,
                                       .start = CONTEXT - 1,
                                       .want = NP_WANT_LOGPROB};
        }
        assert_int_equal(np_run(engine, requests, N, results, NULL, NULL, &err), NP_OK);
        size_t n_computed = 0;
        for (size_t i = 0; i < N; i++) n_computed += results[i].n_computed;
        /* Two and two have their first token in common. */
        assert_int_equal(n_computed, CONTEXT + N / 2 * (1 + 2 * (OWN - 2)));
        assert_int_equal(np_engine_stats(engine).n_computed, n_computed);
        if (chunk == 512) assert_int_equal(np_engine_stats(engine).n_steps, 1);
        for (size_t i = 0; i < N; i++) {
            np_request alone = requests[i];
            np_result right;
            alone.skip_reading_prefix_cache = 1;
            assert_int_equal(np_run(engine, &alone, 1, &right, NULL, NULL, &err), NP_OK);
            assert_memory_equal(right.logprobs, results[i].logprobs, OWN * sizeof(float));
            np_result_free(&right);
            np_result_free(&results[i]);
            assert_int_equal(cost(engine, requests[i]), 0);
        }
        np_engine_close(engine);
    }
    np_model_close(model);
}

/* C126: rows that were asked once answer other questions without the model; rows whose last layer
 * was skipped pass it alone; a salt, and who asks not to, find nothing. */
static void C126_rows_are_asked_again(void **state)
{
    enum { P = 130 };
    static const float temperature = 0.5f;
    np_model *model = open_model(TINY("llama-mixed.gguf"));
    np_engine *engine = open_engine(model, 2, 64);
    int32_t ids[P];
    fill_ids(ids, P, np_model_info(model).n_vocab, 3);
    np_request late = {.token_ids = ids, .n_tokens = P, .start = P - 10, .want = NP_WANT_LOGPROB};
    np_request all = {.token_ids = ids,
                      .n_tokens = P,
                      .want = NP_WANT_LOGPROB | NP_WANT_ENTROPY,
                      .candidate_ids = ids,
                      .n_candidates = 7};
    assert_int_equal(cost(engine, late), P - 1);
    assert_int_equal(cost(engine, all), P - 10); /* the rows before, each alone */
    assert_int_equal(cost(engine, all), 0);
    all.top = 3;
    all.score_temperature = &temperature;
    assert_int_equal(cost(engine, all), 0);
    all.next = 1;
    assert_int_equal(cost(engine, all), 1); /* the last token was never needed */
    all.cache_salt = "another";
    assert_int_equal(cost(engine, all), P);
    assert_int_equal(cost(engine, all), 0);
    all.skip_reading_prefix_cache = 1;
    assert_int_equal(cost(engine, all), P);
    np_engine_clear_cache(engine);
    all.skip_reading_prefix_cache = 0;
    assert_int_equal(cost(engine, all), P);
    np_engine_close(engine);
    np_model_close(model);
}

/* Memory for one long text: many run in it, some give way and begin again, to the same bits. What
 * they gave up may be what others leave in its middle, and without a cache nobody else keeps it. */
static void preempted_jobs_begin_again_how(bool no_cache)
{
    struct texts *texts = open_texts(TINY("llama-tied-f32.gguf"));
    np_engine_options options = {
        .n_threads = 1, .n_context = MAX_TOKENS, .max_memory = 1, .no_cache = no_cache};
    np_engine *engine;
    np_request requests[N_TEXTS];
    np_result results[N_TEXTS];
    np_error err;
    uint64_t n_preempted = 0;
    assert_int_equal(np_engine_open(texts->model, &options, &engine, &err), NP_ELIMIT);
    for (size_t chunk = 16; chunk <= 512; chunk *= 2) {
        options.chunk_rows = chunk;
        options.max_memory = 1;
        assert_int_equal(np_engine_open(texts->model, &options, &engine, &err), NP_ELIMIT);
        options.max_memory = strtoull(strrchr(err.message, '=') + 1, NULL, 10);
        assert_int_equal(np_engine_open(texts->model, &options, &engine, &err), NP_OK);
        np_ticket *tickets[N_TEXTS];
        for (size_t i = 0; i < N_TEXTS; i++) {
            requests[i] = all_of(texts, i);
            assert_int_equal(np_submit(engine, &requests[i], 1, NULL, NULL, &tickets[i], &err),
                             NP_OK);
        }
        for (size_t i = 0; i < N_TEXTS; i++) {
            assert_int_equal(np_wait(tickets[i], &results[i], &err), NP_OK);
            same_rows(&texts->right[i], &results[i], 0);
            np_result_free(&results[i]);
        }
        n_preempted += np_engine_stats(engine).n_preempted;
        np_engine_close(engine);
    }
    assert_true(n_preempted > 0);
    close_texts(texts);
}

static void preempted_jobs_begin_again(void **state)
{
    preempted_jobs_begin_again_how(false);
    preempted_jobs_begin_again_how(true);
}

/* ---- many callers ---------------------------------------------------------------------------- */

#define N_THREADS 4
#define N_EACH 250

struct crowd {
    const struct texts *texts;
    np_engine *engine;
    uint32_t seed;
    size_t n_ok, n_cancelled, n_late;
};
struct listener {
    size_t n_rows, n_finished;
};

static void listen_rows(void *user, size_t request, const np_result *result, size_t n_rows,
                        int finished)
{
    struct listener *listener = user;
    assert_true(finished || n_rows >= listener->n_rows);
    assert_int_equal(listener->n_finished, 0);
    listener->n_rows = n_rows;
    listener->n_finished += finished != 0;
    if (finished && result->error.status == NP_OK) assert_int_equal(n_rows, result->n_rows);
}

/* Cancels, deadlines and plain waits at random; each is answered once, rightly or with its reason.
 * */
static void *crowd_member(void *user)
{
    struct crowd *crowd = user;
    for (size_t i = 0; i < N_EACH; i++) {
        uint32_t how = random_next(&crowd->seed) % 4;
        size_t which = random_next(&crowd->seed) % N_TEXTS;
        np_request request = some_of(crowd->texts, which, &crowd->seed);
        struct listener listener = {0};
        np_ticket *ticket;
        np_result result;
        np_error err;
        if (how == 1) request.timeout_ms = 1;
        assert_int_equal(
            np_submit(crowd->engine, &request, 1, listen_rows, &listener, &ticket, &err), NP_OK);
        if (how == 2) {
            usleep(random_next(&crowd->seed) % 2000);
            np_cancel(ticket);
        }
        np_status status = np_wait(ticket, &result, &err);
        assert_int_equal(listener.n_finished, 1);
        if (status == NP_OK) same_rows(&crowd->texts->right[which], &result, request.start);
        if (status == NP_ECANCELLED) assert_int_equal(how, 2);
        if (status == NP_ETIMEOUT) assert_int_equal(how, 1);
        crowd->n_ok += status == NP_OK;
        crowd->n_cancelled += status == NP_ECANCELLED;
        crowd->n_late += status == NP_ETIMEOUT;
        np_result_free(&result);
    }
    return NULL;
}

/* C012, C191, C192: from several threads at once. */
static void C191_no_answer_is_lost_or_doubled_C192(void **state)
{
    struct texts *texts = open_texts(TINY("llama-tied-f32.gguf"));
    np_engine *engine = open_engine(texts->model, 2, 16);
    struct crowd crowds[N_THREADS];
    pthread_t threads[N_THREADS];
    size_t n = 0;
    for (size_t t = 0; t < N_THREADS; t++) {
        crowds[t] = (struct crowd){texts, engine, (uint32_t)t + 5, 0, 0, 0};
        assert_int_equal(pthread_create(&threads[t], NULL, crowd_member, &crowds[t]), 0);
    }
    for (size_t t = 0; t < N_THREADS; t++) {
        pthread_join(threads[t], NULL);
        n += crowds[t].n_ok + crowds[t].n_cancelled + crowds[t].n_late;
    }
    assert_int_equal(n, N_THREADS * N_EACH);
    np_stats stats = np_engine_stats(engine);
    assert_int_equal(stats.n_running + stats.n_waiting, 0);
    assert_int_equal(stats.n_pages >= stats.n_cached_pages, 1);
    np_engine_close(engine);
    close_texts(texts);
}

/* ---- whose turn it is ------------------------------------------------------------------------ */

#define N_SHORT 8

/* The order in which requests end, as the engine's thread tells it. */
struct order {
    size_t n_ended, at_end[N_SHORT + 1];
};
struct runner {
    struct order *order;
    size_t number;
};

static void note_order(void *user, size_t request, const np_result *result, size_t n_rows,
                       int finished)
{
    struct runner *runner = user;
    if (finished) runner->order->at_end[runner->number] = runner->order->n_ended++;
}

/* C012, C099: short requests that come while a long one runs have their share of every step; the
 * long one has its own. With a lower number it goes before them all. */
static void C099_short_requests_do_not_wait_for_long_ones_C012(void **state)
{
    enum { LONG = 500, SHORT = 16, ROWS = 16 };
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    static int32_t ids[N_SHORT + 1][LONG];
    for (int first = 0; first < 2; first++) {
        np_engine *engine = open_engine(model, 1, ROWS);
        struct order order = {0};
        struct runner runners[N_SHORT + 1];
        np_ticket *tickets[N_SHORT + 1];
        np_error err;
        for (size_t i = 0; i <= N_SHORT; i++) {
            size_t n = i ? SHORT : LONG;
            fill_ids(ids[i], n, np_model_info(model).n_vocab, (uint32_t)i);
            runners[i] = (struct runner){&order, i};
            np_request request = {.token_ids = ids[i],
                                  .n_tokens = n,
                                  .next = 1,
                                  .want = NP_WANT_LOGPROB,
                                  .priority = i || !first ? 0 : -1};
            assert_int_equal(
                np_submit(engine, &request, 1, note_order, &runners[i], &tickets[i], &err), NP_OK);
        }
        for (size_t i = 0; i <= N_SHORT; i++)
            assert_int_equal(np_wait(tickets[i], NULL, &err), NP_OK);
        if (first) assert_int_equal(order.at_end[0], 0);
        for (size_t i = 1; i <= N_SHORT && !first; i++)
            assert_true(order.at_end[i] < order.at_end[0]);
        np_engine_close(engine);
    }
    np_model_close(model);
}

/* A callback that leaves another rounding mode behind changes nothing: not for steps of one row
 * either, which no other thread computes. */
static void round_upward(void *user, size_t request, const np_result *result, size_t n_rows,
                         int finished)
{
    fesetround(FE_UPWARD);
}

static void a_callback_changes_no_bit(void **state)
{
    struct texts *texts = open_texts(TINY("llama-tied-f32.gguf"));
    for (size_t chunk = 1; chunk <= 64; chunk *= 64) {
        np_engine *engine = open_engine(texts->model, 1, chunk);
        for (size_t i = 0; i < N_TEXTS; i++) {
            np_request request = all_of(texts, i);
            np_ticket *ticket;
            np_result result;
            np_error err;
            assert_int_equal(np_submit(engine, &request, 1, round_upward, NULL, &ticket, &err),
                             NP_OK);
            assert_int_equal(np_wait(ticket, &result, &err), NP_OK);
            same_rows(&texts->right[i], &result, 0);
            np_result_free(&result);
        }
        np_engine_close(engine);
    }
    close_texts(texts);
}

/* What is still there when an engine closes is told so. */
static void closing_ends_what_runs(void **state)
{
    struct texts *texts = open_texts(TINY("gpt2-plain"));
    np_engine *engine = open_engine(texts->model, 1, 1);
    np_ticket *tickets[N_TEXTS];
    np_request requests[N_TEXTS];
    np_error err;
    for (size_t i = 0; i < N_TEXTS; i++) {
        requests[i] = all_of(texts, i);
        assert_int_equal(np_submit(engine, &requests[i], 1, NULL, NULL, &tickets[i], &err), NP_OK);
    }
    np_engine_close(engine);
    for (size_t i = 0; i < N_TEXTS; i++) {
        np_result result;
        np_status status = np_wait(tickets[i], &result, &err);
        assert_true(status == NP_OK || status == NP_ECANCELLED);
        np_result_free(&result);
    }
    close_texts(texts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C124_shared_is_equal_to_alone_C126),
        cmocka_unit_test(C127_a_context_is_computed_once),
        cmocka_unit_test(C126_rows_are_asked_again),
        cmocka_unit_test(preempted_jobs_begin_again),
        cmocka_unit_test(C191_no_answer_is_lost_or_doubled_C192),
        cmocka_unit_test(C099_short_requests_do_not_wait_for_long_ones_C012),
        cmocka_unit_test(a_callback_changes_no_bit),
        cmocka_unit_test(closing_ends_what_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
