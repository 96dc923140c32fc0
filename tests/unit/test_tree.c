/*
 * test_tree.c - the tree of pages against a plain list of everything that was put in: the longest
 * common beginning, copies, the order in which pages leave.
 */
#include "tinymodel.h"

#include "engine/tree.h"

static const struct kv_shape *shape(void)
{
    static struct kv_shape s;
    s = kv_shape_of(1, 1, 4, 4);
    return &s;
}

static struct node *add(struct tree *tree, struct node *parent, const int32_t *ids, size_t n)
{
    struct node *node;
    np_error err;
    assert_int_equal(tree_add(tree, parent, ids, n, NULL, 0, &node, &err), NP_OK);
    node->n_done = n;
    return node;
}

/* Children of random small ids, against a search through all of them; some grow, some are cut. */
static void finds_the_longest_beginning(void **state)
{
    enum { N = 300 };
    struct tree tree;
    struct node *nodes[N];
    uint32_t seed = 3;
    tree_init(&tree, shape(), SIZE_MAX, SIZE_MAX);
    struct node *root = tree_root(&tree, "", 0);
    for (size_t i = 0; i < N; i++) {
        int32_t ids[PANEL];
        seed = seed * 1664525u + 1013904223u;
        size_t n = 1 + (seed >> 8) % 6, match, best = 0;
        fill_ids(ids, n, 3, seed);
        struct node *found = tree_match(root, ids, n, &match);
        for (size_t k = 0; k < i; k++) {
            size_t same = 0;
            while (same < n && same < nodes[k]->n && nodes[k]->ids[same] == ids[same]) same++;
            best = same > best ? same : best;
        }
        assert_int_equal(match, best);
        assert_int_equal(found != NULL, best > 0);
        if (found) assert_memory_equal(found->ids, ids, match * sizeof(int32_t));
        nodes[i] = add(&tree, root, ids, n);
        if (i % 3 == 0) {
            tree_extend(nodes[i], ids, n);
            assert_int_equal(nodes[i]->n, 2 * n);
        }
        if (i % 6 == 0) {
            tree_forget(nodes[i]);
            assert_int_equal(nodes[i]->n, n);
        }
    }
    for (size_t i = 0; i < N; i++) tree_unpin(&tree, nodes[i]);
    tree_unpin(&tree, root);
    assert_int_equal(tree.n_cached, N);
    tree_free(&tree);
}

/* Three pages of cache: the one that was used longest ago leaves, children before parents. */
static void evicts_what_was_used_longest_ago(void **state)
{
    struct tree tree;
    int32_t ids[4][PANEL];
    size_t match;
    tree_init(&tree, shape(), SIZE_MAX, 3);
    struct node *root = tree_root(&tree, "", 0);
    for (int i = 0; i < 4; i++) fill_ids(ids[i], PANEL, 100, (uint32_t)i);
    struct node *a = add(&tree, root, ids[0], PANEL), *b = add(&tree, a, ids[1], PANEL);
    tree_unpin(&tree, b);
    tree_unpin(&tree, a);
    struct node *c = add(&tree, root, ids[2], PANEL);
    tree_unpin(&tree, c);
    assert_int_equal(tree.n_cached, 3);
    struct node *d = add(&tree, root, ids[3], 1);
    tree_unpin(&tree, d);
    assert_int_equal(tree.n_cached, 3);
    assert_int_equal(tree.n_evicted, 1);
    assert_ptr_equal(tree_match(root, ids[0], PANEL, &match), a);
    assert_int_equal(a->n_children, 0); /* b left, the older one of the pair */
    tree_pin(&tree, a);
    tree_unpin(&tree, a); /* used again: now c is the oldest */
    d = add(&tree, a, ids[1], PANEL);
    tree_unpin(&tree, d);
    assert_null(tree_match(root, ids[2], PANEL, &match));
    assert_ptr_equal(tree_match(root, ids[0], PANEL, &match), a);
    tree_unpin(&tree, root);
    tree_free(&tree);
}

/* A sibling takes over the columns before it leaves, and what is known of them, and no more. */
static void copies_what_is_shared(void **state)
{
    struct tree tree;
    int32_t ids[PANEL];
    struct node *copy;
    np_error err;
    tree_init(&tree, shape(), 2, 2);
    struct node *root = tree_root(&tree, "salt", 4);
    fill_ids(ids, PANEL, 100, 1);
    struct node *from = add(&tree, root, ids, PANEL);
    from->hidden = from->known = ~(uint64_t)0;
    from->bad = 7;
    for (size_t i = 0; i < tree.shape.page_floats; i++) from->page[i] = (float)i;
    assert_int_equal(tree_add(&tree, root, ids, 5, from, 5, &copy, &err), NP_OK);
    assert_memory_equal(copy->page, from->page, kv_page_bytes(&tree.shape));
    assert_int_equal(copy->hidden, 31);
    assert_int_equal(copy->known, 31);
    assert_int_equal(copy->known_entropy, 0);
    assert_int_equal(copy->n_done, 5);
    assert_int_equal(copy->bad, PANEL);
    struct node *third;
    assert_int_equal(tree_add(&tree, root, ids, 9, from, 9, &third, &err), NP_ELIMIT);
    tree_unpin(&tree, copy);
    assert_int_equal(tree_add(&tree, root, ids, 9, from, 9, &third, &err), NP_OK);
    assert_int_equal(third->bad, 7);
    assert_int_equal(tree.n_evicted, 1);
    tree_unpin(&tree, third);
    tree_unpin(&tree, from);
    tree_unpin(&tree, root);
    assert_int_equal(tree.n_pages, 2);
    tree_free(&tree);
}

/* What nobody uses and nobody may find is gone; a salt finds its own. */
static void roots_are_apart(void **state)
{
    struct tree tree;
    int32_t ids[PANEL];
    size_t match;
    tree_init(&tree, shape(), SIZE_MAX, SIZE_MAX);
    struct node *a = tree_root(&tree, "a", 1), *b = tree_root(&tree, "ab", 2);
    struct node *own = tree_root(&tree, NULL, 0);
    fill_ids(ids, PANEL, 100, 1);
    struct node *in_a = add(&tree, a, ids, PANEL), *in_own = add(&tree, own, ids, PANEL);
    assert_null(tree_match(b, ids, PANEL, &match));
    tree_unpin(&tree, in_own);
    tree_unpin(&tree, own);
    tree_unpin(&tree, in_a);
    tree_unpin(&tree, a);
    tree_unpin(&tree, b);
    assert_int_equal(tree.n_cached, 1);
    assert_int_equal(tree.n_roots, 1);
    assert_ptr_equal(tree_root(&tree, "a", 1), a);
    assert_ptr_equal(tree_match(a, ids, PANEL, &match), in_a);
    tree_unpin(&tree, a);
    tree_clear(&tree);
    assert_int_equal(tree.n_roots, 0);
    tree_free(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_longest_beginning),
        cmocka_unit_test(evicts_what_was_used_longest_ago),
        cmocka_unit_test(copies_what_is_shared),
        cmocka_unit_test(roots_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
