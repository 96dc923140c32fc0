/* test_format_gguf.c - GGUF headers: every type of value, and every way that a header can lie. */
#include "test_format_files.h"

#include "../../fuzz/fuzz_gguf.c"

#include <time.h>

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 };

static void begin(struct image *image, uint32_t version, uint64_t n_tensors, uint64_t n_settings)
{
    image->n = 0;
    put(image, "GGUF", 4);
    put_u32(image, version);
    put_u64(image, n_tensors);
    put_u64(image, n_settings);
}

static void put_tensor(struct image *image, const char *name, uint64_t rows, uint64_t columns,
                       uint32_t type, uint64_t offset)
{
    put_text(image, name);
    put_u32(image, 2);
    put_u64(image, columns);
    put_u64(image, rows);
    put_u32(image, type);
    put_u64(image, offset);
}

/* Zeroes up to a multiple of `alignment`, then n bytes of data 0, 1, 2, ... */
static void put_data(struct image *image, size_t alignment, size_t n)
{
    while (image->n % alignment) put_number(image, 0, 1);
    for (size_t i = 0; i < n; i++) put_number(image, i & 0xff, 1);
}

static np_status open_image(const struct image *image, struct modelfile **out, np_error *err)
{
    struct memory memory = memory_open(image->bytes, image->n);
    np_status status = modelfile_open(memory.path, out, err);
    close(memory.fd);
    return status;
}

static void refuse(const struct image *image, np_status expected, const char *fragment)
{
    struct modelfile *file;
    np_error err;
    check_refused(open_image(image, &file, &err), expected, &err, fragment);
    assert_null(file);
}

#define N_SCALARS 12

/* One setting of every type, arrays, and three tensors; its header is `n_header` bytes. */
static size_t everything(struct image *image, uint32_t version)
{
    static const struct {
        uint32_t type;
        size_t n_bytes;
        uint64_t bits;
    } scalars[N_SCALARS] = {{U8, 1, 0xfe},        {I8, 1, 0xfe},
                            {U16, 2, 0xfffe},     {I16, 2, 0xfffe},
                            {U32, 4, 0xfffffffe}, {I32, 4, 0xfffffffe},
                            {U64, 8, INT64_MAX},  {I64, 8, (uint64_t)INT64_MIN},
                            {F32, 4, 0x3dcccccd}, {F64, 8, 0x3fb999999999999a},
                            {BOOL, 1, 1},         {BOOL, 1, 0}};
    begin(image, version, 3, N_SCALARS + 7);
    for (size_t i = 0; i < N_SCALARS; i++) {
        char key[16];
        snprintf(key, sizeof key, "scalar.%zu", i);
        put_key(image, key, scalars[i].type);
        put_number(image, scalars[i].bits, scalars[i].n_bytes);
    }
    put_key(image, "general.alignment", U32);
    put_u32(image, 64);
    put_key(image, "text", STRING);
    put_u64(image, 5);
    put(image, "a\0b\xff\n", 5);
    put_key(image, "texts", ARRAY);
    put_u32(image, STRING);
    put_u64(image, 3);
    put_text(image, "one");
    put_text(image, "");
    put_text(image, "three");
    put_key(image, "integers", ARRAY);
    put_u32(image, I16);
    put_u64(image, 3);
    for (int i = 0; i < 3; i++) put_number(image, (uint64_t)(-i), 2);
    put_key(image, "floats", ARRAY);
    put_u32(image, F64);
    put_u64(image, 1);
    put_u64(image, 0x3fb999999999999a);
    put_key(image, "flags", ARRAY);
    put_u32(image, BOOL);
    put_u64(image, 2);
    put_number(image, 1, 2);
    put_key(image, "nothing", ARRAY);
    put_u32(image, U8);
    put_u64(image, 0);
    put_tensor(image, "b", 2, 32, 3, 64);
    put_tensor(image, "a", 3, 4, 0, 0);
    put_tensor(image, "k", 1, 256, 12, 128);
    size_t n_header = image->n;
    put_data(image, 64, 128 + 144);
    return n_header;
}

static void check_scalars(const struct modelfile *file)
{
    static const int64_t integers[8] = {254, -2, 65534, -2, 4294967294, -2, INT64_MAX, INT64_MIN};
    char key[16];
    for (size_t i = 0; i < N_SCALARS; i++) {
        snprintf(key, sizeof key, "scalar.%zu", i);
        const struct setting *setting = modelfile_get(file, key);
        assert_non_null(setting);
        assert_ptr_equal(setting, modelfile_setting(file, i));
        if (i < 8) assert_true(setting->type == SETTING_INT && setting->integer == integers[i]);
        if (i < 8) assert_true(setting->number == (double)integers[i]);
        if (i == 8) assert_true(setting->type == SETTING_FLOAT && setting->number == (double)0.1f);
        if (i == 9) assert_true(setting->type == SETTING_FLOAT && setting->number == 0.1);
        if (i > 9) assert_true(setting->type == SETTING_BOOL && setting->integer == (i == 10));
    }
}

static void check_arrays(const struct modelfile *file)
{
    const struct setting *text = modelfile_get(file, "text"), *texts = modelfile_get(file, "texts");
    const struct setting *integers = modelfile_get(file, "integers"),
                         *floats = modelfile_get(file, "floats");
    const struct setting *flags = modelfile_get(file, "flags"),
                         *nothing = modelfile_get(file, "nothing");
    assert_int_equal(text->text.n_bytes, 5);
    assert_memory_equal(text->text.bytes, "a\0b\xff\n", 6);
    assert_true(texts->type == SETTING_ARRAY && texts->element_type == SETTING_STRING &&
                texts->n_elements == 3);
    assert_string_equal(texts->texts[0].bytes, "one");
    assert_string_equal(texts->texts[1].bytes, "");
    assert_string_equal(texts->texts[2].bytes, "three");
    assert_true(integers->element_type == SETTING_INT && integers->n_elements == 3);
    for (int i = 0; i < 3; i++) assert_int_equal(integers->integers[i], -i);
    assert_true(floats->element_type == SETTING_FLOAT && floats->numbers[0] == 0.1);
    assert_true(flags->element_type == SETTING_BOOL && flags->integers[0] == 1 &&
                flags->integers[1] == 0);
    assert_true(nothing->element_type == SETTING_NULL && nothing->n_elements == 0);
}

static void check_tensors(struct modelfile *file)
{
    uint8_t data[40];
    np_error err;
    const struct tensor *a = modelfile_find(file, "a"), *b = modelfile_find(file, "b"),
                        *k = modelfile_find(file, "k");
    assert_int_equal(modelfile_n_tensors(file), 3);
    assert_null(modelfile_find(file, "c"));
    assert_true(a->dtype == DT_F32 && a->shape[0] == 3 && a->shape[1] == 4 && a->n_bytes == 48);
    assert_true(b->dtype == DT_Q4_1 && b->shape[0] == 2 && b->shape[1] == 32 && b->n_bytes == 40);
    assert_string_equal(b->type_name, "Q4_1");
    assert_int_equal(modelfile_read(file, b, 32, 32, data, &err), NP_OK);
    for (int i = 0; i < 20; i++) assert_int_equal(data[i], 64 + 20 + i);
    assert_int_equal(modelfile_read(file, b, 0, 65, data, &err), NP_EINTERNAL);
    assert_int_equal(modelfile_read(file, b, 64, 32, data, &err), NP_EINTERNAL);
    assert_int_equal(modelfile_read(file, b, 96, 0, data, &err), NP_EINTERNAL);
    assert_int_equal(modelfile_read(file, a, 12, 0, data, &err), NP_OK);
    assert_true(k->dtype == DT_NONE && k->n_bytes == 144);
    check_refused(modelfile_read(file, k, 0, 256, data, &err), NP_EUNSUPPORTED, &err, "Q4_K");
}

static void every_type_in_versions_2_and_3(void **state)
{
    struct image image;
    for (uint32_t version = 2; version <= 3; version++) {
        struct modelfile *file;
        np_error err;
        everything(&image, version);
        check_refused(open_image(&image, &file, &err), NP_OK, &err, "");
        assert_int_equal(modelfile_container(file), CONTAINER_GGUF);
        check_scalars(file);
        check_arrays(file);
        check_tensors(file);
        modelfile_close(file);
    }
}

static void file_cut_anywhere_C172(void **state)
{
    struct image whole, cut;
    size_t n_header = everything(&whole, 3);
    for (size_t n = 0; n < whole.n; n++) {
        struct modelfile *file;
        np_error err;
        memcpy(cut.bytes, whole.bytes, cut.n = n);
        np_status status = open_image(&cut, &file, &err);
        check_refused(status, NP_EFORMAT, &err, n < n_header ? "left" : "needs");
    }
    whole.n--;
    refuse(&whole, NP_EFORMAT, "is 975 bytes, needs 976");
}

static void file_that_shrinks_while_read_C172(void **state)
{
    struct image image;
    struct modelfile *file;
    np_error err;
    uint8_t data[40];
    everything(&image, 3);
    struct memory memory = memory_open(image.bytes, image.n);
    assert_int_equal(modelfile_open(memory.path, &file, &err), NP_OK);
    assert_int_equal(ftruncate(memory.fd, (off_t)image.n - 200), 0);
    check_refused(modelfile_read(file, modelfile_find(file, "b"), 0, 64, data, &err), NP_EIO, &err,
                  "needs");
    modelfile_close(file);

    assert_int_equal(modelfile_new(&file, CONTAINER_GGUF, memory.path, ".", 1, &err), NP_OK);
    assert_int_equal(modelfile_add_file(file, memory.path, &err), NP_OK);
    assert_int_equal(ftruncate(memory.fd, 100), 0);
    check_refused(gguf_parse(file, &err), NP_EIO, &err, "file is 100 bytes");
    modelfile_close(file);
    close(memory.fd);
}

static void versions_and_magics(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        np_status status;
        const char *fragment;
    } cases[] = {
        {"", 0, NP_EFORMAT, "0 are left"},
        {"GGU", 3, NP_EFORMAT, "3 are left"},
        {"GGUF\1\0\0\0", 8, NP_EUNSUPPORTED, "version 1 is not supported; 2 and 3 are"},
        {"GGUF\4\0\0\0", 8, NP_EUNSUPPORTED, "version 4"},
        {"GGUF\0\0\0\0", 8, NP_EUNSUPPORTED, "version 0"},
        {"GGUF\0\0\0\3", 8, NP_EUNSUPPORTED, "big-endian"},
        {"PK\3\4....", 8, NP_EUNSUPPORTED, "PyTorch"},
        {"\x80\2.......", 8, NP_EUNSUPPORTED, "pickle"},
        {"tjgg....", 8, NP_EUNSUPPORTED, "GGJT"},
        {"{\"a\": 1}", 8, NP_EFORMAT, "7b 22 61 22"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct image image = {.n = cases[i].n};
        memcpy(image.bytes, cases[i].bytes, cases[i].n);
        refuse(&image, cases[i].status, cases[i].fragment);
    }
}

static void alignment_C171(void **state)
{
    static const struct {
        uint32_t type;
        size_t n_bytes;
        uint64_t bits;
        bool good;
    } cases[] = {{U32, 4, 1, true},       {U32, 4, 32, true},  {U32, 4, 65536, true},
                 {U32, 4, 0, false},      {U32, 4, 3, false},  {U32, 4, 1u << 31, false},
                 {U32, 4, 131072, false}, {I32, 4, 32, false}, {I32, 4, 0xffffffe0, false},
                 {U64, 8, 32, false},     {U16, 2, 32, false}, {F32, 4, 0x42000000, false},
                 {BOOL, 1, 1, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct image image;
        struct modelfile *file;
        np_error err;
        begin(&image, 3, 0, 1);
        put_key(&image, "general.alignment", cases[i].type);
        put_number(&image, cases[i].bits, cases[i].n_bytes);
        np_status status = open_image(&image, &file, &err);
        check_refused(status, cases[i].good ? NP_OK : NP_EFORMAT, &err,
                      cases[i].good ? "" : "general.alignment is");
        modelfile_close(file);
    }
    struct image image;
    begin(&image, 3, 0, 1);
    put_key(&image, "general.alignment", STRING);
    put_text(&image, "32");
    refuse(&image, NP_EFORMAT, "general.alignment is STRING");
}

/* Refused at once, and with less memory than the file could have asked for. */
static void refuse_cheaply(const struct image *image, np_status expected, const char *fragment)
{
    struct memory memory = memory_open(image->bytes, image->n);
    struct modelfile *file;
    struct timespec from, to;
    np_error err;
    assert_int_equal(modelfile_new(&file, CONTAINER_GGUF, memory.path, ".", 1, &err), NP_OK);
    assert_int_equal(modelfile_add_file(file, memory.path, &err), NP_OK);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    np_status status = gguf_parse(file, &err);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    check_refused(status, expected, &err, fragment);
    assert_true((double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9 <
                0.010);
    assert_true(file->arena.used_bytes < (1 << 18));
    modelfile_close(file);
    close(memory.fd);
}

static void huge_counts_and_lengths_C166(void **state)
{
    static const uint64_t huge[] = {(uint64_t)1 << 40, (uint64_t)1 << 60, (uint64_t)1 << 63,
                                    UINT64_MAX};
    struct image image;
    for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
        begin(&image, 3, huge[i], 0);
        refuse_cheaply(&image, NP_ELIMIT, "the number of tensors");
        begin(&image, 3, 0, huge[i]);
        refuse_cheaply(&image, NP_ELIMIT, "the number of settings");
        begin(&image, 3, 0, 1);
        put_u64(&image, huge[i]);
        put(&image, "key..........", 13);
        refuse_cheaply(&image, NP_EFORMAT, "the key of a setting needs");
        begin(&image, 3, 0, 1);
        put_key(&image, "text", STRING);
        put_u64(&image, huge[i]);
        refuse_cheaply(&image, NP_EFORMAT, "a text needs");
        begin(&image, 3, 0, 1);
        put_key(&image, "list", ARRAY);
        put_u32(&image, STRING);
        put_u64(&image, huge[i]);
        refuse_cheaply(&image, NP_ELIMIT, "an array of");
        begin(&image, 3, 1, 0);
        put_tensor(&image, "t", huge[i], ((uint64_t)1 << 61) + 3, 0, 0);
        refuse_cheaply(&image, NP_EFORMAT, "overflow");
        begin(&image, 3, 1, 0);
        put_tensor(&image, "t", 4, 4, 0, huge[i]);
        refuse_cheaply(&image, NP_EFORMAT, i < 2 ? "needs" : "data offset");
    }
    begin(&image, 3, 1, 0);
    put_tensor(&image, "t", 1, ((uint64_t)1 << 61) + 3, 0, 0);
    refuse_cheaply(&image, NP_EFORMAT, "overflow");
}

static void counts_just_under_each_limit_C167(void **state)
{
    struct image image;
    begin(&image, 3, MODELFILE_MAX_TENSORS, 0);
    refuse_cheaply(&image, NP_EFORMAT, "the number of tensors is 65536, too many for the 8 bytes");
    begin(&image, 3, 0, MODELFILE_MAX_SETTINGS);
    refuse_cheaply(&image, NP_EFORMAT, "the number of settings is 65536, too many for the 0 bytes");
    begin(&image, 3, 0, 1);
    put_key(&image, "list", ARRAY);
    put_u32(&image, U8);
    put_u64(&image, MODELFILE_MAX_ARRAY);
    refuse_cheaply(&image, NP_EFORMAT, "an array needs 16777216 bytes, but 0 are left");
}

static void values_that_are_refused(void **state)
{
    struct image image;
    begin(&image, 3, 0, 1);
    put_key(&image, "nested", ARRAY);
    put_u32(&image, ARRAY);
    put_u64(&image, 0);
    refuse(&image, NP_EUNSUPPORTED, "an array of arrays is not supported: nested");
    begin(&image, 3, 0, 1);
    put_key(&image, "odd", 13);
    put_u64(&image, 0);
    refuse(&image, NP_EFORMAT, "the type of a setting is 13");
    begin(&image, 3, 0, 1);
    put_key(&image, "big", U64);
    put_u64(&image, (uint64_t)1 << 63);
    refuse(&image, NP_EFORMAT, "a UINT64 of 9223372036854775808");
    begin(&image, 3, 0, 1);
    put_key(&image, "flag", BOOL);
    put_number(&image, 2, 1);
    refuse(&image, NP_EFORMAT, "a BOOL of 2");
    begin(&image, 3, 0, 1);
    put_key(&image, "split.count", U16);
    put_number(&image, 3, 2);
    refuse(&image, NP_EUNSUPPORTED, "one of the 3 parts of a split GGUF");
}

static void names_that_are_refused(void **state)
{
    struct image image;
    char name[MODELFILE_MAX_NAME_BYTES + 2];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    begin(&image, 3, 0, 1);
    put_key(&image, name, U64);
    put_u64(&image, 0);
    refuse(&image, NP_EFORMAT, "the key of a setting of 257 bytes");
    begin(&image, 3, 0, 1);
    put_key(&image, "", U64);
    put_u64(&image, 0);
    refuse(&image, NP_EFORMAT, "of 0 bytes");
    begin(&image, 3, 0, 1);
    put_key(&image, "two\nlines", U64);
    put_u64(&image, 0);
    refuse(&image, NP_EFORMAT, "control character 0x0a");
    begin(&image, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_key(&image, "same", U64);
        put_u64(&image, 0);
    }
    refuse(&image, NP_EFORMAT, "the key appears twice: same");
    begin(&image, 3, 2, 0);
    for (uint64_t i = 0; i < 2; i++) put_tensor(&image, "same", 1, 8, 0, i * 32);
    put_data(&image, 32, 64);
    refuse(&image, NP_EFORMAT, "the tensor name appears twice: same");
}

/* C176: a row that ends inside a block, among others. */
static void spans_that_are_refused(void **state)
{
    struct image image;
    begin(&image, 3, 2, 0);
    put_tensor(&image, "first", 2, 8, 0, 0);
    put_tensor(&image, "second", 2, 8, 0, 32);
    put_data(&image, 32, 128);
    refuse(&image, NP_EFORMAT, "before the end of first: second");
    begin(&image, 3, 1, 0);
    put_tensor(&image, "odd", 1, 8, 0, 16);
    put_data(&image, 32, 64);
    refuse(&image, NP_EFORMAT, "data offset 16");
    begin(&image, 3, 1, 0);
    put_tensor(&image, "far", 1, 8, 0, INT64_MAX - 31);
    put_data(&image, 32, 64);
    refuse(&image, NP_EFORMAT, "overflows: far");
    begin(&image, 3, 1, 0);
    put_tensor(&image, "row", 2, 16, 3, 0);
    put_data(&image, 32, 64);
    refuse(&image, NP_EFORMAT,
           "rows of 16 elements, not a multiple of the 32 in a block of Q4_1: row");
    begin(&image, 3, 1, 0);
    put_tensor(&image, "large", (uint64_t)1 << 30, (uint64_t)1 << 31, 0, 0);
    put_data(&image, 32, 64);
    refuse(&image, NP_EFORMAT, "the end of a tensor's data overflows: large");
    begin(&image, 3, 1, 0);
    put_text(&image, "deep");
    put_u32(&image, 5);
    for (int i = 0; i < 5; i++) put_u64(&image, 1);
    put_data(&image, 32, 64);
    refuse(&image, NP_EFORMAT, "5 dimensions");
}

/* Types that are withdrawn or unheard of, and tensors without elements, do no harm until they are
 * read. */
static void strange_tensors_are_kept(void **state)
{
    struct image image;
    struct modelfile *file;
    np_error err;
    char byte;
    begin(&image, 3, 4, 0);
    put_tensor(&image, "old", 1, 32, 4, 0);
    put_tensor(&image, "new", 1, 32, 99, 0);
    put_tensor(&image, "empty", 0, 32, 3, 0);
    put_tensor(&image, "real", 1, 8, 0, 0);
    put_data(&image, 32, 32);
    check_refused(open_image(&image, &file, &err), NP_OK, &err, "");
    check_refused(modelfile_read(file, modelfile_find(file, "old"), 0, 1, &byte, &err),
                  NP_EUNSUPPORTED, &err, "Q4_2");
    check_refused(modelfile_read(file, modelfile_find(file, "new"), 0, 1, &byte, &err),
                  NP_EUNSUPPORTED, &err, "ggml type 99");
    assert_int_equal(modelfile_read(file, modelfile_find(file, "empty"), 0, 0, &byte, &err), NP_OK);
    assert_int_equal(modelfile_find(file, "empty")->n_elements, 0);
    modelfile_close(file);
}

static void large_vocabulary_opens_fast_C166(void **state)
{
    const size_t n_tokens = 250000, n_bytes = 64 + n_tokens * 24;
    uint8_t *bytes = malloc(n_bytes), *at = bytes;
    uint64_t counts[2] = {0, 1}, n = n_tokens;
    uint32_t version = 3, types[2] = {ARRAY, STRING};
    struct modelfile *file;
    struct timespec from, to;
    np_error err;
    assert_non_null(bytes);
    memcpy(at, "GGUF", 4), at += 4;
    memcpy(at, &version, 4), at += 4;
    memcpy(at, counts, 16), at += 16;
    memcpy(at, &(uint64_t){6}, 8), at += 8;
    memcpy(at, "tokens", 6), at += 6;
    memcpy(at, types, 8), at += 8;
    memcpy(at, &n, 8), at += 8;
    for (size_t i = 0; i < n_tokens; i++) {
        uint64_t length = (uint64_t)snprintf((char *)at + 8, 16, "token %zu", i);
        memcpy(at, &length, 8);
        at += 8 + length;
    }
    struct memory memory = memory_open(bytes, (size_t)(at - bytes));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    np_status status = modelfile_open(memory.path, &file, &err);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    check_refused(status, NP_OK, &err, "");
    assert_string_equal(modelfile_get(file, "tokens")->texts[n_tokens - 1].bytes, "token 249999");
    double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
    print_message("a header with %zu tokens opens in %.1f ms\n", n_tokens, seconds * 1e3);
    assert_true(seconds < 1);
    modelfile_close(file);
    close(memory.fd);
    free(bytes);
}

static void any_allocation_may_fail(void **state)
{
    struct image image;
    struct modelfile *file;
    np_error err;
    np_status status = NP_ENOMEM;
    everything(&image, 3);
    for (uint64_t n = 1; status != NP_OK; n++) {
        alloc_fail_after(n);
        status = open_image(&image, &file, &err);
        alloc_fail_after(0);
        if (status != NP_OK) check_refused(status, NP_ENOMEM, &err, "out of memory");
        assert_true(n < 100);
    }
    modelfile_close(file);
}

static void mutated_headers(void **state)
{
    struct image image;
    everything(&image, 3);
    assert_int_equal(mutate_run(image.bytes, image.n, n_mutations(), 20260101), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_in_versions_2_and_3),
        cmocka_unit_test(file_cut_anywhere_C172),
        cmocka_unit_test(file_that_shrinks_while_read_C172),
        cmocka_unit_test(versions_and_magics),
        cmocka_unit_test(alignment_C171),
        cmocka_unit_test(huge_counts_and_lengths_C166),
        cmocka_unit_test(counts_just_under_each_limit_C167),
        cmocka_unit_test(values_that_are_refused),
        cmocka_unit_test(names_that_are_refused),
        cmocka_unit_test(spans_that_are_refused),
        cmocka_unit_test(strange_tensors_are_kept),
        cmocka_unit_test(large_vocabulary_opens_fast_C166),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(mutated_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
