/* kcheck.c - guard pages, hard values, the comparer and the verdicts of the kernel tests. */
#include "kcheck.h"
#include <math.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifdef HAVE_SIMDE
extern const struct kernels kernels_emulated, kernels_emulated_fma;
#endif

size_t kcheck_levels(const struct kernels *levels[], size_t max)
{
    size_t n = 0;
    for (enum cpu_level level = CPU_REF + 1; level < CPU_LEVELS && n < max; level++)
        if (cpu_has(level) && kernels_get(level)->level == level) levels[n++] = kernels_get(level);
#ifdef HAVE_SIMDE
    if (n < max && cpu_has(CPU_AVX2)) levels[n++] = &kernels_emulated_fma;
    if (n < max && cpu_has(CPU_AVX2)) levels[n++] = &kernels_emulated;
#endif
    return n;
}

float *guarded(size_t slot, size_t n)
{
    static char *memory[GUARDED_SLOTS];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = GUARDED_FLOATS * sizeof(float);
    if (!memory[slot]) {
        char *p =
            mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED || mprotect(p + room, page, PROT_NONE)) {
            perror("guard page");
            exit(2);
        }
        memory[slot] = p;
    }
    if (n > GUARDED_FLOATS) {
        fprintf(stderr, "a guarded buffer of %zu floats is too large\n", n);
        exit(2);
    }
    float *x = (float *)(void *)(memory[slot] + room) - n;
    memset(x, 0xff, n * sizeof *x);
    return x;
}

uint64_t random64(void)
{
    static uint64_t state = 20240607;
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

size_t random_below(size_t n)
{
    return (size_t)(random64() >> 11) % n;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static float random_float(enum fill fill)
{
    uint64_t r = random64();
    float unit = (float)((double)(r >> 11) * 0x1p-52 - 1);
    uint32_t sign = (uint32_t)(r & 1) << 31;
    switch (fill) {
    case FILL_RATIO: return ldexpf(unit, (int)(r % 100) - 50);
    case FILL_TINY: return float_of((uint32_t)(r >> 20) & (r & 2 ? 0x800fffff : 0x81ffffff));
    case FILL_ZERO: return float_of(r & 6 ? sign : sign | 0x3f800000);
    case FILL_WHOLE: return (float)((int)(r % 17) - 8);
    case FILL_WILD:
        if (r % 37 == 0) return float_of(sign | (r & 2 ? 0x7fc00000 : 0x7f800000));
        return r % 3 ? unit * 20 : float_of((uint32_t)(r >> 16));
    default: return unit;
    }
}

void fill_floats(float *x, size_t n, enum fill fill)
{
    for (size_t i = 0; i < n; i++) x[i] = random_float(fill);
}

static uint16_t random_half(enum fill fill)
{
    uint32_t r = (uint32_t)(random64() >> 20), sign = r & 0x8000, mantissa = r & 1023, e = r >> 16;
    switch (fill) {
    case FILL_RATIO: return (uint16_t)(sign | (e % 31) << 10 | mantissa);
    case FILL_TINY: return (uint16_t)(sign | mantissa);
    case FILL_ZERO: return (uint16_t)(e & 6 ? sign : sign | 0x3c00);
    case FILL_WHOLE: return (uint16_t)(sign | (15 + e % 3) << 10 | (mantissa & 0x300));
    case FILL_WILD: return (uint16_t)r;
    default: return (uint16_t)(sign | (8 + e % 7) << 10 | mantissa);
    }
}

static void put_half(uint8_t *to, uint32_t half)
{
    to[0] = (uint8_t)half;
    to[1] = (uint8_t)(half >> 8);
}

void fill_stored(enum dtype dtype, uint8_t *stored, size_t n, enum fill fill)
{
    if (!dtype_has_cells(dtype)) {
        for (size_t i = 0; i < n; i++, stored += dtype_infos[dtype].block_bytes) {
            float x = random_float(fill);
            if (dtype == DT_F16)
                put_half(stored, random_half(fill));
            else if (dtype == DT_BF16)
                memcpy(stored, (const char *)&x + 2, 2);
            else
                memcpy(stored, &x, sizeof x);
        }
        return;
    }
    for (size_t i = 0; i < n; i += CELL, stored += dtype_infos[dtype].block_bytes) {
        for (size_t b = 0; b < dtype_infos[dtype].block_bytes; b++)
            stored[b] = (uint8_t)(random64() >> 33);
        for (size_t h = 0; h < (dtype_has_minimum(dtype) ? 2 : 1); h++) {
            uint32_t half = random_half(fill);
            put_half(stored + 2 * h, (half & 0x7c00) == 0x7c00 ? half & 0xbfff : half);
        }
    }
}

bool same_floats(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

bool same_double(double a, double b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

struct verdicts verdicts = {.answers = 14695981039346656037u};

static void mix_answer(uint64_t bits)
{
    verdicts.answers = (verdicts.answers ^ bits) * 1099511628211u;
}

bool agree(const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, want + i, sizeof bits);
        mix_answer(isnan(want[i]) ? 0x7fc00000 : bits);
    }
    return same_floats(got, want, n);
}

bool agree_double(double got, double want)
{
    uint64_t bits;
    memcpy(&bits, &want, sizeof bits);
    mix_answer(isnan(want) ? 0x7ff8000000000000u : bits);
    return same_double(got, want);
}

void verdict(bool ok, const struct kernels *k, const char *what, size_t a, size_t b, size_t c)
{
    verdicts.n_passed += ok;
    verdicts.n_failed += !ok;
    if (!ok && !verdicts.quiet) printf("FAILED %s %s (%zu, %zu, %zu)\n", k->name, what, a, b, c);
}

double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define PEAK_STEPS 1000000

#if defined(__x86_64__)
#define PEAK_LOOP(name, isa, vec)                                                              \
    __attribute__((target(isa), noinline)) static void name(void)                              \
    {                                                                                          \
        for (size_t i = 0; i < PEAK_STEPS; i++)                                                \
            __asm__ volatile(FMA(vec, 2) FMA(vec, 3) FMA(vec, 4) FMA(vec, 5) FMA(vec, 6)       \
                                 FMA(vec, 7) FMA(vec, 8) FMA(vec, 9) FMA(vec, 10) FMA(vec, 11) \
                                     FMA(vec, 12) FMA(vec, 13)                                 \
                             :                                                                 \
                             :                                                                 \
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", \
                               "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13");            \
    }
#define FMA(vec, n) "vfmadd231ps %%" vec "0, %%" vec "1, %%" vec #n "\n"
PEAK_LOOP(peak_ymm, "avx2,fma", "ymm")
PEAK_LOOP(peak_zmm, "avx512f", "zmm")

double peak_gflops(enum cpu_level level)
{
    bool wide = level == CPU_AVX512 || level == CPU_AVX512BF16;
    void (*loop)(void) = wide ? peak_zmm : peak_ymm;
    if (level == CPU_REF || !cpu_has(level)) return 0;
    double best = 0, lanes = wide ? 16 : 8;
    for (int i = 0; i < 5; i++) {
        double begin = seconds();
        loop();
        double rate = PEAK_STEPS * 12 * lanes * 2 / (seconds() - begin) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}
#else
double peak_gflops(enum cpu_level level)
{
    return level > CPU_LEVELS;
}
#endif
