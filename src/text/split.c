/*
 * split.c - runs the steps of a splitting rule.
 *
 * Step k cuts each piece of step k-1 as if it stood alone: for SmolLM2, digits are cut out first,
 * so that the look-ahead of the GPT-2 rule never sees a digit. Positions in classes are turned into
 * bytes only for the pieces of the last step, which come in order.
 *
 * Places to cut. No rule looks behind (pattern.c knows no such thing), so the state of a step is
 * the place where its last match ended. PCRE2's hard partial matching gives a match only when it
 * never asked for a character beyond the end: what follows cannot change it.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split.h"
#include "text/pattern.h"
#include "text/unicode.h"
#include <pcre2.h>

struct split_code {
    pcre2_code *code;
    bool drop_matches, drop_gaps;
};

static np_status compile(struct split_code *step, const struct split_step *from, const char *where,
                         np_error *err)
{
    struct buf pattern;
    buf_init(&pattern, SPLIT_MAX_REGEX_BYTES * 64);
    np_status status = pattern_translate(from->regex, from->n_bytes, where, &pattern, err);
    int error = 0;
    size_t at = 0;
    uint32_t matches_empty = 0;
    if (status) goto done;
    step->drop_matches = from->drop_matches;
    step->drop_gaps = from->drop_gaps;
    step->code = pcre2_compile((PCRE2_SPTR)pattern.data, pattern.n_bytes, PCRE2_NEVER_BACKSLASH_C,
                               &error, &at, NULL);
    if (!step->code) {
        char text[128] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
        status = error_set(err, NP_EFORMAT, where, NO_OFFSET,
                           "the splitting rule is not a regular expression: %s", text);
        goto done;
    }
    pcre2_jit_compile(step->code,
                      PCRE2_JIT_COMPLETE); /* without JIT the same matches come slower */
    pcre2_pattern_info(step->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty)
        status = error_set(err, NP_EUNSUPPORTED, where, NO_OFFSET,
                           "a splitting rule that matches the empty text is not supported");
done:
    buf_free(&pattern);
    return status;
}

np_status splitter_init(struct splitter *splitter, struct arena *arena,
                        const struct split_step *steps, size_t n_steps, const char *where,
                        np_error *err)
{
    *splitter = (struct splitter){0};
    if (n_steps > SPLIT_MAX_STEPS)
        return error_set(err, NP_ELIMIT, where, NO_OFFSET,
                         "%zu splitting steps; at most %d are allowed", n_steps, SPLIT_MAX_STEPS);
    splitter->steps = arena_push_array(arena, n_steps ? n_steps : 1, sizeof *splitter->steps);
    if (!splitter->steps)
        return error_nomem(err, "the splitting rule", n_steps * sizeof *splitter->steps);
    for (; splitter->n_steps < n_steps; splitter->n_steps++) {
        np_status status =
            compile(&splitter->steps[splitter->n_steps], &steps[splitter->n_steps], where, err);
        if (status) {
            splitter->n_steps++;
            splitter_free(splitter);
            return status;
        }
    }
    return NP_OK;
}

void splitter_free(struct splitter *splitter)
{
    for (size_t i = 0; i < splitter->n_steps; i++) pcre2_code_free(splitter->steps[i].code);
    *splitter = (struct splitter){0};
}

np_status split_space_init(struct split_space *space, const struct splitter *splitter,
                           np_error *err)
{
    *space = (struct split_space){0};
    space->match = pcre2_match_data_create(1, NULL);
    return space->match ? NP_OK : error_nomem(err, "splitting", 0);
}

void split_space_free(struct split_space *space)
{
    if (space->match) pcre2_match_data_free(space->match);
    mem_free(space->classes);
    *space = (struct split_space){0};
}

struct run {
    const struct splitter *splitter;
    const uint8_t *classes;
    size_t n_classes;
    pcre2_match_data *match;
    const char *text;
    size_t n;
    size_t at_class, at_byte; /* the same place in both */
    split_piece *piece;
    split_place *place;
    void *ctx;
};

/* Moves to class `to`; returns the byte where it begins. */
static size_t advance(struct run *run, size_t to)
{
    if (run->n_classes == run->n) return to;
    for (; run->at_class < to; run->at_class++) {
        unsigned char lead = (unsigned char)run->text[run->at_byte];
        bool single = lead < 0x80 || run->classes[run->at_class] == CLASS_OF(UC_INVALID);
        run->at_byte += single ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    }
    return run->at_byte;
}

static np_status cut(struct run *run, size_t step, size_t begin, size_t end, np_error *err);

static np_status hand_on(struct run *run, size_t step, size_t begin, size_t end, np_error *err)
{
    if (begin == end) return NP_OK;
    if (step < run->splitter->n_steps) return cut(run, step, begin, end, err);
    size_t first = advance(run, begin);
    return run->piece(run->ctx, first, advance(run, end), err);
}

static np_status cut(struct run *run, size_t step, size_t begin, size_t end, np_error *err)
{
    const struct split_code *code = &run->splitter->steps[step];
    PCRE2_SPTR subject = run->classes + begin;
    size_t n = end - begin, at = 0;
    while (at < n) {
        int rc = pcre2_match(code->code, subject, n, at, 0, run->match, NULL);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0)
            return error_set(err, rc == PCRE2_ERROR_NOMEMORY ? NP_ENOMEM : NP_ELIMIT, NULL,
                             NO_OFFSET,
                             "the splitting rule takes too long on this text (PCRE2 error %d)", rc);
        const size_t *found = pcre2_get_ovector_pointer(run->match);
        size_t first = found[0], last = found[1];
        if (!code->drop_gaps) TRY(hand_on(run, step + 1, begin + at, begin + first, err));
        if (!code->drop_matches) TRY(hand_on(run, step + 1, begin + first, begin + last, err));
        at = last;
    }
    return code->drop_gaps ? NP_OK : hand_on(run, step + 1, begin + at, end, err);
}

static np_status reserve_classes(struct split_space *space, size_t n, np_error *err)
{
    if (space->n_allocated >= n) return NP_OK;
    mem_free(space->classes);
    space->n_allocated = 0;
    space->classes = mem_alloc(n, 1);
    if (!space->classes) return error_nomem(err, "splitting a text", n);
    space->n_allocated = n;
    return NP_OK;
}

/* A run over the classes of a text. */
static struct run run_over(const struct splitter *splitter, const struct split_space *space,
                           const char *text, size_t n)
{
    return (struct run){.splitter = splitter,
                        .classes = space->classes,
                        .n_classes = unicode_classes(text, n, space->classes),
                        .match = space->match,
                        .text = text,
                        .n = n};
}

np_status splitter_run(const struct splitter *splitter, struct split_space *space, const char *text,
                       size_t n, split_piece *piece, void *ctx, np_error *err)
{
    TRY(reserve_classes(space, n, err));
    struct run run = run_over(splitter, space, text, n);
    run.piece = piece;
    run.ctx = ctx;
    return hand_on(&run, 0, 0, run.n_classes, err);
}

/* Places of a piece that may go on behind `end`. Behind the last certain match of a step no match
 * begins before the new `end`, so the gap there is a piece of the next step that may go on. A match
 * that takes too long ends the search: fewer places, no wrong one. */
static void find_places(struct run *run, size_t step, size_t begin, size_t end)
{
    for (; step < run->splitter->n_steps; step++) {
        for (;;) {
            if (begin == end) return;
            int rc = pcre2_match(run->splitter->steps[step].code, run->classes + begin, end - begin,
                                 0, PCRE2_PARTIAL_HARD, run->match, NULL);
            const size_t *found = pcre2_get_ovector_pointer(run->match);
            if (rc == PCRE2_ERROR_PARTIAL) end = begin + found[0];
            if (rc == PCRE2_ERROR_PARTIAL || rc == PCRE2_ERROR_NOMATCH) break;
            if (rc < 0) return;
            begin += found[1];
            run->place(run->ctx, advance(run, begin));
        }
    }
}

np_status splitter_places(const struct splitter *splitter, struct split_space *space,
                          const char *text, size_t n, split_place *place, void *ctx, np_error *err)
{
    TRY(reserve_classes(space, n, err));
    struct run run = run_over(splitter, space, text, n);
    run.place = place;
    run.ctx = ctx;
    find_places(&run, 0, 0, run.n_classes);
    return NP_OK;
}
