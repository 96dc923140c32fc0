/*
 * Reads a body by the table of its route. One kind of field is one row in the table of kinds: how
 * it is read and what it must be.
 *
 * Defaults are not written twice: the `fallback` of a row is the JSON that the reference shows, and
 * is read like a value that was sent.
 */
#include "bodyfields.h"
#include "base/json.h"
#include "base/names.h"

#include <float.h>
#include <math.h>

struct reader {
    struct ask *ask;
    bool strict;
    struct buf *unknown;
};

typedef np_status read_fn(struct reader *reader, const struct field *field, const char *where,
                          json_t *value, void *place, np_error *err);

struct kind {
    read_fn *read;
    const char *must_be;
};

static np_status wrong(const struct field *field, const char *where, json_t *value, np_error *err);

/* ---- plain values ---------------------------------------------------------------------------- */

static np_status read_flag(struct reader *reader, const struct field *field, const char *where,
                           json_t *value, void *place, np_error *err)
{
    if (!json_is_boolean(value)) return wrong(field, where, value, err);
    *(int *)place = json_is_true(value);
    return NP_OK;
}

static np_status read_choice(struct reader *reader, const struct field *field, const char *where,
                             json_t *value, void *place, np_error *err)
{
    if (!json_is_boolean(value)) return wrong(field, where, value, err);
    *(int *)place = json_is_true(value) ? NP_YES : NP_NO;
    return NP_OK;
}

static np_status out_of_range(const struct field *field, const char *where, json_t *value,
                              np_error *err)
{
    char must_be[96];
    if (field->high >= INT32_MAX)
        snprintf(must_be, sizeof must_be, "at least %.0f", field->low);
    else if (field->kind == FIELD_NUMBER)
        snprintf(must_be, sizeof must_be, "a number from %g to %g", field->low, field->high);
    else
        snprintf(must_be, sizeof must_be, "from %.0f to %.0f", field->low, field->high);
    return value_wrong(where, must_be, value, err);
}

static np_status read_int(struct reader *reader, const struct field *field, const char *where,
                          json_t *value, void *place, np_error *err)
{
    int64_t number;
    if (!value_whole(&reader->ask->values, value, &number)) return wrong(field, where, value, err);
    if ((double)number < field->low || (double)number > field->high)
        return out_of_range(field, where, value, err);
    *(int64_t *)place = number;
    return NP_OK;
}

static np_status read_count(struct reader *reader, const struct field *field, const char *where,
                            json_t *value, void *place, np_error *err)
{
    if (!json_is_boolean(value)) return read_int(reader, field, where, value, place, err);
    *(int64_t *)place = json_is_true(value) ? 1 : NOT_GIVEN;
    return NP_OK;
}

static np_status read_ints(struct reader *reader, const struct field *field, const char *where,
                           json_t *value, void *place, np_error *err)
{
    bool many = json_is_array(value);
    size_t n = many ? json_array_size(value) : 1;
    int64_t *list = arena_push_array(reader->ask->values.arena, n + 1, sizeof *list);
    if (!list) return error_nomem(err, where, n * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        char path[160];
        snprintf(path, sizeof path, many ? "%s[%zu]" : "%s", where, i);
        TRY(read_int(reader, field, path, many ? json_array_get(value, i) : value, &list[i], err));
    }
    *(struct ints *)place = (struct ints){.at = list, .n = n, .many = many};
    return NP_OK;
}

static np_status read_number(struct reader *reader, const struct field *field, const char *where,
                             json_t *value, void *place, np_error *err)
{
    double number = json_number_value(value);
    if (!json_is_number(value)) return wrong(field, where, value, err);
    if (number < field->low || number > field->high) return out_of_range(field, where, value, err);
    *(double *)place = number;
    return NP_OK;
}

static np_status read_above0(struct reader *reader, const struct field *field, const char *where,
                             json_t *value, void *place, np_error *err)
{
    double number = json_number_value(value);
    bool good = json_is_number(value) && number >= (double)FLT_TRUE_MIN && number <= field->high;
    if (!good && json_is_number(value) && field->high < (double)FLT_MAX) {
        char must_be[64];
        snprintf(must_be, sizeof must_be, "above 0, at most %g", field->high);
        return value_wrong(where, must_be, value, err);
    }
    if (!good) return wrong(field, where, value, err);
    *(double *)place = number;
    return NP_OK;
}

/* "'a', 'b' or 'c'" */
static void list_names(const char *const *names, char *out, size_t n_bytes)
{
    size_t used = 0;
    for (size_t i = 0; names[i] && used < n_bytes; i++)
        used += (size_t)snprintf(out + used, n_bytes - used, "%s\"%s\"",
                                 i == 0         ? ""
                                 : names[i + 1] ? ", "
                                                : " or ",
                                 names[i]);
}

static np_status read_name(struct reader *reader, const struct field *field, const char *where,
                           json_t *value, void *place, np_error *err)
{
    const char *const *names = field->more;
    int found = -1;
    char allowed[200];
    if (json_is_string(value))
        found = name_find(names, json_string_value(value), json_string_length(value));
    list_names(names, allowed, sizeof allowed);
    if (found < 0) return value_wrong(where, allowed, value, err);
    *(int *)place = found + 1;
    return NP_OK;
}

static np_status read_text(struct reader *reader, const struct field *field, const char *where,
                           json_t *value, void *place, np_error *err)
{
    if (!json_is_string(value)) return wrong(field, where, value, err);
    return value_string(&reader->ask->values, where, value, place, err);
}

static np_status read_word(struct reader *reader, const struct field *field, const char *where,
                           json_t *value, void *place, np_error *err)
{
    np_string text;
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
        return wrong(field, where, value, err);
    TRY(value_string(&reader->ask->values, where, value, &text, err));
    *(const char **)place = text.bytes;
    return NP_OK;
}

static np_status read_ids(struct reader *reader, const struct field *field, const char *where,
                          json_t *value, void *place, np_error *err)
{
    return value_ids(&reader->ask->values, where, value, place, err);
}

static np_status read_texts(struct reader *reader, const struct field *field, const char *where,
                            json_t *value, void *place, np_error *err)
{
    struct texts *texts = place;
    return value_strings(&reader->ask->values, where, value, &texts->at, &texts->n, err);
}

static np_status read_seed(struct reader *reader, const struct field *field, const char *where,
                           json_t *value, void *place, np_error *err)
{
    return value_seed(&reader->ask->values, where, value, place, err);
}

static np_status read_biases(struct reader *reader, const struct field *field, const char *where,
                             json_t *value, void *place, np_error *err)
{
    struct biases *biases = place;
    return value_biases(&reader->ask->values, where, value, &biases->at, &biases->n, err);
}

/* ---- prompts --------------------------------------------------------------------------------- */

static np_status read_one_prompt(struct reader *reader, const char *where, json_t *value,
                                 bool may_be_text, struct prompt *prompt, np_error *err)
{
    struct values *values = &reader->ask->values;
    if (json_is_string(value) && may_be_text)
        return value_string(values, where, value, &prompt->text, err);
    if (!json_is_array(value))
        return value_wrong(where,
                           may_be_text ? "a text or a list of token ids" : "a list of token ids",
                           value, err);
    TRY(value_ids(values, where, value, &prompt->ids, err));
    if (prompt->ids.n > 0) return NP_OK;
    return error_set(err, NP_EINPUT, where, NO_OFFSET, "at least one token id is needed");
}

/* All four forms: a text, ids, texts, lists of ids. Texts and lists do not mix. */
static np_status read_prompts(struct reader *reader, const char *where, json_t *value,
                              bool may_be_text, struct prompts *prompts, np_error *err)
{
    json_t *first = json_array_get(value, 0);
    bool many = json_is_array(value) && (json_is_string(first) || json_is_array(first));
    size_t n = many ? json_array_size(value) : 1;
    struct prompt *list = arena_push_array(reader->ask->values.arena, n, sizeof *list);
    if (!list) return error_nomem(err, where, n * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        char place[160];
        json_t *one = many ? json_array_get(value, i) : value;
        snprintf(place, sizeof place, "%s[%zu]", where, i);
        if (many && json_typeof(one) != json_typeof(first))
            return value_wrong(
                place, json_is_string(first) ? "a text, as the first" : "a list, as the first", one,
                err);
        TRY(read_one_prompt(reader, many ? place : where, one, may_be_text, &list[i], err));
    }
    *prompts = (struct prompts){.at = list, .n = n, .many = many};
    return NP_OK;
}

static np_status read_prompt(struct reader *reader, const struct field *field, const char *where,
                             json_t *value, void *place, np_error *err)
{
    return read_prompts(reader, where, value, true, place, err);
}

static np_status read_id_lists(struct reader *reader, const struct field *field, const char *where,
                               json_t *value, void *place, np_error *err)
{
    if (!json_is_array(value)) return wrong(field, where, value, err);
    return read_prompts(reader, where, value, false, place, err);
}

/* ---- values that are kept, and those that must not be there ---------------------------------- */

static np_status read_candidates(struct reader *reader, const struct field *field,
                                 const char *where, json_t *value, void *place, np_error *err)
{
    if (!json_is_array(value) && !json_is_string(value)) return wrong(field, where, value, err);
    *(json_t **)place = value;
    return NP_OK;
}

static np_status read_pieces(struct reader *reader, const struct field *field, const char *where,
                             json_t *value, void *place, np_error *err)
{
    if (!json_is_array(value) && !json_is_string(value) && !json_is_object(value))
        return wrong(field, where, value, err);
    *(json_t **)place = value;
    return NP_OK;
}

static np_status read_array(struct reader *reader, const struct field *field, const char *where,
                            json_t *value, void *place, np_error *err)
{
    if (!json_is_array(value)) return wrong(field, where, value, err);
    *(json_t **)place = value;
    return NP_OK;
}

static np_status read_map(struct reader *reader, const struct field *field, const char *where,
                          json_t *value, void *place, np_error *err)
{
    if (!json_is_object(value)) return wrong(field, where, value, err);
    *(json_t **)place = value;
    return NP_OK;
}

static np_status read_only(struct reader *reader, const struct field *field, const char *where,
                           json_t *value, void *place, np_error *err)
{
    json_t *allowed = json_loads(field->more, JSON_DECODE_ANY, NULL), *one;
    size_t i;
    bool good = false;
    if (!allowed) return error_nomem(err, where, strlen(field->more));
    json_array_foreach(allowed, i, one)
    {
        bool number = json_is_number(one) && json_is_number(value);
        good = good || json_equal(one, value) ||
               (number && json_number_value(one) == json_number_value(value));
    }
    json_decref(allowed);
    if (good) return NP_OK;
    error_set(err, NP_EUNSUPPORTED, where, NO_OFFSET, "not served here; null and %s are taken",
              (const char *)field->more);
    if (json_is_string(value)) return error_given(err, err->status, "%s", json_string_value(value));
    return err ? err->status : NP_EUNSUPPORTED;
}

static np_status read_ignored(struct reader *reader, const struct field *field, const char *where,
                              json_t *value, void *place, np_error *err)
{
    return NP_OK;
}

static np_status read_object(struct reader *reader, const struct field *field, const char *where,
                             json_t *value, void *place, np_error *err);

static const struct kind kinds[] = {
    [FIELD_FLAG] = {read_flag, "true or false"},
    [FIELD_CHOICE] = {read_choice, "true or false"},
    [FIELD_INT] = {read_int, "an integer"},
    [FIELD_COUNT] = {read_count, "an integer"},
    [FIELD_NUMBER] = {read_number, "a number"},
    [FIELD_ABOVE0] = {read_above0, "a number above 0"},
    [FIELD_NAME] = {read_name, "a name"},
    [FIELD_TEXT] = {read_text, "a text"},
    [FIELD_WORD] = {read_word, "a text without NUL"},
    [FIELD_IDS] = {read_ids, "a list of token ids"},
    [FIELD_TEXTS] = {read_texts, "a text or a list of texts"},
    [FIELD_SEED] = {read_seed, "an integer"},
    [FIELD_BIASES] = {read_biases, "an object"},
    [FIELD_PROMPT] = {read_prompt, "a text, a list of texts, ids or lists of ids"},
    [FIELD_ID_LISTS] = {read_id_lists, "a list of token ids, or a list of such lists"},
    [FIELD_CANDIDATES] = {read_candidates, "a list of ids, a list of lists, or base64 of a .npy"},
    [FIELD_INTS] = {read_ints, "an integer, or a list of them"},
    [FIELD_PIECES] = {read_pieces, "a text, ids, or a list of such"},
    [FIELD_ARRAY] = {read_array, "a list"},
    [FIELD_MAP] = {read_map, "an object"},
    [FIELD_OBJECT] = {read_object, "an object"},
    [FIELD_ONLY] = {read_only, "null"},
    [FIELD_IGNORED] = {read_ignored, "anything"},
};

static np_status wrong(const struct field *field, const char *where, json_t *value, np_error *err)
{
    return value_wrong(where, kinds[field->kind].must_be, value, err);
}

/* ---- objects --------------------------------------------------------------------------------- */

const struct field *body_find(const struct field *const *groups, const char *name)
{
    for (; *groups; groups++)
        for (const struct field *field = *groups; field->name; field++)
            if (strcmp(field->name, name) == 0) return field;
    return NULL;
}

static np_status read_field(struct reader *reader, const struct field *field, const char *where,
                            json_t *value, np_error *err)
{
    return kinds[field->kind].read(reader, field, where, value, (char *)reader->ask + field->at,
                                   err);
}

static np_status read_fallback(struct reader *reader, const struct field *field, np_error *err)
{
    if (!field->fallback) return NP_OK;
    if (strcmp(field->fallback, "null") == 0) {
        void *place = (char *)reader->ask + field->at;
        if (field->kind == FIELD_INT || field->kind == FIELD_COUNT) *(int64_t *)place = NOT_GIVEN;
        if (field->kind == FIELD_SEED) *(int64_t *)place = -1;
        if (field->kind == FIELD_NUMBER || field->kind == FIELD_ABOVE0) *(double *)place = NAN;
        return NP_OK;
    }
    json_t *value = json_loads(field->fallback, JSON_DECODE_ANY, NULL);
    if (!value) return error_nomem(err, field->name, strlen(field->fallback));
    np_status status = read_field(reader, field, field->name, value, err);
    json_decref(value);
    return status;
}

/* Defaults of all rows: those of objects that are not sent too. Two rows may share a place: the
 * last default counts. Of two rows of one name the first is the field. */
static np_status read_fallbacks(struct reader *reader, const struct field *const *groups,
                                np_error *err)
{
    for (const struct field *const *group = groups; *group; group++)
        for (const struct field *field = *group; field->name; field++) {
            if (*field->name && body_find(groups, field->name) != field) continue;
            if (field->kind == FIELD_OBJECT) TRY(read_fallbacks(reader, field->more, err));
            TRY(read_fallback(reader, field, err));
        }
    return NP_OK;
}

/* The object among these fields that has a field of this name. */
static const char *object_with(const struct field *const *groups, const char *name)
{
    for (; *groups; groups++)
        for (const struct field *field = *groups; field->name; field++)
            if (field->kind == FIELD_OBJECT && body_find(field->more, name)) return field->name;
    return NULL;
}

/* Names go into a header and a log: what would not fit there is told as "?". */
static void report(struct reader *reader, const char *where)
{
    bool plain = strlen(where) < 100;
    for (const char *at = where; *at; at++) plain = plain && *at > ' ' && *at < 127;
    if (reader->unknown->n_bytes < 1000)
        buf_printf(reader->unknown, "%s%s", reader->unknown->n_bytes ? "," : "",
                   plain ? where : "?");
}

/* Clients send what other servers know, so unknown names are only reported; but not one that is
 * known at another place, or is a letter or two off: its answer would lack what was asked. */
static np_status unknown(struct reader *reader, const struct field *const *groups,
                         const char *where, const char *name, np_error *err)
{
    enum { LONG_NAME = 8, SLIP = 2 };
    const char *names[128], *object = object_with(groups, name);
    size_t n = 0;
    for (; *groups; groups++)
        for (const struct field *field = *groups; field->name && n < 128; field++)
            names[n++] = field->name;
    const char *nearest = name_nearest(names, n, sizeof names[0], name);
    bool slip = nearest && strlen(name) >= LONG_NAME && name_distance(nearest, name) <= SLIP;
    if (object)
        return error_set(err, NP_EINPUT, where, NO_OFFSET, "this field belongs into %s", object);
    if (!reader->strict && !slip) {
        report(reader, where);
        return NP_OK;
    }
    if (nearest)
        return error_set(err, NP_EINPUT, where, NO_OFFSET, "unknown field; did you mean %s?",
                         nearest);
    return error_set(err, NP_EINPUT, where, NO_OFFSET, "unknown field");
}

static np_status read_members(struct reader *reader, const struct field *const *groups,
                              const char *prefix, const json_t *object, np_error *err)
{
    const char *name;
    json_t *value;
    char where[192];
    json_object_foreach((json_t *)object, name, value)
    {
        const struct field *field = body_find(groups, name);
        snprintf(where, sizeof where, "%s%.100s", prefix, name);
        if (!field && (reader->strict || !json_is_null(value)))
            TRY(unknown(reader, groups, where, name, err));
        else if (field && !json_is_null(value))
            TRY(read_field(reader, field, where, value, err));
    }
    for (; *groups; groups++)
        for (const struct field *field = *groups; field->name; field++) {
            json_t *sent = json_object_get(object, field->name);
            if (!field->required || (sent && !json_is_null(sent))) continue;
            snprintf(where, sizeof where, "%s%s", prefix, field->name);
            return error_set(err, NP_EINPUT, where, NO_OFFSET, "this field is required: %s",
                             kinds[field->kind].must_be);
        }
    return NP_OK;
}

static np_status read_object(struct reader *reader, const struct field *field, const char *where,
                             json_t *value, void *place, np_error *err)
{
    char prefix[128];
    if (!json_is_object(value)) return wrong(field, where, value, err);
    snprintf(prefix, sizeof prefix, "%.100s.", where);
    return read_members(reader, field->more, prefix, value, err);
}

np_status body_read(const struct field *const *groups, const json_t *json, bool strict,
                    struct ask *ask, struct buf *names, np_error *err)
{
    struct reader reader = {.ask = ask, .strict = strict, .unknown = names};
    if (!json_is_object(json)) return value_wrong("body", "a JSON object", json, err);
    TRY(read_fallbacks(&reader, default_groups, err));
    TRY(read_fallbacks(&reader, groups, err));
    return read_members(&reader, groups, "", json, err);
}

/* ---- places ---------------------------------------------------------------------------------- */

static bool is_name(const char *name, const char *where, size_t n_where)
{
    return name && strlen(name) == n_where && memcmp(name, where, n_where) == 0;
}

/* What is looked for: a field's own name, or what the library calls it; and whether it must have
 * been sent, in `body`. */
struct search {
    bool own, sent;
};

static bool name_place(const struct field *const *groups, struct search search, const json_t *body,
                       const char *prefix, const char *name, size_t n_name, char *out,
                       size_t n_bytes)
{
    for (; *groups; groups++)
        for (const struct field *field = *groups; field->name; field++) {
            char inner[128];
            snprintf(inner, sizeof inner, "%s%s.", prefix, field->name);
            const json_t *value = json_object_get(body, field->name);
            if (field->kind == FIELD_OBJECT &&
                name_place(field->more, search, value, inner, name, n_name, out, n_bytes))
                return true;
            if (field->kind == FIELD_OBJECT || (search.sent && (!value || json_is_null(value))) ||
                !is_name(search.own ? field->name : field->becomes, name, n_name))
                continue;
            snprintf(out, n_bytes, "%s%s", prefix, field->name);
            return true;
        }
    return false;
}

void body_name_place(const struct field *const *groups, const json_t *body, np_error *err)
{
    char found[128], rest[sizeof err->where];
    size_t n_name = strcspn(err->where, "[");
    if (strncmp(err->where, "sampling.", 9) != 0) n_name = strcspn(err->where, "[.");
    bool good = false;
    for (int i = 0; n_name > 0 && i < 4 && !good; i++) {
        struct search search = {.own = i % 2, .sent = i < 2};
        good = name_place(groups, search, body, "", err->where, n_name, found, sizeof found);
    }
    if (!good) return;
    snprintf(rest, sizeof rest, "%s", err->where + n_name);
    snprintf(err->where, sizeof err->where, "%.90s%.90s", found, rest);
}
