/*
 * test_text.c - encoding with tiny tokenizers; the numbers are those of the catalogue of cases.
 */
#include "test_text_make.h"
#include "text/bpe.h"
#include "text/nfc.h"

#define SPACE "\xc4\xa0" /* a space in the byte-level alphabet */

static const struct spec words = {
    .added = "{\"id\":300,\"content\":\"<|im_start|>\",\"special\":true,\"normalized\":false},"
             "{\"id\":301,\"content\":\"<|im_end|>\",\"special\":true,\"normalized\":false},"
             "{\"id\":302,\"content\":\"<tool>\",\"special\":false,\"normalized\":false}",
    .merges = {"h e", "l l", "he ll", "hell o", "ll o", SPACE " hello", SPACE " " SPACE},
};
enum { HE = 256, LL, HELL, HELLO, LLO, SPACE_HELLO, TWO_SPACES, IM_START = 300, IM_END, TOOL };

/* C024, C027: ids that encoding would not give have their own bytes, and stay what they are. */
static void c027_another_split_of_a_word(void **state)
{
    struct tokenizer *tokenizer = opened(&words, NULL);
    size_t n_he, n_llo;
    assert_memory_equal(tokenizer_bytes(tokenizer, HE, &n_he), "he", 2);
    assert_memory_equal(tokenizer_bytes(tokenizer, LLO, &n_llo), "llo", 3);
    CHECK_IDS(tokenizer, "hello", true, HELLO);
    CHECK_IDS(tokenizer, "he", true, HE);
    tokenizer_close(tokenizer);
}

static void c084_bytes_of_a_part_of_a_character(void **state)
{
    struct spec spec = {.merges = {SPACE " \xc3\xb0", SPACE "\xc3\xb0 \xc5\x81",
                                   SPACE "\xc3\xb0\xc5\x81 \xc4\xb3"}};
    struct tokenizer *tokenizer = opened(&spec, NULL);
    size_t n;
    const char *bytes = tokenizer_bytes(tokenizer, 258, &n);
    assert_int_equal(n, 4);
    assert_memory_equal(bytes, " \xf0\x9f\x91", 4);
    CHECK_IDS(tokenizer, " \xf0\x9f\x91\x8d", true, 258, 0x8d);
    CHECK_IDS(tokenizer, " \xf0\x9f\x91", true, 258);
    tokenizer_close(tokenizer);
}

static void c141_with_a_space_before_and_without(void **state)
{
    struct tokenizer *tokenizer = opened(&words, NULL);
    CHECK_IDS(tokenizer, "hello", true, HELLO);
    CHECK_IDS(tokenizer, " hello", true, SPACE_HELLO);
    CHECK_IDS(tokenizer, "  hello", true, ' ', SPACE_HELLO);
    tokenizer_close(tokenizer);
}

/* A token that no merges reach is found only where whole pieces count. */
static void c146_ignore_merges(void **state)
{
    for (int ignore = 0; ignore < 2; ignore++) {
        struct spec spec = {.options = ignore ? "\"ignore_merges\":true," : NULL,
                            .vocab = ",\"" SPACE "Vit\":400",
                            .merges = {"i t"}};
        struct tokenizer *tokenizer = opened(&spec, NULL);
        if (ignore)
            CHECK_IDS(tokenizer, " Vit", true, 400);
        else
            CHECK_IDS(tokenizer, " Vit", true, ' ', 'V', 256);
        CHECK_IDS(tokenizer, "Vit", true, 'V', 256);
        tokenizer_close(tokenizer);
    }
}

static void c154_white_space(void **state)
{
    static const uint32_t spaces[] = {9,      10,     11,     12,     13,     32,     0x85,
                                      0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                      0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028,
                                      0x2029, 0x202F, 0x205F, 0x3000};
    size_t n = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        bool is_space = n < sizeof spaces / sizeof *spaces && spaces[n] == c;
        assert_int_equal(unicode_is_space(c), is_space);
        n += is_space;
    }
    assert_int_equal(n, sizeof spaces / sizeof *spaces);
    /* "!" and U+0085 are two pieces, so this merge of "!" with its first byte is never done */
    struct spec spec = {.merges = {"! \xc3\x82"}};
    struct tokenizer *tokenizer = opened(&spec, NULL);
    CHECK_IDS(tokenizer, "!\xc2\x85", true, '!', 0xc2, 0x85);
    CHECK_IDS(tokenizer, "!\xc2\xa1", true, 256, 0xa1);
    tokenizer_close(tokenizer);
}

static void c156_c157_every_byte_comes_back(void **state)
{
    static const char *const texts[] = {"hello !", "do n't", "   x", "\t x", "", " ", "a\u2003b"};
    struct tokenizer *tokenizer = opened(&words, NULL);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct encoding encoding = encoded(tokenizer, texts[i], strlen(texts[i]), true, false);
        encoding_free(&encoding);
    }
    uint64_t random = 1;
    char text[300];
    for (int round = 0; round < 2000; round++) {
        size_t n = (size_t)(random >> 40) % sizeof text;
        for (size_t i = 0; i < n; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            text[i] = (char)(random >> 56);
        }
        random = random * 6364136223846793005u + 1442695040888963407u;
        struct encoding encoding = encoded(tokenizer, text, n, true, false);
        encoding_free(&encoding);
    }
    tokenizer_close(tokenizer);
}

static void c159_spans_are_of_the_text_as_given(void **state)
{
    struct spec spec = {.normalizer = "{\"type\":\"NFC\"}", .merges = {"\xc3\x83 \xc2\xa9"}};
    struct tokenizer *tokenizer = opened(&spec, NULL);
    static const char text[] = "ae\u0301b\u1112\u1161\u11ab.";
    struct encoding encoding = encoded(tokenizer, text, sizeof text - 1, true, true);
    assert_int_equal(encoding.n_tokens, 7);
    assert_int_equal(encoding.tokens[1].id, 256); /* e and the accent are one token, three bytes */
    assert_int_equal(encoding.tokens[1].begin, 1);
    assert_int_equal(encoding.tokens[1].end, 4);
    assert_int_equal(encoding.tokens[3].begin, 5); /* three bytes of U+D55C for nine as given */
    assert_int_equal(encoding.tokens[5].end, 14);
    encoding_free(&encoding);
    tokenizer_close(tokenizer);
}

static void c161_special_tokens_as_text(void **state)
{
    struct tokenizer *tokenizer = opened(&words, NULL);
    CHECK_IDS(tokenizer, "he<|im_end|>", true, HE, IM_END);
    CHECK_IDS(tokenizer, "he<|im_end|>", false, HE, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|',
              '>');
    CHECK_IDS(tokenizer, "he<tool>", false, HE, TOOL);
    CHECK_IDS(tokenizer, "<|im_start|><|im_end|><|im_en", true, IM_START, IM_END, '<', '|', 'i',
              'm', '_', 'e', 'n');
    assert_true(tokenizer_is_special(tokenizer, IM_END));
    assert_false(tokenizer_is_special(tokenizer, TOOL));
    tokenizer_close(tokenizer);
}

static void edges_are_added_where_the_file_says_so(void **state)
{
    struct spec spec = words;
    spec.post = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\","
                "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
                "\"special_tokens\":{\"s\":{\"id\":\"s\",\"ids\":[300],\"tokens\":[\"s\"]}}}";
    static const char *const config = "{\"bos_token\":\"<|im_start|>\",\"eos_token\":{\"content\":"
                                      "\"<|im_end|>\"},\"add_eos_token\":true}";
    struct tokenizer *tokenizer = opened(&spec, NULL);
    CHECK_IDS(tokenizer, "he", true, IM_START, HE);
    assert_true(tokenizer_adds_bos(tokenizer) && !tokenizer_adds_eos(tokenizer));
    tokenizer_close(tokenizer);
    tokenizer = opened(&spec, config); /* its word on the edges wins */
    CHECK_IDS(tokenizer, "he", true, HE, IM_END);
    assert_int_equal(tokenizer_bos(tokenizer), IM_START);
    assert_int_equal(tokenizer_eos(tokenizer), IM_END);
    tokenizer_close(tokenizer);
}

static void digits_first(void **state)
{
    static const char *const merges[] = {"\xc4\x8a \xc4\x8a", SPACE " " SPACE,
                                         "\xc4\x8a\xc4\x8a " SPACE SPACE, "1 2", NULL};
    static struct image image;
    struct tokenizer *tokenizer;
    np_error err;
    make_gguf(&image, "smollm", merges, NULL, 0);
    assert_int_equal(open_image(&image, &tokenizer, &err), NP_OK);
    CHECK_IDS(tokenizer, "\n\n  0.", true, 258, '0', '.');
    CHECK_IDS(tokenizer, "12", true, '1', '2');
    CHECK_IDS(tokenizer, "<|end|>", true, 260);
    assert_string_equal(tokenizer_describe(tokenizer), "byte-level BPE, splitting rule smollm");
    tokenizer_close(tokenizer);
    make_gguf(&image, "gpt-2", merges, NULL, 0);
    assert_int_equal(open_image(&image, &tokenizer, &err), NP_OK);
    CHECK_IDS(tokenizer, "\n\n  0.", true, 256, ' ', ' ', '0', '.');
    tokenizer_close(tokenizer);
}

/* The lowest rank, the leftmost of equals, again and again. */
static size_t merge_slowly(const struct bpe *bpe, const char *text, size_t n, uint32_t *ids)
{
    for (size_t i = 0; i < n; i++) ids[i] = (uint32_t)bpe->byte_ids[(unsigned char)text[i]];
    for (;;) {
        uint32_t rank = bpe->n_merges;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (uint32_t k = 0; k < rank; k++)
                if (bpe->merges[k].left == ids[i] && bpe->merges[k].right == ids[i + 1])
                    rank = k, at = i;
        if (rank == bpe->n_merges) return n;
        ids[at] = bpe->merges[rank].joined;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

/* Merges of random order over few letters, as a slow loop does them. */
static void merges_in_order_of_rank(void **state)
{
    static char texts[64][16];
    struct bpe_token tokens[64];
    uint64_t random = 7;
    for (int round = 0; round < 200; round++) {
        struct arena arena;
        struct bpe bpe;
        struct bpe_space space = {0};
        np_error err;
        uint32_t n_tokens = 3, ids[64];
        char text[64];
        arena_init(&arena, 1 << 20);
        for (uint32_t i = 0; i < 3; i++) texts[i][0] = (char)('a' + i), texts[i][1] = 0;
        for (uint32_t i = 0; i < 64; i++) tokens[i] = (struct bpe_token){texts[i], 1};
        assert_int_equal(bpe_init(&bpe, &arena, tokens, 64, 64, &err), NP_OK);
        for (uint32_t i = 0; i < 3; i++) assert_int_equal(bpe_add_token(&bpe, i, "", &err), NP_OK);
        for (int tries = 0; tries < 60 && n_tokens < 64; tries++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            struct bpe_token left = tokens[(random >> 33) % n_tokens];
            struct bpe_token right = tokens[(random >> 45) % n_tokens];
            uint32_t n = left.n_bytes + right.n_bytes;
            if (n >= sizeof texts[0]) continue;
            memcpy(texts[n_tokens], left.bytes, left.n_bytes);
            memcpy(texts[n_tokens] + left.n_bytes, right.bytes, right.n_bytes);
            tokens[n_tokens].n_bytes = n;
            if (bpe_find(&bpe, texts[n_tokens], n) < 0)
                assert_int_equal(bpe_add_token(&bpe, n_tokens++, "", &err), NP_OK);
            bpe_add_merge(&bpe, left, right, "", &err); /* the same pair twice is refused */
        }
        for (int i = 0; i < 64; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            text[i] = (char)('a' + (random >> 33) % 3);
        }
        size_t n = merge_slowly(&bpe, text, sizeof text, ids), i = 0;
        assert_int_equal(bpe_encode(&bpe, &space, text, sizeof text, &err), NP_OK);
        for (uint32_t at = 0; at != BPE_END; at = space.symbols[at].next)
            assert_int_equal(space.symbols[at].id, ids[i++]);
        assert_int_equal(i, n);
        bpe_space_free(&space);
        arena_free(&arena);
    }
}

/* A megabyte that a quadratic step would take hours for. */
static void long_pieces(void **state)
{
    struct spec spec = {.normalizer = "{\"type\":\"NFC\"}",
                        .merges = {"a a", "aa aa", "aaaa aaaa", SPACE " " SPACE}};
    struct tokenizer *tokenizer = opened(&spec, NULL);
    size_t n = 1000000;
    char *text = mem_alloc(n, 1);
    static const char *const patterns[] = {"a", " ", "\n", " \n", "\u0316\u0301", "<|im", "\xff"};
    for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++) {
        size_t length = strlen(patterns[k]);
        for (size_t i = 0; i < n; i++) text[i] = patterns[k][i % length];
        struct encoding encoding = encoded(tokenizer, text, n, true, true);
        encoding_free(&encoding);
    }
    mem_free(text);
    tokenizer_close(tokenizer);
}

static void nfc_of_marks_out_of_order(void **state)
{
    static const struct {
        const char *from, *to;
    } cases[] = {
        {"a\u0301\u0316", "\u00e1\u0316"}, /* the lower mark stands between, and does not block */
        {"\u212b", "\u00c5"},
        {"\u0344", "\u0308\u0301"},
        {"\u1100\u1161\u11a8", "\uac01"},
        {"\U000105d2\u0307", "\U000105d2\u0307"}, /* composes since Unicode 16.0: newer than 9.0 */
        {"\xff\u0301", "\xff\u0301"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nfc nfc;
        np_error err;
        size_t n = strlen(cases[i].from);
        assert_int_equal(nfc_normalise(cases[i].from, n, &nfc, &err), NP_OK);
        const char *got = nfc.bytes ? nfc.bytes : cases[i].from;
        assert_int_equal(nfc.bytes ? nfc.n_bytes : n, strlen(cases[i].to));
        assert_memory_equal(got, cases[i].to, strlen(cases[i].to));
        nfc_free(&nfc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c027_another_split_of_a_word),
        cmocka_unit_test(c084_bytes_of_a_part_of_a_character),
        cmocka_unit_test(c141_with_a_space_before_and_without),
        cmocka_unit_test(c146_ignore_merges),
        cmocka_unit_test(c154_white_space),
        cmocka_unit_test(c156_c157_every_byte_comes_back),
        cmocka_unit_test(c159_spans_are_of_the_text_as_given),
        cmocka_unit_test(c161_special_tokens_as_text),
        cmocka_unit_test(edges_are_added_where_the_file_says_so),
        cmocka_unit_test(digits_first),
        cmocka_unit_test(merges_in_order_of_rank),
        cmocka_unit_test(long_pieces),
        cmocka_unit_test(nfc_of_marks_out_of_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
