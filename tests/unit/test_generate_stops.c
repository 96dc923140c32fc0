/*
 * test_generate_stops.c - where a generated text ends, what of it may be shown while it grows, what
 * masks force, and what is refused.
 */
#include "generating.h"

#include "api/watch.h"
#include "base/utf8.h"

#define N_PROMPT 30
#define N_NEW 120

static const char *const bytes_model = TINY("llama-tied-f32.gguf"); /* byte-level: broken bytes */

struct world {
    np_model *model;
    np_engine *engine;
    struct ask ask; /* at temperature 1, ends by length alone */
    np_result base; /* its answer */
    const np_generated *text;
};

static struct world *open_world(void)
{
    struct world *world = mem_alloc(1, sizeof *world);
    world->model = open_model(bytes_model);
    world->engine = open_engine(world->model, 2, 64);
    ask_init(&world->ask, world->model, N_PROMPT, N_NEW, 1, (np_sampling){.ignore_eos = 1});
    world->base = run_well(world->engine, &world->ask.request);
    world->text = world->base.choices;
    assert_int_equal(world->text->n_tokens, N_NEW);
    assert_int_equal(world->text->text_end[N_NEW - 1], world->text->n_text_bytes);
    assert_int_equal(world->text->stop_index, -1);
    return world;
}

static void close_world(struct world *world)
{
    np_result_free(&world->base);
    np_engine_close(world->engine);
    np_model_close(world->model);
    mem_free(world);
}

/* ---- the text and its end -------------------------------------------------------------------- */

/* The bytes of all tokens, special ones left out: nothing is lost, whole character or not. */
static void all_bytes_are_there(void **state)
{
    struct world *world = open_world();
    size_t n = 0;
    for (size_t i = 0; i < N_NEW; i++) {
        const char *bytes;
        size_t n_bytes;
        int32_t id = world->text->token_ids[i];
        assert_int_equal(np_token_bytes(world->model, id, &bytes, &n_bytes, NULL), NP_OK);
        if (world->text->text_end[i] == n) continue; /* special */
        assert_memory_equal(world->text->text + n, bytes, n_bytes);
        n += n_bytes;
        assert_int_equal(world->text->text_end[i], n);
    }
    world->ask.sampling.keep_special = 1;
    np_result kept = run_well(world->engine, &world->ask.request);
    char *text;
    assert_int_equal(np_detokenize(world->model, world->text->token_ids, N_NEW, &text, &n, NULL),
                     NP_OK);
    assert_int_equal(kept.choices->n_text_bytes, n);
    assert_memory_equal(kept.choices->text, text, n);
    np_free(text);
    np_result_free(&kept);
    close_world(world);
}

/* Where the text must end: behind the first of `stop` that ends in token min_tokens or later. */
static size_t expected_end(const np_generated *text, const np_string *stop, size_t min_tokens)
{
    size_t from = min_tokens ? text->text_end[min_tokens - 1] : 0;
    for (size_t end = from + 1; end <= text->n_text_bytes; end++)
        if (end >= stop->n_bytes &&
            !memcmp(text->text + end - stop->n_bytes, stop->bytes, stop->n_bytes))
            return end;
    return SIZE_MAX;
}

static void check_stop(const struct world *world, const np_generated *got, const np_string *stop,
                       size_t min_tokens, bool include)
{
    const np_generated *whole = world->text;
    size_t end = expected_end(whole, stop, min_tokens), n = N_NEW;
    size_t shown = end == SIZE_MAX ? whole->n_text_bytes : include ? end : end - stop->n_bytes;
    while (end != SIZE_MAX && n > 1 && whole->text_end[n - 2] >= end) n--;
    assert_int_equal(got->finish, end == SIZE_MAX ? NP_FINISH_LENGTH : NP_FINISH_TEXT);
    assert_int_equal(got->stop_index, end == SIZE_MAX ? -1 : 0);
    assert_int_equal(got->n_tokens, n);
    assert_int_equal(got->n_text_bytes, shown);
    assert_memory_equal(got->token_ids, whole->token_ids, n * sizeof(int32_t));
    assert_memory_equal(got->text, whole->text, shown);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(got->text_end[i], whole->text_end[i] < shown ? whole->text_end[i] : shown);
}

/* Parts of the text as it comes: within a token, across several, and more than there is of it. */
static void stop_texts_of_any_place(void **state)
{
    enum { N = 64, ROUNDS = 6 };
    struct world *world = open_world();
    uint32_t seed = 3;
    for (size_t round = 0; round < ROUNDS; round++) {
        np_request requests[N];
        np_sampling samplings[N];
        np_string stops[N];
        np_result results[N];
        np_error err;
        for (size_t i = 0; i < N; i++) {
            seed = seed * 1664525u + 1013904223u;
            size_t at = (seed >> 8) % (world->text->n_text_bytes - 12);
            stops[i] = (np_string){world->text->text + at, 1 + (seed >> 20) % 12};
            samplings[i] = world->ask.sampling;
            samplings[i].stop = &stops[i];
            samplings[i].n_stop = 1;
            samplings[i].include_stop = round % 2;
            samplings[i].min_tokens = round < 2 ? 0 : (seed >> 12) % N_NEW;
            requests[i] = world->ask.request;
            requests[i].sampling = &samplings[i];
        }
        assert_int_equal(np_run(world->engine, requests, N, results, NULL, NULL, &err), NP_OK);
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(results[i].error.status, NP_OK);
            check_stop(world, results[i].choices, &stops[i], samplings[i].min_tokens, round % 2);
            np_result_free(&results[i]);
        }
    }
    close_world(world);
}

/* Only the beginning of a stop text comes: nothing is cut. */
static void a_beginning_stops_nothing(void **state)
{
    struct world *world = open_world();
    char text[8];
    size_t n = world->text->n_text_bytes;
    memcpy(text, world->text->text + n - 4, 4);
    memcpy(text + 4, "\x01\x02\x03\x04", 4);
    np_string stop = {text, sizeof text};
    world->ask.sampling.stop = &stop;
    world->ask.sampling.n_stop = 1;
    np_result got = run_well(world->engine, &world->ask.request);
    same_choice(world->text, got.choices);
    np_result_free(&got);
    close_world(world);
}

/* ---- ids that end it, masks ------------------------------------------------------------------ */

/* Runs with what was changed in the sampling; checks the number of tokens and why it ended. */
static np_result ends(struct world *world, size_t n_tokens, np_finish finish)
{
    np_result got = run_well(world->engine, &world->ask.request);
    assert_int_equal(got.choices->n_tokens, n_tokens);
    assert_int_equal(got.choices->finish, finish);
    assert_int_equal(got.choices->stop_index, -1);
    return got;
}

static void ids_that_end_the_text(void **state)
{
    struct world *world = open_world();
    np_sampling *sampling = &world->ask.sampling;
    int32_t id = world->text->token_ids[40];
    size_t first = 0;
    while (world->text->token_ids[first] != id) first++;
    sampling->stop_token_ids = (np_ids){&id, 1};
    for (int include = 0; include < 2; include++) {
        sampling->include_stop = include;
        np_result got = ends(world, first + 1, NP_FINISH_TOKEN);
        assert_int_equal(got.choices->token_ids[first], id);
        size_t end = include ? world->text->text_end[first]
                     : first ? world->text->text_end[first - 1]
                             : 0;
        assert_int_equal(got.choices->n_text_bytes, end);
        np_result_free(&got);
    }
    close_world(world);
}

static void end_of_sequence(void **state)
{
    struct world *world = open_world();
    np_sampling *sampling = &world->ask.sampling;
    int32_t eos = np_model_info(world->model).eos_id;
    np_bias bias = {eos, 100};
    np_result got;
    assert_true(eos >= 0);
    sampling->logit_bias = &bias;
    sampling->n_logit_bias = 1;
    got = ends(world, N_NEW, NP_FINISH_LENGTH); /* ignore_eos */
    for (size_t i = 0; i < N_NEW; i++) assert_int_equal(got.choices->token_ids[i], eos);
    np_result_free(&got);
    sampling->ignore_eos = 0;
    got = ends(world, 1, NP_FINISH_TOKEN);
    assert_int_equal(got.choices->token_ids[0], eos);
    assert_int_equal(got.choices->n_text_bytes, 0);
    np_result_free(&got);
    sampling->min_tokens = 3;
    got = ends(world, 4, NP_FINISH_TOKEN);
    for (size_t i = 0; i < 4; i++) assert_int_equal(got.choices->token_ids[i] == eos, i == 3);
    np_result_free(&got);
    sampling->min_tokens = N_NEW;
    np_result_free(&(np_result[]){ends(world, N_NEW, NP_FINISH_LENGTH)}[0]);
    close_world(world);
}

static void masks_force_and_change(void **state)
{
    struct world *world = open_world();
    np_sampling *sampling = &world->ask.sampling;
    int32_t id = 33;
    np_bias bias = {id, 100};
    np_result got;
    sampling->allowed_token_ids = (np_ids){&id, 1};
    got = ends(world, N_NEW, NP_FINISH_LENGTH);
    for (size_t i = 0; i < N_NEW; i++) assert_int_equal(got.choices->token_ids[i], id);
    np_result_free(&got);
    /* Nothing is left: that request fails, its neighbour does not. */
    np_ids bad = {&id, 1};
    sampling->bad_words = &bad;
    sampling->n_bad_words = 1;
    struct ask next;
    ask_init(&next, world->model, N_PROMPT, N_NEW, 1, (np_sampling){.ignore_eos = 1});
    np_request requests[2] = {world->ask.request, next.request};
    np_result results[2];
    np_error err;
    assert_int_equal(np_run(world->engine, requests, 2, results, NULL, NULL, &err), NP_OK);
    assert_int_equal(results[0].error.status, NP_EINPUT);
    assert_null(results[0].choices);
    same_choice(world->text, results[1].choices);
    np_result_free(&results[1]);
    sampling->bad_words = NULL;
    sampling->n_bad_words = 0;
    sampling->allowed_token_ids = (np_ids){0};
    sampling->logit_bias = &bias;
    sampling->n_logit_bias = 1;
    got = ends(world, N_NEW, NP_FINISH_LENGTH);
    for (size_t i = 0; i < N_NEW; i++) assert_int_equal(got.choices->token_ids[i], id);
    np_result_free(&got);
    sampling->n_logit_bias = 0;
    float *const penalties[] = {&sampling->presence_penalty, &sampling->frequency_penalty,
                                &sampling->repetition_penalty};
    for (size_t i = 0; i < 3; i++) {
        *penalties[i] = 2;
        got = ends(world, N_NEW, NP_FINISH_LENGTH);
        assert_true(memcmp(got.choices->token_ids, world->text->token_ids, N_NEW * 4) != 0);
        np_result_free(&got);
        *penalties[i] = 0;
    }
    close_world(world);
}

/* ---- lengths, refusals ----------------------------------------------------------------------- */

static void to_the_end_of_the_context(void **state)
{
    np_model *model = open_model(bytes_model);
    np_engine *engine =
        open_engine_how(model, (np_engine_options){.n_threads = 1, .n_context = 100});
    struct ask ask;
    ask_init(&ask, model, 90, 10, 1, telling((np_sampling){0}));
    np_result right = run_well(engine, &ask.request);
    assert_int_equal(right.choices->n_tokens, 10);
    ask.request.max_tokens = SIZE_MAX;
    np_result got = run_well(engine, &ask.request);
    same_choice(right.choices, got.choices);
    np_result_free(&got);
    np_result_free(&right);
    ask.request.max_tokens = 11;
    run_refused(engine, &ask.request, NP_ELIMIT, "max_tokens");
    ask.request.max_tokens = SIZE_MAX - 1;
    run_refused(engine, &ask.request, NP_ELIMIT, "max_tokens");
    ask_init(&ask, model, 100, SIZE_MAX, 1, (np_sampling){0});
    run_refused(engine, &ask.request, NP_ELIMIT, "max_tokens");
    ask_init(&ask, model, 101, 1, 1, (np_sampling){0});
    run_refused(engine, &ask.request, NP_ELIMIT, "token_ids");
    np_engine_close(engine);
    np_model_close(model);
}

static void refusals_name_the_field(void **state)
{
    static const int32_t far[] = {3, 100000};
    static const np_bias bias = {-1, 1};
    static const np_ids empty = {far, 0}, outside = {far, 2};
    static const np_string stops[65] = {{"a", 1}, {"", 0}};
    static const float hot = 2.5f, cold = -0.1f;
    static const struct {
        const char *where;
        np_sampling sampling;
    } cases[] = {
        {"n", {.n = -1}},
        {"n", {.n = 129}},
        {"temperature", {.temperature = &hot}},
        {"temperature", {.temperature = &cold}},
        {"top_k", {.top_k = -2}},
        {"top_p", {.top_p = 1.5f}},
        {"min_p", {.min_p = -1}},
        {"presence_penalty", {.presence_penalty = 3}},
        {"frequency_penalty", {.frequency_penalty = -3}},
        {"repetition_penalty", {.repetition_penalty = -1}},
        {"logit_bias[0]", {.logit_bias = &bias, .n_logit_bias = 1}},
        {"allowed_token_ids", {.allowed_token_ids = {far, 0}}},
        {"allowed_token_ids[1]", {.allowed_token_ids = {far, 2}}},
        {"stop_token_ids[1]", {.stop_token_ids = {far, 2}}},
        {"stop_token_ids", {.stop_token_ids = {NULL, 2}}},
        {"bad_words[0]", {.bad_words = &empty, .n_bad_words = 1}},
        {"bad_words[0][1]", {.bad_words = &outside, .n_bad_words = 1}},
        {"stop[1]", {.stop = stops, .n_stop = 2}},
        {"stop", {.stop = stops, .n_stop = 65}},
        {"stop", {.stop = NULL, .n_stop = 1}},
        {"min_tokens", {.min_tokens = 11}},
        {"sampling.want", {.want = NP_WANT_TAIL}},
        {"sampling.top", {.top = -2}},
    };
    np_model *model = open_model(bytes_model), *bare = open_model(TINY("llama-head10-bf16"));
    np_engine *engine = open_engine(model, 1, 64), *bare_engine = open_engine(bare, 1, 64);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ask ask;
        ask_init(&ask, model, 5, 10, 1, cases[i].sampling);
        if (cases[i].sampling.temperature) ask.sampling.temperature = cases[i].sampling.temperature;
        run_refused(engine, &ask.request, NP_EINPUT, cases[i].where);
    }
    struct ask ask; /* ids alone are enough for ids */
    ask_init(&ask, bare, 5, 10, 1, (np_sampling){.stop = stops, .n_stop = 1});
    run_refused(bare_engine, &ask.request, NP_EUNSUPPORTED, "stop");
    ask.sampling.n_stop = 0;
    np_result got = run_well(bare_engine, &ask.request);
    assert_int_equal(got.choices->n_tokens, 10);
    assert_null(got.choices->text);
    assert_null(got.choices->text_end);
    np_result_free(&got);
    np_engine_close(engine);
    np_engine_close(bare_engine);
    np_model_close(model);
    np_model_close(bare);
}

/* ---- what is shown while it grows ------------------------------------------------------------ */

/* Whether place n is inside a character of a text. */
static bool within_character(const np_generated *choice, size_t n)
{
    const unsigned char *text = (const unsigned char *)choice->text;
    for (size_t at = n > 3 ? n - 3 : 0; at < n; at++) {
        unsigned char lead = text[at];
        size_t length = lead < 0xc2 || lead > 0xf4 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
        size_t end = at + 1;
        while (end < at + length && end < choice->n_text_bytes && text[end] >> 6 == 2) end++;
        if (end == at + length && end > n) return true;
    }
    return false;
}

/* How much of a text was shown after each token. */
struct shown {
    size_t n, n_bytes[2 * N_NEW];
};

static void look(void *user, size_t request, const np_result *result, size_t n_rows, int finished)
{
    struct shown *shown = user;
    if (result->choices && shown->n < 2 * N_NEW)
        shown->n_bytes[shown->n++] = result->choices->n_text_bytes;
}

static void no_character_is_cut_while_it_grows(void **state)
{
    struct world *world = open_world();
    const np_string stop = {"\xa9\x80", 2};
    size_t n_inside = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct shown shown = {0};
        np_ticket *ticket;
        np_result result;
        np_error err;
        world->ask.seed = seed;
        world->ask.sampling.stop = &stop;
        world->ask.sampling.n_stop = seed % 2;
        assert_int_equal(
            np_submit(world->engine, &world->ask.request, 1, look, &shown, &ticket, &err), NP_OK);
        assert_int_equal(np_wait(ticket, &result, &err), NP_OK);
        const np_generated *choice = result.choices;
        assert_true(shown.n >= choice->n_tokens);
        for (size_t i = 0; i < shown.n; i++) {
            assert_false(within_character(choice, shown.n_bytes[i]));
            assert_true(i == 0 || shown.n_bytes[i] >= shown.n_bytes[i - 1]);
        }
        assert_int_equal(shown.n_bytes[shown.n - 1], choice->n_text_bytes);
        for (size_t i = 0; i < choice->n_tokens; i++)
            n_inside += within_character(choice, choice->text_end[i]);
        np_result_free(&result);
    }
    assert_true(n_inside > 5); /* the model does write characters in parts */
    close_world(world);
}

static void unfinished_characters(void **state)
{
    for (int lead = 0; lead < 256; lead++) {
        size_t length = lead < 0xc2 || lead > 0xf4 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
        for (size_t n = 1; n <= 4; n++) {
            char text[6] = {'a', (char)lead, '\x80', '\x80', '\x80'};
            if (lead >= 0x80 && lead < 0xc0 && n == 1) continue;
            size_t expected = n < length ? n : 0;
            assert_int_equal(utf8_unfinished(text, 1 + n), expected);
            assert_int_equal(utf8_unfinished(text + 1, n), expected);
        }
    }
    assert_int_equal(utf8_unfinished("", 0), 0);
    assert_int_equal(utf8_unfinished("\x80\x80\x80\x80", 4), 0);
    assert_int_equal(utf8_unfinished("\xe2\x82"
                                     "a",
                                     3),
                     0);
}

/* Pushes one byte at a time; "may" from byte n_min on. Returns the bytes pushed when it stopped. */
static size_t push_all(struct watch *watch, const char *text, size_t n_min)
{
    size_t n = 0;
    for (; text[n]; n++) {
        size_t before = watch->n_final;
        if (watch_push(watch, text + n, 1, n >= n_min)) return n + 1;
        assert_true(watch->n_final >= before);
    }
    return SIZE_MAX;
}

static void stops_that_overlap(void **state)
{
    static const np_string stops[] = {{"abcd", 4}, {"bc", 2}, {"c", 1}, {"xyxz", 4}};
    static const struct {
        const char *text;
        size_t n_min, n_pushed;
        int32_t index;
        const char *left;
    } cases[] = {
        {"zzabcd", 0, 5, 1, "zza"}, /* the first to end; of those, the first to begin */
        {"zc", 0, 2, 2, "z"},
        {"zzabcd", 5, 6, 0, "zz"}, /* what was complete before never counts */
        {"bcbc", 2, 4, 1, "bc"},
        {"xyxyxz", 0, 6, 3, "xy"}, /* begins within a failed beginning */
        {"xyxy", 0, SIZE_MAX, -1, "xyxy"},
    };
    struct stops prepared;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    assert_true(stops_init(&prepared, stops, 4, &arena));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct watch watch;
        assert_true(watch_init(&watch, &prepared, false, &arena));
        assert_int_equal(push_all(&watch, cases[i].text, cases[i].n_min), cases[i].n_pushed);
        watch_end(&watch);
        assert_int_equal(watch.stop_index, cases[i].index);
        assert_int_equal(watch.n_final, strlen(cases[i].left));
        assert_memory_equal(watch.text.data, cases[i].left, watch.n_final);
        watch_free(&watch);
    }
    arena_free(&arena);
}

/* What may be the beginning of a stop is not shown; neither is the character that it is in. */
static void what_is_held_back(void **state)
{
    static const np_string stops[] = {{"\xa9"
                                       "x",
                                       2},
                                      {"END", 3}};
    static const struct {
        const char *text;
        size_t n_shown;
    } cases[] = {{"aE", 1},
                 {"aEN", 1},
                 {"aEND", 1},
                 {"aENE", 3},
                 {"aENx", 4},
                 {"a\xc3", 1},
                 {"a\xc3\xa9", 1},
                 {"a\xc3\xa9"
                  "b",
                  4},
                 {"aE\xc3", 2},
                 {"a\xe2\x82", 1},
                 {"a\xe2\x82\xa9", 1}};
    struct stops prepared;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    assert_true(stops_init(&prepared, stops, 2, &arena));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct watch watch;
        assert_true(watch_init(&watch, &prepared, false, &arena));
        push_all(&watch, cases[i].text, 0);
        assert_int_equal(watch.n_final, cases[i].n_shown);
        watch_free(&watch);
    }
    arena_free(&arena);
}

/* A long text of few different bytes costs each byte the same. */
static void long_stops_cost_little(void **state)
{
    enum { N = 1 << 18 };
    static char bytes[N + 1];
    struct stops prepared;
    struct arena arena;
    struct watch watch;
    memset(bytes, 'a', N);
    bytes[N / 2] = 'c';
    np_string stop = {bytes, N};
    arena_init(&arena, 1 << 26);
    assert_true(stops_init(&prepared, &stop, 1, &arena));
    assert_true(watch_init(&watch, &prepared, false, &arena));
    for (size_t i = 0; i < N - 1; i++) assert_false(watch_push(&watch, "a", 1, true));
    assert_int_equal(watch.n_final, N - 1 - N / 2);
    assert_false(watch_push(&watch, bytes + N / 2, N / 2 - 1, true));
    assert_true(watch_push(&watch, "aaa", 3, true));
    assert_int_equal(watch.n_final, N - 1 - N / 2);
    watch_free(&watch);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_bytes_are_there),
        cmocka_unit_test(stop_texts_of_any_place),
        cmocka_unit_test(a_beginning_stops_nothing),
        cmocka_unit_test(ids_that_end_the_text),
        cmocka_unit_test(end_of_sequence),
        cmocka_unit_test(masks_force_and_change),
        cmocka_unit_test(to_the_end_of_the_context),
        cmocka_unit_test(refusals_name_the_field),
        cmocka_unit_test(no_character_is_cut_while_it_grows),
        cmocka_unit_test(unfinished_characters),
        cmocka_unit_test(stops_that_overlap),
        cmocka_unit_test(what_is_held_back),
        cmocka_unit_test(long_stops_cost_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
