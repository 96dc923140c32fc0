/*
 * modelparts.h - what the parsers of this room share: a model file under construction.
 *
 * Order of work: modelfile_new, modelfile_add_file, then add settings and tensors as they are
 * parsed, then modelfile_index (names sorted, duplicates refused) and modelfile_check_spans. Items
 * may move while more are added, so a pointer to one is good until the next add.
 *
 * Memory follows what has been read: a length is checked against the bytes left in the file before
 * anything is allocated for it.
 */
#ifndef FORMAT_MODELPARTS_H
#define FORMAT_MODELPARTS_H

#include "base/arena.h"
#include "base/file.h"
#include "format/modelfile.h"

#define MODELFILE_MAX_PATH 4096

/* A growing array of structs whose first member is their name. */
struct item_list {
    char *items;
    size_t stride_bytes, n, capacity, max;
    const char *const **by_name; /* [n] pointers to items in order of name */
};

struct modelfile {
    enum container container;
    const char *path, *folder;
    struct arena arena;
    char *text; /* rest of the block that texts are packed into */
    size_t text_left_bytes;
    struct file *files; /* [max_files] */
    size_t n_files, max_files;
    struct item_list tensors, settings;
};

np_status modelfile_new(struct modelfile **out, enum container container, const char *path,
                        const char *folder, size_t max_files, np_error *err);
np_status modelfile_add_file(struct modelfile *file, const char *path, np_error *err);

/* Room for n_bytes and a zero byte, which is written. Not aligned. NULL: no memory. */
char *modelfile_text(struct modelfile *file, size_t n_bytes);
char *modelfile_copy(struct modelfile *file, const char *bytes, size_t n_bytes);

/* A new zeroed item with that name (which already lives as long as the model file). */
np_status modelfile_add_tensor(struct modelfile *file, const char *name, struct tensor **out,
                               np_error *err);
np_status modelfile_add_setting(struct modelfile *file, const char *key, struct setting **out,
                                np_error *err);

/* Names must be 1 to MODELFILE_MAX_NAME_BYTES bytes without control characters, so that an
 * error that cites one stays one line. */
np_status modelfile_check_name(const char *name, size_t n_bytes, const char *what,
                               const char *where, int64_t offset, np_error *err);

/* Sorts settings or tensors by name; refuses duplicates ("key", "tensor name"). */
np_status modelfile_index(struct modelfile *file, struct item_list *list, const char *what,
                          const char *where, np_error *err);

/* Product of the shape into n_elements. False where it overflows 63 bits. */
bool tensor_count_elements(struct tensor *tensor, const uint64_t *shape, size_t n_dims);

/* Every tensor of file number `file_index` lies at or behind data_begin, inside the file, apart
 * from the others. exact: they fill the file from data_begin to its end without a gap. */
np_status modelfile_check_spans(struct modelfile *file, int file_index, uint64_t data_begin,
                                bool exact, np_error *err);

/* The parsers. Each adds what one input holds; the caller closes `file` whatever happens. */
np_status gguf_parse(struct modelfile *file, np_error *err); /* file number 0 */
np_status safetensors_parse(struct modelfile *file, int file_index, np_error *err); /* one header */
np_status hfconfig_parse(struct modelfile *file, const char *json, size_t n_bytes,
                         const char *where, np_error *err);

/* A folder with config.json and safetensors; `only` is one of its .safetensors files or NULL. */
np_status hffolder_open(const char *path, const char *folder, const char *only,
                        struct modelfile **out, np_error *err);

#endif
