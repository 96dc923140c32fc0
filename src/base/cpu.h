/*
 * cpu.h - which instruction sets may be used here. Detection includes what the operating system
 * saves (XCR0), and a mask from the caller (--cpu) or from the environment variable NEPIT_CPU.
 */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include "base/error.h"

/* In ascending order; a level implies the ones before it on its platform. */
enum cpu_level { CPU_REF, CPU_AVX2, CPU_AVX512, CPU_LEVELS };

const char *cpu_level_name(enum cpu_level level); /* "ref", "avx2", "avx512" */

/* The highest level that the machine has (avx2 asks for AVX2, FMA and F16C; avx512 for F, BW, DQ,
 * VL too). */
enum cpu_level cpu_detect(void);

/* The level for `wanted` (NULL, "auto": NEPIT_CPU if set, else the highest). *reason: a static
 * string. NP_EINPUT for an unknown name; NP_EUNSUPPORTED for a level that this machine lacks. */
np_status cpu_choose(const char *wanted, enum cpu_level *level, const char **reason, np_error *err);

#endif
