/*
 * fuzz_tokenizer.c - two inputs in one, parted by the first newline: a text, and a tokenizer file
 * (GGUF, or a tokenizer.json). What opens encodes the text: spans tile it, every id has bytes.
 */
#include "mutate.h"
#include "text/recipe_json.h"

#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>

static void encode(const struct tokenizer *tokenizer, const char *text, size_t n)
{
    for (int special = 0; special < 2; special++) {
        struct encoding encoding;
        np_error err;
        size_t at = 0, n_bytes;
        if (tokenizer_encode(tokenizer, text, n, false, special, &encoding, &err)) continue;
        for (size_t i = 0; i < encoding.n_tokens; i++) {
            assert(encoding.tokens[i].begin == at && encoding.tokens[i].end >= at);
            at = encoding.tokens[i].end;
            assert(tokenizer_bytes(tokenizer, encoding.tokens[i].id, &n_bytes));
        }
        encoding_free(&encoding);
    }
}

static np_status open_gguf(const uint8_t *bytes, size_t n, struct tokenizer **out, np_error *err)
{
    struct modelfile *file;
    char path[64];
    int fd = memfd_create("gguf", MFD_CLOEXEC);
    assert(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    np_status status = modelfile_open(path, &file, err);
    if (!status) status = tokenizer_open(file, out, err);
    modelfile_close(file);
    close(fd);
    return status;
}

static np_status open_json(const uint8_t *bytes, size_t n, struct tokenizer **out, np_error *err)
{
    struct folder_files files = {0};
    struct recipe recipe;
    recipe_init(&recipe, "tokenizer.json");
    json_t *root = json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES, NULL);
    np_status status = root ? recipe_from_json(&recipe, root, &files, err) : NP_OK;
    if (root && !status) status = recipe_read_config(&recipe, &files, err);
    if (root && !status) status = tokenizer_build(&recipe, out, err);
    json_decref(root);
    recipe_free(&recipe);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    const uint8_t *newline = memchr(bytes, '\n', n_bytes);
    size_t n_text = newline ? (size_t)(newline - bytes) : n_bytes;
    struct tokenizer *tokenizer = NULL;
    np_error err;
    char line[640];
    if (!newline) return 0;
    bool gguf = n_bytes - n_text > 5 && !memcmp(newline + 1, "GGUF", 4);
    np_status status =
        (gguf ? open_gguf : open_json)(newline + 1, n_bytes - n_text - 1, &tokenizer, &err);
    if (!status && tokenizer) encode(tokenizer, (const char *)bytes, n_text);
    if (status) assert(!tokenizer && !strchr(np_error_line(&err, line, sizeof line), '\n'));
    tokenizer_close(tokenizer);
    return 0;
}
