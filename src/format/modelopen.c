/*
 * modelopen.c - which container a path means. Names decide for safetensors, whose first bytes say
 * little; every other file is taken for a GGUF, whose parser knows by their first bytes what
 * people try instead.
 */
#include "format/modelparts.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static np_status gguf_open(const char *path, const char *folder, struct modelfile **out,
                           np_error *err)
{
    struct modelfile *file;
    TRY(modelfile_new(&file, CONTAINER_GGUF, path, folder, 1, err));
    np_status status = modelfile_add_file(file, path, err);
    if (status == NP_OK) status = gguf_parse(file, err);
    if (status == NP_OK)
        *out = file;
    else
        modelfile_close(file);
    return status;
}

np_status modelfile_open(const char *path, struct modelfile **out, np_error *err)
{
    static const char suffix[] = ".safetensors";
    char folder[MODELFILE_MAX_PATH];
    struct stat info;
    *out = NULL;
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof folder)
        return error_set(err, NP_EIO, path, NO_OFFSET, "a path of %zu bytes; 1 to %zu are allowed",
                         n, sizeof folder - 1);
    if (stat(path, &info) != 0)
        return error_set(err, NP_EIO, path, NO_OFFSET, "the model cannot be opened: %s",
                         strerror(errno));
    if (S_ISDIR(info.st_mode)) return hffolder_open(path, path, NULL, out, err);

    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n_folder = slash == path ? 1 : (size_t)(slash ? slash - path : 0);
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)n_folder, path);
    else
        snprintf(folder, sizeof folder, ".");

    if (strcmp(name, "config.json") == 0 || strcmp(name, "model.safetensors.index.json") == 0)
        return hffolder_open(path, folder, NULL, out, err);
    size_t n_name = strlen(name);
    if (n_name >= sizeof suffix && strcmp(name + n_name - (sizeof suffix - 1), suffix) == 0)
        return hffolder_open(path, folder, name, out, err);
    return gguf_open(path, folder, out, err);
}
