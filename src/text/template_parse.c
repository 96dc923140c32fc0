/*
 * template_parse.c - statements of a template as trees, and compiling as a whole.
 *
 * A tag's name finds its row in a table; what Jinja has and chat templates do not use has a row
 * too, so that it is refused by its name.
 */
#include "text/template_node.h"

#include <stdarg.h>

np_status template_error(np_error *err, uint32_t line, np_status status, const char *fmt, ...)
{
    char what[288];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    for (char *c = what; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    return error_set(err, status, "chat_template", NO_OFFSET, "line %u: %s", line, what);
}

static np_status need_end(struct parser *parser)
{
    if (parser->at->kind != TOKEN_BLOCK_END)
        return parser_fail(parser, NP_EINPUT, "the end of the tag is expected");
    parser->at++;
    return NP_OK;
}

/* "{% NAME" stands here. */
static bool at_block(const struct parser *parser, const char *name)
{
    return parser->at->kind == TOKEN_BLOCK && parser_is_name(parser->at + 1, name);
}

/* The body of a block up to its end tag, which is taken. */
static np_status parse_inside(struct parser *parser, const char *end, struct node **out)
{
    TRY(need_end(parser));
    TRY(parse_body(parser, out));
    if (!at_block(parser, end)) {
        char what[64];
        snprintf(what, sizeof what, "{%% %s %%} is expected", end);
        return parser_fail(parser, NP_EINPUT, what);
    }
    parser->at += 2;
    return need_end(parser);
}

static np_status parse_if(struct parser *parser, struct node **out)
{
    struct node *node;
    TRY(parser_node(parser, NODE_IF, &node));
    *out = node;
    for (;;) {
        TRY(parse_tuple(parser, false, NULL, &node->a));
        TRY(need_end(parser));
        TRY(parse_body(parser, &node->items));
        if (!at_block(parser, "elif")) break;
        parser->at += 2;
        struct node *inner;
        TRY(parser_node(parser, NODE_IF, &inner));
        inner->op = NODE_IF; /* not the first of an else */
        node->otherwise = inner;
        node = inner;
    }
    if (at_block(parser, "else")) {
        parser->at += 2;
        return parse_inside(parser, "endif", &node->otherwise);
    }
    if (!at_block(parser, "endif"))
        return parser_fail(parser, NP_EINPUT, "{% endif %} is expected");
    parser->at += 2;
    return need_end(parser);
}

static np_status parse_for(struct parser *parser, struct node **out)
{
    TRY(parser_node(parser, NODE_FOR, out));
    struct node *node = *out;
    TRY(parse_target(parser, false, "in", &node->a));
    if (!parser_take_name(parser, "in"))
        return parser_fail(parser, NP_EINPUT, "\"in\" is expected");
    TRY(parse_tuple(parser, false, "recursive", &node->b));
    if (parser_take_name(parser, "if")) TRY(parse_expression(parser, true, &node->c));
    if (parser_is_name(parser->at, "recursive"))
        return template_error(parser->err, parser->at->line, NP_EUNSUPPORTED,
                              "a recursive loop is not supported");
    TRY(need_end(parser));
    parser->n_loops++;
    TRY(parse_body(parser, &node->items));
    parser->n_loops--;
    if (at_block(parser, "else")) {
        parser->at += 2;
        return parse_inside(parser, "endfor", &node->otherwise);
    }
    if (!at_block(parser, "endfor"))
        return parser_fail(parser, NP_EINPUT, "{% endfor %} is expected");
    parser->at += 2;
    return need_end(parser);
}

/* A body that no loop around it can be left from. */
static np_status parse_closed(struct parser *parser, const char *end, struct node **out)
{
    int n_loops = parser->n_loops;
    parser->n_loops = 0;
    TRY(parse_inside(parser, end, out));
    parser->n_loops = n_loops;
    return NP_OK;
}

static np_status parse_set(struct parser *parser, struct node **out)
{
    TRY(parser_node(parser, NODE_SET, out));
    TRY(parse_target(parser, true, NULL, &(*out)->a));
    if (parser_take_op(parser, '=')) {
        TRY(parse_tuple(parser, true, NULL, &(*out)->b));
        return need_end(parser);
    }
    (*out)->kind = NODE_SET_BLOCK;
    if (parser->at->kind == TOKEN_OP && parser->at->op == '|')
        return template_error(parser->err, parser->at->line, NP_EUNSUPPORTED,
                              "a filter on a {%% set %%} block is not supported");
    return parse_closed(parser, "endset", &(*out)->items);
}

static np_status parse_macro(struct parser *parser, struct node **out)
{
    TRY(parser_node(parser, NODE_MACRO, out));
    TRY(parser_name(parser, &(*out)->name));
    TRY(parser_need_op(parser, '('));
    struct node **last = &(*out)->a;
    while (!parser_take_op(parser, ')')) {
        if ((*out)->a) TRY(parser_need_op(parser, ','));
        TRY(parser_node(parser, NODE_KEYWORD, last));
        TRY(parser_name(parser, &(*last)->name));
        if (parser_take_op(parser, '=')) TRY(parse_expression(parser, true, &(*last)->a));
        last = &(*last)->next;
    }
    return parse_closed(parser, "endmacro", &(*out)->items);
}

static np_status parse_generation(struct parser *parser, struct node **out)
{
    TRY(parser_node(parser, NODE_SCOPE, out));
    return parse_closed(parser, "endgeneration", &(*out)->items);
}

static np_status parse_jump(struct parser *parser, struct node **out)
{
    bool is_break = parser_is_name(parser->at - 1, "break");
    TRY(parser_node(parser, is_break ? NODE_BREAK : NODE_CONTINUE, out));
    if (!parser->n_loops)
        return template_error(parser->err, (*out)->line, NP_EINPUT, "{%% %s %%} outside of a loop",
                              is_break ? "break" : "continue");
    return need_end(parser);
}

static np_status parse_statement(struct parser *parser, struct node **out)
{
    static const struct {
        const char *name;
        np_status (*parse)(struct parser *parser, struct node **out); /* NULL: not supported */
    } tags[] = {{"if", parse_if},
                {"for", parse_for},
                {"set", parse_set},
                {"macro", parse_macro},
                {"generation", parse_generation},
                {"break", parse_jump},
                {"continue", parse_jump}};
    const struct lex_token *at = parser->at;
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (parser_take_name(parser, tags[i].name)) return tags[i].parse(parser, out);
    if (at->kind != TOKEN_NAME)
        return parser_fail(parser, NP_EINPUT, "the name of a tag is expected");
    return template_error(parser->err, at->line, NP_EUNSUPPORTED,
                          "the tag {%% %.*s %%} is not supported",
                          at->n_bytes > 40 ? 40 : (int)at->n_bytes, at->bytes);
}

/* A tag that belongs to a block around it ends this body. */
static bool ends_body(const struct parser *parser)
{
    static const char *const names[] = {"elif",   "else",     "endif",        "endfor",
                                        "endset", "endmacro", "endgeneration"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (at_block(parser, names[i])) return true;
    return parser->at->kind == TOKEN_END;
}

static np_status parse_data(struct parser *parser, struct node **out)
{
    const struct lex_token *at = parser->at;
    struct text *text = arena_push(parser->arena, sizeof *text);
    TRY(parser_node(parser, NODE_DATA, out));
    if (!text) return error_nomem(parser->err, "a template", sizeof *text);
    *text = (struct text){at->bytes, at->n_bytes, &text->only, 1, {at->n_bytes, SOURCE_TEMPLATE}};
    (*out)->value = (struct value){.kind = VALUE_TEXT, .text = text};
    parser->at++;
    return NP_OK;
}

np_status parse_body(struct parser *parser, struct node **out)
{
    TRY(parser_enter(parser));
    *out = NULL;
    while (!ends_body(parser)) {
        if (parser->at->kind == TOKEN_DATA) {
            TRY(parse_data(parser, out));
        } else if (parser->at->kind == TOKEN_VAR) {
            TRY(parser_node(parser, NODE_PRINT, out));
            parser->at++;
            TRY(parse_tuple(parser, true, NULL, &(*out)->a));
            if (parser->at->kind != TOKEN_VAR_END)
                return parser_fail(parser, NP_EINPUT, "\"}}\" is expected");
            parser->at++;
        } else {
            parser->at++;
            TRY(parse_statement(parser, out));
        }
        out = &(*out)->next;
    }
    parser->depth--;
    return NP_OK;
}

static np_status compile(struct template *compiled, const char *source, size_t n_bytes,
                         np_error *err)
{
    struct lex_token *tokens;
    TRY(template_lex(&compiled->arena, source, n_bytes, &tokens, err));
    struct parser parser = {.arena = &compiled->arena, .err = err, .at = tokens};
    np_status status = parse_body(&parser, &compiled->body);
    if (!status && parser.at->kind != TOKEN_END) {
        parser.at++;
        status = parser_fail(&parser, NP_EINPUT, "a tag that opens a block is expected");
    }
    mem_free(tokens);
    return status;
}

np_status template_compile(const char *source, size_t n_bytes, struct template **out, np_error *err)
{
    static const char content[] = "content";
    *out = NULL;
    if (n_bytes > TEMPLATE_MAX_SOURCE_BYTES)
        return error_set(err, NP_ELIMIT, "chat_template", NO_OFFSET,
                         "a template of %zu bytes; at most %zu are allowed", n_bytes,
                         TEMPLATE_MAX_SOURCE_BYTES);
    struct template *compiled = mem_alloc(1, sizeof *compiled);
    if (!compiled) return error_nomem(err, "a template", sizeof *compiled);
    arena_init(&compiled->arena, TEMPLATE_MAX_MEMORY_BYTES);
    for (size_t i = 0; i + sizeof content - 1 <= n_bytes; i++)
        if (!memcmp(source + i, content, sizeof content - 1)) compiled->reads_content = true;
    np_status status = compile(compiled, source, n_bytes, err);
    if (status)
        template_free(compiled);
    else
        *out = compiled;
    return status;
}

void template_free(struct template *compiled)
{
    if (!compiled) return;
    arena_free(&compiled->arena);
    mem_free(compiled);
}
