/*
 * settle.c - how far a text is settled whatever follows it, so that one of any size can be encoded
 * in pieces and gives the ids of the whole.
 *
 * Each layer of encoding is asked how far what it did can no longer change, from the outside in:
 *
 *   added tokens: behind the last certain one, none begins before a horizon  -> the open part
 *   NFC: up to the last character that nothing can join                      -> its normal form
 *   added tokens of the normal form, in the same way                         -> the plain text
 *   splitting: the ends of matches that never asked what comes behind        -> places
 *
 * A place is taken only where a text that begins there meets every layer in its first state: no
 * space is inserted, NFC joins nothing to the left, no single word needs to see what stood before.
 */
#include "text/nfc.h"
#include "text/tokenizer_inside.h"
#include "text/unicode.h"

struct settle {
    const struct tokenizer *tokenizer;
    const char *text;
    size_t n;
    bool parse_special;
    size_t part;       /* byte of the text where the open part begins */
    const char *bytes; /* the part, in normal form */
    size_t n_bytes;
    const struct nfc *nfc; /* NULL: the part is of the text itself */
    size_t nfc_run;
    size_t plain;    /* byte of the part where its plain text begins */
    size_t inserted; /* bytes before it that are not of the text */
    size_t settled;  /* the last place found */
};

/* n without the bytes at its end that may be the start of a longer character. */
static size_t whole_characters(const char *text, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)text[n - back];
        if (c < 0x80) break;
        if (c < 0xC0) continue;
        size_t length = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
        return length > back ? n - back : n;
    }
    return n;
}

/* Byte `at` of the part as a place of the text. */
static void try_place(struct settle *settle, size_t at)
{
    const struct tokenizer *tokenizer = settle->tokenizer;
    size_t origin = settle->part + at;
    if (at >= settle->n_bytes || (tokenizer->prefix_space && settle->bytes[at] != ' ')) return;
    if (settle->nfc) {
        origin = settle->part + nfc_origin(settle->nfc, at, &settle->nfc_run);
        const struct nfc_run *run = settle->nfc->runs + settle->nfc_run;
        if (settle->nfc_run < settle->nfc->n_runs && run->to < at) return;
    }
    if (tokenizer->nfc && !nfc_restarts(settle->text + origin, settle->n - origin)) return;
    if (added_restarts(&tokenizer->added, settle->text, settle->n, origin, settle->parse_special) &&
        added_restarts(&tokenizer->normalized, settle->bytes, settle->n_bytes, at,
                       settle->parse_special))
        settle->settled = origin;
}

static void split_place_found(void *ctx, size_t at)
{
    struct settle *settle = ctx;
    if (at > settle->inserted) try_place(settle, settle->plain + at - settle->inserted);
}

/* The plain text [plain, plain + n) of the part, which may go on. */
static np_status settle_plain(struct settle *settle, size_t n, np_error *err)
{
    const struct tokenizer *tokenizer = settle->tokenizer;
    const char *text = settle->bytes + settle->plain;
    struct split_space space;
    char *spaced = NULL;
    settle->inserted = tokenizer->prefix_space && n && text[0] != ' ';
    if (settle->inserted) {
        spaced = mem_alloc(n + 1, 1);
        if (!spaced) return error_nomem(err, "a text", n + 1);
        spaced[0] = ' ';
        memcpy(spaced + 1, text, n);
        text = spaced;
    }
    np_status status = split_space_init(&space, &tokenizer->splitter, err);
    if (status == NP_OK)
        status = splitter_places(&tokenizer->splitter, &space, text, n + settle->inserted,
                                 split_place_found, settle, err);
    split_space_free(&space);
    mem_free(spaced);
    return status;
}

/* The open part [part, part + n) of the text. */
static np_status settle_part(struct settle *settle, size_t n, np_error *err)
{
    const struct tokenizer *tokenizer = settle->tokenizer;
    struct nfc nfc = {0};
    settle->bytes = settle->text + settle->part;
    settle->n_bytes = n;
    if (tokenizer->nfc) {
        settle->n_bytes = nfc_settled(settle->bytes, n);
        TRY(nfc_normalise(settle->bytes, settle->n_bytes, &nfc, err));
    }
    if (nfc.bytes) {
        settle->nfc = &nfc;
        settle->bytes = nfc.bytes;
        settle->n_bytes = nfc.n_bytes;
    }
    size_t horizon;
    settle->plain = added_settled(&tokenizer->normalized, settle->bytes, settle->n_bytes,
                                  settle->parse_special, &horizon);
    if (settle->plain > 0) try_place(settle, settle->plain);
    n = whole_characters(settle->bytes + settle->plain, horizon - settle->plain);
    np_status status = settle_plain(settle, n, err);
    nfc_free(&nfc);
    return status;
}

np_status tokenizer_settled(const struct tokenizer *tokenizer, const char *text, size_t n_bytes,
                            bool parse_special, size_t *n_settled, np_error *err)
{
    struct settle settle = {.tokenizer = tokenizer,
                            .text = text,
                            .n = whole_characters(text, n_bytes),
                            .parse_special = parse_special};
    size_t horizon;
    settle.part = added_settled(&tokenizer->added, text, settle.n, parse_special, &horizon);
    bool spaced = settle.part < settle.n && text[settle.part] == ' ';
    if ((spaced || !tokenizer->prefix_space) &&
        added_restarts(&tokenizer->added, text, settle.n, settle.part, parse_special))
        settle.settled = settle.part;
    np_status status =
        settle_part(&settle, whole_characters(text + settle.part, horizon - settle.part), err);
    *n_settled = status == NP_OK ? settle.settled : 0;
    return status;
}
