/*
 * Numbers of tokens as OpenAI's two forms have them, each with the ids that the forms lack.
 *
 * The legacy form names alternatives by their text, which is no name: several tokens may have the
 * same, fragments of characters above all. Of those the largest number stays, so that "the token's
 * number is the largest of its row" remains true exactly for the likeliest token, which is how
 * harnesses find out what is greedy. Texts are compared as they are written: as JSON strings.
 */
#include "openai.h"
#include "base/utf8.h"

#include <stdlib.h>

void tell_token_bytes(struct exchange *exchange, int32_t token_id)
{
    struct json *json = &exchange->writer;
    size_t n_bytes;
    const char *bytes = token_text(exchange, token_id, &n_bytes);
    if (!exchange_info(exchange)->has_tokenizer) {
        json_nil(json);
        return;
    }
    json_begin(json, '[');
    for (size_t i = 0; i < n_bytes; i++) json_int(json, (unsigned char)bytes[i]);
    json_end(json, ']');
}

/* ---- alternatives ---------------------------------------------------------------------------- */

/* The next token of a row: the true one, then the likeliest others, or those that were named.
 * False: there are no more. */
struct alternative {
    int32_t id;
    int64_t rank;
    float logprob;
};
static bool next_alternative(const struct told_row *row, size_t n_top, size_t *at,
                             struct alternative *out)
{
    if (*at == 0) {
        *at = 1;
        *out = (struct alternative){row->id, row->rank, row->logprob};
        return true;
    }
    while (*at <= n_top && row->top_ids[*at - 1] == row->id) ++*at;
    if (*at > n_top || row->top_ids[*at - 1] < 0) return false;
    *out = (struct alternative){row->top_ids[*at - 1], rank_in(row, *at - 1),
                                row->top_logprobs[*at - 1]};
    ++*at;
    return true;
}

/* A member of the dict, as it is written. */
struct member {
    size_t begin, n_key, n_bytes;
    const char *text;
    float logprob;
    size_t place;
    bool hidden;
};
struct members {
    struct buf text;
    struct member *list, **order;
    size_t capacity;
};

static int compare_members(const void *a, const void *b)
{
    const struct member *left = *(struct member *const *)a, *right = *(struct member *const *)b;
    size_t n = left->n_key < right->n_key ? left->n_key : right->n_key;
    int difference = memcmp(left->text, right->text, n);
    if (difference == 0) difference = (left->n_key > right->n_key) - (left->n_key < right->n_key);
    if (difference == 0)
        difference = (left->logprob < right->logprob) - (left->logprob > right->logprob);
    return difference ? difference : (left->place > right->place) - (left->place < right->place);
}

static bool reserve_members(struct members *members, size_t n)
{
    if (n <= members->capacity) return true;
    mem_free(members->list);
    mem_free(members->order);
    members->list = mem_alloc(n, sizeof *members->list);
    members->order = mem_alloc(n, sizeof *members->order);
    members->capacity = members->list && members->order ? n : 0;
    return members->capacity > 0;
}

/* Hides all but the largest of those that are written alike. */
static void hide_doubles(struct members *members, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        members->list[i].text = members->text.data + members->list[i].begin;
        members->order[i] = &members->list[i];
    }
    qsort(members->order, n, sizeof *members->order, compare_members);
    for (size_t i = 1; i < n; i++) {
        struct member *one = members->order[i], *before = members->order[i - 1];
        one->hidden =
            one->n_key == before->n_key && memcmp(one->text, before->text, one->n_key) == 0;
    }
}

/* {"text": logprob, ...} */
static void tell_dict(struct exchange *exchange, const struct told_row *row, size_t n_top,
                      struct members *members)
{
    struct json *json = &exchange->writer, saved = *json;
    struct alternative one;
    size_t at = 0, n = 0;
    members->text.n_bytes = 0;
    if (!reserve_members(members, n_top + 1)) {
        exchange->out.failed = true;
        return;
    }
    while (next_alternative(row, n_top, &at, &one)) {
        struct member *member = &members->list[n];
        *member =
            (struct member){.begin = members->text.n_bytes, .logprob = one.logprob, .place = n};
        json_init(json, &members->text);
        tell_token(exchange, one.id, exchange->ask.tokens_as_ids);
        member->n_key = members->text.n_bytes - member->begin;
        buf_puts(&members->text, ":");
        json_init(json, &members->text);
        json_float(json, one.logprob);
        member->n_bytes = members->text.n_bytes - member->begin;
        n++;
    }
    *json = saved;
    if (members->text.failed) {
        exchange->out.failed = true;
        return;
    }
    hide_doubles(members, n);
    json_begin(json, '{');
    for (size_t i = 0; i < n; i++)
        if (!members->list[i].hidden)
            json_raw(json, members->list[i].text, members->list[i].n_bytes);
    json_end(json, '}');
}

/* "token_id", "token", "logprob", "rank" */
static void tell_list(struct exchange *exchange, const struct told_row *row, size_t n_top)
{
    struct json *json = &exchange->writer;
    struct alternative one;
    size_t at = 0;
    json_begin(json, '[');
    while (next_alternative(row, n_top, &at, &one)) {
        json_begin(json, '{');
        json_key(json, "token");
        tell_token(exchange, one.id, exchange->ask.tokens_as_ids);
        tell_ranked(exchange, one.id, one.logprob, one.rank);
        json_end(json, '}');
    }
    json_end(json, ']');
}

/* ---- the legacy object ----------------------------------------------------------------------- */

/* False: the token has no score, only an id. */
static bool legacy_row(const struct legacy *legacy, size_t i, struct told_row *row)
{
    size_t token = legacy->prompt_from + i;
    if (token >= legacy->prompt_to) {
        *row = row_of_choice(legacy->choice, legacy->from + token - legacy->prompt_to);
        return true;
    }
    *row = (struct told_row){.id = legacy->prompt_ids[token]};
    if (token <= legacy->result->start || !legacy->result->logprobs) return false;
    *row = row_of_prompt(legacy->result, token - legacy->result->start - 1);
    return true;
}

static size_t n_characters(const struct exchange *exchange, int32_t token_id)
{
    size_t n_left, n = 0;
    const char *at = token_text(exchange, token_id, &n_left);
    while (n_left > 0) {
        int length = utf8_length((const unsigned char *)at, n_left);
        size_t n_bytes = (size_t)(length < 0 ? -length : length);
        at += n_bytes;
        n_left -= n_bytes;
        n++;
    }
    return n;
}

/* Writes one cell of a column; offset: characters before the token. */
struct cell {
    struct told_row row;
    size_t n_top, offset;
    struct members *members;
};
typedef void tell_cell(struct exchange *exchange, const struct cell *cell);

static void cell_token(struct exchange *exchange, const struct cell *cell)
{
    tell_token(exchange, cell->row.id, exchange->ask.tokens_as_ids);
}
static void cell_logprob(struct exchange *exchange, const struct cell *cell)
{
    json_float(&exchange->writer, cell->row.logprob);
}
static void cell_dict(struct exchange *exchange, const struct cell *cell)
{
    tell_dict(exchange, &cell->row, cell->n_top, cell->members);
}
static void cell_offset(struct exchange *exchange, const struct cell *cell)
{
    json_int(&exchange->writer, (int64_t)cell->offset);
}
static void cell_id(struct exchange *exchange, const struct cell *cell)
{
    json_int(&exchange->writer, cell->row.id);
}
static void cell_rank(struct exchange *exchange, const struct cell *cell)
{
    json_int(&exchange->writer, cell->row.rank);
}
static void cell_bytes(struct exchange *exchange, const struct cell *cell)
{
    tell_token_bytes(exchange, cell->row.id);
}
static void cell_list(struct exchange *exchange, const struct cell *cell)
{
    tell_list(exchange, &cell->row, cell->n_top);
}

static const struct column {
    const char *name;
    tell_cell *tell;
    bool of_score; /* null where there is none */
} columns[] = {
    {"tokens", cell_token, false},     {"token_logprobs", cell_logprob, true},
    {"top_logprobs", cell_dict, true}, {"text_offset", cell_offset, false},
    {"token_ids", cell_id, false},     {"ranks", cell_rank, true},
    {"bytes", cell_bytes, false},      {"top_tokens", cell_list, true},
};

static size_t tell_column(struct exchange *exchange, const struct legacy *legacy,
                          const struct column *column, struct members *members)
{
    struct json *json = &exchange->writer;
    int64_t most = exchange->ask.logprobs;
    size_t n = legacy->prompt_to - legacy->prompt_from + (legacy->to - legacy->from);
    struct cell cell = {.offset = legacy->n_characters, .members = members};
    json_key(json, column->name);
    json_begin(json, '[');
    for (size_t i = 0; i < n; i++) {
        bool scored = legacy_row(legacy, i, &cell.row);
        bool cut = most >= 0 && (size_t)most < cell.row.n_top && !cell.row.chosen;
        cell.n_top = cut ? (size_t)most : cell.row.n_top;
        if (scored || !column->of_score)
            column->tell(exchange, &cell);
        else
            json_nil(json);
        if (column->tell == cell_offset) cell.offset += n_characters(exchange, cell.row.id);
    }
    json_end(json, ']');
    return cell.offset;
}

void tell_legacy(struct exchange *exchange, struct legacy *legacy)
{
    struct members members = {0};
    size_t n_characters_behind = legacy->n_characters;
    buf_init(&members.text, SIZE_MAX);
    json_begin(&exchange->writer, '{');
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        size_t offset = tell_column(exchange, legacy, &columns[i], &members);
        if (offset > n_characters_behind) n_characters_behind = offset;
    }
    legacy->n_characters = n_characters_behind;
    json_end(&exchange->writer, '}');
    buf_free(&members.text);
    mem_free(members.list);
    mem_free(members.order);
}

/* ---- chat ------------------------------------------------------------------------------------ */

static void tell_named(struct exchange *exchange, int32_t id, float logprob, int64_t rank)
{
    struct json *json = &exchange->writer;
    json_key(json, "token");
    tell_token(exchange, id, exchange->ask.tokens_as_ids);
    tell_ranked(exchange, id, logprob, rank);
    json_key(json, "bytes");
    tell_token_bytes(exchange, id);
}

void tell_content_entry(struct exchange *exchange, const struct told_row *row)
{
    struct json *json = &exchange->writer;
    tell_named(exchange, row->id, row->logprob, row->rank);
    json_key(json, "top_logprobs");
    json_begin(json, '[');
    for (size_t k = 0; k < row->n_top && row->top_ids[k] >= 0; k++) {
        json_begin(json, '{');
        tell_named(exchange, row->top_ids[k], row->top_logprobs[k], rank_in(row, k));
        json_end(json, '}');
    }
    json_end(json, ']');
}

void tell_content_of(struct exchange *exchange, const np_generated *choice, size_t from, size_t to)
{
    struct json *json = &exchange->writer;
    json_begin(json, '{');
    json_key(json, "content");
    json_begin(json, '[');
    for (size_t i = from; i < to; i++) {
        struct told_row row = row_of_choice(choice, i);
        json_begin(json, '{');
        tell_content_entry(exchange, &row);
        json_end(json, '}');
    }
    json_end(json, ']');
    json_key(json, "refusal");
    json_nil(json);
    json_end(json, '}');
}
