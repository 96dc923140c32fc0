/*
 * cachefile.c - the prefix cache on disk.
 *
 *   header  magic, version of the arithmetic, fingerprint of the model, sizes, n_roots, n_nodes
 *   roots   [n_roots] u32 n_salt_bytes, bytes, hash of them
 *   nodes   [n_nodes] parent (index of a root, or n_roots + that of an earlier node), n, bits, ids,
 *           log-sum-exps, page, hash of all of these
 *
 * Of this machine's byte order, which the magic number tells. Everything is checked before it is
 * believed; what a page holds must be finite, since attention multiplies masked columns by +0. A
 * file is written under another name beside its place and renamed when it is whole. Nodes are kept
 * pinned while a file is read and let go from the last to the first: children leave a cache before
 * parents.
 */
#include "engine/state.h"

#include "base/arena.h"
#include "base/file.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC 0x3176636b7469706eu /* "npitkcv1" */

struct file_header {
    uint64_t magic, numerics, fingerprint[2], page_bytes, n_vocab, n_roots, n_nodes, hash;
};
struct file_node {
    uint64_t parent, n, hidden, known, known_entropy;
    struct row_lse lse[PANEL];
    int32_t ids[PANEL];
};

static np_status header_of(const struct engine *engine, struct file_header *out, np_error *err)
{
    *out = (struct file_header){.magic = MAGIC,
                                .numerics = NUMERICS,
                                .page_bytes = kv_page_bytes(&engine->model->kv),
                                .n_vocab = engine->model->config.n_vocab};
    return model_fingerprint(engine->model, out->fingerprint, err);
}

static uint64_t header_hash(const struct file_header *header)
{
    return XXH3_64bits(header, offsetof(struct file_header, hash));
}

/* One hash over a node and its page. */
static uint64_t node_hash(const struct file_node *node, const float *page, size_t page_bytes)
{
    return XXH3_64bits_withSeed(page, page_bytes, XXH3_64bits(node, sizeof *node));
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* A node on the way from a root, and how many of its children were looked at. */
struct level {
    uint64_t index;
    size_t next;
};
struct writer {
    struct engine *engine;
    FILE *file;
    uint64_t n_nodes; /* so far */
    bool counting;
};

/* Only what is finite and computed; a node without tokens ends its branch. Hidden rows may overflow
 * where keys and values do not, and what a page held before stays in columns that it does not use.
 */
static bool worth_saving(const struct writer *writer, const struct node *node)
{
    size_t n = writer->engine->model->kv.page_floats;
    return node->n_done > 0 && node->bad == PANEL && first_nonfinite(node->page, n) == n;
}

/* A root without such a page is left out. */
static bool worth_naming(const struct writer *writer, const struct node *root)
{
    size_t i = 0;
    while (i < root->n_children && !worth_saving(writer, root->children[i])) i++;
    return i < root->n_children;
}

static bool write_node(struct writer *writer, const struct node *node, uint64_t parent)
{
    struct file_node out = {.parent = parent,
                            .n = node->n_done,
                            .hidden = node->hidden,
                            .known = node->known,
                            .known_entropy = node->known_entropy};
    size_t page_bytes = kv_page_bytes(&writer->engine->model->kv);
    memcpy(out.lse, node->lse, sizeof out.lse);
    memcpy(out.ids, node->ids, node->n_done * sizeof *node->ids);
    uint64_t hash = node_hash(&out, node->page, page_bytes);
    return fwrite(&out, sizeof out, 1, writer->file) == 1 &&
           fwrite(node->page, page_bytes, 1, writer->file) == 1 &&
           fwrite(&hash, sizeof hash, 1, writer->file) == 1;
}

static bool write_root(struct writer *writer, const struct node *root)
{
    uint32_t n = (uint32_t)root->n_salt_bytes;
    uint64_t hash = XXH3_64bits_withSeed(root->salt, n, n);
    return fwrite(&n, sizeof n, 1, writer->file) == 1 &&
           (!n || fwrite(root->salt, n, 1, writer->file) == 1) &&
           fwrite(&hash, sizeof hash, 1, writer->file) == 1;
}

/* The children of a node whose index is `parent`, and what is below them: parents first. Recursion
 * is as deep as a sequence has pages, so the tree is walked by its own links. */
static bool write_tree(struct writer *writer, const struct node *root, uint64_t root_index,
                       struct level *levels)
{
    const struct node *node = root;
    size_t depth = 0;
    levels[0] = (struct level){root_index, 0};
    for (;;) {
        if (levels[depth].next == node->n_children) {
            if (depth == 0) return true;
            node = node->parent;
            depth--;
            continue;
        }
        const struct node *child = node->children[levels[depth].next++];
        if (!worth_saving(writer, child)) continue;
        if (!writer->counting && !write_node(writer, child, levels[depth].index)) return false;
        uint64_t index = writer->n_nodes++;
        if (child->n_done < PANEL) continue; /* nothing is below */
        levels[++depth] = (struct level){index, 0};
        node = child;
    }
}

/* The header and the roots. */
static bool write_front(struct writer *writer, struct file_header *header)
{
    const struct tree *tree = &writer->engine->tree;
    header->hash = header_hash(header);
    if (fwrite(header, sizeof *header, 1, writer->file) != 1) return false;
    for (size_t i = 0; i < tree->n_roots; i++)
        if (worth_naming(writer, tree->roots[i]) && !write_root(writer, tree->roots[i]))
            return false;
    return true;
}

static bool write_all(struct writer *writer, struct file_header *header, struct level *levels)
{
    const struct tree *tree = &writer->engine->tree;
    for (size_t i = 0; i < tree->n_roots; i++)
        header->n_roots += worth_naming(writer, tree->roots[i]);
    for (int pass = 0; pass < 2; pass++) {
        writer->counting = pass == 0;
        writer->n_nodes = header->n_roots;
        if (pass == 1 && !write_front(writer, header)) return false;
        for (size_t i = 0, index = 0; i < tree->n_roots; i++)
            if (worth_naming(writer, tree->roots[i]) &&
                !write_tree(writer, tree->roots[i], index++, levels))
                return false;
        header->n_nodes = writer->n_nodes - header->n_roots;
    }
    return fflush(writer->file) == 0 && fsync(fileno(writer->file)) == 0;
}

np_status cache_save(struct engine *engine, const char *path, np_error *err)
{
    struct file_header header;
    char temporary[4096];
    size_t depth = kv_pages(engine->n_context) + 2;
    struct level *levels = mem_alloc(depth, sizeof *levels);
    struct writer writer = {.engine = engine};
    np_status status = NP_OK;
    if (!levels) return error_nomem(err, "cache file", depth * sizeof *levels);
    if ((status = header_of(engine, &header, err)) != NP_OK) goto done;
    int n = snprintf(temporary, sizeof temporary, "%s.part", path);
    if (n < 0 || (size_t)n >= sizeof temporary) {
        status = error_set(err, NP_EIO, path, NO_OFFSET, "the path is too long");
        goto done;
    }
    if (!(writer.file = fopen(temporary, "wb"))) {
        status = error_set(err, NP_EIO, path, NO_OFFSET, "%s", strerror(errno));
        goto done;
    }
    bool whole = write_all(&writer, &header, levels);
    int reason = errno;
    whole = fclose(writer.file) == 0 && whole;
    if (whole && rename(temporary, path) != 0) {
        whole = false;
        reason = errno;
    }
    if (!whole) {
        status = error_set(err, NP_EIO, path, NO_OFFSET, "%s", strerror(reason));
        unlink(temporary);
    }
done:
    mem_free(levels);
    return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

struct reader {
    struct engine *engine;
    const char *path;
    struct file file;
    uint64_t at;
    struct file_header header;
    struct node **nodes; /* roots, then nodes; all pinned. NULL: left out */
    uint64_t n_nodes;    /* of both, so far */
};

static np_status bad_file(const struct reader *reader, const char *what, np_error *err)
{
    return error_set(err, NP_EFORMAT, reader->path, (int64_t)reader->at, "%s", what);
}

static np_status read_bytes(struct reader *reader, void *out, size_t n_bytes, np_error *err)
{
    TRY(file_read(&reader->file, reader->at, out, n_bytes, err));
    reader->at += n_bytes;
    return NP_OK;
}

static np_status read_header(struct reader *reader, np_error *err)
{
    struct file_header want, *header = &reader->header;
    TRY(header_of(reader->engine, &want, err));
    TRY(read_bytes(reader, header, sizeof *header, err));
    if (header->magic != MAGIC) return bad_file(reader, "this is not a prefix cache", err);
    if (header->hash != header_hash(header)) return bad_file(reader, "the header is damaged", err);
    if (header->numerics != want.numerics)
        return bad_file(reader, "it is of another version of the arithmetic", err);
    if (header->page_bytes != want.page_bytes || header->n_vocab != want.n_vocab ||
        memcmp(header->fingerprint, want.fingerprint, sizeof want.fingerprint) != 0)
        return bad_file(reader, "it is of another model, or of another profile", err);
    uint64_t left = reader->file.n_bytes - reader->at;
    uint64_t each = sizeof(struct file_node) + header->page_bytes + sizeof(uint64_t);
    if (header->n_roots > left / sizeof(uint32_t) || header->n_nodes > left / each)
        return bad_file(reader, "the file is too short for what it announces", err);
    if (header->n_roots > header->n_nodes)
        return bad_file(reader, "it announces more salts than pages", err);
    return NP_OK;
}

static np_status read_root(struct reader *reader, np_error *err)
{
    uint32_t n;
    TRY(read_bytes(reader, &n, sizeof n, err));
    if (n > MAX_SALT_BYTES) return bad_file(reader, "a salt is too long", err);
    char *salt = mem_alloc((size_t)n + 1, 1);
    if (!salt) return error_nomem(err, "salt", n);
    uint64_t hash = 0;
    np_status status = read_bytes(reader, salt, n, err);
    if (status == NP_OK) status = read_bytes(reader, &hash, sizeof hash, err);
    if (status == NP_OK && hash != XXH3_64bits_withSeed(salt, n, n))
        status = bad_file(reader, "a salt is damaged", err);
    struct node *root = NULL;
    if (status == NP_OK && !(root = tree_root(&reader->engine->tree, salt, n)))
        status = error_nomem(err, "root of the cache", sizeof *root);
    mem_free(salt);
    if (root) reader->nodes[reader->n_nodes++] = root;
    return status;
}

/* What is known of row i is finite. */
static bool lse_is_sound(const struct file_node *node, uint64_t i)
{
    const struct row_lse *lse = &node->lse[i];
    if ((node->known >> i & 1) && !(isfinite(lse->m) && isfinite(lse->log_S))) return false;
    return !(node->known_entropy >> i & 1) || isfinite(lse->entropy);
}

static bool node_is_sound(const struct reader *reader, const struct file_node *node)
{
    if (node->n == 0 || node->n > PANEL || node->parent >= reader->n_nodes) return false;
    uint64_t bits = node->n == PANEL ? ~(uint64_t)0 : ((uint64_t)1 << node->n) - 1;
    if ((node->hidden | node->known | node->known_entropy) & ~bits) return false;
    if (node->known & ~node->hidden || node->known_entropy & ~node->known) return false;
    for (uint64_t i = 0; i < node->n; i++) {
        if (node->ids[i] < 0 || (uint64_t)node->ids[i] >= reader->header.n_vocab) return false;
        if (!lse_is_sound(node, i)) return false;
    }
    return true;
}

/* Pages from the root to this node. */
static size_t node_depth(const struct node *node)
{
    size_t depth = 0;
    for (; node->parent; node = node->parent) depth++;
    return depth;
}

/* Where the same tokens are there already, theirs stay. */
static np_status read_node(struct reader *reader, float *page, np_error *err)
{
    struct tree *tree = &reader->engine->tree;
    struct file_node in;
    uint64_t hash;
    size_t page_bytes = reader->header.page_bytes, match;
    TRY(read_bytes(reader, &in, sizeof in, err));
    TRY(read_bytes(reader, page, page_bytes, err));
    TRY(read_bytes(reader, &hash, sizeof hash, err));
    if (hash != node_hash(&in, page, page_bytes)) return bad_file(reader, "a page is damaged", err);
    size_t n = page_bytes / sizeof(float);
    if (!node_is_sound(reader, &in) || first_nonfinite(page, n) < n)
        return bad_file(reader, "a page holds what cannot be", err);
    struct node *parent = reader->nodes[in.parent], **out = &reader->nodes[reader->n_nodes++];
    if (!parent || (parent->parent && parent->n < PANEL)) return NP_OK;
    /* Beyond the context, which may be shorter than it was when the file was written. */
    if (node_depth(parent) >= kv_pages(reader->engine->n_context)) return NP_OK;
    struct node *node = tree_match(parent, in.ids, in.n, &match);
    if (node && match == in.n && node->n == match) {
        tree_pin(tree, *out = node);
        return NP_OK;
    }
    if (reader->n_nodes - reader->header.n_roots > tree->max_cached) return NP_OK;
    np_error full;
    np_status status = tree_add(tree, parent, in.ids, in.n, NULL, 0, &node, &full);
    if (status == NP_ELIMIT) return NP_OK;
    if (status != NP_OK) return *err = full, status;
    node->n_done = node->n;
    node->hidden = in.hidden;
    node->known = in.known;
    node->known_entropy = in.known_entropy;
    memcpy(node->lse, in.lse, sizeof in.lse);
    memcpy(node->page, page, page_bytes);
    *out = node;
    return NP_OK;
}

static np_status read_all(struct reader *reader, float *page, np_error *err)
{
    for (uint64_t i = 0; i < reader->header.n_roots; i++) TRY(read_root(reader, err));
    for (uint64_t i = 0; i < reader->header.n_nodes; i++) TRY(read_node(reader, page, err));
    return NP_OK;
}

np_status cache_load(struct engine *engine, const char *path, np_error *err)
{
    struct reader reader = {.engine = engine, .path = path};
    np_error reason = {0};
    size_t page_bytes = kv_page_bytes(&engine->model->kv);
    float *page = NULL;
    np_status status = file_open(&reader.file, path, &reason);
    if (status == NP_OK) status = read_header(&reader, &reason);
    if (status == NP_OK) {
        size_t n = (size_t)(reader.header.n_roots + reader.header.n_nodes);
        reader.nodes = mem_alloc(n + 1, sizeof *reader.nodes);
        page = big_alloc(page_bytes);
        if (!reader.nodes || !page) status = error_nomem(&reason, "cache file", n * sizeof(void *));
    }
    if (status == NP_OK) status = read_all(&reader, page, &reason);
    while (reader.nodes && reader.n_nodes > 0) {
        struct node *node = reader.nodes[--reader.n_nodes];
        if (node) tree_unpin(&engine->tree, node);
    }
    file_close(&reader.file);
    big_free(page, page_bytes);
    mem_free(reader.nodes);
    if (status != NP_OK && err) *err = reason;
    return status;
}
