/*
 * fuzz_gguf.c - a GGUF file from memory: it opens, or is refused in one line. What has opened is
 * read to the last byte, through every name.
 */
#include "format/modelfile.h"
#include "mutate.h"

#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>

static void read_all(const struct modelfile *file)
{
    for (size_t i = 0; i < modelfile_n_settings(file); i++) {
        const struct setting *setting = modelfile_setting(file, i);
        assert(modelfile_get(file, setting->key) == setting);
        for (uint64_t k = 0; setting->texts && k < setting->n_elements; k++)
            assert(setting->texts[k].bytes[setting->texts[k].n_bytes] == 0);
    }
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

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct modelfile *file;
    np_error err;
    char path[64], line[640];
    int fd = memfd_create("gguf", MFD_CLOEXEC);
    assert(fd >= 0 && write(fd, bytes, n_bytes) == (ssize_t)n_bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    np_status status = modelfile_open(path, &file, &err);
    if (status == NP_OK)
        read_all(file);
    else
        assert(!file && err.status == status &&
               !strchr(np_error_line(&err, line, sizeof line), '\n'));
    modelfile_close(file);
    close(fd);
    return 0;
}
