/*
 * template_expr.c - expressions of a template as trees.
 *
 * Recursive descent with Jinja's own levels, from loose to tight: x if y else z; or; and; not;
 * comparisons and in; + -; ~; * / // %; signs; then what stands behind an operand: .name [...]
 * (...) |filter is test. Filters, tests and methods are looked up here, so that a name that nobody
 * knows is refused with its line before anything is rendered.
 */
#include "text/template_run.h"

np_status parser_fail(struct parser *parser, np_status status, const char *what)
{
    const struct lex_token *at = parser->at;
    if (at->kind == TOKEN_NAME || at->kind == TOKEN_TEXT)
        return template_error(parser->err, at->line, status, "%s, not at \"%.*s\"", what,
                              at->n_bytes > 40 ? 40 : (int)at->n_bytes, at->bytes);
    if (at->kind == TOKEN_OP)
        return template_error(parser->err, at->line, status, "%s, not at \"%c%c\"", what,
                              at->op & 0xFF, at->op > 0xFF ? at->op >> 8 : ' ');
    return template_error(parser->err, at->line, status, "%s, not here", what);
}

np_status parser_node(struct parser *parser, enum node_kind kind, struct node **out)
{
    *out = arena_push(parser->arena, sizeof **out);
    if (!*out) return error_nomem(parser->err, "a template", sizeof **out);
    (*out)->kind = kind;
    (*out)->line = parser->at->line;
    return NP_OK;
}

bool parser_take_op(struct parser *parser, int op)
{
    bool is = parser->at->kind == TOKEN_OP && parser->at->op == op;
    parser->at += is;
    return is;
}

bool parser_is_name(const struct lex_token *token, const char *name)
{
    return token->kind == TOKEN_NAME && token->n_bytes == strlen(name) &&
           !memcmp(token->bytes, name, token->n_bytes);
}

bool parser_take_name(struct parser *parser, const char *name)
{
    bool is = parser_is_name(parser->at, name);
    parser->at += is;
    return is;
}

np_status parser_need_op(struct parser *parser, int op)
{
    char what[] = "\"?\" is expected";
    what[1] = (char)op;
    return parser_take_op(parser, op) ? NP_OK : parser_fail(parser, NP_EINPUT, what);
}

np_status parser_name(struct parser *parser, const char **out)
{
    if (parser->at->kind != TOKEN_NAME) return parser_fail(parser, NP_EINPUT, "a name is expected");
    *out = arena_strndup(parser->arena, parser->at->bytes, parser->at->n_bytes);
    if (!*out) return error_nomem(parser->err, "a template", parser->at->n_bytes);
    parser->at++;
    return NP_OK;
}

np_status parser_enter(struct parser *parser)
{
    if (++parser->depth <= TEMPLATE_MAX_NESTING) return NP_OK;
    return template_error(parser->err, parser->at->line, NP_ELIMIT, "nested more than %d deep",
                          TEMPLATE_MAX_NESTING);
}

/* ---- operands ---------------------------------------------------------------------------------
 */

static np_status parse_constant(struct parser *parser, struct node **out)
{
    const struct lex_token *at = parser->at;
    TRY(parser_node(parser, NODE_CONST, out));
    struct value *value = &(*out)->value;
    if (at->kind == TOKEN_INT || at->kind == TOKEN_FLOAT) {
        *value = at->kind == TOKEN_INT ? value_int(at->integer) : value_float(at->number);
        parser->at++;
        return NP_OK;
    }
    size_t n = 0;
    for (; at->kind == TOKEN_TEXT; at++) n += at->n_bytes;
    struct text *text = arena_push(parser->arena, sizeof *text);
    char *bytes = arena_push(parser->arena, n + 1);
    if (!text || !bytes) return error_nomem(parser->err, "a template", n);
    *text = (struct text){bytes, n, &text->only, 1, {n, SOURCE_TEMPLATE}};
    for (; parser->at->kind == TOKEN_TEXT; parser->at++) {
        memcpy(bytes, parser->at->bytes, parser->at->n_bytes);
        bytes += parser->at->n_bytes;
    }
    *value = (struct value){.kind = VALUE_TEXT, .text = text};
    return NP_OK;
}

static np_status parse_name(struct parser *parser, struct node **out)
{
    static const struct {
        const char *name;
        enum value_kind kind;
        bool is;
    } words[] = {{"true", VALUE_BOOL, true},   {"True", VALUE_BOOL, true},
                 {"false", VALUE_BOOL, false}, {"False", VALUE_BOOL, false},
                 {"none", VALUE_NONE, false},  {"None", VALUE_NONE, false}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (parser_is_name(parser->at, words[i].name)) {
            TRY(parser_node(parser, NODE_CONST, out));
            (*out)->value = (struct value){.kind = words[i].kind, .integer = words[i].is};
            parser->at++;
            return NP_OK;
        }
    TRY(parser_node(parser, NODE_NAME, out));
    return parser_name(parser, &(*out)->name);
}

/* What stands in brackets: expressions, or pairs of them. */
static np_status parse_elements(struct parser *parser, enum node_kind kind, int closing,
                                struct node **out)
{
    TRY(parser_node(parser, kind, out));
    struct node **last = &(*out)->items;
    parser->at++;
    while (!parser_take_op(parser, closing)) {
        if ((*out)->items) TRY(parser_need_op(parser, ','));
        if (parser_take_op(parser, closing)) break;
        TRY(parse_expression(parser, true, last));
        last = &(*last)->next;
        if (kind != NODE_DICT) continue;
        TRY(parser_need_op(parser, ':'));
        TRY(parse_expression(parser, true, last));
        last = &(*last)->next;
    }
    return NP_OK;
}

static np_status parse_parentheses(struct parser *parser, struct node **out)
{
    parser->at++;
    if (parser->at->kind == TOKEN_OP && parser->at->op == ')')
        TRY(parser_node(parser, NODE_TUPLE, out));
    else
        TRY(parse_tuple(parser, true, NULL, out));
    return parser_need_op(parser, ')');
}

static np_status parse_primary(struct parser *parser, struct node **out)
{
    const struct lex_token *at = parser->at;
    if (at->kind == TOKEN_NAME) return parse_name(parser, out);
    if (at->kind == TOKEN_TEXT || at->kind == TOKEN_INT || at->kind == TOKEN_FLOAT)
        return parse_constant(parser, out);
    if (at->kind == TOKEN_OP && at->op == '(') return parse_parentheses(parser, out);
    if (at->kind == TOKEN_OP && at->op == '[') return parse_elements(parser, NODE_LIST, ']', out);
    if (at->kind == TOKEN_OP && at->op == '{') return parse_elements(parser, NODE_DICT, '}', out);
    return parser_fail(parser, NP_EINPUT, "an expression is expected");
}

/* ---- behind an operand ------------------------------------------------------------------------
 */

static np_status parse_arguments(struct parser *parser, struct node **out)
{
    bool named = false;
    struct node **first = out;
    TRY(parser_need_op(parser, '('));
    while (!parser_take_op(parser, ')')) {
        if (*first) TRY(parser_need_op(parser, ','));
        if (parser_take_op(parser, ')')) break;
        const struct lex_token *at = parser->at;
        if (at->kind == TOKEN_OP && (at->op == '*' || at->op == OP2('*', '*')))
            return template_error(parser->err, at->line, NP_EUNSUPPORTED,
                                  "arguments with * and ** are not supported");
        if (at->kind == TOKEN_NAME && at[1].kind == TOKEN_OP && at[1].op == '=') {
            TRY(parser_node(parser, NODE_KEYWORD, out));
            TRY(parser_name(parser, &(*out)->name));
            parser->at++;
            TRY(parse_expression(parser, true, &(*out)->a));
            named = true;
        } else if (named) {
            return parser_fail(parser, NP_EINPUT,
                               "an argument without a name is behind named ones");
        } else {
            TRY(parse_expression(parser, true, out));
        }
        out = &(*out)->next;
    }
    return NP_OK;
}

/* A part of a slice, which may be left out. */
static np_status parse_bound(struct parser *parser, struct node **out)
{
    const struct lex_token *at = parser->at;
    if (at->kind == TOKEN_OP && (at->op == ':' || at->op == ']' || at->op == ',')) return NP_OK;
    return parse_expression(parser, true, out);
}

static np_status parse_subscript(struct parser *parser, struct node **out)
{
    struct node *first = NULL;
    TRY(parse_bound(parser, &first));
    if (!parser_take_op(parser, ':')) {
        *out = first;
        if (!first) return parser_fail(parser, NP_EINPUT, "an index is expected");
        return parser_need_op(parser, ']');
    }
    TRY(parser_node(parser, NODE_SLICE, out));
    (*out)->a = first;
    TRY(parse_bound(parser, &(*out)->b));
    if (parser_take_op(parser, ':')) TRY(parse_bound(parser, &(*out)->c));
    return parser_need_op(parser, ']');
}

static np_status parse_attribute(struct parser *parser, struct node *of, struct node **out)
{
    if (parser->at->kind == TOKEN_INT) {
        TRY(parser_node(parser, NODE_ITEM, out));
        (*out)->a = of;
        return parse_constant(parser, &(*out)->b);
    }
    TRY(parser_node(parser, NODE_ATTR, out));
    (*out)->a = of;
    return parser_name(parser, &(*out)->name);
}

/* Methods, and functions of Jinja that are not here, are refused before they are reached. */
static np_status check_callee(struct parser *parser, const struct node *callee)
{
    static const char *const missing[] = {"cycler", "joiner", "lipsum", "caller", "super"};
    if (callee->kind == NODE_ATTR &&
        !method_find(VALUE_MISSING, callee->name, strlen(callee->name)))
        return template_error(parser->err, callee->line, NP_EUNSUPPORTED,
                              "the method .%s() is not supported", callee->name);
    for (size_t i = 0; callee->kind == NODE_NAME && i < sizeof missing / sizeof *missing; i++)
        if (!strcmp(callee->name, missing[i]))
            return template_error(parser->err, callee->line, NP_EUNSUPPORTED,
                                  "the function %s() is not supported", callee->name);
    return NP_OK;
}

static np_status parse_call(struct parser *parser, struct node *callee, struct node **out)
{
    TRY(check_callee(parser, callee));
    TRY(parser_node(parser, NODE_CALL, out));
    (*out)->a = callee;
    return parse_arguments(parser, &(*out)->items);
}

static bool is_op(const struct lex_token *at, int op)
{
    return at->kind == TOKEN_OP && at->op == op;
}

static np_status parse_postfix(struct parser *parser, struct node **out)
{
    for (;;) {
        struct node *inner = *out;
        if (parser_take_op(parser, '.')) {
            TRY(parse_attribute(parser, inner, out));
        } else if (is_op(parser->at, '[')) {
            TRY(parser_node(parser, NODE_ITEM, out));
            (*out)->a = inner;
            parser->at++;
            TRY(parse_subscript(parser, &(*out)->b));
        } else if (is_op(parser->at, '(')) {
            TRY(parse_call(parser, inner, out));
        } else {
            return NP_OK;
        }
    }
}

static np_status parse_filter(struct parser *parser, struct node **out)
{
    struct node *inner = *out;
    const struct lex_token *name = parser->at;
    TRY(parser_node(parser, NODE_FILTER, out));
    TRY(parser_name(parser, &(*out)->name));
    (*out)->a = inner;
    (*out)->builtin = filter_find(name->bytes, name->n_bytes);
    if (!(*out)->builtin)
        return template_error(parser->err, name->line, NP_EUNSUPPORTED,
                              "the filter |%s is not supported", (*out)->name);
    return is_op(parser->at, '(') ? parse_arguments(parser, &(*out)->items) : NP_OK;
}

/* Whether the argument of a test without parentheses begins here. */
static bool starts_argument(const struct lex_token *at)
{
    static const char *const words[] = {"else", "or", "and"};
    if (at->kind == TOKEN_TEXT || at->kind == TOKEN_INT || at->kind == TOKEN_FLOAT) return true;
    if (at->kind == TOKEN_OP) return at->op == '[' || at->op == '{';
    if (at->kind != TOKEN_NAME) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (parser_is_name(at, words[i])) return false;
    return true;
}

static np_status parse_test(struct parser *parser, struct node **out)
{
    struct node *inner = *out, *test;
    bool negated = parser_take_name(parser, "not");
    const struct lex_token *name = parser->at;
    TRY(parser_node(parser, NODE_TEST, &test));
    TRY(parser_name(parser, &test->name));
    test->a = inner;
    test->builtin = test_find(name->bytes, name->n_bytes);
    if (!test->builtin)
        return template_error(parser->err, name->line, NP_EUNSUPPORTED,
                              "the test \"is %s\" is not supported", test->name);
    if (is_op(parser->at, '(')) {
        TRY(parse_arguments(parser, &test->items));
    } else if (starts_argument(parser->at)) {
        if (parser_is_name(parser->at, "is"))
            return parser_fail(parser, NP_EINPUT, "tests cannot be chained");
        TRY(parse_primary(parser, &test->items));
        TRY(parse_postfix(parser, &test->items));
    }
    *out = test;
    if (!negated) return NP_OK;
    TRY(parser_node(parser, NODE_NOT, out));
    (*out)->a = test;
    return NP_OK;
}

static np_status parse_filters(struct parser *parser, struct node **out)
{
    for (;;) {
        struct node *inner = *out;
        if (parser_take_op(parser, '|'))
            TRY(parse_filter(parser, out));
        else if (parser_take_name(parser, "is"))
            TRY(parse_test(parser, out));
        else if (is_op(parser->at, '('))
            TRY(parse_call(parser, inner, out));
        else
            return NP_OK;
    }
}

/* ---- operators --------------------------------------------------------------------------------
 */

static np_status parse_unary(struct parser *parser, bool with_filters, struct node **out)
{
    bool negative = is_op(parser->at, '-');
    TRY(parser_enter(parser));
    if (negative || is_op(parser->at, '+')) {
        TRY(parser_node(parser, negative ? NODE_NEG : NODE_POS, out));
        parser->at++;
        TRY(parse_unary(parser, false, &(*out)->a));
    } else {
        TRY(parse_primary(parser, out));
    }
    TRY(parse_postfix(parser, out));
    if (with_filters) TRY(parse_filters(parser, out));
    parser->depth--;
    if (is_op(parser->at, OP2('*', '*')))
        return template_error(parser->err, parser->at->line, NP_EUNSUPPORTED,
                              "the operator ** is not supported");
    return NP_OK;
}

static np_status parse_product(struct parser *parser, struct node **out)
{
    TRY(parse_unary(parser, true, out));
    for (;;) {
        int op = parser->at->kind == TOKEN_OP ? parser->at->op : 0;
        struct node *left = *out;
        if (op != '*' && op != '/' && op != OP2('/', '/') && op != '%') return NP_OK;
        TRY(parser_node(parser, NODE_MATH, out));
        parser->at++;
        (*out)->op = op;
        (*out)->a = left;
        TRY(parse_unary(parser, true, &(*out)->b));
    }
}

static np_status parse_concat(struct parser *parser, struct node **out)
{
    struct node *first;
    TRY(parse_product(parser, &first));
    *out = first;
    if (!is_op(parser->at, '~')) return NP_OK;
    TRY(parser_node(parser, NODE_CONCAT, out));
    (*out)->items = first;
    while (parser_take_op(parser, '~')) {
        TRY(parse_product(parser, &first->next));
        first = first->next;
    }
    return NP_OK;
}

static np_status parse_sum(struct parser *parser, struct node **out)
{
    TRY(parse_concat(parser, out));
    while (is_op(parser->at, '+') || is_op(parser->at, '-')) {
        struct node *left = *out;
        TRY(parser_node(parser, NODE_MATH, out));
        (*out)->op = parser->at->op;
        (*out)->a = left;
        parser->at++;
        TRY(parse_concat(parser, &(*out)->b));
    }
    return NP_OK;
}

/* The comparison that stands here, taken; 0: none. "in" is 'i', "not in" is 'n'. */
static int take_comparison(struct parser *parser)
{
    static const int ops[] = {OP2('=', '='), OP2('!', '='), OP2('<', '='), OP2('>', '='), '<', '>'};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (parser_take_op(parser, ops[i])) return ops[i];
    if (parser_take_name(parser, "in")) return 'i';
    if (parser_is_name(parser->at, "not") && parser_is_name(parser->at + 1, "in")) {
        parser->at += 2;
        return 'n';
    }
    return 0;
}

static np_status parse_compare(struct parser *parser, struct node **out)
{
    TRY(parse_sum(parser, out));
    int op = take_comparison(parser);
    if (!op) return NP_OK;
    struct node *left = *out, **last;
    TRY(parser_node(parser, NODE_COMPARE, out));
    (*out)->a = left;
    for (last = &(*out)->items; op; op = take_comparison(parser)) {
        TRY(parser_node(parser, NODE_OPERAND, last));
        (*last)->op = op;
        TRY(parse_sum(parser, &(*last)->a));
        last = &(*last)->next;
    }
    return NP_OK;
}

static np_status parse_not(struct parser *parser, struct node **out)
{
    if (!parser_is_name(parser->at, "not")) return parse_compare(parser, out);
    TRY(parser_enter(parser));
    TRY(parser_node(parser, NODE_NOT, out));
    parser->at++;
    TRY(parse_not(parser, &(*out)->a));
    parser->depth--;
    return NP_OK;
}

static np_status parse_logic(struct parser *parser, bool is_or, struct node **out)
{
    TRY(is_or ? parse_logic(parser, false, out) : parse_not(parser, out));
    while (parser_take_name(parser, is_or ? "or" : "and")) {
        struct node *left = *out;
        TRY(parser_node(parser, is_or ? NODE_OR : NODE_AND, out));
        (*out)->a = left;
        TRY(is_or ? parse_logic(parser, false, &(*out)->b) : parse_not(parser, &(*out)->b));
    }
    return NP_OK;
}

np_status parse_expression(struct parser *parser, bool with_condition, struct node **out)
{
    TRY(parser_enter(parser));
    TRY(parse_logic(parser, true, out));
    while (with_condition && parser_take_name(parser, "if")) {
        struct node *then = *out;
        TRY(parser_node(parser, NODE_COND, out));
        (*out)->b = then;
        TRY(parse_logic(parser, true, &(*out)->a));
        if (parser_take_name(parser, "else")) TRY(parse_expression(parser, true, &(*out)->c));
    }
    parser->depth--;
    return NP_OK;
}

/* ---- tuples -----------------------------------------------------------------------------------
 */

static bool ends_tuple(const struct lex_token *at, const char *end)
{
    return at->kind == TOKEN_VAR_END || at->kind == TOKEN_BLOCK_END || is_op(at, ')') ||
           (end && parser_is_name(at, end));
}

/* One element, or a tuple of those that commas follow. */
static np_status parse_commas(struct parser *parser, const char *end, struct node **out,
                              np_status (*element)(struct parser *, bool, struct node **),
                              bool option)
{
    struct node *first = NULL, **last = &first;
    TRY(element(parser, option, last));
    *out = first;
    if (!is_op(parser->at, ',')) return NP_OK;
    TRY(parser_node(parser, NODE_TUPLE, out));
    (*out)->items = first;
    while (parser_take_op(parser, ',')) {
        last = &(*last)->next;
        if (ends_tuple(parser->at, end)) break;
        TRY(element(parser, option, last));
    }
    return NP_OK;
}

np_status parse_tuple(struct parser *parser, bool with_condition, const char *end,
                      struct node **out)
{
    return parse_commas(parser, end, out, parse_expression, with_condition);
}

static np_status parse_target_element(struct parser *parser, bool attributes, struct node **out)
{
    TRY(parser_enter(parser));
    if (parser_take_op(parser, '(')) {
        TRY(parse_target(parser, attributes, NULL, out));
        TRY(parser_need_op(parser, ')'));
    } else {
        if (parser->at->kind != TOKEN_NAME)
            return parser_fail(parser, NP_EINPUT, "a name to set is expected");
        TRY(parse_name(parser, out));
        if ((*out)->kind != NODE_NAME)
            return template_error(parser->err, (*out)->line, NP_EINPUT, "a constant cannot be set");
        if (attributes && parser_take_op(parser, '.')) TRY(parse_attribute(parser, *out, out));
        if ((*out)->kind == NODE_ITEM)
            return template_error(parser->err, (*out)->line, NP_EINPUT,
                                  "an element of a list cannot be set");
    }
    parser->depth--;
    return NP_OK;
}

np_status parse_target(struct parser *parser, bool attributes, const char *end, struct node **out)
{
    return parse_commas(parser, end, out, parse_target_element, attributes);
}
