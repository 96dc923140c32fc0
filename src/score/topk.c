/*
 * topk.c - the k first of an order, kept in a heap whose root is the last of them.
 *
 * The surprising decision: the heap is two plain arrays that may be the arrays of the answer, so
 * that a top list of the whole vocabulary costs no memory beside its answer. Until k entries are
 * there they lie in the order of arrival; the k-th makes them a heap.
 */
#include "score/head.h"

/* Whether entry i comes before entry j in the order of a list. */
typedef bool topk_order(const struct topk *topk, size_t i, size_t j);

static bool order_rank(const struct topk *topk, size_t i, size_t j)
{
    float a = topk->logits[i], b = topk->logits[j];
    return a > b || (a == b && topk->ids[i] < topk->ids[j]);
}

static bool order_id(const struct topk *topk, size_t i, size_t j)
{
    return topk->ids[i] < topk->ids[j];
}

static void topk_swap(struct topk *topk, size_t i, size_t j)
{
    float logit = topk->logits[i];
    int32_t id = topk->ids[i];
    topk->logits[i] = topk->logits[j];
    topk->ids[i] = topk->ids[j];
    topk->logits[j] = logit;
    topk->ids[j] = id;
}

/* Entry i of a heap of n (its root the last of the order) sinks to its place. */
static void sift_down(struct topk *topk, size_t i, size_t n, topk_order *before)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(topk, child, child + 1)) child++;
        if (!before(topk, i, child)) return;
        topk_swap(topk, i, child);
    }
}

static void heapify(struct topk *topk, topk_order *before)
{
    for (size_t i = topk->n / 2; i-- > 0;) sift_down(topk, i, topk->n, before);
}

static void heap_sort(struct topk *topk, topk_order *before)
{
    heapify(topk, before);
    for (size_t n = topk->n; n > 1; n--) {
        topk_swap(topk, 0, n - 1);
        sift_down(topk, 0, n - 1, before);
    }
}

void topk_push(struct topk *topk, float logit, int32_t id)
{
    if (topk->n < topk->k) {
        topk->logits[topk->n] = logit;
        topk->ids[topk->n++] = id;
        if (topk->n == topk->k) heapify(topk, order_rank);
        return;
    }
    if (topk->k == 0) return;
    float last = topk->logits[0];
    if (logit < last || (logit == last && id > topk->ids[0])) return;
    topk->logits[0] = logit;
    topk->ids[0] = id;
    sift_down(topk, 0, topk->n, order_rank);
}

void topk_panel(struct topk *topk, const float *logits, size_t n, int32_t first_id, float panel_max)
{
    /* Ids ascend from panel to panel: an equal logit comes after all that are kept. */
    if (topk->n == topk->k && (topk->k == 0 || panel_max <= topk->logits[0])) return;
    for (size_t i = 0; i < n; i++) topk_push(topk, logits[i], first_id + (int32_t)i);
}

void topk_sort(struct topk *topk)
{
    heap_sort(topk, order_rank);
}

void topk_sort_ids(struct topk *topk)
{
    heap_sort(topk, order_id);
}
