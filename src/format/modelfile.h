/*
 * modelfile.h - bytes on disk as named tensors and settings.
 *
 * One face for GGUF files and for folders with config.json and safetensors. Opening reads and
 * checks all headers: magic, counts against the bytes that are left, every tensor's span inside
 * its file, no overlap, no duplicate name, sizes that multiply without overflow. Tensor data are
 * read later, one after another, by modelfile_read. Nothing is mapped. Parsers are total functions
 * of bytes: bounds first, then an error that names the byte offset.
 *
 * Limits: MODELFILE_MAX_* below. A model file is immutable after opening and may be read by many
 * threads.
 */
#ifndef FORMAT_MODELFILE_H
#define FORMAT_MODELFILE_H

#include "tensor/tensor.h"
#include <stdbool.h>

#define MODELFILE_MAX_TENSORS 65536
#define MODELFILE_MAX_SETTINGS 65536
#define MODELFILE_MAX_HEADER_BYTES (512u << 20) /* a GGUF header holds the vocabulary */
#define MODELFILE_MAX_NAME_BYTES 256
#define MODELFILE_MAX_ARRAY (16u << 20) /* elements of one array setting */
#define MODELFILE_MAX_SHARDS 1024

enum container { CONTAINER_GGUF, CONTAINER_SAFETENSORS };

enum setting_type {
    SETTING_INT,
    SETTING_FLOAT,
    SETTING_BOOL,
    SETTING_STRING,
    SETTING_ARRAY,
    SETTING_OBJECT,
    SETTING_NULL
};

/* Always terminated here (in the file it need not be); may contain zero bytes. */
struct text_view {
    const char *bytes;
    size_t n_bytes;
};

/* A setting of GGUF ("llama.block_count") or of config.json; nested objects of config.json are
 * flattened with dots ("rope_scaling.type"), empty objects appear as SETTING_OBJECT. Arrays hold
 * one type (INT beside FLOAT makes FLOAT); an empty array has element_type SETTING_NULL, and an
 * array that holds anything else (objects, arrays, a mixture) has element_type SETTING_OBJECT and
 * no elements to read, only their number. */
struct setting {
    const char *key;
    enum setting_type type;
    enum setting_type element_type; /* of an array */
    int64_t integer;                /* INT (u64 above INT64_MAX is refused), BOOL as 0/1 */
    double number;                  /* FLOAT; INT too */
    struct text_view text;
    uint64_t n_elements;
    const int64_t *integers;       /* array of INT or BOOL */
    const double *numbers;         /* array of FLOAT */
    const struct text_view *texts; /* array of STRING */
};

struct modelfile;

/* A .gguf file; or a folder, or config.json or a .safetensors file in it. */
np_status modelfile_open(const char *path, struct modelfile **out, np_error *err);
void modelfile_close(struct modelfile *file);

enum container modelfile_container(const struct modelfile *file);
const char *modelfile_path(const struct modelfile *file);
const char *modelfile_folder(const struct modelfile *file); /* where tokenizer.json would lie */

size_t modelfile_n_tensors(const struct modelfile *file);
const struct tensor *modelfile_tensor(const struct modelfile *file, size_t i);
const struct tensor *modelfile_find(const struct modelfile *file,
                                    const char *name); /* NULL: none */

/* Reads elements [first, first + n) of a tensor as stored; first and n are multiples of its block.
 * Tensors of types that nepit does not know (dtype DT_NONE) may lie in a file; reading one is
 * refused by the type's name. */
np_status modelfile_read(const struct modelfile *file, const struct tensor *tensor, uint64_t first,
                         uint64_t n, void *out, np_error *err);

size_t modelfile_n_settings(const struct modelfile *file);
const struct setting *modelfile_setting(const struct modelfile *file, size_t i);
const struct setting *modelfile_get(const struct modelfile *file, const char *key); /* NULL: none */

#endif
