#!/usr/bin/env python3
"""Runs one tier of tests and ends with one line: "N passed, N failed, N skipped".

    .venv/bin/python tools/run_tests.py default|long|peers

`./run test` calls it after set-up and build. A tier is a list of steps (TIERS). A step is a check,
which counts as one test, or a runner (meson, pytest) that leaves a JUnit file, from which its tests
are counted. A runner that fails without a failed test in its file counts as one failure.
"""
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
TOOLS = Path(sys.executable).parent
TINY = "tests/data/models/llama-tied-f32.gguf"


@dataclass
class Step:
    name: str
    command: list
    junit: str = ""  # where the runner leaves its counts; "": the step itself is one test
    env: dict = field(default_factory=dict)
    needs: str = ""  # a program, or a file of the checkout, without which the step is skipped


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def check(name, *arguments):
    return Step(name, [PYTHON, f"tools/{name}.py", *arguments])


def build(folder, *options, env=None, needs=""):
    """Configures once and compiles; the folder is kept, so that the next time is quick."""
    command = ["./run", "compile", folder, *options]
    return Step(f"build {folder}", command, env=env or {}, needs=needs)


def meson_tests(folder, env=None, patience="4"):
    command = ["meson", "test", "-C", folder, "--no-rebuild", "--print-errorlogs", "-t", patience]
    junit = f"{folder}/meson-logs/testlog.junit.xml"
    return Step(f"meson test {folder}", command, junit, env or {})


def python_tests(folder, *options, env=None):
    junit = f"{folder}/pytest.xml"
    command = [PYTHON, "-m", "pytest", f"--junitxml={junit}", *options]
    found = {"NEPIT": str(ROOT / folder / "nepit"), "NEPIT_BUILD": str(ROOT / folder)}
    return Step(f"pytest {folder}", command, junit, {**found, **(env or {})})


def valgrind(word, *arguments):
    command = ["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full"]
    command += ["build/nepit", word, "-m", TINY, "--cpu", "avx2", *arguments]
    return Step(f"valgrind nepit {word}", command, needs="valgrind")


CLANG = shutil.which("clang") or shutil.which("clang-14") or "clang"
SANITIZED = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}
# read by the unit tests: more random cases, more mutated files, the slow cases
THOROUGH = {"NEPIT_TEST_LONG": "1", "NEPIT_MUTATIONS": "100000"}


def emulated(step, minutes):
    """An Arm64 step: what set-up could not get (get_tools.sh says why) is skipped."""
    limit = ["timeout", f"{minutes}m"]
    return replace(step, command=limit + step.command, needs=".cache/arm64/has")


CROSS = ["--cross-file", "tests/cross/aarch64.ini", "-Dserver=disabled"]
ARM64 = [
    emulated(build("build-arm64", *CROSS, "-Dtests=enabled"), 20),
    emulated(meson_tests("build-arm64", patience="20"), 20),
    emulated(python_tests("build-arm64", "tests/golden/test_bits.py", "-k", "no_bit_changed",
                          env={"NEPIT": str(ROOT / "tests/cross/nepit-aarch64")}), 10),
]

TIERS = {
    "default": [
        check("check_layers"),
        check("check_sizes"),
        check("check_format"),
        check("check_exports", "build"),
        build("build-clang", "-Dtests=enabled", env={"CC": CLANG}, needs=CLANG),
        meson_tests("build"),
        python_tests("build", "-m", "not long and not peers"),
    ],
    "long": [
        # instrumented code provokes warnings of its own; the plain builds have -Werror
        build("build-asan", "-Dtests=enabled", "-Dwerror=false", "-Dbuildtype=debugoptimized",
              "-Db_lundef=false", "-Db_sanitize=address,undefined"),
        meson_tests("build-asan", {**SANITIZED, **THOROUGH}),
        python_tests("build-asan", "-m", "not long and not peers", env=SANITIZED),
        build("build-clang", "-Dtests=enabled", env={"CC": CLANG}, needs=CLANG),
        meson_tests("build-clang"),
        valgrind("tokenize", "--ids", "1 2 3"),
        valgrind("score", "--ids", "1 2 3"),
        *ARM64,
        Step("all floats", ["build/tests/kernels/allfloats"]),
        Step("matrix", [PYTHON, "tests/golden/matrix.py"], env={"NEPIT": "build/nepit"}),
        python_tests("build", "-m", "long", env=THOROUGH),
    ],
    "peers": [python_tests("build", "-m", "peers")],
}


def count_cmocka(output):
    """One meson test is a cmocka program of many tests, each with a line in its output."""
    def named(word):
        return set(re.findall(rf"^\[ *{word} *\] (\w+)$", output, re.M))

    for name in sorted(named("SKIPPED")):
        print(f"skipped: {name}")
    return Counts(len(named("OK")), len(named("FAILED")), len(named("SKIPPED")))


def count_case(case):
    tags = {child.tag for child in case}
    output = [case.findtext(tag) or "" for tag in ("system-out", "system-err")]
    counts = count_cmocka("\n".join(output))
    if tags & {"failure", "error"}:
        counts.failed = counts.failed or 1
    elif "skipped" in tags:
        counts.skipped += 1
    elif not counts.passed + counts.skipped:
        counts.passed = 1
    return counts


def count_junit(path):
    counts = Counts()
    for case in ElementTree.parse(path).iter("testcase"):
        counts.add(count_case(case))
    return counts


def run(step):
    if step.needs and not shutil.which(step.needs) and not (ROOT / step.needs).exists():
        print(f"skipped: {step.needs} is not here")
        return Counts(skipped=1)
    junit = ROOT / step.junit if step.junit else None
    if junit:
        junit.unlink(missing_ok=True)
    path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **step.env}
    ok = subprocess.run(step.command, cwd=ROOT, env=environment).returncode == 0
    if not junit:
        return Counts(passed=int(ok), failed=int(not ok))
    counts = count_junit(junit) if junit.exists() else Counts()
    if not ok and not counts.failed:
        counts.failed = 1
    return counts


def main(tier):
    total, failed_steps = Counts(), []
    for step in TIERS[tier]:
        print(f"\n== {step.name}", flush=True)
        begin = time.monotonic()
        counts = run(step)
        print(f"-- {step.name}: {counts} ({time.monotonic() - begin:.0f} s)", flush=True)
        total.add(counts)
        if counts.failed:
            failed_steps.append(step.name)
    print()
    if failed_steps:
        print("failed in:", ", ".join(failed_steps))
    print(total)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in TIERS:
        sys.exit(f"usage: run_tests.py {'|'.join(TIERS)}")
    sys.exit(main(sys.argv[1]))
