/*
 * sample_masks.c - what is asked of the sampler, checked; and the steps that change single logits
 * before any probability is taken: masks, biases, penalties.
 *
 * Each step touches the tokens that it names and no others, so its cost does not grow with the
 * vocabulary; the list of allowed tokens alone looks at every panel. Surprising: bad words are
 * compared with the generated ids only, never with the prompt, as vLLM has it; and min_tokens masks
 * the eos ids even where eos is ignored.
 */
#include "score/sample_parts.h"

#include <math.h>

struct sampling sampling_defaults(void)
{
    return (struct sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

/* ---- the check ------------------------------------------------------------------------------- */

static np_status check_id(const char *where, int32_t id, size_t n_vocab, np_error *err)
{
    if (id >= 0 && (size_t)id < n_vocab) return NP_OK;
    np_status status =
        error_set(err, NP_EINPUT, where, NO_OFFSET,
                  "a token id must lie in 0 to %zu (vocabulary %zu)", n_vocab - 1, n_vocab);
    return error_given(err, status, "%d", id);
}

static np_status check_missing(const char *field, np_error *err)
{
    return error_set(err, NP_EINPUT, field, NO_OFFSET, "a length is given, but no list");
}

static np_status check_list(const char *field, struct token_list list, size_t n_vocab,
                            np_error *err)
{
    if (list.n > 0 && !list.ids) return check_missing(field, err);
    for (size_t i = 0; i < list.n; i++) {
        char where[96];
        snprintf(where, sizeof where, "%s[%zu]", field, i);
        TRY(check_id(where, list.ids[i], n_vocab, err));
    }
    return NP_OK;
}

static np_status check_numbers(const struct sampling *sampling, np_error *err)
{
    const struct {
        const char *field;
        float value;
        bool right;
        const char *allowed;
    } numbers[] = {
#define WITHIN(name, low, high) \
#name, sampling->name, sampling->name >= low && sampling->name <= high
        {WITHIN(temperature, 0, 2), "must lie in 0 to 2"},
        {"top_p", sampling->top_p, sampling->top_p > 0 && sampling->top_p <= 1,
         "must be above 0 and at most 1"},
        {WITHIN(min_p, 0, 1), "must lie in 0 to 1"},
        {WITHIN(presence_penalty, -2, 2), "must lie in -2 to 2"},
        {WITHIN(frequency_penalty, -2, 2), "must lie in -2 to 2"},
        {"repetition_penalty", sampling->repetition_penalty,
         sampling->repetition_penalty > 0 && isfinite(sampling->repetition_penalty),
         "must be a finite number above 0"},
#undef WITHIN
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].right) continue;
        np_status status =
            error_set(err, NP_EINPUT, numbers[i].field, NO_OFFSET, "%s", numbers[i].allowed);
        return error_given(err, status, "%g", (double)numbers[i].value);
    }
    if (sampling->top_k >= -1) return NP_OK;
    np_status status =
        error_set(err, NP_EINPUT, "top_k", NO_OFFSET, "must be 0 or -1 (off), or at least 1");
    return error_given(err, status, "%d", sampling->top_k);
}

static np_status check_biases(const struct sampling *sampling, size_t n_vocab, np_error *err)
{
    if (sampling->n_biases > 0 && !sampling->biases) return check_missing("logit_bias", err);
    for (size_t i = 0; i < sampling->n_biases; i++) {
        char where[64];
        snprintf(where, sizeof where, "logit_bias[%zu]", i);
        TRY(check_id(where, sampling->biases[i].id, n_vocab, err));
        if (!isnan(sampling->biases[i].bias)) continue;
        np_status status =
            error_set(err, NP_EINPUT, where, NO_OFFSET, "a bias must be a number, -100 to 100");
        return error_given(err, status, "nan");
    }
    return NP_OK;
}

static np_status check_bad_words(const struct sampling *sampling, size_t n_vocab, np_error *err)
{
    if (sampling->n_bad_words > MAX_BAD_WORDS) {
        np_status status = error_set(err, NP_EINPUT, "bad_words", NO_OFFSET,
                                     "at most %d sequences of ids are allowed", MAX_BAD_WORDS);
        return error_given(err, status, "%zu", sampling->n_bad_words);
    }
    if (sampling->n_bad_words > 0 && !sampling->bad_words) return check_missing("bad_words", err);
    for (size_t i = 0; i < sampling->n_bad_words; i++) {
        char where[64];
        snprintf(where, sizeof where, "bad_words[%zu]", i);
        if (sampling->bad_words[i].n == 0)
            return error_set(err, NP_EINPUT, where, NO_OFFSET, "at least one token is needed");
        TRY(check_list(where, sampling->bad_words[i], n_vocab, err));
    }
    return NP_OK;
}

np_status sampling_check(const struct sampling *sampling, size_t n_vocab, np_error *err)
{
    TRY(check_numbers(sampling, err));
    TRY(check_biases(sampling, n_vocab, err));
    if (sampling->allowed.ids && sampling->allowed.n == 0)
        return error_set(err, NP_EINPUT, "allowed_token_ids", NO_OFFSET,
                         "at least one id is needed");
    TRY(check_list("allowed_token_ids", sampling->allowed, n_vocab, err));
    TRY(check_bad_words(sampling, n_vocab, err));
    TRY(check_list("stop_token_ids", sampling->stop_ids, n_vocab, err));
    return check_list("eos_token_ids", sampling->eos_ids, n_vocab, err);
}

static bool list_has(struct token_list list, int32_t id)
{
    for (size_t i = 0; i < list.n; i++)
        if (list.ids[i] == id) return true;
    return false;
}

bool sampling_stops(const struct sampling *sampling, int32_t id)
{
    return list_has(sampling->stop_ids, id) ||
           (!sampling->ignore_eos && list_has(sampling->eos_ids, id));
}

/* ---- history --------------------------------------------------------------------------------- */

bool sampling_wants_history(const struct sampling *sampling)
{
    return sampling->presence_penalty != 0 || sampling->frequency_penalty != 0 ||
           sampling->repetition_penalty != 1;
}

size_t history_bytes(size_t max_tokens, size_t n_vocab)
{
    size_t n_ids = max_tokens < n_vocab ? max_tokens : n_vocab, n_slots = 2;
    while (n_slots < 2 * n_ids) n_slots *= 2;
    return n_slots * sizeof(struct history_slot);
}

void history_init(struct history *history, void *memory, size_t n_bytes)
{
    size_t n_places = n_bytes / sizeof(struct history_slot), n_slots = n_places > 0;
    while (n_slots && n_slots <= n_places / 2) n_slots *= 2;
    *history = (struct history){.slots = memory, .n_slots = n_slots};
    for (size_t i = 0; i < n_slots; i++) history->slots[i] = (struct history_slot){0};
}

/* The slot of an id, taken now if it is new. One slot always stays free, so a search ends. */
static struct history_slot *history_slot(struct history *history, int32_t id)
{
    if (history->n_slots == 0) return NULL;
    size_t mask = history->n_slots - 1, i = ((uint32_t)id * 0x9e3779b1u >> 7) & mask;
    uint32_t wanted = (uint32_t)id + 1;
    for (;; i = (i + 1) & mask) {
        struct history_slot *slot = &history->slots[i];
        if (slot->id_plus_1 == wanted) return slot;
        if (slot->id_plus_1) continue;
        if (history->n_used + 1 >= history->n_slots) return NULL;
        history->n_used++;
        slot->id_plus_1 = wanted;
        return slot;
    }
}

bool history_prompt(struct history *history, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct history_slot *slot = history_slot(history, ids[i]);
        if (!slot) return false;
        slot->count_twice_prompt |= 1;
    }
    return true;
}

bool history_push(struct history *history, int32_t id)
{
    struct history_slot *slot = history_slot(history, id);
    if (slot) slot->count_twice_prompt += 2;
    return slot != NULL;
}

/* ---- steps 1 to 5 ---------------------------------------------------------------------------- */

static void row_allow(struct token_list allowed, float *logits, size_t n_vocab, uint64_t *bits)
{
    memset(bits, 0, (n_vocab + 63) / 64 * sizeof *bits);
    for (size_t i = 0; i < allowed.n; i++)
        bits[allowed.ids[i] / 64] |= (uint64_t)1 << allowed.ids[i] % 64;
    for (size_t id = 0; id < n_vocab; id++)
        if (!(bits[id / 64] >> id % 64 & 1)) logits[id] = -INFINITY;
}

static void row_forbid(struct token_list list, float *logits)
{
    for (size_t i = 0; i < list.n; i++) logits[list.ids[i]] = -INFINITY;
}

static void row_bad_words(const struct sample_input *input, float *logits)
{
    for (size_t w = 0; w < input->sampling->n_bad_words; w++) {
        struct token_list word = input->sampling->bad_words[w];
        size_t n_before = word.n - 1;
        if (n_before > input->n_output) continue;
        if (n_before && memcmp(word.ids, input->output_ids + input->n_output - n_before,
                               n_before * sizeof *word.ids))
            continue;
        logits[word.ids[n_before]] = -INFINITY;
    }
}

static void row_bias(const struct sampling *sampling, float *logits)
{
    for (size_t i = 0; i < sampling->n_biases; i++) {
        float bias = sampling->biases[i].bias, *l = &logits[sampling->biases[i].id];
        *l = *l + (bias > 100 ? 100 : bias < -100 ? -100 : bias);
    }
}

static void row_penalties(const struct sampling *sampling, const struct history *history,
                          float *logits)
{
    float r = sampling->repetition_penalty;
    for (size_t i = 0; i < history->n_slots; i++) {
        struct history_slot slot = history->slots[i];
        if (!slot.id_plus_1) continue;
        float count = (float)(slot.count_twice_prompt / 2), l = logits[slot.id_plus_1 - 1];
        l = l > 0 ? l / r : l * r;
        if (count > 0) {
            l = l - sampling->frequency_penalty * count;
            l = l - sampling->presence_penalty;
        }
        logits[slot.id_plus_1 - 1] = l;
    }
}

void row_adjust(const struct sample_input *input, float *logits, size_t n_vocab, uint64_t *bits)
{
    const struct sampling *sampling = input->sampling;
    if (sampling->allowed.ids) row_allow(sampling->allowed, logits, n_vocab, bits);
    row_bad_words(input, logits);
    if (input->n_output < sampling->min_tokens) {
        row_forbid(sampling->stop_ids, logits);
        row_forbid(sampling->eos_ids, logits);
    }
    row_bias(sampling, logits);
    if (input->history && sampling_wants_history(sampling))
        row_penalties(sampling, input->history, logits);
}
