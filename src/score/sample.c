/*
 * sample.c - from an adjusted row to an id: min_p, top_k, top_p, the draw (docs/NUMERICS.md,
 * "Sampling").
 *
 * Only what can be chosen is sorted. The maxima of the panels of 64 ids, taken in one pass, tell
 * how low the k-th token can lie; the sum of the row tells below which probability all tokens
 * together miss 1 - p. What lies above is a prefix of the whole order, so a shorter list changes no
 * bit. The surprising decision: sums run over blocks of 64, each summed by the kernel of the
 * log-sum-exp, and one by one only in the block where a boundary falls; what was not cut is not
 * sorted at all, and drawn by ascending id.
 */
#include "score/head.h"
#include "score/sample_parts.h"

#include <float.h>
#include <math.h>

/* The row in progress: the tokens left are those of `list`, which holds their logits alone, or,
 * where there is none, those of `logits` that are not -inf. Both are walked in blocks of 64. */
struct row {
    const struct kernels *kernels;
    float *logits; /* [n_vocab] */
    size_t n_vocab, n_panels;
    float max;
    float *panel_max; /* [n_panels] */
    double *masses;   /* [n_panels]: sum exp(l - max) of a block */
    double total;
    uint64_t *bits;    /* [n_panels] */
    uint32_t *keys[2]; /* [n_vocab] */
    uint32_t *counts;
    const uint32_t *list; /* keys, sorted */
    size_t n_list;
};

static size_t row_layout(void *space, size_t n_vocab, struct row *row)
{
    char *base = space;
    size_t n_panels = (n_vocab + PANEL - 1) / PANEL, used = 0;
    *row = (struct row){.n_vocab = n_vocab, .n_panels = n_panels};
#define PLACE(field, n)                               \
    row->field = base ? (void *)(base + used) : NULL; \
    used += ((n) * sizeof *row->field + 63) & ~(size_t)63
    PLACE(keys[0], n_panels * PANEL);
    PLACE(keys[1], n_panels * PANEL);
    PLACE(bits, n_panels);
    PLACE(masses, n_panels);
    PLACE(panel_max, n_panels);
    PLACE(counts, SORT_COUNTS);
#undef PLACE
    return used;
}

size_t sample_space_bytes(size_t n_vocab)
{
    struct row row;
    return row_layout(NULL, n_vocab, &row);
}

/* ---- random numbers -------------------------------------------------------------------------- */

void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)x0 * 0xd2511f53u, b = (uint64_t)x2 * 0xcd9e8d57u;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)b;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

double sample_uniform(uint64_t seed, uint64_t choice, uint64_t position)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), (uint32_t)choice,
                                 (uint32_t)(choice >> 32)};
    uint32_t out[4];
    philox(counter, key, out);
    return (double)(((uint64_t)out[1] << 32 | out[0]) >> 11) * 0x1p-53;
}

/* ---- sorted lists ---------------------------------------------------------------------------- */

uint32_t key_of(float logit)
{
    float canonical = logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &canonical, sizeof bits);
    return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

float key_logit(uint32_t key)
{
    uint32_t bits = key & 0x80000000u ? key : ~key & 0x7fffffffu;
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    return logit;
}

/* In digits of 11 bits from the lowest: each pass keeps the order of equals. */
uint32_t *keys_sort(uint32_t *keys, uint32_t *other, size_t n, uint32_t *counts)
{
    enum { DIGIT = 2048, DIGITS = 3 };
    memset(counts, 0, SORT_COUNTS * sizeof *counts);
    for (size_t i = 0; i < n; i++)
        for (int d = 0; d < DIGITS; d++) counts[d * DIGIT + (keys[i] >> 11 * d) % DIGIT]++;
    for (int d = 0; d < DIGITS && n > 0; d++) {
        uint32_t *place = counts + d * DIGIT, sum = 0;
        if (place[(keys[0] >> 11 * d) % DIGIT] == n) continue;
        for (int i = 0; i < DIGIT; i++) {
            uint32_t count = place[i];
            place[i] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++) other[place[(keys[i] >> 11 * d) % DIGIT]++] = keys[i];
        uint32_t *sorted = other;
        other = keys;
        keys = sorted;
    }
    return keys;
}

/* Lists all tokens of l - max >= low. */
static void row_sort(struct row *row, double low)
{
    uint32_t *keys = row->keys[0];
    size_t n = 0;
    double max = row->max;
    for (size_t p = 0; p < row->n_panels; p++) {
        if (!((double)row->panel_max[p] - max >= low)) continue;
        size_t end = (p + 1) * PANEL < row->n_vocab ? (p + 1) * PANEL : row->n_vocab;
        for (size_t id = p * PANEL; id < end; id++) {
            keys[n] = key_of(row->logits[id]);
            n += (double)row->logits[id] - max >= low;
        }
    }
    row->list = keys_sort(keys, row->keys[1], n, row->counts);
    row->n_list = n;
}

/* ---- passes over the row --------------------------------------------------------------------- */

static float panel_maximum(const float *logits, size_t n)
{
    float best[TILE], max = -INFINITY;
    for (size_t j = 0; j < TILE; j++) best[j] = -INFINITY;
    size_t i = 0;
    for (; i + TILE <= n; i += TILE)
        for (size_t j = 0; j < TILE; j++)
            best[j] = logits[i + j] > best[j] ? logits[i + j] : best[j];
    for (; i < n; i++) max = logits[i] > max ? logits[i] : max;
    for (size_t j = 0; j < TILE; j++) max = best[j] > max ? best[j] : max;
    return max;
}

static size_t panel_size(const struct row *row, size_t panel)
{
    size_t left = row->n_vocab - panel * PANEL;
    return left < PANEL ? left : PANEL;
}

static void row_maxima(struct row *row)
{
    row->max = -INFINITY;
    for (size_t p = 0; p < row->n_panels; p++) {
        float max = panel_maximum(row->logits + p * PANEL, panel_size(row, p));
        row->panel_max[p] = max;
        row->max = max > row->max ? max : row->max;
    }
}

static int32_t row_first(const struct row *row)
{
    size_t p = 0;
    while (row->panel_max[p] != row->max) p++;
    size_t id = p * PANEL;
    while (row->logits[id] != row->max) id++;
    return (int32_t)id;
}

static void row_min_p(struct row *row, float min_p)
{
    double low = log64(min_p), max = row->max;
    for (size_t p = 0; p < row->n_panels; p++) {
        float *logits = row->logits + p * PANEL;
        size_t n = panel_size(row, p);
        for (size_t i = 0; i < n; i++)
            logits[i] = (double)logits[i] - max >= low ? logits[i] : -INFINITY;
        if (!((double)row->panel_max[p] - max >= low)) row->panel_max[p] = -INFINITY;
    }
}

/* ---- masses ---------------------------------------------------------------------------------- */

static double block_mass(const struct row *row, const float *logits, size_t n)
{
    struct lse_part part = row->kernels->lse_panel(logits, n, false);
    return part.m == row->max ? part.S : part.S * exp64(part.m - row->max);
}

static void row_masses(struct row *row)
{
    row->total = 0;
    for (size_t p = 0; p < row->n_panels; p++) {
        bool left = row->panel_max[p] > -INFINITY;
        row->masses[p] = left ? block_mass(row, row->logits + p * PANEL, panel_size(row, p)) : 0;
        row->total = row->total + row->masses[p];
    }
}

static size_t row_count(const struct row *row)
{
    return row->list ? row->n_list : row->n_vocab;
}

/* exp(l - max) of the i-th token of the list, or of the row */
static double row_weight(const struct row *row, size_t i)
{
    float l = row->list ? key_logit(row->list[i]) : row->logits[i];
    return exp64((double)l - row->max);
}

/* Cuts the list behind the token with which its mass reaches `limit`. */
static void list_cut(struct row *row, double limit)
{
    double sum = 0;
    size_t i = 0;
    for (; i + PANEL < row->n_list; i += PANEL) {
        float logits[PANEL];
        for (size_t j = 0; j < PANEL; j++) logits[j] = key_logit(row->list[i + j]);
        double mass = block_mass(row, logits, PANEL);
        if (sum + mass >= limit) break;
        row->masses[i / PANEL] = mass;
        sum = sum + mass;
    }
    size_t end = i + PANEL < row->n_list ? i + PANEL : row->n_list;
    for (; i < end && sum < limit; i++) sum = sum + row_weight(row, i);
    row->n_list = i;
    row->total = sum;
}

/* ---- steps 8 and 9 --------------------------------------------------------------------------- */

/* As many panels as there are tokens wanted have their maxima at or above the k-th largest one. */
static void row_top_k(struct row *row, size_t k)
{
    double low = -DBL_MAX;
    if (k < row->n_panels) {
        for (size_t p = 0; p < row->n_panels; p++) row->keys[0][p] = key_of(row->panel_max[p]);
        const uint32_t *sorted = keys_sort(row->keys[0], row->keys[1], row->n_panels, row->counts);
        double bound = (double)key_logit(sorted[k - 1]) - row->max;
        low = bound > low ? bound : low;
    }
    row_sort(row, low);
    row->n_list = k < row->n_list ? k : row->n_list;
    list_cut(row, INFINITY);
}

/* Tokens below (1 - p) / n_vocab miss 1 - p even together; 0.01 is there for all roundings. */
static void row_top_p(struct row *row, double p)
{
    if (!row->list) {
        row_masses(row);
        row_sort(row, log64((1 - p) * row->total / (double)row->n_vocab) - 0.01);
    }
    list_cut(row, p * row->total);
}

/* How many tokens of the list before the i-th have its logit. */
static size_t list_equals(const struct row *row, size_t i)
{
    size_t n = 0;
    while (n < i && row->list[i - n - 1] == row->list[i]) n++;
    return n;
}

/* The id of the i-th of the list: of the tokens with its logit, which ascend by id. */
static int32_t list_id(const struct row *row, size_t i)
{
    float logit = key_logit(row->list[i]);
    size_t n_before = list_equals(row, i), id = 0;
    for (;; id++) {
        if (id % PANEL == 0)
            while (row->panel_max[id / PANEL] < logit) id += PANEL;
        if (row->logits[id] == logit && n_before-- == 0) return (int32_t)id;
    }
}

/* The token at which the running sum first exceeds u * total; in a block that rounding keeps from
 * reaching it, the last token of any weight. */
static int32_t row_draw(const struct row *row, double u)
{
    double wanted = u * row->total, sum = 0;
    size_t n = row_count(row), i = 0, found = 0;
    for (; i + PANEL < n; i += PANEL) {
        double next = sum + row->masses[i / PANEL];
        if (next > wanted) break;
        sum = next;
    }
    size_t end = i + PANEL < n ? i + PANEL : n;
    for (; i < end && !(sum > wanted); i++) {
        double weight = row_weight(row, i);
        if (weight > 0) found = i;
        sum = sum + weight;
    }
    return row->list ? list_id(row, found) : (int32_t)found;
}

/* Masks what is not in the list: all below its last logit, and what of its equals has no place. */
static void row_keep_list(struct row *row)
{
    float last = key_logit(row->list[row->n_list - 1]);
    size_t n_equal = list_equals(row, row->n_list - 1) + 1;
    for (size_t id = 0; id < row->n_vocab; id++) {
        bool equal = row->logits[id] == last;
        if (row->logits[id] > last || (equal && n_equal > 0))
            n_equal -= equal;
        else
            row->logits[id] = -INFINITY;
    }
}

/* ---- the row --------------------------------------------------------------------------------- */

static np_status row_bad(const float *logits, size_t n_vocab, np_error *err)
{
    size_t id = first_nonfinite(logits, n_vocab);
    if (id == n_vocab) return NP_OK;
    np_status status = error_set(err, NP_ENUMERIC, "", NO_OFFSET,
                                 "the logit of token %zu is not a finite number", id);
    return error_given(err, status, "%g", (double)logits[id]);
}

static np_status row_state(const struct row *row, const struct sampling *sampling, np_error *err)
{
    const char *where = sampling->allowed.ids ? "allowed_token_ids" : "";
    if (row->max == -INFINITY)
        return error_set(err, NP_EINPUT, where, NO_OFFSET,
                         "no token is left: the allowed ids, bad_words and min_tokens mask all %zu",
                         row->n_vocab);
    if (row->max == INFINITY)
        return error_set(err, NP_ENUMERIC, "", NO_OFFSET,
                         "the logit of token %d is infinite after penalties and temperature",
                         row_first(row));
    return NP_OK;
}

np_status sample_row(const struct sample_input *input, float *logits, size_t n_vocab, bool keep_row,
                     int32_t *id, np_error *err)
{
    const struct sampling *sampling = input->sampling;
    struct row row;
    TRY(row_bad(logits, n_vocab, err));
    row_layout(input->space, n_vocab, &row);
    row.kernels = input->kernels;
    row.logits = logits;
    row_adjust(input, logits, n_vocab, row.bits);
    float temperature = sampling->temperature;
    temperature = temperature > 0 && temperature < 0.01f ? 0.01f : temperature;
    if (temperature > 0 && temperature != 1)
        row.kernels->divide(n_vocab, logits, temperature, logits);
    row_maxima(&row);
    TRY(row_state(&row, sampling, err));
    if (temperature == 0) {
        *id = row_first(&row);
        return NP_OK;
    }
    if (sampling->min_p > 0) row_min_p(&row, sampling->min_p);
    if (sampling->top_k > 0 && (size_t)sampling->top_k < n_vocab)
        row_top_k(&row, (size_t)sampling->top_k);
    if (sampling->top_p < 1) row_top_p(&row, sampling->top_p);
    if (!row.list) row_masses(&row);
    *id = row_draw(&row, sample_uniform(sampling->seed, input->choice, input->n_output));
    if (keep_row && row.list) row_keep_list(&row);
    return NP_OK;
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Panels in which every token is masked are left out of the sums. */
static struct row_lse masked_lse(const struct kernels *kernels, const float *logits, size_t n_vocab)
{
    struct lse_part total = {.m = -INFINITY}, segment = total;
    for (size_t id = 0; id < n_vocab; id += PANEL) {
        if (id % SEGMENT == 0) segment = (struct lse_part){.m = -INFINITY};
        size_t n = n_vocab - id < PANEL ? n_vocab - id : PANEL;
        struct lse_part part = kernels->lse_panel(logits + id, n, false);
        if (part.m > -INFINITY) segment = segment.m > -INFINITY ? lse_combine(segment, part) : part;
        bool ends = (id + PANEL) % SEGMENT == 0 || id + PANEL >= n_vocab;
        if (ends && segment.m > -INFINITY)
            total = total.m > -INFINITY ? lse_combine(total, segment) : segment;
    }
    return lse_finish(total);
}

void token_scores(const struct kernels *kernels, const float *logits, size_t n_vocab, int32_t id,
                  struct token_scores *scores)
{
    struct topk top = {.logits = scores->top_values, .ids = scores->top_ids, .k = scores->n_top};
    size_t target = (size_t)id, n_before = 0;
    if (top.k > n_vocab) top.k = n_vocab;
    for (size_t first = 0; first < n_vocab; first += PANEL) {
        size_t n = n_vocab - first < PANEL ? n_vocab - first : PANEL;
        size_t n_lower = target < first ? 0 : target - first < n ? target - first : n;
        n_before += kernels->count_before(logits + first, n, logits[target], n_lower);
        topk_panel(&top, logits + first, n, (int32_t)first, panel_maximum(logits + first, n));
    }
    topk_sort(&top);
    while (top.n > 0 && top.logits[top.n - 1] == -INFINITY) top.n--;
    struct row_lse lse =
        scores->logits ? (struct row_lse){0} : masked_lse(kernels, logits, n_vocab);
    scores->rank = (int32_t)(n_before + 1);
    scores->value = scores->logits ? logits[target] : logprob_of(lse, logits[target]);
    for (size_t i = 0; i < scores->n_ids; i++) {
        float logit = logits[scores->ids[i]];
        scores->values[i] = scores->logits ? logit : logprob_of(lse, logit);
    }
    scores->n_top = top.n;
    for (size_t i = 0; i < top.n && !scores->logits; i++)
        top.logits[i] = logprob_of(lse, top.logits[i]);
}
