/*
 * watch.c - stop texts and whole characters. A token may hold several characters or a part of one:
 * everything is bytes.
 */
#include "api/watch.h"

#include <string.h>

void watch_init(struct watch *watch, const np_string *stops, size_t n_stops, bool include_stop)
{
    *watch = (struct watch){
        .stops = stops, .n_stops = n_stops, .include_stop = include_stop, .stop_index = -1};
    buf_init(&watch->text, (size_t)1 << 30);
    for (size_t i = 0; i < n_stops; i++)
        if (stops[i].n_bytes > watch->longest) watch->longest = stops[i].n_bytes;
}

void watch_free(struct watch *watch)
{
    buf_free(&watch->text);
}

size_t unfinished_bytes(const char *text, size_t n_bytes)
{
    for (size_t back = 1; back <= 3 && back <= n_bytes; back++) {
        unsigned char byte = (unsigned char)text[n_bytes - back];
        if ((byte & 0xc0) == 0x80) continue;
        size_t length = byte >= 0xf0 && byte < 0xf5 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;
        return byte < 0xf5 && length > back ? back : 0;
    }
    return 0;
}

/* Whether the text has stop i ending at `end`. */
static bool ends_with(const struct watch *watch, size_t i, size_t end)
{
    size_t n = watch->stops[i].n_bytes;
    return n <= end && !memcmp(watch->text.data + end - n, watch->stops[i].bytes, n);
}

/* Bytes at the end that a stop text may begin with. */
static size_t held_back(const struct watch *watch)
{
    size_t n_bytes = watch->text.n_bytes;
    size_t most = watch->longest > n_bytes ? n_bytes : watch->longest;
    for (size_t n = most; n > 0; n--)
        for (size_t i = 0; i < watch->n_stops; i++)
            if (n < watch->stops[i].n_bytes &&
                !memcmp(watch->text.data + n_bytes - n, watch->stops[i].bytes, n))
                return n;
    return 0;
}

bool watch_push(struct watch *watch, const char *bytes, size_t n_bytes, bool may_stop)
{
    size_t before = watch->text.n_bytes, found = 0;
    if (!buf_push(&watch->text, bytes, n_bytes)) return false;
    for (size_t end = before + 1; may_stop && end <= before + n_bytes && watch->stop_index < 0;
         end++)
        for (size_t i = 0; i < watch->n_stops; i++)
            if (ends_with(watch, i, end) && watch->stops[i].n_bytes > found) {
                found = watch->stops[i].n_bytes;
                watch->stop_index = (int32_t)i;
                watch->text.n_bytes = watch->include_stop ? end : end - found;
            }
    if (watch->stop_index >= 0) {
        watch_end(watch);
        return true;
    }
    /* What is held back may begin within a character. */
    size_t n = watch->text.n_bytes - held_back(watch);
    if (n > 0) n -= unfinished_bytes(watch->text.data, n);
    if (n > watch->n_final) watch->n_final = n;
    return false;
}

void watch_end(struct watch *watch)
{
    watch->n_final = watch->text.n_bytes;
}
