/*
 * template_tests.c - tests: value is name(argument).
 */
#include "text/template_run.h"
#include "text/unicode.h"

#include <math.h>

/* Tests that ask for the kind of a value alone: which kinds pass. */
static np_status test_kind(struct run *run, const struct call *call, struct value *out)
{
    enum {
        TEXT = 1 << VALUE_TEXT,
        LISTS = 1 << VALUE_LIST | 1 << VALUE_TUPLE,
        UNDEFINED = 1 << VALUE_UNDEFINED,
        DICT = 1 << VALUE_DICT,
    };
    static const struct {
        const char *name;
        unsigned kinds;
    } rows[] = {
        {"boolean", 1 << VALUE_BOOL},
        {"callable", UNDEFINED | 1 << VALUE_MACRO | 1 << VALUE_METHOD | 1 << VALUE_GLOBAL},
        {"defined", ~(unsigned)UNDEFINED},
        {"float", 1 << VALUE_FLOAT},
        {"integer", 1 << VALUE_INT},
        {"iterable",
         TEXT | LISTS | UNDEFINED | DICT | 1 << VALUE_VIEW | 1 << VALUE_LOOP | 1 << VALUE_ITERATOR},
        {"mapping", DICT},
        {"none", 1 << VALUE_NONE},
        {"number", 1 << VALUE_BOOL | 1 << VALUE_INT | 1 << VALUE_FLOAT},
        {"sequence", TEXT | LISTS | UNDEFINED | DICT},
        {"string", TEXT},
        {"undefined", UNDEFINED},
    };
    (void)run;
    size_t i = 0;
    while (strcmp(rows[i].name, call->builtin->name)) i++;
    *out = value_bool(rows[i].kinds >> call->self.kind & 1);
    return NP_OK;
}

static np_status test_bool(struct run *run, const struct call *call, struct value *out)
{
    (void)run;
    bool wanted = call->builtin->name[0] == 't';
    *out = value_bool(call->self.kind == VALUE_BOOL && (call->self.integer != 0) == wanted);
    return NP_OK;
}

static np_status test_divisible(struct run *run, const struct call *call, struct value *out)
{
    struct value by = call->slots[0];
    const char *name = call->builtin->name;
    if (by.kind == VALUE_MISSING) by = value_int(2);
    bool number = value_is_number(call->self);
    if (!number || by.kind != VALUE_INT || !by.integer || by.integer == -1)
        return RUN_ERROR(run, NP_EINPUT, "%s of %s by %s", name, value_type(call->self),
                         value_type(by));
    double rest = fmod(value_number(call->self), (double)by.integer);
    if (call->self.kind != VALUE_FLOAT) rest = (double)(call->self.integer % by.integer);
    bool odd = rest == 1 || rest == -1;
    *out = value_bool(name[0] == 'o' ? odd : rest == 0);
    return NP_OK;
}

static np_status test_equal(struct run *run, const struct call *call, struct value *out)
{
    bool equal;
    TRY(value_equal(run, call->self, call->slots[0], &equal));
    *out = value_bool(equal != (call->builtin->name[0] == 'n' || call->builtin->name[0] == '!'));
    return NP_OK;
}

static np_status test_same(struct run *run, const struct call *call, struct value *out)
{
    struct value self = call->self, other = call->slots[0];
    bool plain = self.kind == VALUE_NONE || self.kind == VALUE_BOOL || self.kind == VALUE_INT;
    if (!plain && self.kind == other.kind)
        return RUN_ERROR(run, NP_EUNSUPPORTED, "sameas of %s is not supported", value_type(self));
    *out = value_bool(self.kind == other.kind &&
                      (self.kind == VALUE_NONE || self.integer == other.integer));
    return NP_OK;
}

/* lt, le, gt, ge and their longer names */
static np_status test_order(struct run *run, const struct call *call, struct value *out)
{
    static const struct {
        const char *name;
        int wanted, also;
    } rows[] = {{"ge", 1, 0},  {"greaterthan", 1, 1}, {"gt", 1, 1},
                {"le", -1, 0}, {"lessthan", -1, -1},  {"lt", -1, -1}};
    int order;
    TRY(value_order(run, call->self, call->slots[0], call->builtin->name, &order));
    size_t i = 0;
    while (strcmp(rows[i].name, call->builtin->name)) i++;
    order = (order > 0) - (order < 0);
    *out = value_bool(order == rows[i].wanted || order == rows[i].also);
    return NP_OK;
}

static np_status test_in(struct run *run, const struct call *call, struct value *out)
{
    bool is;
    TRY(value_contains(run, call->slots[0], call->self, &is));
    *out = value_bool(is);
    return NP_OK;
}

/* lower, upper: as str.islower and str.isupper */
static np_status test_case(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text;
    bool upper = call->builtin->name[0] == 'u', some = false, other = false;
    uint32_t c;
    TRY(text_of(run, call->self, &text));
    TRY(run_step(run, text->n_bytes / 16));
    for (size_t at = 0; at < text->n_bytes;) {
        at += text_read(text, at, &c);
        some = some || text_is_cased(c, upper);
        other = other || text_is_cased(c, !upper);
    }
    *out = value_bool(some && !other);
    return NP_OK;
}

const struct builtin template_tests[] = {{"boolean", "", 0, test_kind},
                                         {"callable", "", 0, test_kind},
                                         {"defined", "", 0, test_kind},
                                         {"divisibleby", "num", 1, test_divisible},
                                         {"eq", "other", 1, test_equal},
                                         {"equalto", "other", 1, test_equal},
                                         {"==", "other", 1, test_equal},
                                         {"even", "", 0, test_divisible},
                                         {"false", "", 0, test_bool},
                                         {"float", "", 0, test_kind},
                                         {"ge", "other", 1, test_order},
                                         {"greaterthan", "other", 1, test_order},
                                         {"gt", "other", 1, test_order},
                                         {"in", "seq", 1, test_in},
                                         {"integer", "", 0, test_kind},
                                         {"iterable", "", 0, test_kind},
                                         {"le", "other", 1, test_order},
                                         {"lessthan", "other", 1, test_order},
                                         {"lower", "", 0, test_case},
                                         {"lt", "other", 1, test_order},
                                         {"mapping", "", 0, test_kind},
                                         {"ne", "other", 1, test_equal},
                                         {"!=", "other", 1, test_equal},
                                         {"none", "", 0, test_kind},
                                         {"number", "", 0, test_kind},
                                         {"odd", "", 0, test_divisible},
                                         {"sameas", "other", 1, test_same},
                                         {"sequence", "", 0, test_kind},
                                         {"string", "", 0, test_kind},
                                         {"true", "", 0, test_bool},
                                         {"undefined", "", 0, test_kind},
                                         {"upper", "", 0, test_case},
                                         {0}};
