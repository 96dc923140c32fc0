/*
 * safetensors.c - the header of one safetensors file.
 *
 *   u64 n_header_bytes | JSON | data
 *   JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
 *
 * Offsets count from the end of the header; the spans fill the data without a gap. A tensor of a
 * type or a number of dimensions that nepit does not know is kept, without its shape beyond
 * MAX_DIMS, and refused when somebody reads it: checkpoints carry masks and counters that no
 * architecture reads.
 */
#include "format/jsonread.h"
#include "format/modelparts.h"

#include <stdlib.h>
#include <string.h>

#define MAX_JSON_BYTES ((uint64_t)64 << 20)
#define PREFIX_BYTES 8

/* Known types and their width. Of one that is not listed only the span is checked. */
static const struct stored_type {
    const char *name;
    unsigned bits;
} stored_types[] = {
    {"F32", 32},    {"F16", 16},        {"BF16", 16},       {"F64", 64},    {"BOOL", 8},
    {"U8", 8},      {"I8", 8},          {"U16", 16},        {"I16", 16},    {"U32", 32},
    {"I32", 32},    {"U64", 64},        {"I64", 64},        {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"C64", 64},    {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

struct header {
    struct modelfile *file;
    const char *path;
    int file_index;
    uint64_t data_begin, data_bytes;
    np_error *err;
};

static np_status bad(const struct header *header, const char *tensor, const char *what)
{
    np_status status = error_set(header->err, NP_EFORMAT, header->path, NO_OFFSET, "%s", what);
    return error_given(header->err, status, "%s", tensor);
}

static enum dtype dtype_of(const char *name)
{
    for (int i = 0; i < DT_COUNT; i++)
        if (dtype_infos[i].block_elements == 1 && strcmp(dtype_infos[i].name, name) == 0)
            return (enum dtype)i;
    return DT_NONE;
}

/* Copies the type's name; for too many dimensions the name says so. */
static np_status take_type(const struct header *header, const char *dtype, size_t n_dims,
                           struct tensor *tensor)
{
    char name[MODELFILE_MAX_NAME_BYTES + 32];
    size_t n_dtype = strlen(dtype);
    TRY(modelfile_check_name(dtype, n_dtype, "dtype", header->path, NO_OFFSET, header->err));
    bool fits = n_dims <= MAX_DIMS;
    int n = fits ? snprintf(name, sizeof name, "%s", dtype)
                 : snprintf(name, sizeof name, "%s of %zu dimensions", dtype, n_dims);
    tensor->dtype = fits ? dtype_of(dtype) : DT_NONE;
    tensor->type_name = modelfile_copy(header->file, name, (size_t)n);
    return tensor->type_name ? NP_OK : error_nomem(header->err, header->path, (size_t)n);
}

static np_status take_shape(const struct header *header, const json_t *shape, struct tensor *tensor)
{
    uint64_t dims[JSONREAD_MAX_DEPTH];
    size_t n_dims = json_array_size(shape);
    if (n_dims > sizeof dims / sizeof dims[0])
        return bad(header, tensor->name, "a tensor of more than 64 dimensions");
    for (size_t i = 0; i < n_dims; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return bad(header, tensor->name, "a dimension that is not a whole number >= 0");
        dims[i] = (uint64_t)json_integer_value(dim);
    }
    if (!tensor_count_elements(tensor, dims, n_dims))
        return bad(header, tensor->name, "the dimensions of a tensor overflow when multiplied");
    tensor->n_dims = n_dims < MAX_DIMS ? (int)n_dims : MAX_DIMS;
    memcpy(tensor->shape, dims, (size_t)tensor->n_dims * sizeof dims[0]);
    return NP_OK;
}

/* The span against the data, and against shape times width where the width is known. */
static np_status take_span(const struct header *header, const json_t *offsets, const char *dtype,
                           struct tensor *tensor)
{
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last) ||
        json_integer_value(first) < 0 || json_integer_value(last) < 0)
        return bad(header, tensor->name, "data_offsets are not two whole numbers >= 0");
    uint64_t begin = (uint64_t)json_integer_value(first), end = (uint64_t)json_integer_value(last),
             n_bits;
    if (end < begin) return bad(header, tensor->name, "data_offsets end before they begin");
    tensor->n_bytes = end - begin;
    tensor->offset = header->data_begin + begin;
    tensor->file = header->file_index;
    for (size_t i = 0; i < sizeof stored_types / sizeof stored_types[0]; i++) {
        if (strcmp(stored_types[i].name, dtype) != 0) continue;
        if (__builtin_mul_overflow(tensor->n_elements, (uint64_t)stored_types[i].bits, &n_bits) ||
            n_bits % 8 || n_bits / 8 != tensor->n_bytes)
            return error_given(
                header->err,
                error_set(header->err, NP_EFORMAT, header->path, NO_OFFSET,
                          "data_offsets span %llu bytes, but %llu elements of %s were declared",
                          (unsigned long long)tensor->n_bytes,
                          (unsigned long long)tensor->n_elements, dtype),
                "%s", tensor->name);
    }
    return NP_OK;
}

static np_status add_tensor(const struct header *header, const char *name, const json_t *entry)
{
    struct tensor *tensor;
    const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    size_t n_name = strlen(name);
    TRY(modelfile_check_name(name, n_name, "tensor name", header->path, NO_OFFSET, header->err));
    if (!json_is_string(dtype) || !json_is_array(shape) || !json_is_array(offsets))
        return bad(header, name,
                   "a tensor needs a dtype (text), a shape (array) and data_offsets (array)");
    const char *copy = modelfile_copy(header->file, name, n_name);
    if (!copy) return error_nomem(header->err, header->path, n_name);
    TRY(modelfile_add_tensor(header->file, copy, &tensor, header->err));
    TRY(take_type(header, json_string_value(dtype), json_array_size(shape), tensor));
    TRY(take_shape(header, shape, tensor));
    return take_span(header, offsets, json_string_value(dtype), tensor);
}

static np_status add_tensors(const struct header *header, json_t *root)
{
    const char *name;
    json_t *entry;
    if (!json_is_object(root))
        return error_set(header->err, NP_EFORMAT, header->path, PREFIX_BYTES,
                         "the header is not an object { }");
    json_object_foreach(root, name, entry) if (strcmp(name, "__metadata__") != 0)
        TRY(add_tensor(header, name, entry));
    return modelfile_check_spans(header->file, header->file_index, header->data_begin, true,
                                 header->err);
}

np_status safetensors_parse(struct modelfile *file, int file_index, np_error *err)
{
    const struct file *disk = &file->files[file_index];
    struct header header = {.file = file, .path = disk->path, .file_index = file_index, .err = err};
    uint64_t n_json = 0;
    json_t *root = NULL;
    if (disk->n_bytes < PREFIX_BYTES)
        return error_set(err, NP_EFORMAT, disk->path, 0,
                         "the file is %llu bytes, needs at least %d",
                         (unsigned long long)disk->n_bytes, PREFIX_BYTES);
    TRY(file_read(disk, 0, &n_json, PREFIX_BYTES, err));
    if (n_json > disk->n_bytes - PREFIX_BYTES)
        return error_set(err, NP_EFORMAT, disk->path, 0,
                         "the header is declared as %llu bytes, but %llu are left in the file",
                         (unsigned long long)n_json,
                         (unsigned long long)(disk->n_bytes - PREFIX_BYTES));
    if (n_json > MAX_JSON_BYTES)
        return error_set(err, NP_ELIMIT, disk->path, 0,
                         "the header is %llu bytes; up to %llu are allowed",
                         (unsigned long long)n_json, (unsigned long long)MAX_JSON_BYTES);
    char *json = mem_alloc((size_t)n_json + 1, 1);
    if (!json) return error_nomem(err, disk->path, (size_t)n_json + 1);
    header.data_begin = PREFIX_BYTES + n_json;
    np_status status = file_read(disk, PREFIX_BYTES, json, (size_t)n_json, err);
    if (status == NP_OK)
        status = jsonread(json, (size_t)n_json, disk->path, PREFIX_BYTES, &root, err);
    mem_free(json);
    if (status == NP_OK) status = add_tensors(&header, root);
    json_decref(root);
    return status;
}
