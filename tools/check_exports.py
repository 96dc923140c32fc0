#!/usr/bin/env python3
"""Fails when libnepit.so exports more or less than nepit.h declares, or the header needs another.

    python3 tools/check_exports.py [BUILD FOLDER]

Every exported symbol begins with np_; exported and declared (NP_API) names are the same set; the
header compiles by itself as C11 and as C++17 with every usual warning an error.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
COMPILERS = [["gcc", "-x", "c", "-std=c11"], ["g++", "-x", "c++", "-std=c++17"]]


def exported_names(library):
    """Names of a shared library's own dynamic symbols."""
    command = ["nm", "-D", "--defined-only", str(library)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {row.split()[-1].split("@")[0] for row in output.splitlines()}


def declared_names(header):
    return set(re.findall(r"^NP_API[^;(]*?\b(np_\w+)\s*\(", header.read_text(), re.M))


def compare(exported, declared):
    for name in sorted(exported):
        if not name.startswith("np_"):
            yield f"exported, but not ours to export: {name}"
        elif name not in declared:
            yield f"exported, but not in nepit.h: {name}"
    for name in sorted(declared - exported):
        yield f"in nepit.h, but not exported: {name}"


def header_errors(header):
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "alone"
        source.write_text(f'#include "{header.name}"\n#include "{header.name}"\n')
        for compiler in COMPILERS:
            command = [*compiler, *WARNINGS, f"-I{header.parent}", str(source)]
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode:
                yield f"{' '.join(compiler)}: {result.stderr.strip()}"


def main(build):
    header, library = ROOT / "include/nepit.h", Path(build) / "libnepit.so"
    exported, declared = exported_names(library), declared_names(header)
    errors = [*compare(exported, declared), *header_errors(header)]
    for error in errors:
        print(error)
    print(f"check_exports: {len(exported)} symbols, {len(errors)} errors")
    return 1 if errors or not exported else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build"))
