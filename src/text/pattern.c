/*
 * pattern.c - translates a tokenizer's regular expression.
 *
 * Everything that matches one character becomes a set of class bytes; groups, alternatives and
 * quantifiers pass through, as far as Oniguruma (which `tokenizers` uses) and PCRE2 agree on them.
 * What is not on the list is refused: a rule that is half understood gives wrong ids.
 *
 * Surprise: (?i:'s) takes U+017F, the long s, for an s too, and the Kelvin sign for a k; both have
 * a class of their own for that. Two letters that together fold to one character (ss, ff, fi, fl,
 * st) are refused there.
 */
#include "text/pattern.h"
#include "text/split.h"
#include "text/unicode.h"

struct set {
    bool has[256];
};

struct reader {
    const char *regex;
    size_t n, at;
    const char *where;
    struct buf *out;
    np_error *err;
    int depth;
    bool caseless[32]; /* by depth of groups */
};

static np_status refuse(struct reader *r, size_t from, size_t n, const char *what)
{
    if (n > r->n - from) n = r->n - from;
    return error_given(r->err,
                       error_set(r->err, NP_EUNSUPPORTED, r->where, (int64_t)from,
                                 "%s is not supported in a splitting rule", what),
                       "%.*s", (int)(n < 40 ? n : 40), r->regex + from);
}

static int peek(const struct reader *r, size_t ahead)
{
    return r->at + ahead < r->n ? (unsigned char)r->regex[r->at + ahead] : -1;
}

/* Adds the general category `name` ("L", "Nd"): returns whether there is one. */
static bool add_category(struct set *set, const char *name, size_t n, bool negated)
{
    static const char names[UNICODE_CATEGORIES][3] = {
        "Cc", "Cf", "Cn", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl",
        "No", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"};
    bool wanted[UC_COUNT] = {false}, known = false;
    for (int i = 0; i < UNICODE_CATEGORIES; i++) {
        wanted[i] = (n == 1 || n == 2) && !memcmp(names[i], name, n);
        known = known || wanted[i];
    }
    for (int c = 0; c < CLASS_OF(UC_COUNT); c++)
        if (wanted[class_category((uint8_t)c)] != negated) set->has[c] = true;
    return known;
}

static void add_spaces(struct set *set, bool negated)
{
    for (int c = 0; c < CLASS_OF(UC_COUNT); c++)
        if (class_is_space((uint8_t)c) != negated) set->has[c] = true;
}

/* \p{..}, \P{..}; r->at is on the backslash. */
static np_status read_property(struct reader *r, struct set *set)
{
    const char *name = r->regex + r->at + 3;
    const char *end = peek(r, 2) == '{' ? memchr(name, '}', r->n - r->at - 3) : NULL;
    if (!end || !add_category(set, name, (size_t)(end - name), peek(r, 1) == 'P'))
        return refuse(r, r->at, end ? (size_t)(end - name) + 4 : 40, "this property");
    r->at += (size_t)(end - name) + 4;
    return NP_OK;
}

/* An escape, r->at is on the backslash. *literal: the one character that it is, -1: a class. */
static np_status read_escape(struct reader *r, struct set *set, int *literal)
{
    static const char controls[] = "r\rn\nt\tf\fv\v";
    static const char marks[] = "'\"!#$%&()*+,-./:;<=>?@[\\]^_`{|}~";
    int c = peek(r, 1);
    *literal = -1;
    if (c == 'p' || c == 'P') return read_property(r, set);
    if (c == 's' || c == 'S') {
        add_spaces(set, c == 'S');
    } else if (c == 'd' || c == 'D') {
        add_category(set, "Nd", 2, c == 'D');
    } else {
        const char *control = c >= 'a' ? strchr(controls, c) : NULL;
        if (control)
            *literal = control[1];
        else if (c > 0 && strchr(marks, c))
            *literal = c;
        else
            return refuse(r, r->at, 2, "this escape");
        set->has[*literal] = true;
    }
    r->at += 2;
    return NP_OK;
}

/* *literal: the one character that the member is, -1: a class. */
static np_status read_member(struct reader *r, struct set *set, int *literal)
{
    int c = peek(r, 0);
    if (c == '\\') return read_escape(r, set, literal);
    if (c < 0 || c >= 0x80 || c == '[' || (c == '&' && peek(r, 1) == '&'))
        return refuse(r, r->at, 4, "this member of a set");
    set->has[c] = true;
    *literal = c;
    r->at++;
    return NP_OK;
}

static np_status read_set(struct reader *r, struct set *set)
{
    size_t from = r->at++;
    bool negated = peek(r, 0) == '^';
    r->at += negated;
    if (peek(r, 0) == ']') return refuse(r, from, 3, "an empty set");
    while (peek(r, 0) != ']') {
        int first, last;
        TRY(read_member(r, set, &first));
        if (peek(r, 0) != '-' || peek(r, 1) == ']') continue;
        r->at++;
        TRY(read_member(r, set, &last));
        if (first < 0 || last < first) return refuse(r, from, r->at - from, "this range");
        for (int c = first; c <= last; c++) set->has[c] = true;
    }
    r->at++;
    for (int c = 0; negated && c < CLASS_OF(UC_COUNT); c++) set->has[c] = !set->has[c];
    return NP_OK;
}

static void write_set(struct reader *r, const struct set *set)
{
    bool any = false;
    for (int c = 0; c < 256; c++) any = any || set->has[c];
    if (!any) {
        buf_puts(r->out, "(*FAIL)");
        return;
    }
    buf_puts(r->out, "[");
    for (int c = 0; c < 256; c++) {
        int last = c;
        if (!set->has[c]) continue;
        while (last < 255 && set->has[last + 1]) last++;
        buf_printf(r->out, last > c ? "\\x%02x-\\x%02x" : "\\x%02x", (unsigned)c, (unsigned)last);
        c = last;
    }
    buf_puts(r->out, "]");
}

static np_status add_other_case(struct reader *r, struct set *set, int c, int next)
{
    static const char folds[][3] = {"ss", "ff", "fi", "fl", "st"};
    int lower = c | 0x20, next_lower = next | 0x20;
    if (lower < 'a' || lower > 'z') return NP_OK;
    for (size_t i = 0; i < sizeof folds / sizeof *folds; i++)
        if (lower == folds[i][0] && next_lower == folds[i][1])
            return refuse(r, r->at, 2, "this pair of letters in (?i:");
    set->has[lower] = set->has[lower ^ 0x20] = true;
    if (lower == 's') set->has[CLASS_OF(UC_LONG_S)] = true;
    if (lower == 'k') set->has[CLASS_OF(UC_KELVIN)] = true;
    return NP_OK;
}

/* One character, escape or set, outside of sets. */
static np_status read_atom(struct reader *r)
{
    int c = peek(r, 0), literal;
    bool caseless = r->caseless[r->depth];
    struct set set = {{false}};
    if (c == '[') {
        if (caseless) return refuse(r, r->at, 4, "a set in (?i:");
        TRY(read_set(r, &set));
    } else if (c == '\\') {
        if (caseless) return refuse(r, r->at, 4, "an escape in (?i:");
        TRY(read_escape(r, &set, &literal));
    } else if (c >= 0x80 || strchr(".^${}]#", c)) {
        return refuse(r, r->at, 4, "this");
    } else {
        if (caseless) TRY(add_other_case(r, &set, c, peek(r, 1)));
        set.has[c] = true;
        r->at++;
    }
    write_set(r, &set);
    return NP_OK;
}

/* "(", "(?:", "(?=", "(?!" and "(?i:". */
static np_status read_group(struct reader *r)
{
    static const struct {
        const char *opens, *writes;
        bool caseless;
    } groups[] = {
        {"(?i:", "(?:", true}, {"(?:", "(?:", false}, {"(?=", "(?=", false}, {"(?!", "(?!", false}};
    if (r->depth + 1 == (int)(sizeof r->caseless / sizeof *r->caseless))
        return refuse(r, r->at, 4, "this depth of groups");
    bool outer = r->caseless[r->depth++];
    r->caseless[r->depth] = outer;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        size_t n = strlen(groups[i].opens);
        if (r->n - r->at < n || memcmp(r->regex + r->at, groups[i].opens, n)) continue;
        r->caseless[r->depth] = outer || groups[i].caseless;
        buf_puts(r->out, groups[i].writes);
        r->at += n;
        return NP_OK;
    }
    if (peek(r, 1) == '?' || peek(r, 1) == '*') return refuse(r, r->at, 4, "this group");
    buf_puts(r->out, "(?:");
    r->at++;
    return NP_OK;
}

static bool is_quantifier(int c)
{
    return c == '?' || c == '*' || c == '+' || c == '{';
}

/* Steps over "{m}", "{m,}", "{m,n}"; false: it is something else. */
static bool skip_counts(struct reader *r)
{
    int first = peek(r, 1);
    r->at++;
    while (peek(r, 0) == ',' || (peek(r, 0) >= '0' && peek(r, 0) <= '9')) r->at++;
    return peek(r, 0) == '}' && first != ',' && first != '}' && r->at++;
}

/* "?", "*", "+" with "?" or "+" behind, or "{m,n}" alone: there the dialects differ. */
static np_status read_quantifier(struct reader *r)
{
    size_t from = r->at;
    if (peek(r, 0) == '{') {
        if (!skip_counts(r)) return refuse(r, from, r->at - from + 1, "this quantifier");
    } else {
        r->at++;
        if (peek(r, 0) == '?' || peek(r, 0) == '+') r->at++;
    }
    if (is_quantifier(peek(r, 0)))
        return refuse(r, from, r->at - from + 1, "a quantifier of a quantifier");
    buf_push(r->out, r->regex + from, r->at - from);
    return NP_OK;
}

np_status pattern_translate(const char *regex, size_t n_bytes, const char *where, struct buf *out,
                            np_error *err)
{
    struct reader r = {.regex = regex, .n = n_bytes, .where = where, .out = out, .err = err};
    bool quantifiable = false;
    if (n_bytes > SPLIT_MAX_REGEX_BYTES)
        return error_set(err, NP_ELIMIT, where, NO_OFFSET,
                         "a splitting rule of %zu bytes; at most %d are allowed", n_bytes,
                         SPLIT_MAX_REGEX_BYTES);
    while (r.at < n_bytes) {
        int c = peek(&r, 0);
        if (c == '(') {
            TRY(read_group(&r));
            quantifiable = false;
        } else if (c == '|' || c == ')') {
            if (c == ')' && r.depth-- == 0)
                return refuse(&r, r.at, 1, "a parenthesis without its other");
            buf_push(out, regex + r.at++, 1);
            quantifiable = c == ')';
        } else if (is_quantifier(c)) {
            if (!quantifiable) return refuse(&r, r.at, 2, "a quantifier here");
            TRY(read_quantifier(&r));
            quantifiable = false;
        } else {
            TRY(read_atom(&r));
            quantifiable = true;
        }
    }
    if (r.depth) return refuse(&r, 0, n_bytes, "a group without its end");
    return out->failed ? error_nomem(err, "a splitting rule", n_bytes) : NP_OK;
}
