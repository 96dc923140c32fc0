/*
 * template_run.h - a rendering: scopes, calls, limits.
 */
#ifndef TEXT_TEMPLATE_RUN_H
#define TEXT_TEMPLATE_RUN_H

#include "text/template_node.h"

struct binding {
    const char *name;
    struct value value;
    struct binding *next;
};
struct scope {
    struct scope *parent;
    struct binding *first;
};

struct run {
    struct arena arena;
    np_error *err;
    np_status status; /* of the last failure */
    uint32_t line;
    uint64_t n_steps;
    int depth;
    enum { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE } jump;
    size_t loop_depth;
    struct scope *scope;
    struct output *out;
    int64_t now;
};

/* Arguments as they stand in a call, and as a builtin gets them. */
struct named_value {
    const char *name;
    struct value value;
};
struct arguments {
    struct value *given;
    size_t n_given;
    struct named_value *named;
    size_t n_named;
};
#define BUILTIN_MAX_PARAMETERS 4
struct call {
    const struct builtin *builtin;
    struct value self; /* what a filter, a test or a method is applied to */
    struct arguments arguments;
    struct value slots[BUILTIN_MAX_PARAMETERS]; /* by parameter; MISSING where not given */
};
/* A filter, a test, a method or a global function: one row of a table. */
struct builtin {
    const char *name;
    /* "old new count": at most four, filled from `arguments`; NULL: the function reads those */
    const char *parameters;
    size_t n_needed;
    np_status (*run)(struct run *run, const struct call *call, struct value *out);
};

/* The same with the run's line; returns the status and keeps it. */
#define RUN_ERROR(run, code, ...) \
    ((run)->status = template_error((run)->err, (run)->line, code, __VA_ARGS__))

void *run_push(struct run *run, size_t count, size_t size_bytes); /* NULL: run->status says why */
np_status run_step(struct run *run, size_t n);
np_status run_enter(struct run *run);
static inline void run_leave(struct run *run)
{
    run->depth--;
}

/* template_run.c */
np_status run_body(struct run *run, const struct node *body);
np_status run_macro(struct run *run, const struct macro *macro, const struct arguments *arguments,
                    struct value *out);
void scope_find(struct run *run, const char *name, struct value *out);
np_status scope_set(struct run *run, struct scope *scope, const char *name, struct value value);

/* template_eval.c */
np_status eval(struct run *run, const struct node *node, struct value *out);
np_status value_attribute(struct run *run, struct value of, const char *name, size_t n_bytes,
                          struct value *out);
np_status value_item(struct run *run, struct value of, struct value key, struct value *out);

/* template_call.c */
np_status builtin_call(struct run *run, struct call *call, struct value *out);
np_status value_call(struct run *run, struct value callee, const struct arguments *arguments,
                     struct value *out);
const struct builtin *filter_find(const char *name, size_t n_bytes);
const struct builtin *test_find(const char *name, size_t n_bytes);
const struct builtin *global_find(const char *name, size_t n_bytes);
/* The method of a value of that kind; of any kind: VALUE_MISSING. */
const struct builtin *method_find(enum value_kind kind, const char *name, size_t n_bytes);
extern const struct builtin template_filters[], template_tests[], template_globals[];

#endif
