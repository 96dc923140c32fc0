/*
 * nfc.c - normalises only what needs it.
 *
 * A character that neither changes nor joins what stands before it ("safe", from the table of
 * unicode.h) starts a stretch of its own. Stretches with an unsafe character are decomposed,
 * ordered and composed by utf8proc; all else is copied, and so is what Unicode 9.0 did not know,
 * whatever version utf8proc is: then ids do not depend on it, and are those of `tokenizers`, whose
 * normaliser stopped there.
 *
 * Surprise: the marks of a stretch are put in order here, by counting. utf8proc's own sort takes
 * quadratic time, and a megabyte of accents on one letter is a text like any other.
 */
#include "text/nfc.h"
#include "base/arena.h"
#include "text/unicode.h"
#include <utf8proc.h>

struct points {
    utf8proc_int32_t *values, *spare;
    size_t n, n_allocated;
};

void nfc_free(struct nfc *nfc)
{
    mem_free(nfc->bytes);
    mem_free(nfc->runs);
    *nfc = (struct nfc){0};
}

/* The end of the stretch that begins at `at`; *unsafe: whether it may change. A byte that is not
 * UTF-8 is a stretch, and so is a safe character that nothing joins. */
static size_t stretch_end(const char *text, size_t n, size_t at, bool *unsafe)
{
    uint32_t c;
    size_t length = utf8_read(text + at, n - at, &c);
    *unsafe = length && unicode_info(c) & UNICODE_NFC_UNSAFE;
    if (!length) return at + 1;
    if (!*unsafe && !(unicode_info(c) & UNICODE_NFC_STARTS)) return at + length;
    for (at += length; at < n && (length = utf8_read(text + at, n - at, &c)) != 0; at += length) {
        if (!(unicode_info(c) & UNICODE_NFC_UNSAFE)) break;
        *unsafe = true;
    }
    return at;
}

/* Every character becomes at most 4. */
static np_status decompose(const char *text, size_t n, struct points *points, np_error *err)
{
    size_t needed = 4 * n;
    if (points->n_allocated < needed) {
        mem_free(points->values);
        mem_free(points->spare);
        points->n_allocated = needed < 1024 ? 1024 : needed;
        points->values = mem_alloc(points->n_allocated, sizeof *points->values);
        points->spare = mem_alloc(points->n_allocated, sizeof *points->spare);
        if (!points->values || !points->spare)
            return error_nomem(err, "normalising a text", points->n_allocated * 8);
    }
    points->n = 0;
    for (size_t at = 0; at < n;) {
        uint32_t c = 0;
        int boundary = 0;
        at += utf8_read(text + at, n - at, &c);
        utf8proc_ssize_t count = utf8proc_decompose_char(
            (utf8proc_int32_t)c, points->values + points->n,
            (utf8proc_ssize_t)(points->n_allocated - points->n), UTF8PROC_DECOMPOSE, &boundary);
        if (count < 0 || (size_t)count > points->n_allocated - points->n)
            return error_set(err, NP_EINTERNAL, NULL, NO_OFFSET, "utf8proc cannot decompose U+%04X",
                             c);
        points->n += (size_t)count;
    }
    return NP_OK;
}

static unsigned mark_class(utf8proc_int32_t c)
{
    return utf8proc_get_property(c)->combining_class & 255;
}

/* Stable: marks of one class keep their order. */
static void sort_marks(struct points *points, size_t begin, size_t end)
{
    size_t places[257] = {0};
    for (size_t i = begin; i < end; i++) places[mark_class(points->values[i]) + 1]++;
    for (int k = 1; k < 257; k++) places[k] += places[k - 1];
    for (size_t i = begin; i < end; i++)
        points->spare[places[mark_class(points->values[i])]++] = points->values[i];
    memcpy(points->values + begin, points->spare, (end - begin) * sizeof *points->values);
}

static void order(struct points *points)
{
    for (size_t i = 0; i < points->n;) {
        size_t begin = i;
        unsigned last = 0, now;
        bool sorted = true;
        for (; i < points->n && (now = mark_class(points->values[i])) != 0; i++) {
            sorted = sorted && now >= last;
            last = now;
        }
        if (!sorted) sort_marks(points, begin, i);
        if (i == begin) i++;
    }
}

static np_status add_run(struct nfc *nfc, struct nfc_run run, np_error *err)
{
    if (nfc->n_runs == nfc->n_runs_allocated) {
        size_t n = nfc->n_runs_allocated ? 2 * nfc->n_runs_allocated : 64;
        struct nfc_run *grown = mem_resize(nfc->runs, n * sizeof *grown);
        if (!grown) return error_nomem(err, "normalising a text", n * sizeof *grown);
        nfc->runs = grown;
        nfc->n_runs_allocated = n;
    }
    nfc->runs[nfc->n_runs++] = run;
    return NP_OK;
}

/* Normalises text[begin, end) to the end of out->bytes. */
static np_status compose(const char *text, size_t begin, size_t end, struct points *points,
                         struct nfc *out, np_error *err)
{
    TRY(decompose(text + begin, end - begin, points, err));
    order(points);
    utf8proc_ssize_t n = utf8proc_normalize_utf32(points->values, (utf8proc_ssize_t)points->n,
                                                  UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n < 0) return error_set(err, NP_EINTERNAL, NULL, NO_OFFSET, "utf8proc cannot compose");
    size_t to = out->n_bytes;
    for (utf8proc_ssize_t i = 0; i < n; i++)
        out->n_bytes += utf8_write((uint32_t)points->values[i], out->bytes + out->n_bytes);
    if (out->n_bytes - to == end - begin && !memcmp(out->bytes + to, text + begin, end - begin))
        return NP_OK;
    return add_run(out, (struct nfc_run){begin, end, to, out->n_bytes}, err);
}

np_status nfc_normalise(const char *text, size_t n, struct nfc *out, np_error *err)
{
    struct points points = {0};
    np_status status = NP_OK;
    bool unsafe;
    size_t copied = 0;
    *out = (struct nfc){0};
    for (size_t at = 0, end; at < n && !status; at = end) {
        end = at + 1;
        if ((unsigned char)text[at] < 0x80 && (end == n || (unsigned char)text[end] < 0x80))
            continue;
        end = stretch_end(text, n, at, &unsafe);
        if (!unsafe) continue;
        /* form C is at most three times as long as what it is made from (in UTF-8) */
        if (!out->bytes && !(out->bytes = mem_alloc(3 * n + 16, 1))) {
            status = error_nomem(err, "normalising a text", 3 * n + 16);
            break;
        }
        memcpy(out->bytes + out->n_bytes, text + copied, at - copied);
        out->n_bytes += at - copied;
        status = compose(text, at, end, &points, out, err);
        copied = end;
    }
    if (out->bytes && !status) {
        memcpy(out->bytes + out->n_bytes, text + copied, n - copied);
        out->n_bytes += n - copied;
    }
    if (status || !out->n_runs) nfc_free(out);
    mem_free(points.values);
    mem_free(points.spare);
    return status;
}

size_t nfc_origin(const struct nfc *nfc, size_t at, size_t *run)
{
    while (*run < nfc->n_runs && nfc->runs[*run].to_end <= at) ++*run;
    if (*run < nfc->n_runs && nfc->runs[*run].to < at) {
        const struct nfc_run *in = &nfc->runs[*run];
        size_t n = in->from_end - in->from;
        return in->from + (at - in->to < n ? at - in->to : n);
    }
    if (!*run) return at;
    const struct nfc_run *last = &nfc->runs[*run - 1];
    return last->from_end + (at - last->to_end);
}

size_t nfc_settled(const char *text, size_t n)
{
    uint32_t c;
    size_t length;
    while ((length = utf8_last(text, n, &c)) != 0) {
        n -= length;
        if (!(unicode_info(c) & UNICODE_NFC_UNSAFE)) break;
    }
    return n;
}

bool nfc_restarts(const char *text, size_t n)
{
    uint32_t c;
    return n > 0 && utf8_read(text, n, &c) && !(unicode_info(c) & UNICODE_NFC_UNSAFE);
}
