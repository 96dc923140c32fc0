/*
 * pool.h - a fixed set of threads that run one function side by side.
 *
 * pool_run calls fn(ctx, thread, n_threads) once on every thread, the caller being thread 0, and
 * returns when all are done. fn splits its work by (thread, n_threads) alone: a static split, no
 * stealing, so that who computes what is known, and no result depends on it. Workers spin briefly,
 * then sleep. Every thread runs with round-to-nearest and gradual underflow (fpenv_enter), and
 * signals never arrive in a worker. No allocation after pool_open. One region at a time: no two
 * callers at once, no pool_run inside fn.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/error.h"

struct pool;
typedef void pool_fn(void *ctx, int thread, int n_threads);

np_status pool_open(struct pool **out, int n_threads, np_error *err); /* n_threads: 1 to 1024 */
void pool_close(struct pool *pool);                                   /* NULL allowed */
int pool_n_threads(const struct pool *pool);
void pool_run(struct pool *pool, pool_fn *fn, void *ctx);
int cpu_count(void); /* cores that this process may run on (affinity mask), at least 1 */

/* The part of [0, count) that belongs to `thread`: contiguous, sizes differ by at most one. */
static inline void pool_share(size_t count, int thread, int n_threads, size_t *begin, size_t *end)
{
    size_t each = count / (size_t)n_threads, rest = count % (size_t)n_threads, t = (size_t)thread;
    *begin = t * each + (t < rest ? t : rest);
    *end = *begin + each + (t < rest);
}

/* Floating-point environment: every entry of the library does
 *     struct fpenv saved = fpenv_enter(); ... fpenv_leave(saved);
 * FTZ, DAZ and the rounding mode of the caller are put back as they were. The arithmetic in between
 * must stand in functions that are not inlined: compilers move a plain operation across such a
 * call. */
struct fpenv {
    uint64_t control;
};
struct fpenv fpenv_enter(void);
void fpenv_leave(struct fpenv saved);

#endif
