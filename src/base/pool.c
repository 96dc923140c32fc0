/*
 * pool.c - one generation counter starts the workers, one count of the unfinished ends the region.
 *
 * Either side first spins for a few microseconds, since the next region of a forward pass follows
 * at once, then sleeps. The sleeper announces itself and looks again, the waker publishes and then
 * looks for sleepers, all four sequentially consistent: one of the two always sees the other. With
 * more threads than cores nobody spins, since that would keep the core from those who work.
 */
#include "base/pool.h"

#include "base/arena.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#define MAX_THREADS 1024
#define SPIN_NS 40000
#define SPINS_PER_LOOK 64 /* at the clock */

/* Someone waits until *value differs from (or equals) something; its own cache line. */
struct gate {
    _Alignas(64) atomic_uint value;
    atomic_uint n_sleepers;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

struct worker {
    struct pool *pool;
    pthread_t id;
    int thread;
};

struct pool {
    struct gate start;  /* value: generation, which may wrap */
    struct gate finish; /* value: workers not done */
    pool_fn *fn;
    void *ctx;
    int n_threads, n_started;
    bool spins, closing;
    size_t n_bytes;
    struct worker workers[];
};

#if defined(__x86_64__)
#include <xmmintrin.h>
#define MXCSR_DEFAULT 0x1F80u /* nearest, gradual underflow, no traps */
struct fpenv fpenv_enter(void)
{
    struct fpenv saved = {_mm_getcsr()};
    _mm_setcsr(MXCSR_DEFAULT);
    return saved;
}

void fpenv_leave(struct fpenv saved)
{
    _mm_setcsr((unsigned)saved.control);
}

static void cpu_relax(void)
{
    _mm_pause();
}
#elif defined(__aarch64__)
struct fpenv fpenv_enter(void)
{
    struct fpenv saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved.control));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return saved;
}

void fpenv_leave(struct fpenv saved)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(saved.control) : "memory");
}

static void cpu_relax(void)
{
    __asm__ volatile("yield");
}
#else
#error "pool.c: the floating-point control register of this platform is not known here"
#endif

int cpu_count(void)
{
    cpu_set_t allowed;
    int count = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    return count > 0 ? count : 1;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Whether `gate` may be passed: its value equals `target` (wanted) or no longer does (not wanted).
 * */
static bool gate_open(struct gate *gate, unsigned target, bool wanted)
{
    return (atomic_load(&gate->value) == target) == wanted;
}

static void gate_wait(struct gate *gate, unsigned target, bool wanted, bool spins)
{
    for (int64_t end = spins ? now_ns() + SPIN_NS : 0; spins && now_ns() < end;) {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (gate_open(gate, target, wanted)) return;
            cpu_relax();
        }
    }
    pthread_mutex_lock(&gate->mutex);
    atomic_fetch_add(&gate->n_sleepers, 1);
    while (!gate_open(gate, target, wanted)) pthread_cond_wait(&gate->changed, &gate->mutex);
    atomic_fetch_sub(&gate->n_sleepers, 1);
    pthread_mutex_unlock(&gate->mutex);
}

static void gate_wake(struct gate *gate)
{
    if (atomic_load(&gate->n_sleepers) == 0) return;
    pthread_mutex_lock(&gate->mutex);
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct pool *pool = worker->pool;
    (void)fpenv_enter(); /* a thread inherits the control word of whoever opened the pool */
    for (unsigned seen = 0;; seen++) {
        gate_wait(&pool->start, seen, false, pool->spins);
        if (pool->closing) return NULL;
        pool->fn(pool->ctx, worker->thread, pool->n_threads);
        if (atomic_fetch_sub(&pool->finish.value, 1) == 1) gate_wake(&pool->finish);
    }
}

static void pool_publish(struct pool *pool)
{
    atomic_fetch_add(&pool->start.value, 1);
    gate_wake(&pool->start);
}

void pool_run(struct pool *pool, pool_fn *fn, void *ctx)
{
    struct fpenv saved = fpenv_enter();
    pool->fn = fn;
    pool->ctx = ctx;
    if (pool->n_threads > 1) {
        atomic_store(&pool->finish.value, (unsigned)pool->n_threads - 1);
        pool_publish(pool);
    }
    fn(ctx, 0, pool->n_threads);
    if (pool->n_threads > 1) gate_wait(&pool->finish, 0, true, pool->spins);
    fpenv_leave(saved);
}

static void gate_init(struct gate *gate)
{
    pthread_mutex_init(&gate->mutex, NULL);
    pthread_cond_init(&gate->changed, NULL);
}

static void gate_destroy(struct gate *gate)
{
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->mutex);
}

/* Signals stay with the threads of the caller: workers are born with all of them blocked. */
static int pool_start(struct pool *pool)
{
    sigset_t all, before;
    int failed = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->n_started < pool->n_threads - 1 && !failed) {
        struct worker *worker = &pool->workers[pool->n_started];
        *worker = (struct worker){.pool = pool, .thread = pool->n_started + 1};
        failed = pthread_create(&worker->id, NULL, worker_main, worker);
        pool->n_started += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

np_status pool_open(struct pool **out, int n_threads, np_error *err)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > MAX_THREADS) {
        error_set(err, NP_EINPUT, "n_threads", NO_OFFSET, "1 to %d threads are allowed",
                  MAX_THREADS);
        return error_given(err, NP_EINPUT, "%d", n_threads);
    }
    size_t n_bytes = sizeof(struct pool) + (size_t)(n_threads - 1) * sizeof(struct worker);
    struct pool *pool = big_alloc(n_bytes); /* for its alignment */
    if (!pool) return error_nomem(err, "threads", n_bytes);
    pool->n_bytes = n_bytes;
    pool->n_threads = n_threads;
    pool->spins = n_threads <= cpu_count();
    gate_init(&pool->start);
    gate_init(&pool->finish);
    int failed = pool_start(pool);
    if (failed) {
        pool_close(pool);
        return error_set(err, NP_ENOMEM, "threads", NO_OFFSET,
                         "%d threads could not be started: %s", n_threads - 1, strerror(failed));
    }
    *out = pool;
    return NP_OK;
}

void pool_close(struct pool *pool)
{
    if (!pool) return;
    pool->closing = true;
    pool_publish(pool);
    for (int i = 0; i < pool->n_started; i++) pthread_join(pool->workers[i].id, NULL);
    gate_destroy(&pool->start);
    gate_destroy(&pool->finish);
    big_free(pool, pool->n_bytes);
}

int pool_n_threads(const struct pool *pool)
{
    return pool->n_threads;
}
