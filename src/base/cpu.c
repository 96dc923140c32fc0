/*
 * cpu.c - see cpu.h. A level of x86 needs two yeses: the instructions (cpuid) and the operating
 * system's, which must save the wide registers when it switches threads (XCR0).
 */
#include "base/cpu.h"

static const struct {
    const char *name;
    enum cpu_level below;
} levels[CPU_LEVELS] = {
    [CPU_REF] = {"ref", CPU_REF},        [CPU_AVX2] = {"avx2", CPU_REF},
    [CPU_AVX512] = {"avx512", CPU_AVX2}, [CPU_AVX512BF16] = {"avx512bf16", CPU_AVX512},
    [CPU_NEON] = {"neon", CPU_REF},
};

const char *cpu_level_name(enum cpu_level level)
{
    return (unsigned)level < CPU_LEVELS ? levels[level].name : "unknown";
}

enum cpu_level cpu_level_below(enum cpu_level level)
{
    return (unsigned)level < CPU_LEVELS ? levels[level].below : CPU_REF;
}

#if defined(__x86_64__)
#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };

/* One row per bit that a level asks for: of which leaf and subleaf, in which register. */
static const struct cpu_need {
    enum cpu_level level;
    unsigned leaf, subleaf, reg, bit;
} cpu_needs[] = {
    {CPU_AVX2, 1, 0, ECX, 12},       /* FMA */
    {CPU_AVX2, 1, 0, ECX, 28},       /* AVX */
    {CPU_AVX2, 1, 0, ECX, 29},       /* F16C */
    {CPU_AVX2, 7, 0, EBX, 5},        /* AVX2 */
    {CPU_AVX512, 7, 0, EBX, 16},     /* AVX-512 F */
    {CPU_AVX512, 7, 0, EBX, 17},     /* AVX-512 DQ */
    {CPU_AVX512, 7, 0, EBX, 30},     /* AVX-512 BW */
    {CPU_AVX512, 7, 0, EBX, 31},     /* AVX-512 VL */
    {CPU_AVX512BF16, 7, 0, ECX, 11}, /* AVX-512 VNNI */
    {CPU_AVX512BF16, 7, 1, EAX, 5},  /* AVX-512 BF16 */
};

#define OSXSAVE_BIT 27
#define XCR0_YMM 0x06u /* XMM and YMM are saved */
#define XCR0_ZMM 0xE6u /* the masks and both parts of ZMM too */

static const uint64_t saved_needs[CPU_LEVELS] = {
    [CPU_AVX2] = XCR0_YMM,
    [CPU_AVX512] = XCR0_ZMM,
    [CPU_AVX512BF16] = XCR0_ZMM,
};

static uint64_t saved_registers(void)
{
    unsigned regs[4], low, high;
    if (!__get_cpuid(1, &regs[EAX], &regs[EBX], &regs[ECX], &regs[EDX])) return 0;
    if (!(regs[ECX] >> OSXSAVE_BIT & 1)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* What a level asks for beyond the one below it. */
static bool has_step(enum cpu_level level)
{
    if (level == CPU_NEON) return false;
    if ((saved_registers() & saved_needs[level]) != saved_needs[level]) return false;
    for (size_t i = 0; i < sizeof cpu_needs / sizeof *cpu_needs; i++) {
        const struct cpu_need *need = &cpu_needs[i];
        unsigned regs[4];
        if (need->level != level) continue;
        if (!__get_cpuid_count(need->leaf, need->subleaf, &regs[EAX], &regs[EBX], &regs[ECX],
                               &regs[EDX]))
            return false;
        if (!(regs[need->reg] >> need->bit & 1)) return false;
    }
    return true;
}
#elif defined(__aarch64__)
static bool has_step(enum cpu_level level)
{
    return level == CPU_NEON; /* part of every Arm64 */
}
#else
static bool has_step(enum cpu_level level)
{
    return false;
}
#endif

bool cpu_has(enum cpu_level level)
{
    if ((unsigned)level >= CPU_LEVELS) return false;
    return level == CPU_REF || (cpu_has(levels[level].below) && has_step(level));
}

enum cpu_level cpu_detect(void)
{
    enum cpu_level level = CPU_LEVELS - 1;
    while (!cpu_has(level)) level--;
    return level;
}

static bool is_auto(const char *name)
{
    return !name || !*name || strcmp(name, "auto") == 0;
}

np_status cpu_choose(const char *wanted, enum cpu_level *level, const char **reason, np_error *err)
{
    enum cpu_level highest = cpu_detect(), found = CPU_REF;
    const char *where = "cpu", *why = "asked for";
    if (is_auto(wanted)) {
        wanted = getenv("NEPIT_CPU");
        where = why = "NEPIT_CPU";
    }
    if (is_auto(wanted)) {
        *level = highest;
        *reason = "highest level this CPU has";
        return NP_OK;
    }
    while (found < CPU_LEVELS && strcmp(wanted, levels[found].name) != 0) found++;
    if (found == CPU_LEVELS) {
        error_set(err, NP_EINPUT, where, NO_OFFSET,
                  "unknown CPU level; known are auto, ref, avx2, avx512, avx512bf16, neon");
        return error_given(err, NP_EINPUT, "%s", wanted);
    }
    if (!cpu_has(found))
        return error_set(err, NP_EUNSUPPORTED, where, NO_OFFSET,
                         "this machine lacks %s; its highest level is %s", levels[found].name,
                         levels[highest].name);
    *level = found;
    *reason = why;
    return NP_OK;
}
