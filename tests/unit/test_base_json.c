/*
 * test_base_json.c - the JSON writer and the shortest decimals.
 *
 * The second opinion on digits is a search: the fewest of 1 to 17 that printf and strtod bring
 * back. NEPIT_TEST_LONG=1 tries 100 times as many random numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <locale.h>
#include <math.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/pool.h"

static uint64_t random_state = 0x9E3779B97F4A7C15u;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static int n_rounds(int usual)
{
    return getenv("NEPIT_TEST_LONG") ? usual * 100 : usual;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The significant digits of a printed number, without the zeros around them; how many. */
static int digits_of(const char *text, char out[32])
{
    int n = 0;
    for (; *text && *text != 'e'; text++)
        if (*text >= '0' && *text <= '9' && (n || *text != '0')) out[n++] = *text;
    while (n > 0 && out[n - 1] == '0') n--;
    out[n] = 0;
    return n;
}

/* Shortest, and the digits of the closest of its length, except above a power of two, where the
 * interval is lopsided: there the closest may lie outside while another of that length lies inside.
 * */
static void check_digits(const char *text, double value, bool is_float, bool power_of_two)
{
    char searched[64], ours[32], theirs[32];
    for (int n = 1; n <= 17; n++) {
        snprintf(searched, sizeof searched, "%.*e", n - 1, value);
        if (is_float ? (double)strtof(searched, NULL) == value : strtod(searched, NULL) == value)
            break;
    }
    int n_ours = digits_of(text, ours), n_theirs = digits_of(searched, theirs);
    bool same = strcmp(ours, theirs) == 0 || (power_of_two && n_ours <= n_theirs);
    if (!same) fail_msg("%s, but searched %s", text, searched);
}

static void check_float(float value)
{
    char text[32];
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    int n_bytes = format_float(value, text);
    float back = strtof(text, NULL);
    assert_int_equal(n_bytes, strlen(text));
    if (memcmp(&back, &value, sizeof back) != 0) fail_msg("%a was written %s", (double)value, text);
    if (value != 0) check_digits(text, (double)value, true, (bits & 0x7FFFFF) == 0);
}

static void check_double(double value)
{
    char text[32];
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int n_bytes = format_double(value, text);
    double back = strtod(text, NULL);
    assert_int_equal(n_bytes, strlen(text));
    if (memcmp(&back, &value, sizeof back) != 0) fail_msg("%a was written %s", value, text);
    if (value != 0) check_digits(text, value, false, (bits & 0xFFFFFFFFFFFFF) == 0);
}

static void floats_are_shortest(void **state)
{
    for (uint32_t field = 0; field < 255; field++) {
        check_float(float_of(field << 23));
        check_float(float_of((field << 23) + 1));
        check_float(-float_of((field << 23) + 0x7FFFFF));
    }
    for (uint32_t bits = 0; bits < 2000; bits++) check_float(float_of(bits)); /* subnormal */
    for (int i = 0; i < n_rounds(50000); i++) {
        float value = float_of((uint32_t)random_bits());
        if (isfinite(value)) check_float(value);
        check_float(-(float)(random_bits() >> 40) /
                    (float)(1 << 20)); /* as log-probabilities are */
    }
}

static void doubles_are_shortest(void **state)
{
    for (uint64_t field = 0; field < 2047; field++) {
        check_double(double_of(field << 52));
        check_double(double_of((field << 52) + 1));
        check_double(-double_of((field << 52) + 0xFFFFFFFFFFFFF));
    }
    for (int i = 0; i < n_rounds(10000); i++) {
        double value = double_of(random_bits());
        if (isfinite(value)) check_double(value);
        check_double(-(double)(random_bits() >> 11) / 1e14);
        check_double((double)(random_bits() % 1000000) / 1000);
    }
}

static void numbers_look_like_python(void **state)
{
    static const struct {
        double value;
        const char *as_float, *as_double;
    } cases[] = {
        {0, "0.0", "0.0"},
        {-0.0, "-0.0", "-0.0"},
        {3, "3.0", "3.0"},
        {-0.25, "-0.25", "-0.25"},
        {1e-4, "0.0001", "0.0001"},
        {1e-5, "1e-05", "1e-05"},
        {1.5e-7, "1.5e-07", "1.5e-07"},
        {123456.789, "123456.79", "123456.789"},
        {16777216, "16777216.0", "16777216.0"},
        {1e15, "1000000000000000.0", "1000000000000000.0"},
        {1e16, "1e+16", "1e+16"},
        {1e22, "1e+22", "1e+22"},
        {2.0 / 3, "0.6666667", "0.6666666666666666"},
        {-14.300, "-14.3", "-14.3"},
        {(double)INFINITY, "inf", "inf"},
        {-(double)INFINITY, "-inf", "-inf"},
        {(double)NAN, "nan", "nan"},
    };
    char text[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        format_float((float)cases[i].value, text);
        assert_string_equal(text, cases[i].as_float);
        format_double(cases[i].value, text);
        assert_string_equal(text, cases[i].as_double);
    }
    format_float(float_of(1), text);
    assert_string_equal(text, "1e-45");
    format_float(float_of(0x7F7FFFFF), text);
    assert_string_equal(text, "3.4028235e+38");
    format_double(-1.7976931348623157e308, text);
    assert_string_equal(text, "-1.7976931348623157e+308");
    format_double(5e-324, text);
    assert_string_equal(text, "5e-324");
}

/* ---- the writer -------------------------------------------------------------------------------
 * */

static void assert_written(struct buf *out, const char *expected)
{
    assert_false(out->failed);
    assert_string_equal(out->data, expected);
    buf_free(out);
}

static void commas_and_brackets(void **state)
{
    struct buf out;
    struct json json;
    buf_init(&out, 1000);
    json_init(&json, &out);
    json_begin(&json, '{');
    json_key(&json, "ids");
    json_begin(&json, '[');
    json_int(&json, INT64_MIN);
    json_int(&json, INT64_MAX);
    json_begin(&json, '[');
    json_end(&json, ']');
    json_begin(&json, '{');
    json_end(&json, '}');
    json_end(&json, ']');
    json_key(&json, "k\"");
    json_str(&json, "v");
    json_key(&json, "none");
    json_str(&json, NULL);
    json_key(&json, "is");
    json_begin(&json, '[');
    json_bool(&json, true);
    json_bool(&json, false);
    json_nil(&json);
    json_end(&json, ']');
    json_end(&json, '}');
    assert_int_equal(json.depth, 0);
    assert_written(&out, "{\"ids\":[-9223372036854775808,9223372036854775807,[],{}],"
                         "\"k\\\"\":\"v\",\"none\":null,\"is\":[true,false,null]}");
}

static void numbers_of_json(void **state)
{
    struct buf out;
    struct json json;
    buf_init(&out, 1000);
    json_init(&json, &out);
    json_begin(&json, '[');
    json_float(&json, -0.1f);
    json_double(&json, -0.1);
    json_float(&json, -INFINITY);
    json_double(&json, -(double)INFINITY);
    json_float(&json, INFINITY);
    json_double(&json, (double)INFINITY);
    json_float(&json, NAN);
    json_double(&json, -(double)NAN);
    json_float(&json, 2);
    json_end(&json, ']');
    assert_written(&out, "[-0.1,-0.1,-9999.0,-9999.0,null,null,null,null,2.0]");
}

#define FFFD "\xEF\xBF\xBD"

static void texts_are_escaped(void **state)
{
    static const struct {
        const char *bytes;
        size_t n_bytes;
        const char *json;
    } cases[] = {
        {"", 0, "\"\""},
        {"a\"b\\c/", 6, "\"a\\\"b\\\\c/\""},
        {"\0\x01\b\t\n\v\f\r\x1F\x7F", 10, "\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f\x7F\""},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF", 19,
         "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\""},
        {"\x80", 1, "\"" FFFD "\""},
        {"\xC3", 1, "\"" FFFD "\""},
        {"\xC0\x80", 2, "\"" FFFD FFFD "\""},
        {"\xE0\x9F\xBF", 3, "\"" FFFD FFFD FFFD "\""},
        {"\xED\xA0\x80", 3, "\"" FFFD FFFD FFFD "\""},
        {"\xF0\x8F\xBF\xBF", 4, "\"" FFFD FFFD FFFD FFFD "\""},
        {"\xF4\x90\x80\x80", 4, "\"" FFFD FFFD FFFD FFFD "\""},
        {"\xF5\x80", 2, "\"" FFFD FFFD "\""},
        {"\xFF\xFE", 2, "\"" FFFD FFFD "\""},
        {" \xF0\x9F\x91", 4, "\" " FFFD "\""},
        {"\xE2\x82x", 3, "\"" FFFD "x\""},
        {"a\xF1\x80\x80\xE1\x80\xC2"
         "b\x80"
         "c\x80\xBF"
         "d",
         13, "\"a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf out;
        struct json json;
        char *exact = malloc(cases[i].n_bytes ? cases[i].n_bytes : 1); /* no byte behind it */
        memcpy(exact, cases[i].bytes, cases[i].n_bytes);
        buf_init(&out, 1000);
        json_init(&json, &out);
        json_text(&json, exact, cases[i].n_bytes);
        assert_written(&out, cases[i].json);
        free(exact);
    }
}

static void failures_wait_in_the_buffer(void **state)
{
    struct buf out;
    struct json json;
    buf_init(&out, 8);
    json_init(&json, &out);
    json_begin(&json, '[');
    for (int i = 0; i < 10; i++) json_str(&json, "text\n");
    json_end(&json, ']');
    assert_true(out.failed);
    assert_true(out.n_bytes <= 8);
    buf_free(&out);
    buf_init(&out, 1000);
    alloc_fail_after(1);
    json_init(&json, &out);
    json_double(&json, 1.5);
    assert_true(out.failed);
    buf_free(&out);
}

/* A locale with a decimal comma, if the machine has one, and another rounding mode. */
static void surroundings_change_nothing(void **state)
{
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                          "pt_BR.UTF-8"};
    char text[32];
    bool comma = false;
    for (size_t i = 0; i < sizeof locales / sizeof *locales && !comma; i++)
        comma = setlocale(LC_ALL, locales[i]) != NULL;
    format_double(-0.1, text);
    assert_string_equal(text, "-0.1");
#if defined(__x86_64__)
    struct fpenv saved = fpenv_enter();
    fpenv_leave((struct fpenv){saved.control | 0xE040}); /* to zero, FTZ, DAZ */
    int n_bytes = format_float(float_of(1), text);
    fpenv_leave(saved);
    assert_int_equal(n_bytes, 5);
    assert_string_equal(text, "1e-45");
#endif
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_are_shortest),
        cmocka_unit_test(doubles_are_shortest),
        cmocka_unit_test(numbers_look_like_python),
        cmocka_unit_test(commas_and_brackets),
        cmocka_unit_test(numbers_of_json),
        cmocka_unit_test(texts_are_escaped),
        cmocka_unit_test(failures_wait_in_the_buffer),
        cmocka_unit_test(surroundings_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
