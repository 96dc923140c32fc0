/*
 * template_call.c - calls: arguments find their parameters; and the functions that are there for
 * every template.
 */
#include "text/template_run.h"

#include <time.h>

/* Where the value of parameter i of "old new count" belongs; SIZE_MAX: there is no such one. */
static size_t parameter(const char *names, const char *name)
{
    size_t i = 0, n = strlen(name);
    while (*names) {
        size_t length = strcspn(names, " ");
        if (length == n && !memcmp(names, name, n)) return i;
        names += length + (names[length] == ' ');
        i++;
    }
    return SIZE_MAX;
}

static size_t n_parameters(const char *names)
{
    size_t n = *names != 0;
    for (; *names; names++) n += *names == ' ';
    return n;
}

np_status builtin_call(struct run *run, struct call *call, struct value *out)
{
    const struct builtin *builtin = call->builtin;
    const struct arguments *arguments = &call->arguments;
    TRY(run_step(run, 1));
    if (!builtin->parameters) return builtin->run(run, call, out);
    memset(call->slots, 0, sizeof call->slots);
    if (arguments->n_given > n_parameters(builtin->parameters))
        return RUN_ERROR(run, NP_EINPUT, "%s has %zu arguments, and %zu are given", builtin->name,
                         n_parameters(builtin->parameters), arguments->n_given);
    for (size_t i = 0; i < arguments->n_given; i++) call->slots[i] = arguments->given[i];
    for (size_t i = 0; i < arguments->n_named; i++) {
        size_t at = parameter(builtin->parameters, arguments->named[i].name);
        if (at == SIZE_MAX || call->slots[at].kind != VALUE_MISSING)
            return RUN_ERROR(run, NP_EINPUT, "%s has no argument %s, or it is given twice",
                             builtin->name, arguments->named[i].name);
        call->slots[at] = arguments->named[i].value;
    }
    for (size_t i = 0; i < builtin->n_needed; i++)
        if (call->slots[i].kind == VALUE_MISSING)
            return RUN_ERROR(run, NP_EINPUT, "%s needs %zu arguments", builtin->name,
                             builtin->n_needed);
    return builtin->run(run, call, out);
}

np_status value_call(struct run *run, struct value callee, const struct arguments *arguments,
                     struct value *out)
{
    struct call call = {.arguments = *arguments};
    if (callee.kind == VALUE_MACRO) return run_macro(run, callee.macro, arguments, out);
    if (callee.kind == VALUE_METHOD) {
        call.builtin = callee.method->builtin;
        call.self = callee.method->self;
    } else if (callee.kind == VALUE_GLOBAL) {
        call.builtin = callee.global;
    } else {
        return RUN_ERROR(run, NP_EINPUT, "%s cannot be called", value_type(callee));
    }
    return builtin_call(run, &call, out);
}

/* ---- tables -----------------------------------------------------------------------------------
 */

static const struct builtin *find(const struct builtin *table, const char *name, size_t n_bytes)
{
    for (; table->name; table++)
        if (strlen(table->name) == n_bytes && !memcmp(table->name, name, n_bytes)) return table;
    return NULL;
}

const struct builtin *filter_find(const char *name, size_t n_bytes)
{
    return find(template_filters, name, n_bytes);
}

const struct builtin *test_find(const char *name, size_t n_bytes)
{
    return find(template_tests, name, n_bytes);
}

const struct builtin *global_find(const char *name, size_t n_bytes)
{
    return find(template_globals, name, n_bytes);
}

/* ---- functions --------------------------------------------------------------------------------
 */

static np_status call_raise(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text;
    (void)out;
    TRY(text_of(run, call->slots[0], &text));
    size_t n = text->n_bytes < 240 ? text->n_bytes : 240;
    while (n && n < text->n_bytes && ((unsigned char)text->bytes[n] & 0xC0) == 0x80) n--;
    return RUN_ERROR(run, NP_EINPUT, "the template says: %.*s", (int)n, text->bytes);
}

static np_status call_now(struct run *run, const struct call *call, struct value *out)
{
    char format[128], text[256];
    time_t now = (time_t)run->now;
    struct tm parts;
    if (call->slots[0].kind != VALUE_TEXT || call->slots[0].text->n_bytes >= sizeof format)
        return RUN_ERROR(run, NP_EINPUT, "strftime_now needs a format of at most %zu bytes",
                         sizeof format - 1);
    memcpy(format, call->slots[0].text->bytes, call->slots[0].text->n_bytes);
    format[call->slots[0].text->n_bytes] = 0;
    size_t n =
        format[0] && localtime_r(&now, &parts) ? strftime(text, sizeof text, format, &parts) : 0;
    char *copy = run_push(run, n + 1, 1);
    if (!copy) return run->status;
    memcpy(copy, text, n);
    return text_new(run, copy, n, SOURCE_TEMPLATE, out);
}

static np_status call_range(struct run *run, const struct call *call, struct value *out)
{
    int64_t parts[3] = {0, 0, 1};
    bool one = call->slots[1].kind == VALUE_MISSING;
    for (int i = 0; i < 3; i++) {
        struct value value = call->slots[i];
        if (value.kind == VALUE_MISSING) continue;
        if (value.kind != VALUE_INT)
            return RUN_ERROR(run, NP_EINPUT, "range needs integers, and %s is given",
                             value_type(value));
        parts[one ? 1 : i] = value.integer;
    }
    int64_t limit = INT64_MAX / 4;
    for (int i = 0; i < 3; i++)
        if (parts[i] > limit || parts[i] < -limit) parts[i] = parts[i] > 0 ? limit : -limit;
    if (!parts[2]) return RUN_ERROR(run, NP_EINPUT, "range has the step 0");
    int64_t distance = parts[2] > 0 ? parts[1] - parts[0] : parts[0] - parts[1];
    int64_t stride = parts[2] > 0 ? parts[2] : -parts[2];
    int64_t n = distance > 0 ? (distance - 1) / stride + 1 : 0;
    if (n > TEMPLATE_MAX_RANGE)
        return RUN_ERROR(run, NP_ELIMIT, "range gives %lld numbers; at most %lld are allowed",
                         (long long)n, (long long)TEMPLATE_MAX_RANGE);
    struct value *items;
    TRY(run_step(run, (size_t)n));
    TRY(value_list(run, (size_t)n, VALUE_LIST, out, &items));
    for (int64_t i = 0; i < n; i++) items[i] = value_int(parts[0] + i * parts[2]);
    return NP_OK;
}

/* dict(...) and namespace(...): a dict to begin with, and named values. */
static np_status fill_dict(struct run *run, const struct call *call, enum value_kind kind,
                           struct value *out)
{
    const struct arguments *given = &call->arguments;
    struct dict *dict = run_push(run, 1, sizeof *dict);
    if (!dict) return run->status;
    if (given->n_given > 1 || (given->n_given && given->given[0].kind != VALUE_DICT))
        return RUN_ERROR(run, NP_EUNSUPPORTED,
                         "%s() of anything but a dict and named values is "
                         "not supported",
                         call->builtin->name);
    for (size_t i = 0; given->n_given && i < given->given[0].dict->n; i++) {
        const struct pair *pair = &given->given[0].dict->pairs[i];
        TRY(dict_put(run, dict, pair->key, pair->value));
    }
    for (size_t i = 0; i < given->n_named; i++) {
        struct value key;
        const char *name = given->named[i].name;
        if (kind == VALUE_NAMESPACE && name[0] == '_')
            return RUN_ERROR(run, NP_EINPUT, "an attribute must not begin with _");
        TRY(text_new(run, name, strlen(name), SOURCE_TEMPLATE, &key));
        TRY(dict_put(run, dict, key, given->named[i].value));
    }
    *out = (struct value){.kind = kind, .dict = dict};
    return NP_OK;
}

static np_status call_dict(struct run *run, const struct call *call, struct value *out)
{
    return fill_dict(run, call, VALUE_DICT, out);
}

static np_status call_namespace(struct run *run, const struct call *call, struct value *out)
{
    return fill_dict(run, call, VALUE_NAMESPACE, out);
}

const struct builtin template_globals[] = {
    {"raise_exception", "message", 1, call_raise}, {"strftime_now", "format", 1, call_now},
    {"range", "start stop step", 1, call_range},   {"dict", NULL, 0, call_dict},
    {"namespace", NULL, 0, call_namespace},        {0}};
