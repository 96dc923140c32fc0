/*
 * A model by its name: "org/name" or "distilgpt2", where the Hugging Face libraries keep what they
 * have downloaded. Nothing is ever downloaded here.
 *
 *   <cache>/models--org--name/refs/main             the commit, 40 digits
 *   <cache>/models--org--name/snapshots/<commit>/   the folder of the model
 */
#include "cli.h"
#include "base/file.h"

#include <ctype.h>
#include <sys/stat.h>

enum { MAX_NAME = 200, MAX_PATH = 4096 };

/* "models--org--name"; false for what cannot be a name. */
static bool folder_name(const char *name, char out[MAX_NAME])
{
    size_t at = (size_t)snprintf(out, MAX_NAME, "models--"), n_slashes = 0;
    if (name[0] == '.' || name[0] == '/' || strstr(name, "..") || strlen(name) > MAX_NAME / 2)
        return false;
    for (; *name; name++) {
        if (*name == '/') {
            if (++n_slashes > 1 || name[1] == 0) return false;
            out[at++] = '-';
            out[at++] = '-';
        } else if (isalnum((unsigned char)*name) || strchr("._-", *name)) {
            out[at++] = *name;
        } else {
            return false;
        }
    }
    out[at] = 0;
    return true;
}

/* The i-th folder that may hold the cache, in the order in which its owners look; false: unset. */
enum { N_PLACES = 5 };
static bool cache_place(size_t i, char path[MAX_PATH / 4])
{
    static const char *const places[N_PLACES][2] = {{"HF_HUB_CACHE", ""},
                                                    {"HUGGINGFACE_HUB_CACHE", ""},
                                                    {"HF_HOME", "/hub"},
                                                    {"XDG_CACHE_HOME", "/huggingface/hub"},
                                                    {"HOME", "/.cache/huggingface/hub"}};
    const char *root = getenv(places[i][0]);
    if (!root || !*root) return false;
    return snprintf(path, MAX_PATH / 4, "%s%s", root, places[i][1]) < MAX_PATH / 4;
}

static bool snapshot_path(const char *folder, char path[MAX_PATH])
{
    char cache[MAX_PATH / 4], *commit;
    size_t n_bytes;
    for (size_t i = 0; i < N_PLACES; i++) {
        if (!cache_place(i, cache)) continue;
        snprintf(path, MAX_PATH, "%s/%s/refs/main", cache, folder);
        if (file_read_all(path, 256, &commit, &n_bytes, NULL) != NP_OK) continue;
        commit[strspn(commit, "0123456789abcdef")] = 0;
        snprintf(path, MAX_PATH, "%s/%s/snapshots/%s", cache, folder, commit);
        free(commit);
        return true;
    }
    return false;
}

static void complain_not_cached(const char *name)
{
    char cache[MAX_PATH / 4];
    struct buf list;
    buf_init(&list, (size_t)1 << 16);
    for (size_t i = 0; i < N_PLACES; i++)
        if (cache_place(i, cache)) buf_printf(&list, "%s%s", list.n_bytes ? ", " : "", cache);
    complain("model",
             "no such file or folder, and none of this name in the local Hugging Face cache, "
             "searched at %.600s (%.200s)",
             list.n_bytes ? list.data : "no place: HOME is not set", name);
    buf_free(&list);
}

const char *model_find(const char *name, char path[MAX_PATH])
{
    struct stat info;
    char folder[MAX_NAME];
    if (stat(name, &info) == 0 || !folder_name(name, folder)) return name;
    if (snapshot_path(folder, path)) return path;
    complain_not_cached(name);
    return NULL;
}
