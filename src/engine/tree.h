/*
 * tree.h - all that is computed, or being computed, as a tree of pages: the trie of what is in the
 * batch and the prefix cache are this one thing.
 *
 *   root "" ── [t0 .. t63] ─┬─ [t64 .. t127] ── [t128 t129]            a node is up to 64 tokens at
 *                           └─ [t64 t65 u0 .. u9]                      one place of a sequence, and
 *                                                                      a page of memory
 *   page = keys and values of all layers, final hidden rows            (model/kv.h)
 *   node = ids, which hidden rows are there, their log-sum-exps
 *
 * Sharing is by token: a sequence that leaves a node in its middle gets a sibling with a copy of
 * the columns before (half a megabyte is copied in the time of a tenth of a token). A node only
 * grows at its end, and never under a job that uses it: a job knows how many of its tokens are its
 * own. Siblings are sorted by their ids, so that the longest common beginning is next to where a
 * sequence would stand.
 *
 * A job pins the nodes of its path. Nodes that nobody pins are the prefix cache; they leave in the
 * order of their last use, children always before their parents, since whoever uses a child pins
 * its parents too and lets go of them after it.
 *
 * Roots are kept apart by salt: what was sent under one is never found under another. Everything
 * here belongs to the engine's thread.
 */
#ifndef ENGINE_TREE_H
#define ENGINE_TREE_H

#include "model/model.h"
#include "score/head.h"

#define MAX_SALT_BYTES (1 << 16)

struct node {
    struct node *parent;    /* NULL: a root, which has no page */
    struct node **children; /* sorted by their ids */
    size_t n_children, max_children;
    struct node *older, *newer; /* among the unpinned */
    size_t n_pins;
    size_t n, n_done; /* tokens, and those of them that are computed: the rest is in this step */
    size_t bad;       /* first token whose key or value is not finite, or PANEL */
    uint64_t hidden;  /* bit i: the hidden row of token i is in the page */
    uint64_t wanted;  /* bit i: it will be after this step */
    uint64_t known, known_entropy; /* bit i: lse[i] holds it, at temperature 1 */
    uint64_t lent, read; /* bit i: a row of the head's call at hand writes, reads lse[i] */
    struct row_lse lse[PANEL];
    int32_t ids[PANEL];
    float *page;
    char *salt; /* of a root; NULL: private to one job, never found */
    size_t n_salt_bytes;
};

struct tree {
    struct kv_shape shape;
    size_t max_pages, max_cached; /* pages in all; of them unpinned */
    size_t n_pages, n_cached;
    uint64_t n_evicted;
    struct node **roots;
    size_t n_roots, max_roots;
    struct node *oldest, *newest; /* unpinned nodes */
    struct node *spare;           /* nodes with a page, for the next ones; linked by newer */
};

void tree_init(struct tree *tree, const struct kv_shape *shape, size_t max_pages,
               size_t max_cached);
void tree_free(struct tree *tree);

/* The root of a salt (NULL: a new private one), pinned. NULL: no memory. */
struct node *tree_root(struct tree *tree, const char *salt, size_t n_salt_bytes);

/* The child with the longest common beginning with n ids, which *match says; NULL where it is 0. */
struct node *tree_match(const struct node *parent, const int32_t *ids, size_t n, size_t *match);

/* A new child with n tokens (at least 1) of which the first n_shared are those of `from` (NULL with
 * 0): what of them is done is copied, the rest is the step's to copy; pinned. NP_ELIMIT: every page
 * is pinned. NP_ENOMEM. */
np_status tree_add(struct tree *tree, struct node *parent, const int32_t *ids, size_t n,
                   struct node *from, size_t n_shared, struct node **out, np_error *err);
/* n more tokens behind those of a node. */
void tree_extend(struct node *node, const int32_t *ids, size_t n);
/* A step failed: what it would have computed is forgotten. */
void tree_forget(struct node *node);

/* A root is never evicted while it has children or pins, and ends without them. */
void tree_pin(struct tree *tree, struct node *node);
void tree_unpin(struct tree *tree, struct node *node);

/* Empties the cache: every unpinned node goes. */
void tree_clear(struct tree *tree);

#endif
