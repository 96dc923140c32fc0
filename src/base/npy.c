/*
 * npy.c - see npy.h. The header is a Python dict, but NumPy only ever writes three keys with plain
 * values: a scanner for just that form reads it, in any order of the keys and any spacing, and
 * refuses the rest.
 */
#include "base/npy.h"

#include "base/arena.h"
#include <inttypes.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6
#define MAX_DIMS 3
#define HEADER_UNIT 64

static const char *const type_names[] = {
    [NPY_F32] = "<f4", [NPY_F64] = "<f8", [NPY_I32] = "<i4", [NPY_I64] = "<i8", [NPY_U8] = "|u1"};

bool npy_header(struct buf *out, enum npy_type type, const uint64_t *shape, int n_dims)
{
    char dict[192];
    int n = 0;
    if ((unsigned)type > NPY_U8 || n_dims < 0 || n_dims > 4) return false;
    n = snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                 type_names[type]);
    for (int i = 0; i < n_dims; i++)
        n += snprintf(dict + n, sizeof dict - (size_t)n, "%s%" PRIu64, i ? ", " : "", shape[i]);
    n += snprintf(dict + n, sizeof dict - (size_t)n, "%s), }", n_dims == 1 ? "," : "");
    int before = MAGIC_BYTES + 4; /* version and length */
    int total = (before + n + 1 + HEADER_UNIT - 1) / HEADER_UNIT * HEADER_UNIT;
    int length = total - before;
    unsigned char sizes[4] = {1, 0, (unsigned char)(length & 0xFF), (unsigned char)(length >> 8)};
    buf_push(out, MAGIC, MAGIC_BYTES);
    buf_push(out, sizes, sizeof sizes);
    return buf_printf(out, "%s%*s\n", dict, length - n - 1, "");
}

/* What a header says, and where in it the scanner stands. */
struct npy_scan {
    const char *bytes, *where;
    size_t at, end;
    uint64_t shape[MAX_DIMS];
    int n_dims;
    int size_bytes;
    bool is_signed, big_endian, fortran;
    np_error *err;
};

static np_status scan_error(const struct npy_scan *scan, np_status status, const char *message)
{
    return error_set(scan->err, status, scan->where, (int64_t)scan->at, "%s", message);
}

static void scan_space(struct npy_scan *scan)
{
    while (scan->at < scan->end && (scan->bytes[scan->at] == ' ' || scan->bytes[scan->at] == '\n'))
        scan->at++;
}

/* Skips spaces, then takes `word` if it stands there. */
static bool scan_word(struct npy_scan *scan, const char *word)
{
    size_t n_chars = strlen(word);
    scan_space(scan);
    if (scan->end - scan->at < n_chars || memcmp(scan->bytes + scan->at, word, n_chars) != 0)
        return false;
    scan->at += n_chars;
    return true;
}

/* A quoted string without escapes, of at most 31 bytes. */
static bool scan_string(struct npy_scan *scan, char out[32])
{
    scan_space(scan);
    char quote = scan->at < scan->end ? scan->bytes[scan->at] : 0;
    if (quote != '\'' && quote != '"') return false;
    size_t n = 0;
    for (scan->at++; scan->at < scan->end && scan->bytes[scan->at] != quote; scan->at++) {
        if (n == 31 || scan->bytes[scan->at] == '\\') return false;
        out[n++] = scan->bytes[scan->at];
    }
    out[n] = 0;
    return scan_word(scan, quote == '"' ? "\"" : "'");
}

static bool scan_number(struct npy_scan *scan, uint64_t *out)
{
    size_t first;
    uint64_t value = 0;
    scan_space(scan);
    for (first = scan->at; scan->at < scan->end; scan->at++) {
        unsigned digit = (unsigned char)scan->bytes[scan->at] - (unsigned)'0';
        if (digit > 9) break;
        if (value > ((uint64_t)INT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *out = value;
    return scan->at > first;
}

static np_status scan_descr(struct npy_scan *scan)
{
    char text[32];
    size_t begin = scan->at;
    if (!scan_string(scan, text))
        return scan_error(scan, NP_EFORMAT, "the header's descr is not a type name");
    scan->at = begin;
    bool known = strlen(text) == 3 && strchr("<>|=", text[0]) && strchr("iu", text[1]) &&
                 strchr("1248", text[2]);
    if (!known) {
        scan_error(scan, NP_EUNSUPPORTED, "the array does not hold integers of 1, 2, 4 or 8 bytes");
        return error_given(scan->err, NP_EUNSUPPORTED, "%s", text);
    }
    (void)scan_string(scan, text);
    scan->big_endian = text[0] == '>';
    scan->is_signed = text[1] == 'i';
    scan->size_bytes = text[2] - '0';
    return NP_OK;
}

static np_status scan_order(struct npy_scan *scan)
{
    scan->fortran = scan_word(scan, "True");
    if (scan->fortran || scan_word(scan, "False")) return NP_OK;
    return scan_error(scan, NP_EFORMAT, "the header's fortran_order is neither True nor False");
}

static np_status scan_shape(struct npy_scan *scan)
{
    bool comma = true;
    scan->n_dims = 0;
    if (!scan_word(scan, "("))
        return scan_error(scan, NP_EFORMAT, "the header's shape is not a tuple");
    while (!scan_word(scan, ")")) {
        if (scan->n_dims == MAX_DIMS)
            return scan_error(scan, NP_EUNSUPPORTED, "more than 3 dimensions");
        if (!comma || !scan_number(scan, &scan->shape[scan->n_dims++]))
            return scan_error(scan, NP_EFORMAT, "the header's shape is not a tuple of counts");
        comma = scan_word(scan, ",");
    }
    if (scan->n_dims == 1 && !comma)
        return scan_error(scan, NP_EFORMAT, "the header's shape is not a tuple");
    if (scan->n_dims == 0)
        return scan_error(scan, NP_EUNSUPPORTED, "a single value; 1 to 3 dimensions are allowed");
    return NP_OK;
}

static const struct npy_key {
    const char *name;
    np_status (*scan)(struct npy_scan *scan);
} npy_keys[] = {{"descr", scan_descr}, {"fortran_order", scan_order}, {"shape", scan_shape}};
#define N_KEYS 3

static np_status scan_entry(struct npy_scan *scan, bool seen[N_KEYS])
{
    char name[32];
    int key = 0;
    if (!scan_string(scan, name) || !scan_word(scan, ":"))
        return scan_error(scan, NP_EFORMAT,
                          "the header is not a dict of descr, fortran_order and shape");
    while (key < N_KEYS && strcmp(name, npy_keys[key].name) != 0) key++;
    if (key == N_KEYS || seen[key])
        return scan_error(scan, NP_EFORMAT,
                          key < N_KEYS ? "a key stands twice in the header"
                                       : "a key that is not descr, fortran_order or shape");
    seen[key] = true;
    return npy_keys[key].scan(scan);
}

static np_status scan_dict(struct npy_scan *scan)
{
    bool seen[N_KEYS] = {false}, comma = true;
    if (!scan_word(scan, "{")) return scan_error(scan, NP_EFORMAT, "the header is not a dict");
    while (!scan_word(scan, "}")) {
        if (!comma) return scan_error(scan, NP_EFORMAT, "a comma or } is missing in the header");
        TRY(scan_entry(scan, seen));
        comma = scan_word(scan, ",");
    }
    for (int key = 0; key < N_KEYS; key++)
        if (!seen[key])
            return error_set(scan->err, NP_EFORMAT, scan->where, (int64_t)scan->at,
                             "the header has no %s", npy_keys[key].name);
    scan_space(scan);
    if (scan->at < scan->end) return scan_error(scan, NP_EFORMAT, "text behind the header's dict");
    return NP_OK;
}

/* Magic, version, length: sets the scanner on the dict. */
static np_status scan_start(struct npy_scan *scan, size_t n_bytes)
{
    const unsigned char *b = (const unsigned char *)scan->bytes;
    if (n_bytes < MAGIC_BYTES + 4 || memcmp(b, MAGIC, MAGIC_BYTES) != 0)
        return scan_error(scan, NP_EFORMAT, "not a .npy file: it does not start with \\x93NUMPY");
    scan->at = MAGIC_BYTES;
    bool wide = b[6] == 2;
    if ((b[6] != 1 && !wide) || b[7] != 0)
        return scan_error(scan, NP_EUNSUPPORTED, "a .npy version other than 1.0 and 2.0");
    size_t before = wide ? 12 : 10;
    scan->at = 8;
    if (n_bytes < before) return scan_error(scan, NP_EFORMAT, "the header is cut off");
    size_t length = (size_t)b[8] | (size_t)b[9] << 8;
    if (wide) length |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (length > n_bytes - before)
        return error_set(scan->err, NP_EFORMAT, scan->where, 8,
                         "the header is %zu bytes, the file has %zu more", length,
                         n_bytes - before);
    scan->at = before;
    scan->end = before + length;
    return NP_OK;
}

/* The number of values, checked against the limit and the bytes that follow the header. */
static np_status scan_count(struct npy_scan *scan, size_t n_bytes, size_t max_count, size_t *out)
{
    size_t count = 1;
    for (int i = 0; i < scan->n_dims; i++) {
        uint64_t dim = scan->shape[i];
        if (dim > max_count || (dim && count > max_count / dim))
            return error_set(scan->err, NP_ELIMIT, scan->where, NO_OFFSET,
                             "dimension %d of the array is %" PRIu64
                             "; at most %zu values are allowed",
                             i, dim, max_count);
        count *= (size_t)dim;
    }
    size_t have = n_bytes - scan->end, size = (size_t)scan->size_bytes;
    if (have % size || have / size != count)
        return error_set(scan->err, NP_EFORMAT, scan->where, (int64_t)scan->end,
                         "the array has %zu values of %zu bytes, but %zu bytes follow the header",
                         count, size, have);
    *out = count;
    return NP_OK;
}

static uint64_t load_value(const struct npy_scan *scan, const unsigned char *at)
{
    uint64_t value = 0;
    int size = scan->size_bytes;
    for (int i = 0; i < size; i++) value = value << 8 | at[scan->big_endian ? i : size - 1 - i];
    uint64_t sign = (uint64_t)1 << (8 * size - 1);
    return scan->is_signed ? (value ^ sign) - sign : value;
}

/* Where in the file the value stands that is number i in C order. */
static size_t stored_index(const struct npy_scan *scan, size_t i)
{
    size_t index = 0, stride = 1, place[MAX_DIMS] = {0};
    if (!scan->fortran) return i;
    for (int d = scan->n_dims - 1; d >= 0; d--) {
        place[d] = i % (size_t)scan->shape[d];
        i /= (size_t)scan->shape[d];
    }
    for (int d = 0; d < scan->n_dims; d++) {
        index += place[d] * stride;
        stride *= (size_t)scan->shape[d];
    }
    return index;
}

np_status npy_parse_ints(const char *bytes, size_t n_bytes, size_t max_count, const char *where,
                         int64_t **values, uint64_t shape[3], int *n_dims, np_error *err)
{
    struct npy_scan scan = {.bytes = bytes, .where = where, .err = err};
    size_t count = 0;
    *values = NULL;
    *n_dims = 0;
    TRY(scan_start(&scan, n_bytes));
    TRY(scan_dict(&scan));
    TRY(scan_count(&scan, n_bytes, max_count, &count));
    int64_t *out = mem_alloc(count, sizeof *out);
    if (!out) return error_nomem(err, where, count * sizeof *out);
    for (size_t i = 0; i < count; i++) {
        size_t at = scan.end + stored_index(&scan, i) * (size_t)scan.size_bytes;
        uint64_t value = load_value(&scan, (const unsigned char *)bytes + at);
        if (!scan.is_signed && value > INT64_MAX) {
            mem_free(out);
            error_set(err, NP_EINPUT, where, (int64_t)at,
                      "value %zu of the array is above 2^63 - 1", i);
            return error_given(err, NP_EINPUT, "%" PRIu64, value);
        }
        out[i] = (int64_t)value;
    }
    memcpy(shape, scan.shape, sizeof scan.shape);
    *n_dims = scan.n_dims;
    *values = out;
    return NP_OK;
}
