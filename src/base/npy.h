/*
 * npy.h - NumPy's array files (.npy 1.0 / 2.0 read, 1.0 written) and zip archives of them (.npz,
 * stored). Format: numpy/lib/format.py; APPNOTE.TXT for zip (zip64 above 4 GiB).
 *
 *   \x93NUMPY 1 0 | u16 | {'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), } pad \n | data
 */
#ifndef BASE_NPY_H
#define BASE_NPY_H

#include "base/buf.h"
#include <stdio.h>

enum npy_type { NPY_F32, NPY_F64, NPY_I32, NPY_I64, NPY_U8 };

/* The header (a multiple of 64 bytes) of a C-order little-endian array of 0 to 4 dimensions.
 * False: more dimensions, or the buffer failed. */
bool npy_header(struct buf *out, enum npy_type type, const uint64_t *shape, int n_dims);

/* Parses an integer array of 1 to 3 dimensions (any signed or unsigned integer type, either byte
 * order, C or Fortran order) that fills `bytes` to the end, into int64 in C order. *values is freed
 * with free(), and never NULL on success. Limit: max_count values, and each dimension. `where`
 * names the array in errors: NP_EFORMAT, NP_EUNSUPPORTED (another type, version or number of
 * dimensions), NP_ELIMIT, NP_EINPUT (a value above 2^63 - 1), NP_ENOMEM. */
np_status npy_parse_ints(const char *bytes, size_t n_bytes, size_t max_count, const char *where,
                         int64_t **values, uint64_t shape[3], int *n_dims, np_error *err);

/* A zip archive, written front to back (a pipe will do) under a temporary name beside `path`, which
 * it replaces when closed. Entries are named "<name>.npy" by the caller. `data` is the array in C
 * order; it may be NULL where the shape holds no value. After a failed npz_add only npz_abort may
 * follow. */
struct npz;
np_status npz_open(struct npz **out, const char *path, np_error *err);
np_status npz_add(struct npz *npz, const char *name, enum npy_type type, const uint64_t *shape,
                  int n_dims, const void *data, np_error *err);
np_status npz_close(struct npz *npz, np_error *err); /* frees, and removes the file if it fails */
void npz_abort(struct npz *npz);                     /* removes what was written; NULL allowed */

#endif
