/*
 * added.c - finds added tokens.
 *
 * The set is sorted by bytes; at each place the range of tokens that agree with the text so far is
 * narrowed byte by byte, so a place costs at most the longest token times a binary search.
 *
 * Surprise, taken over from `tokenizers`: a match that is thrown away (a single word inside a
 * longer one) is stepped over as a whole, and a shorter token inside it is not looked for.
 */
#include "text/added.h"
#include "text/unicode.h"

static int by_bytes(const void *left, const void *right)
{
    const struct added_token *a = left, *b = right;
    int order = memcmp(a->bytes, b->bytes, a->n_bytes < b->n_bytes ? a->n_bytes : b->n_bytes);
    if (order) return order;
    if (a->n_bytes != b->n_bytes) return a->n_bytes < b->n_bytes ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

void added_seal(struct added_set *set)
{
    size_t n = 0;
    if (set->n_tokens) qsort(set->tokens, set->n_tokens, sizeof *set->tokens, by_bytes);
    for (size_t i = 0; i < set->n_tokens; i++) {
        const struct added_token *token = &set->tokens[i];
        if (n && set->tokens[n - 1].n_bytes == token->n_bytes &&
            !memcmp(set->tokens[n - 1].bytes, token->bytes, token->n_bytes))
            continue;
        set->tokens[n++] = *token;
    }
    set->n_tokens = n;
    for (size_t i = 0; i < n; i++) {
        const struct added_token *token = &set->tokens[i];
        if (token->n_bytes > set->max_bytes) set->max_bytes = token->n_bytes;
        set->lstrip = set->lstrip || token->lstrip;
        set->single_word = set->single_word || token->single_word;
    }
    size_t at = 0;
    for (unsigned b = 0; b < 256; b++) {
        set->first[b] = (uint32_t)at;
        while (at < n && (unsigned char)set->tokens[at].bytes[0] == b) at++;
    }
    set->first[256] = (uint32_t)n;
}

/* First token of [low, high) whose byte at `depth` is at least b; all agree before it. */
static size_t lower_bound(const struct added_set *set, size_t low, size_t high, size_t depth,
                          unsigned b)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct added_token *token = &set->tokens[middle];
        if (token->n_bytes <= depth || (unsigned char)token->bytes[depth] < b)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether none of n bytes is literal. */
static bool is_free(const unsigned char *literal, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (literal[i]) return false;
    return true;
}

static const struct added_token *longest_at(const struct added_set *set, const char *text,
                                            const unsigned char *literal, size_t n,
                                            bool parse_special)
{
    const struct added_token *best = NULL;
    size_t low = set->first[(unsigned char)text[0]], high = set->first[(unsigned char)text[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        const struct added_token *token = &set->tokens[low];
        bool here = token->n_bytes == depth && (parse_special || !token->special);
        if (here && (!token->special || !literal || is_free(literal, depth))) best = token;
        if (depth == n) break;
        unsigned b = (unsigned char)text[depth];
        low = lower_bound(set, low, high, depth, b);
        high = lower_bound(set, low, high, depth, b + 1);
    }
    return best;
}

static bool is_alone(const char *text, size_t n, size_t begin, size_t end)
{
    uint32_t c;
    if (utf8_last(text, begin, &c) && unicode_is_word(c)) return false;
    return end == n || !utf8_read(text + end, n - end, &c) || !unicode_is_word(c);
}

/* The token that a search finds at `at`, or how far it steps on. */
static const struct added_token *token_at(const struct added_set *set, const char *text,
                                          const unsigned char *literal, size_t n, size_t at,
                                          bool parse_special, size_t *step)
{
    const struct added_token *token =
        longest_at(set, text + at, literal ? literal + at : NULL, n - at, parse_special);
    bool taken = token && (!token->single_word || is_alone(text, n, at, at + token->n_bytes));
    *step = token ? token->n_bytes : 1;
    return taken ? token : NULL;
}

/* Moves `at` back over white space, not before `from`. */
static size_t before_space(const char *text, size_t from, size_t at)
{
    uint32_t c;
    size_t length;
    while (at > from && (length = utf8_last(text + from, at - from, &c)) && unicode_is_space(c))
        at -= length;
    return at;
}

static size_t behind_space(const char *text, size_t n, size_t at)
{
    uint32_t c;
    size_t length;
    while (at < n && (length = utf8_read(text + at, n - at, &c)) && unicode_is_space(c))
        at += length;
    return at;
}

const struct added_token *added_find(const struct added_set *set, const char *text,
                                     const unsigned char *literal, size_t n, size_t from,
                                     bool parse_special, size_t *begin, size_t *end)
{
    for (size_t at = from, step; set->n_tokens && at < n; at += step) {
        const struct added_token *token = token_at(set, text, literal, n, at, parse_special, &step);
        if (!token) continue;
        *begin = token->lstrip ? before_space(text, from, at) : at;
        *end = at + token->n_bytes;
        if (token->rstrip) *end = behind_space(text, n, *end);
        return token;
    }
    return NULL;
}

/* A character behind a token decides too: whether it is alone, whether it is space to take. */
#define MAX_CHAR_BYTES 4

size_t added_settled(const struct added_set *set, const char *text, size_t n, bool parse_special,
                     size_t *horizon)
{
    size_t end = 0, at = 0, step;
    *horizon = n;
    if (!set->n_tokens) return 0;
    for (; n - at >= set->max_bytes + MAX_CHAR_BYTES; at += step) {
        const struct added_token *token = token_at(set, text, NULL, n, at, parse_special, &step);
        if (!token) continue;
        if (token->rstrip) step = behind_space(text, n, at + step) - at;
        if (n - at < step + MAX_CHAR_BYTES) break;
        end = at + step;
    }
    while (at > end && at < n && ((unsigned char)text[at] & 0xC0) == 0x80) at--; /* whole ones */
    *horizon = set->lstrip ? before_space(text, end, at) : at;
    return end;
}

bool added_restarts(const struct added_set *set, const char *text, size_t n, size_t at,
                    bool parse_special)
{
    uint32_t c;
    if (!set->single_word) return true;
    if (utf8_last(text, at, &c) && unicode_is_word(c)) return false;
    /* A token that is not alone is stepped over as a whole. */
    for (size_t back = 1; back < set->max_bytes && back <= at; back++) {
        const struct added_token *token =
            longest_at(set, text + at - back, NULL, n - at + back, parse_special);
        if (token && token->n_bytes > back) return false;
    }
    return true;
}
