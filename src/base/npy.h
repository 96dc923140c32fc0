/*
 * npy.h - NumPy's array files (.npy 1.0 / 2.0 read, 1.0 written) and zip archives of them (.npz, stored).
 * Format: numpy/lib/format.py; APPNOTE.TXT for zip (zip64 above 4 GiB).
 *
 *   \x93NUMPY 1 0 | u16 header length | {'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), } pad \n | data
 */
#ifndef BASE_NPY_H
#define BASE_NPY_H

#include "base/buf.h"
#include <stdio.h>

enum npy_type { NPY_F32, NPY_F64, NPY_I32, NPY_I64, NPY_U8 };

/* The header (a multiple of 64 bytes) of a C-order little-endian array of 0 to 4 dimensions. */
bool npy_header(struct buf *out, enum npy_type type, const uint64_t *shape, int n_dims);

/* Parses integer arrays of 1 to 3 dimensions (any signed or unsigned integer type, either byte order, C or
 * Fortran order) into int64. *values is freed with free(). Limit: max_count values. */
np_status npy_parse_ints(const char *bytes, size_t n_bytes, size_t max_count, const char *where,
                         int64_t **values, uint64_t shape[3], int *n_dims, np_error *err);

/* A zip archive, written front to back. Entries are named "<name>.npy" by the caller. */
struct npz;
np_status npz_open(struct npz **out, const char *path, np_error *err); /* writes path, replacing it at close */
np_status npz_add(struct npz *npz, const char *name, enum npy_type type, const uint64_t *shape, int n_dims,
                  const void *data, np_error *err);
np_status npz_close(struct npz *npz, np_error *err); /* writes the directory, renames into place; frees */
void npz_abort(struct npz *npz);                     /* removes what was written; NULL allowed */

#endif
