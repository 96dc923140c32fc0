/*
 * watch.c - stop texts and whole characters. A token may hold several characters or a part of one:
 * everything is bytes.
 *
 * Stop texts are as long as who sends them likes, so each is followed by its borders (Knuth, Morris
 * and Pratt): a byte costs the same whatever came before. How much of each stands at the end of the
 * text is also what must not be shown yet.
 */
#include "api/watch.h"
#include "base/utf8.h"

/* Bytes of a stop that stand at the end once `byte` follows `matched` of them. */
static size_t follow(const np_string *stop, const size_t *borders, size_t matched, char byte)
{
    while (matched > 0 && stop->bytes[matched] != byte) matched = borders[matched - 1];
    return matched + (stop->bytes[matched] == byte);
}

bool stops_init(struct stops *stops, const np_string *texts, size_t n, struct arena *arena)
{
    *stops = (struct stops){.texts = texts, .n = n};
    stops->borders = arena_push_array(arena, n + 1, sizeof *stops->borders);
    for (size_t i = 0; stops->borders && i < n; i++) {
        size_t *borders = arena_push_array(arena, texts[i].n_bytes, sizeof *borders);
        if (!borders) return false;
        borders[0] = 0;
        for (size_t k = 1; k < texts[i].n_bytes; k++)
            borders[k] = follow(&texts[i], borders, borders[k - 1], texts[i].bytes[k]);
        stops->borders[i] = borders;
    }
    return stops->borders != NULL;
}

bool watch_init(struct watch *watch, const struct stops *stops, bool include_stop,
                struct arena *arena)
{
    *watch = (struct watch){.stops = stops, .include_stop = include_stop, .stop_index = -1};
    buf_init(&watch->text, (size_t)1 << 30);
    watch->matched = arena_push_array(arena, stops->n + 1, sizeof *watch->matched);
    return watch->matched != NULL;
}

void watch_free(struct watch *watch)
{
    buf_free(&watch->text);
}

/* One more byte; the longest stop that it completes, or -1. *hold: bytes that may begin one. */
static int32_t watch_byte(struct watch *watch, char byte, size_t *hold)
{
    int32_t found = -1;
    *hold = 0;
    for (size_t i = 0; i < watch->stops->n; i++) {
        const np_string *stop = &watch->stops->texts[i];
        const size_t *borders = watch->stops->borders[i];
        size_t matched = follow(stop, borders, watch->matched[i], byte);
        if (matched == stop->n_bytes) {
            if (found < 0 || stop->n_bytes > watch->stops->texts[found].n_bytes) found = (int32_t)i;
            matched = borders[matched - 1];
        }
        watch->matched[i] = matched;
        if (matched > *hold) *hold = matched;
    }
    return found;
}

bool watch_push(struct watch *watch, const char *bytes, size_t n_bytes, bool may_stop)
{
    size_t before = watch->text.n_bytes, hold = 0;
    if (n_bytes == 0 || !buf_push(&watch->text, bytes, n_bytes)) return false;
    for (size_t i = 0; i < n_bytes; i++) {
        int32_t found = watch_byte(watch, bytes[i], &hold);
        if (found < 0 || !may_stop) continue;
        size_t end = before + i + 1, n_stop = watch->stops->texts[found].n_bytes;
        watch->stop_index = found;
        watch->text.n_bytes = watch->include_stop ? end : end - n_stop;
        watch_end(watch);
        return true;
    }
    /* What is held back may begin within a character. */
    size_t n = watch->text.n_bytes - hold;
    if (n > 0) n -= utf8_unfinished(watch->text.data, n);
    if (n > watch->n_final) watch->n_final = n;
    return false;
}

void watch_end(struct watch *watch)
{
    watch->n_final = watch->text.n_bytes;
}
