/*
 * test_values.c - values of JSON: what each reader takes, what it refuses and which place it names;
 * cut, mutated and without memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../fuzz/fuzz_values.c"
#include "base/npy.h"

/* A text as JSON; the arena is freed by done(). */
struct given {
    struct arena arena;
    struct values values;
    json_t *json;
    np_error err;
};

static np_status parse(struct given *given, const char *text, size_t n_bytes, int max_depth)
{
    memset(given, 0, sizeof *given);
    arena_init(&given->arena, (size_t)16 << 20);
    given->values.arena = &given->arena;
    return values_parse(&given->values, text, n_bytes, "body", max_depth, &given->json,
                        &given->err);
}

static const json_t *give(struct given *given, const char *text)
{
    if (parse(given, text, strlen(text), 8) != NP_OK) fail_msg("%s: %s", text, given->err.message);
    return given->json;
}

static void done(struct given *given)
{
    json_decref(given->json);
    arena_free(&given->arena);
}

/* ---- the text ----------------------------------------------------------------------------- */

static const struct {
    const char *text;
    int64_t offset;
} not_json[] = {{"", 0},
                {"[1,]", 4},
                {"{\"a\":1,\"a\":2}", -2},
                {"[1] 2", -2},
                {"nul", -2},
                {"'a'", -2},
                {"[\"\xff\"]", -2},
                {"[\"\\ud800\"]", -2},
                {"{\"a\\u0000\":1}", -2},
                {"[01]", -2},
                {"[NaN]", -2},
                {"1e999", -2},
                {"]", -2},
                {"[[[", -2},
                {"\"a", -2}};

static void what_is_no_json(void **state)
{
    for (size_t i = 0; i < sizeof not_json / sizeof *not_json; i++) {
        struct given given;
        size_t n_bytes = strlen(not_json[i].text);
        assert_int_equal(parse(&given, not_json[i].text, n_bytes, 8), NP_EINPUT);
        assert_null(given.json);
        assert_string_equal(given.err.where, "body");
        assert_non_null(strstr(given.err.message, "not valid JSON: "));
        assert_in_range(given.err.offset, 0, n_bytes);
        if (not_json[i].offset >= 0) assert_int_equal(given.err.offset, not_json[i].offset);
        done(&given);
    }
}

static void depth_is_counted_before_it_is_built(void **state)
{
    static const struct {
        const char *text;
        int depth;
        int64_t offset; /* -1: allowed */
    } cases[] = {{"7", 0, -1},
                 {"[]", 0, 0},
                 {"[1, [2], {\"a\": [3]}]", 3, -1},
                 {"[1, [2], {\"a\": [3]}]", 2, 15},
                 {"[\"[[[[\\\"[[[\", \"\\\\\", [1]]", 2, -1},
                 {"[\"[[[[\\\"[[[\", \"\\\\\", [1]]", 1, 20},
                 {"[[],[],[],{}]", 2, -1}};
    struct given given;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        np_status status = parse(&given, cases[i].text, strlen(cases[i].text), cases[i].depth);
        assert_int_equal(status, cases[i].offset < 0 ? NP_OK : NP_EINPUT);
        if (status != NP_OK) assert_int_equal(given.err.offset, cases[i].offset);
        done(&given);
    }
    size_t n_bytes = (size_t)4 << 20;
    char *open = mem_alloc(n_bytes, 1);
    memset(open, '[', n_bytes);
    assert_int_equal(parse(&given, open, n_bytes, 64), NP_EINPUT);
    assert_int_equal(given.err.offset, 64);
    done(&given);
    mem_free(open);
}

/* Every beginning of it is refused, and leaves nothing behind. */
static void cut_anywhere(void **state)
{
    static const char whole[] =
        "{\"a\": [1, -2.5e3, \"\\u00e4\\\"\"], \"b\": {\"c\": [true, null]}}";
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        struct given given;
        assert_int_equal(parse(&given, whole, n, 8), NP_EINPUT);
        done(&given);
    }
}

/* ---- numbers and texts -------------------------------------------------------------------- */

static void whole_numbers_beside_one_that_is_too_large(void **state)
{
    struct given given;
    int64_t number;
    const json_t *json = give(&given, "[9223372036854775807, -9223372036854775808, 1.0, 1.5]");
    assert_false(given.values.ints_are_real);
    assert_true(value_whole(&given.values, json_array_get(json, 0), &number));
    assert_true(number == INT64_MAX);
    assert_true(value_whole(&given.values, json_array_get(json, 1), &number));
    assert_true(number == INT64_MIN);
    assert_false(value_whole(&given.values, json_array_get(json, 2), &number));
    done(&given);
    json = give(&given, "[7, 9223372036854775808, 1.5, -3, true, \"1\"]");
    assert_true(given.values.ints_are_real);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(value_whole(&given.values, json_array_get(json, i), &number),
                         i == 0 || i == 3);
    assert_true(value_whole(&given.values, json_array_get(json, 0), &number));
    assert_int_equal(number, 7);
    done(&given);
}

static void seeds(void **state)
{
    static const char *const bad[] = {"-2", "1.5", "\"1\"", "9223372036854775808", "true", "[]"};
    struct given given;
    int64_t seed;
    assert_int_equal(value_seed(&given.values, "seed", give(&given, "-1"), &seed, &given.err),
                     NP_OK);
    assert_int_equal(seed, -1);
    done(&given);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const json_t *json = give(&given, bad[i]);
        assert_int_equal(value_seed(&given.values, "seed", json, &seed, &given.err), NP_EINPUT);
        assert_string_equal(given.err.where, "seed");
        done(&given);
    }
}

static void texts(void **state)
{
    struct given given;
    const np_string *list;
    size_t n;
    const json_t *json = give(&given, "[\"a\\u0000b\", \"\", \"\\u00e4\"]");
    assert_int_equal(value_strings(&given.values, "stop", json, &list, &n, &given.err), NP_OK);
    assert_int_equal(n, 3);
    assert_int_equal(list[0].n_bytes, 3);
    assert_memory_equal(list[0].bytes, "a\0b", 4);
    assert_int_equal(list[1].n_bytes, 0);
    assert_memory_equal(list[2].bytes, "\xc3\xa4", 3);
    done(&given);
    json = give(&given, "\"alone\"");
    assert_int_equal(value_strings(&given.values, "stop", json, &list, &n, &given.err), NP_OK);
    assert_int_equal(n, 1);
    assert_memory_equal(list[0].bytes, "alone", 6);
    done(&given);
    json = give(&given, "[\"a\", 5]");
    assert_int_equal(value_strings(&given.values, "stop", json, &list, &n, &given.err), NP_EINPUT);
    assert_string_equal(given.err.where, "stop[1]");
    assert_string_equal(given.err.given, "5");
    assert_int_equal(
        value_strings(&given.values, "stop", json_array_get(json, 1), &list, &n, &given.err),
        NP_EINPUT);
    assert_string_equal(given.err.where, "stop");
    done(&given);
}

static void biases(void **state)
{
    static const char *const bad[][2] = {
        {"{\"1\": 2, \"a\": 1}", "bias.a"},
        {"{\"2147483648\": 1}", "bias.2147483648"},
        {"{\"-1\": 1}", "bias.-1"},
        {"{\"\": 1}", "bias."},
        {"{\"1 \": 1}", "bias.1 "},
        {"{\"7\": \"x\"}", "bias.7"},
        {"{\"99999999999999999999\": 1}", "bias.99999999999999999999"},
        {"[1]", "bias"}};
    struct given given;
    const np_bias *list;
    size_t n;
    const json_t *json = give(&given, "{\"5\": -100, \"2147483647\": 0.5}");
    assert_int_equal(value_biases(&given.values, "bias", json, &list, &n, &given.err), NP_OK);
    assert_int_equal(n, 2);
    assert_true((int64_t)list[0].id + list[1].id == 2147483652); /* in any order */
    assert_true(list[0].bias + list[1].bias == -99.5f);
    done(&given);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json = give(&given, bad[i][0]);
        assert_int_equal(value_biases(&given.values, "bias", json, &list, &n, &given.err),
                         NP_EINPUT);
        assert_string_equal(given.err.where, bad[i][1]);
        done(&given);
    }
}

/* ---- ids ---------------------------------------------------------------------------------- */

/* C177: each names its element. */
static const struct {
    const char *text, *ids_where, *candidates_where, *given;
} C177[] = {{"[2147483648]", "x[0]", "x[0]", "2147483648"},
            {"[1, -2147483649]", "x[1]", "x[1]", "-2147483649"},
            {"[1, 9223372036854775808]", "x[1]", "x[1]", "9.2233720368547758e+18"},
            {"[1, 2, 1.5]", "x[2]", "x[2]", "1.5"},
            {"[1.0]", "x[0]", "x[0]", "1"},
            {"[\"a\"]", "x[0]", "x[0]", "\"a\""},
            {"[true]", "x[0]", "x[0]", "true"},
            {"[null]", "x[0]", "x[0]", "null"},
            {"[{}]", "x[0]", "x[0]", "an object"},
            {"[]", NULL, "x", ""},
            {"[[]]", "x[0]", "x", NULL},
            {"[[1], 2]", "x[0]", "x[1]", NULL},
            {"[1, [2]]", "x[1]", "x[1]", "an array"},
            {"[[1, 2], [3, 2147483648]]", "x[0]", "x[1][1]", NULL},
            {"[[1], [[2]]]", "x[0]", "x[1][0]", NULL},
            {"{}", "x", "x", "an object"},
            {"7", "x", "x", "7"},
            {"null", "x", "x", "null"},
            {"\"AAA\"", "x", "x", NULL},
            {"\"AA*A\"", "x", "x", NULL},
            {"\"A=AA\"", "x", "x", NULL},
            {"\"\"", "x", "x", NULL},
            {"\"AAAA\"", "x", "x", NULL}};

static void refused(const np_error *err, np_status status, const char *where, const char *given)
{
    assert_true(status == NP_EINPUT || status == NP_EFORMAT);
    assert_string_equal(err->where, where);
    if (given) assert_string_equal(err->given, given);
}

static void C177_each_bad_id_is_named(void **state)
{
    for (size_t i = 0; i < sizeof C177 / sizeof *C177; i++) {
        struct given given;
        struct candidates candidates;
        np_ids ids;
        const json_t *json = give(&given, C177[i].text);
        np_status status = value_ids(&given.values, "x", json, &ids, &given.err);
        if (C177[i].ids_where)
            refused(&given.err, status, C177[i].ids_where, C177[i].given);
        else
            assert_int_equal(status, NP_OK);
        status = value_candidates(&given.values, "x", json, &candidates, &given.err);
        refused(&given.err, status, C177[i].candidates_where, C177[i].given);
        done(&given);
    }
}

static void candidates_of_any_length(void **state)
{
    static const int32_t padded[] = {1, 2, 3, -1, -1, -1, 2147483647, -1, -1};
    struct given given;
    struct candidates got;
    const json_t *json = give(&given, "[[1, 2, 3], [], [2147483647]]");
    assert_int_equal(value_candidates(&given.values, "x", json, &got, &given.err), NP_OK);
    assert_int_equal(got.n_rows, 3);
    assert_int_equal(got.n_candidates, 3);
    assert_memory_equal(got.ids, padded, sizeof padded);
    given.values.max_cells = 9;
    assert_int_equal(value_candidates(&given.values, "x", json, &got, &given.err), NP_OK);
    given.values.max_cells = 8;
    assert_int_equal(value_candidates(&given.values, "x", json, &got, &given.err), NP_ELIMIT);
    given.values.max_cells = 0;
    json = json_array_get(json, 0);
    assert_int_equal(value_candidates(&given.values, "x", json, &got, &given.err), NP_OK);
    assert_int_equal(got.n_rows, 0);
    assert_int_equal(got.n_candidates, 3);
    assert_memory_equal(got.ids, padded, 3 * sizeof *padded);
    done(&given);
}

static size_t base64(const void *bytes, size_t n_bytes, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *from = bytes;
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i += 3) {
        size_t left = n_bytes - i;
        uint32_t bits = (uint32_t)from[i] << 16 | (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                        (left > 2 ? from[i + 2] : 0);
        for (size_t k = 0; k < 4; k++)
            out[n++] = k > left ? '=' : digits[bits >> (18 - 6 * k) & 63];
    }
    return n;
}

/* "base64 of an array of int64" as JSON. */
static const json_t *give_array(struct given *given, const int64_t *cells, const uint64_t *shape,
                                int n_dims, size_t n_cells)
{
    struct buf npy;
    char text[4096] = "\"";
    buf_init(&npy, 2000);
    assert_true(npy_header(&npy, NPY_I64, shape, n_dims));
    assert_true(buf_push(&npy, cells, n_cells * sizeof *cells));
    text[1 + base64(npy.data, npy.n_bytes, text + 1)] = '"';
    buf_free(&npy);
    return give(given, text);
}

static void arrays(void **state)
{
    static const int64_t cells[] = {5, -1, 2147483647, 0, 7, 8},
                         large[] = {5, -1, 2147483647, 0, 2147483648, 8};
    static const int32_t right[] = {5, -1, 2147483647, 0, 7, 8};
    static const uint64_t shape[] = {3, 2, 1};
    struct given given;
    struct candidates got;
    np_ids ids;
    const json_t *json = give_array(&given, cells, shape, 2, 6);
    assert_int_equal(value_candidates(&given.values, "x", json, &got, &given.err), NP_OK);
    assert_int_equal(got.n_rows, 3);
    assert_int_equal(got.n_candidates, 2);
    assert_memory_equal(got.ids, right, sizeof right);
    assert_int_equal(value_ids(&given.values, "x", json, &ids, &given.err), NP_EINPUT);
    done(&given);
    json = give_array(&given, cells, shape, 1, 3);
    assert_int_equal(value_candidates(&given.values, "x", json, &got, &given.err), NP_OK);
    assert_int_equal(got.n_rows, 0);
    assert_int_equal(value_ids(&given.values, "x", json, &ids, &given.err), NP_OK);
    assert_int_equal(ids.n, 3);
    assert_memory_equal(ids.ids, right, 3 * sizeof *right);
    done(&given);
    json = give_array(&given, large, shape, 2, 6);
    assert_int_equal(value_candidates(&given.values, "x", json, &got, &given.err), NP_EINPUT);
    assert_string_equal(given.err.where, "x[2][0]");
    assert_string_equal(given.err.given, "2147483648");
    done(&given);
    json = give_array(&given, large + 2, shape, 1, 3);
    assert_int_equal(value_ids(&given.values, "x", json, &ids, &given.err), NP_EINPUT);
    assert_string_equal(given.err.where, "x[2]");
    done(&given);
    json = give_array(&given, cells, shape, 3, 6);
    assert_int_equal(value_candidates(&given.values, "x", json, &got, &given.err), NP_EINPUT);
    done(&given);
}

/* A place that is longer than an error can hold is cut. */
static void long_places_are_cut(void **state)
{
    char where[400];
    struct given given;
    struct candidates got;
    memset(where, 'w', sizeof where);
    where[sizeof where - 1] = 0;
    const json_t *json = give(&given, "[[1], [\"a\"]]");
    assert_int_equal(value_candidates(&given.values, where, json, &got, &given.err), NP_EINPUT);
    assert_int_equal(strlen(given.err.where), sizeof given.err.where - 1);
    done(&given);
}

/* ---- without memory, and with damage ------------------------------------------------------ */

static const char *const samples[] = {
    "{\"prompt\": [1, 2, 3], \"seed\": -1, \"stop\": [\"a\", \"\\u0000\"], \"logit_bias\": {\"5\": "
    "1.5}, \"c\": [[1, 2], [3]], \"n\": "
    "\"k05VTVBZAQB2AHsnZGVzY3InOiAnPGkyJywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIsKSwgfSAg"
    "ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoBAAIA\"}",
    "[[1, 2], [], [2147483647, -1]]", "[1, 9223372036854775808, 1e40]", "{\"7\": 1, \"8\": -2e3}",
    "[\"\\ud83d\\ude00\", \"\xc3\xa4\", \"\\\\\"]"};

static void failing_allocations(void **state)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        for (uint64_t n = 1; n < 40; n++) {
            alloc_fail_after(n);
            LLVMFuzzerTestOneInput((const uint8_t *)samples[i], strlen(samples[i]));
            alloc_fail_after(0);
        }
    struct given given;
    np_ids ids;
    const json_t *json = give(&given, "[1, 2]");
    alloc_fail_after(1);
    assert_int_equal(value_ids(&given.values, "x", json, &ids, &given.err), NP_ENOMEM);
    alloc_fail_after(0);
    done(&given);
}

static void mutated(void **state)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const uint8_t *bytes = (const uint8_t *)samples[i];
        LLVMFuzzerTestOneInput(bytes, strlen(samples[i]));
        assert_int_equal(mutate_run(bytes, strlen(samples[i]), 10000, i), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_json),
        cmocka_unit_test(depth_is_counted_before_it_is_built),
        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(whole_numbers_beside_one_that_is_too_large),
        cmocka_unit_test(seeds),
        cmocka_unit_test(texts),
        cmocka_unit_test(biases),
        cmocka_unit_test(C177_each_bad_id_is_named),
        cmocka_unit_test(candidates_of_any_length),
        cmocka_unit_test(arrays),
        cmocka_unit_test(long_places_are_cut),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(mutated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
