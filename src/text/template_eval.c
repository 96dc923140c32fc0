/*
 * template_eval.c - the value of an expression: one function per kind of node, in a table.
 *
 * An attribute is looked for as Jinja does it: x.name asks for a method first and then for a key,
 * x['name'] the other way round; so message.items is a method, message['items'] a key.
 */
#include "text/template_run.h"

#include <math.h>

static bool is_whole(struct value value)
{
    return value.kind == VALUE_INT || value.kind == VALUE_BOOL;
}

static bool is_list(struct value value)
{
    return value.kind == VALUE_LIST || value.kind == VALUE_TUPLE;
}

static np_status eval_const(struct run *run, const struct node *node, struct value *out)
{
    (void)run;
    *out = node->value;
    return NP_OK;
}

static np_status eval_name(struct run *run, const struct node *node, struct value *out)
{
    scope_find(run, node->name, out);
    return NP_OK;
}

static size_t count(const struct node *node)
{
    size_t n = 0;
    for (; node; node = node->next) n++;
    return n;
}

static np_status eval_list(struct run *run, const struct node *node, struct value *out)
{
    struct value *items;
    enum value_kind kind = node->kind == NODE_TUPLE ? VALUE_TUPLE : VALUE_LIST;
    TRY(value_list(run, count(node->items), kind, out, &items));
    for (const struct node *at = node->items; at; at = at->next) TRY(eval(run, at, items++));
    return NP_OK;
}

static np_status eval_dict(struct run *run, const struct node *node, struct value *out)
{
    struct value key, value;
    struct dict *dict = run_push(run, 1, sizeof *dict);
    if (!dict) return run->status;
    for (const struct node *at = node->items; at; at = at->next->next) {
        TRY(eval(run, at, &key));
        TRY(eval(run, at->next, &value));
        TRY(dict_put(run, dict, key, value));
    }
    *out = (struct value){.kind = VALUE_DICT, .dict = dict};
    return NP_OK;
}

/* ---- parts of values --------------------------------------------------------------------------
 */

static np_status undefined_error(struct run *run, struct value value, const char *what)
{
    return RUN_ERROR(run, NP_EINPUT, "%.*s is undefined, and %s of it is taken",
                     value.n_name > 60 ? 60 : (int)value.n_name, value.name, what);
}

static np_status bind_method(struct run *run, struct value self, const struct builtin *builtin,
                             struct value *out)
{
    struct method *method = run_push(run, 1, sizeof *method);
    if (!method) return run->status;
    *method = (struct method){self, builtin};
    *out = (struct value){.kind = VALUE_METHOD, .method = method};
    return NP_OK;
}

static void loop_attribute(const struct loop *loop, const char *name, struct value *out)
{
    size_t n = loop->items->n, at = loop->at;
    const struct {
        const char *name;
        struct value value;
    } rows[] = {
        {"index", value_int((int64_t)at + 1)},
        {"index0", value_int((int64_t)at)},
        {"revindex", value_int((int64_t)(n - at))},
        {"revindex0", value_int((int64_t)(n - at) - 1)},
        {"first", value_bool(at == 0)},
        {"last", value_bool(at + 1 == n)},
        {"length", value_int((int64_t)n)},
        {"depth", value_int((int64_t)loop->depth)},
        {"depth0", value_int((int64_t)loop->depth - 1)},
        {"previtem", at ? loop->items->items[at - 1] : value_undefined("loop.previtem")},
        {"nextitem", at + 1 < n ? loop->items->items[at + 1] : value_undefined("loop.nextitem")},
    };
    *out = value_undefined(name);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name)) *out = rows[i].value;
}

np_status value_attribute(struct run *run, struct value of, const char *name, size_t n_bytes,
                          struct value *out)
{
    if (of.kind == VALUE_UNDEFINED) return undefined_error(run, of, name);
    const struct builtin *method = method_find(of.kind, name, n_bytes);
    if (method) return bind_method(run, of, method, out);
    struct value *found = NULL;
    *out = value_undefined(name);
    if (of.kind == VALUE_LOOP) loop_attribute(of.loop, name, out);
    if (of.kind == VALUE_DICT || of.kind == VALUE_NAMESPACE)
        found = dict_find(of.dict, name, n_bytes);
    if (found) *out = *found;
    return NP_OK;
}

static np_status eval_attribute(struct run *run, const struct node *node, struct value *out)
{
    struct value of;
    TRY(eval(run, node->a, &of));
    run->line = node->line;
    return value_attribute(run, of, node->name, strlen(node->name), out);
}

/* Element `at` of n, counted from the end where negative; false: there is none. */
static bool find_element(int64_t at, size_t n, size_t *out)
{
    if (at < 0) at += (int64_t)n;
    *out = (size_t)at;
    return at >= 0 && (size_t)at < n;
}

/* An attribute by a name that is not zero-terminated. No attribute has a longer one. */
static np_status item_attribute(struct run *run, struct value of, const struct text *key,
                                struct value *out)
{
    char name[64];
    struct value attribute;
    if (key->n_bytes >= sizeof name) return NP_OK;
    memcpy(name, key->bytes, key->n_bytes);
    name[key->n_bytes] = 0;
    TRY(value_attribute(run, of, name, key->n_bytes, &attribute));
    if (attribute.kind != VALUE_UNDEFINED) *out = attribute;
    return NP_OK;
}

static np_status text_item(struct run *run, const struct text *text, int64_t at, struct value *out)
{
    size_t place;
    TRY(run_step(run, text->n_bytes / 256));
    if (!find_element(at, text_length(text), &place)) return NP_OK;
    return text_slice(run, text, text_place(text, place), text_place(text, place + 1), out);
}

np_status value_item(struct run *run, struct value of, struct value key, struct value *out)
{
    struct value *found = NULL;
    size_t at;
    *out = value_undefined("an element");
    if (of.kind == VALUE_UNDEFINED) return undefined_error(run, of, "an element");
    if (of.kind == VALUE_DICT) TRY(dict_get(run, of.dict, key, &found));
    if (found) return *out = *found, NP_OK;
    if (key.kind == VALUE_TEXT) {
        out->name = key.text->bytes;
        out->n_name = (uint32_t)key.text->n_bytes;
        return item_attribute(run, of, key.text, out);
    }
    if (!is_whole(key)) return NP_OK;
    if (is_list(of) && find_element(key.integer, of.list->n, &at)) *out = of.list->items[at];
    return of.kind == VALUE_TEXT ? text_item(run, of.text, key.integer, out) : NP_OK;
}

/* Python's slice.indices: where a slice of n elements begins, and how many it takes. */
static void slice_bounds(const struct value parts[3], int64_t n, int64_t *begin, int64_t *step,
                         size_t *n_taken)
{
    *step = parts[2].kind == VALUE_INT ? parts[2].integer : 1;
    int64_t bounds[2], low = *step < 0 ? -1 : 0, high = *step < 0 ? n - 1 : n;
    for (int i = 0; i < 2; i++) {
        int64_t at = (i == 0) == (*step > 0) ? low : high;
        if (parts[i].kind == VALUE_INT) {
            at = parts[i].integer;
            if (at < 0) at += n;
            if (at < low) at = low;
            if (at > high) at = high;
        }
        bounds[i] = at;
    }
    *begin = bounds[0];
    int64_t distance = *step > 0 ? bounds[1] - bounds[0] : bounds[0] - bounds[1];
    int64_t stride = *step > 0 ? *step : -*step;
    *n_taken = distance > 0 ? (size_t)((distance - 1) / stride + 1) : 0;
}

static np_status slice_text(struct run *run, const struct text *text, int64_t begin, int64_t step,
                            size_t n, struct value *out)
{
    if (step == 1 || !n) {
        size_t from = text_place(text, (size_t)begin);
        return text_slice(run, text, from,
                          from + (n ? text_place(text, (size_t)begin + n) - from : 0), out);
    }
    struct output output;
    np_status status = NP_OK;
    output_init(&output);
    for (size_t i = 0; i < n && !status; i++) {
        size_t from = text_place(text, (size_t)(begin + (int64_t)i * step));
        size_t to = from + 1;
        while (to < text->n_bytes && ((unsigned char)text->bytes[to] & 0xC0) == 0x80) to++;
        status = run_step(run, 1 + from / 256);
        if (!status) status = output_slice(run, &output, text, from, to);
    }
    if (!status) status = output_take(run, &output, out);
    output_free(&output);
    return status;
}

static np_status value_slice(struct run *run, struct value of, const struct value parts[3],
                             struct value *out)
{
    int64_t begin, step, n;
    size_t n_taken;
    if (of.kind == VALUE_UNDEFINED) return undefined_error(run, of, "a slice");
    if (!is_list(of) && of.kind != VALUE_TEXT)
        return RUN_ERROR(run, NP_EINPUT, "%s has no slices", value_type(of));
    for (int i = 0; i < 3; i++)
        if (parts[i].kind != VALUE_INT && parts[i].kind != VALUE_NONE)
            return RUN_ERROR(run, NP_EINPUT, "%s is no bound of a slice", value_type(parts[i]));
    if (parts[2].kind == VALUE_INT && (!parts[2].integer || parts[2].integer == INT64_MIN))
        return RUN_ERROR(run, NP_EINPUT, "a slice has the step %lld", (long long)parts[2].integer);
    TRY(value_length(run, of, &n));
    slice_bounds(parts, n, &begin, &step, &n_taken);
    if (!is_list(of)) return slice_text(run, of.text, begin, step, n_taken, out);
    struct value *items;
    TRY(value_list(run, n_taken, of.kind, out, &items));
    for (size_t i = 0; i < n_taken; i++) items[i] = of.list->items[begin + (int64_t)i * step];
    return NP_OK;
}

static np_status eval_item(struct run *run, const struct node *node, struct value *out)
{
    struct value of, parts[3];
    TRY(eval(run, node->a, &of));
    if (node->b->kind != NODE_SLICE) {
        TRY(eval(run, node->b, &parts[0]));
        run->line = node->line;
        return value_item(run, of, parts[0], out);
    }
    const struct node *bounds[3] = {node->b->a, node->b->b, node->b->c};
    for (int i = 0; i < 3; i++) {
        parts[i] = value_none();
        if (bounds[i]) TRY(eval(run, bounds[i], &parts[i]));
        if (parts[i].kind == VALUE_BOOL) parts[i].kind = VALUE_INT;
    }
    run->line = node->line;
    return value_slice(run, of, parts, out);
}

/* ---- operators --------------------------------------------------------------------------------
 */

static np_status math_error(struct run *run, int op, struct value left, struct value right)
{
    if (op == '%' && left.kind == VALUE_TEXT)
        return RUN_ERROR(run, NP_EUNSUPPORTED, "%% with a text is not supported");
    if (left.kind == VALUE_UNDEFINED || right.kind == VALUE_UNDEFINED) {
        struct value value = left.kind == VALUE_UNDEFINED ? left : right;
        return RUN_ERROR(run, NP_EINPUT, "%.*s is undefined, and is an operand of %c",
                         value.n_name > 60 ? 60 : (int)value.n_name, value.name, op & 0xFF);
    }
    return RUN_ERROR(run, NP_EINPUT, "%s and %s are no operands of %c", value_type(left),
                     value_type(right), op & 0xFF);
}

static np_status math_ints(struct run *run, int op, int64_t a, int64_t b, struct value *out)
{
    int64_t n = 0;
    bool over = false;
    if (op == '+') over = __builtin_add_overflow(a, b, &n);
    if (op == '-') over = __builtin_sub_overflow(a, b, &n);
    if (op == '*') over = __builtin_mul_overflow(a, b, &n);
    if (op == OP2('/', '/') || op == '%') {
        if (!b) return RUN_ERROR(run, NP_EINPUT, "a division by zero");
        over = b == -1 && a == INT64_MIN;
        int64_t rest = over ? 0 : a % b;
        bool below = rest && (rest < 0) != (b < 0);
        if (!over) n = op == '%' ? rest + (below ? b : 0) : a / b - below;
    }
    if (over) return RUN_ERROR(run, NP_ELIMIT, "a number is above 63 bits");
    *out = value_int(n);
    return NP_OK;
}

static np_status math_floats(struct run *run, int op, double a, double b, struct value *out)
{
    double n = op == '+' ? a + b : op == '-' ? a - b : a * b;
    if (op == '/' || op == '%' || op == OP2('/', '/')) {
        if (b == 0) return RUN_ERROR(run, NP_EINPUT, "a division by zero");
        double rest = fmod(a, b);
        bool below = rest != 0 && (rest < 0) != (b < 0);
        if (op == '/') n = a / b;
        if (op == '%') n = below ? rest + b : rest != 0 ? rest : copysign(0, b);
        if (op == OP2('/', '/')) {
            double quotient = (a - rest) / b - below;
            n = quotient != 0 ? floor(quotient) + (quotient - floor(quotient) > 0.5)
                              : copysign(0, a / b);
        }
    }
    *out = value_float(n);
    return NP_OK;
}

static np_status repeat(struct run *run, struct value what, int64_t n, struct value *out)
{
    if (n < 0) n = 0;
    if (what.kind != VALUE_TEXT) {
        struct value *items;
        size_t each = what.list->n;
        if (each && (uint64_t)n > TEMPLATE_MAX_STEPS / each)
            return run_step(run, TEMPLATE_MAX_STEPS + 1);
        TRY(run_step(run, (size_t)n * each));
        TRY(value_list(run, (size_t)n * each, what.kind, out, &items));
        for (size_t i = 0; i < (size_t)n * each; i++) items[i] = what.list->items[i % each];
        return NP_OK;
    }
    struct output output;
    np_status status = NP_OK;
    output_init(&output);
    for (int64_t i = 0; i < n && what.text->n_bytes && !status; i++) {
        status = run_step(run, 1);
        if (!status) status = output_text(run, &output, what.text);
    }
    if (!status) status = output_take(run, &output, out);
    output_free(&output);
    return status;
}

static bool is_sequence(struct value value)
{
    return value.kind == VALUE_TEXT || is_list(value);
}

static np_status add_lists(struct run *run, struct value left, struct value right,
                           struct value *out)
{
    struct value *items;
    size_t n = left.list->n, m = right.list->n;
    TRY(value_list(run, n + m, left.kind, out, &items));
    if (n) memcpy(items, left.list->items, n * sizeof *items);
    if (m) memcpy(items + n, right.list->items, m * sizeof *items);
    return NP_OK;
}

static np_status math_sequences(struct run *run, int op, struct value left, struct value right,
                                struct value *out)
{
    if (op == '+' && left.kind == right.kind && is_list(left))
        return add_lists(run, left, right, out);
    if (op == '+' && left.kind == right.kind && is_sequence(left))
        return text_join(run, left.text, right.text, out);
    if (op == '*' && is_sequence(left) && is_whole(right))
        return repeat(run, left, right.integer, out);
    if (op == '*' && is_sequence(right) && is_whole(left))
        return repeat(run, right, left.integer, out);
    return math_error(run, op, left, right);
}

static np_status eval_math(struct run *run, const struct node *node, struct value *out)
{
    struct value left, right;
    TRY(eval(run, node->a, &left));
    TRY(eval(run, node->b, &right));
    run->line = node->line;
    if (!value_is_number(left) || !value_is_number(right))
        return math_sequences(run, node->op, left, right, out);
    if (is_whole(left) && is_whole(right) && node->op != '/')
        return math_ints(run, node->op, left.integer, right.integer, out);
    return math_floats(run, node->op, value_number(left), value_number(right), out);
}

static np_status eval_sign(struct run *run, const struct node *node, struct value *out)
{
    struct value value;
    TRY(eval(run, node->a, &value));
    run->line = node->line;
    bool negative = node->kind == NODE_NEG;
    if (value.kind == VALUE_FLOAT)
        return *out = value_float(negative ? -value.number : value.number), NP_OK;
    if (is_whole(value)) return math_ints(run, negative ? '-' : '+', 0, value.integer, out);
    return math_error(run, negative ? '-' : '+', value, value);
}

static np_status eval_not(struct run *run, const struct node *node, struct value *out)
{
    struct value value;
    TRY(eval(run, node->a, &value));
    *out = value_bool(!value_true(value));
    return NP_OK;
}

static np_status eval_logic(struct run *run, const struct node *node, struct value *out)
{
    TRY(eval(run, node->a, out));
    return value_true(*out) == (node->kind == NODE_OR) ? NP_OK : eval(run, node->b, out);
}

static np_status compare(struct run *run, int op, struct value left, struct value right, bool *is)
{
    int order = 0;
    const char name[3] = {(char)(op & 0xFF), (char)(op >> 8), 0};
    if (op == 'i' || op == 'n') {
        TRY(value_contains(run, right, left, is));
        *is = *is == (op == 'i');
        return NP_OK;
    }
    if (op == OP2('=', '=') || op == OP2('!', '=')) {
        TRY(value_equal(run, left, right, is));
        *is = *is == (op == OP2('=', '='));
        return NP_OK;
    }
    TRY(value_order(run, left, right, name, &order));
    *is = (op & 0xFF) == '<' ? order < 0 : order > 0;
    if (op > 0xFF && !order) TRY(value_equal(run, left, right, is));
    return NP_OK;
}

static np_status eval_compare(struct run *run, const struct node *node, struct value *out)
{
    struct value left, right;
    bool is = true;
    TRY(eval(run, node->a, &left));
    for (const struct node *at = node->items; at && is; at = at->next) {
        TRY(eval(run, at->a, &right));
        run->line = at->line;
        TRY(compare(run, at->op, left, right, &is));
        left = right;
    }
    *out = value_bool(is);
    return NP_OK;
}

static np_status eval_concat(struct run *run, const struct node *node, struct value *out)
{
    struct output output;
    struct value value;
    np_status status = NP_OK;
    output_init(&output);
    for (const struct node *at = node->items; at && !status; at = at->next) {
        status = eval(run, at, &value);
        if (!status) status = output_value(run, &output, value);
    }
    if (!status) status = output_take(run, &output, out);
    output_free(&output);
    return status;
}

static np_status eval_condition(struct run *run, const struct node *node, struct value *out)
{
    struct value is;
    TRY(eval(run, node->a, &is));
    if (value_true(is)) return eval(run, node->b, out);
    *out = value_undefined("what an inline if without else gives");
    return node->c ? eval(run, node->c, out) : NP_OK;
}

/* ---- calls ------------------------------------------------------------------------------------
 */

static np_status eval_arguments(struct run *run, const struct node *items, struct arguments *out)
{
    size_t n = count(items);
    *out = (struct arguments){0};
    if (!n) return NP_OK;
    out->given = run_push(run, n, sizeof *out->given);
    out->named = out->given ? run_push(run, n, sizeof *out->named) : NULL;
    if (!out->named) return run->status;
    for (; items; items = items->next) {
        if (items->kind != NODE_KEYWORD) {
            TRY(eval(run, items, &out->given[out->n_given++]));
            continue;
        }
        struct named_value *named = &out->named[out->n_named++];
        named->name = items->name;
        TRY(eval(run, items->a, &named->value));
    }
    return NP_OK;
}

static np_status eval_call(struct run *run, const struct node *node, struct value *out)
{
    struct value callee;
    struct arguments arguments;
    TRY(eval(run, node->a, &callee));
    TRY(eval_arguments(run, node->items, &arguments));
    run->line = node->line;
    if (callee.kind == VALUE_UNDEFINED)
        return RUN_ERROR(run, NP_EINPUT, "%.*s is undefined, and is called",
                         callee.n_name > 60 ? 60 : (int)callee.n_name, callee.name);
    return value_call(run, callee, &arguments, out);
}

static np_status eval_filter(struct run *run, const struct node *node, struct value *out)
{
    struct call call = {.builtin = node->builtin};
    TRY(eval(run, node->a, &call.self));
    TRY(eval_arguments(run, node->items, &call.arguments));
    run->line = node->line;
    return builtin_call(run, &call, out);
}

np_status eval(struct run *run, const struct node *node, struct value *out)
{
    static np_status (*const kinds[NODE_EXPRESSIONS])(struct run *, const struct node *,
                                                      struct value *) = {
        [NODE_CONST] = eval_const,    [NODE_NAME] = eval_name,       [NODE_LIST] = eval_list,
        [NODE_TUPLE] = eval_list,     [NODE_DICT] = eval_dict,       [NODE_ATTR] = eval_attribute,
        [NODE_ITEM] = eval_item,      [NODE_CALL] = eval_call,       [NODE_FILTER] = eval_filter,
        [NODE_TEST] = eval_filter,    [NODE_NOT] = eval_not,         [NODE_NEG] = eval_sign,
        [NODE_POS] = eval_sign,       [NODE_AND] = eval_logic,       [NODE_OR] = eval_logic,
        [NODE_MATH] = eval_math,      [NODE_COMPARE] = eval_compare, [NODE_CONCAT] = eval_concat,
        [NODE_COND] = eval_condition,
    };
    run->line = node->line;
    TRY(run_enter(run));
    np_status status = kinds[node->kind](run, node, out);
    run_leave(run);
    return status;
}
