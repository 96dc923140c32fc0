/*
 * template_value.h - values of a template, and what may be done with them.
 */
#ifndef TEXT_TEMPLATE_VALUE_H
#define TEXT_TEMPLATE_VALUE_H

#include "base/arena.h"
#include "text/template.h"
#include "text/template_text.h"

enum value_kind {
    VALUE_MISSING, /* no value at all: an argument that was not given */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_TEXT,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    VALUE_VIEW,     /* what a dict's items() gives: a list without indices */
    VALUE_ITERATOR, /* gives its elements once */
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_METHOD,
    VALUE_GLOBAL,
    VALUE_KINDS
};

struct value {
    enum value_kind kind;
    uint32_t n_name; /* UNDEFINED: bytes of `name` */
    union {
        int64_t integer; /* BOOL too */
        double number;
        const struct text *text;
        const struct list *list; /* TUPLE, VIEW too */
        struct dict *dict;       /* NAMESPACE too */
        struct iterator *iterator;
        const struct loop *loop;
        const struct macro *macro;
        const struct method *method;
        const struct builtin *global;
        const char *name; /* UNDEFINED: of what; for errors */
    };
};
struct list {
    struct value *items;
    size_t n;
};
struct iterator {
    const struct list *list;
    size_t at;
};
struct pair {
    struct value key, value;
};
struct dict {
    struct pair *pairs; /* in the order of insertion */
    size_t n, n_allocated;
};
struct loop {
    const struct list *items;
    size_t at, depth;
};
struct macro {
    const struct node *node;
    struct scope *scope;
};
struct method {
    struct value self;
    const struct builtin *builtin;
};

/* template_value.c */
const char *value_type(struct value value); /* as Python names it */
bool value_true(struct value value);
bool value_is_number(struct value value); /* BOOL too */
double value_number(struct value value);
np_status value_equal(struct run *run, struct value left, struct value right, bool *out);
/* *order below, at or above 0; `op` is named where the values have no order. */
np_status value_order(struct run *run, struct value left, struct value right, const char *op,
                      int *order);
np_status value_contains(struct run *run, struct value in, struct value what, bool *out);
np_status value_list(struct run *run, size_t n, enum value_kind kind, struct value *out,
                     struct value **items);
/* What a loop over it gives; an iterator is then at its end. */
np_status value_iterate(struct run *run, struct value value, const struct list **out);
np_status value_iterator(struct run *run, const struct list *list, struct value *out);
np_status value_length(struct run *run, struct value value, int64_t *out);
struct value *dict_find(const struct dict *dict, const char *key, size_t n_bytes);
np_status dict_get(struct run *run, const struct dict *dict, struct value key, struct value **out);
np_status dict_put(struct run *run, struct dict *dict, struct value key, struct value value);

static inline struct value value_bool(bool is)
{
    return (struct value){.kind = VALUE_BOOL, .integer = is};
}
static inline struct value value_int(int64_t n)
{
    return (struct value){.kind = VALUE_INT, .integer = n};
}
static inline struct value value_float(double n)
{
    return (struct value){.kind = VALUE_FLOAT, .number = n};
}
static inline struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE};
}
/* `name` is told in errors; it must live as long as the rendering. */
static inline struct value value_undefined(const char *name)
{
    return (struct value){.kind = VALUE_UNDEFINED, .n_name = (uint32_t)strlen(name), .name = name};
}

#endif
