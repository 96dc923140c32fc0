/* test_format_safetensors.c - headers of safetensors files, and config.json as settings. */
#include "test_format_files.h"

#include "format/jsonread.h"

#include "../../fuzz/fuzz_safetensors.c"

static const char good_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"h\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]},"
    "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[1,1,2,2],\"data_offsets\":[32,36]},"
    "\"none\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[36,36]},"
    "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[36,40]},"
    "\"deep\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[40,44]},"
    "\"new\":{\"dtype\":\"F3_X\",\"shape\":[8],\"data_offsets\":[44,47]}}   ";

static np_status parse(const void *bytes, size_t n, struct modelfile **out, struct memory *memory,
                       np_error *err)
{
    struct modelfile *file;
    *memory = memory_open(bytes, n);
    assert_int_equal(modelfile_new(&file, CONTAINER_SAFETENSORS, memory->path, ".", 1, err), NP_OK);
    np_status status = modelfile_add_file(file, memory->path, err);
    if (status == NP_OK) status = safetensors_parse(file, 0, err);
    if (status == NP_OK)
        status = modelfile_index(file, &file->tensors, "tensor name", memory->path, err);
    *out = file;
    return status;
}

static void refuse_bytes(const void *bytes, size_t n, np_status expected, const char *fragment)
{
    struct modelfile *file;
    struct memory memory;
    np_error err;
    check_refused(parse(bytes, n, &file, &memory, &err), expected, &err, fragment);
    assert_true(file->arena.used_bytes < (1 << 18));
    modelfile_close(file);
    close(memory.fd);
}

static void refuse_header(const char *header, size_t n_data, np_status expected,
                          const char *fragment)
{
    static struct image image;
    image.n = 0;
    put_safetensors(&image, header, n_data);
    refuse_bytes(image.bytes, image.n, expected, fragment);
}

static void tensors_are_found_and_read(void **state)
{
    struct image image = {.n = 0};
    struct modelfile *file;
    struct memory memory;
    np_error err;
    uint8_t data[24];
    put_safetensors(&image, good_header, 47);
    check_refused(parse(image.bytes, image.n, &file, &memory, &err), NP_OK, &err, "");
    assert_int_equal(modelfile_n_tensors(file), 7);
    const struct tensor *w = modelfile_find(file, "w"), *h = modelfile_find(file, "h");
    const struct tensor *none = modelfile_find(file, "none"),
                        *scalar = modelfile_find(file, "scalar");
    assert_true(w->dtype == DT_F32 && w->n_dims == 2 && w->shape[0] == 2 && w->shape[1] == 3 &&
                w->n_bytes == 24);
    assert_true(h->dtype == DT_BF16 && h->n_dims == 1 && h->n_elements == 4);
    assert_string_equal(h->type_name, "BF16");
    assert_true(none->dtype == DT_F16 && none->n_elements == 0 && none->n_bytes == 0);
    assert_true(scalar->n_dims == 0 && scalar->n_elements == 1);
    assert_int_equal(modelfile_read(file, h, 1, 2, data, &err), NP_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(data[i], 26 + i);
    assert_int_equal(modelfile_read(file, none, 0, 0, data, &err), NP_OK);
    modelfile_close(file);
    close(memory.fd);
}

/* Buffers that no architecture reads do not make a checkpoint unusable; their types are named on
 * reading. */
static void unknown_types_are_refused_on_reading(void **state)
{
    static const char *const cases[][2] = {{"mask", "stored as BOOL"},
                                           {"deep", "stored as F32 of 5 dimensions"},
                                           {"new", "stored as F3_X"}};
    struct image image = {.n = 0};
    struct modelfile *file;
    struct memory memory;
    np_error err;
    uint8_t data[24];
    put_safetensors(&image, good_header, 47);
    check_refused(parse(image.bytes, image.n, &file, &memory, &err), NP_OK, &err, "");
    for (size_t i = 0; i < 3; i++) {
        const struct tensor *tensor = modelfile_find(file, cases[i][0]);
        assert_int_equal(tensor->dtype, DT_NONE);
        check_refused(modelfile_read(file, tensor, 0, 1, data, &err), NP_EUNSUPPORTED, &err,
                      cases[i][1]);
    }
    modelfile_close(file);
    close(memory.fd);
}

static void file_cut_anywhere_C172(void **state)
{
    struct image image = {.n = 0};
    put_safetensors(&image, good_header, 47);
    for (size_t n = 0; n < image.n; n++) refuse_bytes(image.bytes, n, NP_EFORMAT, "");
    refuse_bytes(image.bytes, image.n - 1, NP_EFORMAT, "needs");
    put_number(&image, 0, 1);
    refuse_bytes(image.bytes, image.n, NP_EFORMAT, "its tensors end at");
}

static void spans_and_header_lengths_C162(void **state)
{
    static const uint64_t lengths[] = {UINT64_MAX, (uint64_t)1 << 63, (uint64_t)1 << 40, 1024 - 7};
    static struct image image;
    refuse_header("{\"w\":{\"dtype\":\"F32\",\"shape\":[16,4],\"data_offsets\":[0,4096]}}", 4096,
                  NP_EFORMAT,
                  "data_offsets span 4096 bytes, but 64 elements of F32 were declared: w");
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        image.n = 0;
        put_u64(&image, lengths[i]);
        while (image.n < 1024) put(&image, " ", 1);
        refuse_bytes(image.bytes, image.n, NP_EFORMAT, "but 1016 are left in the file");
    }
}

static void headers_that_lie_C164(void **state)
{
#define W(offsets) "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" offsets "}"
#define V(offsets) "\"v\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" offsets "}"
    static const struct {
        const char *header;
        size_t n_data;
        const char *fragment;
    } cases[] = {
        {"{" W("[0,8]") "," W("[8,16]") "}", 16, "duplicate object key"},
        {"{" W("[0,8]") "," V("[4,12]") "}", 12, "it begins before the end of w: v"},
        {"{" W("[0,8]") "," V("[0,8]") "}", 8, "overlap"},
        {"{" W("[0,8]") "," V("[12,20]") "}", 20,
         "a gap of 4 bytes before the data of a tensor: v"},
        {"{" W("[8,16]") "}", 16, "a gap of 8 bytes"},
        {"{" W("[0,8]") "," V("[8,16]") "}", 12, "the file is"},
        {"{" W("[0,8]") "}", 12, "its tensors end at"},
        {"{" W("[8]") "}", 8, "data_offsets are not two whole numbers"},
        {"{" W("[0,4,8]") "}", 8, "data_offsets are not two whole numbers"},
        {"{" W("[8,0]") "}", 8, "data_offsets end before they begin: w"},
        {"{" W("[-8,0]") "}", 8, "data_offsets are not two whole numbers"},
        {"{" W("[0.0,8.0]") "}", 8, "data_offsets are not two whole numbers"},
        {"{" W("[9223372036854775800,9223372036854775807]") "}", 8, "span 7 bytes"},
        {"{" W("[9223372036854775799,9223372036854775807]") "}", 8,
         "the end of a tensor's data overflows: w"},
        {"{" W("[0,9223372036854775808]") "}", 8, "too big integer"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
         "whole number >= 0: w"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
         "overflow"},
        {"{\"w\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "span 1 bytes"},
        {"{\"w\":{\"dtype\":\"\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "a dtype of 0 bytes"},
        {"{\"w\":{\"dtype\":1,\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "a tensor needs a dtype"},
        {"{\"w\":{\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "a tensor needs a dtype"},
        {"{\"w\":7}", 0, "a tensor needs a dtype"},
        {"{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "a tensor name of 0 bytes"},
        {"{\"a\\nb\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "control character"},
        {"{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "NUL"},
        {"[]", 0, "not an object"},
        {"{} {}", 0, "end of file expected"},
        {"", 0, "no valid JSON"},
        {"{\"a\xff\":1}", 0, "unable to decode byte 0xff"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse_header(cases[i].header, cases[i].n_data, NP_EFORMAT, cases[i].fragment);
}

static void json_is_bounded(void **state)
{
    const size_t n = (size_t)6 << 20;
    char *json = malloc(n + 1);
    json_t *root;
    np_error err;
    assert_non_null(json);
    memset(json, '[', n);
    check_refused(jsonread(json, n, "x", 8, &root, &err), NP_ELIMIT, &err,
                  "nested more than 64 levels deep (x, byte 72)");
    json[0] = '[';
    for (size_t i = 1; i + 3 <= n; i += 3) memcpy(json + i, "[],", 3);
    check_refused(jsonread(json, n, "x", 0, &root, &err), NP_ELIMIT, &err, "JSON holds more than");
    assert_null(root);
    free(json);
}

static struct modelfile *config(const char *json, np_status expected, const char *fragment)
{
    struct modelfile *file;
    np_error err;
    assert_int_equal(modelfile_new(&file, CONTAINER_SAFETENSORS, "config.json", ".", 1, &err),
                     NP_OK);
    check_refused(hfconfig_parse(file, json, strlen(json), "config.json", &err), expected, &err,
                  fragment);
    return file;
}

static void config_becomes_settings(void **state)
{
    struct modelfile *file = config(
        "{\"n\":-9223372036854775808,\"eps\":1e-6,\"tie\":true,\"off\":false,\"nil\":null,\"s\":"
        "\"llama\","
        "\"rope\":{\"type\":\"x\",\"in\":{\"f\":2.0}},\"empty\":{},\"ints\":[1,2],\"mix\":[1,2.5],"
        "\"texts\":[\"a\",\"bc\"],\"flags\":[true,false],\"none\":[],\"objects\":[{\"a\":1}],"
        "\"odd\":[1,\"a\"],\"nested\":[[1]],\"nulls\":[null]}",
        NP_OK, "");
    assert_int_equal(modelfile_n_settings(file), 18);
    assert_true(modelfile_get(file, "n")->integer == INT64_MIN);
    assert_true(modelfile_get(file, "eps")->type == SETTING_FLOAT &&
                modelfile_get(file, "eps")->number == 1e-6);
    assert_true(modelfile_get(file, "tie")->type == SETTING_BOOL &&
                modelfile_get(file, "tie")->integer == 1);
    assert_true(modelfile_get(file, "off")->type == SETTING_BOOL &&
                modelfile_get(file, "off")->integer == 0);
    assert_int_equal(modelfile_get(file, "nil")->type, SETTING_NULL);
    assert_string_equal(modelfile_get(file, "s")->text.bytes, "llama");
    assert_string_equal(modelfile_get(file, "rope.type")->text.bytes, "x");
    assert_true(modelfile_get(file, "rope.in.f")->number == 2.0);
    assert_null(modelfile_get(file, "rope"));
    assert_int_equal(modelfile_get(file, "empty")->type, SETTING_OBJECT);
    assert_int_equal(modelfile_get(file, "ints")->integers[1], 2);
    assert_true(modelfile_get(file, "mix")->numbers[0] == 1 &&
                modelfile_get(file, "mix")->numbers[1] == 2.5);
    assert_string_equal(modelfile_get(file, "texts")->texts[1].bytes, "bc");
    assert_int_equal(modelfile_get(file, "flags")->integers[0], 1);
    assert_int_equal(modelfile_get(file, "none")->element_type, SETTING_NULL);
    static const char *const opaque[] = {"objects", "odd", "nested", "nulls"};
    for (size_t i = 0; i < 4; i++) {
        const struct setting *setting = modelfile_get(file, opaque[i]);
        assert_true(setting->type == SETTING_ARRAY && setting->element_type == SETTING_OBJECT);
        assert_true(!setting->texts && !setting->numbers && !setting->integers &&
                    setting->n_elements);
    }
    modelfile_close(file);
}

static void configs_that_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"[]", "an object { } is expected"},
        {"", "no valid JSON"},
        {"{\"a\":1,\"a\":1}", "duplicate object key"},
        {"{\"a\":{\"b\":1},\"a.b\":1}", "the key appears twice: a.b"},
        {"{\"a\":9223372036854775808}", "too big integer"},
        {"{\"a\":1e999}", "real number overflow"},
        {"{\"a\":NaN}", "no valid JSON"},
        {"{\"a\":{\"\":1}}", "a key of 0 bytes under \"a\""},
        {"{\"a\\nb\":1}", "control character"},
        {"{\"a\":\"\n\"}", "no valid JSON: unexpected newline"},
    };
    char deep[600] = "{";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        modelfile_close(config(cases[i][0], NP_EFORMAT, cases[i][1]));
    for (int i = 0; i < 60; i++) memcpy(deep + strlen(deep), "\"1234\":{", 9);
    memcpy(deep + strlen(deep), "\"x\":1", 6);
    for (int i = 0; i <= 60; i++) memcpy(deep + strlen(deep), "}", 2);
    modelfile_close(config(deep, NP_EFORMAT, "1 to 256 in all are allowed"));
}

static void *counted_alloc(size_t n_bytes)
{
    return mem_alloc(1, n_bytes);
}

static np_status parse_both(const struct memory *memory, np_error *err)
{
    struct modelfile *file = NULL;
    np_status status = modelfile_new(&file, CONTAINER_SAFETENSORS, memory->path, ".", 1, err);
    if (status == NP_OK) status = modelfile_add_file(file, memory->path, err);
    if (status == NP_OK) status = safetensors_parse(file, 0, err);
    if (status == NP_OK)
        status = hfconfig_parse(file, good_header, sizeof good_header - 1, "c", err);
    modelfile_close(file);
    return status;
}

/* Ours, then jansson's too, which may take its own lack of memory for a fault of the text. */
static void any_allocation_may_fail(void **state)
{
    static struct image image;
    image.n = 0;
    put_safetensors(&image, good_header, 47);
    struct memory memory = memory_open(image.bytes, image.n);
    for (int with_jansson = 0; with_jansson < 2; with_jansson++) {
        np_status status = NP_ENOMEM;
        if (with_jansson) json_set_alloc_funcs(counted_alloc, mem_free);
        for (uint64_t n = 1; status != NP_OK; n++) {
            np_error err;
            alloc_fail_after(n);
            status = parse_both(&memory, &err);
            alloc_fail_after(0);
            if (status == NP_EFORMAT && with_jansson) continue;
            if (status != NP_OK) check_refused(status, NP_ENOMEM, &err, "out of memory");
            assert_true(n < 1000);
        }
    }
    json_set_alloc_funcs(malloc, free);
    close(memory.fd);
}

static void mutated_headers(void **state)
{
    static const char json[] =
        "{\"n\":-12,\"eps\":1e-6,\"t\":[true,false],\"rope\":{\"type\":\"x\",\"in\":{\"f\":2.0}},"
        "\"e\":{},\"m\":[1,2.5],\"s\":[\"a\",\"b\\u00e9\"],\"o\":[{\"a\":1}]}";
    static struct image image;
    image.n = 0;
    put_safetensors(&image, good_header, 47);
    assert_int_equal(mutate_run(image.bytes, image.n, n_mutations(), 20260102), 0);
    assert_int_equal(mutate_run((const uint8_t *)json, sizeof json - 1, n_mutations(), 20260103),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_found_and_read),
        cmocka_unit_test(unknown_types_are_refused_on_reading),
        cmocka_unit_test(file_cut_anywhere_C172),
        cmocka_unit_test(spans_and_header_lengths_C162),
        cmocka_unit_test(headers_that_lie_C164),
        cmocka_unit_test(json_is_bounded),
        cmocka_unit_test(config_becomes_settings),
        cmocka_unit_test(configs_that_are_refused),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(mutated_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
