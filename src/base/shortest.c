/*
 * shortest.c - the shortest decimal that reads back to the same float, the closest of those.
 *
 * The rounding interval of c * 2^q is scaled by 10^-k so that it holds at least one integer and
 * less than ten (R. Giulietti, "The Schubfach way to render doubles"): then the answer is one of
 * four integers. The surprise is what is missing: no table of powers. The scaling is done exactly,
 * in as many 64-bit limbs as it takes, which is two for everyday numbers; only whether something
 * was lost matters, and is kept as an odd last bit.
 */
#include "base/json.h"

#include <math.h>

__extension__ typedef unsigned __int128 u128;

#define MAX_LIMBS 20   /* 55 bits times 10^342 */
#define STEP_DIGITS 19 /* 10^19 is the largest power below 2^64 */

static const uint64_t powers_of_ten[STEP_DIGITS + 1] = {1,
                                                        10,
                                                        100,
                                                        1000,
                                                        10000,
                                                        100000,
                                                        1000000,
                                                        10000000,
                                                        100000000,
                                                        1000000000,
                                                        10000000000,
                                                        100000000000,
                                                        1000000000000,
                                                        10000000000000,
                                                        100000000000000,
                                                        1000000000000000,
                                                        10000000000000000,
                                                        100000000000000000,
                                                        1000000000000000000,
                                                        10000000000000000000u};

/* Little-endian; lost: the true value is larger by less than one. */
struct big {
    uint64_t limbs[MAX_LIMBS];
    int n_limbs;
    bool lost;
};

/* A decimal number digits * 10^exponent. */
struct decimal {
    uint64_t digits;
    int exponent;
};

static void big_multiply(struct big *big, uint64_t factor)
{
    uint64_t carry = 0;
    for (int i = 0; i < big->n_limbs; i++) {
        u128 product = (u128)big->limbs[i] * factor + carry;
        big->limbs[i] = (uint64_t)product;
        carry = (uint64_t)(product >> 64);
    }
    if (carry) big->limbs[big->n_limbs++] = carry;
}

static void big_divide(struct big *big, uint64_t divisor)
{
    uint64_t rest = 0;
    for (int i = big->n_limbs - 1; i >= 0; i--) {
        u128 value = (u128)rest << 64 | big->limbs[i];
        big->limbs[i] = (uint64_t)(value / divisor);
        rest = (uint64_t)(value % divisor);
    }
    if (rest) big->lost = true;
    while (big->n_limbs > 1 && !big->limbs[big->n_limbs - 1]) big->n_limbs--;
}

static void big_shift_left(struct big *big, int n_bits)
{
    int words = n_bits / 64, bits = n_bits % 64;
    big_multiply(big, (uint64_t)1 << bits);
    memmove(big->limbs + words, big->limbs, (size_t)big->n_limbs * sizeof *big->limbs);
    memset(big->limbs, 0, (size_t)words * sizeof *big->limbs);
    big->n_limbs += words;
}

/* The value shifted right by n_bits, which must leave at most 64. */
static uint64_t big_top(struct big *big, int n_bits)
{
    int words = n_bits / 64, bits = n_bits % 64;
    if (words >= big->n_limbs) return 0;
    for (int i = 0; i < words; i++) big->lost |= big->limbs[i] != 0;
    uint64_t low = big->limbs[words], high = words + 1 < big->n_limbs ? big->limbs[words + 1] : 0;
    if (!bits) return low;
    big->lost |= low << (64 - bits) != 0;
    return low >> bits | high << (64 - bits);
}

/* value * 2^q * 10^-k rounded down, its last bit set when that is not exact. The result has < 63
 * bits. */
static uint64_t scale(uint64_t value, int q, int k)
{
    struct big big;
    big.limbs[0] = value;
    big.n_limbs = 1;
    big.lost = false;
    if (q > 0) big_shift_left(&big, q);
    for (int left = -k; left > 0; left -= STEP_DIGITS)
        big_multiply(&big, powers_of_ten[left < STEP_DIGITS ? left : STEP_DIGITS]);
    for (int left = k; left > 0; left -= STEP_DIGITS)
        big_divide(&big, powers_of_ten[left < STEP_DIGITS ? left : STEP_DIGITS]);
    uint64_t scaled = big_top(&big, q < 0 ? -q : 0);
    return scaled | big.lost;
}

/* c * 2^q, c > 0; narrow_below: c is a power of two, so the float below is half as far as the one
 * above. */
static struct decimal shortest(uint64_t c, int q, bool narrow_below)
{
    /* floor(log10(2^q)), or of 3/4 2^q: exact for |q| <= 1500. */
    int k = (q * 1262611 - (narrow_below ? 524031 : 0)) >> 22;
    uint64_t odd =
        c & 1; /* reading rounds ties to even: the ends of the interval belong to an even c */
    uint64_t lower = scale(4 * c - 2 + narrow_below, q, k) + odd;
    uint64_t upper = scale(4 * c + 2, q, k) - odd;
    uint64_t exact = scale(4 * c, q, k);
    uint64_t below = exact / 4; /* candidates: below and below + 1, or the tens around them */
    if (below >= 10) {
        uint64_t tens = below / 10;
        bool low_fits = lower <= 40 * tens, high_fits = 40 * tens + 40 <= upper;
        if (low_fits != high_fits) return (struct decimal){tens + high_fits, k + 1};
    }
    bool low_fits = lower <= 4 * below, high_fits = 4 * below + 4 <= upper;
    if (low_fits != high_fits) return (struct decimal){below + high_fits, k};
    uint64_t middle = 4 * below + 2;
    bool up = exact > middle || (exact == middle && (below & 1));
    return (struct decimal){below + up, k};
}

static char *put_zeros(char *at, int count)
{
    while (count-- > 0) *at++ = '0';
    return at;
}

static char *put_bytes(char *at, const char *bytes, int count)
{
    memcpy(at, bytes, (size_t)count);
    return at + count;
}

static char *put_exponent(char *at, int exponent)
{
    int magnitude = exponent < 0 ? -exponent : exponent;
    *at++ = 'e';
    *at++ = exponent < 0 ? '-' : '+';
    if (magnitude >= 100) *at++ = (char)('0' + magnitude / 100);
    *at++ = (char)('0' + magnitude / 10 % 10);
    *at++ = (char)('0' + magnitude % 10);
    return at;
}

/* Lays the digits out as Python's repr does: with an exponent below 1e-4 and from 1e16 up. */
static char *put_decimal(char *at, struct decimal value)
{
    char digits[20];
    int n_digits = 0, begin = (int)sizeof digits;
    while (value.digits % 10 == 0) value.digits /= 10, value.exponent++;
    for (; value.digits; value.digits /= 10, n_digits++)
        digits[--begin] = (char)('0' + value.digits % 10);
    const char *first = digits + begin;
    int point = n_digits + value.exponent; /* digits before the point, were it written out */
    if (point < -3 || point > 16) {
        *at++ = first[0];
        if (n_digits > 1) *at++ = '.';
        at = put_bytes(at, first + 1, n_digits - 1);
        return put_exponent(at, point - 1);
    }
    if (point <= 0) {
        at = put_zeros(put_bytes(at, "0.", 2), -point);
        return put_bytes(at, first, n_digits);
    }
    if (point >= n_digits) {
        at = put_zeros(put_bytes(at, first, n_digits), point - n_digits);
        return put_bytes(at, ".0", 2);
    }
    at = put_bytes(at, first, point);
    *at++ = '.';
    return put_bytes(at, first + point, n_digits - point);
}

/* A float of n_fraction stored bits whose smallest exponent is q_min; field: its biased exponent.
 * */
static int format_parts(bool negative, uint64_t fraction, int field, int n_fraction, int q_min,
                        char *out)
{
    char *at = out;
    if (negative) *at++ = '-';
    if (!field && !fraction) {
        at = put_bytes(at, "0.0", 3);
    } else {
        uint64_t c = field ? fraction | (uint64_t)1 << n_fraction : fraction;
        int q = q_min + (field ? field - 1 : 0);
        at = put_decimal(at, shortest(c, q, !fraction && field > 1));
    }
    *at = 0;
    return (int)(at - out);
}

/* Not for JSON, but a table for people may hold them. */
static int format_special(double value, char *out)
{
    const char *name = isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    memcpy(out, name, strlen(name) + 1);
    return (int)strlen(name);
}

int format_float(float value, char out[32])
{
    uint32_t bits;
    if (!isfinite(value)) return format_special((double)value, out);
    memcpy(&bits, &value, sizeof bits);
    return format_parts(bits >> 31, bits & 0x7FFFFF, (int)(bits >> 23 & 0xFF), 23, -149, out);
}

int format_double(double value, char out[32])
{
    uint64_t bits;
    if (!isfinite(value)) return format_special(value, out);
    memcpy(&bits, &value, sizeof bits);
    return format_parts(bits >> 63, bits & 0xFFFFFFFFFFFFF, (int)(bits >> 52 & 0x7FF), 52, -1074,
                        out);
}
