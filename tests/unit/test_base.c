/* test_base.c - memory, buffers, files, errors and the CPU level. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/cpu.h"
#include "base/file.h"

static void assert_zero(const void *memory, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) assert_int_equal(((const char *)memory)[i], 0);
}

/* ---- memory -----------------------------------------------------------------------------------
 * */

static void arena_aligns_and_zeroes(void **state)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 1000, 40000, 5000000, 3};
    struct arena arena;
    size_t expected = 0;
    arena_init(&arena, (size_t)64 << 20);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *at = arena_push(&arena, sizes[i]);
        assert_non_null(at);
        assert_int_equal((uintptr_t)at % 64, 0);
        assert_zero(at, sizes[i]);
        memset(at, 0xA5, sizes[i]);
        expected += ((sizes[i] ? sizes[i] : 1) + 63) / 64 * 64;
        assert_int_equal(arena.used_bytes, expected);
    }
    arena_free(&arena);
    assert_int_equal(arena.used_bytes, 0);
    arena_free(&arena);
    arena_free(NULL);
}

static void arena_keeps_its_ceiling(void **state)
{
    struct arena arena;
    arena_init(&arena, 1000);
    assert_non_null(arena_push(&arena, 900));
    assert_null(arena_push(&arena, 100)); /* 900 took 960; 64 do not fit in 40 */
    assert_null(arena_push(&arena, 1));
    assert_null(arena_push(&arena, SIZE_MAX));
    assert_int_equal(arena.used_bytes, 960);
    arena_free(&arena);

    arena_init(&arena, SIZE_MAX);
    assert_null(arena_push(&arena, SIZE_MAX));
    assert_null(arena_push(&arena, SIZE_MAX - 64));
    assert_null(arena_push_array(&arena, SIZE_MAX / 8 + 1, 8));
    assert_null(arena_push_array(&arena, 3, SIZE_MAX / 2));
    assert_null(arena_strndup(&arena, "x", SIZE_MAX));
    assert_non_null(arena_push_array(&arena, 0, 8));
    assert_non_null(arena_push_array(&arena, 8, 0));
    arena_free(&arena);

    arena_init(&arena, 0);
    assert_null(arena_push(&arena, 0));
    arena_free(&arena);
}

static void arena_copies_text(void **state)
{
    struct arena arena;
    arena_init(&arena, 4096);
    assert_string_equal(arena_strndup(&arena, "abcdef", 3), "abc");
    assert_string_equal(arena_strndup(&arena, NULL, 0), "");
    arena_free(&arena);
}

static void arena_rewinds(void **state)
{
    struct arena arena;
    arena_init(&arena, (size_t)16 << 20);
    char *kept = arena_push(&arena, 100);
    memcpy(kept, "kept", 5);
    struct arena_mark mark = arena_mark(&arena);
    char *first = arena_push(&arena, 200);
    memset(first, 1, 200);
    memset(arena_push(&arena, 1 << 20), 1, 1 << 20);
    memset(arena_push(&arena, 4 << 20), 1, 4 << 20);
    arena_rewind(&arena, mark);
    assert_int_equal(arena.used_bytes, 128);
    assert_string_equal(kept, "kept");
    char *again = arena_push(&arena, 200);
    assert_ptr_equal(again, first);
    assert_zero(again, 200);
    assert_zero(arena_push(&arena, 2 << 20), 2 << 20); /* in the block that was kept */
    arena_free(&arena);
}

/* A step that takes the same memory over and over ends up with blocks that suffice. */
static void arena_steps_without_the_system(void **state)
{
    struct arena arena;
    uint64_t before = 0;
    arena_init(&arena, (size_t)64 << 20);
    for (int step = 0; step < 10; step++) {
        struct arena_mark mark = arena_mark(&arena);
        if (step == 3) before = alloc_count();
        for (int i = 0; i < 50; i++) assert_non_null(arena_push(&arena, 3000 * (size_t)i));
        arena_rewind(&arena, mark);
    }
    assert_int_equal(alloc_count(), before);
    arena_free(&arena);
}

static void big_blocks(void **state)
{
    static const size_t sizes[] = {0, 1, 100, (4 << 20) - 1, 4 << 20, (6 << 20) + 1, 64 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *memory = big_alloc(sizes[i]);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % (sizes[i] >= 4 << 20 ? 2 << 20 : 64), 0);
        assert_zero(memory, sizes[i] < 10000 ? sizes[i] : 10000);
        if (sizes[i]) memory[0] = memory[sizes[i] - 1] = 1;
        big_free(memory, sizes[i]);
    }
    assert_null(big_alloc(SIZE_MAX));
    assert_null(big_alloc(SIZE_MAX / 2));
    big_free(NULL, 0);
    big_free(NULL, 64 << 20);
}

static void single_blocks(void **state)
{
    char *memory = mem_alloc(0, 8);
    assert_non_null(memory);
    free(memory);
    assert_null(mem_alloc(SIZE_MAX / 2, 4));
    memory = mem_alloc(3, 5);
    assert_zero(memory, 15);
    memory = mem_resize(memory, 100);
    assert_zero(memory, 15);
    assert_null(mem_resize(memory, SIZE_MAX));
    memory = mem_resize(memory, 0);
    assert_non_null(memory);
    mem_free(memory);
    mem_free(NULL);
}

static void allocations_fail_on_demand(void **state)
{
    struct arena arena;
    struct buf buf;
    char *memory = NULL;
    arena_init(&arena, 1 << 20);
    buf_init(&buf, 1 << 20);
    alloc_fail_after(3);
    uint64_t before = alloc_count();
    memory = mem_alloc(1, 1);
    assert_non_null(arena_push(&arena, 1));
    assert_false(buf_puts(&buf, "third"));
    assert_true(buf.failed);
    assert_int_equal(alloc_count(), before + 3);
    memory = mem_resize(memory, 2); /* the countdown has ended */
    assert_non_null(memory);
    alloc_fail_after(1);
    assert_null(arena_push(&arena, 100000));
    assert_non_null(arena_push(&arena, 100000));
    alloc_fail_after(1);
    assert_null(big_alloc(5 << 20));
    alloc_fail_after(1);
    assert_null(mem_resize(memory, 3));
    alloc_fail_after(1);
    assert_null(mem_alloc(1, 1));
    alloc_fail_after(1);
    alloc_fail_after(0);
    mem_free(memory);
    memory = mem_alloc(1, 1);
    assert_non_null(memory);
    mem_free(memory);
    buf_free(&buf);
    arena_free(&arena);
}

/* ---- buffers ----------------------------------------------------------------------------------
 * */

static void buf_grows(void **state)
{
    struct buf buf;
    buf_init(&buf, 100000);
    for (int i = 0; i < 1000; i++) assert_true(buf_printf(&buf, "%d,", i));
    assert_true(buf_puts(&buf, "end"));
    assert_true(buf_push(&buf, NULL, 0));
    assert_int_equal(buf.n_bytes, 10 * 2 + 90 * 3 + 900 * 4 + 3);
    assert_int_equal(strlen(buf.data), buf.n_bytes);
    assert_memory_equal(buf.data, "0,1,2,", 6);
    memcpy(buf_extend(&buf, 4), "\0abc", 4);
    assert_memory_equal(buf.data + buf.n_bytes - 7, "end\0abc", 8);
    buf_free(&buf);
    assert_int_equal(buf.n_bytes, 0);
    assert_true(buf_puts(&buf, "usable again"));
    buf_free(&buf);
    buf_free(NULL);
}

static void buf_keeps_its_maximum(void **state)
{
    struct buf buf;
    size_t n_bytes = 99;
    buf_init(&buf, 10);
    assert_true(buf_puts(&buf, "12345"));
    assert_true(buf_puts(&buf, "67890"));
    assert_false(buf_puts(&buf, "x"));
    assert_true(buf.failed);
    assert_string_equal(buf.data, "1234567890");
    assert_false(buf_push(&buf, "", 0));
    assert_false(buf_printf(&buf, "%s", ""));
    assert_null(buf_extend(&buf, 0));
    assert_null(buf_take(&buf, &n_bytes));
    assert_int_equal(n_bytes, 0);

    buf_init(&buf, 10);
    assert_false(buf_printf(&buf, "%s", "eleven byte"));
    buf_free(&buf);
    buf_init(&buf, SIZE_MAX);
    assert_true(buf_puts(&buf, "x"));
    assert_null(buf_extend(&buf, SIZE_MAX - 1));
    buf_free(&buf);
    buf_init(&buf, 0);
    assert_true(buf_puts(&buf, ""));
    assert_false(buf_puts(&buf, "x"));
    buf_free(&buf);
}

static void buf_is_taken(void **state)
{
    struct buf buf;
    size_t n_bytes;
    buf_init(&buf, 10);
    char *data = buf_take(&buf, &n_bytes);
    assert_string_equal(data, "");
    assert_int_equal(n_bytes, 0);
    free(data);
    buf_puts(&buf, "text");
    data = buf_take(&buf, NULL);
    assert_string_equal(data, "text");
    assert_null(buf.data);
    free(data);
    alloc_fail_after(1);
    assert_null(buf_take(&buf, &n_bytes));
}

/* ---- files ------------------------------------------------------------------------------------
 * */

static char folder[] = "/tmp/nepit-test-base-XXXXXX";

static char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static char *write_file(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path_of(name);
}

static int make_folder(void **state)
{
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    unlink(path_of("file"));
    unlink(path_of("pipe"));
    return rmdir(folder);
}

static void file_reads(void **state)
{
    struct file file;
    np_error err;
    char out[8] = "";
    assert_int_equal(file_open(&file, write_file("file", "0123456789"), &err), NP_OK);
    assert_int_equal(file.n_bytes, 10);
    assert_int_equal(file_read(&file, 3, out, 4, &err), NP_OK);
    assert_string_equal(out, "3456");
    assert_int_equal(file_read(&file, 10, out, 0, &err), NP_OK);
    assert_int_equal(file_read(&file, 8, out, 3, &err), NP_EIO);
    assert_int_equal(err.offset, 8);
    assert_non_null(strstr(err.message, "file is 10 bytes, needs 11"));
    assert_int_equal(file_read(&file, 11, out, 0, &err), NP_EIO);
    assert_int_equal(file_read(&file, UINT64_MAX, out, 8, &err), NP_EIO);
    assert_int_equal(file_read(&file, 1, out, SIZE_MAX, NULL), NP_EIO);
    assert_int_equal(truncate(file.path, 5), 0);
    assert_int_equal(file_read(&file, 3, out, 4, &err), NP_EIO);
    assert_non_null(strstr(err.message, "file is 5 bytes, needs 7"));
    assert_string_equal(err.where, file.path);
    file_close(&file);
    assert_int_equal(file_read(&file, 0, out, 1, &err), NP_EIO);
    file_close(&file);
    file_close(NULL);
}

static void file_refuses_what_is_none(void **state)
{
    struct file file;
    np_error err;
    char longer[5000];
    assert_int_equal(file_open(&file, path_of("missing"), &err), NP_EIO);
    assert_non_null(strstr(err.message, "No such file"));
    file_close(&file);
    assert_int_equal(file_open(&file, folder, &err), NP_EIO);
    assert_non_null(strstr(err.message, "is a folder"));
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    assert_int_equal(file_open(&file, path_of("pipe"), &err), NP_EIO); /* and does not hang */
    assert_non_null(strstr(err.message, "pipe"));
    assert_int_equal(file_open(&file, "/dev/zero", NULL), NP_EIO);
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(file_open(&file, longer, &err), NP_EIO);
    assert_non_null(strstr(err.message, "4999 bytes"));
    file_close(&file);
}

static void file_is_read_whole(void **state)
{
    np_error err;
    char *data;
    size_t n_bytes;
    write_file("file", "0123456789");
    assert_int_equal(file_read_all(path_of("file"), 10, &data, &n_bytes, &err), NP_OK);
    assert_int_equal(n_bytes, 10);
    assert_string_equal(data, "0123456789");
    free(data);
    assert_int_equal(file_read_all(path_of("file"), 9, &data, &n_bytes, &err), NP_ELIMIT);
    assert_null(data);
    assert_non_null(strstr(err.message, "file is 10 bytes; at most 9"));
    alloc_fail_after(1);
    assert_int_equal(file_read_all(path_of("file"), 10, &data, &n_bytes, &err), NP_ENOMEM);
    assert_int_equal(file_read_all(path_of("missing"), 10, &data, &n_bytes, &err), NP_EIO);
    assert_int_equal(n_bytes, 0);
    write_file("file", "");
    assert_int_equal(file_read_all(path_of("file"), 0, &data, &n_bytes, &err), NP_OK);
    assert_string_equal(data, "");
    free(data);
}

static size_t resident_bytes(void)
{
    size_t total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu %zu", &total, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* A context that nobody fills takes no memory; what was used before is zero again. */
static void a_large_push_is_not_touched(void **state)
{
    const size_t n_bytes = (size_t)512 << 20;
    struct arena arena;
    arena_init(&arena, SIZE_MAX);
    struct arena_mark start = arena_mark(&arena);
    size_t before = resident_bytes();
    char *first = arena_push(&arena, n_bytes);
    assert_non_null(first);
    assert_true(resident_bytes() - before < n_bytes / 4); /* a sanitizer's shadow is an eighth */
    memset(first, 7, 1000);
    arena_rewind(&arena, start);
    char *second = arena_push(&arena, 900);
    char *third = arena_push(&arena, 900);
    for (size_t i = 0; i < 900; i++) assert_true(second[i] == 0 && third[i] == 0);
    memset(third, 7, 900);
    arena_rewind(&arena, start);
    char *all = arena_push(&arena, 4000);
    for (size_t i = 0; i < 4000; i++) assert_int_equal(all[i], 0);
    arena_free(&arena);
}

/* ---- errors and CPU ---------------------------------------------------------------------------
 * */

static void errors_make_one_line(void **state)
{
    np_error err;
    char line[700];
    assert_int_equal(error_set(&err, NP_EFORMAT, "a.gguf", 17, "n is %d", 5), NP_EFORMAT);
    assert_string_equal(np_error_line(&err, line, sizeof line), "n is 5 (a.gguf, byte 17)");
    assert_int_equal(error_given(&err, NP_EFORMAT, "%s", "x y"), NP_EFORMAT);
    assert_string_equal(np_error_line(&err, line, sizeof line), "n is 5: x y (a.gguf, byte 17)");
    error_set(&err, NP_EINPUT, NULL, NO_OFFSET, "%s", "");
    assert_string_equal(np_error_line(&err, line, sizeof line), np_status_text(NP_EINPUT));
    error_set(&err, NP_EINPUT, NULL, 0, "here");
    assert_string_equal(np_error_line(&err, line, sizeof line), "here (byte 0)");
    assert_string_equal(np_error_line(&err, line, 5), "here");
    memset(&err, 0, sizeof err);
    assert_string_equal(np_error_line(&err, line, sizeof line), "done");
    assert_int_equal(error_nomem(&err, "rows", 123), NP_ENOMEM);
    assert_non_null(strstr(err.message, "123 bytes"));
    assert_int_equal(error_set(NULL, NP_EIO, "w", 1, "m"), NP_EIO);
    assert_int_equal(error_given(NULL, NP_EIO, "g"), NP_EIO);
    assert_string_equal(np_status_text(NP_OK), "done");
    assert_string_equal(np_status_text((np_status)99), "unknown status");
}

static void errors_are_cut_not_overrun(void **state)
{
    np_error err;
    char text[2000], line[32];
    memset(text, 'm', sizeof text - 1);
    text[sizeof text - 1] = 0;
    error_set(&err, NP_EIO, text, 1, "%s", text);
    error_given(&err, NP_EIO, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_int_equal(strlen(err.where), sizeof err.where - 1);
    assert_int_equal(strlen(err.given), sizeof err.given - 1);
    assert_int_equal(strlen(np_error_line(&err, line, sizeof line)), sizeof line - 1);
}

/* What is cited may be any bytes; the texts are UTF-8 all the same, and the line is one line. */
static void errors_are_utf8_in_one_line(void **state)
{
    np_error err;
    char line[700], text[400];
    error_set(&err, NP_EFORMAT, "caf\xe9.gguf", NO_OFFSET, "no \xff\xfe, \xc3\xa9\xe2\x82");
    error_given(&err, NP_EFORMAT, "a\nb\x7f\xed\xa0\x80");
    assert_string_equal(err.where, "caf?.gguf");
    assert_string_equal(err.message, "no ??, \xc3\xa9??");
    assert_string_equal(err.given, "a\nb\x7f???");
    assert_string_equal(np_error_line(&err, line, sizeof line),
                        "no ??, \xc3\xa9??: a\\x0ab\\x7f??? (caf?.gguf)");
    assert_string_equal(np_error_line(&err, line, 15), "no ??, \xc3\xa9??: a");
    for (size_t i = 0; i + 1 < sizeof text; i += 3) memcpy(text + i, "\xe2\x82\xac", 3);
    text[sizeof text - 1] = 0;
    error_set(&err, NP_EIO, text, 1, "%s", text);
    error_given(&err, NP_EIO, "x%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 2); /* 319 = 106 * 3 + 1 */
    assert_int_equal(strlen(err.where), sizeof err.where - 3);     /* 191 = 63 * 3 + 2 */
    assert_int_equal(strlen(err.given), sizeof err.given - 3);     /* 63 = 1 + 20 * 3 + 2 */
}

static void cpu_is_chosen(void **state)
{
    enum cpu_level highest = cpu_detect(), level;
    const char *reason;
    np_error err;
    unsetenv("NEPIT_CPU");
    assert_int_equal(cpu_choose(NULL, &level, &reason, &err), NP_OK);
    assert_int_equal(level, highest);
    assert_string_equal(reason, "highest level this CPU has");
    assert_int_equal(cpu_choose("ref", &level, &reason, &err), NP_OK);
    assert_int_equal(level, CPU_REF);
    assert_string_equal(reason, "asked for");
    setenv("NEPIT_CPU", "ref", 1);
    assert_int_equal(cpu_choose("auto", &level, &reason, &err), NP_OK);
    assert_int_equal(level, CPU_REF);
    assert_string_equal(reason, "NEPIT_CPU");
    assert_int_equal(cpu_choose(cpu_level_name(highest), &level, &reason, &err), NP_OK);
    assert_int_equal(level, highest);
    setenv("NEPIT_CPU", "sse9", 1);
    assert_int_equal(cpu_choose(NULL, &level, &reason, &err), NP_EINPUT);
    assert_string_equal(err.where, "NEPIT_CPU");
    assert_string_equal(err.given, "sse9");
    setenv("NEPIT_CPU", "", 1);
    assert_int_equal(cpu_choose("", &level, &reason, &err), NP_OK);
    unsetenv("NEPIT_CPU");
    for (enum cpu_level each = 0; each < CPU_LEVELS; each++) {
        np_status status = cpu_choose(cpu_level_name(each), &level, &reason, &err);
        assert_int_equal(status, cpu_has(each) ? NP_OK : NP_EUNSUPPORTED);
        if (status == NP_OK) assert_int_equal(level, each);
        if (status != NP_OK) assert_non_null(strstr(err.message, cpu_level_name(highest)));
    }
}

static void cpu_levels_stand_on_others(void **state)
{
    np_error err;
    enum cpu_level level;
    const char *reason;
    assert_int_equal(cpu_choose("sse9", &level, &reason, &err), NP_EINPUT);
    for (enum cpu_level each = 0; each < CPU_LEVELS; each++) {
        assert_non_null(strstr(err.message, cpu_level_name(each)));
        assert_true(each == CPU_REF || cpu_level_below(each) < each);
        assert_true(!cpu_has(each) || cpu_has(cpu_level_below(each)));
    }
    assert_int_equal(cpu_level_below(CPU_AVX512BF16), CPU_AVX512);
    assert_int_equal(cpu_level_below(CPU_NEON), CPU_REF);
    assert_int_equal(cpu_level_below(CPU_REF), CPU_REF);
    assert_int_equal(cpu_level_below(CPU_LEVELS), CPU_REF);
    assert_true(cpu_has(CPU_REF) && !cpu_has(CPU_LEVELS));
    assert_string_equal(cpu_level_name(CPU_LEVELS), "unknown");
}

/* The compiler's own detection is the second opinion. */
static void cpu_detection_agrees(void **state)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    bool bf16 = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
    assert_int_equal(cpu_has(CPU_AVX2), avx2);
    assert_int_equal(cpu_has(CPU_AVX512), avx2 && avx512);
    assert_int_equal(cpu_has(CPU_AVX512BF16), avx2 && avx512 && bf16);
    assert_false(cpu_has(CPU_NEON));
#elif defined(__aarch64__)
    assert_int_equal(cpu_detect(), CPU_NEON);
    assert_false(cpu_has(CPU_AVX2));
#else
    assert_int_equal(cpu_detect(), CPU_REF);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_aligns_and_zeroes),
        cmocka_unit_test(arena_keeps_its_ceiling),
        cmocka_unit_test(arena_copies_text),
        cmocka_unit_test(arena_rewinds),
        cmocka_unit_test(arena_steps_without_the_system),
        cmocka_unit_test(big_blocks),
        cmocka_unit_test(single_blocks),
        cmocka_unit_test(allocations_fail_on_demand),
        cmocka_unit_test(buf_grows),
        cmocka_unit_test(buf_keeps_its_maximum),
        cmocka_unit_test(buf_is_taken),
        cmocka_unit_test(file_reads),
        cmocka_unit_test(file_refuses_what_is_none),
        cmocka_unit_test(file_is_read_whole),
        cmocka_unit_test(a_large_push_is_not_touched),
        cmocka_unit_test(errors_make_one_line),
        cmocka_unit_test(errors_are_cut_not_overrun),
        cmocka_unit_test(errors_are_utf8_in_one_line),
        cmocka_unit_test(cpu_is_chosen),
        cmocka_unit_test(cpu_levels_stand_on_others),
        cmocka_unit_test(cpu_detection_agrees),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
