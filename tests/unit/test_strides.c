/*
 * test_strides.c - every row is scored once, by the first window that holds it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "score/strides.h"

#define MAX_ROWS 64

/* Rows become known `grain` at a time; the windows must not depend on that. */
static size_t walk(size_t window, size_t stride, uint64_t n_rows, uint64_t grain,
                   struct window *windows)
{
    struct strides strides = strides_start(window, stride);
    size_t count = 0;
    for (uint64_t known = 0; known < n_rows; known += grain)
        while (strides_next(&strides, known, false, &windows[count])) count++;
    while (strides_next(&strides, n_rows, true, &windows[count])) count++;
    assert_false(strides_next(&strides, n_rows, true, &windows[count]));
    return count;
}

static void check(size_t window, size_t stride, uint64_t n_rows)
{
    static struct window windows[MAX_ROWS + 1], others[MAX_ROWS + 1];
    size_t count = walk(window, stride, n_rows, 1, windows);
    uint64_t next = 0;
    for (size_t i = 0; i < count; i++) {
        const struct window *at = &windows[i];
        assert_int_equal(at->begin, i * stride);
        assert_true(at->n_rows >= 1 && at->n_rows <= window && at->n_before < at->n_rows);
        assert_int_equal(at->begin + at->n_before, next); /* no row twice, none left out */
        assert_true(i == 0 || at->n_before == window - stride);
        assert_true(i + 1 == count || at->n_rows == window);
        next = at->begin + at->n_rows;
    }
    assert_int_equal(next, n_rows);
    assert_int_equal(walk(window, stride, n_rows, 7, others), count);
    assert_memory_equal(windows, others, count * sizeof *windows);
}

static void every_row_is_scored_once_C081(void **state)
{
    for (size_t window = 1; window <= 9; window++)
        for (size_t stride = 1; stride <= window; stride++)
            for (uint64_t n_rows = 0; n_rows <= MAX_ROWS; n_rows++) check(window, stride, n_rows);
}

static void two_and_a_half_windows_C081(void **state)
{
    static struct window windows[MAX_ROWS + 1];
    assert_int_equal(walk(8, 8, 20, 20, windows), 3);
    assert_int_equal(windows[2].n_rows, 4);
    assert_int_equal(walk(8, 4, 20, 20, windows), 4);
    assert_int_equal(windows[3].begin, 12);
    assert_int_equal(windows[3].n_before, 4);
    assert_int_equal(walk(8, 1, 20, 20, windows), 13);
}

/* What follows a row never moves the window that scores it. */
static void no_later_row_changes_an_earlier_window(void **state)
{
    static struct window some[MAX_ROWS + 1], more[MAX_ROWS + 1];
    for (uint64_t n_rows = 1; n_rows < MAX_ROWS; n_rows++) {
        size_t count = walk(6, 4, n_rows, 3, some);
        assert_true(walk(6, 4, n_rows + 1, 3, more) >= count);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(some[i].begin, more[i].begin);
            assert_int_equal(some[i].n_before, more[i].n_before);
            assert_true(some[i].n_rows <= more[i].n_rows);
        }
    }
}

/* A sequence of any length costs nothing but numbers. */
static void far_out(void **state)
{
    struct strides strides = strides_start(1000, 1000);
    struct window window;
    strides.begin = strides.n_scored = UINT64_C(1) << 60;
    assert_true(strides_next(&strides, (UINT64_C(1) << 60) + 500, true, &window));
    assert_int_equal(window.n_rows, 500);
    assert_false(strides_next(&strides, (UINT64_C(1) << 60) + 500, true, &window));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_scored_once_C081),
        cmocka_unit_test(two_and_a_half_windows_C081),
        cmocka_unit_test(no_later_row_changes_an_earlier_window),
        cmocka_unit_test(far_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
