/*
 * test_text_files.c - tokenizer files that are refused, that are mutated, and memory that ends.
 */
#include "../../fuzz/mutate.h"
#include "test_text_make.h"

static const char *const merges[] = {"h e", "l l", "he ll", NULL};

/* C147: what tokenizer.json may not hold, and the words that name it. */
static void parts_that_are_refused(void **state)
{
    static const struct {
        struct spec spec;
        np_status status;
        const char *words;
    } cases[] = {
        {{.normalizer = "{\"type\":\"NFKC\"}"}, NP_EUNSUPPORTED, "normalizer.type"},
        {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
                        "{\"type\":\"Lowercase\"}]}"},
         NP_EUNSUPPORTED,
         "normalizer.normalizers[1].type is not supported: \"Lowercase\""},
        {{.pre = "{\"type\":\"Whitespace\"}"}, NP_EUNSUPPORTED, "pre_tokenizer.type"},
        {{.pre = "{\"type\":\"Digits\",\"individual_digits\":true}"},
         NP_EUNSUPPORTED,
         "pre_tokenizer without ByteLevel"},
        {{.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[" GPT2_STEP "," GPT2_STEP "]}"},
         NP_EFORMAT,
         "behind ByteLevel"},
        {{.pre = "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"Isolated\"}"},
         NP_EUNSUPPORTED,
         "pre_tokenizer.pattern"},
        {{.pre = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
                 "\"behavior\":\"MergedWithNext\"}"},
         NP_EUNSUPPORTED,
         "pre_tokenizer.behavior"},
        {{.post = "{\"type\":\"RobertaProcessing\"}"}, NP_EUNSUPPORTED, "post_processor.type"},
        {{.decoder = "{\"type\":\"WordPiece\"}"}, NP_EUNSUPPORTED, "decoder.type"},
        {{.options = "\"dropout\":0.1,"}, NP_EUNSUPPORTED, "model.dropout"},
        {{.options = "\"byte_fallback\":true,"}, NP_EUNSUPPORTED, "model.byte_fallback"},
        {{.options = "\"end_of_word_suffix\":\"</w>\","}, NP_EUNSUPPORTED, "end_of_word_suffix"},
        {{.extra = ",\"surprise\":1"}, NP_EUNSUPPORTED, "surprise is not supported"},
        {{.vocab = ",\"a\":7"}, NP_EFORMAT, "no valid JSON"},
        {{.vocab = ",\"new\":7"}, NP_EFORMAT, "two tokens have the id 7"},
        {{.vocab = ",\"new\":-1"}, NP_EFORMAT, "not a number from 0"},
        {{.vocab = ",\"new\":2147483648"}, NP_ELIMIT, "at most"},
        {{.vocab = ",\"new\":9223372036854775807"}, NP_ELIMIT, "at most"},
        {{.added = "{\"id\":9,\"content\":\"<x>\"}"}, NP_EFORMAT, "of another token"},
        {{.added = "{\"id\":300,\"content\":\"\"}"}, NP_EFORMAT, "added_tokens[0].content"},
        {{.added = "{\"content\":\"x\"}"}, NP_EFORMAT, "added_tokens[0] has no id"},
        {{.merges = {"a b", "a b"}}, NP_EFORMAT, "no valid JSON"},
        {{.merges = {"a b", "ab xyz"}}, NP_EFORMAT, "right side of merge 1 is no token"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *tokenizer;
        np_error err;
        np_status status = open_spec(&cases[i].spec, NULL, &tokenizer, &err);
        check_refused(status, cases[i].status, &err, cases[i].words);
        assert_null(tokenizer);
    }
}

/* Splitting rules: the regular expression's own place is the offset. */
static void expressions_that_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"\\\\w+", "this escape"},      {"\\\\p{Han}", "this property"},
        {"a|(b", "without its end"},    {"a)", "a parenthesis"},
        {".", "this is not"},           {"a**", "a quantifier of"},
        {"a{2,3}+", "a quantifier of"}, {"*", "a quantifier here"},
        {"[[:alpha:]]", "member"},      {"(?<=a)b", "this group"},
        {"(?i:ss)", "pair of letters"}, {"a*", "the empty text"},
        {"[b-a]", "this range"},        {"(?i:[a])", "a set in"},
        {"\u4e00", "this is not"},      {"[]a]", "an empty set"},
        {"\\\\p{L", "this property"},   {"a{,3}", "this quantifier"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char pre[256];
        struct tokenizer *tokenizer;
        np_error err;
        snprintf(pre, sizeof pre,
                 "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
                 "{\"Regex\":\"%s\"},\"behavior\":\"Isolated\"}," GPT2_STEP "]}",
                 cases[i][0]);
        struct spec spec = {.pre = pre};
        np_status status = open_spec(&spec, NULL, &tokenizer, &err);
        check_refused(status, NP_EUNSUPPORTED, &err, cases[i][1]);
    }
}

static void bos_out_of_range(struct image *image)
{
    put_key(image, "tokenizer.ggml.bos_token_id", 4);
    put_u32(image, 100000);
}

static void ggufs_that_are_refused(void **state)
{
    static const struct {
        const char *pre, *const merges[3];
        void (*more)(struct image *);
        np_status status;
        const char *words;
    } cases[] = {
        {"deepseek-llm", {NULL}, NULL, NP_EUNSUPPORTED, "splitting rule is not supported"},
        {"gpt-2", {NULL}, bos_out_of_range, NP_EFORMAT, "bos_token_id is 100000"},
        {"gpt-2", {"a b", "a b"}, NULL, NP_EFORMAT, "tokens 256 and 257 are the same text"},
        {"gpt-2", {"a xy"}, NULL, NP_EFORMAT, "the right side of merge 0 is no token"},
        {"gpt-2", {"a b c"}, NULL, NP_EFORMAT, "merge 0 is not two tokens"},
        {"gpt-2", {"a \u4e00"}, NULL, NP_EFORMAT, "not written in the byte-level alphabet"},
    };
    static struct image image;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *tokenizer;
        np_error err;
        make_gguf(&image, cases[i].pre, cases[i].merges, cases[i].more, cases[i].more != NULL);
        np_status status = open_image(&image, &tokenizer, &err);
        check_refused(status, cases[i].status, &err, cases[i].words);
        assert_null(tokenizer);
    }
}

static void a_byte_without_a_token(void **state)
{
    static struct image image;
    struct tokenizer *tokenizer;
    struct encoding encoding;
    np_error err;
    make_gguf(&image, "gpt-2", merges, NULL, 0);
    static const char q[] = "\1\0\0\0\0\0\0\0q";
    for (size_t i = 0; i + 9 < image.n; i++)
        if (!memcmp(image.bytes + i, q, 9)) image.bytes[i + 8] = '~' + 1; /* not in the alphabet */
    assert_int_equal(open_image(&image, &tokenizer, &err), NP_OK);
    np_status status = tokenizer_encode(tokenizer, "he \u00e9q", 6, true, true, &encoding, &err);
    check_refused(status, NP_EINPUT, &err, "no token for byte 0x71");
    assert_int_equal(err.offset, 5);
    assert_null(encoding.tokens);
    tokenizer_close(tokenizer);
}

static void use(const struct tokenizer *tokenizer)
{
    static const char text[] = " hell<|end|>o 12 e\u0301\n\n\xff x";
    struct encoding encoding;
    np_error err;
    if (tokenizer_encode(tokenizer, text, sizeof text - 1, true, true, &encoding, &err)) return;
    for (size_t i = 0; i < encoding.n_tokens; i++) {
        size_t n;
        assert_non_null(tokenizer_bytes(tokenizer, encoding.tokens[i].id, &n));
        assert_true(encoding.tokens[i].begin <= encoding.tokens[i].end);
    }
    encoding_free(&encoding);
}

static void check_opening(np_status status, struct tokenizer *tokenizer, const np_error *err)
{
    char line[640];
    if (status == NP_OK && tokenizer) use(tokenizer);
    if (status != NP_OK) assert_null(strchr(np_error_line(err, line, sizeof line), '\n'));
    if (status != NP_OK) assert_null(tokenizer);
    tokenizer_close(tokenizer);
}

static void mutated_ggufs(void **state)
{
    static struct image image, copy;
    make_gguf(&image, "smollm", merges, NULL, 0);
    struct mutator mutator = {11};
    for (uint64_t i = 0; i < n_mutations(); i++) {
        struct tokenizer *tokenizer;
        np_error err;
        memcpy(copy.bytes, image.bytes, image.n);
        copy.n = mutate(&mutator, copy.bytes, image.n, image.n + 256);
        np_status status = open_image(&copy, &tokenizer, &err);
        check_opening(status, tokenizer, &err);
    }
}

static void mutated_tokenizer_json(void **state)
{
    struct spec spec = {
        .added = "{\"id\":300,\"content\":\"<|end|>\",\"special\":true,\"lstrip\":true},"
                 "{\"id\":301,\"content\":\"e\u0301\",\"normalized\":true,\"rstrip\":true}",
        .normalizer = "{\"type\":\"NFC\"}",
        .pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
               "\"individual_digits\":true},{\"type\":\"Split\",\"pattern\":{\"Regex\":"
               "\"(?i:'s|'t)| ?[^\\\\r\\\\n\\\\p{L}]?\\\\p{L}+|\\\\s+(?!\\\\S)|\\\\p{N}{1,3}\"},"
               "\"behavior\":\"Isolated\"}," GPT2_STEP "]}",
        .merges = {"h e", "l l", "he ll"}};
    struct buf json;
    make_json(&spec, &json);
    struct folder folder = make_folder(json.data, json.n_bytes, "{\"eos_token\":\"<|end|>\"}");
    uint8_t *copy = mem_alloc(json.n_bytes + 256, 1);
    struct mutator mutator = {12};
    for (uint64_t i = 0; i < n_mutations(); i++) {
        struct tokenizer *tokenizer;
        np_error err;
        memcpy(copy, json.data, json.n_bytes);
        size_t n = i ? mutate(&mutator, copy, json.n_bytes, json.n_bytes + 256) : json.n_bytes;
        folder_write(&folder, "tokenizer.json", copy, n);
        np_status status = open_path(folder.path, &tokenizer, &err);
        if (!i) assert_int_equal(status, NP_OK);
        check_opening(status, tokenizer, &err);
    }
    mem_free(copy);
    folder_remove(&folder);
    buf_free(&json);
}

/* Every allocation fails once: an error, no leak, and nothing half open. */
static void memory_that_ends(void **state)
{
    static struct image image;
    static const char text[] = "hello e\u0301 <|end|>";
    bool done = false;
    make_gguf(&image, "qwen2", merges, NULL, 0);
    struct memory memory = memory_open(image.bytes, image.n);
    for (uint64_t nth = 1; !done; nth++) {
        struct modelfile *file;
        struct tokenizer *tokenizer = NULL;
        struct encoding encoding = {0};
        np_error err;
        assert_int_equal(modelfile_open(memory.path, &file, &err), NP_OK);
        alloc_fail_after(nth);
        np_status status = tokenizer_open(file, &tokenizer, &err);
        if (!status)
            status =
                tokenizer_encode(tokenizer, text, sizeof text - 1, true, true, &encoding, &err);
        alloc_fail_after(0);
        assert_true(status == NP_OK || status == NP_ENOMEM);
        done = status == NP_OK;
        encoding_free(&encoding);
        tokenizer_close(tokenizer);
        modelfile_close(file);
    }
    close(memory.fd);
}

static void a_folder_without_a_tokenizer(void **state)
{
    struct folder folder = make_folder(NULL, 0, NULL);
    struct tokenizer *tokenizer;
    np_error err;
    assert_int_equal(open_path(folder.path, &tokenizer, &err), NP_OK);
    assert_null(tokenizer);
    folder_write_text(&folder, "vocab.json", "{\"a\":0,\"b\":1,\"ab\":2}");
    check_refused(open_path(folder.path, &tokenizer, &err), NP_EFORMAT, &err, "merges.txt");
    folder_write_text(&folder, "merges.txt", "#version: 0.2\na b\n");
    assert_int_equal(open_path(folder.path, &tokenizer, &err), NP_OK);
    CHECK_IDS(tokenizer, "abba", true, 2, 1, 0);
    tokenizer_close(tokenizer);
    folder_write_text(&folder, "tokenizer_config.json", "{\"tokenizer_class\":\"CodeGen\"}");
    check_refused(open_path(folder.path, &tokenizer, &err), NP_EUNSUPPORTED, &err, "CodeGen");
    folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_that_are_refused), cmocka_unit_test(expressions_that_are_refused),
        cmocka_unit_test(ggufs_that_are_refused), cmocka_unit_test(a_byte_without_a_token),
        cmocka_unit_test(mutated_ggufs),          cmocka_unit_test(mutated_tokenizer_json),
        cmocka_unit_test(memory_that_ends),       cmocka_unit_test(a_folder_without_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
