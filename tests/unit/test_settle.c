/*
 * test_settle.c - a text that comes in pieces has the tokens of the whole: all splitting rules and
 * kinds of added tokens, texts made to straddle, pieces of a few bytes.
 */
#include "test_text_make.h"
#include "text/split.h"

static uint64_t random_state;

static size_t random_below(size_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(random_state >> 33) % n;
}

/* What rules look at: runs, contractions, marks that join, parts of characters, tokens' texts. */
static const char *const bits[] = {
    "a",        "b",      "aa",         "S",       "1",      "22",     " ",       "  ",
    "\n",       "\r\n",   "\t",         "'",       "'s",     "'re",    "'LL",     "!",
    "...",      "-",      "aa!b",       "e",       "\u0301", "\u0323", "1\u0301", "\xc3",
    "é",        "\u212a", "\u1112",     "\u1161",  "\u11ab", "\u0344", "\xff",    "\u4f60",
    "\xf0\x9f", "\x91",   "\u2003",     " <left>", "<x>",    "<x",     "<left>",  "<right>",
    "word",     "<né>",   "<ne\u0301>", ">"};

static size_t random_text(char *text, size_t max)
{
    size_t n = 0, wanted = 1 + random_below(max - 16);
    size_t n_bits = sizeof bits / sizeof *bits;
    size_t narrow = random_below(2) ? n_bits : 3, from = random_below(n_bits - narrow + 1);
    while (n < wanted) {
        const char *bit = bits[from + random_below(narrow)];
        size_t times = random_below(8) ? 1 : random_below(30);
        for (; times > 0 && n < wanted; times--) {
            memcpy(text + n, bit, strlen(bit));
            n += strlen(bit);
        }
    }
    return n;
}

/* ---- the splitter by itself ---------------------------------------------------------------- */

#define MAX_TEXT 400

struct cuts {
    size_t ends[MAX_TEXT], n, base, limit; /* ends of pieces, up to a limit */
    size_t last;                           /* place found last */
};

static np_status take_piece(void *ctx, size_t begin, size_t end, np_error *err)
{
    struct cuts *cuts = ctx;
    if (end <= cuts->limit) {
        assert_true(cuts->n + 2 <= MAX_TEXT);
        cuts->ends[cuts->n++] = cuts->base + begin;
        cuts->ends[cuts->n++] = cuts->base + end;
    }
    return NP_OK;
}

static void take_place(void *ctx, size_t at)
{
    struct cuts *cuts = ctx;
    assert_true(at > cuts->last || cuts->last == 0);
    cuts->last = at;
}

/* The pieces of a text that is known `grain` characters more at a time; returns how many places
 * were found. */
static size_t split_in_pieces(const struct splitter *splitter, struct split_space *space,
                              const char *text, size_t n, size_t grain, struct cuts *cuts)
{
    size_t begin = 0, known = 0, count = 0;
    *cuts = (struct cuts){.n = 0};
    while (known < n) {
        for (size_t i = 0; i < grain && known < n;) i += (text[++known] & 0xC0) != 0x80;
        cuts->last = 0;
        cuts->base = begin;
        cuts->limit = known - begin;
        if (known < n) {
            assert_int_equal(splitter_places(splitter, space, text + begin, known - begin,
                                             take_place, cuts, NULL),
                             NP_OK);
            cuts->limit = cuts->last;
        }
        count += cuts->limit > 0 && known < n;
        assert_int_equal(
            splitter_run(splitter, space, text + begin, known - begin, take_piece, cuts, NULL),
            NP_OK);
        begin += cuts->limit;
    }
    return count;
}

/* Valid UTF-8 alone: cutting inside a character is the caller's to avoid. */
static size_t random_utf8(char *text, size_t max)
{
    size_t n = random_text(text, max), kept = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t length = utf8_read(text + i, n - i, &c);
        if (length) memmove(text + kept, text + i, length);
        kept += length;
        i += length ? length : 1;
    }
    return kept;
}

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+" \
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Rules of real models, and some that look far ahead, leave gaps, drop pieces, cut in steps. */
static const struct {
    const char *regexes[4];
    bool drop_matches, drop_gaps; /* of the first step */
    bool poor;                    /* has few places, or none */
} rules[] = {
    {{GPT2}, false, false, false},
    {{"\\p{N}", GPT2}, false, false, false},
    {{LLAMA3}, false, false, false},
    {{"\\p{N}+", "\\s", GPT2}, false, false, false},
    {{"a+b|a"}, false, false, false},
    {{"ab(?=a)|a|b|1(?!1)"}, false, false, false},
    {{"(?:a|b|\\s)+?!", "a"}, false, false, false},
    {{"\\s+", "[a-z]+(?=1)|[^1]"}, true, false, false},
    {{"[^\\s]+", "aa|a(?!b)"}, false, true, false},
    {{"\\s*\\n", " ?a{2,3}"}, false, false, false},
    {{"zzz"}, false, false, true},
};

static void splitting_in_pieces_is_splitting_the_whole(void **state)
{
    static const size_t grains[] = {1, 2, 3, 7, 50};
    static struct cuts whole, pieces;
    static char text[MAX_TEXT];
    for (size_t rule = 0; rule < sizeof rules / sizeof *rules; rule++) {
        struct split_step steps[4];
        struct splitter splitter;
        struct split_space space;
        struct arena arena;
        size_t n_steps = 0, n_places = 0;
        for (; n_steps < 4 && rules[rule].regexes[n_steps]; n_steps++)
            steps[n_steps] =
                (struct split_step){.regex = rules[rule].regexes[n_steps],
                                    .n_bytes = strlen(rules[rule].regexes[n_steps]),
                                    .drop_matches = n_steps == 0 && rules[rule].drop_matches,
                                    .drop_gaps = n_steps == 0 && rules[rule].drop_gaps};
        arena_init(&arena, 1 << 20);
        np_error err;
        if (splitter_init(&splitter, &arena, steps, n_steps, "rule", &err))
            fail_msg("%s", err.message);
        assert_int_equal(split_space_init(&space, &splitter, &err), NP_OK);
        random_state = rule;
        for (int round = 0; round < 600; round++) {
            size_t n = random_utf8(text, 150);
            whole = (struct cuts){.limit = n};
            assert_int_equal(splitter_run(&splitter, &space, text, n, take_piece, &whole, &err),
                             NP_OK);
            size_t grain = grains[round % 5];
            n_places += split_in_pieces(&splitter, &space, text, n, grain, &pieces);
            if (pieces.n != whole.n || memcmp(pieces.ends, whole.ends, whole.n * sizeof(size_t)))
                fail_msg("rule %zu, grain %zu: \"%.*s\"", rule, grain, (int)n, text);
        }
        if (n_places < 100 && !rules[rule].poor) fail_msg("rule %zu: %zu places", rule, n_places);
        split_space_free(&space);
        splitter_free(&splitter);
        arena_free(&arena);
    }
}

/* ---- tokenizers ---------------------------------------------------------------------------- */

/* The tokens of a text that is known `grain` bytes more at a time; returns how many pieces. */
static size_t encode_in_pieces(const struct tokenizer *tokenizer, const char *text, size_t n,
                               bool parse_special, size_t grain, struct token_span *tokens,
                               size_t *n_tokens)
{
    size_t begin = 0, known = 0, count = 0;
    *n_tokens = 0;
    while (known < n) {
        size_t settled;
        known = n - known > grain ? known + grain : n;
        settled = n - begin;
        if (known < n)
            assert_int_equal(tokenizer_settled(tokenizer, text + begin, known - begin,
                                               parse_special, &settled, NULL),
                             NP_OK);
        assert_true(settled <= known - begin);
        if (settled == 0) continue;
        struct encoding encoding;
        assert_int_equal(tokenizer_encode(tokenizer, text + begin, known - begin, false,
                                          parse_special, &encoding, NULL),
                         NP_OK);
        for (size_t i = 0; i < encoding.n_tokens && encoding.tokens[i].end <= settled; i++) {
            struct token_span token = encoding.tokens[i];
            tokens[(*n_tokens)++] =
                (struct token_span){token.id, begin + token.begin, begin + token.end};
        }
        encoding_free(&encoding);
        begin += settled;
        count++;
    }
    return count;
}

static void check_tokenizer(const struct tokenizer *tokenizer, const char *name, int n_rounds,
                            bool rich)
{
    static const size_t grains[] = {1, 2, 3, 8, 50};
    static struct token_span tokens[4 * MAX_TEXT];
    static char text[MAX_TEXT];
    size_t n_pieces = 0, n_bytes = 0;
    random_state = 7;
    for (int round = 0; round < n_rounds; round++) {
        size_t n = random_text(text, MAX_TEXT), grain = grains[round % 5], n_tokens;
        bool parse = round % 7 != 0;
        struct encoding whole;
        assert_int_equal(tokenizer_encode(tokenizer, text, n, false, parse, &whole, NULL), NP_OK);
        n_pieces += encode_in_pieces(tokenizer, text, n, parse, grain, tokens, &n_tokens);
        n_bytes += n;
        bool same = n_tokens == whole.n_tokens;
        for (size_t i = 0; same && i < n_tokens; i++)
            same = tokens[i].id == whole.tokens[i].id && tokens[i].begin == whole.tokens[i].begin &&
                   tokens[i].end == whole.tokens[i].end;
        if (!same) fail_msg("%s, grain %zu: \"%.*s\"", name, grain, (int)n, text);
        encoding_free(&whole);
    }
    if (rich && n_pieces * 60 < n_bytes) fail_msg("%s: only %zu pieces", name, n_pieces);
}

#define SP "\xc4\xa0" /* a space in the byte-level alphabet, and a line end */
#define NL "\xc4\x8a"
/* Runs and neighbours of every kind, so that ids show where pieces were cut. */
static const char *const merges[] = {"a a",
                                     "aa aa",
                                     "a b",
                                     "b a",
                                     SP " a",
                                     SP " b",
                                     SP " " SP,
                                     SP SP " " SP SP,
                                     NL " " NL,
                                     SP " " NL,
                                     NL " " SP,
                                     "1 1",
                                     "2 2",
                                     "22 22",
                                     "1 2",
                                     "' s",
                                     "' S",
                                     "s '",
                                     "! !",
                                     "- -",
                                     ". .",
                                     SP " !",
                                     SP " 1",
                                     "! " NL,
                                     "! a",
                                     "a !",
                                     "a '",
                                     "1 a",
                                     "\xc3\x83 \xc2\xa9",
                                     "< x",
                                     "<x >",
                                     NULL};

static void known_rules_in_pieces(void **state)
{
    static const char *const names[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
    static struct image image;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tokenizer *tokenizer;
        np_error err;
        make_gguf(&image, names[i], merges, NULL, 0);
        if (open_image(&image, &tokenizer, &err)) fail_msg("%s", err.message);
        check_tokenizer(tokenizer, names[i], 800, true);
        tokenizer_close(tokenizer);
    }
}

#define ADDED(id, text, more) \
    "{\"id\":" #id ",\"content\":\"" text "\",\"normalized\":false," more "}"
#define NORMALIZED(id, text, more) \
    "{\"id\":" #id ",\"content\":\"" text "\",\"normalized\":true," more "}"
#define PLAIN "\"special\":true"
#define LEFT "\"special\":true,\"lstrip\":true"
#define RIGHT "\"special\":false,\"rstrip\":true"
#define BOTH "\"special\":true,\"lstrip\":true,\"rstrip\":true"
#define WORD "\"special\":false,\"single_word\":true"
#define EACH(regex)                                                                         \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":" \
    "\"" regex                                                                              \
    "\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"    \
    "\"use_regex\":false}]}"
#define SOME_MERGES                                                                          \
    {                                                                                        \
        "a a", "aa aa", SP " a", SP " " SP, SP SP " " SP SP, NL " " NL, "1 1", "' s", "! !", \
            "a '", "\xc3\x83 \xc2\xa9", "< x"                                                \
    }

static void added_tokens_that_straddle(void **state)
{
    static const struct {
        const char *name;
        struct spec spec;
        bool rich;
    } kinds[] = {
        {"plain",
         {.added = ADDED(400, "<x>", PLAIN) "," ADDED(401, "<x", PLAIN), .merges = SOME_MERGES},
         true},
        {"left",
         {.added = ADDED(400, "<left>", LEFT) "," ADDED(401, "<x>", PLAIN), .merges = SOME_MERGES},
         true},
        {"right",
         {.added = ADDED(400, "<right>", RIGHT) "," ADDED(401, "<x>", BOTH), .merges = SOME_MERGES},
         true},
        {"word",
         {.added = ADDED(400, "word", WORD) "," ADDED(401, "b", WORD) "," ADDED(402, "a!b", WORD),
          .merges = SOME_MERGES},
         false},
        {"space",
         {.added = ADDED(400, "  ", PLAIN) "," ADDED(401, " a", PLAIN), .merges = SOME_MERGES},
         true},
        {"normalized",
         {.added = NORMALIZED(400, "<n\u00e9>", PLAIN) "," NORMALIZED(
              401, "<left>", LEFT) "," NORMALIZED(402, "b", WORD),
          .normalizer = "{\"type\":\"NFC\"}",
          .merges = SOME_MERGES},
         false},
        {"both sets",
         {.added = NORMALIZED(400, "e", PLAIN) "," ADDED(401, "<right>", BOTH),
          .normalizer = "{\"type\":\"NFC\"}",
          .merges = SOME_MERGES},
         true},
        {"left, characters apart",
         {.added = ADDED(400, "<left>", LEFT), .pre = EACH("\\\\s|b"), .merges = SOME_MERGES},
         true},
        {"NFC, characters apart",
         {.added = NORMALIZED(400, "e", LEFT),
          .normalizer = "{\"type\":\"NFC\"}",
          .pre = EACH("[^a]"),
          .merges = SOME_MERGES},
         true},
        {"prefix space",
         {.added = ADDED(400, "<x>", PLAIN),
          .pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}",
          .merges = SOME_MERGES},
         false},
        {"prefix space and NFC",
         {.added = ADDED(400, "<x>", RIGHT) "," NORMALIZED(401, "<left>", LEFT),
          .normalizer = "{\"type\":\"NFC\"}",
          .pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}",
          .merges = SOME_MERGES},
         false},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct tokenizer *tokenizer = opened(&kinds[i].spec, NULL);
        check_tokenizer(tokenizer, kinds[i].name, 800, kinds[i].rich);
        tokenizer_close(tokenizer);
    }
}

/* Where nothing may be cut the answer is 0, and it comes soon. */
static void one_long_word_has_no_place(void **state)
{
    struct spec spec = {.merges = SOME_MERGES};
    struct tokenizer *tokenizer = opened(&spec, NULL);
    size_t n = 1 << 20, settled = 1;
    char *text = mem_alloc(n, 1);
    memset(text, 'a', n);
    assert_int_equal(tokenizer_settled(tokenizer, text, n, true, &settled, NULL), NP_OK);
    assert_int_equal(settled, 0);
    memset(text, ' ', n);
    assert_int_equal(tokenizer_settled(tokenizer, text, n, true, &settled, NULL), NP_OK);
    assert_int_equal(settled, 0);
    text[n - 100] = '!';
    assert_int_equal(tokenizer_settled(tokenizer, text, n, true, &settled, NULL), NP_OK);
    assert_int_equal(settled, n - 99);
    mem_free(text);
    tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splitting_in_pieces_is_splitting_the_whole),
        cmocka_unit_test(known_rules_in_pieces),
        cmocka_unit_test(added_tokens_that_straddle),
        cmocka_unit_test(one_long_word_has_no_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
