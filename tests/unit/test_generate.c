/*
 * test_generate.c - generated tokens: their values against scoring the finished sequence, bit for
 * bit; the same text in every company; values after masks; streams, cancels, failing allocations.
 */
#include "generating.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>

#define N_PROMPT 70

/* So that as much again, and a little more, can follow. */
static size_t prompt_size(const np_model *model)
{
    size_t n_context = (size_t)np_model_info(model).n_context;
    return n_context > 2 * N_PROMPT + 5 ? N_PROMPT : n_context / 2 - 5;
}

static const struct setting {
    float temperature;
    np_sampling sampling;
} settings[] = {
    {0, {0}},
    {1, {0}},
    {0.7f, {.top_k = 20, .top_p = 0.9f}},
    {1.3f,
     {.min_p = 0.001f,
      .presence_penalty = 0.5f,
      .frequency_penalty = 0.3f,
      .repetition_penalty = 1.2f}},
};
#define N_SETTINGS (sizeof settings / sizeof *settings)

/* ---- teacher and student --------------------------------------------------------------------- */

/* A choice against a scoring request for the prompt and what followed. */
static void teacher_agrees(np_engine *engine, const np_request *asked, const np_generated *choice,
                           bool alone)
{
    size_t n_prompt = asked->n_tokens, n = choice->n_tokens;
    int32_t *ids = mem_alloc(n_prompt + n, sizeof *ids);
    memcpy(ids, asked->token_ids, n_prompt * sizeof *ids);
    memcpy(ids + n_prompt, choice->token_ids, n * sizeof *ids);
    np_request request = {.token_ids = ids,
                          .n_tokens = n_prompt + n,
                          .start = n_prompt - 1,
                          .want = ALL_WANTS,
                          .top = (int32_t)choice->n_top,
                          .candidate_ids = choice->candidate_ids,
                          .n_candidates = choice->n_candidates,
                          .logprobs_mode = asked->logprobs_mode,
                          .skip_reading_prefix_cache = alone};
    np_result right = run_well(engine, &request);
    assert_int_equal(right.n_rows, n);
    assert_memory_equal(right.logprobs, choice->logprobs, n * sizeof(float));
    assert_memory_equal(right.ranks, choice->ranks, n * sizeof(int32_t));
    assert_memory_equal(right.entropies, choice->entropies, n * sizeof(float));
    size_t n_cells = n * choice->n_top;
    assert_memory_equal(right.top_ids, choice->top_ids, n_cells * sizeof(int32_t));
    assert_memory_equal(right.top_logprobs, choice->top_logprobs, n_cells * sizeof(float));
    n_cells = n * choice->n_candidates;
    assert_memory_equal(right.scores, choice->scores, n_cells * sizeof(float));
    np_result_free(&right);
    mem_free(ids);
}

/* C054, log-probabilities and logits, greedy and drawn: difference exactly 0, from the pages that
 * the student left and from none. */
static void student_equals_teacher(void **state)
{
    static const char *const paths[] = {TINY("llama-mixed.gguf"), TINY("qwen2-window77"),
                                        TINY("gpt2-plain"), TINY("llama-tied-f32.gguf")};
    for (size_t m = 0; m < sizeof paths / sizeof *paths; m++) {
        np_model *model = open_model(paths[m]);
        np_engine *engine = open_engine(model, 2, 64), *other = open_engine(model, 1, 16);
        size_t n_prompt = prompt_size(model), n_new = n_prompt + 5;
        for (size_t s = 0; s < 2 * N_SETTINGS; s++) {
            const struct setting *setting = &settings[s / 2];
            struct ask ask;
            ask_init(&ask, model, n_prompt, n_new, setting->temperature,
                     telling(setting->sampling));
            ask.request.logprobs_mode = s % 2 ? NP_RAW_LOGITS : NP_RAW_LOGPROBS;
            np_result student = run_well(engine, &ask.request);
            assert_int_equal(student.n_choices, 1);
            assert_int_equal(student.n_rows, 0);
            assert_int_equal(student.choices->n_tokens, n_new);
            assert_int_equal(student.choices->finish, NP_FINISH_LENGTH);
            teacher_agrees(engine, &ask.request, student.choices, false);
            teacher_agrees(engine, &ask.request, student.choices, true);
            teacher_agrees(other, &ask.request, student.choices, false);
            if (s < 2)
                for (size_t i = 0; i < n_new; i++) assert_int_equal(student.choices->ranks[i], 1);
            np_result_free(&student);
        }
        np_engine_close(engine);
        np_engine_close(other);
        np_model_close(model);
    }
}

/* Rows of the prompt are told beside what follows it, a prompt of one token too. */
static void prompt_rows_and_what_follows(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *engine = open_engine(model, 2, 64);
    for (size_t n = 1; n <= 130; n += 43) {
        struct ask ask;
        ask_init(&ask, model, n, 3, 0, telling((np_sampling){0}));
        np_result bare = run_well(engine, &ask.request);
        ask.request.want = ALL_WANTS;
        ask.request.next = 1;
        ask.request.top = 5;
        np_result both = run_well(engine, &ask.request);
        ask.request.max_tokens = 0;
        np_result rows = run_well(engine, &ask.request);
        same_choice(bare.choices, both.choices);
        assert_null(rows.choices);
        assert_int_equal(both.n_rows, n);
        same_array(rows.logprobs, both.logprobs, rows.n_scored * sizeof(float));
        same_array(rows.entropies, both.entropies, n * sizeof(float));
        assert_int_equal(rows.top_ids[(n - 1) * 5], both.choices->token_ids[0]);
        assert_true(rows.entropies[n - 1] == both.choices->entropies[0]);
        np_result_free(&bare);
        np_result_free(&both);
        np_result_free(&rows);
    }
    np_engine_close(engine);
    np_model_close(model);
}

/* ---- the same text whatever else runs -------------------------------------------------------- */

#define N_CHOICES 4
#define N_OTHERS 8

/* The question among others; those have other prompts, settings and lengths. */
static void ask_in_company(np_engine *engine, const np_model *model, struct ask *ask,
                           const np_result *right, size_t n_others)
{
    struct ask others[N_OTHERS];
    np_request requests[N_OTHERS + 1];
    np_result results[N_OTHERS + 1];
    np_error err;
    for (size_t i = 0; i < n_others; i++) {
        const struct setting *setting = &settings[i % N_SETTINGS];
        ask_init(&others[i], model, i % 2 ? ask->request.n_tokens : 1 + 2 * i, 5 + 2 * i,
                 setting->temperature, setting->sampling);
        others[i].seed = i;
        requests[i + 1] = others[i].request;
    }
    requests[0] = requests[n_others / 2];
    requests[n_others / 2] = ask->request;
    if (n_others == 0) requests[0] = ask->request;
    assert_int_equal(np_run(engine, requests, n_others + 1, results, NULL, NULL, &err), NP_OK);
    const np_result *got = &results[n_others / 2];
    assert_int_equal(got->error.status, NP_OK);
    for (size_t i = 0; i < right->n_choices && i < got->n_choices; i++)
        same_choice(&right->choices[i], &got->choices[i]);
    for (size_t i = 0; i <= n_others; i++) np_result_free(&results[i]);
}

static void same_seed_same_text_in_any_company(void **state)
{
    static const char *const paths[] = {TINY("llama-mixed.gguf"), TINY("qwen2-window77"),
                                        TINY("gpt2-plain")};
    static const size_t chunks[] = {1, 7, 16, 512};
    for (size_t m = 0; m < 3; m++) {
        np_model *model = open_model(paths[m]);
        size_t n_prompt = prompt_size(model), n_new = n_prompt + 5;
        np_engine *first = open_engine(model, 1, 64);
        for (size_t s = 1; s < N_SETTINGS; s++) {
            struct ask ask;
            ask_init(&ask, model, n_prompt, n_new, settings[s].temperature,
                     telling(settings[s].sampling));
            ask.sampling.n = N_CHOICES;
            np_result right = run_well(first, &ask.request);
            assert_int_equal(right.n_choices, N_CHOICES);
            for (size_t i = 1; i < N_CHOICES; i++)
                assert_true(memcmp(right.choices[0].token_ids, right.choices[i].token_ids,
                                   n_new * sizeof(int32_t)));
            for (size_t way = 0; way < 8; way++) {
                np_engine *engine =
                    open_engine_how(model, (np_engine_options){.n_threads = 1 + (int)(way % 3),
                                                               .chunk_rows = chunks[way / 2],
                                                               .cache_memory = s == 2 ? 40000 : 0,
                                                               .no_cache = way % 2});
                ask.sampling.n = (int32_t[]){N_CHOICES, 1, 7}[way % 3];
                ask.request.skip_reading_prefix_cache = way == 5;
                for (size_t round = 0; round < 2; round++)
                    ask_in_company(engine, model, &ask, &right, round ? N_OTHERS : 0);
                np_engine_close(engine);
            }
            np_result_free(&right);
        }
        np_engine_close(first);
        np_model_close(model);
    }
}

/* Memory for one long text: those that give way go on later as if nothing had been. */
static void preempted_texts_go_on(void **state)
{
    enum { N = 12, CONTEXT = 200 };
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *engine, *wide = open_engine(model, 1, 64);
    np_engine_options options = {
        .n_threads = 1, .n_context = CONTEXT, .chunk_rows = 32, .max_memory = 1};
    struct ask asks[N];
    np_request requests[N];
    np_result right[N], results[N];
    np_error err;
    assert_int_equal(np_engine_open(model, &options, &engine, &err), NP_ELIMIT);
    options.max_memory = strtoull(strrchr(err.message, '=') + 1, NULL, 10);
    assert_int_equal(np_engine_open(model, &options, &engine, &err), NP_OK);
    for (size_t i = 0; i < N; i++) {
        const struct setting *setting = &settings[i % N_SETTINGS];
        ask_init(&asks[i], model, 20 + i, 90 + i, setting->temperature, telling(setting->sampling));
        requests[i] = asks[i].request;
    }
    assert_int_equal(np_run(wide, requests, N, right, NULL, NULL, &err), NP_OK);
    assert_int_equal(np_run(engine, requests, N, results, NULL, NULL, &err), NP_OK);
    assert_true(np_engine_stats(engine).n_preempted > 0);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(results[i].error.status, NP_OK);
        same_choice(right[i].choices, results[i].choices);
        np_result_free(&right[i]);
        np_result_free(&results[i]);
    }
    np_engine_close(engine);
    np_engine_close(wide);
    np_model_close(model);
}

/* ---- values after penalties, masks and temperature ------------------------------------------- */

/* All logits of the row after ids [n]. */
static void row_of(np_engine *engine, const int32_t *ids, size_t n, double *logits)
{
    np_request request = {.token_ids = ids,
                          .n_tokens = n,
                          .start = SIZE_MAX,
                          .next = 1,
                          .top = -1,
                          .logprobs_mode = NP_RAW_LOGITS};
    np_result result = run_well(engine, &request);
    for (size_t i = 0; i < result.n_top; i++)
        logits[result.top_ids[i]] = (double)result.top_logprobs[i];
    np_result_free(&result);
}

/* The k-th largest of n. */
static double kth(const double *values, size_t n, size_t k)
{
    for (size_t i = 0; i < n; i++) {
        size_t above = 0, equal = 0;
        for (size_t j = 0; j < n; j++) {
            above += values[j] > values[i];
            equal += values[j] == values[i];
        }
        if (above < k && above + equal >= k) return values[i];
    }
    return -INFINITY;
}

#define MAX_VOCAB 2048
enum { BIASED = 17, N_KEPT = 9 };

/* The row that the draw of token `at` takes, by the rules and in float64. */
static void process(const struct ask *ask, const np_generated *choice, size_t at, size_t n_vocab,
                    double *row)
{
    row[BIASED] += (double)ask->sampling.logit_bias->bias;
    for (size_t id = 0; id < n_vocab; id++) {
        size_t count = 0;
        bool seen = false;
        for (size_t i = 0; i < at; i++) count += choice->token_ids[i] == (int32_t)id;
        for (size_t i = 0; i < ask->request.n_tokens; i++) seen |= ask->ids[i] == (int32_t)id;
        double r = (double)ask->sampling.repetition_penalty;
        if (seen || count) row[id] = row[id] > 0 ? row[id] / r : row[id] * r;
        row[id] -= (double)ask->sampling.frequency_penalty * (double)count;
        row[id] -= (double)ask->sampling.presence_penalty * (count > 0);
        row[id] /= (double)ask->temperature;
    }
    double least = kth(row, n_vocab, N_KEPT);
    for (size_t id = 0; id < n_vocab; id++)
        if (row[id] < least) row[id] = -INFINITY;
}

static void processed_values_are_those_of_the_draw(void **state)
{
    static const np_bias bias = {BIASED, 1.5f};
    static double row[MAX_VOCAB];
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *engine = open_engine(model, 2, 64);
    size_t n_vocab = (size_t)np_model_info(model).n_vocab;
    assert_true(n_vocab <= MAX_VOCAB);
    for (size_t mode = 0; mode < 2; mode++) {
        int32_t ids[N_PROMPT + 20];
        struct ask ask;
        np_sampling sampling = {.top_k = N_KEPT,
                                .logit_bias = &bias,
                                .n_logit_bias = 1,
                                .presence_penalty = 0.25f,
                                .frequency_penalty = 0.5f,
                                .repetition_penalty = 1.5f,
                                .processed = 1};
        ask_init(&ask, model, N_PROMPT, 20, 0.75f, telling(sampling));
        ask.sampling.top = N_KEPT + 3;
        ask.request.logprobs_mode = mode ? NP_RAW_LOGITS : NP_RAW_LOGPROBS;
        np_result result = run_well(engine, &ask.request);
        const np_generated *choice = result.choices;
        memcpy(ids, ask.ids, sizeof ask.ids[0] * N_PROMPT);
        for (size_t i = 0; i < choice->n_tokens; i++) {
            double sum = 0;
            row_of(engine, ids, N_PROMPT + i, row);
            process(&ask, choice, i, n_vocab, row);
            for (size_t id = 0; id < n_vocab; id++) sum += exp(row[id]);
            double base = mode ? 0 : log(sum);
            int32_t id = ids[N_PROMPT + i] = choice->token_ids[i];
            const int32_t *top = choice->top_ids + i * choice->n_top;
            const float *values = choice->top_logprobs + i * choice->n_top;
            assert_true(fabs((double)choice->logprobs[i] - (row[id] - base)) < 1e-4);
            assert_in_range(choice->ranks[i], 1, N_KEPT);
            assert_int_equal(top[choice->ranks[i] - 1], id);
            for (size_t k = 0; k < choice->n_top; k++) {
                if (k >= N_KEPT)
                    assert_true(top[k] == -1 && values[k] == -INFINITY);
                else
                    assert_true(fabs((double)values[k] - (row[top[k]] - base)) < 1e-4);
            }
            for (size_t k = 0; k < choice->n_candidates; k++) {
                double right = row[choice->candidate_ids[k]] - base;
                float value = choice->scores[i * choice->n_candidates + k];
                assert_true(value == (float)right || fabs((double)value - right) < 1e-4);
            }
        }
        np_result_free(&result);
    }
    np_engine_close(engine);
    np_model_close(model);
}

/* ---- tickets --------------------------------------------------------------------------------- */

#define MAX_TEXT 4096

/* What `ready` has seen of the choices. */
struct listener {
    pthread_mutex_t lock;
    pthread_cond_t news;
    size_t n_tokens[2], n_bytes[2], n_calls, n_finished;
    int32_t ids[2][200];
    float logprobs[2][200];
    char text[2][MAX_TEXT];
};

/* Only what is new is copied: what was shown before must never change. */
static void listen(void *user, size_t request, const np_result *result, size_t n_rows, int finished)
{
    struct listener *listener = user;
    pthread_mutex_lock(&listener->lock);
    for (size_t c = 0; c < result->n_choices; c++) {
        const np_generated *choice = &result->choices[c];
        size_t from = listener->n_tokens[c], bytes = listener->n_bytes[c];
        size_t n = choice->n_tokens, n_bytes = choice->n_text_bytes;
        if (n < from || n_bytes < bytes || n_bytes > MAX_TEXT) continue; /* told below */
        memcpy(listener->ids[c] + from, choice->token_ids + from, (n - from) * sizeof(int32_t));
        memcpy(listener->logprobs[c] + from, choice->logprobs + from, (n - from) * sizeof(float));
        memcpy(listener->text[c] + bytes, choice->text + bytes, n_bytes - bytes);
        listener->n_tokens[c] = n;
        listener->n_bytes[c] = n_bytes;
    }
    listener->n_calls++;
    listener->n_finished += finished != 0;
    pthread_cond_signal(&listener->news);
    pthread_mutex_unlock(&listener->lock);
}

static void parts_make_the_whole(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *engine = open_engine(model, 2, 64);
    struct listener *listener = mem_alloc(1, sizeof *listener);
    struct ask ask;
    np_ticket *ticket;
    np_result result;
    np_error err;
    pthread_mutex_init(&listener->lock, NULL);
    pthread_cond_init(&listener->news, NULL);
    ask_init(&ask, model, N_PROMPT, 150, 1, telling((np_sampling){.n = 2}));
    np_result right = run_well(engine, &ask.request);
    assert_int_equal(np_submit(engine, &ask.request, 1, listen, listener, &ticket, &err), NP_OK);
    assert_int_equal(np_wait(ticket, &result, &err), NP_OK);
    assert_int_equal(listener->n_finished, 1);
    assert_true(listener->n_calls >= 150);
    for (size_t c = 0; c < 2; c++) {
        const np_generated *choice = &result.choices[c];
        same_choice(&right.choices[c], choice);
        assert_int_equal(listener->n_tokens[c], 150);
        assert_int_equal(listener->n_bytes[c], choice->n_text_bytes);
        assert_memory_equal(listener->ids[c], choice->token_ids, 150 * sizeof(int32_t));
        assert_memory_equal(listener->logprobs[c], choice->logprobs, 150 * sizeof(float));
        assert_memory_equal(listener->text[c], choice->text, choice->n_text_bytes);
    }
    np_result_free(&right);
    np_result_free(&result);
    mem_free(listener);
    np_engine_close(engine);
    np_model_close(model);
}

/* In the middle: an error and nothing else, and the engine goes on. */
static void cancelled_in_the_middle(void **state)
{
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *engine = open_engine(model, 2, 64);
    struct listener *listener = mem_alloc(1, sizeof *listener);
    struct ask ask, next;
    np_ticket *ticket;
    np_result result;
    np_error err;
    pthread_mutex_init(&listener->lock, NULL);
    pthread_cond_init(&listener->news, NULL);
    ask_init(&ask, model, 5, 195, 1, telling((np_sampling){.n = 2}));
    ask_init(&next, model, 5, 20, 1, telling((np_sampling){0}));
    np_result right = run_well(engine, &next.request);
    assert_int_equal(np_submit(engine, &ask.request, 1, listen, listener, &ticket, &err), NP_OK);
    pthread_mutex_lock(&listener->lock);
    while (listener->n_tokens[0] < 10) pthread_cond_wait(&listener->news, &listener->lock);
    pthread_mutex_unlock(&listener->lock);
    np_cancel(ticket);
    assert_int_equal(np_wait(ticket, &result, &err), NP_ECANCELLED);
    assert_null(result.choices);
    assert_int_equal(listener->n_finished, 1);
    assert_in_range(listener->n_tokens[0], 10, 194);
    np_result again = run_well(engine, &next.request);
    same_choice(right.choices, again.choices);
    np_result_free(&right);
    np_result_free(&again);
    mem_free(listener);
    np_engine_close(engine);
    np_model_close(model);
}

/* Every allocation of a request that goes on fails once. */
static void failing_allocations(void **state)
{
    np_model *model = open_model(TINY("qwen2-tied-f32"));
    np_engine *engine = open_engine(model, 2, 32);
    struct ask ask;
    np_result right, result;
    np_error err;
    bool clean = false;
    ask_init(&ask, model, N_PROMPT, 70, 1,
             telling((np_sampling){.n = 2, .presence_penalty = 1, .repetition_penalty = 1.1f}));
    right = run_well(engine, &ask.request);
    for (uint64_t n = 1; !clean && n < 10000; n++) {
        np_engine_close(engine);
        engine = open_engine(model, 2, 32); /* a cold engine: pages are taken in the run */
        alloc_fail_after(n);
        np_status status = np_run(engine, &ask.request, 1, &result, NULL, NULL, &err);
        alloc_fail_after(0);
        clean = status == NP_OK && result.error.status == NP_OK;
        if (clean)
            same_choice(&right.choices[1], &result.choices[1]);
        else
            assert_int_equal(status == NP_OK ? result.error.status : status, NP_ENOMEM);
        np_result_free(&result);
        result = run_well(engine, &ask.request);
        for (size_t c = 0; c < 2; c++) same_choice(&right.choices[c], &result.choices[c]);
        np_result_free(&result);
    }
    assert_true(clean);
    np_result_free(&right);
    np_engine_close(engine);
    np_model_close(model);
}

/* The word alone is the request with those fields. */
static void the_word_is_a_request(void **state)
{
    static const float greedy;
    const np_sampling sampling = {.temperature = &greedy, .want = NP_WANT_LOGPROB};
    np_model *model = open_model(TINY("llama-tied-f32.gguf"));
    np_engine *engine = open_engine(model, 1, 64);
    np_request request = {.text = "a text", .n_bytes = 6, .max_tokens = 5, .sampling = &sampling};
    np_result word, asked;
    np_error err;
    assert_int_equal(np_generate(engine, "a text", 6, 5, &sampling, &word, &err), NP_OK);
    assert_int_equal(np_run(engine, &request, 1, &asked, NULL, NULL, &err), NP_OK);
    assert_int_equal(word.n_choices, 1);
    assert_int_equal(word.choices->n_tokens, asked.choices->n_tokens);
    assert_memory_equal(word.choices->logprobs, asked.choices->logprobs,
                        asked.choices->n_tokens * sizeof(float));
    np_result_free(&word);
    np_result_free(&asked);
    const uint64_t seed = 77;
    const np_sampling seeded = {.seed = &seed};
    assert_int_equal(np_generate(engine, "a text", 6, 1, &seeded, &word, &err), NP_OK);
    assert_int_equal(word.choices->seed, 77);
    assert_null(word.choices->logprobs);
    np_result_free(&word);
    assert_int_equal(np_generate(engine, "a text", 6, 0, &sampling, &word, &err), NP_EINPUT);
    assert_int_equal(word.error.status, NP_EINPUT);
    assert_int_equal(np_generate(engine, "a text", 6, 100000, &sampling, &word, &err), NP_ELIMIT);
    assert_string_equal(err.where, "max_tokens");
    np_engine_close(engine);
    np_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(student_equals_teacher),
        cmocka_unit_test(prompt_rows_and_what_follows),
        cmocka_unit_test(same_seed_same_text_in_any_company),
        cmocka_unit_test(preempted_texts_go_on),
        cmocka_unit_test(processed_values_are_those_of_the_draw),
        cmocka_unit_test(parts_make_the_whole),
        cmocka_unit_test(cancelled_in_the_middle),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(the_word_is_a_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
