/*
 * parts.h - the answers of a long gather on their way into one .npz.
 *
 *   OUT.npz.parts/journal   line 1: the model and the options; then a line per finished request
 *   OUT.npz.parts/17.part   scores f32 [rows][width] | row_token_ids i32 [rows] | tail f32 [rows]
 *
 * A run that is interrupted leaves the folder; --resume reads the journal, skips what is done, and
 * refuses a folder of another model, of other options or of other requests. The archive is written
 * last, then the folder goes.
 */
#ifndef CLI_PARTS_H
#define CLI_PARTS_H

#include "requests.h"

struct parts;

/* Makes the folder beside `path`, or opens the one that is there (resume). `identity`: a line that
 * must be equal when a run is resumed. */
np_status parts_open(struct parts **out, const char *path, const char *identity, bool resume,
                     np_error *err);

/* Whether the request is finished already; one that is not that of the journal gets an error. */
bool parts_have(const struct parts *parts, struct question *question);

np_status parts_add(struct parts *parts, const struct question *question, const np_result *result,
                    np_error *err);

/* Writes the archive and removes the folder. `failed`: some requests failed; if all did, no
 * archive is written. */
np_status parts_finish(struct parts *parts, bool failed, np_error *err);
void parts_close(struct parts *parts); /* NULL allowed; what is on disk stays */

/* FNV-1a, continued from `hash` (0 begins). */
uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t n_bytes);

/* A number that changes when the model's files do: their sizes and samples of their bytes. */
np_status fingerprint_model(const char *path, uint64_t *fingerprint, np_error *err);

#endif
