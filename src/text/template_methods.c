/*
 * template_methods.c - methods: value.name(arguments), those of Python's texts, dicts and loops
 * that the sandbox allows. What would change a list or a dict is not there: Jinja's sandbox for
 * templates refuses it too.
 */
#include "text/template_run.h"
#include "text/unicode.h"

static bool given(struct value value)
{
    return value.kind != VALUE_MISSING && value.kind != VALUE_NONE;
}

static np_status need_text(struct run *run, const struct call *call, size_t i,
                           const struct text **out)
{
    *out = NULL;
    if (!given(call->slots[i])) return NP_OK;
    if (call->slots[i].kind != VALUE_TEXT)
        return RUN_ERROR(run, NP_EINPUT, ".%s() needs a text, and %s is given", call->builtin->name,
                         value_type(call->slots[i]));
    *out = call->slots[i].text;
    return NP_OK;
}

static np_status need_count(struct run *run, const struct call *call, size_t i, int64_t *out)
{
    *out = -1;
    if (!given(call->slots[i])) return NP_OK;
    if (call->slots[i].kind != VALUE_INT)
        return RUN_ERROR(run, NP_EINPUT, ".%s() needs a number, and %s is given",
                         call->builtin->name, value_type(call->slots[i]));
    *out = call->slots[i].integer;
    return NP_OK;
}

/* ---- texts ------------------------------------------------------------------------------------
 */

static np_status text_strip(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text = call->self.text, *chars;
    char kind = call->builtin->name[0];
    TRY(need_text(run, call, 0, &chars));
    TRY(run_step(run, text->n_bytes / 256));
    size_t from = kind == 'r' ? 0 : text_strip_left(text, chars);
    size_t to = kind == 'l' ? text->n_bytes : text_strip_right(text, chars, from);
    return text_slice(run, text, from, to, out);
}

static np_status text_change_case(struct run *run, const struct call *call, struct value *out)
{
    char kind = call->builtin->name[0];
    enum text_case wanted = kind == 'u'   ? CASE_UPPER
                            : kind == 'l' ? CASE_LOWER
                            : kind == 't' ? CASE_TITLE
                                          : CASE_CAPITALIZE;
    return text_case(run, call->self.text, wanted, out);
}

/* startswith, endswith: a text, or one of a tuple of them. */
static np_status text_begins(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text = call->self.text;
    struct value what = call->slots[0];
    struct list one = {&what, 1};
    const struct list *list = what.kind == VALUE_TUPLE ? what.list : &one;
    bool end = call->builtin->name[0] == 'e';
    *out = value_bool(false);
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i].kind != VALUE_TEXT)
            return RUN_ERROR(run, NP_EINPUT, ".%s() needs a text, and %s is given",
                             call->builtin->name, value_type(list->items[i]));
        const struct text *part = list->items[i].text;
        if (part->n_bytes > text->n_bytes) continue;
        size_t at = end ? text->n_bytes - part->n_bytes : 0;
        if (!memcmp(text->bytes + at, part->bytes, part->n_bytes)) out->integer = true;
    }
    return run_step(run, list->n);
}

static np_status text_remove(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text = call->self.text, *part;
    bool end = !strcmp(call->builtin->name, "removesuffix");
    TRY(need_text(run, call, 0, &part));
    *out = call->self;
    if (!part || part->n_bytes > text->n_bytes) return NP_OK;
    size_t at = end ? text->n_bytes - part->n_bytes : 0, n = part->n_bytes;
    if (memcmp(text->bytes + at, part->bytes, n)) return NP_OK;
    return text_slice(run, text, end ? 0 : n, end ? at : text->n_bytes, out);
}

/* Every occurrence but not more than `limit` (below 0: all); an empty text stands between all
 * characters. */
static np_status replace_in(struct run *run, const struct text *text, const struct text *old,
                            const struct text *new, int64_t limit, struct output *out)
{
    size_t at = 0;
    for (; limit; limit--) {
        size_t found = text_find(text, at, old);
        if (found == SIZE_MAX) break;
        TRY(run_step(run, 1));
        TRY(output_slice(run, out, text, at, found));
        TRY(output_text(run, out, new));
        at = found + old->n_bytes;
        if (old->n_bytes) continue;
        if (at == text->n_bytes) return NP_OK;
        size_t next = at + 1;
        while (next < text->n_bytes && ((unsigned char)text->bytes[next] & 0xC0) == 0x80) next++;
        TRY(output_slice(run, out, text, at, next));
        at = next;
    }
    return output_slice(run, out, text, at, text->n_bytes);
}

static np_status text_replace(struct run *run, const struct call *call, struct value *out)
{
    const struct text *old, *new;
    int64_t limit;
    struct output output;
    TRY(need_text(run, call, 0, &old));
    TRY(need_text(run, call, 1, &new));
    TRY(need_count(run, call, 2, &limit));
    if (!old || !new) return RUN_ERROR(run, NP_EINPUT, ".replace() needs two texts");
    output_init(&output);
    np_status status = replace_in(run, call->self.text, old, new, limit, &output);
    if (!status) status = output_take(run, &output, out);
    output_free(&output);
    return status;
}

/* find, rfind, index: characters before it; -1: not there. */
static np_status text_search(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text = call->self.text, *what;
    struct value head;
    TRY(need_text(run, call, 0, &what));
    if (!what) return RUN_ERROR(run, NP_EINPUT, ".%s() needs a text", call->builtin->name);
    TRY(run_step(run, text->n_bytes / 64));
    bool last = call->builtin->name[0] == 'r', must = call->builtin->name[0] == 'i';
    size_t at = last ? text_find_last(text, what) : text_find(text, 0, what);
    if (at == SIZE_MAX && must) return RUN_ERROR(run, NP_EINPUT, ".index() does not find its text");
    *out = value_int(-1);
    if (at == SIZE_MAX) return NP_OK;
    TRY(text_slice(run, text, 0, at, &head));
    *out = value_int((int64_t)text_length(head.text));
    return NP_OK;
}

static np_status text_count(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text = call->self.text, *what;
    int64_t n = 0;
    TRY(need_text(run, call, 0, &what));
    if (!what) return RUN_ERROR(run, NP_EINPUT, ".count() needs a text");
    TRY(run_step(run, text->n_bytes / 64));
    if (!what->n_bytes)
        n = (int64_t)text_length(text) + 1;
    else
        for (size_t at = 0; (at = text_find(text, at, what)) != SIZE_MAX; at += what->n_bytes) n++;
    *out = value_int(n);
    return NP_OK;
}

static np_status text_join_list(struct run *run, const struct call *call, struct value *out)
{
    const struct list *list;
    struct output output;
    np_status status = NP_OK;
    TRY(value_iterate(run, call->slots[0], &list));
    output_init(&output);
    for (size_t i = 0; i < list->n && !status; i++) {
        if (list->items[i].kind != VALUE_TEXT)
            status = RUN_ERROR(run, NP_EINPUT, ".join() needs texts, and %s is among them",
                               value_type(list->items[i]));
        if (!status && i) status = output_text(run, &output, call->self.text);
        if (!status) status = output_text(run, &output, list->items[i].text);
    }
    if (!status) status = output_take(run, &output, out);
    output_free(&output);
    return status;
}

/* isdigit, isalpha, isalnum, isspace, isupper, islower */
static bool has_class(const char *name, uint32_t c)
{
    uint8_t kind = unicode_info(c) & UNICODE_CLASS_MASK;
    bool digit = kind == UC_ND;
    switch (name[2]) {
    case 'd': return digit;
    case 's': return text_is_space(c);
    default:
        return text_is_letter(c) || (name[4] == 'n' && (digit || kind == UC_NL || kind == UC_NO));
    }
}

static np_status text_is(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text = call->self.text;
    bool all = text->n_bytes > 0;
    uint32_t c;
    TRY(run_step(run, text->n_bytes / 16));
    for (size_t at = 0; at < text->n_bytes && all;) {
        at += text_read(text, at, &c);
        all = has_class(call->builtin->name, c);
    }
    *out = value_bool(all);
    return NP_OK;
}

static np_status text_is_case(struct run *run, const struct call *call, struct value *out)
{
    const char *test = call->builtin->name + 2; /* "upper", "lower" */
    struct call inner = {.builtin = test_find(test, strlen(test)), .self = call->self};
    return builtin_call(run, &inner, out);
}

/* ---- splitting --------------------------------------------------------------------------------
 */

/* A list that grows. */
struct pieces {
    struct value *items;
    size_t n, n_allocated;
};

static np_status push_piece(struct run *run, struct pieces *pieces, const struct text *text,
                            size_t begin, size_t end)
{
    TRY(run_step(run, 1));
    if (pieces->n == pieces->n_allocated) {
        size_t n = pieces->n_allocated ? 2 * pieces->n_allocated : 4;
        struct value *grown = run_push(run, n, sizeof *grown);
        if (!grown) return run->status;
        if (pieces->n) memcpy(grown, pieces->items, pieces->n * sizeof *grown);
        pieces->items = grown;
        pieces->n_allocated = n;
    }
    return text_slice(run, text, begin, end, &pieces->items[pieces->n++]);
}

static np_status take_pieces(struct run *run, const struct pieces *pieces, bool reversed,
                             struct value *out)
{
    struct value *items;
    TRY(value_list(run, pieces->n, VALUE_LIST, out, &items));
    for (size_t i = 0; i < pieces->n; i++)
        items[i] = pieces->items[reversed ? pieces->n - 1 - i : i];
    return NP_OK;
}

static size_t behind_word(const struct text *text, size_t at)
{
    uint32_t c;
    size_t length;
    while (at < text->n_bytes && (length = text_read(text, at, &c)) && !text_is_space(c))
        at += length;
    return at;
}

static np_status split_words(struct run *run, const struct text *text, int64_t limit,
                             struct pieces *pieces)
{
    struct text rest = *text;
    size_t end = text_strip_right(text, NULL, 0);
    for (size_t at = 0;;) {
        rest.bytes = text->bytes + at;
        rest.n_bytes = text->n_bytes - at;
        at += text_strip_left(&rest, NULL);
        if (at >= end) return NP_OK;
        if (!limit--) return push_piece(run, pieces, text, at, text->n_bytes);
        size_t to = behind_word(text, at);
        TRY(push_piece(run, pieces, text, at, to));
        at = to;
    }
}

static np_status text_split(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text = call->self.text, *by;
    struct pieces pieces = {0};
    int64_t limit;
    TRY(need_text(run, call, 0, &by));
    TRY(need_count(run, call, 1, &limit));
    if (by && !by->n_bytes) return RUN_ERROR(run, NP_EINPUT, ".split() by an empty text");
    if (!by) {
        TRY(split_words(run, text, limit, &pieces));
        return take_pieces(run, &pieces, false, out);
    }
    size_t at = 0, found;
    for (; limit && (found = text_find(text, at, by)) != SIZE_MAX; limit--) {
        TRY(push_piece(run, &pieces, text, at, found));
        at = found + by->n_bytes;
    }
    TRY(push_piece(run, &pieces, text, at, text->n_bytes));
    return take_pieces(run, &pieces, false, out);
}

static np_status text_rsplit(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text = call->self.text, *by;
    struct pieces pieces = {0};
    int64_t limit;
    TRY(need_text(run, call, 0, &by));
    TRY(need_count(run, call, 1, &limit));
    if (!by || !by->n_bytes)
        return RUN_ERROR(run, NP_EUNSUPPORTED, ".rsplit() without a text is not supported");
    struct text head = *text;
    for (; limit; limit--) {
        size_t found = text_find_last(&head, by);
        if (found == SIZE_MAX) break;
        TRY(run_step(run, (head.n_bytes - found) / 64));
        TRY(push_piece(run, &pieces, text, found + by->n_bytes, head.n_bytes));
        head.n_bytes = found;
    }
    TRY(push_piece(run, &pieces, text, 0, head.n_bytes));
    return take_pieces(run, &pieces, true, out);
}

/* partition: before it, itself, behind it. */
static np_status text_partition(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text = call->self.text, *by;
    struct value *parts;
    TRY(need_text(run, call, 0, &by));
    if (!by || !by->n_bytes) return RUN_ERROR(run, NP_EINPUT, ".partition() by an empty text");
    bool last = call->builtin->name[0] == 'r';
    size_t at = last ? text_find_last(text, by) : text_find(text, 0, by);
    size_t end = text->n_bytes, to = at == SIZE_MAX ? end : at + by->n_bytes;
    if (at == SIZE_MAX) at = end;
    if (last && at == end) at = to = 0;
    TRY(value_list(run, 3, VALUE_TUPLE, out, &parts));
    TRY(text_slice(run, text, 0, at, &parts[0]));
    TRY(text_slice(run, text, at, to, &parts[1]));
    return text_slice(run, text, to, end, &parts[2]);
}

static bool is_line_end(uint32_t c)
{
    return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

static np_status text_splitlines(struct run *run, const struct call *call, struct value *out)
{
    const struct text *text = call->self.text;
    struct pieces pieces = {0};
    bool keep = call->slots[0].kind != VALUE_MISSING && value_true(call->slots[0]);
    uint32_t c;
    TRY(run_step(run, text->n_bytes / 16));
    for (size_t at = 0, begin = 0; at < text->n_bytes; begin = at) {
        size_t end = at;
        while (at < text->n_bytes) {
            size_t length = text_read(text, at, &c);
            end = at;
            at += length;
            if (is_line_end(c)) break;
            end = at;
        }
        if (end < at && c == '\r' && at < text->n_bytes && text->bytes[at] == '\n') at++;
        TRY(push_piece(run, &pieces, text, begin, keep ? at : end));
    }
    return take_pieces(run, &pieces, false, out);
}

/* ---- dicts and loops --------------------------------------------------------------------------
 */

static np_status dict_list(struct run *run, const struct call *call, struct value *out)
{
    char kind = call->builtin->name[0]; /* items, keys, values */
    const struct dict *dict = call->self.dict;
    struct value *items, *pair;
    TRY(run_step(run, dict->n));
    TRY(value_list(run, dict->n, VALUE_VIEW, out, &items));
    for (size_t i = 0; i < dict->n; i++) {
        items[i] = kind == 'k' ? dict->pairs[i].key : dict->pairs[i].value;
        if (kind != 'i') continue;
        TRY(value_list(run, 2, VALUE_TUPLE, &items[i], &pair));
        pair[0] = dict->pairs[i].key;
        pair[1] = dict->pairs[i].value;
    }
    return NP_OK;
}

static np_status dict_get_or(struct run *run, const struct call *call, struct value *out)
{
    struct value *found;
    TRY(dict_get(run, call->self.dict, call->slots[0], &found));
    *out = found ? *found : given(call->slots[1]) ? call->slots[1] : value_none();
    return NP_OK;
}

static np_status dict_copy(struct run *run, const struct call *call, struct value *out)
{
    (void)run;
    *out = call->self; /* nothing can change it */
    return NP_OK;
}

/* What would change a value: a method, to be seen, but not to be called. */
static np_status refuse_change(struct run *run, const struct call *call, struct value *out)
{
    (void)out;
    return RUN_ERROR(run, NP_EINPUT, ".%s() would change %s, which a template must not",
                     call->builtin->name, value_type(call->self));
}

static np_status list_search(struct run *run, const struct call *call, struct value *out)
{
    const struct list *list = call->self.list;
    bool count = call->builtin->name[0] == 'c', equal;
    int64_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        TRY(value_equal(run, list->items[i], call->slots[0], &equal));
        if (equal && !count) return *out = value_int((int64_t)i), NP_OK;
        n += equal;
    }
    if (!count) return RUN_ERROR(run, NP_EINPUT, ".index() does not find its value");
    *out = value_int(n);
    return NP_OK;
}

static np_status loop_cycle(struct run *run, const struct call *call, struct value *out)
{
    if (!call->arguments.n_given) return RUN_ERROR(run, NP_EINPUT, "loop.cycle() of nothing");
    *out = call->arguments.given[call->self.loop->at % call->arguments.n_given];
    return NP_OK;
}

/* ---- tables -----------------------------------------------------------------------------------
 */

/* Python gives most of these no names for their arguments: "-" begins none. */
static const struct builtin text_methods[] = {{"strip", "-chars", 0, text_strip},
                                              {"lstrip", "-chars", 0, text_strip},
                                              {"rstrip", "-chars", 0, text_strip},
                                              {"upper", "", 0, text_change_case},
                                              {"lower", "", 0, text_change_case},
                                              {"title", "", 0, text_change_case},
                                              {"capitalize", "", 0, text_change_case},
                                              {"startswith", "-prefix", 1, text_begins},
                                              {"endswith", "-suffix", 1, text_begins},
                                              {"removeprefix", "-prefix", 1, text_remove},
                                              {"removesuffix", "-suffix", 1, text_remove},
                                              {"replace", "-old -new -count", 2, text_replace},
                                              {"find", "-sub", 1, text_search},
                                              {"rfind", "-sub", 1, text_search},
                                              {"index", "-sub", 1, text_search},
                                              {"count", "-sub", 1, text_count},
                                              {"join", "-iterable", 1, text_join_list},
                                              {"split", "sep maxsplit", 0, text_split},
                                              {"rsplit", "sep maxsplit", 0, text_rsplit},
                                              {"partition", "-sep", 1, text_partition},
                                              {"rpartition", "-sep", 1, text_partition},
                                              {"splitlines", "keepends", 0, text_splitlines},
                                              {"isdigit", "", 0, text_is},
                                              {"isalpha", "", 0, text_is},
                                              {"isalnum", "", 0, text_is},
                                              {"isspace", "", 0, text_is},
                                              {"isupper", "", 0, text_is_case},
                                              {"islower", "", 0, text_is_case},
                                              {0}};

static const struct builtin dict_methods[] = {{"items", "", 0, dict_list},
                                              {"keys", "", 0, dict_list},
                                              {"values", "", 0, dict_list},
                                              {"get", "-key -default", 1, dict_get_or},
                                              {"copy", "", 0, dict_copy},
                                              {"pop", NULL, 0, refuse_change},
                                              {"popitem", NULL, 0, refuse_change},
                                              {"update", NULL, 0, refuse_change},
                                              {"setdefault", NULL, 0, refuse_change},
                                              {"clear", NULL, 0, refuse_change},
                                              {0}};

static const struct builtin list_methods[] = {
    {"index", "-value", 1, list_search}, {"count", "-value", 1, list_search},
    {"append", NULL, 0, refuse_change},  {"extend", NULL, 0, refuse_change},
    {"insert", NULL, 0, refuse_change},  {"pop", NULL, 0, refuse_change},
    {"remove", NULL, 0, refuse_change},  {"reverse", NULL, 0, refuse_change},
    {"sort", NULL, 0, refuse_change},    {0}};

static const struct builtin tuple_methods[] = {
    {"index", "-value", 1, list_search}, {"count", "-value", 1, list_search}, {0}};

static const struct builtin loop_methods[] = {{"cycle", NULL, 0, loop_cycle}, {0}};

const struct builtin *method_find(enum value_kind kind, const char *name, size_t n_bytes)
{
    static const struct {
        enum value_kind kind;
        const struct builtin *table;
    } tables[] = {{VALUE_TEXT, text_methods},
                  {VALUE_DICT, dict_methods},
                  {VALUE_LIST, list_methods},
                  {VALUE_TUPLE, tuple_methods},
                  {VALUE_LOOP, loop_methods}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (kind != VALUE_MISSING && kind != tables[i].kind) continue;
        for (const struct builtin *at = tables[i].table; at->name; at++)
            if (strlen(at->name) == n_bytes && !memcmp(at->name, name, n_bytes)) return at;
    }
    return NULL;
}
