/*
 * generating.h - requests that go on, as test material: a prompt of any ids, settings of the
 * sampler, and choices compared bit for bit.
 */
#ifndef TESTS_GENERATING_H
#define TESTS_GENERATING_H

#include "tinymodel.h"

#define MAX_PROMPT 200
#define ALL_WANTS (NP_WANT_LOGPROB | NP_WANT_RANK | NP_WANT_ENTROPY)

/* Points into itself: it stays where it was made. */
struct ask {
    np_request request;
    np_sampling sampling;
    float temperature;
    uint64_t seed;
    int32_t ids[MAX_PROMPT];
};

static inline void ask_init(struct ask *ask, const np_model *model, size_t n_prompt,
                            size_t max_tokens, float temperature, np_sampling sampling)
{
    *ask = (struct ask){.temperature = temperature, .sampling = sampling, .seed = 5};
    fill_ids(ask->ids, n_prompt, np_model_info(model).n_vocab, (uint32_t)n_prompt);
    ask->sampling.temperature = &ask->temperature;
    ask->sampling.seed = &ask->seed;
    ask->request = (np_request){.token_ids = ask->ids,
                                .n_tokens = n_prompt,
                                .max_tokens = max_tokens,
                                .sampling = &ask->sampling};
}

/* Everything of each token, and no end before max_tokens. */
static inline np_sampling telling(np_sampling sampling)
{
    sampling.want = ALL_WANTS;
    static const int32_t candidates[] = {17, 0, 5, 17};
    sampling.top = 5;
    sampling.candidate_ids = (np_ids){candidates, 4};
    sampling.ignore_eos = 1;
    return sampling;
}

static inline np_result run_well(np_engine *engine, const np_request *request)
{
    np_result result;
    np_error err;
    char line[700];
    assert_int_equal(np_run(engine, request, 1, &result, NULL, NULL, &err), NP_OK);
    if (result.error.status != NP_OK)
        fail_msg("%s", np_error_line(&result.error, line, sizeof line));
    return result;
}

/* The request must fail alone, and name this place. */
static inline void run_refused(np_engine *engine, const np_request *request, np_status status,
                               const char *where)
{
    np_result result;
    np_error err;
    assert_int_equal(np_run(engine, request, 1, &result, NULL, NULL, &err), NP_OK);
    assert_int_equal(result.error.status, status);
    assert_string_equal(result.error.where, where);
    assert_null(result.memory);
}

static inline void same_array(const void *a, const void *b, size_t n_bytes)
{
    assert_int_equal(a == NULL, b == NULL);
    if (a) assert_memory_equal(a, b, n_bytes);
}

static inline void same_choice(const np_generated *a, const np_generated *b)
{
    size_t n = a->n_tokens;
    assert_int_equal(n, b->n_tokens);
    assert_int_equal(a->n_top, b->n_top);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->stop_index, b->stop_index);
    assert_int_equal(a->n_text_bytes, b->n_text_bytes);
    assert_memory_equal(a->token_ids, b->token_ids, n * sizeof(int32_t));
    same_array(a->logprobs, b->logprobs, n * sizeof(float));
    same_array(a->ranks, b->ranks, n * sizeof(int32_t));
    same_array(a->entropies, b->entropies, n * sizeof(float));
    same_array(a->top_ids, b->top_ids, n * a->n_top * sizeof(int32_t));
    same_array(a->top_logprobs, b->top_logprobs, n * a->n_top * sizeof(float));
    same_array(a->text, b->text, a->n_text_bytes);
    same_array(a->text_end, b->text_end, n * sizeof(size_t));
}

#endif
