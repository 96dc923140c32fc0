/*
 * Tells whether a model on disk is the one of an earlier run. Hashing gigabytes would take longer
 * than many runs, so of each file its size and up to 64 blocks, spread evenly, are taken: training
 * changes them all.
 */
#include "parts.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

enum { N_BLOCKS = 64 };
#define BLOCK_BYTES ((size_t)1 << 16)

static np_status add_file(const char *path, uint64_t *hash, np_error *err)
{
    struct file file;
    TRY(file_open(&file, path, err));
    char *block = malloc(BLOCK_BYTES);
    np_status status = block ? NP_OK : error_nomem(err, "a block", BLOCK_BYTES);
    *hash = hash_bytes(*hash, (const char *)&file.n_bytes, sizeof file.n_bytes);
    uint64_t stride = file.n_bytes / N_BLOCKS > BLOCK_BYTES ? file.n_bytes / N_BLOCKS : BLOCK_BYTES;
    for (uint64_t at = 0; status == NP_OK && at < file.n_bytes; at += stride) {
        uint64_t n_left = file.n_bytes - at;
        size_t n_bytes = n_left < BLOCK_BYTES ? (size_t)n_left : BLOCK_BYTES;
        status = file_read(&file, at, block, n_bytes, err);
        if (status == NP_OK) *hash = hash_bytes(*hash, block, n_bytes);
    }
    free(block);
    file_close(&file);
    return status;
}

static int is_model_file(const struct dirent *entry)
{
    static const char *const ends[] = {".safetensors", ".json", ".gguf", "merges.txt"};
    size_t n_name = strlen(entry->d_name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t n_end = strlen(ends[i]);
        if (n_name >= n_end && strcmp(entry->d_name + n_name - n_end, ends[i]) == 0) return 1;
    }
    return 0;
}

/* In the order of their names' bytes, whatever the locale. */
static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

np_status fingerprint_model(const char *path, uint64_t *fingerprint, np_error *err)
{
    struct stat info;
    struct dirent **entries = NULL;
    *fingerprint = 0;
    if (stat(path, &info) != 0)
        return error_set(err, NP_EIO, path, NO_OFFSET, "%s", strerror(errno));
    if (!S_ISDIR(info.st_mode)) return add_file(path, fingerprint, err);
    int count = scandir(path, &entries, is_model_file, by_bytes);
    if (count < 0) return error_set(err, NP_EIO, path, NO_OFFSET, "%s", strerror(errno));
    np_status status = NP_OK;
    for (int i = 0; i < count; i++) {
        char name[4096 + 256];
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        *fingerprint = hash_bytes(*fingerprint, entries[i]->d_name, strlen(entries[i]->d_name));
        if (status == NP_OK) status = add_file(name, fingerprint, err);
        free(entries[i]);
    }
    free(entries);
    return status;
}
