/*
 * modelfile.c - a model file as it is built by the parsers and as it is read afterwards.
 *
 * The surprising decision: names are looked up by bisection in a sorted array, not by hashing.
 * With at most 65536 names that costs a microsecond per look-up, needs no seed against names that
 * were made to collide, and puts duplicates side by side.
 */
#include "format/modelparts.h"

#include <stdlib.h>
#include <string.h>

#define MAX_MEMORY_BYTES ((size_t)2 << 30)
#define TEXT_BLOCK_BYTES ((size_t)64 << 10)

np_status modelfile_new(struct modelfile **out, enum container container, const char *path,
                        const char *folder, size_t max_files, np_error *err)
{
    *out = NULL;
    struct modelfile *file = mem_alloc(1, sizeof *file);
    if (!file) return error_nomem(err, path, sizeof *file);
    file->container = container;
    file->tensors =
        (struct item_list){.stride_bytes = sizeof(struct tensor), .max = MODELFILE_MAX_TENSORS};
    file->settings =
        (struct item_list){.stride_bytes = sizeof(struct setting), .max = MODELFILE_MAX_SETTINGS};
    arena_init(&file->arena, MAX_MEMORY_BYTES);
    file->path = arena_strndup(&file->arena, path, strlen(path));
    file->folder = arena_strndup(&file->arena, folder, strlen(folder));
    file->files = arena_push_array(&file->arena, max_files, sizeof *file->files);
    file->max_files = max_files;
    if (!file->path || !file->folder || !file->files) {
        modelfile_close(file);
        return error_nomem(err, path, max_files * sizeof *file->files);
    }
    *out = file;
    return NP_OK;
}

void modelfile_close(struct modelfile *file)
{
    if (!file) return;
    for (size_t i = 0; i < file->n_files; i++) file_close(&file->files[i]);
    arena_free(&file->arena);
    mem_free(file);
}

np_status modelfile_add_file(struct modelfile *file, const char *path, np_error *err)
{
    if (file->n_files == file->max_files)
        return error_set(err, NP_EINTERNAL, path, NO_OFFSET, "no room for another file");
    TRY(file_open(&file->files[file->n_files], path, err));
    file->n_files++;
    return NP_OK;
}

char *modelfile_text(struct modelfile *file, size_t n_bytes)
{
    char *text;
    if (n_bytes >= TEXT_BLOCK_BYTES / 4) return arena_push(&file->arena, n_bytes + 1);
    if (n_bytes + 1 > file->text_left_bytes) {
        text = arena_push(&file->arena, TEXT_BLOCK_BYTES);
        if (!text) return NULL;
        file->text = text;
        file->text_left_bytes = TEXT_BLOCK_BYTES;
    }
    text = file->text;
    text[n_bytes] = 0;
    file->text += n_bytes + 1;
    file->text_left_bytes -= n_bytes + 1;
    return text;
}

char *modelfile_copy(struct modelfile *file, const char *bytes, size_t n_bytes)
{
    char *text = modelfile_text(file, n_bytes);
    if (text) memcpy(text, bytes, n_bytes);
    return text;
}

static np_status list_add(struct modelfile *file, struct item_list *list, const char *name,
                          void **out, np_error *err)
{
    if (list->n == list->max)
        return error_set(err, NP_ELIMIT, file->path, NO_OFFSET, "at most %zu %s are allowed",
                         list->max, list == &file->tensors ? "tensors" : "settings");
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 64;
        char *items = arena_push_array(&file->arena, capacity, list->stride_bytes);
        if (!items) return error_nomem(err, file->path, capacity * list->stride_bytes);
        if (list->n) memcpy(items, list->items, list->n * list->stride_bytes);
        list->items = items;
        list->capacity = capacity;
    }
    *out = list->items + list->n++ * list->stride_bytes;
    memcpy(*out, &name, sizeof name);
    return NP_OK;
}

np_status modelfile_add_tensor(struct modelfile *file, const char *name, struct tensor **out,
                               np_error *err)
{
    void *item = NULL;
    TRY(list_add(file, &file->tensors, name, &item, err));
    *out = item;
    return NP_OK;
}

np_status modelfile_add_setting(struct modelfile *file, const char *key, struct setting **out,
                                np_error *err)
{
    void *item = NULL;
    TRY(list_add(file, &file->settings, key, &item, err));
    *out = item;
    return NP_OK;
}

np_status modelfile_check_name(const char *name, size_t n_bytes, const char *what,
                               const char *where, int64_t offset, np_error *err)
{
    if (n_bytes < 1 || n_bytes > MODELFILE_MAX_NAME_BYTES)
        return error_set(err, NP_EFORMAT, where, offset, "a %s of %zu bytes; 1 to %d are allowed",
                         what, n_bytes, MODELFILE_MAX_NAME_BYTES);
    for (size_t i = 0; i < n_bytes; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
            return error_set(err, NP_EFORMAT, where, offset,
                             "a %s with the control character 0x%02x", what,
                             (unsigned char)name[i]);
    return NP_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(**(const char *const *const *)a, **(const char *const *const *)b);
}

np_status modelfile_index(struct modelfile *file, struct item_list *list, const char *what,
                          const char *where, np_error *err)
{
    list->by_name = arena_push_array(&file->arena, list->n + 1, sizeof *list->by_name);
    if (!list->by_name) return error_nomem(err, where, (list->n + 1) * sizeof *list->by_name);
    for (size_t i = 0; i < list->n; i++)
        list->by_name[i] =
            (const char *const *)(const void *)(list->items + i * list->stride_bytes);
    qsort(list->by_name, list->n, sizeof *list->by_name, compare_names);
    for (size_t i = 1; i < list->n; i++)
        if (strcmp(*list->by_name[i - 1], *list->by_name[i]) == 0)
            return error_given(
                err, error_set(err, NP_EFORMAT, where, NO_OFFSET, "the %s appears twice", what),
                "%s", *list->by_name[i]);
    return NP_OK;
}

static const void *list_find(const struct item_list *list, const char *name)
{
    size_t low = 0, high = list->by_name ? list->n : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, *list->by_name[middle]);
        if (order == 0) return list->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

bool tensor_count_elements(struct tensor *tensor, const uint64_t *shape, size_t n_dims)
{
    uint64_t n = 1;
    for (size_t i = 0; i < n_dims; i++)
        if (__builtin_mul_overflow(n, shape[i], &n) || n > INT64_MAX) return false;
    tensor->n_elements = n;
    return true;
}

static int compare_spans(const void *a, const void *b)
{
    const struct tensor *x = *(const struct tensor *const *)a,
                        *y = *(const struct tensor *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->n_bytes != y->n_bytes) return x->n_bytes < y->n_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The spans in ascending order; every end is known not to overflow. */
static np_status check_sorted(const struct tensor *const *sorted, size_t n, const struct file *disk,
                              uint64_t data_begin, bool exact, np_error *err)
{
    uint64_t end = data_begin;
    for (size_t i = 0; i < n; i++) {
        const struct tensor *tensor = sorted[i];
        if (tensor->offset < end)
            return error_given(
                err,
                error_set(err, NP_EFORMAT, disk->path, (int64_t)tensor->offset,
                          "the data of two tensors overlap: it begins before the end of %s",
                          i ? sorted[i - 1]->name : "the header"),
                "%s", tensor->name);
        if (exact && tensor->offset > end)
            return error_given(err,
                               error_set(err, NP_EFORMAT, disk->path, (int64_t)end,
                                         "a gap of %llu bytes before the data of a tensor",
                                         (unsigned long long)(tensor->offset - end)),
                               "%s", tensor->name);
        end = tensor->offset + tensor->n_bytes;
    }
    if (n && end > disk->n_bytes)
        return error_given(err,
                           error_set(err, NP_EFORMAT, disk->path, NO_OFFSET,
                                     "the file is %llu bytes, needs %llu for its last tensor",
                                     (unsigned long long)disk->n_bytes, (unsigned long long)end),
                           "%s", sorted[n - 1]->name);
    if (exact && end != disk->n_bytes)
        return error_set(err, NP_EFORMAT, disk->path, (int64_t)end,
                         "the file is %llu bytes, its tensors end at %llu",
                         (unsigned long long)disk->n_bytes, (unsigned long long)end);
    return NP_OK;
}

np_status modelfile_check_spans(struct modelfile *file, int file_index, uint64_t data_begin,
                                bool exact, np_error *err)
{
    const struct file *disk = &file->files[file_index];
    const struct tensor *tensors = (const struct tensor *)(const void *)file->tensors.items;
    const struct tensor **sorted = mem_alloc(file->tensors.n + 1, sizeof *sorted);
    if (!sorted) return error_nomem(err, disk->path, (file->tensors.n + 1) * sizeof *sorted);
    size_t n = 0;
    np_status status = NP_OK;
    for (size_t i = 0; i < file->tensors.n; i++) {
        uint64_t end;
        if (tensors[i].file != file_index) continue;
        if (__builtin_add_overflow(tensors[i].offset, tensors[i].n_bytes, &end) ||
            end > INT64_MAX) {
            status = error_set(err, NP_EFORMAT, disk->path, NO_OFFSET,
                               "the end of a tensor's data overflows");
            error_given(err, status, "%s", tensors[i].name);
            goto done;
        }
        sorted[n++] = &tensors[i];
    }
    qsort(sorted, n, sizeof *sorted, compare_spans);
    status = check_sorted(sorted, n, disk, data_begin, exact, err);
done:
    mem_free(sorted);
    return status;
}

enum container modelfile_container(const struct modelfile *file)
{
    return file->container;
}
const char *modelfile_path(const struct modelfile *file)
{
    return file->path;
}
const char *modelfile_folder(const struct modelfile *file)
{
    return file->folder;
}
size_t modelfile_n_tensors(const struct modelfile *file)
{
    return file->tensors.n;
}
size_t modelfile_n_settings(const struct modelfile *file)
{
    return file->settings.n;
}

const struct tensor *modelfile_tensor(const struct modelfile *file, size_t i)
{
    return (const struct tensor *)(const void *)file->tensors.items + i;
}

const struct setting *modelfile_setting(const struct modelfile *file, size_t i)
{
    return (const struct setting *)(const void *)file->settings.items + i;
}

const struct tensor *modelfile_find(const struct modelfile *file, const char *name)
{
    return list_find(&file->tensors, name);
}

const struct setting *modelfile_get(const struct modelfile *file, const char *key)
{
    return list_find(&file->settings, key);
}

np_status modelfile_read(const struct modelfile *file, const struct tensor *tensor, uint64_t first,
                         uint64_t n, void *out, np_error *err)
{
    const struct file *disk = &file->files[tensor->file];
    const struct dtype_info *type = &dtype_infos[tensor->dtype];
    if (tensor->dtype == DT_NONE)
        return error_set(err, NP_EUNSUPPORTED, disk->path, (int64_t)tensor->offset,
                         "tensor %s is stored as %s, a type that is not supported", tensor->name,
                         tensor->type_name);
    if (first > tensor->n_elements || n > tensor->n_elements - first ||
        first % type->block_elements || n % type->block_elements)
        return error_set(err, NP_EINTERNAL, tensor->name, NO_OFFSET,
                         "a read outside of the tensor");
    uint64_t skip_bytes = first / type->block_elements * type->block_bytes;
    uint64_t n_bytes = n / type->block_elements * type->block_bytes;
    return file_read(disk, tensor->offset + skip_bytes, out, (size_t)n_bytes, err);
}
