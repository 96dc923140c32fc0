#!/usr/bin/env python3
"""The matrix of docs/NUMERICS.md: one hash per model over compilers, levels of optimisation, CPU
levels, threads, chunks and batches; and a wrong order of addition, which must change it.

    .venv/bin/python tests/golden/matrix.py [--only gcc-O2,clang-O0] [--verbose]

Every variant is built in build-matrix/VARIANT and runs checkkernels; then tests/fault/allways runs
a document in all ways, whose bytes are hashed here and must give the committed hash (bits.json).
The plain loops run the whole document in one way and its first 64 ids in all.
--verbose prints the hash of each way; all are in build-matrix/VARIANT/hashes.txt.
"""

import argparse
import concurrent.futures
import hashlib
import os
import shutil
import subprocess
import sys

import hashes
import nprun

COMPILERS = {"gcc": ("gcc",), "clang": ("clang", "clang-14")}
OPTIMISATIONS = ("0", "2", "3")
VARIANTS = [f"{compiler}-O{level}" for compiler in COMPILERS for level in OPTIMISATIONS]
PROGRAMS = ["allways", "allways_wrong"]
TARGETS = [f"tests/fault/{name}" for name in PROGRAMS] + ["tests/kernels/checkkernels"]


def quietly(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        raise SystemExit(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}"[-5000:])
    return done.stdout


def build(variant):
    """The folder of a built variant, or None where its compiler is missing."""
    compiler, _, level = variant.partition("-O")
    found = [name for name in COMPILERS[compiler] if shutil.which(name)]
    if not found:
        return None
    folder = nprun.ROOT / "build-matrix" / variant
    if not (folder / "build.ninja").exists():
        options = ["-Dtests=enabled", "-Dwerror=false", "-Dbuildtype=plain"]
        quietly(
            ["meson", "setup", folder, *options, f"-Doptimization={level}"],
            cwd=nprun.ROOT,
            env={**os.environ, "CC": found[0]},
        )
    quietly(["ninja", "-C", folder, *TARGETS])
    return folder


def ways(folder, program, name, profile, level, which, sequences):
    """[(way, SHA-256)] of the ways that a program runs sequences in."""
    text = "".join(nprun.lines(ids) + "\n" for ids in sequences)
    path = folder / "tests" / "fault" / program
    command = [path, nprun.MODELS / name, level, profile, which]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(text.encode())
    process.stdin.close()
    found = []
    while head := process.stdout.readline().decode().split():
        way = "threads {}, chunk {}, batch {}".format(*head)
        found.append((way, hashlib.sha256(process.stdout.read(int(head[3]))).hexdigest()))
    if process.wait() or not found:
        raise SystemExit(f"{program} {name} {level}: status {process.returncode}")
    return found


def check_model(folder, name, profile, level, log):
    """Lines about what is wrong."""
    whole, _ = hashes.document(name)
    wanted = hashes.committed(name, profile)
    what = f"{folder.name} {level} {profile} {name}"
    which = "ONE" if level == "ref" else "ALL"
    every = ways(folder, "allways", name, profile, level, which, whole)
    found = [(way, sha, wanted) for way, sha in every]
    if level == "ref":
        short = hashes.first_ids(whole, 64)
        shorter = hashes.hash_of(name, profile, sequences=short)
        every = ways(folder, "allways", name, profile, level, "ALL", short)
        found += [(way + ", 64 ids", sha, shorter) for way, sha in every]
    log.writelines(f"{sha} {what}: {way}\n" for way, sha, _ in found)
    bad = [f"{what}: {way}: {sha}" for way, sha, expected in found if sha != expected]
    print(f"{what}: {len(found)} ways, {len(bad)} of them wrong, {wanted}", flush=True)
    if ways(folder, "allways_wrong", name, profile, level, "ONE", whole)[0][1] == wanted:
        bad.append(f"{what}: a product with lanes along K was not noticed")
    return bad


def check_variant(variant, levels, verbose):
    folder = build(variant)
    if folder is None:
        print(f"{variant}: no such compiler here")
        return []
    last = quietly([folder / TARGETS[-1]]).splitlines()[-1]
    print(f"{variant} checkkernels: {last}", flush=True)
    bad, path = [], folder / "hashes.txt"
    with path.open("w") as log, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        jobs = [
            threads.submit(check_model, folder, name, profile, level, log)
            for profile, name in hashes.cases(hashes.families_of)
            for level in levels
        ]
        for job in jobs:
            bad += job.result()
    if verbose:
        print(path.read_text(), end="")
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(VARIANTS), help="variants, with commas")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    levels = [level for level in hashes.LEVELS if hashes.have(level)]
    bad = []
    for variant in arguments.only.split(","):
        bad += check_variant(variant, levels, arguments.verbose)
    print("\n".join(bad) if bad else "every way of running a model gives its one hash")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
