/* test_model.c - what model_configure and model_load accept and refuse, on patched copies of tiny
 * models. */
#include "tinymodel.h"

static void opens_every_model(void **state)
{
    static const struct {
        const char *path, *architecture, *container;
        int tied;
    } models[] = {{TINY("llama-mixed.gguf"), "llama", "gguf", 0},
                  {TINY("llama-tied-f32"), "llama", "safetensors", 1},
                  {TINY("llama-head10-bf16"), "llama", "safetensors", 0},
                  {TINY("qwen2-mixed-v2.gguf"), "qwen2", "gguf", 0},
                  {TINY("qwen2-sharded-f16"), "qwen2", "safetensors", 0},
                  {TINY("qwen2-tied-f32"), "qwen2", "safetensors", 1},
                  {TINY("qwen2-window5"), "qwen2", "safetensors", 1},
                  {TINY("qwen2-window77"), "qwen2", "safetensors", 1},
                  {TINY("gpt2-mixed.gguf"), "gpt2", "gguf", 0},
                  {TINY("gpt2-plain"), "gpt2", "safetensors", 1},
                  {TINY("gpt2-prefix-masks"), "gpt2", "safetensors", 0}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        np_model *model = open_model(models[i].path);
        np_info info = np_model_info(model);
        assert_string_equal(info.architecture, models[i].architecture);
        assert_string_equal(info.container, models[i].container);
        assert_true(info.n_vocab > 0 && info.n_layers > 0 && info.n_parameters > 0);
        if (models[i].tied) assert_true(info.head_tied);
        np_model_close(model);
    }
}

struct patch {
    const char *path, *from, *to;
    np_status status;
    const char *text;
};

static void refuse_all(const struct patch *patches, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *copy =
            patched_copy(patches[i].path, patches[i].from, patches[i].to, strlen(patches[i].from));
        refuses(copy, patches[i].status, patches[i].text);
        unlink(copy);
    }
}

/* An unknown setting, architecture or tensor is refused by its name, never ignored (C066). */
static void C066_unknown_names_are_refused(void **state)
{
    static const struct patch patches[] = {
        {TINY("llama-mixed.gguf"), "llama.rope.freq_base", "llama.rope.freq_bass", NP_EUNSUPPORTED,
         "llama.rope.freq_bass"},
        {TINY("llama-mixed.gguf"), "llama.context_length", "llama.context_lengtz", NP_EUNSUPPORTED,
         "llama.context_lengtz"},
        {TINY("llama-mixed.gguf"), "blk.1.ffn_up.weight", "blk.1.ffn_uq.weight", NP_EFORMAT,
         "blk.%zu.ffn_up.weight"},
        {TINY("gpt2-mixed.gguf"), "blk.0.attn_qkv.bias", "blk.0.attn_qkv.bibs", NP_EUNSUPPORTED,
         "blk.0.attn_qkv.bibs"}};
    refuse_all(patches, sizeof patches / sizeof *patches);
}

static void unknown_architecture_names_the_known(void **state)
{
    const char *copy =
        patched_copy(TINY("gpt2-mixed.gguf"), "\4\0\0\0\0\0\0\0gpt2", "\4\0\0\0\0\0\0\0gpt9", 12);
    refuses(copy, NP_EUNSUPPORTED, "known: llama, qwen2, gpt2): gpt9 (general.architecture)");
    unlink(copy);
}

/* A folder of its own, with the config of a tiny model in which one text is replaced. */
static void refuses_config(const char *model, const char *from, const char *to, np_status status,
                           const char *text)
{
    char folder[64], path[160], weights[256], *bytes;
    size_t n_bytes;
    np_error err;
    snprintf(folder, sizeof folder, "/tmp/nepit-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.json", model);
    assert_int_equal(file_read_all(path, 1u << 20, &bytes, &n_bytes, &err), NP_OK);
    char *place = strstr(bytes, from);
    if (!place) fail_msg("%s has no %s", path, from);
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    fprintf(file, "%.*s%s%s", (int)(place - bytes), bytes, to, place + strlen(from));
    fclose(file);
    mem_free(bytes);
    snprintf(weights, sizeof weights, "%s/model.safetensors", model);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(symlink(weights, path), 0);
    refuses(folder, status, text);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    rmdir(folder);
}

static void config_that_could_change_a_number(void **state)
{
    const char *llama = TINY("llama-tied-f32"), *gpt2 = TINY("gpt2-plain");
    refuses_config(llama, "\"silu\"", "\"gelu\"", NP_EUNSUPPORTED,
                   "only \"silu\" is supported: gelu (hidden_act)");
    refuses_config(llama, "\"mlp_bias\"", "\"mlp_bios\"", NP_EUNSUPPORTED, "mlp_bios");
    refuses_config(llama, "\"llama\"", "\"mamba\"", NP_EUNSUPPORTED, "mamba");
    refuses_config(llama, "\"num_hidden_layers\": ", "\"num_hidden_layers\": -", NP_EFORMAT,
                   "(num_hidden_layers)");
    refuses_config(llama, "\"rms_norm_eps\": ", "\"rms_norm_eps\": 0, \"top_k\": ", NP_EFORMAT,
                   "a positive number is expected: 0 (rms_norm_eps)");
    refuses_config(gpt2, "\"gelu_new\"", "\"relu\"", NP_EUNSUPPORTED, "relu (activation_function)");
    refuses_config(gpt2, "\"n_positions\"", "\"n_position\"", NP_EUNSUPPORTED, "n_position");
}

/* Windows are described by four settings together; what they do not say together is refused. */
static void windows_that_mean_nothing(void **state)
{
    const char *model = TINY("qwen2-window77");
    refuses_config(model, "\"sliding_window\": 77", "\"sliding_window\": 0", NP_EFORMAT,
                   "an integer from 1 to 2147483647 is expected: 0 (sliding_window)");
    refuses_config(model, "\"sliding_window\": 77", "\"sliding_window\": \"77\"", NP_EFORMAT,
                   "(sliding_window)");
    refuses_config(model, "\"sliding_window\": 77", "\"sliding_window\": null", NP_EUNSUPPORTED,
                   "sliding_attention (layer_types[0])");
    refuses_config(model, "\"use_sliding_window\": true", "\"use_sliding_window\": false",
                   NP_EUNSUPPORTED, "sliding_attention (layer_types[0])");
    refuses_config(model, "\"use_sliding_window\": true", "\"use_sliding_window\": 1", NP_EFORMAT,
                   "true or false is expected (use_sliding_window)");
    refuses_config(model, "\"full_attention\",", "", NP_EFORMAT, "a list of 3 names is expected");
    refuses_config(model, "\"full_attention\"", "\"chunked_attention\"", NP_EUNSUPPORTED,
                   "chunked_attention (layer_types[1])");
    refuses_config(model, "\"max_window_layers\": 28", "\"max_window_layers\": -1", NP_EFORMAT,
                   "-1 (max_window_layers)");
    refuses_config(TINY("llama-tied-f32"), "\"mlp_bias\"",
                   "\"use_sliding_window\": true, \"mlp_bias\"", NP_EUNSUPPORTED,
                   "only \"false\" is supported: true (use_sliding_window)");
}

/* C174: no flag and no head is an error; the flag alone ties. */
static void C174_head_or_tie(void **state)
{
    refuses_config(TINY("llama-tied-f32"), "\"tie_word_embeddings\": true",
                   "\"tie_word_embeddings\": false", NP_EFORMAT, "lm_head.weight");
}

static void shapes_and_numbers(void **state)
{
    refuses_config(TINY("llama-tied-f32"), "\"vocab_size\": 301", "\"vocab_size\": 302", NP_EFORMAT,
                   "301 rows");
    refuses_config(TINY("llama-tied-f32"), "\"intermediate_size\": ", "\"intermediate_size\": 1",
                   NP_EFORMAT, "the shape must be");
}

/* C064: a weight that is not a number is named, at opening. */
static void C064_nan_weight_is_named(void **state)
{
    static const char name[] = "model.norm.weight";
    char path[160], *bytes, *end;
    size_t n_bytes;
    np_error err;
    assert_int_equal(
        file_read_all(TINY("llama-tied-f32/model.safetensors"), 1u << 24, &bytes, &n_bytes, &err),
        NP_OK);
    uint64_t header = 0;
    memcpy(&header, bytes, 8);
    char *entry = memmem(bytes, n_bytes, name, sizeof name - 1);
    assert_non_null(entry);
    char *offsets = strstr(entry, "data_offsets\":[");
    uint64_t begin = strtoull(offsets + strlen("data_offsets\":["), &end, 10);
    const float nan = 0.0f / 0.0f;
    memcpy(bytes + 8 + header + begin + 4 * 3, &nan, 4);

    char folder[64], config[160];
    snprintf(folder, sizeof folder, "/tmp/nepit-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *file = fopen(path, "w");
    fwrite(bytes, 1, n_bytes, file);
    fclose(file);
    mem_free(bytes);
    snprintf(config, sizeof config, "%s/config.json", folder);
    assert_int_equal(symlink(TINY("llama-tied-f32/config.json"), config), 0);
    refuses(folder, NP_ENUMERIC, "weight number 3 is not a finite number (model.norm.weight)");
    unlink(config);
    unlink(path);
    rmdir(folder);
}

/* A copy of a GGUF in which one vector has lost its only dimension. */
static void a_scalar_in_place_of_a_vector(void **state)
{
    static const char name[] = "output_norm.weight";
    char path[] = "/tmp/nepit-test-XXXXXX", *bytes, zeros[64] = {0};
    size_t n_bytes;
    np_error err;
    assert_int_equal(file_read_all(TINY("llama-mixed.gguf"), 1u << 24, &bytes, &n_bytes, &err),
                     NP_OK);
    char *n_dims = (char *)memmem(bytes, n_bytes, name, sizeof name - 1) + sizeof name - 1;
    memset(n_dims, 0, 4);
    memmove(n_dims + 4, n_dims + 12, n_bytes - (size_t)(n_dims + 12 - bytes));
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n_bytes - 8), (ssize_t)n_bytes - 8);
    assert_int_equal(write(fd, zeros, sizeof zeros), sizeof zeros);
    close(fd);
    mem_free(bytes);
    refuses(path, NP_EFORMAT, "]: [] (output_norm.weight)");
    unlink(path);
}

/* Settings that no tensor backs cost no memory: the tensor is named, whatever the sizes come to. */
static void sizes_are_checked_before_memory_is_taken(void **state)
{
    static const char sizes[] = "\"hidden_size\": 36,\n  \"initializer_range\": 0.02,\n"
                                "  \"intermediate_size\": 52";
    refuses_config(TINY("llama-tied-f32"), sizes,
                   "\"hidden_size\": 1048576, \"intermediate_size\": 4194304", NP_EFORMAT,
                   "[301, 36] (model.embed_tokens.weight)");
}

static void memory_is_planned_first(void **state)
{
    np_model_options options = {.max_memory = 1000};
    np_model *model;
    np_error err;
    assert_int_equal(np_model_open(TINY("llama-mixed.gguf"), &options, &model, &err), NP_ELIMIT);
    assert_non_null(strstr(err.message, "1000 bytes are allowed"));
    options = (np_model_options){.profile = "bf17"};
    assert_int_equal(np_model_open(TINY("llama-mixed.gguf"), &options, &model, &err), NP_EINPUT);
    options = (np_model_options){.cpu = "mmx"};
    assert_int_equal(np_model_open(TINY("llama-mixed.gguf"), &options, &model, &err), NP_EINPUT);
}

static void no_such_file(void **state)
{
    refuses("/nonexistent/model.gguf", NP_EIO, "/nonexistent/model.gguf");
    refuses("", NP_EIO, "");
    np_model *model;
    assert_int_equal(np_model_open(NULL, NULL, &model, NULL), NP_EINPUT);
    assert_int_equal(np_model_open(TINY("llama-mixed.gguf"), NULL, NULL, NULL), NP_EINPUT);
}

/* Every allocation of opening fails once: an error, no leak (the sanitizer tier looks), no crash.
 * */
static void failing_allocations(void **state)
{
    static const char *const paths[] = {TINY("llama-mixed.gguf"), TINY("gpt2-prefix-masks")};
    for (size_t i = 0; i < 2; i++) {
        np_status status = NP_ENOMEM;
        for (uint64_t n = 1; status != NP_OK && n < 100000; n++) {
            np_model *model;
            np_error err;
            alloc_fail_after(n);
            status = np_model_open(paths[i], NULL, &model, &err);
            alloc_fail_after(0);
            if (status != NP_OK)
                assert_int_equal(status, NP_ENOMEM);
            else
                np_model_close(model);
        }
        assert_int_equal(status, NP_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_every_model),
        cmocka_unit_test(C066_unknown_names_are_refused),
        cmocka_unit_test(unknown_architecture_names_the_known),
        cmocka_unit_test(config_that_could_change_a_number),
        cmocka_unit_test(windows_that_mean_nothing),
        cmocka_unit_test(C174_head_or_tie),
        cmocka_unit_test(shapes_and_numbers),
        cmocka_unit_test(C064_nan_weight_is_named),
        cmocka_unit_test(a_scalar_in_place_of_a_vector),
        cmocka_unit_test(sizes_are_checked_before_memory_is_taken),
        cmocka_unit_test(memory_is_planned_first),
        cmocka_unit_test(no_such_file),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
