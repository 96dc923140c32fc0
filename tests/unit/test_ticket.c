/*
 * test_ticket.c - several requests in one ticket: each is told of by its place and finished once,
 * with the bits that it has alone; together they are one caller.
 */
#include "tinymodel.h"

#include <pthread.h>
#include <stdbool.h>

#define N 12
#define P 90
#define K 4

struct asked {
    np_model *model;
    int32_t ids[N][P];
    np_request requests[N];
    np_result right[N];
};

static void same_answer(const np_result *right, const np_result *got)
{
    assert_int_equal(got->error.status, NP_OK);
    assert_int_equal(got->n_rows, right->n_rows);
    assert_memory_equal(got->logprobs, right->logprobs, right->n_scored * sizeof(float));
    assert_memory_equal(got->scores, right->scores, right->n_rows * K * sizeof(float));
}

/* Every third of them is continued, in two ways. */
static struct asked *open_asked(void)
{
    static const uint64_t seed = 5;
    static const np_sampling sampling = {.n = 2, .seed = &seed, .ignore_eos = 1};
    struct asked *asked = mem_alloc(1, sizeof *asked);
    np_error err;
    asked->model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *engine = open_engine(asked->model, 1, 512);
    for (size_t i = 0; i < N; i++) {
        fill_ids(asked->ids[i], P, np_model_info(asked->model).n_vocab, (uint32_t)i);
        asked->requests[i] = (np_request){.token_ids = asked->ids[i],
                                          .n_tokens = P - 5 * i,
                                          .want = NP_WANT_LOGPROB,
                                          .candidate_ids = asked->ids[0],
                                          .n_candidates = K,
                                          .max_tokens = i % 3 ? 0 : 9,
                                          .sampling = i % 3 ? NULL : &sampling};
    }
    assert_int_equal(np_run(engine, asked->requests, N, asked->right, NULL, NULL, &err), NP_OK);
    np_engine_close(engine);
    return asked;
}

static void close_asked(struct asked *asked)
{
    for (size_t i = 0; i < N; i++) np_result_free(&asked->right[i]);
    np_model_close(asked->model);
    mem_free(asked);
}

static void same_answers(const struct asked *asked, const np_result *results, size_t but)
{
    for (size_t i = 0; i < N; i++) {
        if (i == but) continue;
        same_answer(&asked->right[i], &results[i]);
        assert_int_equal(results[i].n_choices, i % 3 ? 0 : 2);
        for (size_t c = 0; c < results[i].n_choices; c++)
            assert_memory_equal(results[i].choices[c].token_ids,
                                asked->right[i].choices[c].token_ids, 9 * sizeof(int32_t));
    }
}

/* ---- the engine's thread is held until all is prepared ------------------------------------- */

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool held, open;
    np_ticket *ticket;
};

static void hold(void *user, size_t request, const np_result *result, size_t n_rows, int finished)
{
    struct gate *gate = user;
    pthread_mutex_lock(&gate->lock);
    gate->held = true;
    pthread_cond_broadcast(&gate->news);
    while (!gate->open) pthread_cond_wait(&gate->news, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static void gate_close(struct gate *gate, np_engine *engine)
{
    static const int32_t one = 1;
    np_request request = {.token_ids = &one, .n_tokens = 1, .next = 1, .want = NP_WANT_ENTROPY};
    np_error err;
    *gate = (struct gate){.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};
    assert_int_equal(np_submit(engine, &request, 1, hold, gate, &gate->ticket, &err), NP_OK);
    pthread_mutex_lock(&gate->lock);
    while (!gate->held) pthread_cond_wait(&gate->news, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static void gate_open(struct gate *gate)
{
    np_error err;
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->news);
    pthread_mutex_unlock(&gate->lock);
    assert_int_equal(np_wait(gate->ticket, NULL, &err), NP_OK);
}

/* ---- what is told -------------------------------------------------------------------------- */

struct told {
    size_t n_rows[N], n_finished[N], n_calls, n_ended;
    np_ticket *cancels; /* at the first that is finished */
    pthread_mutex_t lock;
};

static void tell(void *user, size_t request, const np_result *result, size_t n_rows, int finished)
{
    struct told *told = user;
    assert_true(request < N);
    assert_int_equal(told->n_finished[request], 0);
    assert_true(finished || n_rows >= told->n_rows[request]);
    told->n_rows[request] = n_rows;
    told->n_finished[request] += finished != 0;
    told->n_ended += finished != 0;
    told->n_calls++;
    if (finished && result->error.status == NP_OK) assert_int_equal(n_rows, result->n_rows);
    pthread_mutex_lock(&told->lock);
    if (finished) np_cancel(told->cancels);
    pthread_mutex_unlock(&told->lock);
}

/* C192: each is finished once; one whose time is over harms no other. */
static void C192_each_has_its_answer(void **state)
{
    enum { LATE = 4 };
    struct asked *asked = open_asked();
    for (size_t chunk = 1; chunk <= 512; chunk *= 8) {
        np_engine *engine = open_engine(asked->model, 2, chunk);
        struct told told = {.lock = PTHREAD_MUTEX_INITIALIZER};
        struct gate gate;
        np_ticket *ticket;
        np_result results[N];
        np_error err;
        gate_close(&gate, engine);
        asked->requests[LATE].timeout_ms = 1;
        assert_int_equal(np_submit(engine, asked->requests, N, tell, &told, &ticket, &err), NP_OK);
        usleep(3000);
        gate_open(&gate);
        assert_int_equal(np_wait(ticket, results, &err), NP_ETIMEOUT);
        assert_int_equal(err.status, NP_ETIMEOUT);
        assert_int_equal(results[LATE].error.status, NP_ETIMEOUT);
        assert_null(results[LATE].logprobs);
        same_answers(asked, results, LATE);
        assert_int_equal(told.n_ended, N);
        assert_true(told.n_calls > N); /* those that go on are told of by steps */
        for (size_t i = 0; i < N; i++) np_result_free(&results[i]);
        np_engine_close(engine);
    }
    close_asked(asked);
}

static void cancelling_ends_all_that_is_not_done(void **state)
{
    struct asked *asked = open_asked();
    for (int from_within = 0; from_within < 2; from_within++) {
        np_engine *engine = open_engine(asked->model, 1, 16);
        struct told told = {.lock = PTHREAD_MUTEX_INITIALIZER};
        struct gate gate;
        np_ticket *ticket;
        np_result results[N];
        np_error err;
        size_t n_done = 0;
        gate_close(&gate, engine);
        assert_int_equal(np_submit(engine, asked->requests, N, tell, &told, &ticket, &err), NP_OK);
        pthread_mutex_lock(&told.lock);
        told.cancels = from_within ? ticket : NULL;
        pthread_mutex_unlock(&told.lock);
        assert_false(np_poll(ticket, 0));
        assert_false(np_poll(ticket, 3));
        if (!from_within) np_cancel(ticket);
        gate_open(&gate);
        while (!np_poll(ticket, 1)) continue;
        assert_true(np_poll(ticket, -1) && np_poll(ticket, 0));
        assert_int_equal(np_wait(ticket, results, &err), NP_ECANCELLED);
        for (size_t i = 0; i < N; i++) {
            n_done += results[i].error.status == NP_OK;
            if (results[i].error.status == NP_OK)
                same_answer(&asked->right[i], &results[i]);
            else
                assert_int_equal(results[i].error.status, NP_ECANCELLED);
            np_result_free(&results[i]);
        }
        assert_int_equal(told.n_ended, N);
        if (!from_within) assert_int_equal(n_done, 0);
        if (from_within) assert_in_range(n_done, 1, N - 1);
        np_engine_close(engine);
    }
    np_cancel(NULL);
    close_asked(asked);
}

static void refuses_one_is_refuses_all(void **state)
{
    static const int32_t bad[] = {1, 2, 3, 1 << 30};
    struct asked *asked = open_asked();
    np_engine *engine = open_engine(asked->model, 1, 512);
    struct told told = {.lock = PTHREAD_MUTEX_INITIALIZER};
    np_ticket *ticket;
    np_error err;
    uint64_t n_before = np_engine_stats(engine).n_requests;
    asked->requests[1].candidate_ids = bad;
    assert_int_equal(np_submit(engine, asked->requests, N, tell, &told, &ticket, &err), NP_EINPUT);
    assert_string_equal(err.where, "requests[1].candidate_ids[3]");
    assert_null(ticket);
    assert_int_equal(np_submit(engine, asked->requests + 1, 1, tell, &told, &ticket, NULL),
                     NP_EINPUT);
    assert_int_equal(np_submit(engine, asked->requests + 1, 1, tell, &told, &ticket, &err),
                     NP_EINPUT);
    assert_string_equal(err.where, "candidate_ids[3]");
    assert_int_equal(np_submit(engine, asked->requests, 0, tell, &told, &ticket, &err), NP_EINPUT);
    assert_string_equal(err.where, "n_requests");
    assert_int_equal(np_submit(engine, NULL, 1, tell, &told, &ticket, &err), NP_EINPUT);
    assert_string_equal(err.where, "requests");
    assert_int_equal(np_submit(engine, asked->requests, 1, tell, &told, NULL, &err), NP_EINPUT);
    assert_int_equal(np_wait(NULL, NULL, &err), NP_EINPUT);
    assert_int_equal(told.n_calls, 0);
    assert_int_equal(np_engine_stats(engine).n_requests, n_before);
    np_engine_close(engine);
    close_asked(asked);
}

/* ---- whose turn it is ---------------------------------------------------------------------- */

enum { MANY = 50, LENGTH = 128 };

struct order {
    size_t n_ended, at_end; /* how many of the many were over when the one was */
};

static void count_many(void *user, size_t request, const np_result *result, size_t n_rows,
                       int finished)
{
    struct order *order = user;
    order->n_ended += finished != 0;
}

static void note_one(void *user, size_t request, const np_result *result, size_t n_rows,
                     int finished)
{
    struct order *order = user;
    if (finished) order->at_end = order->n_ended;
}

/* C099: fifty requests of one ticket have one share, so that the one beside them takes about twice
 * as long as alone; fifty tickets have fifty. */
static void C099_a_ticket_is_one_caller(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    static int32_t ids[MANY + 1][LENGTH];
    np_request requests[MANY + 1];
    np_error err;
    for (size_t i = 0; i <= MANY; i++) {
        fill_ids(ids[i], LENGTH, np_model_info(model).n_vocab, (uint32_t)i);
        requests[i] =
            (np_request){.token_ids = ids[i], .n_tokens = LENGTH, .want = NP_WANT_LOGPROB};
    }
    for (size_t n_each = 1; n_each <= MANY; n_each *= MANY) {
        np_engine *engine = open_engine(model, 1, 64);
        np_ticket *tickets[MANY + 1];
        struct order order = {0};
        struct gate gate;
        size_t n_tickets = 0;
        gate_close(&gate, engine);
        for (size_t i = 0; i < MANY; i += n_each) {
            np_ticket **ticket = &tickets[n_tickets++];
            np_status status =
                np_submit(engine, &requests[i], n_each, count_many, &order, ticket, &err);
            assert_int_equal(status, NP_OK);
            if (n_each == 1 && i != MANY / 2) continue; /* it comes among them */
            ticket = &tickets[n_tickets++];
            status = np_submit(engine, &requests[MANY], 1, note_one, &order, ticket, &err);
            assert_int_equal(status, NP_OK);
        }
        gate_open(&gate);
        for (size_t i = 0; i < n_tickets; i++)
            assert_int_equal(np_wait(tickets[i], NULL, &err), NP_OK);
        assert_int_equal(order.n_ended, MANY);
        if (n_each == MANY) assert_true(order.at_end <= 3);
        if (n_each == 1) assert_true(order.at_end > 10);
        np_engine_close(engine);
    }
    np_model_close(model);
}

/* ---- memory -------------------------------------------------------------------------------- */

static void failing_allocations(void **state)
{
    struct asked *asked = open_asked();
    bool clean = false;
    for (uint64_t n = 1; !clean && n < 10000; n++) {
        np_engine *engine = open_engine(asked->model, 1, 64);
        struct told told = {.lock = PTHREAD_MUTEX_INITIALIZER};
        np_ticket *ticket;
        np_result results[N];
        np_error err;
        alloc_fail_after(n);
        np_status status = np_submit(engine, asked->requests, N, tell, &told, &ticket, &err);
        bool taken = status == NP_OK;
        if (!taken) assert_null(ticket);
        if (taken) status = np_wait(ticket, results, &err);
        alloc_fail_after(0);
        clean = status == NP_OK;
        assert_true(clean || status == NP_ENOMEM);
        assert_int_equal(err.status, status);
        assert_int_equal(told.n_ended, taken ? N : 0);
        for (size_t i = 0; taken && i < N; i++) {
            if (results[i].error.status == NP_OK) same_answer(&asked->right[i], &results[i]);
            np_result_free(&results[i]);
        }
        assert_int_equal(np_submit(engine, asked->requests, N, NULL, NULL, &ticket, &err), NP_OK);
        assert_int_equal(np_wait(ticket, results, &err), NP_OK);
        same_answers(asked, results, N);
        for (size_t i = 0; i < N; i++) np_result_free(&results[i]);
        np_engine_close(engine);
    }
    assert_true(clean);
    close_asked(asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C192_each_has_its_answer),
        cmocka_unit_test(cancelling_ends_all_that_is_not_done),
        cmocka_unit_test(refuses_one_is_refuses_all),
        cmocka_unit_test(C099_a_ticket_is_one_caller),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
