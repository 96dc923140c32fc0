/*
 * sampledump.c - the sampler as a filter, for test_sample_oracle.py, which packs the records.
 *
 * stdin: records of `struct head`, then pairs of bias ids and values, allowed, stop and eos ids,
 * bad words (each its length and its ids), prompt, output, and n_vocab logits. stdout, for each:
 * i32 status; f64 u; i32 id; f32 value; i32 rank; i32 n_top; ids[n_top], values[n_top], the
 * processed row. Values are log-probabilities of the processed row. The level is NEPIT_CPU's.
 */
#include "base/arena.h"
#include "score/sample_parts.h"

struct head {
    int32_t n_vocab, top_k, n_biases, n_allowed, n_stop, n_eos, n_bad, n_prompt, n_output, n_top;
    int32_t min_tokens, ignore_eos;
    float temperature, top_p, min_p, presence, frequency, repetition;
    uint64_t seed, choice;
};

static struct arena memory;

static void *get(size_t n, size_t size)
{
    void *place = arena_push_array(&memory, n + 1, size);
    if (!place || fread(place, size, n, stdin) != n) exit(1);
    return place;
}

static struct token_list get_list(int32_t n)
{
    return (struct token_list){.ids = get((size_t)n, 4), .n = (size_t)n};
}

static void put(const void *data, size_t n_bytes)
{
    fwrite(data, 1, n_bytes, stdout);
}

static void put_int(int32_t value)
{
    put(&value, 4);
}

static struct sampling get_sampling(const struct head *head)
{
    struct sampling sampling = {.temperature = head->temperature,
                                .top_k = head->top_k,
                                .top_p = head->top_p,
                                .min_p = head->min_p,
                                .presence_penalty = head->presence,
                                .frequency_penalty = head->frequency,
                                .repetition_penalty = head->repetition,
                                .n_biases = (size_t)head->n_biases,
                                .n_bad_words = (size_t)head->n_bad,
                                .min_tokens = (size_t)head->min_tokens,
                                .ignore_eos = head->ignore_eos,
                                .seed = head->seed};
    sampling.biases = get(sampling.n_biases, sizeof *sampling.biases);
    if (head->n_allowed >= 0) sampling.allowed = get_list(head->n_allowed);
    sampling.stop_ids = get_list(head->n_stop);
    sampling.eos_ids = get_list(head->n_eos);
    struct token_list *words = arena_push_array(&memory, sampling.n_bad_words + 1, sizeof *words);
    if (!words) exit(1);
    for (size_t i = 0; i < sampling.n_bad_words; i++) words[i] = get_list(*(int32_t *)get(1, 4));
    sampling.bad_words = words;
    return sampling;
}

static void answer(const struct head *head, const struct kernels *kernels)
{
    struct sampling sampling = get_sampling(head);
    struct token_list prompt = get_list(head->n_prompt), output = get_list(head->n_output);
    size_t n_vocab = (size_t)head->n_vocab, n_top = (size_t)head->n_top;
    float *logits = get(n_vocab, sizeof *logits);
    size_t n_bytes = history_bytes(prompt.n + output.n, n_vocab);
    struct history history;
    history_init(&history, arena_push(&memory, n_bytes), n_bytes);
    if (!history_prompt(&history, prompt.ids, prompt.n)) exit(1);
    for (size_t i = 0; i < output.n; i++)
        if (!history_push(&history, output.ids[i])) exit(1);
    struct sample_input input = {.kernels = kernels,
                                 .sampling = &sampling,
                                 .history = &history,
                                 .output_ids = output.ids,
                                 .n_output = output.n,
                                 .choice = head->choice,
                                 .space = arena_push(&memory, sample_space_bytes(n_vocab))};
    int32_t id = -1;
    np_status status = sampling_check(&sampling, n_vocab, NULL);
    if (!status) status = sample_row(&input, logits, n_vocab, true, &id, NULL);
    put_int((int32_t)status);
    if (status) return;
    double u = sample_uniform(head->seed, head->choice, output.n);
    struct token_scores scores = {.n_top = n_top,
                                  .top_ids = arena_push_array(&memory, n_top + 1, 4),
                                  .top_values = arena_push_array(&memory, n_top + 1, 4)};
    token_scores(kernels, logits, n_vocab, id, &scores);
    put(&u, 8);
    put_int(id);
    put(&scores.value, 4);
    put_int(scores.rank);
    put_int((int32_t)scores.n_top);
    put(scores.top_ids, 4 * scores.n_top);
    put(scores.top_values, 4 * scores.n_top);
    put(logits, 4 * n_vocab);
}

int main(void)
{
    struct head head;
    enum cpu_level level;
    const char *reason;
    if (cpu_choose(NULL, &level, &reason, NULL)) return 1;
    arena_init(&memory, (size_t)1 << 30);
    while (fread(&head, sizeof head, 1, stdin) == 1) {
        struct arena_mark mark = arena_mark(&memory);
        answer(&head, kernels_get(level));
        arena_rewind(&memory, mark);
    }
    arena_free(&memory);
    return fflush(stdout) ? 1 : 0;
}
