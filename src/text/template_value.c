/*
 * template_value.c - values of a template: truth, equality, order, what is in what.
 *
 * They behave as Python's: True == 1, a list is no tuple, texts are ordered by code points (which
 * is the order of their UTF-8), what has no order or no length is an error with its line.
 */
#include "text/template_run.h"

#define STEP_BYTES 256

/* ---- what a rendering may use -----------------------------------------------------------------
 */

void *run_push(struct run *run, size_t count, size_t size_bytes)
{
    void *memory = arena_push_array(&run->arena, count ? count : 1, size_bytes);
    if (memory) return memory;
    bool full = count > TEMPLATE_MAX_MEMORY_BYTES / size_bytes ||
                run->arena.used_bytes + count * size_bytes + 64 > run->arena.max_bytes;
    if (full)
        RUN_ERROR(run, NP_ELIMIT, "the values of a rendering need more than %zu bytes",
                  run->arena.max_bytes);
    else
        run->status = error_nomem(run->err, "a chat template", count * size_bytes);
    return NULL;
}

np_status run_step(struct run *run, size_t n)
{
    run->n_steps += n;
    if (run->n_steps <= TEMPLATE_MAX_STEPS) return NP_OK;
    return RUN_ERROR(run, NP_ELIMIT, "rendering takes more than %llu steps",
                     (unsigned long long)TEMPLATE_MAX_STEPS);
}

np_status run_enter(struct run *run)
{
    if (run->depth >= TEMPLATE_MAX_DEPTH)
        return RUN_ERROR(run, NP_ELIMIT, "macros or values are nested more than %d deep",
                         TEMPLATE_MAX_DEPTH);
    run->depth++;
    return run_step(run, 1);
}

/* ---- one value --------------------------------------------------------------------------------
 */

const char *value_type(struct value value)
{
    static const char *const names[VALUE_KINDS] = {"nothing",     "an undefined value",
                                                   "None",        "a bool",
                                                   "an int",      "a float",
                                                   "a text",      "a list",
                                                   "a tuple",     "a dict",
                                                   "a view",      "an iterator",
                                                   "a namespace", "a loop",
                                                   "a macro",     "a method",
                                                   "a function"};
    return names[value.kind];
}

bool value_true(struct value value)
{
    switch (value.kind) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
    case VALUE_NONE: return false;
    case VALUE_BOOL:
    case VALUE_INT: return value.integer != 0;
    case VALUE_FLOAT: return value.number != 0;
    case VALUE_TEXT: return value.text->n_bytes > 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_VIEW: return value.list->n > 0;
    case VALUE_DICT: return value.dict->n > 0;
    default: return true;
    }
}

bool value_is_number(struct value value)
{
    return value.kind == VALUE_BOOL || value.kind == VALUE_INT || value.kind == VALUE_FLOAT;
}

double value_number(struct value value)
{
    return value.kind == VALUE_FLOAT ? value.number : (double)value.integer;
}

static bool is_list(struct value value)
{
    return value.kind == VALUE_LIST || value.kind == VALUE_TUPLE;
}

np_status value_list(struct run *run, size_t n, enum value_kind kind, struct value *out,
                     struct value **items)
{
    struct list *list = run_push(run, 1, sizeof *list);
    *items = list ? run_push(run, n, sizeof **items) : NULL;
    if (!*items) return run->status;
    *list = (struct list){*items, n};
    *out = (struct value){.kind = kind, .list = list};
    return run_step(run, n / 16);
}

/* ---- two values -------------------------------------------------------------------------------
 */

static int number_order(struct value left, struct value right)
{
    if (left.kind != VALUE_FLOAT && right.kind != VALUE_FLOAT)
        return (left.integer > right.integer) - (left.integer < right.integer);
    double a = value_number(left), b = value_number(right);
    return (a > b) - (a < b);
}

static int text_order(const struct text *left, const struct text *right)
{
    size_t n = left->n_bytes < right->n_bytes ? left->n_bytes : right->n_bytes;
    int order = memcmp(left->bytes, right->bytes, n);
    if (order) return order;
    return (left->n_bytes > right->n_bytes) - (left->n_bytes < right->n_bytes);
}

/* Whether its elements stand in a list. */
static bool has_list(struct value value)
{
    return is_list(value) || value.kind == VALUE_VIEW;
}

static np_status lists_equal(struct run *run, const struct list *left, const struct list *right,
                             bool *out)
{
    *out = left->n == right->n;
    for (size_t i = 0; *out && i < left->n; i++)
        TRY(value_equal(run, left->items[i], right->items[i], out));
    return NP_OK;
}

static np_status dicts_equal(struct run *run, const struct dict *left, const struct dict *right,
                             bool *out)
{
    *out = left->n == right->n;
    for (size_t i = 0; *out && i < left->n; i++) {
        struct value *other;
        TRY(dict_get(run, right, left->pairs[i].key, &other));
        *out = other != NULL;
        if (other) TRY(value_equal(run, left->pairs[i].value, *other, out));
    }
    return NP_OK;
}

np_status value_equal(struct run *run, struct value left, struct value right, bool *out)
{
    TRY(run_enter(run));
    np_status status = NP_OK;
    *out = false;
    if (value_is_number(left) && value_is_number(right)) {
        double a = value_number(left), b = value_number(right);
        *out = !number_order(left, right) && (a <= b || a >= b); /* NaN equals nothing */
    } else if (left.kind != right.kind) {
        *out = false;
    } else if (left.kind == VALUE_TEXT) {
        *out = !text_order(left.text, right.text);
        status = run_step(run, left.text->n_bytes / STEP_BYTES);
    } else if (is_list(left)) {
        status = lists_equal(run, left.list, right.list, out);
    } else if (left.kind == VALUE_DICT) {
        status = dicts_equal(run, left.dict, right.dict, out);
    } else {
        *out = left.kind <= VALUE_NONE || left.dict == right.dict;
    }
    run_leave(run);
    return status;
}

static np_status lists_order(struct run *run, const struct list *left, const struct list *right,
                             const char *op, int *order)
{
    for (size_t i = 0; i < left->n && i < right->n; i++) {
        bool equal;
        TRY(value_equal(run, left->items[i], right->items[i], &equal));
        if (!equal) return value_order(run, left->items[i], right->items[i], op, order);
    }
    *order = (left->n > right->n) - (left->n < right->n);
    return NP_OK;
}

np_status value_order(struct run *run, struct value left, struct value right, const char *op,
                      int *order)
{
    TRY(run_enter(run));
    np_status status = NP_OK;
    if (value_is_number(left) && value_is_number(right))
        *order = number_order(left, right);
    else if (left.kind == VALUE_TEXT && right.kind == VALUE_TEXT)
        *order = text_order(left.text, right.text);
    else if (is_list(left) && left.kind == right.kind)
        status = lists_order(run, left.list, right.list, op, order);
    else
        status = RUN_ERROR(run, NP_EINPUT, "%s and %s have no order, which %s needs",
                           value_type(left), value_type(right), op);
    run_leave(run);
    return status;
}

np_status value_contains(struct run *run, struct value in, struct value what, bool *out)
{
    *out = false;
    if (in.kind == VALUE_UNDEFINED) return NP_OK;
    if (in.kind == VALUE_TEXT && what.kind == VALUE_TEXT) {
        *out = text_find(in.text, 0, what.text) != SIZE_MAX;
        return run_step(run, in.text->n_bytes / STEP_BYTES);
    }
    if (in.kind == VALUE_DICT) {
        struct value *found;
        TRY(dict_get(run, in.dict, what, &found));
        *out = found != NULL;
        return NP_OK;
    }
    if (in.kind == VALUE_ITERATOR) {
        struct iterator *iterator = in.iterator;
        while (iterator->at < iterator->list->n && !*out)
            TRY(value_equal(run, iterator->list->items[iterator->at++], what, out));
        return NP_OK;
    }
    if (!has_list(in))
        return RUN_ERROR(run, NP_EINPUT, "%s cannot be looked for in %s", value_type(what),
                         value_type(in));
    for (size_t i = 0; i < in.list->n && !*out; i++)
        TRY(value_equal(run, in.list->items[i], what, out));
    return NP_OK;
}

/* ---- dicts ------------------------------------------------------------------------------------
 */

struct value *dict_find(const struct dict *dict, const char *key, size_t n_bytes)
{
    for (size_t i = 0; i < dict->n; i++) {
        const struct value *at = &dict->pairs[i].key;
        if (at->kind == VALUE_TEXT && at->text->n_bytes == n_bytes &&
            !memcmp(at->text->bytes, key, n_bytes))
            return &dict->pairs[i].value;
    }
    return NULL;
}

np_status dict_get(struct run *run, const struct dict *dict, struct value key, struct value **out)
{
    bool equal = false;
    *out = NULL;
    if (key.kind == VALUE_LIST || key.kind == VALUE_DICT)
        return RUN_ERROR(run, NP_EINPUT, "%s cannot be a key", value_type(key));
    for (size_t i = 0; i < dict->n && !equal; i++) {
        TRY(value_equal(run, dict->pairs[i].key, key, &equal));
        if (equal) *out = &dict->pairs[i].value;
    }
    return NP_OK;
}

np_status dict_put(struct run *run, struct dict *dict, struct value key, struct value value)
{
    struct value *old;
    TRY(dict_get(run, dict, key, &old));
    if (old) return *old = value, NP_OK;
    if (dict->n == dict->n_allocated) {
        size_t n = dict->n_allocated ? 2 * dict->n_allocated : 4;
        struct pair *pairs = run_push(run, n, sizeof *pairs);
        if (!pairs) return run->status;
        if (dict->n) memcpy(pairs, dict->pairs, dict->n * sizeof *pairs);
        dict->pairs = pairs;
        dict->n_allocated = n;
    }
    dict->pairs[dict->n++] = (struct pair){key, value};
    return NP_OK;
}

/* ---- as a sequence ----------------------------------------------------------------------------
 */

static np_status characters(struct run *run, const struct text *text, struct value *out)
{
    struct value *items;
    TRY(value_list(run, text_length(text), VALUE_LIST, out, &items));
    for (size_t at = 0, next; at < text->n_bytes; at = next) {
        next = at + 1;
        while (next < text->n_bytes && ((unsigned char)text->bytes[next] & 0xC0) == 0x80) next++;
        TRY(run_step(run, 1));
        TRY(text_slice(run, text, at, next, items++));
    }
    return NP_OK;
}

np_status value_iterator(struct run *run, const struct list *list, struct value *out)
{
    struct iterator *iterator = run_push(run, 1, sizeof *iterator);
    if (!iterator) return run->status;
    iterator->list = list;
    *out = (struct value){.kind = VALUE_ITERATOR, .iterator = iterator};
    return NP_OK;
}

/* What is left of an iterator. */
static np_status take_rest(struct run *run, struct iterator *iterator, struct value *out)
{
    struct value *items;
    size_t n = iterator->list->n - iterator->at;
    TRY(value_list(run, n, VALUE_LIST, out, &items));
    if (n) memcpy(items, iterator->list->items + iterator->at, n * sizeof *items);
    iterator->at = iterator->list->n;
    return NP_OK;
}

np_status value_iterate(struct run *run, struct value value, const struct list **out)
{
    struct value list = value, *items;
    if (value.kind == VALUE_TEXT) {
        TRY(characters(run, value.text, &list));
    } else if (value.kind == VALUE_DICT) {
        TRY(value_list(run, value.dict->n, VALUE_LIST, &list, &items));
        for (size_t i = 0; i < value.dict->n; i++) items[i] = value.dict->pairs[i].key;
    } else if (value.kind == VALUE_ITERATOR) {
        TRY(take_rest(run, value.iterator, &list));
    } else if (value.kind == VALUE_UNDEFINED) {
        TRY(value_list(run, 0, VALUE_LIST, &list, &items));
    } else if (!has_list(value)) {
        return RUN_ERROR(run, NP_EINPUT, "%s has no elements", value_type(value));
    }
    *out = list.list;
    return NP_OK;
}

np_status value_length(struct run *run, struct value value, int64_t *out)
{
    *out = 0;
    if (value.kind == VALUE_TEXT) {
        *out = (int64_t)text_length(value.text);
        return run_step(run, value.text->n_bytes / STEP_BYTES);
    }
    if (value.kind == VALUE_DICT)
        *out = (int64_t)value.dict->n;
    else if (has_list(value))
        *out = (int64_t)value.list->n;
    else if (value.kind == VALUE_LOOP)
        *out = (int64_t)value.loop->items->n;
    else if (value.kind != VALUE_UNDEFINED)
        return RUN_ERROR(run, NP_EINPUT, "%s has no length", value_type(value));
    return NP_OK;
}
