/*
 * test_base_pool.c - the fixed threads and the floating-point environment.
 *
 * NEPIT_TEST_LONG=1 runs 10,000 regions on every number of threads instead of 2,500.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/arena.h"
#include "base/pool.h"

#define MAX_TESTED 8

/* Plain counters, one per thread: the sanitizers see any missing order between regions. */
struct tally {
    uint64_t n_calls[MAX_TESTED];
    uint64_t sum; /* written by thread 0, read by all in the next region */
    uint64_t seen[MAX_TESTED];
    int n_threads;
};

static void count_region(void *ctx, int thread, int n_threads)
{
    struct tally *tally = ctx;
    if (n_threads != tally->n_threads) return;
    tally->n_calls[thread]++;
    tally->seen[thread] += tally->sum;
}

static void regions_run_on_every_thread(void **state)
{
    const uint64_t n_regions = getenv("NEPIT_TEST_LONG") ? 10000 : 2500;
    for (int n_threads = 1; n_threads <= MAX_TESTED; n_threads++) {
        struct tally tally = {.n_threads = n_threads};
        struct pool *pool;
        uint64_t expected = 0;
        assert_int_equal(pool_open(&pool, n_threads, NULL), NP_OK);
        assert_int_equal(pool_n_threads(pool), n_threads);
        uint64_t before = alloc_count();
        for (uint64_t region = 0; region < n_regions; region++) {
            tally.sum = region;
            pool_run(pool, count_region, &tally);
            expected += region;
        }
        assert_int_equal(alloc_count(), before);
        pool_close(pool);
        for (int thread = 0; thread < n_threads; thread++) {
            assert_int_equal(tally.n_calls[thread], n_regions);
            assert_int_equal(tally.seen[thread], expected);
        }
    }
}

/* Long enough between regions that the workers sleep, and in them that the caller does. */
static void sleep_in_worker(void *ctx, int thread, int n_threads)
{
    const struct timespec short_time = {0, 300000};
    if (thread) nanosleep(&short_time, NULL);
    ((int *)ctx)[thread]++;
}

static void sleepers_wake(void **state)
{
    const struct timespec short_time = {0, 300000};
    int n_calls[MAX_TESTED] = {0};
    struct pool *pool;
    assert_int_equal(pool_open(&pool, 3, NULL), NP_OK);
    for (int i = 0; i < 100; i++) {
        nanosleep(&short_time, NULL);
        pool_run(pool, sleep_in_worker, n_calls);
    }
    pool_close(pool);
    for (int thread = 0; thread < 3; thread++) assert_int_equal(n_calls[thread], 100);
}

static void pools_open_and_close(void **state)
{
    struct pool *pool = (struct pool *)1;
    np_error err;
    assert_int_equal(pool_open(&pool, 0, &err), NP_EINPUT);
    assert_null(pool);
    assert_string_equal(err.given, "0");
    assert_int_equal(pool_open(&pool, -1, &err), NP_EINPUT);
    assert_int_equal(pool_open(&pool, 1025, &err), NP_EINPUT);
    alloc_fail_after(1);
    assert_int_equal(pool_open(&pool, 2, &err), NP_ENOMEM);
    assert_null(pool);
    pool_close(NULL);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(pool_open(&pool, 1 + i % MAX_TESTED, &err), NP_OK);
        pool_close(pool);
    }
}

static void shares_tile_the_work(void **state)
{
    static const size_t counts[] = {0, 1, 7, 8, 9, 1000003, SIZE_MAX - 1};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int n_threads = 1; n_threads <= 65; n_threads++) {
            size_t reached = 0, each = counts[c] / (size_t)n_threads;
            for (int thread = 0; thread < n_threads; thread++) {
                size_t begin, end;
                pool_share(counts[c], thread, n_threads, &begin, &end);
                assert_int_equal(begin, reached);
                assert_in_range(end - begin, each, each + 1);
                reached = end;
            }
            assert_int_equal(reached, counts[c]);
        }
}

static void cores_are_counted(void **state)
{
    assert_in_range(cpu_count(), 1, 100000);
}

/* ---- signals ----------------------------------------------------------------------------------
 * */

static void block_state(void *ctx, int thread, int n_threads)
{
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    ((int *)ctx)[thread] = sigismember(&blocked, SIGINT);
}

static void signals_go_to_the_caller(void **state)
{
    struct pool *pool;
    int blocked[2] = {-1, -1};
    assert_int_equal(pool_open(&pool, 2, NULL), NP_OK);
    pool_run(pool, block_state, blocked);
    pool_close(pool);
    assert_int_equal(blocked[0], 0);
    assert_int_equal(blocked[1], 1);
}

/* ---- floating point ---------------------------------------------------------------------------
 * */

#if defined(__x86_64__)
#define UPWARD_AND_FLUSHED ((uint64_t)(0x1F80 | 0x4000 | 0x8000 | 0x40))
#else
#define UPWARD_AND_FLUSHED ((uint64_t)1 << 22 | (uint64_t)1 << 24)
#endif

/* Bit 0: results round to nearest; bit 1: subnormal results live; bit 2: subnormal operands do. */
__attribute__((noinline)) static int arithmetic(void)
{
    volatile float one = 1, three = 3, least_normal = 0x1p-126f, half = 0.5f, subnormal = 0x1p-140f,
                   scale = 0x1p60f;
    volatile float third = one / three, halved = least_normal * half, scaled = subnormal * scale;
    return (third == 0x1.555556p-2f && -third == (-one) / three) | (halved != 0) << 1 |
           (scaled == 0x1p-80f) << 2;
}

static uint64_t control_now(void)
{
    struct fpenv now = fpenv_enter();
    fpenv_leave(now);
    return now.control;
}

static void probe_arithmetic(void *ctx, int thread, int n_threads)
{
    ((int *)ctx)[thread] = arithmetic();
}

static void environment_is_put_back(void **state)
{
    struct fpenv saved = fpenv_enter(), outer;
    fpenv_leave((struct fpenv){UPWARD_AND_FLUSHED});
    uint64_t hostile = control_now();
    int outside = arithmetic();
    outer = fpenv_enter();
    int inside = arithmetic();
    fpenv_leave(outer);
    uint64_t after = control_now();
    int outside_again = arithmetic();
    fpenv_leave(saved);
    assert_int_equal(hostile, UPWARD_AND_FLUSHED);
    assert_int_equal(inside, 7);
    assert_int_equal(outside & 3, 0); /* the probe does see the hostile setting */
    assert_int_equal(outside_again, outside);
    assert_int_equal(after & UPWARD_AND_FLUSHED, UPWARD_AND_FLUSHED);
    assert_int_equal(arithmetic(), 7);
}

/* Opened by a hostile caller (threads inherit), run by a hostile caller, on every thread. */
static void threads_ignore_the_callers_environment(void **state)
{
    struct pool *pool;
    int probes[4] = {0};
    struct fpenv saved = fpenv_enter();
    fpenv_leave((struct fpenv){UPWARD_AND_FLUSHED});
    np_status status = pool_open(&pool, 4, NULL);
    pool_run(pool, probe_arithmetic, probes);
    uint64_t after = control_now();
    pool_close(pool);
    fpenv_leave(saved);
    assert_int_equal(status, NP_OK);
    for (int thread = 0; thread < 4; thread++) assert_int_equal(probes[thread], 7);
    assert_int_equal(after & UPWARD_AND_FLUSHED, UPWARD_AND_FLUSHED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_run_on_every_thread),
        cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(pools_open_and_close),
        cmocka_unit_test(shares_tile_the_work),
        cmocka_unit_test(cores_are_counted),
        cmocka_unit_test(signals_go_to_the_caller),
        cmocka_unit_test(environment_is_put_back),
        cmocka_unit_test(threads_ignore_the_callers_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
