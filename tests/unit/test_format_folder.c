/* test_format_folder.c - paths: what a folder or a file name means, and what is said when it means
 * nothing. */
#include "test_format_files.h"

#define TENSOR(name) "{\"" name "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"
#define INDEX "model.safetensors.index.json"

static void write_weights(const struct folder *folder, const char *name, const char *header,
                          size_t n_data)
{
    static struct image image;
    image.n = 0;
    put_safetensors(&image, header, n_data);
    folder_write(folder, name, image.bytes, image.n);
}

static struct folder simple_folder(void)
{
    struct folder folder = folder_make();
    folder_write_text(&folder, "config.json", "{\"model_type\":\"llama\"}");
    write_weights(&folder, "model.safetensors", TENSOR("a"), 8);
    return folder;
}

static struct folder sharded_folder(const char *weight_map)
{
    struct folder folder = folder_make();
    folder_write_text(&folder, "config.json", "{\"model_type\":\"llama\"}");
    write_weights(&folder, "model-00001-of-00002.safetensors", TENSOR("a"), 8);
    write_weights(&folder, "model-00002-of-00002.safetensors", TENSOR("b"), 8);
    folder_write_text(&folder, INDEX, weight_map);
    return folder;
}

/* Opens it and finds the tensors that are named, in the folder that is named. */
static void accept(const char *path, const char *folder, size_t n_tensors)
{
    struct modelfile *file;
    np_error err;
    check_refused(modelfile_open(path, &file, &err), NP_OK, &err, "");
    assert_int_equal(modelfile_container(file), CONTAINER_SAFETENSORS);
    assert_string_equal(modelfile_path(file), path);
    assert_string_equal(modelfile_folder(file), folder);
    assert_string_equal(modelfile_get(file, "model_type")->text.bytes, "llama");
    assert_int_equal(modelfile_n_tensors(file), n_tensors);
    for (size_t i = 0; i < n_tensors; i++) {
        uint8_t data[8];
        const struct tensor *tensor = modelfile_tensor(file, i);
        assert_int_equal(modelfile_read(file, tensor, 0, 2, data, &err), NP_OK);
        assert_int_equal(data[7], 7);
    }
    modelfile_close(file);
}

static void folder_or_file_in_it(void **state)
{
    struct folder folder = simple_folder();
    char previous[512];
    accept(folder.path, folder.path, 1);
    accept(folder_path(&folder, "config.json"), folder.path, 1);
    accept(folder_path(&folder, "model.safetensors"), folder.path, 1);
    write_weights(&folder, "other.safetensors", "{}", 0);
    accept(folder_path(&folder, "other.safetensors"), folder.path, 0);
    assert_non_null(getcwd(previous, sizeof previous));
    assert_int_equal(chdir(folder.path), 0);
    accept("model.safetensors", ".", 1);
    accept(".", ".", 1);
    assert_int_equal(chdir(previous), 0);
    folder_remove(&folder);
}

static void shards(void **state)
{
    struct folder folder = sharded_folder(
        "{\"metadata\":{},\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
        "\"b\":\"model-00002-of-00002.safetensors\"}}");
    accept(folder.path, folder.path, 2);
    accept(folder_path(&folder, INDEX), folder.path, 2);
    accept(folder_path(&folder, "model-00002-of-00002.safetensors"), folder.path, 2);
    assert_int_equal(remove(folder_path(&folder, "model-00002-of-00002.safetensors")), 0);
    refuse_path(folder.path, NP_EIO, "model-00002-of-00002.safetensors");
    write_weights(&folder, "model-00002-of-00002.safetensors", TENSOR("a"), 8);
    refuse_path(folder.path, NP_EFORMAT, "the tensor name appears twice: a");
    write_weights(&folder, "model-00002-of-00002.safetensors", TENSOR("b"), 7);
    refuse_path(folder.path, NP_EFORMAT, "model-00002-of-00002.safetensors");
    folder_remove(&folder);
}

static void indexes_that_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"{}", "weight_map is missing"},
        {"[]", "weight_map is missing"},
        {"{\"weight_map\":[]}", "weight_map is missing"},
        {"{\"weight_map\":{\"a\":1}}", "a shard name of 0 bytes"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "not the plain name of a file"},
        {"{\"weight_map\":{\"a\":\"../model.safetensors\"}}", "not the plain name of a file"},
        {"{\"weight_map\":{\"a\":\"..\\\\m.safetensors\"}}", "not the plain name of a file"},
        {"{\"weight_map\":{\"a\":\"config.json\"}}", "not the plain name of a file"},
        {"{\"weight_map\":{\"a\":\"..safetensors\"}}", "not the plain name of a file"},
        {"{\"weight_map\":{\"a\":\"x\\n.safetensors\"}}", "control character"},
        {"{\"weight_map\":{\"z\":\"model-00001-of-00002.safetensors\"}}",
         "weight_map: z is not in the shard"},
        {"{\"weight_map\":{\"a\":\"model-00002-of-00002.safetensors\",\"b\":\"model-00001-of-00002."
         "safetensors\"}}",
         "weight_map: a is not in the shard: model-00002-of-00002"},
        {"{\"weight_map\":{\"a\":", "no valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct folder folder = sharded_folder(cases[i][0]);
        refuse_path(folder.path, NP_EFORMAT, cases[i][1]);
        folder_remove(&folder);
    }
}

static void folders_without_a_model(void **state)
{
    struct folder folder = folder_make();
    refuse_path(folder.path, NP_EIO, "a folder without weights");
    folder_write_text(&folder, "pytorch_model.bin", "PK\3\4");
    refuse_path(folder.path, NP_EUNSUPPORTED, "PyTorch weights are not supported");
    refuse_path(folder_path(&folder, "pytorch_model.bin"), NP_EUNSUPPORTED, "a PyTorch checkpoint");
    folder_write_text(&folder, "x.gguf", "");
    refuse_path(folder.path, NP_EUNSUPPORTED, "give the path of the GGUF file itself: x.gguf");
    refuse_path(folder_path(&folder, "x.gguf"), NP_EFORMAT, "0 are left in the file");
    write_weights(&folder, "x.safetensors", "{}", 0);
    refuse_path(folder.path, NP_EUNSUPPORTED, "give the path of the file itself: x.safetensors");
    refuse_path(folder_path(&folder, "x.safetensors"), NP_EIO, "config.json");
    refuse_path(folder_path(&folder, "gone.gguf"), NP_EIO, "No such file");
    refuse_path("", NP_EIO, "a path of 0 bytes");
    refuse_path("/dev/null", NP_EIO, "not a file");
    assert_int_equal(mkdir(folder_path(&folder, "y.gguf"), 0700), 0);
    refuse_path(folder_path(&folder, "y.gguf"), NP_EIO, "a folder without weights");
    folder_remove(&folder);
}

static void unreadable_file(void **state)
{
    struct folder folder = simple_folder();
    if (geteuid() ==
        0) { /* root reads everything; a folder in its place cannot be read by anyone */
        assert_int_equal(remove(folder_path(&folder, "config.json")), 0);
        assert_int_equal(mkdir(folder_path(&folder, "config.json"), 0700), 0);
        refuse_path(folder.path, NP_EIO, "config.json");
    } else {
        assert_int_equal(chmod(folder_path(&folder, "config.json"), 0), 0);
        refuse_path(folder.path, NP_EIO, "Permission denied");
    }
    folder_remove(&folder);
}

static void quantised_checkpoints_are_refused_by_name(void **state)
{
    struct folder folder = simple_folder();
    folder_write_text(&folder, "config.json",
                      "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}}");
    refuse_path(folder.path, NP_EUNSUPPORTED,
                "use the original model or a GGUF file (Q8_0, Q4_0, ...): gptq");
    folder_write_text(&folder, "config.json", "{\"quantization_config\":{\"bits\":4}}");
    refuse_path(folder.path, NP_EUNSUPPORTED, "an unknown method");
    folder_write_text(&folder, "config.json",
                      "{\"quantization_config\":null,\"model_type\":\"llama\"}");
    accept(folder.path, folder.path, 1);
    folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folder_or_file_in_it),
        cmocka_unit_test(shards),
        cmocka_unit_test(indexes_that_are_refused),
        cmocka_unit_test(folders_without_a_model),
        cmocka_unit_test(unreadable_file),
        cmocka_unit_test(quantised_checkpoints_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
