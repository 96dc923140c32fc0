#!/usr/bin/env python3
"""Fails on any #include that the house does not allow (docs/ARCHITECTURE.md, include table).

    python3 tools/check_layers.py [ROOT]

Reads every .c and .h file and finds quoted includes as the compiler does. There is no list of
exceptions: a needed arrow is a change of the design, and of the tables here.
"""
import re
import sys
from pathlib import Path

SRC_ROOMS = {"base", "tensor", "format", "text", "score", "model", "engine", "api"}

# room: what it may include besides itself (rooms, or single files)
ALLOWED = {
    "base": {"nepit.h"},
    "tensor": {"base"},
    "format": {"base", "tensor/tensor.h"},
    "text": {"format", "base"},
    "score": {"tensor", "base"},
    "model": {"format", "tensor", "base"},
    "engine": {"model", "score", "tensor", "base"},
    "api": SRC_ROOMS | {"nepit.h"},
    "server": {"nepit.h", "base"},
    "cli": {"nepit.h", "base", "server"},
    "include": set(),
    "tests": SRC_ROOMS | {"nepit.h", "server", "fuzz"},
}
# fuzz and bench: base, the public header, and one room that is under test; bench measures the fma
# peak with the kernel tests' own loop
ONE_ROOM = {"fuzz", "bench"}
TESTED_ROOMS = SRC_ROOMS - {"base"} | {"server"}

# headers of libraries and who may use them; what is not here is libc, POSIX or the compiler's own
LIBRARIES = {
    "jansson.h": {"format", "text", "server", "cli", "tests", "bench"},
    "pcre2.h": {"text"},
    "utf8proc.h": {"text", "cli"},
    "xxhash.h": {"model", "engine"},
    "microhttpd.h": {"server"},
    "zlib.h": {"server"},
    "zstd.h": {"server"},
    "curl/curl.h": {"cli"},
    "cmocka.h": {"tests"},
    "immintrin.h": {"base", "tensor", "bench"},
    "arm_neon.h": {"tensor"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)


def room_of(relative):
    """The room of a path inside the project: src/base/buf.c -> base, cli/main.c -> cli."""
    parts = relative.parts
    return parts[1] if parts[0] == "src" and len(parts) > 2 else parts[0]


def resolve(root, file, name):
    """The project's file that a quoted include means, relative to the root; None: there is none."""
    for folder in (file.parent, root / "src", root / "include", root):
        path = (folder / name).resolve()
        if path.is_file() and path.is_relative_to(root):
            return path.relative_to(root)
    return None


def target_errors(room, target, tested):
    """Why `room` may not include `target`, a file of the project."""
    other = "nepit.h" if target.name == "nepit.h" else room_of(target)
    if other == room:
        return None
    if room in ONE_ROOM:
        if other in TESTED_ROOMS:
            tested.add(other)
        if len(tested) > 1:
            return f"{room} may include one room under test, not {' and '.join(sorted(tested))}"
        allowed = TESTED_ROOMS | {"base", "nepit.h"} | ({"tests"} if room == "bench" else set())
        return None if other in allowed else f"{room} may not include {other}"
    allowed = ALLOWED.get(room, set())
    if other in allowed or target.as_posix().removeprefix("src/") in allowed:
        return None
    return f"{room} may not include {other} (allowed: {', '.join(sorted(allowed)) or 'nothing'})"


def file_errors(root, file):
    relative = file.relative_to(root)
    room, tested = room_of(relative), set()
    text = file.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.end()) + 1
        quoted, system = match[1], match[2]
        if system:
            users = LIBRARIES.get(system)
            error = None if users is None or room in users else f"{room} may not use <{system}>"
        else:
            target = resolve(root, file, quoted)
            error = target_errors(room, target, tested) if target else f'"{quoted}" does not exist'
        if error:
            yield f"{relative}:{line}: {error}"


def main(root):
    root = Path(root).resolve()
    files = [path for folder in ("include", "src", "server", "cli", "tests", "bench", "fuzz")
             for path in sorted((root / folder).rglob("*.[ch]"))]
    errors = [error for file in files for error in file_errors(root, file)]
    for error in errors:
        print(error)
    print(f"check_layers: {len(files)} files, {len(errors)} errors")
    return 1 if errors or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
