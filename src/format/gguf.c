/*
 * gguf.c - the GGUF header, versions 2 and 3, little-endian.
 *
 *   "GGUF" u32 version u64 n_tensors u64 n_settings
 *   settings: text key, u32 type, value
 *   tensors:  text name, u32 n_dims, u64 dims[n_dims] (fastest first), u32 type, u64 offset in data
 *   text:     u64 n_bytes, bytes            array: u32 type, u64 n, values
 *   zero bytes up to a multiple of general.alignment (32), then the data
 *
 * The surprising decision: a tensor of a type that nepit does not know is no error here. It is
 * kept with its name and refused when somebody reads it, since a file may carry more than an
 * architecture needs.
 */
#include "format/bytereader.h"
#include "format/ggmltypes.h"
#include "format/modelparts.h"

#include <string.h>

#define MIN_SETTING_BYTES (8 + 1 + 4 + 1)    /* a key of one byte and a value of one */
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 4 + 8) /* a name of one byte and no dimensions */
#define DEFAULT_ALIGNMENT 32
#define MAX_ALIGNMENT (64 << 10)

enum value_number { VALUE_UINT32 = 4, VALUE_STRING = 8, VALUE_ARRAY = 9, VALUE_COUNT = 13 };

static const struct value_type {
    const char *name;
    size_t n_bytes; /* of one value; at least this for a text */
    enum setting_type type;
    bool is_signed;
} value_types[VALUE_COUNT] = {
    {"UINT8", 1, SETTING_INT, false},     {"INT8", 1, SETTING_INT, true},
    {"UINT16", 2, SETTING_INT, false},    {"INT16", 2, SETTING_INT, true},
    {"UINT32", 4, SETTING_INT, false},    {"INT32", 4, SETTING_INT, true},
    {"FLOAT32", 4, SETTING_FLOAT, false}, {"BOOL", 1, SETTING_BOOL, false},
    {"STRING", 8, SETTING_STRING, false}, {"ARRAY", 12, SETTING_ARRAY, false},
    {"UINT64", 8, SETTING_INT, false},    {"INT64", 8, SETTING_INT, true},
    {"FLOAT64", 8, SETTING_FLOAT, false},
};

struct gguf {
    struct modelfile *file;
    struct byte_reader reader;
    uint64_t alignment;
    uint64_t n_tensors, n_settings;
    np_error *err;
};

static const char *path_of(const struct gguf *gguf)
{
    return gguf->reader.file->path;
}
static int64_t offset_of(const struct gguf *gguf)
{
    return (int64_t)gguf->reader.position;
}

/* A text with its length before it, copied into the arena. */
static np_status read_text(struct gguf *gguf, const char *what, struct text_view *out)
{
    uint64_t n;
    TRY(reader_u64(&gguf->reader, what, &n));
    TRY(reader_check(&gguf->reader, n, what));
    char *text = modelfile_text(gguf->file, (size_t)n);
    if (!text) return error_nomem(gguf->err, path_of(gguf), (size_t)n);
    *out = (struct text_view){text, (size_t)n};
    return reader_copy(&gguf->reader, (size_t)n, what, text);
}

static np_status read_name(struct gguf *gguf, const char *what, const char **out)
{
    int64_t offset = offset_of(gguf);
    uint64_t n;
    char name[MODELFILE_MAX_NAME_BYTES];
    TRY(reader_u64(&gguf->reader, what, &n));
    TRY(reader_check(&gguf->reader, n, what));
    size_t n_copied = n < sizeof name ? (size_t)n : sizeof name;
    TRY(reader_copy(&gguf->reader, n_copied, what, name));
    TRY(modelfile_check_name(name, (size_t)n, what, path_of(gguf), offset, gguf->err));
    *out = modelfile_copy(gguf->file, name, (size_t)n);
    return *out ? NP_OK : error_nomem(gguf->err, path_of(gguf), (size_t)n);
}

/* One number or bool from its bytes. offset: of the value, for the error. */
static np_status decode(const struct gguf *gguf, const struct value_type *type,
                        const unsigned char *bytes, int64_t offset, int64_t *integer,
                        double *number)
{
    uint64_t raw = 0;
    memcpy(&raw, bytes, type->n_bytes);
    if (type->type == SETTING_FLOAT) {
        float f32;
        if (type->n_bytes == sizeof f32) {
            memcpy(&f32, bytes, sizeof f32);
            *number = (double)f32;
        } else {
            memcpy(number, bytes, sizeof *number);
        }
        return NP_OK;
    }
    unsigned unused_bits = 64 - 8 * (unsigned)type->n_bytes;
    if (type->is_signed)
        *integer = (int64_t)(raw << unused_bits) >> unused_bits;
    else if (type->type == SETTING_BOOL && raw > 1)
        return error_set(gguf->err, NP_EFORMAT, path_of(gguf), offset,
                         "a BOOL of %d; 0 and 1 are allowed", (int)raw);
    else if (raw > INT64_MAX)
        return error_set(gguf->err, NP_EFORMAT, path_of(gguf), offset,
                         "a %s of %llu; up to 2^63 - 1 is allowed", type->name,
                         (unsigned long long)raw);
    else
        *integer = (int64_t)raw;
    *number = (double)*integer;
    return NP_OK;
}

static np_status read_value_type(struct gguf *gguf, const char *what, uint32_t *out)
{
    int64_t offset = offset_of(gguf);
    TRY(reader_u32(&gguf->reader, what, out));
    if (*out < VALUE_COUNT) return NP_OK;
    return error_set(gguf->err, NP_EFORMAT, path_of(gguf), offset, "%s is %u; 0 to %d are known",
                     what, *out, VALUE_COUNT - 1);
}

static np_status read_texts(struct gguf *gguf, struct setting *setting)
{
    struct text_view *texts =
        arena_push_array(&gguf->file->arena, setting->n_elements, sizeof *texts);
    if (!texts) return error_nomem(gguf->err, path_of(gguf), setting->n_elements * sizeof *texts);
    for (uint64_t i = 0; i < setting->n_elements; i++)
        TRY(read_text(gguf, "a text of an array", &texts[i]));
    setting->texts = texts;
    return NP_OK;
}

static np_status read_numbers(struct gguf *gguf, const struct value_type *type,
                              struct setting *setting)
{
    bool is_float = type->type == SETTING_FLOAT;
    uint64_t n = setting->n_elements;
    void *values = arena_push_array(&gguf->file->arena, n, 8);
    if (!values) return error_nomem(gguf->err, path_of(gguf), n * 8);
    int64_t *integers = is_float ? NULL : values;
    double *numbers = is_float ? values : NULL;
    for (uint64_t done = 0; done < n;) {
        uint64_t piece = READER_WINDOW_BYTES / type->n_bytes;
        const unsigned char *bytes;
        int64_t offset = offset_of(gguf);
        if (piece > n - done) piece = n - done;
        TRY(reader_take(&gguf->reader, (size_t)piece * type->n_bytes, "an array", &bytes));
        for (uint64_t i = 0; i < piece; i++) {
            int64_t integer = 0;
            double number = 0;
            TRY(decode(gguf, type, bytes + i * type->n_bytes, offset + (int64_t)(i * type->n_bytes),
                       &integer, &number));
            if (is_float)
                numbers[done + i] = number;
            else
                integers[done + i] = integer;
        }
        done += piece;
    }
    setting->integers = integers;
    setting->numbers = numbers;
    return NP_OK;
}

static np_status read_array(struct gguf *gguf, struct setting *setting)
{
    uint32_t number;
    TRY(read_value_type(gguf, "the element type of an array", &number));
    const struct value_type *type = &value_types[number];
    int64_t offset = offset_of(gguf);
    if (number == VALUE_ARRAY)
        return error_given(gguf->err,
                           error_set(gguf->err, NP_EUNSUPPORTED, path_of(gguf), offset,
                                     "an array of arrays is not supported"),
                           "%s", setting->key);
    TRY(reader_u64(&gguf->reader, "the length of an array", &setting->n_elements));
    if (setting->n_elements > MODELFILE_MAX_ARRAY)
        return error_set(gguf->err, NP_ELIMIT, path_of(gguf), offset,
                         "an array of %llu elements; %u are allowed",
                         (unsigned long long)setting->n_elements, MODELFILE_MAX_ARRAY);
    TRY(reader_check(&gguf->reader, setting->n_elements * type->n_bytes, "an array"));
    setting->element_type = setting->n_elements ? type->type : SETTING_NULL;
    if (!setting->n_elements) return NP_OK;
    return number == VALUE_STRING ? read_texts(gguf, setting) : read_numbers(gguf, type, setting);
}

static np_status take_alignment(struct gguf *gguf, const struct setting *setting, uint32_t type,
                                int64_t offset)
{
    int64_t value = setting->integer;
    if (type != VALUE_UINT32 || value < 1 || value > MAX_ALIGNMENT || (value & (value - 1)))
        return error_set(
            gguf->err, NP_EFORMAT, path_of(gguf), offset,
            "general.alignment is %s %lld; a UINT32 that is a power of two up to %d is allowed",
            value_types[type].name, (long long)value, MAX_ALIGNMENT);
    gguf->alignment = (uint64_t)value;
    return NP_OK;
}

static np_status read_setting(struct gguf *gguf)
{
    struct setting *setting;
    const char *key;
    uint32_t number;
    TRY(read_name(gguf, "the key of a setting", &key));
    TRY(modelfile_add_setting(gguf->file, key, &setting, gguf->err));
    TRY(read_value_type(gguf, "the type of a setting", &number));
    const struct value_type *type = &value_types[number];
    int64_t offset = offset_of(gguf);
    setting->type = type->type;
    if (number == VALUE_ARRAY)
        TRY(read_array(gguf, setting));
    else if (number == VALUE_STRING)
        TRY(read_text(gguf, "a text", &setting->text));
    else {
        const unsigned char *bytes;
        TRY(reader_take(&gguf->reader, type->n_bytes, "a value", &bytes));
        TRY(decode(gguf, type, bytes, offset, &setting->integer, &setting->number));
    }
    if (strcmp(key, "general.alignment") == 0) TRY(take_alignment(gguf, setting, number, offset));
    return NP_OK;
}

/* Dimensions in the file begin with the fastest; here the slowest comes first. */
static np_status read_shape(struct gguf *gguf, struct tensor *tensor)
{
    int64_t offset = offset_of(gguf);
    uint32_t n_dims;
    TRY(reader_u32(&gguf->reader, "the number of dimensions", &n_dims));
    if (n_dims > MAX_DIMS)
        return error_given(gguf->err,
                           error_set(gguf->err, NP_EFORMAT, path_of(gguf), offset,
                                     "a tensor of %u dimensions; up to %d are allowed", n_dims,
                                     MAX_DIMS),
                           "%s", tensor->name);
    tensor->n_dims = (int)n_dims;
    for (uint32_t i = 0; i < n_dims; i++)
        TRY(reader_u64(&gguf->reader, "a dimension", &tensor->shape[n_dims - 1 - i]));
    if (tensor_count_elements(tensor, tensor->shape, n_dims)) return NP_OK;
    return error_given(gguf->err,
                       error_set(gguf->err, NP_EFORMAT, path_of(gguf), offset,
                                 "the dimensions of a tensor overflow when multiplied"),
                       "%s", tensor->name);
}

static np_status read_element_type(struct gguf *gguf, struct tensor *tensor)
{
    int64_t offset = offset_of(gguf);
    uint32_t number;
    TRY(reader_u32(&gguf->reader, "an element type", &number));
    struct ggml_type type = ggml_type_of(number);
    tensor->dtype = dtype_of_ggml(number);
    tensor->type_name = type.name;
    if (!type.name) {
        char name[32];
        int n_bytes = snprintf(name, sizeof name, "ggml type %u", number);
        tensor->type_name = modelfile_copy(gguf->file, name, (size_t)n_bytes);
        if (!tensor->type_name) return error_nomem(gguf->err, path_of(gguf), sizeof name);
    }
    if (!type.block_elements) return NP_OK;
    uint64_t row = tensor->n_dims ? tensor->shape[tensor->n_dims - 1] : 1;
    if (row % type.block_elements)
        return error_given(
            gguf->err,
            error_set(gguf->err, NP_EFORMAT, path_of(gguf), offset,
                      "rows of %llu elements, not a multiple of the %u in a block of %s",
                      (unsigned long long)row, type.block_elements, type.name),
            "%s", tensor->name);
    if (!__builtin_mul_overflow(tensor->n_elements / type.block_elements,
                                (uint64_t)type.block_bytes, &tensor->n_bytes))
        return NP_OK;
    return error_given(
        gguf->err,
        error_set(gguf->err, NP_EFORMAT, path_of(gguf), offset, "the size of a tensor overflows"),
        "%s", tensor->name);
}

static np_status read_tensor(struct gguf *gguf)
{
    struct tensor *tensor;
    const char *name;
    TRY(read_name(gguf, "the name of a tensor", &name));
    TRY(modelfile_add_tensor(gguf->file, name, &tensor, gguf->err));
    TRY(read_shape(gguf, tensor));
    TRY(read_element_type(gguf, tensor));
    int64_t offset = offset_of(gguf);
    TRY(reader_u64(&gguf->reader, "the offset of a tensor", &tensor->offset));
    if (tensor->offset % gguf->alignment == 0 && tensor->offset <= INT64_MAX) return NP_OK;
    return error_given(
        gguf->err,
        error_set(gguf->err, NP_EFORMAT, path_of(gguf), offset,
                  "data offset %llu is above 2^63 - 1 or not a multiple of general.alignment, %u",
                  (unsigned long long)tensor->offset, (unsigned)gguf->alignment),
        "%s", name);
}

/* The first bytes of files that people try instead. */
static const struct foreign {
    const char *magic;
    size_t n_bytes;
    const char *what;
} foreigns[] = {
    {"PK\3\4", 4,
     "a PyTorch checkpoint, which is not supported: save it as safetensors (save_pretrained)"},
    {"\x80\2", 2,
     "a Python pickle, which is not supported: save it as safetensors (save_pretrained)"},
    {"lmgg", 4, "a GGML file of before GGUF, which is not supported: convert it to GGUF"},
    {"fmgg", 4, "a GGMF file of before GGUF, which is not supported: convert it to GGUF"},
    {"tjgg", 4, "a GGJT file of before GGUF, which is not supported: convert it to GGUF"},
};

static np_status read_magic(struct gguf *gguf)
{
    const unsigned char *magic;
    uint32_t version;
    TRY(reader_take(&gguf->reader, 4, "the magic of a GGUF file", &magic));
    for (size_t i = 0; i < sizeof foreigns / sizeof foreigns[0]; i++)
        if (memcmp(magic, foreigns[i].magic, foreigns[i].n_bytes) == 0)
            return error_set(gguf->err, NP_EUNSUPPORTED, path_of(gguf), 0, "%s", foreigns[i].what);
    if (memcmp(magic, "GGUF", 4) != 0)
        return error_set(
            gguf->err, NP_EFORMAT, path_of(gguf), 0,
            "no GGUF file (it begins with %02x %02x %02x %02x); a .gguf file or a folder with "
            "config.json and safetensors is expected",
            magic[0], magic[1], magic[2], magic[3]);
    TRY(reader_u32(&gguf->reader, "the version", &version));
    if (version && (version & 0xffff) == 0)
        return error_set(gguf->err, NP_EUNSUPPORTED, path_of(gguf), 4,
                         "a big-endian GGUF file is not supported");
    if (version < 2 || version > 3)
        return error_set(gguf->err, NP_EUNSUPPORTED, path_of(gguf), 4,
                         "GGUF version %u is not supported; 2 and 3 are", version);
    return NP_OK;
}

static np_status read_count(struct gguf *gguf, const char *what, uint64_t max, size_t min_bytes,
                            uint64_t *out)
{
    int64_t offset = offset_of(gguf);
    TRY(reader_u64(&gguf->reader, what, out));
    if (*out > max)
        return error_set(gguf->err, NP_ELIMIT, path_of(gguf), offset,
                         "%s is %llu; up to %llu are allowed", what, (unsigned long long)*out,
                         (unsigned long long)max);
    if (*out > reader_left(&gguf->reader) / min_bytes)
        return error_set(gguf->err, NP_EFORMAT, path_of(gguf), offset,
                         "%s is %llu, too many for the %llu bytes that are left", what,
                         (unsigned long long)*out, (unsigned long long)reader_left(&gguf->reader));
    return NP_OK;
}

static np_status check_settings(const struct gguf *gguf)
{
    const struct setting *split = modelfile_get(gguf->file, "split.count");
    if (split && split->type == SETTING_INT && split->integer > 1)
        return error_set(
            gguf->err, NP_EUNSUPPORTED, path_of(gguf), NO_OFFSET,
            "one of the %lld parts of a split GGUF, which is not supported: merge them first "
            "(llama-gguf-split --merge)",
            (long long)split->integer);
    return NP_OK;
}

static np_status place_tensors(struct gguf *gguf)
{
    uint64_t data_begin = (gguf->reader.position + gguf->alignment - 1) & ~(gguf->alignment - 1);
    struct tensor *tensors = (struct tensor *)(void *)gguf->file->tensors.items;
    for (size_t i = 0; i < gguf->file->tensors.n; i++) tensors[i].offset += data_begin;
    return modelfile_check_spans(gguf->file, 0, data_begin, false, gguf->err);
}

static np_status read_header(struct gguf *gguf)
{
    struct modelfile *file = gguf->file;
    TRY(read_magic(gguf));
    TRY(read_count(gguf, "the number of tensors", MODELFILE_MAX_TENSORS, MIN_TENSOR_BYTES,
                   &gguf->n_tensors));
    TRY(read_count(gguf, "the number of settings", MODELFILE_MAX_SETTINGS, MIN_SETTING_BYTES,
                   &gguf->n_settings));
    for (uint64_t i = 0; i < gguf->n_settings; i++) TRY(read_setting(gguf));
    TRY(modelfile_index(file, &file->settings, "key", path_of(gguf), gguf->err));
    TRY(check_settings(gguf));
    for (uint64_t i = 0; i < gguf->n_tensors; i++) TRY(read_tensor(gguf));
    TRY(modelfile_index(file, &file->tensors, "tensor name", path_of(gguf), gguf->err));
    return place_tensors(gguf);
}

np_status gguf_parse(struct modelfile *file, np_error *err)
{
    struct gguf gguf = {.file = file, .alignment = DEFAULT_ALIGNMENT, .err = err};
    np_status status = reader_open(&gguf.reader, &file->files[0], MODELFILE_MAX_HEADER_BYTES, err);
    if (status == NP_OK) status = read_header(&gguf);
    reader_close(&gguf.reader);
    return status;
}
