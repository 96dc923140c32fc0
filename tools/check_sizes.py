#!/usr/bin/env python3
"""Fails on files and functions above the ceilings of the house (CONTRIBUTING.md, "Habits").

    python3 tools/check_sizes.py [ROOT]

Lines and columns are counted here, lengths and complexity of C functions by pmccabe. There is no
list of exceptions; a generated table (its first line names the generator and says "do not edit") is
exempt.
"""
import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

FILE_LINES = 600
FUNCTION_LINES = 80
COMPLEXITY = 15
COLUMNS = 100
FACE_LINES = 150  # a room's header
PUBLIC_LINES = 600  # include/nepit.h
TOP_COMMENT_LINES = 15  # of a .c file

FOLDERS = ("include", "src", "server", "cli", "python", "tests", "bench", "fuzz", "tools")
C, PYTHON, SHELL = {".c", ".h"}, {".py"}, {".sh"}
# names that a folder's own machinery asks for, in each folder anew
REPEATED = {"meson.build", "conftest.py", "__init__.py", "__main__.py", "README.md"}


def is_generated(text):
    return "do not edit" in text.split("\n", 1)[0].lower()


def is_face(file):
    """Headers of a room. Bodies to include (*_tpl.h) and a room's inner folders are code."""
    if file.parts[0] == "include":
        return True
    return file.parts[0] == "src" and len(file.parts) == 3 and not file.stem.endswith("_tpl")


def header_limit(file):
    return PUBLIC_LINES if file.name == "nepit.h" else FACE_LINES


def top_comment_lines(lines):
    """Lines of the comment that a .c file begins with."""
    if not lines or not lines[0].startswith("/*"):
        return 0
    return next((i + 1 for i, line in enumerate(lines) if "*/" in line), len(lines))


def text_errors(file, text):
    lines = text.splitlines()
    limit = FILE_LINES
    if file.suffix == ".h" and is_face(file):
        limit = header_limit(file)
    if len(lines) > limit:
        yield f"{len(lines)} lines, at most {limit}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            yield f"line {number} has {len(line)} columns, at most {COLUMNS}"
    if file.suffix == ".c" and (top := top_comment_lines(lines)) > TOP_COMMENT_LINES:
        yield f"the top comment has {top} lines, at most {TOP_COMMENT_LINES}"


def c_function_errors(root, files):
    """pmccabe prints: complexity, traditional, statements, first line, lines, file(line): name."""
    if not files:
        return
    result = subprocess.run(["pmccabe", *map(str, files)], cwd=root, capture_output=True, text=True)
    if result.returncode or result.stderr.strip():
        yield f"pmccabe: {result.stderr.strip() or result.returncode}"
    for row in result.stdout.splitlines():
        complexity, _, _, _, lines, place, name = row.split(None, 6)
        if int(complexity) > COMPLEXITY:
            yield f"{place} {name} has complexity {complexity}, at most {COMPLEXITY}"
        if int(lines) > FUNCTION_LINES:
            yield f"{place} {name} has {lines} lines, at most {FUNCTION_LINES}"


def python_function_errors(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{node.name} has {lines} lines, at most {FUNCTION_LINES}"


def name_errors(files):
    seen = defaultdict(list)
    for file in files:
        if file.name not in REPEATED:
            seen[file.name].append(str(file))
    for name, places in sorted(seen.items()):
        if len(places) > 1:
            yield f"{name} is not unique in the tree: {', '.join(places)}"


def main(root):
    root = Path(root).resolve()
    paths = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*"))]
    files = [path.relative_to(root) for path in paths if path.suffix in C | PYTHON | SHELL]
    files += [Path("run")] if (root / "run").exists() else []
    errors, c_files = [], []
    for file in files:
        text = (root / file).read_text(encoding="utf-8")
        if is_generated(text):
            continue
        errors += [f"{file}: {error}" for error in text_errors(file, text)]
        if file.suffix in C:
            c_files.append(file)
        if file.suffix in PYTHON:
            errors += [f"{file}: {error}" for error in python_function_errors(text)]
    errors += c_function_errors(root, c_files)
    errors += name_errors(files)
    for error in errors:
        print(error)
    print(f"check_sizes: {len(files)} files, {len(errors)} errors")
    return 1 if errors or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
