/*
 * cpu.c - see cpu.h. A level needs two yeses: the instructions (cpuid) and the operating system's,
 * which must save the wide registers when it switches threads (XCR0).
 */
#include "base/cpu.h"

#include <stdbool.h>

static const char *const level_names[CPU_LEVELS] = {"ref", "avx2", "avx512"};

const char *cpu_level_name(enum cpu_level level)
{
    return (unsigned)level < CPU_LEVELS ? level_names[level] : "unknown";
}

#if defined(__x86_64__)
#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };

/* One row per bit that a level asks for: of which leaf, in which register. */
static const struct cpu_need {
    enum cpu_level level;
    unsigned leaf, reg, bit;
} cpu_needs[] = {
    {CPU_AVX2, 1, ECX, 12},   /* FMA */
    {CPU_AVX2, 1, ECX, 28},   /* AVX */
    {CPU_AVX2, 1, ECX, 29},   /* F16C */
    {CPU_AVX2, 7, EBX, 5},    /* AVX2 */
    {CPU_AVX512, 7, EBX, 16}, /* AVX-512 F */
    {CPU_AVX512, 7, EBX, 17}, /* AVX-512 DQ */
    {CPU_AVX512, 7, EBX, 30}, /* AVX-512 BW */
    {CPU_AVX512, 7, EBX, 31}, /* AVX-512 VL */
};

#define OSXSAVE_BIT 27

/* XCR0: XMM and YMM; for AVX-512 the masks and both parts of ZMM too. */
static const uint64_t saved_needs[CPU_LEVELS] = {0, 0x06, 0xE6};

static uint64_t saved_registers(void)
{
    unsigned regs[4], low, high;
    if (!__get_cpuid(1, &regs[EAX], &regs[EBX], &regs[ECX], &regs[EDX])) return 0;
    if (!(regs[ECX] >> OSXSAVE_BIT & 1)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool cpu_has(enum cpu_level level, uint64_t saved)
{
    if ((saved & saved_needs[level]) != saved_needs[level]) return false;
    for (size_t i = 0; i < sizeof cpu_needs / sizeof *cpu_needs; i++) {
        const struct cpu_need *need = &cpu_needs[i];
        unsigned regs[4];
        if (need->level != level) continue;
        if (!__get_cpuid_count(need->leaf, 0, &regs[EAX], &regs[EBX], &regs[ECX], &regs[EDX]))
            return false;
        if (!(regs[need->reg] >> need->bit & 1)) return false;
    }
    return true;
}
#else
static uint64_t saved_registers(void)
{
    return 0;
}

static bool cpu_has(enum cpu_level level, uint64_t saved)
{
    return level == CPU_REF;
}
#endif

enum cpu_level cpu_detect(void)
{
    uint64_t saved = saved_registers();
    enum cpu_level level = CPU_REF;
    while (level + 1 < CPU_LEVELS && cpu_has(level + 1, saved)) level++;
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
    while (found < CPU_LEVELS && strcmp(wanted, level_names[found]) != 0) found++;
    if (found == CPU_LEVELS) {
        error_set(err, NP_EINPUT, where, NO_OFFSET,
                  "unknown CPU level; known are auto, ref, avx2, avx512");
        return error_given(err, NP_EINPUT, "%s", wanted);
    }
    if (found > highest)
        return error_set(err, NP_EUNSUPPORTED, where, NO_OFFSET,
                         "this machine lacks %s; its highest level is %s", level_names[found],
                         level_names[highest]);
    *level = found;
    *reason = why;
    return NP_OK;
}
