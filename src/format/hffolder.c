/*
 * hffolder.c - a folder as the Hugging Face libraries write it: config.json, and model.safetensors
 * or an index of shards.
 *
 * The surprising decision: a shard may hold tensors that the index does not name (they are kept),
 * but every tensor that the index names must be in the shard that it names.
 */
#include "format/jsonread.h"
#include "format/modelparts.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_JSON_FILE_BYTES ((size_t)64 << 20)
#define INDEX_NAME "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"

static np_status join(char out[MODELFILE_MAX_PATH], const char *folder, const char *name,
                      np_error *err)
{
    int n = snprintf(out, MODELFILE_MAX_PATH, "%s/%s", folder, name);
    if (n > 0 && n < MODELFILE_MAX_PATH) return NP_OK;
    return error_set(err, NP_ELIMIT, folder, NO_OFFSET, "the path is longer than %d bytes",
                     MODELFILE_MAX_PATH - 1);
}

static bool exists(const char *folder, const char *name)
{
    char path[MODELFILE_MAX_PATH];
    struct stat info;
    return join(path, folder, name, NULL) == NP_OK && stat(path, &info) == 0;
}

static bool ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), n_suffix = strlen(suffix);
    return n >= n_suffix && strcmp(text + n - n_suffix, suffix) == 0;
}

/* What else may lie in a folder that cannot be opened, in order of how much it helps to know. */
static const struct hint {
    const char *suffix, *what;
} hints[] = {
    {".safetensors", "no " SINGLE_NAME " and no " INDEX_NAME "; give the path of the file itself"},
    {".gguf", "a folder without safetensors; give the path of the GGUF file itself"},
    {".bin", "PyTorch weights are not supported: save the model as safetensors (save_pretrained)"},
    {".pth", "PyTorch weights are not supported: save the model as safetensors (save_pretrained)"},
    {".pt", "PyTorch weights are not supported: save the model as safetensors (save_pretrained)"},
};

static np_status explain_folder(const char *folder, np_error *err)
{
    size_t n_hints = sizeof hints / sizeof hints[0], best = n_hints;
    char found[256] = "";
    DIR *listing = opendir(folder);
    for (struct dirent *entry; listing && (entry = readdir(listing));)
        for (size_t i = 0; i < best; i++)
            if (ends_with(entry->d_name, hints[i].suffix)) {
                snprintf(found, sizeof found, "%s", entry->d_name);
                best = i;
            }
    if (listing) closedir(listing);
    if (best == n_hints)
        return error_set(err, NP_EIO, folder, NO_OFFSET,
                         "a folder without weights: no " SINGLE_NAME " and no " INDEX_NAME);
    return error_given(err,
                       error_set(err, NP_EUNSUPPORTED, folder, NO_OFFSET, "%s", hints[best].what),
                       "%s", found);
}

static np_status check_quantisation(const struct modelfile *file, const char *where, np_error *err)
{
    static const char prefix[] = "quantization_config.";
    const struct setting *method = modelfile_get(file, "quantization_config.quant_method");
    const char *name = method && method->type == SETTING_STRING ? method->text.bytes : "";
    bool is_name =
        modelfile_check_name(name, strlen(name), "method", where, NO_OFFSET, NULL) == NP_OK;
    for (size_t i = 0; i < modelfile_n_settings(file); i++) {
        if (strncmp(modelfile_setting(file, i)->key, prefix, sizeof prefix - 1) != 0) continue;
        np_status status = error_set(err, NP_EUNSUPPORTED, where, NO_OFFSET,
                                     "weights quantised by quantization_config are not supported: "
                                     "use the original model or a GGUF file (Q8_0, Q4_0, ...)");
        return error_given(err, status, "%s", is_name ? name : "an unknown method");
    }
    return NP_OK;
}

static np_status read_config(struct modelfile *file, np_error *err)
{
    char path[MODELFILE_MAX_PATH], *json;
    size_t n_bytes;
    TRY(join(path, file->folder, "config.json", err));
    TRY(file_read_all(path, MAX_JSON_FILE_BYTES, &json, &n_bytes, err));
    np_status status = hfconfig_parse(file, json, n_bytes, path, err);
    mem_free(json);
    if (status == NP_OK) status = check_quantisation(file, path, err);
    return status;
}

static np_status add_shard(struct modelfile *file, const char *name, np_error *err)
{
    char path[MODELFILE_MAX_PATH];
    TRY(join(path, file->folder, name, err));
    TRY(modelfile_add_file(file, path, err));
    return safetensors_parse(file, (int)file->n_files - 1, err);
}

static np_status check_shard_name(const json_t *shard, const char *tensor, const char *where,
                                  np_error *err)
{
    const char *name = json_string_value(shard);
    TRY(modelfile_check_name(tensor, strlen(tensor), "tensor name", where, NO_OFFSET, err));
    TRY(modelfile_check_name(name ? name : "", name ? strlen(name) : 0, "shard name", where,
                             NO_OFFSET, err));
    if (name[0] != '.' && !strpbrk(name, "/\\") && ends_with(name, ".safetensors")) return NP_OK;
    np_status status = error_set(err, NP_EFORMAT, where, NO_OFFSET,
                                 "weight_map: the shard of %s is not the plain name of a file "
                                 "*.safetensors in the folder",
                                 tensor);
    return error_given(err, status, "%s", name);
}

/* Opens each shard that the map names once; `numbers` maps its name to its file number. */
static np_status add_shards(struct modelfile *file, json_t *map, json_t *numbers, const char *where,
                            np_error *err)
{
    const char *tensor;
    json_t *shard;
    json_object_foreach(map, tensor, shard)
    {
        TRY(check_shard_name(shard, tensor, where, err));
        const char *name = json_string_value(shard);
        if (json_object_get(numbers, name)) continue;
        if (file->n_files == file->max_files)
            return error_set(err, NP_ELIMIT, where, NO_OFFSET, "more than %zu shards",
                             file->max_files);
        if (json_object_set_new(numbers, name, json_integer((json_int_t)file->n_files)) != 0)
            return error_nomem(err, where, sizeof *numbers);
        TRY(add_shard(file, name, err));
    }
    return modelfile_index(file, &file->tensors, "tensor name", where, err);
}

static np_status check_map(const struct modelfile *file, json_t *map, json_t *numbers,
                           const char *where, np_error *err)
{
    const char *name;
    json_t *shard;
    json_object_foreach(map, name, shard)
    {
        const struct tensor *tensor = modelfile_find(file, name);
        const json_t *number = json_object_get(numbers, json_string_value(shard));
        if (tensor && tensor->file == (int)json_integer_value(number)) continue;
        np_status status = error_set(err, NP_EFORMAT, where, NO_OFFSET,
                                     "weight_map: %s is not in the shard", name);
        return error_given(err, status, "%s", json_string_value(shard));
    }
    return NP_OK;
}

static np_status read_index(struct modelfile *file, np_error *err)
{
    char path[MODELFILE_MAX_PATH], *json;
    size_t n_bytes;
    json_t *root = NULL, *numbers = json_object(), *map;
    TRY(join(path, file->folder, INDEX_NAME, err));
    np_status status = file_read_all(path, MAX_JSON_FILE_BYTES, &json, &n_bytes, err);
    if (status == NP_OK) {
        status = jsonread(json, n_bytes, path, 0, &root, err);
        mem_free(json);
    }
    if (status != NP_OK) goto done;
    map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        status =
            error_set(err, NP_EFORMAT, path, NO_OFFSET, "weight_map is missing or no object { }");
    if (status == NP_OK) status = add_shards(file, map, numbers, path, err);
    if (status == NP_OK) status = check_map(file, map, numbers, path, err);
done:
    json_decref(numbers);
    json_decref(root);
    return status;
}

np_status hffolder_open(const char *path, const char *folder, const char *only,
                        struct modelfile **out, np_error *err)
{
    bool sharded = only ? strstr(only, "-of-") && exists(folder, INDEX_NAME)
                        : !exists(folder, SINGLE_NAME) && exists(folder, INDEX_NAME);
    const char *single = only ? only : SINGLE_NAME;
    struct modelfile *file = NULL;
    *out = NULL;
    if (!only && !sharded && !exists(folder, SINGLE_NAME)) return explain_folder(folder, err);
    TRY(modelfile_new(&file, CONTAINER_SAFETENSORS, path, folder,
                      sharded ? MODELFILE_MAX_SHARDS : 1, err));
    np_status status = read_config(file, err);
    if (status == NP_OK) status = sharded ? read_index(file, err) : add_shard(file, single, err);
    if (status == NP_OK && !sharded)
        status = modelfile_index(file, &file->tensors, "tensor name", file->files[0].path, err);
    if (status == NP_OK)
        *out = file;
    else
        modelfile_close(file);
    return status;
}
