/*
 * test_text_make.h - tiny tokenizers for test_text*.c: the 256 bytes, then what each merge joins.
 */
#ifndef TEST_TEXT_MAKE_H
#define TEST_TEXT_MAKE_H

#include "test_format_files.h"
#include "text/alphabet.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#define GPT2_STEP "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"

/* Parts of a tokenizer.json; NULL: what GPT-2 has. */
struct spec {
    const char *added, *normalizer, *pre, *post, *decoder, *options, *vocab, *extra;
    const char *merges[16]; /* "left right" in the byte-level alphabet, until NULL */
};

static inline const char *part(const char *given, const char *otherwise)
{
    return given ? given : otherwise;
}

static inline void put_vocab(const struct spec *spec, struct buf *out)
{
    for (int b = 0; b < 256; b++) {
        char c[4];
        size_t n = utf8_write(alphabet_char((uint8_t)b), c);
        const char *escape = b == '"' || b == '\\' ? "\\" : "";
        buf_printf(out, "%s\"%s%.*s\":%d", b ? "," : "", escape, (int)n, c, b);
    }
    int id = 256;
    for (const char *const *merge = spec->merges; *merge; merge++) {
        const char *space = strchr(*merge, ' ');
        buf_printf(out, ",\"%.*s%s\":%d", (int)(space - *merge), *merge, space + 1, id++);
    }
}

static inline void make_json(const struct spec *spec, struct buf *out)
{
    buf_init(out, 1 << 20);
    buf_printf(out, "{\"version\":\"1.0\",\"added_tokens\":[%s],\"normalizer\":%s,",
               part(spec->added, ""), part(spec->normalizer, "null"));
    buf_printf(out, "\"pre_tokenizer\":%s,\"post_processor\":%s,\"decoder\":%s,",
               part(spec->pre, GPT2_STEP), part(spec->post, "null"),
               part(spec->decoder, "{\"type\":\"ByteLevel\"}"));
    buf_printf(out, "\"model\":{\"type\":\"BPE\",%s\"vocab\":{", part(spec->options, ""));
    put_vocab(spec, out);
    buf_printf(out, "%s},\"merges\":[", part(spec->vocab, ""));
    for (size_t i = 0; spec->merges[i]; i++)
        buf_printf(out, "%s\"%s\"", i ? "," : "", spec->merges[i]);
    buf_printf(out, "]}%s}", part(spec->extra, ""));
    assert_false(out->failed);
}

/* A folder that opens as a model, with this tokenizer.json and this tokenizer_config.json. */
static inline struct folder make_folder(const char *json, size_t n, const char *config)
{
    static struct image image;
    struct folder folder = folder_make();
    image.n = 0;
    put_safetensors(&image, "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    folder_write(&folder, "model.safetensors", image.bytes, image.n);
    folder_write_text(&folder, "config.json", "{\"model_type\":\"gpt2\"}");
    if (json) folder_write(&folder, "tokenizer.json", json, n);
    if (config) folder_write_text(&folder, "tokenizer_config.json", config);
    return folder;
}

static inline np_status open_path(const char *path, struct tokenizer **out, np_error *err)
{
    struct modelfile *file = NULL;
    *out = NULL;
    np_status status = modelfile_open(path, &file, err);
    if (status == NP_OK) status = tokenizer_open(file, out, err);
    modelfile_close(file);
    return status;
}

static inline np_status open_spec(const struct spec *spec, const char *config,
                                  struct tokenizer **out, np_error *err)
{
    struct buf json;
    make_json(spec, &json);
    struct folder folder = make_folder(json.data, json.n_bytes, config);
    np_status status = open_path(folder.path, out, err);
    folder_remove(&folder);
    buf_free(&json);
    return status;
}

static inline struct tokenizer *opened(const struct spec *spec, const char *config)
{
    struct tokenizer *tokenizer;
    np_error err;
    char line[640];
    if (open_spec(spec, config, &tokenizer, &err)) fail_msg("%s", np_error_line(&err, line, 640));
    assert_non_null(tokenizer);
    return tokenizer;
}

/* Encodes; spans tile the text, and where the text was not normalised each is its token's bytes. */
static inline struct encoding encoded(const struct tokenizer *tokenizer, const char *text, size_t n,
                                      bool parse_special, bool normalised)
{
    struct encoding encoding;
    np_error err;
    size_t at = 0;
    assert_int_equal(tokenizer_encode(tokenizer, text, n, true, parse_special, &encoding, &err),
                     NP_OK);
    for (size_t i = 0; i < encoding.n_tokens; i++) {
        const struct token_span *token = &encoding.tokens[i];
        size_t n_bytes;
        const char *bytes = tokenizer_bytes(tokenizer, token->id, &n_bytes);
        assert_non_null(bytes);
        assert_int_equal(token->begin, at);
        assert_true(token->end >= at && token->end <= n);
        at = token->end;
        if (normalised || token->begin == token->end) continue;
        assert_int_equal(n_bytes, token->end - token->begin);
        assert_memory_equal(bytes, text + token->begin, n_bytes);
    }
    assert_int_equal(at, n);
    return encoding;
}

/* The ids of a text, compared with a list that ends with -1. */
static inline void check_ids(const struct tokenizer *tokenizer, const char *text, size_t n,
                             bool parse_special, const int32_t *ids)
{
    struct encoding encoding = encoded(tokenizer, text, n, parse_special, true);
    for (size_t i = 0; i < encoding.n_tokens; i++) assert_int_equal(encoding.tokens[i].id, ids[i]);
    assert_int_equal(ids[encoding.n_tokens], -1);
    encoding_free(&encoding);
}
#define CHECK_IDS(tokenizer, text, parse_special, ...) \
    check_ids(tokenizer, text, sizeof(text) - 1, parse_special, (const int32_t[]){__VA_ARGS__, -1})

/* A GGUF with the same vocabulary, and n_more settings that `more` writes. */
static inline void make_gguf(struct image *image, const char *pre, const char *const *merges,
                             void (*more)(struct image *), uint64_t n_more)
{
    uint64_t n_merges = 0;
    char c[4], joined[64];
    while (merges[n_merges]) n_merges++;
    image->n = 0;
    put(image, "GGUF", 4);
    put_u32(image, 3);
    put_u64(image, 0);
    put_u64(image, 6 + n_more);
    put_key(image, "general.architecture", 8);
    put_text(image, "llama");
    put_key(image, "tokenizer.ggml.model", 8);
    put_text(image, "gpt2");
    put_key(image, "tokenizer.ggml.pre", 8);
    put_text(image, pre);
    put_key(image, "tokenizer.ggml.tokens", 9);
    put_u32(image, 8);
    put_u64(image, 257 + n_merges);
    for (int b = 0; b < 256; b++) {
        size_t n = utf8_write(alphabet_char((uint8_t)b), c);
        put_u64(image, n);
        put(image, c, n);
    }
    for (uint64_t i = 0; i < n_merges; i++) {
        const char *space = strchr(merges[i], ' ');
        snprintf(joined, sizeof joined, "%.*s%s", (int)(space - merges[i]), merges[i], space + 1);
        put_text(image, joined);
    }
    put_text(image, "<|end|>");
    put_key(image, "tokenizer.ggml.token_type", 9);
    put_u32(image, 5);
    put_u64(image, 257 + n_merges);
    for (uint64_t i = 0; i < 256 + n_merges; i++) put_u32(image, 1);
    put_u32(image, 3);
    put_key(image, "tokenizer.ggml.merges", 9);
    put_u32(image, 8);
    put_u64(image, n_merges);
    for (uint64_t i = 0; i < n_merges; i++) put_text(image, merges[i]);
    if (more) more(image);
}

static inline np_status open_image(const struct image *image, struct tokenizer **out, np_error *err)
{
    struct memory memory = memory_open(image->bytes, image->n);
    np_status status = open_path(memory.path, out, err);
    close(memory.fd);
    return status;
}

#endif
