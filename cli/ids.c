/*
 * Lists of ids as people and programs write them: "1 2, 3", .npy and .npz files.
 * Whether an id is in the vocabulary is checked later, with the model; here it only has to be a
 * 32-bit integer.
 */
#include "requests.h"
#include "source.h"
#include "server/values.h"

#define MAX_FILE_BYTES ((size_t)1 << 30)

static bool is_separator(char c)
{
    return c == ' ' || c == ',' || c == '\n' || c == '\t' || c == '\r';
}

static np_status bad_id(const char *where, size_t place, const char *text, size_t n_bytes,
                        np_error *err)
{
    char path[80];
    snprintf(path, sizeof path, "%s[%zu]", where, place);
    error_set(err, NP_EINPUT, path, NO_OFFSET, "a token id is a whole number below 2^31");
    return error_given(err, NP_EINPUT, "%.*s", (int)(n_bytes < 60 ? n_bytes : 60), text);
}

static bool one_id(const char *text, size_t n_bytes, int32_t *id)
{
    bool negative = n_bytes > 1 && text[0] == '-';
    int64_t value = 0;
    if (n_bytes == 0) return false;
    for (size_t i = negative; i < n_bytes; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        value = value * 10 + (text[i] - '0');
        if (value > INT32_MAX) return false;
    }
    *id = (int32_t)(negative ? -value : value);
    return true;
}

/* A comma promises an id before and behind it: one that is missing would move all that follow. */
static np_status missing_id(const char *where, size_t place, size_t at, np_error *err)
{
    char path[80];
    snprintf(path, sizeof path, "%s[%zu]", where, place);
    return error_set(err, NP_EINPUT, path, (int64_t)at, "a token id is missing beside a comma");
}

np_status ids_parse(const char *text, size_t n_bytes, const char *where, struct arena *arena,
                    const int32_t **ids, size_t *n_ids, np_error *err)
{
    size_t count = 0, at = 0;
    bool id_wanted = true; /* by a comma, or no id was there yet */
    /* Two bytes are the least that an id takes. */
    int32_t *list = arena_push_array(arena, n_bytes / 2 + 1, sizeof *list);
    if (!list) return error_nomem(err, "token ids", n_bytes * 2);
    while (at < n_bytes) {
        size_t begin = at;
        if (is_separator(text[at])) {
            bool comma = text[at] == ',';
            if (comma && id_wanted) return missing_id(where, count, at, err);
            id_wanted |= comma;
            at++;
            continue;
        }
        while (at < n_bytes && !is_separator(text[at])) at++;
        if (!one_id(text + begin, at - begin, &list[count]))
            return bad_id(where, count, text + begin, at - begin, err);
        count++;
        id_wanted = false;
    }
    if (id_wanted && count > 0) return missing_id(where, count, at, err);
    *ids = list;
    *n_ids = count;
    return NP_OK;
}

static np_status ids_from_npy(const char *bytes, size_t n_bytes, const char *where,
                              struct arena *arena, struct question *question, np_error *err)
{
    struct values values = {.arena = arena};
    struct candidates ids;
    TRY(values_from_npy(&values, where, bytes, n_bytes, &ids, err));
    question->candidate_ids = ids.ids;
    question->n_candidates = ids.n_candidates;
    question->n_candidate_rows = ids.n_rows;
    return NP_OK;
}

static np_status ids_from_member(const char *bytes, size_t n_bytes, const char *path,
                                 const char *member, struct arena *arena, struct question *question,
                                 np_error *err)
{
    const char *array;
    TRY(archive_member(bytes, n_bytes, path, member, &array, &n_bytes, err));
    return ids_from_npy(array, n_bytes, path, arena, question, err);
}

static bool is_archive(const char *bytes, size_t n_bytes)
{
    return n_bytes >= 2 && memcmp(bytes, "PK", 2) == 0;
}

np_status ids_from_file(const char *path, const char *member, struct arena *arena,
                        struct question *question, np_error *err)
{
    char *bytes = NULL;
    size_t n_bytes = 0;
    TRY(source_read_all(path, MAX_FILE_BYTES, &bytes, &n_bytes, err));
    np_status status = is_archive(bytes, n_bytes)
                           ? ids_from_member(bytes, n_bytes, path, member, arena, question, err)
                           : ids_from_npy(bytes, n_bytes, path, arena, question, err);
    free(bytes);
    return status;
}

/* Both parts of a text that was generated. */
static np_status join_parts(const char *bytes, size_t n_bytes, const char *path,
                            struct arena *arena, struct question *question, np_error *err)
{
    struct question prompt = {0};
    np_error none = {0};
    const char *array;
    size_t n_array;
    TRY(ids_from_member(bytes, n_bytes, path, "token_ids", arena, question, err));
    if (archive_member(bytes, n_bytes, path, "prompt_token_ids", &array, &n_array, &none) != NP_OK)
        return NP_OK;
    TRY(ids_from_npy(array, n_array, path, arena, &prompt, err));
    if (prompt.n_candidate_rows || question->n_candidate_rows)
        return error_set(err, NP_EINPUT, path, NO_OFFSET, "one list of ids is expected");
    size_t n_first = prompt.n_candidates, n_ids = n_first + question->n_candidates;
    int32_t *list = arena_push_array(arena, n_ids + 1, sizeof *list);
    if (!list) return error_nomem(err, "token ids", n_ids * sizeof *list);
    memcpy(list, prompt.candidate_ids, n_first * sizeof *list);
    memcpy(list + n_first, question->candidate_ids, question->n_candidates * sizeof *list);
    question->candidate_ids = list;
    question->n_candidates = n_ids;
    return NP_OK;
}

np_status ids_from_whole(const char *path, struct arena *arena, struct question *question,
                         np_error *err)
{
    char *bytes = NULL;
    size_t n_bytes = 0;
    TRY(source_read_all(path, MAX_FILE_BYTES, &bytes, &n_bytes, err));
    np_status status = is_archive(bytes, n_bytes)
                           ? join_parts(bytes, n_bytes, path, arena, question, err)
                           : ids_from_npy(bytes, n_bytes, path, arena, question, err);
    free(bytes);
    return status;
}
