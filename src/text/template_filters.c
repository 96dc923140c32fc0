/*
 * template_filters.c - filters: value|name(arguments).
 *
 * map, select and their like give an iterator, as Jinja's do: it has no length, and is empty once
 * it has been looped over.
 */
#include "text/template_run.h"

#include <math.h>

static bool is_list(struct value value)
{
    return value.kind == VALUE_LIST || value.kind == VALUE_TUPLE;
}

static bool given(struct value value)
{
    return value.kind != VALUE_MISSING;
}

/* Calls a method of texts on str(self), with the arguments of the call. */
static np_status as_method(struct run *run, const struct call *call, const char *name,
                           struct value *out)
{
    struct call inner = {.builtin = method_find(VALUE_TEXT, name, strlen(name))};
    const struct text *text;
    TRY(text_of(run, call->self, &text));
    inner.self = (struct value){.kind = VALUE_TEXT, .text = text};
    inner.arguments = call->arguments;
    return builtin_call(run, &inner, out);
}

/* ---- texts ------------------------------------------------------------------------------------
 */

static np_status filter_trim(struct run *run, const struct call *call, struct value *out)
{
    return as_method(run, call, "strip", out);
}

static np_status filter_case(struct run *run, const struct call *call, struct value *out)
{
    static const struct {
        const char *name;
        enum text_case wanted;
    } cases[] = {{"upper", CASE_UPPER},
                 {"lower", CASE_LOWER},
                 {"capitalize", CASE_CAPITALIZE},
                 {"title", CASE_WORDS}};
    const struct text *text;
    TRY(text_of(run, call->self, &text));
    size_t i = 0;
    while (strcmp(cases[i].name, call->builtin->name)) i++;
    return text_case(run, text, cases[i].wanted, out);
}

static np_status filter_string(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text;
    TRY(text_of(run, call->self, &text));
    *out = (struct value){.kind = VALUE_TEXT, .text = text};
    return NP_OK;
}

static np_status filter_replace(struct run *run, const struct call *call, struct value *out)
{
    const struct text *old, *new;
    struct value given_values[3];
    struct call inner = *call;
    TRY(text_of(run, call->slots[0], &old));
    TRY(text_of(run, call->slots[1], &new));
    given_values[0] = (struct value){.kind = VALUE_TEXT, .text = old};
    given_values[1] = (struct value){.kind = VALUE_TEXT, .text = new};
    given_values[2] = call->slots[2];
    bool counted = given(call->slots[2]) && call->slots[2].kind != VALUE_NONE;
    inner.arguments = (struct arguments){.given = given_values, .n_given = counted ? 3 : 2};
    return as_method(run, &inner, "replace", out);
}

static np_status indent_lines(struct run *run, const struct list *lines, const struct text *indent,
                              bool first, bool blank, struct output *out)
{
    if (first) TRY(output_text(run, out, indent));
    for (size_t i = 0; i < lines->n; i++) {
        const struct text *line = lines->items[i].text;
        if (i) TRY(output_push(run, out, "\n", 1, SOURCE_TEMPLATE));
        if (i && (blank || line->n_bytes)) TRY(output_text(run, out, indent));
        TRY(output_text(run, out, line));
    }
    return NP_OK;
}

static np_status filter_indent(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text;
    struct value indent = call->slots[0], lines, spaces, newline;
    struct call inner = {.builtin = method_find(VALUE_TEXT, "splitlines", 10)};
    struct output output;
    int64_t width = indent.kind == VALUE_INT ? indent.integer : 4;
    text = call->self.text;
    if (call->self.kind != VALUE_TEXT)
        return RUN_ERROR(run, NP_EINPUT, "%s has no lines to indent", value_type(call->self));
    if (indent.kind != VALUE_TEXT) {
        static const char blanks[] = "                                ";
        if (width > (int64_t)sizeof blanks - 1)
            return RUN_ERROR(run, NP_ELIMIT, "indent by more than %zu", sizeof blanks - 1);
        TRY(text_new(run, blanks, width > 0 ? (size_t)width : 0, SOURCE_TEMPLATE, &spaces));
        indent = spaces;
    }
    TRY(text_new(run, "\n", 1, SOURCE_TEMPLATE, &newline));
    TRY(text_join(run, text, newline.text, &inner.self));
    TRY(builtin_call(run, &inner, &lines));
    output_init(&output);
    np_status status = indent_lines(run, lines.list, indent.text,
                                    given(call->slots[1]) && value_true(call->slots[1]),
                                    given(call->slots[2]) && value_true(call->slots[2]), &output);
    if (!status) status = output_take(run, &output, out);
    output_free(&output);
    return status;
}

static np_status filter_tojson(struct run *run, const struct call *call, struct value *out)
{
    /* ensure_ascii indent separators sort_keys */
    const struct value *slots = call->slots;
    struct json_style style = {.ascii = given(slots[0]) && value_true(slots[0]),
                               .sort_keys = given(slots[3]) && value_true(slots[3])};
    if (slots[1].kind == VALUE_INT) {
        style.has_indent = true;
        style.indent = slots[1].integer > 64  ? 64
                       : slots[1].integer < 0 ? 0
                                              : (int)slots[1].integer;
    } else if (slots[1].kind == VALUE_TEXT) {
        style.has_indent = true;
        style.indent_text = slots[1].text;
    }
    if (given(slots[2]) && slots[2].kind != VALUE_NONE) {
        if (!is_list(slots[2]) || slots[2].list->n != 2 ||
            slots[2].list->items[0].kind != VALUE_TEXT ||
            slots[2].list->items[1].kind != VALUE_TEXT)
            return RUN_ERROR(run, NP_EINPUT, "separators must be two texts");
        style.item = slots[2].list->items[0].text;
        style.key = slots[2].list->items[1].text;
    }
    struct output output;
    output_init(&output);
    np_status status = output_json(run, &output, call->self, &style);
    if (!status) status = output_take(run, &output, out);
    output_free(&output);
    return status;
}

/* ---- numbers ----------------------------------------------------------------------------------
 */

static np_status filter_length(struct run *run, const struct call *call, struct value *out)
{
    int64_t n;
    TRY(value_length(run, call->self, &n));
    *out = value_int(n);
    return NP_OK;
}

static np_status filter_abs(struct run *run, const struct call *call, struct value *out)
{
    *out = call->self;
    if (out->kind == VALUE_FLOAT)
        out->number = fabs(out->number);
    else if (!value_is_number(*out) || out->integer == INT64_MIN)
        return RUN_ERROR(run, NP_EINPUT, "%s has no absolute value", value_type(*out));
    else
        *out = value_int(out->integer < 0 ? -out->integer : out->integer);
    return NP_OK;
}

/* A text as a number, as int() and float() read it; false: it is none. */
static bool read_number(const struct text *text, bool whole, struct value *out)
{
    char digits[64], *end;
    size_t from = text_strip_left(text, NULL), to = text_strip_right(text, NULL, from);
    if (to - from >= sizeof digits || to == from) return false;
    memcpy(digits, text->bytes + from, to - from);
    digits[to - from] = 0;
    if (strspn(digits, whole ? "+-0123456789" : "+-.eE0123456789") != to - from) return false;
    if (whole) {
        long long n = strtoll(digits, &end, 10);
        *out = value_int(n);
        return !*end && n != INT64_MAX && n != INT64_MIN;
    }
    *out = value_float(strtod(digits, &end));
    return !*end;
}

static np_status need_defined(struct run *run, struct value value)
{
    if (value.kind != VALUE_UNDEFINED) return NP_OK;
    return RUN_ERROR(run, NP_EINPUT, "%.*s is undefined, and no number",
                     value.n_name > 60 ? 60 : (int)value.n_name, value.name);
}

static np_status filter_int(struct run *run, const struct call *call, struct value *out)
{
    struct value self = call->self, number = self;
    TRY(need_defined(run, self));
    *out = given(call->slots[0]) ? call->slots[0] : value_int(0);
    if (given(call->slots[1]) && (call->slots[1].kind != VALUE_INT || call->slots[1].integer != 10))
        return RUN_ERROR(run, NP_EUNSUPPORTED, "another base than 10 is not supported");
    if (self.kind == VALUE_TEXT && read_number(self.text, true, out)) return NP_OK;
    if (self.kind == VALUE_TEXT && !read_number(self.text, false, &number)) {
        *out = given(call->slots[0]) ? call->slots[0] : value_int(0);
        return NP_OK;
    }
    if (!value_is_number(number)) return NP_OK;
    if (number.kind == VALUE_FLOAT) {
        if (!(fabs(number.number) < 9e18))
            return RUN_ERROR(run, NP_ELIMIT, "a number is above 63 bits");
        number = value_int((int64_t)number.number);
    }
    *out = value_int(number.integer);
    return NP_OK;
}

static np_status filter_float(struct run *run, const struct call *call, struct value *out)
{
    struct value self = call->self;
    TRY(need_defined(run, self));
    bool read = self.kind == VALUE_TEXT && read_number(self.text, false, &self);
    *out = given(call->slots[0]) ? call->slots[0] : value_float(0);
    if (read || value_is_number(self)) *out = value_float(value_number(self));
    return NP_OK;
}

/* ---- choosing ---------------------------------------------------------------------------------
 */

static np_status filter_default(struct run *run, const struct call *call, struct value *out)
{
    bool falsy = given(call->slots[1]) && value_true(call->slots[1]) && !value_true(call->self);
    *out = call->self;
    if (call->self.kind != VALUE_UNDEFINED && !falsy) return NP_OK;
    *out = call->slots[0];
    return given(*out) ? NP_OK : text_new(run, "", 0, SOURCE_TEMPLATE, out);
}

static np_status filter_first(struct run *run, const struct call *call, struct value *out)
{
    const struct list *list;
    bool last = !strcmp(call->builtin->name, "last");
    struct value self = call->self;
    *out = value_undefined("an element of nothing");
    if (self.kind == VALUE_ITERATOR) {
        if (last) return RUN_ERROR(run, NP_EINPUT, "an iterator has no last element");
        if (self.iterator->at < self.iterator->list->n)
            *out = self.iterator->list->items[self.iterator->at++];
        return NP_OK;
    }
    TRY(value_iterate(run, self, &list));
    if (list->n) *out = list->items[last ? list->n - 1 : 0];
    return NP_OK;
}

static np_status filter_list(struct run *run, const struct call *call, struct value *out)
{
    const struct list *list;
    TRY(value_iterate(run, call->self, &list));
    *out = (struct value){.kind = VALUE_LIST, .list = list};
    return NP_OK;
}

static np_status filter_reverse(struct run *run, const struct call *call, struct value *out)
{
    const struct list *list;
    struct value *items;
    TRY(value_iterate(run, call->self, &list));
    if (call->self.kind != VALUE_TEXT) {
        TRY(value_list(run, list->n, VALUE_LIST, out, &items));
        for (size_t i = 0; i < list->n; i++) items[i] = list->items[list->n - 1 - i];
        return call->self.kind == VALUE_ITERATOR ? NP_OK : value_iterator(run, out->list, out);
    }
    struct output output;
    np_status status = NP_OK;
    output_init(&output);
    for (size_t i = list->n; i-- > 0 && !status;)
        status = output_text(run, &output, list->items[i].text);
    if (!status) status = output_take(run, &output, out);
    output_free(&output);
    return status;
}

static np_status list_pairs(struct run *run, struct value self, struct value *out)
{
    struct value *pairs, *pair;
    if (self.kind == VALUE_UNDEFINED) return value_list(run, 0, VALUE_LIST, out, &pairs);
    if (self.kind != VALUE_DICT)
        return RUN_ERROR(run, NP_EINPUT, "%s has no items", value_type(self));
    TRY(value_list(run, self.dict->n, VALUE_LIST, out, &pairs));
    for (size_t i = 0; i < self.dict->n; i++) {
        TRY(value_list(run, 2, VALUE_TUPLE, &pairs[i], &pair));
        pair[0] = self.dict->pairs[i].key;
        pair[1] = self.dict->pairs[i].value;
    }
    return NP_OK;
}

static np_status filter_items(struct run *run, const struct call *call, struct value *out)
{
    TRY(list_pairs(run, call->self, out));
    return value_iterator(run, out->list, out);
}

/* "a.b.0" of a value, as Jinja's attribute arguments are read. */
static np_status attribute_of(struct run *run, struct value of, struct value path,
                              struct value *out)
{
    *out = of;
    if (path.kind == VALUE_INT) return value_item(run, of, path, out);
    if (path.kind != VALUE_TEXT)
        return RUN_ERROR(run, NP_EINPUT, "%s is no attribute", value_type(path));
    for (size_t at = 0, end; at <= path.text->n_bytes; at = end + 1) {
        struct value part, number;
        for (end = at; end < path.text->n_bytes && path.text->bytes[end] != '.';) end++;
        TRY(text_slice(run, path.text, at, end, &part));
        bool is_number = end > at && read_number(part.text, true, &number);
        TRY(value_item(run, *out, is_number ? number : part, out));
    }
    return NP_OK;
}

static np_status filter_join(struct run *run, const struct call *call, struct value *out)
{
    const struct list *list;
    const struct text *between = NULL;
    struct output output;
    struct value item;
    TRY(value_iterate(run, call->self, &list));
    if (given(call->slots[0])) TRY(text_of(run, call->slots[0], &between));
    bool of_each = given(call->slots[1]) && call->slots[1].kind != VALUE_NONE;
    np_status status = NP_OK;
    output_init(&output);
    for (size_t i = 0; i < list->n && !status; i++) {
        item = list->items[i];
        if (of_each) status = attribute_of(run, item, call->slots[1], &item);
        if (!status && i && between) status = output_text(run, &output, between);
        if (!status) status = output_value(run, &output, item);
    }
    if (!status) status = output_take(run, &output, out);
    output_free(&output);
    return status;
}

/* What map, select and their like go over: nothing at all, where the value is not true. */
static np_status iterate_true(struct run *run, struct value value, const struct list **out)
{
    static const struct list nothing;
    *out = &nothing;
    return value_true(value) ? value_iterate(run, value, out) : NP_OK;
}

/* ---- each of a list ---------------------------------------------------------------------------
 */

static np_status map_attribute(struct run *run, const struct call *call, const struct list *list,
                               struct value *items)
{
    struct value attribute = {0}, otherwise = {0};
    for (size_t i = 0; i < call->arguments.n_named; i++) {
        const struct named_value *named = &call->arguments.named[i];
        if (!strcmp(named->name, "attribute")) attribute = named->value;
        if (!strcmp(named->name, "default")) otherwise = named->value;
    }
    if (!given(attribute)) return RUN_ERROR(run, NP_EINPUT, "map needs a filter or an attribute");
    for (size_t i = 0; i < list->n; i++) {
        TRY(attribute_of(run, list->items[i], attribute, &items[i]));
        if (items[i].kind == VALUE_UNDEFINED && given(otherwise)) items[i] = otherwise;
    }
    return NP_OK;
}

/* Finds the filter or test that is named by the argument at `from`; the rest are its own. */
static np_status inner_call(struct run *run, const struct call *call, size_t from, bool test,
                            struct call *inner)
{
    struct value name = call->arguments.given[from];
    *inner = (struct call){.arguments = call->arguments};
    inner->arguments.given += from + 1;
    inner->arguments.n_given -= from + 1;
    if (name.kind == VALUE_TEXT)
        inner->builtin = (test ? test_find : filter_find)(name.text->bytes, name.text->n_bytes);
    if (inner->builtin) return NP_OK;
    const struct text *text;
    TRY(text_of(run, name, &text));
    return RUN_ERROR(run, NP_EUNSUPPORTED, "the %s %.*s is not supported", test ? "test" : "filter",
                     text->n_bytes > 40 ? 40 : (int)text->n_bytes, text->bytes);
}

static np_status filter_map(struct run *run, const struct call *call, struct value *out)
{
    const struct list *list;
    struct value *items;
    struct call inner;
    TRY(iterate_true(run, call->self, &list));
    TRY(value_list(run, list->n, VALUE_LIST, out, &items));
    bool by_filter = call->arguments.n_given > 0;
    if (by_filter)
        TRY(inner_call(run, call, 0, false, &inner));
    else
        TRY(map_attribute(run, call, list, items));
    for (size_t i = 0; i < list->n && by_filter; i++) {
        inner.self = list->items[i];
        TRY(builtin_call(run, &inner, &items[i]));
    }
    return value_iterator(run, out->list, out);
}

/* select, reject, selectattr, rejectattr */
static np_status filter_select(struct run *run, const struct call *call, struct value *out)
{
    const char *name = call->builtin->name;
    bool keep = name[0] == 's', of_each = strlen(name) > 6;
    const struct list *list;
    struct value *items, is;
    struct call inner = {0};
    size_t n = 0;
    if (of_each && !call->arguments.n_given)
        return RUN_ERROR(run, NP_EINPUT, "%s needs an attribute", name);
    TRY(iterate_true(run, call->self, &list));
    TRY(value_list(run, list->n, VALUE_LIST, out, &items));
    bool tests = call->arguments.n_given > (size_t)of_each;
    if (tests) TRY(inner_call(run, call, of_each, true, &inner));
    for (size_t i = 0; i < list->n; i++) {
        inner.self = list->items[i];
        if (of_each) TRY(attribute_of(run, list->items[i], call->arguments.given[0], &inner.self));
        is = inner.self;
        if (tests) TRY(builtin_call(run, &inner, &is));
        if (value_true(is) == keep) items[n++] = list->items[i];
    }
    ((struct list *)out->list)->n = n;
    return value_iterator(run, out->list, out);
}

/* ---- order ------------------------------------------------------------------------------------
 */

/* What an element is sorted by: itself or its attribute, in lower case unless told otherwise. */
static np_status sort_key(struct run *run, struct value of, struct value attribute, bool exact,
                          struct value *out)
{
    *out = of;
    if (given(attribute) && attribute.kind != VALUE_NONE)
        TRY(attribute_of(run, of, attribute, out));
    return out->kind == VALUE_TEXT && !exact ? text_case(run, out->text, CASE_LOWER, out) : NP_OK;
}

/* A stable sort by insertion: short lists, and steps bound long ones. */
static np_status sort_values(struct run *run, const struct list *list, const struct value *keys,
                             bool reverse, struct value *out)
{
    struct value *items, *sorted;
    TRY(value_list(run, list->n, VALUE_LIST, out, &items));
    sorted = run_push(run, list->n, sizeof *sorted);
    if (!sorted) return run->status;
    for (size_t i = 0; i < list->n; i++) {
        size_t at = i;
        for (int order = 0; at > 0; at--, order = 0) {
            bool equal;
            TRY(value_equal(run, sorted[at - 1], keys[i], &equal));
            if (!equal) TRY(value_order(run, sorted[at - 1], keys[i], "sort", &order));
            if (reverse ? order >= 0 : order <= 0) break;
            sorted[at] = sorted[at - 1];
            items[at] = items[at - 1];
        }
        sorted[at] = keys[i];
        items[at] = list->items[i];
    }
    return NP_OK;
}

static np_status filter_sort(struct run *run, const struct call *call, struct value *out)
{
    /* reverse case_sensitive attribute */
    const struct list *list;
    bool exact = given(call->slots[1]) && value_true(call->slots[1]);
    TRY(value_iterate(run, call->self, &list));
    struct value *keys = run_push(run, list->n, sizeof *keys);
    if (!keys) return run->status;
    for (size_t i = 0; i < list->n; i++)
        TRY(sort_key(run, list->items[i], call->slots[2], exact, &keys[i]));
    return sort_values(run, list, keys, given(call->slots[0]) && value_true(call->slots[0]), out);
}

static np_status filter_dictsort(struct run *run, const struct call *call, struct value *out)
{
    /* case_sensitive by reverse */
    struct value pairs, by = call->slots[1];
    bool exact = given(call->slots[0]) && value_true(call->slots[0]);
    bool by_value =
        by.kind == VALUE_TEXT && by.text->n_bytes == 5 && !memcmp(by.text->bytes, "value", 5);
    if (call->self.kind == VALUE_UNDEFINED)
        return RUN_ERROR(run, NP_EINPUT, "what is undefined has no items");
    TRY(list_pairs(run, call->self, &pairs));
    const struct list *list = pairs.list;
    struct value *keys = run_push(run, list->n, sizeof *keys);
    if (!keys) return run->status;
    for (size_t i = 0; i < list->n; i++)
        TRY(sort_key(run, list->items[i].list->items[by_value], (struct value){0}, exact,
                     &keys[i]));
    return sort_values(run, list, keys, given(call->slots[2]) && value_true(call->slots[2]), out);
}

static np_status filter_unique(struct run *run, const struct call *call, struct value *out)
{
    /* case_sensitive attribute */
    const struct list *list;
    struct value *items, key;
    bool exact = given(call->slots[0]) && value_true(call->slots[0]), seen;
    TRY(value_iterate(run, call->self, &list));
    TRY(value_list(run, list->n, VALUE_LIST, out, &items));
    struct value *keys = run_push(run, list->n, sizeof *keys);
    if (!keys) return run->status;
    struct list known = {keys, 0};
    for (size_t i = 0; i < list->n; i++) {
        TRY(sort_key(run, list->items[i], call->slots[1], exact, &key));
        if (key.kind == VALUE_LIST || key.kind == VALUE_DICT)
            return RUN_ERROR(run, NP_EINPUT, "%s cannot be told apart by unique", value_type(key));
        TRY(value_contains(run, (struct value){.kind = VALUE_LIST, .list = &known}, key, &seen));
        if (seen) continue;
        items[known.n] = list->items[i];
        keys[known.n++] = key;
    }
    ((struct list *)out->list)->n = known.n;
    return value_iterator(run, out->list, out);
}

const struct builtin template_filters[] = {
    {"abs", "", 0, filter_abs},
    {"capitalize", "", 0, filter_case},
    {"count", "", 0, filter_length},
    {"d", "default_value boolean", 0, filter_default},
    {"default", "default_value boolean", 0, filter_default},
    {"dictsort", "case_sensitive by reverse", 0, filter_dictsort},
    {"first", "", 0, filter_first},
    {"float", "default", 0, filter_float},
    {"indent", "width first blank", 0, filter_indent},
    {"int", "default base", 0, filter_int},
    {"items", "", 0, filter_items},
    {"join", "d attribute", 0, filter_join},
    {"last", "", 0, filter_first},
    {"length", "", 0, filter_length},
    {"list", "", 0, filter_list},
    {"lower", "", 0, filter_case},
    {"map", NULL, 0, filter_map},
    {"reject", NULL, 0, filter_select},
    {"rejectattr", NULL, 0, filter_select},
    {"replace", "old new count", 2, filter_replace},
    {"reverse", "", 0, filter_reverse},
    {"select", NULL, 0, filter_select},
    {"selectattr", NULL, 0, filter_select},
    {"sort", "reverse case_sensitive attribute", 0, filter_sort},
    {"string", "", 0, filter_string},
    {"title", "", 0, filter_case},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, filter_tojson},
    {"trim", "chars", 0, filter_trim},
    {"unique", "case_sensitive attribute", 0, filter_unique},
    {"upper", "", 0, filter_case},
    {0}};
