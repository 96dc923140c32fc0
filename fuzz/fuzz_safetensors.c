/*
 * fuzz_safetensors.c - bytes from memory as a safetensors file, and as a config.json: each is
 * taken, or refused in one line.
 */
#include "format/modelparts.h"
#include "mutate.h"

#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>

static void check_error(np_status status, const np_error *err)
{
    char line[640];
    if (status == NP_OK) return;
    assert(err->status == status && err->message[0]);
    assert(!strchr(np_error_line(err, line, sizeof line), '\n'));
}

static void check_tensors(const struct modelfile *file)
{
    for (size_t i = 0; i < modelfile_n_tensors(file); i++) {
        const struct tensor *tensor = modelfile_tensor(file, i);
        np_error err;
        assert(modelfile_find(file, tensor->name) == tensor && tensor->type_name);
        char *bytes = malloc((size_t)tensor->n_bytes + 1);
        np_status status = modelfile_read(file, tensor, 0, tensor->n_elements, bytes, &err);
        assert(status == (tensor->dtype == DT_NONE ? NP_EUNSUPPORTED : NP_OK));
        free(bytes);
    }
}

static void try_tensors(const char *path)
{
    struct modelfile *file;
    np_error err;
    np_status status = modelfile_new(&file, CONTAINER_SAFETENSORS, path, ".", 1, &err);
    assert(status == NP_OK);
    status = modelfile_add_file(file, path, &err);
    if (status == NP_OK) status = safetensors_parse(file, 0, &err);
    if (status == NP_OK) status = modelfile_index(file, &file->tensors, "tensor name", path, &err);
    if (status == NP_OK) check_tensors(file);
    check_error(status, &err);
    modelfile_close(file);
}

static void try_config(const uint8_t *bytes, size_t n_bytes)
{
    struct modelfile *file;
    np_error err;
    np_status status = modelfile_new(&file, CONTAINER_SAFETENSORS, "config.json", ".", 1, &err);
    assert(status == NP_OK);
    status = hfconfig_parse(file, (const char *)bytes, n_bytes, "config.json", &err);
    check_error(status, &err);
    for (size_t i = 0; status == NP_OK && i < modelfile_n_settings(file); i++)
        assert(modelfile_get(file, modelfile_setting(file, i)->key) == modelfile_setting(file, i));
    modelfile_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    char path[64];
    int fd = memfd_create("safetensors", MFD_CLOEXEC);
    assert(fd >= 0 && write(fd, bytes, n_bytes) == (ssize_t)n_bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    try_tensors(path);
    try_config(bytes, n_bytes);
    close(fd);
    return 0;
}
