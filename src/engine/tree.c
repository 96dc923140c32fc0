/*
 * tree.c - see tree.h. A node and its page are one thing from first to last: those that are thrown
 * away wait for the next ones with their memory, so that a warm engine asks the system for nothing.
 */
#include "engine/tree.h"

#include "base/arena.h"

/* The place of a node below which jobs pin and evict: the first n bits. */
static uint64_t first_bits(size_t n)
{
    return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

void tree_init(struct tree *tree, const struct kv_shape *shape, size_t max_pages, size_t max_cached)
{
    *tree = (struct tree){.shape = *shape, .max_pages = max_pages, .max_cached = max_cached};
}

static void node_free(const struct tree *tree, struct node *node)
{
    if (!node) return;
    if (node->page) big_free(node->page, kv_page_bytes(&tree->shape));
    mem_free(node->children);
    mem_free(node->salt);
    mem_free(node);
}

void tree_free(struct tree *tree)
{
    tree_clear(tree);
    while (tree->spare) {
        struct node *node = tree->spare;
        tree->spare = node->newer;
        node_free(tree, node);
    }
    for (size_t i = 0; i < tree->n_roots; i++) node_free(tree, tree->roots[i]);
    mem_free(tree->roots);
    memset(tree, 0, sizeof *tree);
}

/* ---- siblings -------------------------------------------------------------------------------- */

static size_t common(const int32_t *a, const int32_t *b, size_t n)
{
    size_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* How many of n ids a node begins with. */
static size_t node_common(const struct node *node, const int32_t *ids, size_t n)
{
    return common(node->ids, ids, n < node->n ? n : node->n);
}

static bool node_before(const struct node *node, const int32_t *ids, size_t n)
{
    size_t same = node_common(node, ids, n);
    if (same == n) return false;
    return same == node->n || node->ids[same] < ids[same];
}

/* Index of the first child that does not stand before the ids. */
static size_t child_place(const struct node *parent, const int32_t *ids, size_t n)
{
    size_t low = 0, high = parent->n_children;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (node_before(parent->children[middle], ids, n))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct node *tree_match(const struct node *parent, const int32_t *ids, size_t n, size_t *match)
{
    size_t place = child_place(parent, ids, n);
    struct node *best = NULL;
    *match = 0;
    for (size_t i = place ? place - 1 : 0; i <= place && i < parent->n_children; i++) {
        size_t same = node_common(parent->children[i], ids, n);
        if (same <= *match) continue;
        *match = same;
        best = parent->children[i];
    }
    return best;
}

static void child_insert(struct node *node)
{
    struct node *parent = node->parent;
    size_t place = child_place(parent, node->ids, node->n);
    memmove(parent->children + place + 1, parent->children + place,
            (parent->n_children - place) * sizeof(struct node *));
    parent->children[place] = node;
    parent->n_children++;
}

static void child_remove(struct node *node)
{
    struct node *parent = node->parent;
    size_t place = child_place(parent, node->ids, node->n);
    while (parent->children[place] != node) place++; /* equal ones stand together */
    parent->n_children--;
    memmove(parent->children + place, parent->children + place + 1,
            (parent->n_children - place) * sizeof(struct node *));
}

static np_status child_room(struct node *parent, np_error *err)
{
    if (parent->n_children < parent->max_children) return NP_OK;
    size_t max = parent->max_children ? 2 * parent->max_children : 4;
    struct node **children = mem_resize(parent->children, max * sizeof(struct node *));
    if (!children) return error_nomem(err, "children of a page", max * sizeof(struct node *));
    parent->children = children;
    parent->max_children = max;
    return NP_OK;
}

void tree_extend(struct node *node, const int32_t *ids, size_t n)
{
    child_remove(node);
    memcpy(node->ids + node->n, ids, n * sizeof *ids);
    node->n += n;
    child_insert(node);
}

void tree_forget(struct node *node)
{
    node->wanted = 0;
    if (node->n == node->n_done) return;
    child_remove(node);
    node->n = node->n_done;
    child_insert(node);
}

/* ---- pins, the cache ------------------------------------------------------------------------- */

static void cache_remove(struct tree *tree, struct node *node)
{
    *(node->older ? &node->older->newer : &tree->oldest) = node->newer;
    *(node->newer ? &node->newer->older : &tree->newest) = node->older;
    node->older = node->newer = NULL;
    tree->n_cached--;
}

static void cache_append(struct tree *tree, struct node *node)
{
    node->older = tree->newest;
    node->newer = NULL;
    *(tree->newest ? &tree->newest->newer : &tree->oldest) = node;
    tree->newest = node;
    tree->n_cached++;
}

static void root_end(struct tree *tree, struct node *root)
{
    size_t i = 0;
    while (i < tree->n_roots && tree->roots[i] != root) i++;
    if (i < tree->n_roots) tree->roots[i] = tree->roots[--tree->n_roots];
    node_free(tree, root);
}

/* Takes an unpinned node without children out of the tree; it waits with its page. */
static void node_drop(struct tree *tree, struct node *node)
{
    struct node *parent = node->parent;
    child_remove(node);
    node->newer = tree->spare;
    tree->spare = node;
    if (!parent->parent && !parent->n_pins && !parent->n_children) root_end(tree, parent);
}

static void evict_oldest(struct tree *tree)
{
    struct node *node = tree->oldest;
    cache_remove(tree, node);
    node_drop(tree, node);
    tree->n_evicted++;
}

void tree_clear(struct tree *tree)
{
    while (tree->oldest) evict_oldest(tree);
}

void tree_pin(struct tree *tree, struct node *node)
{
    if (node->n_pins++ == 0 && node->parent) cache_remove(tree, node);
}

void tree_unpin(struct tree *tree, struct node *node)
{
    if (--node->n_pins > 0) return;
    if (!node->parent) {
        if (!node->n_children) root_end(tree, node);
        return;
    }
    const struct node *root = node;
    while (root->parent) root = root->parent;
    if ((node->n_done == 0 || !root->salt) && node->n_children == 0) {
        node_drop(tree, node);
        return;
    }
    cache_append(tree, node);
    while (tree->n_cached > tree->max_cached) evict_oldest(tree);
}

/* ---- roots and nodes ------------------------------------------------------------------------- */

struct node *tree_root(struct tree *tree, const char *salt, size_t n_salt_bytes)
{
    for (size_t i = 0; salt && i < tree->n_roots; i++) {
        struct node *root = tree->roots[i];
        bool same = root->n_salt_bytes == n_salt_bytes &&
                    (!n_salt_bytes || !memcmp(root->salt, salt, n_salt_bytes));
        if (!same) continue;
        root->n_pins++;
        return root;
    }
    struct node *root = mem_alloc(1, sizeof *root);
    if (!root) return NULL;
    root->n_pins = 1;
    root->bad = PANEL;
    if (!salt) return root;
    if (tree->n_roots == tree->max_roots) {
        size_t max = tree->max_roots ? 2 * tree->max_roots : 4;
        struct node **roots = mem_resize(tree->roots, max * sizeof(struct node *));
        if (!roots) goto failed;
        tree->roots = roots;
        tree->max_roots = max;
    }
    if (!(root->salt = mem_alloc(n_salt_bytes + 1, 1))) goto failed;
    if (n_salt_bytes) memcpy(root->salt, salt, n_salt_bytes);
    root->n_salt_bytes = n_salt_bytes;
    return tree->roots[tree->n_roots++] = root;
failed:
    node_free(tree, root);
    return NULL;
}

/* A node with a page: one that waits, a new one, or the oldest of the cache. */
static np_status node_take(struct tree *tree, struct node **out, np_error *err)
{
    if (!tree->spare && tree->n_pages >= tree->max_pages) {
        if (!tree->oldest)
            return error_set(err, NP_ELIMIT, "max_memory", NO_OFFSET,
                             "key/value memory is full: all %zu pages of %d tokens are in use",
                             tree->max_pages, PANEL);
        evict_oldest(tree);
    }
    struct node *node = tree->spare;
    if (node) {
        tree->spare = node->newer;
        *out = node;
        return NP_OK;
    }
    size_t n_bytes = kv_page_bytes(&tree->shape);
    node = mem_alloc(1, sizeof *node);
    if (!node || !(node->page = big_alloc(n_bytes))) {
        node_free(tree, node);
        if (!tree->oldest) return error_nomem(err, "key/value page", n_bytes);
        evict_oldest(tree); /* the machine has less than the plan: the cache goes first */
        *out = tree->spare;
        tree->spare = (*out)->newer;
        return NP_OK;
    }
    tree->n_pages++;
    *out = node;
    return NP_OK;
}

/* The first n tokens of a node, into another. */
static void node_copy(const struct tree *tree, struct node *node, const struct node *from, size_t n)
{
    uint64_t bits = first_bits(n);
    memcpy(node->page, from->page, kv_page_bytes(&tree->shape));
    memcpy(node->lse, from->lse, n * sizeof *node->lse);
    node->hidden = from->hidden & bits;
    node->known = from->known & bits;
    node->known_entropy = from->known_entropy & bits;
    node->bad = from->bad < n ? from->bad : PANEL;
    node->n_done = n;
}

np_status tree_add(struct tree *tree, struct node *parent, const int32_t *ids, size_t n,
                   struct node *from, size_t n_shared, struct node **out, np_error *err)
{
    struct node *node = NULL;
    TRY(child_room(parent, err));
    if (from) from->n_pins++; /* it may be the oldest of the cache */
    bool cached = from && from->n_pins == 1;
    if (cached) cache_remove(tree, from);
    np_status status = node_take(tree, &node, err);
    if (status == NP_OK) {
        struct node **children = node->children;
        size_t max_children = node->max_children;
        *node = (struct node){.parent = parent,
                              .children = children,
                              .max_children = max_children,
                              .n_pins = 1,
                              .n = n,
                              .bad = PANEL,
                              .page = node->page};
        memcpy(node->ids, ids, n * sizeof *ids);
        if (from) node_copy(tree, node, from, n_shared < from->n_done ? n_shared : from->n_done);
        child_insert(node);
        *out = node;
    }
    if (from) from->n_pins--;
    if (cached) cache_append(tree, from);
    return status;
}
