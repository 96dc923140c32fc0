#!/usr/bin/env python3
"""Fails on C files that clang-format would write otherwise (.clang-format).

    .venv/bin/python tools/check_format.py [--fix] [FILE...]        default: every C file

The version is pinned in tools/requirements-test.txt, since each one formats a little differently;
one of the machine's own is used where there is no .venv and its major version is the same.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("include", "src", "server", "cli", "tests", "bench", "fuzz")


MAJOR = "14"


def find_tool():
    """The clang-format to use, or None."""
    own = Path(sys.executable).parent / "clang-format"
    venv = ROOT / ".venv" / "bin" / "clang-format"
    for tool in (own, venv, f"clang-format-{MAJOR}", "clang-format"):
        if path := shutil.which(tool):
            says = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
            if re.search(rf"version {MAJOR}\.", says):
                return path
    return None


def is_generated(path):
    with path.open() as file:
        return "do not edit" in file.readline().lower()


def main(arguments):
    fix = "--fix" in arguments
    named = [Path(name) for name in arguments if name != "--fix"]
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.[ch]"))]
    files = [str(path) for path in named or found if not is_generated(path)]
    tool = find_tool()
    if not tool:
        print(f"check_format: clang-format {MAJOR} is missing; ./run setup test gets it")
        return 1
    command = [tool, f"--style=file:{ROOT / '.clang-format'}"]
    command += ["-i"] if fix else ["--dry-run", "--Werror"]
    result = subprocess.run([*command, *files], stderr=subprocess.PIPE, text=True)
    heads = [line for line in result.stderr.splitlines() if ": error: " in line]
    print("\n".join(heads or [result.stderr.strip()] if result.returncode else []))
    print(f"check_format: {len(files)} files, {len(heads)} places")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
