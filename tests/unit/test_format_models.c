/*
 * test_format_models.c - the models of tests/data, and the demo model where it lies: each opens,
 * is read whole, and is refused when it is cut at every 1 % and at every byte of its header (large
 * headers: at 500 places).
 */
#include "test_format_files.h"

#include <dirent.h>
#include <time.h>

#define DEMO TEST_DATA "/../../models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define MAX_HEADER_CUTS 500
#define PIECE_ELEMENTS ((uint64_t)1 << 16)

static bool ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), n_suffix = strlen(suffix);
    return n >= n_suffix && strcmp(text + n - n_suffix, suffix) == 0;
}

/* What a parser says of the first n_bytes of a file. */
static np_status parse_cut(const char *path, uint64_t n_bytes, np_error *err)
{
    struct modelfile *file;
    assert_int_equal(modelfile_new(&file, CONTAINER_GGUF, path, ".", 1, err), NP_OK);
    assert_int_equal(modelfile_add_file(file, path, err), NP_OK);
    file->files[0].n_bytes = n_bytes;
    np_status status =
        ends_with(path, ".gguf") ? gguf_parse(file, err) : safetensors_parse(file, 0, err);
    modelfile_close(file);
    return status;
}

static void cut_everywhere(const char *path, uint64_t n_bytes, uint64_t n_header)
{
    np_error err;
    uint64_t step = n_header / MAX_HEADER_CUTS + 1;
    for (uint64_t percent = 0; percent < 100; percent++)
        check_refused(parse_cut(path, n_bytes * percent / 100, &err), NP_EFORMAT, &err, "");
    for (uint64_t n = 0; n < n_header; n += step)
        check_refused(parse_cut(path, n, &err), NP_EFORMAT, &err, "");
    check_refused(parse_cut(path, n_bytes, &err), NP_OK, &err, "");
}

static void read_whole(const struct modelfile *file)
{
    char *piece = malloc(PIECE_ELEMENTS * 4);
    assert_non_null(piece);
    for (size_t i = 0; i < modelfile_n_tensors(file); i++) {
        const struct tensor *tensor = modelfile_tensor(file, i);
        for (uint64_t at = 0; tensor->dtype != DT_NONE && at < tensor->n_elements;
             at += PIECE_ELEMENTS) {
            uint64_t left = tensor->n_elements - at,
                     n = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
            np_error err;
            check_refused(modelfile_read(file, tensor, at, n, piece, &err), NP_OK, &err, "");
        }
    }
    free(piece);
}

static void try_model(const char *path)
{
    struct modelfile *file;
    struct timespec from, to;
    np_error err;
    clock_gettime(CLOCK_MONOTONIC, &from);
    np_status status = modelfile_open(path, &file, &err);
    clock_gettime(CLOCK_MONOTONIC, &to);
    check_refused(status, NP_OK, &err, "");
    assert_true(modelfile_n_tensors(file) > 0 && modelfile_n_settings(file) > 0);
    print_message(
        "%s: %zu tensors, opens in %.1f ms\n", strrchr(path, '/') + 1, modelfile_n_tensors(file),
        (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6);
    read_whole(file);
    for (size_t i = 0; i < file->n_files; i++) {
        uint64_t n_header = UINT64_MAX;
        for (size_t k = 0; k < modelfile_n_tensors(file); k++) {
            const struct tensor *tensor = modelfile_tensor(file, k);
            if (tensor->file == (int)i && tensor->offset < n_header) n_header = tensor->offset;
        }
        cut_everywhere(file->files[i].path, file->files[i].n_bytes, n_header);
    }
    modelfile_close(file);
}

static void models_of_the_tests_C172(void **state)
{
    static const char folder[] = TEST_DATA "/models";
    DIR *listing = opendir(folder);
    size_t n_models = 0;
    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing));) {
        char path[1024];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &info) != 0) continue;
        if (!S_ISDIR(info.st_mode) && !ends_with(path, ".gguf")) continue;
        try_model(path);
        n_models++;
    }
    closedir(listing);
    assert_true(n_models > 0);
}

static void demo_model_C172(void **state)
{
    if (access(DEMO, R_OK) != 0) {
        print_message("skipped: no demo model at %s\n", DEMO);
        skip();
    }
    try_model(DEMO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_of_the_tests_C172),
        cmocka_unit_test(demo_model_C172),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
