/*
 * template_node.h - a template as tokens and as a tree, and how it becomes one.
 */
#ifndef TEXT_TEMPLATE_NODE_H
#define TEXT_TEMPLATE_NODE_H

#include "text/template_value.h"

enum token_kind {
    TOKEN_END,
    TOKEN_DATA,
    TOKEN_VAR,
    TOKEN_VAR_END,
    TOKEN_BLOCK,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_TEXT,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OP
};

/* Of the source: bytes are borrowed from it, or (a text) written anew. */
struct lex_token {
    enum token_kind kind;
    uint32_t line;
    int op; /* OP2('=', '=') or one character */
    const char *bytes;
    size_t n_bytes;
    int64_t integer;
    double number;
};
#define OP2(a, b) ((a) | (b) << 8)

enum node_kind {
    NODE_CONST,
    NODE_NAME,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,
    NODE_ATTR,
    NODE_ITEM,
    NODE_SLICE,
    NODE_CALL,
    NODE_KEYWORD,
    NODE_FILTER,
    NODE_TEST,
    NODE_NOT,
    NODE_NEG,
    NODE_POS,
    NODE_AND,
    NODE_OR,
    NODE_MATH,
    NODE_COMPARE,
    NODE_OPERAND,
    NODE_CONCAT,
    NODE_COND,
    NODE_EXPRESSIONS, /* their number */
    NODE_DATA = NODE_EXPRESSIONS,
    NODE_PRINT,
    NODE_IF,
    NODE_FOR,
    NODE_SET,
    NODE_SET_BLOCK,
    NODE_MACRO,
    NODE_SCOPE,
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_KINDS
};

struct node {
    enum node_kind kind;
    uint32_t line;
    int op;
    const struct builtin *builtin; /* FILTER, TEST */
    struct value value;            /* CONST, DATA */
    const char *name;              /* zero-terminated */
    struct node *a, *b, *c;        /* operands */
    struct node *items;            /* arguments, elements, operands; a body */
    struct node *otherwise;        /* the body of an else */
    struct node *next;             /* in the list that holds it */
};

struct template
{
    struct arena arena;
    struct node *body;
    bool reads_content; /* "content" stands in the source */
};

/* "line 7: ..." */
np_status template_error(np_error *err, uint32_t line, np_status status, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

/* template_lex.c. The tokens, ended by TOKEN_END, are freed with mem_free. */
np_status template_lex(struct arena *arena, const char *source, size_t n_bytes,
                       struct lex_token **out, np_error *err);

/* template_parse.c (statements) and template_expr.c. */
struct parser {
    struct arena *arena;
    np_error *err;
    const struct lex_token *at;
    int depth, n_loops;
};
np_status parser_fail(struct parser *parser, np_status status, const char *what);
np_status parser_node(struct parser *parser, enum node_kind kind, struct node **out);
bool parser_take_op(struct parser *parser, int op);
bool parser_take_name(struct parser *parser, const char *name);
bool parser_is_name(const struct lex_token *token, const char *name);
np_status parser_need_op(struct parser *parser, int op);
np_status parser_name(struct parser *parser, const char **out);
np_status parser_enter(struct parser *parser);
np_status parse_expression(struct parser *parser, bool with_condition, struct node **out);
/* One expression, or a tuple without parentheses; `end` is a name that ends it, or NULL. */
np_status parse_tuple(struct parser *parser, bool with_condition, const char *end,
                      struct node **out);
/* What may stand left of "=": names, tuples of them, and where `attributes`, ns.name. */
np_status parse_target(struct parser *parser, bool attributes, const char *end, struct node **out);
np_status parse_body(struct parser *parser, struct node **out);

#endif
