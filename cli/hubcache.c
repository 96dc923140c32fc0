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
    if (name[0] == '.' || strstr(name, "..") || strlen(name) > MAX_NAME / 2) return false;
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

/* The folders that may hold the cache, in the order in which its owners look. */
static bool snapshot_path(const char *folder, char path[MAX_PATH])
{
    static const char *const places[][2] = {{"HF_HUB_CACHE", ""},
                                            {"HUGGINGFACE_HUB_CACHE", ""},
                                            {"HF_HOME", "/hub"},
                                            {"XDG_CACHE_HOME", "/huggingface/hub"},
                                            {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *root = getenv(places[i][0]);
        char cache[MAX_PATH / 2], *commit;
        size_t n_bytes;
        if (!root || !*root) continue;
        snprintf(cache, sizeof cache, "%s%s/%s", root, places[i][1], folder);
        snprintf(path, MAX_PATH, "%s/refs/main", cache);
        if (file_read_all(path, 256, &commit, &n_bytes, NULL) != NP_OK) continue;
        commit[strspn(commit, "0123456789abcdef")] = 0;
        snprintf(path, MAX_PATH, "%s/snapshots/%s", cache, commit);
        free(commit);
        return true;
    }
    return false;
}

const char *model_find(const char *name, char path[MAX_PATH])
{
    struct stat info;
    char folder[MAX_NAME];
    if (stat(name, &info) == 0 || !folder_name(name, folder)) return name;
    return snapshot_path(folder, path) ? path : name;
}
