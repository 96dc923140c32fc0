/*
 * template_lex.c - a template's source as tokens, with Jinja's rules for white space.
 *
 *   text {%- name "text" 12 -%} text {{ ... }} text {# ... #} text
 *
 * "-" takes all white space at its side; trim_blocks takes one line end behind a block or comment;
 * lstrip_blocks takes what stands before them on a line of their own; "+" forbids that. Inside of
 * brackets an end of a tag is none: {{ {'a': {}}}} works.
 *
 * Surprise: line ends become \n and one at the very end is dropped, as Jinja does.
 */
#include "text/template_node.h"
#include "base/utf8.h"
#include "text/unicode.h"

struct lexer {
    struct arena *arena;
    np_error *err;
    const char *source; /* [n] */
    size_t n, at;
    uint32_t line;
    struct lex_token *tokens;
    size_t n_tokens, n_allocated;
    char closing[TEMPLATE_MAX_NESTING]; /* what the open brackets wait for */
    size_t n_closing;
};

static np_status fail(const struct lexer *lexer, const char *what)
{
    return template_error(lexer->err, lexer->line, NP_EINPUT, "%s", what);
}

static void move_to(struct lexer *lexer, size_t at)
{
    for (; lexer->at < at; lexer->at++) lexer->line += lexer->source[lexer->at] == '\n';
}

static np_status push(struct lexer *lexer, struct lex_token token)
{
    if (lexer->n_tokens == lexer->n_allocated) {
        size_t n = lexer->n_allocated ? 2 * lexer->n_allocated : 256;
        struct lex_token *grown = mem_resize(lexer->tokens, n * sizeof *grown);
        if (!grown) return error_nomem(lexer->err, "a template", n * sizeof *grown);
        lexer->tokens = grown;
        lexer->n_allocated = n;
    }
    token.line = lexer->line;
    lexer->tokens[lexer->n_tokens++] = token;
    return NP_OK;
}

static bool starts(const struct lexer *lexer, size_t at, const char *text)
{
    size_t n = strlen(text);
    return lexer->n - at >= n && !memcmp(lexer->source + at, text, n);
}

static size_t behind_space(const struct lexer *lexer, size_t at)
{
    uint32_t c;
    size_t length;
    while (at < lexer->n && (length = utf8_read(lexer->source + at, lexer->n - at, &c)) &&
           text_is_space(c))
        at += length;
    return at;
}

/* Moves `at` back over white space, not before `from`; `line`: not over a line end either. */
static size_t before_space(const struct lexer *lexer, size_t from, size_t at, bool line)
{
    uint32_t c;
    size_t length;
    while (at > from && (length = utf8_last(lexer->source + from, at - from, &c)) &&
           text_is_space(c) && !(line && c == '\n'))
        at -= length;
    return at;
}

/* ---- inside of tags ---------------------------------------------------------------------------
 */

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static np_status lex_name(struct lexer *lexer)
{
    size_t begin = lexer->at, end = begin;
    while (end < lexer->n && is_name_byte(lexer->source[end])) end++;
    lexer->at = end;
    return push(lexer, (struct lex_token){.kind = TOKEN_NAME,
                                          .bytes = lexer->source + begin,
                                          .n_bytes = end - begin});
}

static size_t behind_digits(const struct lexer *lexer, size_t at)
{
    while (at < lexer->n && is_digit(lexer->source[at])) at++;
    return at;
}

/* Where the exponent that begins at `at` ends; `at` where none does. */
static size_t behind_exponent(const struct lexer *lexer, size_t at)
{
    if (at == lexer->n || (lexer->source[at] | 0x20) != 'e') return at;
    size_t digits = at + 1;
    if (digits < lexer->n && (lexer->source[digits] == '+' || lexer->source[digits] == '-'))
        digits++;
    size_t end = behind_digits(lexer, digits);
    return end > digits ? end : at;
}

/* Digits as an integer; false: above 63 bits. */
static bool read_integer(const struct lexer *lexer, size_t begin, size_t end, int64_t *out)
{
    *out = 0;
    for (size_t i = begin; i < end; i++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, lexer->source[i] - '0', out))
            return false;
    return true;
}

/* Where a number ends: behind its fraction and exponent, if it is no index as in x.0.1 */
static size_t behind_number(const struct lexer *lexer, size_t begin)
{
    size_t end = behind_digits(lexer, begin);
    if (begin && lexer->source[begin - 1] == '.') return end;
    if (end + 1 < lexer->n && lexer->source[end] == '.' && is_digit(lexer->source[end + 1]))
        end = behind_digits(lexer, end + 1);
    return behind_exponent(lexer, end);
}

static np_status lex_number(struct lexer *lexer)
{
    struct lex_token token = {.kind = TOKEN_INT};
    char text[64];
    size_t begin = lexer->at, end = behind_number(lexer, begin);
    if (end - begin >= sizeof text) return fail(lexer, "a number is too long");
    if (end < lexer->n && is_name_byte(lexer->source[end]))
        return template_error(lexer->err, lexer->line, NP_EUNSUPPORTED,
                              "the number %.*s is not supported; decimal ones are",
                              (int)(end - begin + 1), lexer->source + begin);
    memcpy(text, lexer->source + begin, end - begin);
    text[end - begin] = 0;
    if (end > behind_digits(lexer, begin)) {
        token.kind = TOKEN_FLOAT;
        token.number = strtod(text, NULL);
    } else if (!read_integer(lexer, begin, end, &token.integer)) {
        return fail(lexer, "a number is above 63 bits");
    } else if (text[0] == '0' && token.integer) {
        return fail(lexer, "a number begins with 0");
    }
    lexer->at = end;
    return push(lexer, token);
}

/* \x41, \u0041, \U00000041 or \101: n digits of a base; false: they are not there. */
static bool read_code(const struct lexer *lexer, size_t *at, size_t n, unsigned base, uint32_t *c)
{
    size_t begin = *at;
    for (*c = 0; *at < lexer->n && *at - begin < n; ++*at) {
        char d = lexer->source[*at], lower = d | 0x20;
        unsigned digit = is_digit(d) ? (unsigned)(d - '0') : 99;
        if (lower >= 'a' && lower <= 'f') digit = (unsigned)(lower - 'a' + 10);
        if (digit >= base) break;
        *c = *c * base + digit;
    }
    return base == 8 ? *at > begin : *at - begin == n;
}

/* The escape at `at`, behind the backslash; writes its bytes at out. */
static np_status lex_escape(struct lexer *lexer, size_t *at, char *out, size_t *n)
{
    static const char plain[] = "n\nt\tr\r\\\\'\'\"\"a\ab\bf\fv\v";
    static const struct {
        char letter;
        uint8_t n_digits, base;
    } codes[] = {{'x', 2, 16}, {'u', 4, 16}, {'U', 8, 16}};
    char letter = lexer->source[*at];
    uint32_t c;
    for (const char *row = plain; *row; row += 2)
        if (*row == letter) return out[(*n)++] = row[1], ++*at, NP_OK;
    if (letter == '\n') return ++*at, NP_OK;
    bool octal = letter >= '0' && letter <= '7', read = octal;
    if (octal) read_code(lexer, at, 3, 8, &c);
    for (size_t i = 0; i < sizeof codes / sizeof *codes && !octal; i++)
        if (codes[i].letter == letter) {
            ++*at;
            if (!read_code(lexer, at, codes[i].n_digits, codes[i].base, &c))
                return fail(lexer, "an escape in a text has too few digits");
            read = true;
        }
    if (!read) {
        if (letter == 'N' || (unsigned char)letter >= 0x80)
            return template_error(lexer->err, lexer->line, NP_EUNSUPPORTED,
                                  "an escape by name, or of what is not ASCII, is not supported");
        out[(*n)++] = '\\';
        return NP_OK;
    }
    if (c > 0x10FFFF || c >> 11 == 0xD800 >> 11)
        return template_error(lexer->err, lexer->line, NP_EUNSUPPORTED,
                              "an escape in a text is no character: U+%04X", (unsigned)c);
    *n += utf8_write(c, out + *n);
    return NP_OK;
}

static np_status lex_text(struct lexer *lexer)
{
    char quote = lexer->source[lexer->at];
    size_t end = lexer->at + 1, n = 0;
    while (end < lexer->n && lexer->source[end] != quote) end += lexer->source[end] == '\\' ? 2 : 1;
    if (end >= lexer->n) return fail(lexer, "a text is not closed");
    char *bytes = arena_push(lexer->arena, end - lexer->at);
    if (!bytes) return error_nomem(lexer->err, "a template", end - lexer->at);
    for (size_t at = lexer->at + 1; at < end;) {
        if (lexer->source[at] != '\\') {
            bytes[n++] = lexer->source[at++];
            continue;
        }
        at++;
        TRY(lex_escape(lexer, &at, bytes, &n));
    }
    TRY(push(lexer, (struct lex_token){.kind = TOKEN_TEXT, .bytes = bytes, .n_bytes = n}));
    move_to(lexer, end + 1);
    return NP_OK;
}

static np_status lex_operator(struct lexer *lexer)
{
    static const char *const pairs[] = {"//", "**", "==", "!=", ">=", "<="};
    char c = lexer->source[lexer->at];
    int op = c;
    if (!strchr("+-/*%~[](){}><=.:|,;!", c) || !c) return fail(lexer, "an unexpected character");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (starts(lexer, lexer->at, pairs[i])) op = OP2(pairs[i][0], pairs[i][1]);
    if (op == '!') return fail(lexer, "an unexpected character");
    if (strchr("([{", c)) {
        if (lexer->n_closing == sizeof lexer->closing)
            return template_error(lexer->err, lexer->line, NP_ELIMIT,
                                  "brackets are nested more than %d deep", TEMPLATE_MAX_NESTING);
        lexer->closing[lexer->n_closing++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (strchr(")]}", c)) {
        if (!lexer->n_closing || lexer->closing[lexer->n_closing - 1] != c)
            return fail(lexer, "a bracket is closed that was not opened");
        lexer->n_closing--;
    }
    lexer->at += op > 0xFF ? 2 : 1;
    return push(lexer, (struct lex_token){.kind = TOKEN_OP, .op = op});
}

/* Moves behind the end of a tag, if it stands here: "-" takes white space, and a line end goes too
 * where `trim`. */
static bool take_end(struct lexer *lexer, const char *end, bool trim)
{
    size_t at = lexer->at;
    char sign = lexer->source[at];
    if (sign == '-' || (sign == '+' && trim)) at++;
    if (!starts(lexer, at, end)) return false;
    bool signed_ = at++ > lexer->at;
    at++;
    if (signed_ && sign == '-')
        at = behind_space(lexer, at);
    else if (!signed_ && trim && at < lexer->n && lexer->source[at] == '\n')
        at++;
    move_to(lexer, at);
    return true;
}

static np_status lex_tag(struct lexer *lexer, bool block)
{
    uint32_t opened = lexer->line;
    TRY(push(lexer, (struct lex_token){.kind = block ? TOKEN_BLOCK : TOKEN_VAR}));
    lexer->n_closing = 0;
    for (;;) {
        move_to(lexer, behind_space(lexer, lexer->at));
        if (lexer->at == lexer->n)
            return template_error(lexer->err, opened, NP_EINPUT, "a tag is not closed");
        struct lex_token end = {.kind = block ? TOKEN_BLOCK_END : TOKEN_VAR_END};
        uint32_t line = lexer->line;
        if (!lexer->n_closing && take_end(lexer, block ? "%}" : "}}", block)) {
            TRY(push(lexer, end));
            lexer->tokens[lexer->n_tokens - 1].line = line;
            return NP_OK;
        }
        char c = lexer->source[lexer->at];
        if (c == '\'' || c == '"')
            TRY(lex_text(lexer));
        else if (is_digit(c))
            TRY(lex_number(lexer));
        else if (is_name_byte(c))
            TRY(lex_name(lexer));
        else
            TRY(lex_operator(lexer));
    }
}

/* ---- outside of tags --------------------------------------------------------------------------
 */

/* Where the next tag begins, from `from` on; the end of the source where none does. */
static size_t find_tag(const struct lexer *lexer, size_t from)
{
    for (size_t at = from; at + 1 < lexer->n; at++)
        if (lexer->source[at] == '{' && strchr("{%#", lexer->source[at + 1]) &&
            lexer->source[at + 1])
            return at;
    return lexer->n;
}

/* The text before a tag, without the white space that the tag takes. */
static np_status push_data(struct lexer *lexer, size_t tag, char sign, bool strips)
{
    size_t begin = lexer->at, end = tag;
    if (sign == '-')
        end = before_space(lexer, begin, tag, false);
    else if (sign != '+' && strips) {
        end = before_space(lexer, begin, tag, true);
        if (end > 0 && lexer->source[end - 1] != '\n') end = tag;
    }
    if (end > begin)
        TRY(push(lexer, (struct lex_token){.kind = TOKEN_DATA,
                                           .bytes = lexer->source + begin,
                                           .n_bytes = end - begin}));
    move_to(lexer, tag);
    return NP_OK;
}

/* Whether "{% NAME %}" stands at `at`, with any signs: where it ends, without what it takes. */
static bool is_block_of(const struct lexer *lexer, size_t at, const char *name, size_t *end)
{
    if (!starts(lexer, at, "{%")) return false;
    at += 2;
    if (at < lexer->n && (lexer->source[at] == '-' || lexer->source[at] == '+')) at++;
    at = behind_space(lexer, at);
    if (!starts(lexer, at, name)) return false;
    *end = behind_space(lexer, at + strlen(name));
    return starts(lexer, *end, "%}") || starts(lexer, *end, "-%}") || starts(lexer, *end, "+%}");
}

static np_status lex_raw(struct lexer *lexer, size_t end)
{
    uint32_t opened = lexer->line;
    move_to(lexer, end);
    if (lexer->source[end] == '-')
        move_to(lexer, behind_space(lexer, end + 3));
    else
        move_to(lexer, end + 2);
    for (size_t at = lexer->at; at < lexer->n; at++) {
        if (!is_block_of(lexer, at, "endraw", &end)) continue;
        TRY(push_data(lexer, at, lexer->source[at + 2], true));
        move_to(lexer, end);
        take_end(lexer, "%}", true);
        return NP_OK;
    }
    return template_error(lexer->err, opened, NP_EINPUT, "{%% raw %%} is not closed");
}

static np_status lex_comment(struct lexer *lexer, size_t begin)
{
    for (size_t at = begin; at < lexer->n; at++) {
        if (!starts(lexer, at, "#}")) continue;
        bool has_sign = at > begin && strchr("-+", lexer->source[at - 1]);
        move_to(lexer, has_sign ? at - 1 : at);
        take_end(lexer, "#}", true);
        return NP_OK;
    }
    return fail(lexer, "a comment is not closed");
}

static np_status lex_all(struct lexer *lexer)
{
    while (lexer->at < lexer->n) {
        size_t tag = find_tag(lexer, lexer->at), end;
        if (tag == lexer->n) {
            TRY(push_data(lexer, tag, '+', false));
            break;
        }
        char kind = lexer->source[tag + 1], sign = tag + 2 < lexer->n ? lexer->source[tag + 2] : 0;
        bool is_signed = sign == '-' || sign == '+';
        TRY(push_data(lexer, tag, sign, kind != '{'));
        if (kind == '%' && is_block_of(lexer, tag, "raw", &end) && lexer->source[end] != '+') {
            TRY(lex_raw(lexer, end));
            continue;
        }
        move_to(lexer, tag + 2 + is_signed);
        if (kind == '#')
            TRY(lex_comment(lexer, lexer->at));
        else
            TRY(lex_tag(lexer, kind == '%'));
    }
    return push(lexer, (struct lex_token){.kind = TOKEN_END});
}

np_status template_lex(struct arena *arena, const char *source, size_t n_bytes,
                       struct lex_token **out, np_error *err)
{
    struct lexer lexer = {.arena = arena, .err = err, .line = 1};
    *out = NULL;
    char *copy = arena_push(arena, n_bytes + 1);
    if (!copy) return error_nomem(err, "a template", n_bytes);
    for (size_t i = 0; i < n_bytes; i++) {
        if (source[i] == '\n' && i && source[i - 1] == '\r') continue;
        copy[lexer.n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (lexer.n && copy[lexer.n - 1] == '\n') lexer.n--;
    for (size_t at = 0; at < lexer.n;) {
        int length = utf8_length((const unsigned char *)copy + at, lexer.n - at);
        if (length <= 0 || !copy[at])
            return error_set(err, NP_EINPUT, "chat_template", (int64_t)at,
                             "a template must be UTF-8 without zero bytes");
        at += (size_t)length;
    }
    lexer.source = copy;
    np_status status = lex_all(&lexer);
    if (status)
        mem_free(lexer.tokens);
    else
        *out = lexer.tokens;
    return status;
}
