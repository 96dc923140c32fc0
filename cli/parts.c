/*
 * A request is finished when its line stands in the journal, and the line is written behind its
 * part: a run that is killed between the two repeats one request. A last line without its end is
 * what a killed run was writing, and is cut off. The journal is locked, so that two runs never
 * share a folder.
 */
#include "parts.h"
#include "base/file.h"
#include "base/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_JOURNAL_BYTES ((size_t)1 << 32)
enum { MAX_KEY_BYTES = 200 };
#define MAX_SIDE INT32_MAX /* rows, and ids of a row; the bytes of a part then fit in 64 bits */

struct entry {
    uint64_t number, hash, n_rows, width, start;
    bool has_tail;
    char *key;
};

struct parts {
    char *path, *folder; /* OUT.npz, OUT.npz.parts */
    FILE *journal;
    struct entry *entries; /* in the order of the journal */
    size_t n_entries, capacity;
    size_t *by_number, *by_key; /* open addressing: place in `entries` + 1, 0 free */
    size_t n_slots;             /* a power of two, over twice the entries */
};

/* ---- finding entries ---------------------------------------------------------------------- */

uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t n_bytes)
{
    if (hash == 0) hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n_bytes; i++) hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    return hash;
}

static const struct entry *find_number(const struct parts *parts, uint64_t number)
{
    for (size_t i = number; parts->n_slots; i++) {
        size_t place = parts->by_number[i & (parts->n_slots - 1)];
        if (place == 0) break;
        if (parts->entries[place - 1].number == number) return &parts->entries[place - 1];
    }
    return NULL;
}

static const struct entry *find_key(const struct parts *parts, const char *key)
{
    for (size_t i = (size_t)hash_bytes(0, key, strlen(key)); parts->n_slots; i++) {
        size_t place = parts->by_key[i & (parts->n_slots - 1)];
        if (place == 0) break;
        if (strcmp(parts->entries[place - 1].key, key) == 0) return &parts->entries[place - 1];
    }
    return NULL;
}

static void put_slot(size_t *slots, size_t n_slots, uint64_t hash, size_t place)
{
    size_t i = (size_t)hash & (n_slots - 1);
    while (slots[i]) i = (i + 1) & (n_slots - 1);
    slots[i] = place + 1;
}

static void index_entry(struct parts *parts, size_t place)
{
    const struct entry *entry = &parts->entries[place];
    put_slot(parts->by_number, parts->n_slots, entry->number, place);
    put_slot(parts->by_key, parts->n_slots, hash_bytes(0, entry->key, strlen(entry->key)), place);
}

static bool grow(struct parts *parts)
{
    size_t capacity = parts->capacity ? parts->capacity * 2 : 64, n_slots = capacity * 4;
    struct entry *entries = realloc(parts->entries, capacity * sizeof *entries);
    if (entries) parts->entries = entries;
    size_t *by_number = calloc(n_slots, sizeof *by_number),
           *by_key = calloc(n_slots, sizeof *by_key);
    if (!entries || !by_number || !by_key) {
        free(by_number);
        free(by_key);
        return false;
    }
    free(parts->by_number);
    free(parts->by_key);
    parts->by_number = by_number;
    parts->by_key = by_key;
    parts->capacity = capacity;
    parts->n_slots = n_slots;
    for (size_t i = 0; i < parts->n_entries; i++) index_entry(parts, i);
    return true;
}

static np_status add_entry(struct parts *parts, struct entry entry, const char *key, np_error *err)
{
    if (parts->n_entries == parts->capacity && !grow(parts)) return error_nomem(err, "journal", 0);
    entry.key = strdup(key);
    if (!entry.key) return error_nomem(err, "journal", strlen(key));
    parts->entries[parts->n_entries] = entry;
    index_entry(parts, parts->n_entries++);
    return NP_OK;
}

/* The name in the archive, which other programs may use as a file name. */
static bool good_key(const char *key)
{
    bool good = key[0] != 0 && key[0] != '.' && strlen(key) <= MAX_KEY_BYTES;
    for (const unsigned char *at = (const unsigned char *)key; *at; at++)
        good = good && *at >= 32 && *at != 127 && *at != '/' && *at != '\\';
    return good;
}

/* ---- the journal -------------------------------------------------------------------------- */

static np_status fault(const char *path, np_error *err)
{
    return error_set(err, NP_EIO, path, NO_OFFSET, "%s", strerror(errno));
}

static np_status other_run(const struct parts *parts, const char *why, np_error *err)
{
    return error_set(err, NP_EINPUT, parts->folder, NO_OFFSET,
                     "%s; run it as it was begun, or remove the folder", why);
}

static np_status read_identity(const struct parts *parts, const char *line, size_t n_bytes,
                               const char *identity, np_error *err)
{
    if (strlen(identity) == n_bytes && memcmp(line, identity, n_bytes) == 0) return NP_OK;
    return other_run(parts, "parts of another model or of other options", err);
}

static np_status read_entry(struct parts *parts, const char *line, size_t n_bytes, np_error *err)
{
    json_error_t why;
    json_int_t number, hash, rows, width, start;
    int tail;
    const char *key;
    json_t *object = json_loadb(line, n_bytes, JSON_REJECT_DUPLICATES, &why);
    if (!object ||
        json_unpack(object, "{s:I, s:I, s:I, s:I, s:I, s:b, s:s}", "number", &number, "hash", &hash,
                    "rows", &rows, "width", &width, "start", &start, "tail", &tail, "key",
                    &key) != 0 ||
        number < 0 || rows < 0 || width < 0 || start < 0 || rows > MAX_SIDE || width > MAX_SIDE ||
        !good_key(key) || find_key(parts, key) || find_number(parts, (uint64_t)number)) {
        json_decref(object);
        return other_run(parts, "not a journal of this program", err);
    }
    struct entry entry = {(uint64_t)number,
                          (uint64_t)hash,
                          (uint64_t)rows,
                          (uint64_t)width,
                          (uint64_t)start,
                          tail != 0,
                          NULL};
    np_status status = add_entry(parts, entry, key, err);
    json_decref(object);
    return status;
}

static np_status read_journal(struct parts *parts, const char *path, const char *identity,
                              np_error *err)
{
    char *text;
    size_t n_bytes, at = 0, n_lines = 0;
    TRY(file_read_all(path, MAX_JOURNAL_BYTES, &text, &n_bytes, err));
    np_status status = NP_OK;
    for (const char *end; status == NP_OK && (end = memchr(text + at, '\n', n_bytes - at));
         n_lines++) {
        size_t n_line = (size_t)(end - text) - at;
        status = n_lines == 0 ? read_identity(parts, text + at, n_line, identity, err)
                              : read_entry(parts, text + at, n_line, err);
        at += n_line + 1;
    }
    free(text);
    TRY(status);
    if (at < n_bytes && ftruncate(fileno(parts->journal), (off_t)at) != 0) return fault(path, err);
    if (n_lines > 0) return NP_OK;
    if (fprintf(parts->journal, "%s\n", identity) < 0 || fflush(parts->journal) != 0)
        return fault(path, err);
    return NP_OK;
}

static char *path_join(const char *first, const char *second)
{
    size_t n_bytes = strlen(first) + strlen(second) + 1;
    char *path = malloc(n_bytes);
    if (path) snprintf(path, n_bytes, "%s%s", first, second);
    return path;
}

static np_status open_journal(struct parts *parts, const char *identity, bool resume, np_error *err)
{
    if (mkdir(parts->folder, 0777) != 0) {
        if (errno != EEXIST) return fault(parts->folder, err);
        if (!resume)
            return error_set(
                err, NP_EINPUT, parts->folder, NO_OFFSET,
                "an interrupted run left its parts here; continue it with --resume, or "
                "remove the folder");
    }
    char *path = path_join(parts->folder, "/journal");
    if (!path) return error_nomem(err, "a path", strlen(parts->folder));
    parts->journal = fopen(path, "ab");
    np_status status = NP_OK;
    if (!parts->journal)
        status = fault(path, err);
    else if (flock(fileno(parts->journal), LOCK_EX | LOCK_NB) != 0)
        status = error_set(err, NP_EINPUT, path, NO_OFFSET, "another run is writing here");
    else
        status = read_journal(parts, path, identity, err);
    free(path);
    return status;
}

np_status parts_open(struct parts **out, const char *path, const char *identity, bool resume,
                     np_error *err)
{
    struct parts *parts = calloc(1, sizeof *parts);
    *out = NULL;
    if (!parts) return error_nomem(err, "parts", sizeof *parts);
    parts->path = strdup(path);
    parts->folder = path_join(path, ".parts");
    np_status status = NP_OK;
    if (!parts->path || !parts->folder)
        status = error_nomem(err, "a path", strlen(path));
    else
        status = open_journal(parts, identity, resume, err);
    if (status == NP_OK)
        *out = parts;
    else
        parts_close(parts);
    return status;
}

void parts_close(struct parts *parts)
{
    if (!parts) return;
    if (parts->journal) fclose(parts->journal);
    for (size_t i = 0; i < parts->n_entries; i++) free(parts->entries[i].key);
    free(parts->entries);
    free(parts->by_number);
    free(parts->by_key);
    free(parts->folder);
    free(parts->path);
    free(parts);
}

/* ---- requests ----------------------------------------------------------------------------- */

bool parts_have(const struct parts *parts, struct question *question)
{
    const struct entry *entry = find_number(parts, question->number);
    if (!entry) return false;
    if (entry->hash == question->hash) return true;
    error_set(&question->error, NP_EINPUT, "--resume", NO_OFFSET,
              "not the request that the interrupted run answered in this place");
    return false;
}

static np_status make_key(const struct parts *parts, const struct question *question, char *key,
                          np_error *err)
{
    if (!question->id)
        snprintf(key, MAX_KEY_BYTES + 1, "%zu", question->number);
    else if (strlen(question->id) > MAX_KEY_BYTES)
        return error_set(err, NP_EINPUT, "id", NO_OFFSET, "at most %d bytes name an array",
                         MAX_KEY_BYTES);
    else
        snprintf(key, MAX_KEY_BYTES + 1, "%s", question->id);
    if (!good_key(key)) {
        error_set(err, NP_EINPUT, "id", NO_OFFSET,
                  "cannot name an array: no slash, no control byte, no dot in front, not empty");
        return error_given(err, NP_EINPUT, "%.60s", key);
    }
    if (find_key(parts, key)) {
        error_set(err, NP_EINPUT, "id", NO_OFFSET, "an earlier request has this id");
        return error_given(err, NP_EINPUT, "%.60s", key);
    }
    return NP_OK;
}

static char *part_path(const struct parts *parts, uint64_t number)
{
    char name[40];
    snprintf(name, sizeof name, "/%llu.part", (unsigned long long)number);
    return path_join(parts->folder, name);
}

static np_status write_part(const char *path, const np_result *result, np_error *err)
{
    size_t n_rows = result->n_rows, width = result->n_candidates;
    FILE *file = fopen(path, "wb");
    if (!file) return fault(path, err);
    bool good =
        n_rows == 0 ||
        (fwrite(result->scores, sizeof(float) * width, n_rows, file) == n_rows &&
         fwrite(result->token_ids + result->start + 1, sizeof(int32_t), n_rows, file) == n_rows);
    if (good && n_rows && result->tail)
        good = fwrite(result->tail, sizeof(float), n_rows, file) == n_rows;
    if (fclose(file) != 0) good = false;
    return good ? NP_OK : fault(path, err);
}

np_status parts_add(struct parts *parts, const struct question *question, const np_result *result,
                    np_error *err)
{
    char key[MAX_KEY_BYTES + 1];
    TRY(make_key(parts, question, key, err));
    char *path = part_path(parts, question->number);
    if (!path) return error_nomem(err, "a path", strlen(parts->folder));
    np_status status = write_part(path, result, err);
    free(path);
    TRY(status);
    struct entry entry = {question->number,
                          question->hash,
                          result->n_rows,
                          result->n_candidates,
                          result->start,
                          result->tail,
                          NULL};
    struct buf line;
    struct json json;
    buf_init(&line, 4096);
    json_init(&json, &line);
    json_begin(&json, '{');
    json_key(&json, "key");
    json_str(&json, key);
    buf_printf(
        &line,
        ",\"number\":%llu,\"hash\":%lld,\"rows\":%llu,\"width\":%llu,\"start\":%llu,\"tail\":%s}\n",
        (unsigned long long)entry.number, (long long)entry.hash, (unsigned long long)entry.n_rows,
        (unsigned long long)entry.width, (unsigned long long)entry.start,
        entry.has_tail ? "true" : "false");
    bool good = !line.failed &&
                fwrite(line.data, 1, line.n_bytes, parts->journal) == line.n_bytes &&
                fflush(parts->journal) == 0;
    buf_free(&line);
    return good ? add_entry(parts, entry, key, err) : fault(parts->folder, err);
}

/* ---- the archive -------------------------------------------------------------------------- */

static np_status zip_array(struct npz *npz, const struct entry *entry, const char *what,
                           enum npy_type type, const uint64_t *shape, int n_dims, const void *data,
                           np_error *err)
{
    char name[MAX_KEY_BYTES + 32];
    snprintf(name, sizeof name, "%s.%s.npy", entry->key, what);
    return npz_add(npz, name, type, shape, n_dims, data, err);
}

static np_status zip_entry(struct npz *npz, const struct entry *entry, const char *path,
                           np_error *err)
{
    char *bytes;
    size_t n_bytes, row_bytes = 4 * (size_t)entry->width + 4 + 4 * (size_t)entry->has_tail;
    size_t wanted = (size_t)entry->n_rows * row_bytes;
    uint64_t shape[2] = {entry->n_rows, entry->width};
    int64_t start = (int64_t)entry->start;
    TRY(file_read_all(path, wanted + 1, &bytes, &n_bytes, err));
    const char *ids = bytes + 4 * (size_t)entry->n_rows * (size_t)entry->width;
    np_status status = NP_OK;
    if (n_bytes != wanted)
        status =
            error_set(err, NP_EIO, path, NO_OFFSET, "holds %zu bytes, needs %zu", n_bytes, wanted);
    if (status == NP_OK) status = zip_array(npz, entry, "scores", NPY_F32, shape, 2, bytes, err);
    if (status == NP_OK)
        status = zip_array(npz, entry, "row_token_ids", NPY_I32, shape, 1, ids, err);
    if (status == NP_OK) status = zip_array(npz, entry, "start", NPY_I64, NULL, 0, &start, err);
    if (status == NP_OK && entry->has_tail)
        status =
            zip_array(npz, entry, "tail", NPY_F32, shape, 1, ids + 4 * (size_t)entry->n_rows, err);
    free(bytes);
    return status;
}

static int by_number(const void *a, const void *b)
{
    const struct entry *first = a, *second = b;
    return (first->number > second->number) - (first->number < second->number);
}

static np_status write_archive(struct parts *parts, np_error *err)
{
    struct npz *npz = NULL;
    TRY(npz_open(&npz, parts->path, err));
    for (size_t i = 0; i < parts->n_entries; i++) {
        char *path = part_path(parts, parts->entries[i].number);
        np_status status = path ? zip_entry(npz, &parts->entries[i], path, err)
                                : error_nomem(err, "a path", strlen(parts->folder));
        free(path);
        if (status == NP_OK) continue;
        npz_abort(npz);
        return status;
    }
    return npz_close(npz, err);
}

np_status parts_finish(struct parts *parts, bool failed, np_error *err)
{
    /* The indexes are of no use after this. */
    if (parts->n_entries > 1)
        qsort(parts->entries, parts->n_entries, sizeof *parts->entries, by_number);
    if (parts->n_entries > 0 || !failed) TRY(write_archive(parts, err));
    for (size_t i = 0; i < parts->n_entries; i++) {
        char *path = part_path(parts, parts->entries[i].number);
        if (path) unlink(path);
        free(path);
    }
    char *journal = path_join(parts->folder, "/journal");
    if (journal) unlink(journal);
    free(journal);
    if (rmdir(parts->folder) != 0) return fault(parts->folder, err);
    return NP_OK;
}
