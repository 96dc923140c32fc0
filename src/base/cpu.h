/*
 * cpu.h - which instruction sets may be used here. Detection includes what the operating system
 * saves (XCR0), and a mask from the caller (--cpu) or from the environment variable NEPIT_CPU.
 */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include "base/error.h"
#include <stdbool.h>

/* New level: one here, one row of cpu.c's `levels`, what it needs, its row in tensor/kernels.c. */
enum cpu_level { CPU_REF, CPU_AVX2, CPU_AVX512, CPU_AVX512BF16, CPU_NEON, CPU_LEVELS };

const char *cpu_level_name(enum cpu_level level); /* "ref", "avx2", ...; "unknown" */

/* The level that this one implies: ref < avx2 < avx512 < avx512bf16 on x86, ref < neon on Arm64;
 * ref is below itself. */
enum cpu_level cpu_level_below(enum cpu_level level);

/* Whether the machine has a level. avx2 asks for AVX2, FMA and F16C; avx512 for F, BW, DQ, VL too;
 * avx512bf16 for BF16 and VNNI too; neon for Arm64. */
bool cpu_has(enum cpu_level level);

/* The highest level that the machine has. */
enum cpu_level cpu_detect(void);

/* The level for `wanted` (NULL, "auto": NEPIT_CPU if set, else the highest). *reason: a static
 * string. NP_EINPUT for an unknown name; NP_EUNSUPPORTED for a level that this machine lacks. */
np_status cpu_choose(const char *wanted, enum cpu_level *level, const char **reason, np_error *err);

#endif
