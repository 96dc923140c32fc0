/*
 * nfc.h - Unicode's normalisation form C, with the way back to the bytes as given.
 */
#ifndef TEXT_NFC_H
#define TEXT_NFC_H

#include "base/error.h"
#include <stdbool.h>

/* Bytes [from, from_end) of the text as given became [to, to_end) of the normalised one. Between
 * runs nothing changed. */
struct nfc_run {
    size_t from, from_end, to, to_end;
};

struct nfc {
    char *bytes; /* the normalised text, NULL where the text was in form C already */
    size_t n_bytes;
    struct nfc_run *runs; /* ascending */
    size_t n_runs, n_runs_allocated;
};

np_status nfc_normalise(const char *text, size_t n, struct nfc *out, np_error *err);
void nfc_free(struct nfc *nfc);

/* The byte of the text as given for byte `at` of the normalised one; *run is a cursor that starts
 * at 0 and may be kept while `at` ascends. Inside a run the nth byte goes to the nth byte, as far
 * as there are so many. */
size_t nfc_origin(const struct nfc *nfc, size_t at, size_t *run);

/* How much of text[0..n) has a normal form that does not depend on what follows. */
size_t nfc_settled(const char *text, size_t n);

/* Whether text + at, n bytes long, has the same normal form by itself as behind what stands before
 * it: it begins with a whole character that NFC never changes nor joins to the left. */
bool nfc_restarts(const char *text, size_t n);

#endif
