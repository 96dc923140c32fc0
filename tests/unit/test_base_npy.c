/* test_base_npy.c - .npy headers written and read, hostile ones refused, .npz archives read back.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/npy.h"

#define MAX_COUNT 100000

static uint64_t random_state = 88172645463325252u;

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

/* ---- headers written --------------------------------------------------------------------------
 * */

static void assert_header(enum npy_type type, const uint64_t *shape, int n_dims, const char *dict)
{
    struct buf out;
    buf_init(&out, 1000);
    assert_true(npy_header(&out, type, shape, n_dims));
    assert_int_equal(out.n_bytes % 64, 0);
    assert_memory_equal(out.data, "\x93NUMPY\x01\x00", 8);
    size_t length = (unsigned char)out.data[8] | (size_t)(unsigned char)out.data[9] << 8;
    assert_int_equal(length, out.n_bytes - 10);
    assert_memory_equal(out.data + 10, dict, strlen(dict));
    for (size_t i = 10 + strlen(dict); i < out.n_bytes - 1; i++) assert_int_equal(out.data[i], ' ');
    assert_int_equal(out.data[out.n_bytes - 1], '\n');
    buf_free(&out);
}

static void headers_are_numpys(void **state)
{
    const uint64_t shape[4] = {3, 4, 0, UINT64_MAX},
                   full[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    struct buf out;
    assert_header(NPY_F32, NULL, 0, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }");
    assert_header(NPY_F64, shape, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }");
    assert_header(NPY_I32, shape, 2, "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 4), }");
    assert_header(NPY_I64, shape, 3,
                  "{'descr': '<i8', 'fortran_order': False, 'shape': (3, 4, 0), }");
    assert_header(NPY_U8, full, 4,
                  "{'descr': '|u1', 'fortran_order': False, 'shape': (18446744073709551615, "
                  "18446744073709551615, 18446744073709551615, 18446744073709551615), }");
    buf_init(&out, 1000);
    assert_false(npy_header(&out, NPY_F32, shape, 5));
    assert_false(npy_header(&out, NPY_F32, shape, -1));
    assert_false(npy_header(&out, (enum npy_type)9, shape, 1));
    assert_int_equal(out.n_bytes, 0);
    buf_init(&out, 100);
    assert_false(npy_header(&out, NPY_F32, shape, 1));
    buf_free(&out);
}

/* ---- arrays read ------------------------------------------------------------------------------
 * */

/* A .npy file of version 1 or 2 in a block of exactly its size. */
static char *make_npy(int version, const char *dict, const void *data, size_t n_data,
                      size_t *n_bytes)
{
    size_t n_dict = strlen(dict), before = version == 2 ? 12 : 10;
    *n_bytes = before + n_dict + n_data;
    char *file = calloc(*n_bytes, 1);
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (char)version;
    file[8] = (char)(n_dict & 0xFF);
    file[9] = (char)(n_dict >> 8);
    memcpy(file + before, dict, n_dict);
    if (n_data) memcpy(file + before + n_dict, data, n_data);
    return file;
}

static np_status parse(int version, const char *dict, const void *data, size_t n_data,
                       int64_t **values, uint64_t shape[3], int *n_dims, np_error *err)
{
    size_t n_bytes;
    char *file = make_npy(version, dict, data, n_data, &n_bytes);
    np_status status = npy_parse_ints(file, n_bytes, MAX_COUNT, "ids", values, shape, n_dims, err);
    free(file);
    if (status) assert_null(*values);
    if (status) assert_int_equal(err->status, status);
    return status;
}

static void integers_of_every_type(void **state)
{
    static const struct {
        const char *descr;
        const char *bytes;
        size_t size;
        int64_t first, second;
    } cases[] = {
        {"|i1", "\xFF\x02", 1, -1, 2},
        {"|u1", "\xFF\x02", 1, 255, 2},
        {"<i2", "\xFE\xFF\x01\x02", 2, -2, 513},
        {">i2", "\xFF\xFE\x02\x01", 2, -2, 513},
        {">u2", "\xFF\xFE\x02\x01", 2, 65534, 513},
        {"<i4", "\xFF\xFF\xFF\xFF\x04\x03\x02\x01", 4, -1, 0x01020304},
        {"<u4", "\xFF\xFF\xFF\xFF\x04\x03\x02\x01", 4, 0xFFFFFFFF, 0x01020304},
        {">u4", "\xFF\xFF\xFF\xFF\x01\x02\x03\x04", 4, 0xFFFFFFFF, 0x01020304},
        {"=i4", "\xFF\xFF\xFF\xFF\x04\x03\x02\x01", 4, -1, 0x01020304},
        {"<i8", "\0\0\0\0\0\0\0\x80\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 8, INT64_MIN, INT64_MAX},
        {">i8", "\x80\0\0\0\0\0\0\0\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8, INT64_MIN, INT64_MAX},
        {"<u8", "\x05\0\0\0\0\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 8, 5, INT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int version = 1; version <= 2; version++) {
            char dict[128];
            int64_t *values;
            uint64_t shape[3];
            int n_dims;
            np_error err;
            snprintf(dict, sizeof dict,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }\n", cases[i].descr);
            assert_int_equal(parse(version, dict, cases[i].bytes, 2 * cases[i].size, &values, shape,
                                   &n_dims, &err),
                             NP_OK);
            assert_int_equal(n_dims, 1);
            assert_int_equal(shape[0], 2);
            assert_true(values[0] == cases[i].first && values[1] == cases[i].second);
            free(values);
        }
}

static void dicts_in_any_form(void **state)
{
    static const char *const dicts[] = {
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }   \n",
        "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"|u1\"}",
        "  {  'shape' : ( 2 , 3 , ) , 'descr' : '|i1' , 'fortran_order' : False }\n\n",
    };
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
        int64_t *values;
        uint64_t shape[3];
        int n_dims;
        np_error err;
        assert_int_equal(parse(1, dicts[i], "\0\1\2\3\4\5", 6, &values, shape, &n_dims, &err),
                         NP_OK);
        assert_int_equal(n_dims, 2);
        assert_int_equal(shape[0] * 10 + shape[1], 23);
        for (int j = 0; j < 6; j++) assert_int_equal(values[j], j);
        free(values);
    }
}

static void fortran_order_is_turned(void **state)
{
    unsigned char stored[24];
    int64_t *values;
    uint64_t shape[3];
    int n_dims;
    np_error err;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++)
                stored[i + 2 * (j + 3 * k)] = (unsigned char)(i * 12 + j * 4 + k);
    assert_int_equal(parse(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 4)}", stored,
                           24, &values, shape, &n_dims, &err),
                     NP_OK);
    for (int i = 0; i < 24; i++) assert_int_equal(values[i], i);
    free(values);
}

static void empty_arrays(void **state)
{
    static const char *const shapes[] = {"(0,)", "(0, 7)", "(7, 0)", "(3, 0, 5)"};
    for (size_t i = 0; i < 4; i++) {
        char dict[128];
        int64_t *values;
        uint64_t shape[3];
        int n_dims;
        np_error err;
        snprintf(dict, sizeof dict, "{'descr': '<i8', 'fortran_order': True, 'shape': %s}",
                 shapes[i]);
        assert_int_equal(parse(1, dict, NULL, 0, &values, shape, &n_dims, &err), NP_OK);
        assert_non_null(values);
        free(values);
    }
}

#define DICT(descr, order, shape) \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape "}"

static void bad_headers_are_refused(void **state)
{
    static const struct {
        const char *dict;
        size_t n_data;
        np_status status;
    } cases[] = {
        {"", 0, NP_EFORMAT},
        {"{", 0, NP_EFORMAT},
        {"{}", 0, NP_EFORMAT},
        {"[]", 0, NP_EFORMAT},
        {DICT("'<i4'", "False", "(2,)") "x", 8, NP_EFORMAT},
        {DICT("'<i4'", "False", "(2)"), 8, NP_EFORMAT},
        {DICT("'<i4'", "False", "(2,"), 8, NP_EFORMAT},
        {DICT("'<i4'", "False", "(2 2)"), 16, NP_EFORMAT},
        {DICT("'<i4'", "False", "(,)"), 8, NP_EFORMAT},
        {DICT("'<i4'", "False", "(2,,2)"), 16, NP_EFORMAT},
        {DICT("'<i4'", "False", "(-2,)"), 8, NP_EFORMAT},
        {DICT("'<i4'", "False", "(0x2,)"), 8, NP_EFORMAT},
        {DICT("'<i4'", "False", "[2]"), 8, NP_EFORMAT},
        {DICT("'<i4'", "false", "(2,)"), 8, NP_EFORMAT},
        {DICT("'<i4'", "False", "()"), 4, NP_EUNSUPPORTED},
        {DICT("'<i4'", "False", "(1,1,1,1)"), 4, NP_EUNSUPPORTED},
        {DICT("'<f4'", "False", "(2,)"), 8, NP_EUNSUPPORTED},
        {DICT("'|b1'", "False", "(2,)"), 2, NP_EUNSUPPORTED},
        {DICT("'<i3'", "False", "(2,)"), 6, NP_EUNSUPPORTED},
        {DICT("'<i16'", "False", "(2,)"), 32, NP_EUNSUPPORTED},
        {DICT("'|O'", "False", "(2,)"), 16, NP_EUNSUPPORTED},
        {DICT("''", "False", "(2,)"), 16, NP_EUNSUPPORTED},
        {DICT("[('a', '<i4')]", "False", "(2,)"), 8, NP_EFORMAT},
        {DICT("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'", "False", "(2,)"), 8, NP_EFORMAT},
        {DICT("'<i4'", "False", "(2,)"), 7, NP_EFORMAT},
        {DICT("'<i4'", "False", "(2,)"), 12, NP_EFORMAT},
        {DICT("'<i4'", "False", "(3,)"), 8, NP_EFORMAT},
        {DICT("'<i4'", "False", "(100001,)"), 8, NP_ELIMIT},
        {DICT("'<i4'", "False", "(400, 400)"), 8, NP_ELIMIT},
        {DICT("'<i4'", "False", "(4294967296, 4294967296)"), 0, NP_ELIMIT},
        {DICT("'<i4'", "False", "(9223372036854775807, 2)"), 0, NP_ELIMIT},
        {DICT("'<i4'", "False", "(9223372036854775808,)"), 0, NP_EFORMAT},
        {DICT("'<i4'", "False", "(0, 9223372036854775807)"), 0, NP_ELIMIT},
        {DICT("'<i4'", "False", "(99999999999999999999999999,)"), 0, NP_EFORMAT},
        {"{'descr': '<i4', 'fortran_order': False}", 8, NP_EFORMAT},
        {"{'descr': '<i4', 'descr': '<i4', 'shape': (2,)}", 8, NP_EFORMAT},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (2,), 'x': 1}", 8, NP_EFORMAT},
        {"{'descr': '<i4' 'fortran_order': False, 'shape': (2,)}", 8, NP_EFORMAT},
        {"{'descr' '<i4', 'fortran_order': False, 'shape': (2,)}", 8, NP_EFORMAT},
    };
    static const char data[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t *values;
        uint64_t shape[3];
        int n_dims;
        np_error err;
        np_status status =
            parse(1, cases[i].dict, data, cases[i].n_data, &values, shape, &n_dims, &err);
        if (status != cases[i].status) fail_msg("%s: %s", cases[i].dict, np_status_text(status));
        assert_string_equal(err.where, "ids");
        assert_true(err.message[0] != 0);
    }
}

static void values_and_starts_are_refused(void **state)
{
    int64_t *values;
    uint64_t shape[3];
    int n_dims;
    np_error err;
    char start[16] = "\x93NUMPY\x03\x00\x02\x00{}";
    assert_int_equal(parse(1, DICT("'<u8'", "False", "(1,)"), "\0\0\0\0\0\0\0\x80", 8, &values,
                           shape, &n_dims, &err),
                     NP_EINPUT);
    assert_string_equal(err.given, "9223372036854775808");
    assert_int_equal(npy_parse_ints(start, 12, 9, "ids", &values, shape, &n_dims, &err),
                     NP_EUNSUPPORTED);
    start[6] = 1;
    start[7] = 1;
    assert_int_equal(npy_parse_ints(start, 12, 9, "ids", &values, shape, &n_dims, &err),
                     NP_EUNSUPPORTED);
    start[7] = 0;
    start[8] = 3;
    assert_int_equal(npy_parse_ints(start, 12, 9, "ids", &values, shape, &n_dims, &err),
                     NP_EFORMAT);
    memcpy(start + 6, "\x02\x00\xFF\xFF\xFF\xFF", 6);
    assert_int_equal(npy_parse_ints(start, 12, 9, "ids", &values, shape, &n_dims, &err),
                     NP_EFORMAT);
    assert_int_equal(npy_parse_ints(start, 11, 9, "ids", &values, shape, &n_dims, &err),
                     NP_EFORMAT);
    assert_int_equal(npy_parse_ints("PK\3\4 and more", 13, 9, "ids", &values, shape, &n_dims, &err),
                     NP_EFORMAT);
    assert_int_equal(npy_parse_ints("", 0, 9, "ids", &values, shape, &n_dims, &err), NP_EFORMAT);
    alloc_fail_after(1);
    assert_int_equal(
        parse(1, DICT("'|u1'", "False", "(1,)"), "x", 1, &values, shape, &n_dims, &err), NP_ENOMEM);
}

/* Whatever the bytes: an array of the said shape, or an error; never a byte outside the block. */
static void assert_total(const char *bytes, size_t n_bytes)
{
    int64_t *values;
    uint64_t shape[3];
    int n_dims;
    np_error err;
    char *exact = malloc(n_bytes ? n_bytes : 1);
    memcpy(exact, bytes, n_bytes);
    np_status status =
        npy_parse_ints(exact, n_bytes, MAX_COUNT, "ids", &values, shape, &n_dims, &err);
    free(exact);
    if (status) {
        assert_null(values);
        assert_in_range(status, NP_EFORMAT, NP_ELIMIT);
        assert_true(err.offset >= -1 && err.offset <= (int64_t)n_bytes);
        return;
    }
    uint64_t count = 1;
    assert_in_range(n_dims, 1, 3);
    for (int i = 0; i < n_dims; i++) count *= shape[i];
    assert_true(count <= MAX_COUNT && count <= n_bytes);
    int64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) sum ^= values[i];
    assert_true(sum == sum);
    free(values);
}

static void hostile_bytes_do_no_harm(void **state)
{
    static const char *const dicts[] = {
        "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }      \n",
        "{'descr': '>u2', 'fortran_order': True, 'shape': (2, 2, 3), }   \n",
        "{\"shape\": (3,), 'fortran_order': False, 'descr': '<i8'}\n"};
    static const char likely[] = "'\"(){}:, <>|=iu1248TrueFalse0\n\x00\xFF\x93";
    static const char data[24] = "\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5\0\0\0\6\0\0";
    int n_rounds = getenv("NEPIT_TEST_LONG") ? 1000000 : 20000;
    for (size_t d = 0; d < sizeof dicts / sizeof *dicts; d++) {
        for (int version = 1; version <= 2; version++) {
            size_t n_bytes;
            char *file = make_npy(version, dicts[d], data, sizeof data, &n_bytes);
            char *changed = malloc(n_bytes);
            for (size_t cut = 0; cut <= n_bytes; cut++) assert_total(file, cut);
            for (int round = 0; round < n_rounds; round++) {
                memcpy(changed, file, n_bytes);
                for (uint64_t n = 1 + random_below(4); n > 0; n--) {
                    uint64_t choice = random_below(2 * sizeof likely);
                    char byte = choice < sizeof likely ? likely[choice] : (char)random_below(256);
                    changed[random_below(n_bytes)] = byte;
                }
                assert_total(changed, n_bytes - (random_below(4) ? 0 : random_below(n_bytes)));
            }
            free(changed);
            free(file);
        }
    }
}

/* ---- archives ---------------------------------------------------------------------------------
 * */

static char folder[] = "/tmp/nepit-test-npy-XXXXXX";

static char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    return mkdtemp(folder) ? 0 : -1;
}

static int n_files(void)
{
    DIR *listing = opendir(folder);
    int n = 0;
    while (listing && readdir(listing)) n++;
    if (listing) closedir(listing);
    return n - 2;
}

static int remove_folder(void **state)
{
    unlink(path_of("out.npz"));
    return rmdir(folder);
}

static uint64_t get(const char *at, int n_bytes)
{
    uint64_t value = 0;
    for (int i = n_bytes - 1; i >= 0; i--) value = value << 8 | (unsigned char)at[i];
    return value;
}

static uint32_t crc_bit_by_bit(const char *bytes, size_t n_bytes)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

/* The entry of that name, found through the directory; its CRC and both headers are checked. */
static const char *find_entry(const char *zip, size_t n_bytes, const char *name, size_t *n_entry)
{
    const char *end = zip + n_bytes - 22;
    assert_memory_equal(end, "PK\5\6", 4);
    const char *record = zip + get(end + 16, 4);
    assert_int_equal(get(end + 12, 4) + get(end + 16, 4), n_bytes - 22);
    for (uint64_t left = get(end + 10, 2); left > 0; left--) {
        size_t n_name = get(record + 28, 2), size = get(record + 24, 4);
        const char *local = zip + get(record + 42, 4), *bytes = local + 30 + n_name;
        assert_memory_equal(record, "PK\1\2", 4);
        assert_memory_equal(local, "PK\3\4", 4);
        assert_memory_equal(local + 4, record + 6, 24);
        assert_memory_equal(local + 30, record + 46, n_name);
        assert_int_equal(get(record + 20, 4), size);
        assert_int_equal(get(record + 16, 4), crc_bit_by_bit(bytes, size));
        *n_entry = size;
        if (n_name == strlen(name) && memcmp(record + 46, name, n_name) == 0) return bytes;
        record += 46 + n_name;
    }
    fail_msg("no entry %s", name);
    return NULL;
}

static np_status write_archive(const char *path, np_error *err)
{
    const uint64_t shape[2] = {2, 3}, none = 0;
    const int32_t ids[6] = {1, -2, 3, -4, 5, 1 << 30};
    const float logprobs[2] = {-0.5f, -1.25f};
    struct npz *npz;
    TRY(npz_open(&npz, path, err));
    np_status status = npz_add(npz, "ids.npy", NPY_I32, shape, 2, ids, err);
    if (!status) status = npz_add(npz, "logprobs.npy", NPY_F32, shape, 1, logprobs, err);
    if (!status) status = npz_add(npz, "none.npy", NPY_I64, &none, 1, NULL, err);
    if (!status) return npz_close(npz, err);
    npz_abort(npz);
    return status;
}

static void archives_are_read_back(void **state)
{
    np_error err;
    char *zip;
    size_t n_bytes, n_entry;
    int64_t *values;
    uint64_t shape[3];
    int n_dims;
    assert_int_equal(write_archive(path_of("out.npz"), &err), NP_OK);
    assert_int_equal(n_files(), 1);
    assert_int_equal(file_read_all(path_of("out.npz"), 10000, &zip, &n_bytes, &err), NP_OK);
    const char *entry = find_entry(zip, n_bytes, "ids.npy", &n_entry);
    assert_int_equal(npy_parse_ints(entry, n_entry, 6, "ids", &values, shape, &n_dims, &err),
                     NP_OK);
    assert_int_equal(n_dims, 2);
    assert_int_equal(shape[1], 3);
    assert_int_equal(values[1], -2);
    assert_int_equal(values[5], 1 << 30);
    free(values);
    entry = find_entry(zip, n_bytes, "logprobs.npy", &n_entry);
    assert_int_equal(n_entry, 128 + 8);
    assert_memory_equal(entry + 128, "\0\0\0\xBF\0\0\xA0\xBF", 8);
    entry = find_entry(zip, n_bytes, "none.npy", &n_entry);
    assert_int_equal(npy_parse_ints(entry, n_entry, 6, "none", &values, shape, &n_dims, &err),
                     NP_OK);
    free(values);
    free(zip);
}

static void archives_fail_at_any_allocation(void **state)
{
    np_error err;
    np_status status = NP_ENOMEM;
    uint64_t n = 0;
    unlink(path_of("out.npz"));
    while (status == NP_ENOMEM && n < 1000) {
        assert_int_equal(n_files(), 0);
        alloc_fail_after(++n);
        status = write_archive(path_of("out.npz"), &err);
        alloc_fail_after(0);
    }
    assert_int_equal(status, NP_OK);
    assert_in_range(n, 5, 100);
    assert_int_equal(n_files(), 1);
}

static void failures_leave_the_old_file(void **state)
{
    const uint64_t wide[5] = {1, 1, 1, 1, 1}, huge[2] = {UINT64_MAX, UINT64_MAX}, many = 200000;
    struct rlimit limit, small;
    struct stat before, after;
    struct npz *npz;
    np_error err;
    char longer[300], *zeros = calloc(200000, 1);
    assert_int_equal(write_archive(path_of("out.npz"), &err), NP_OK);
    assert_int_equal(stat(path_of("out.npz"), &before), 0);

    assert_int_equal(npz_open(&npz, path_of("out.npz"), &err), NP_OK);
    assert_int_equal(npz_add(npz, "a", NPY_F32, wide, 5, zeros, &err), NP_ELIMIT);
    assert_int_equal(npz_add(npz, "a", NPY_F32, huge, 2, zeros, &err), NP_ELIMIT);
    assert_int_equal(npz_add(npz, "", NPY_F32, wide, 1, zeros, &err), NP_ELIMIT);
    memset(longer, 'n', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(npz_add(npz, longer, NPY_F32, wide, 1, zeros, &err), NP_ELIMIT);
    assert_int_equal(n_files(), 2);
    npz_abort(npz);
    assert_int_equal(n_files(), 1);

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 100000;
    assert_int_equal(npz_open(&npz, path_of("out.npz"), &err), NP_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    np_status status = npz_add(npz, "a", NPY_U8, &many, 1, zeros, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(status, NP_EIO);
    npz_abort(npz);
    assert_int_equal(n_files(), 1);
    assert_int_equal(stat(path_of("out.npz"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(before.st_size, after.st_size);
    npz_abort(NULL);
    free(zeros);
}

static void places_that_cannot_be_written(void **state)
{
    struct npz *npz = (struct npz *)1;
    np_error err;
    assert_int_equal(npz_open(&npz, path_of("missing/out.npz"), &err), NP_EIO);
    assert_null(npz);
    assert_int_equal(npz_open(&npz, folder, &err), NP_EIO);
    assert_int_equal(write_archive("/dev/full", &err), NP_EIO);
    assert_non_null(strstr(err.message, "No space"));
    assert_int_equal(write_archive("/dev/null", &err), NP_OK);
}

/* Above 4 GiB: an entry whose size, one whose offset and a directory whose place need 64 bits. */
static void archives_above_four_gigabytes(void **state)
{
    const uint64_t large = ((uint64_t)1 << 32) + 5, small = 3;
    struct npz *npz;
    np_error err;
    char tail[98];
    struct file file;
    if (!getenv("NEPIT_TEST_LONG")) skip();
    char *zeros = big_alloc(large);
    assert_non_null(zeros);
    assert_int_equal(npz_open(&npz, path_of("out.npz"), &err), NP_OK);
    assert_int_equal(npz_add(npz, "large.npy", NPY_U8, &large, 1, zeros, &err), NP_OK);
    assert_int_equal(npz_add(npz, "small.npy", NPY_U8, &small, 1, zeros, &err), NP_OK);
    assert_int_equal(npz_close(npz, &err), NP_OK);
    big_free(zeros, large);
    assert_int_equal(file_open(&file, path_of("out.npz"), &err), NP_OK);
    assert_int_equal(file_read(&file, file.n_bytes - 98, tail, 98, &err), NP_OK);
    file_close(&file);
    assert_memory_equal(tail, "PK\6\6", 4);
    assert_memory_equal(tail + 56, "PK\6\7", 4);
    assert_int_equal(get(tail + 56 + 8, 8), file.n_bytes - 98);
    assert_int_equal(get(tail + 40, 8) + get(tail + 48, 8), file.n_bytes - 98);
    assert_int_equal(get(tail + 76 + 16, 4), 0xFFFFFFFF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_numpys),
        cmocka_unit_test(integers_of_every_type),
        cmocka_unit_test(dicts_in_any_form),
        cmocka_unit_test(fortran_order_is_turned),
        cmocka_unit_test(empty_arrays),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(values_and_starts_are_refused),
        cmocka_unit_test(hostile_bytes_do_no_harm),
        cmocka_unit_test(archives_are_read_back),
        cmocka_unit_test(archives_fail_at_any_allocation),
        cmocka_unit_test(failures_leave_the_old_file),
        cmocka_unit_test(places_that_cannot_be_written),
        cmocka_unit_test(archives_above_four_gigabytes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
