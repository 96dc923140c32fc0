#!/usr/bin/env python3
"""Texts in many languages, code and XML, out of Debian packages: for tests and measurements.

    .venv/bin/python tools/corpus.py     fetches what is missing into .cache/corpus, lists the texts
    .venv/bin/python tools/corpus.py --licences   the licences that the packages used name

Nothing is installed and nothing is committed: packages are downloaded with `apt-get download` and
unpacked with `dpkg-deb -x`, as any user. Where a package cannot be had (no network, no apt), the
reason is printed and the texts of the others are used. docs/CORPUS.md has the list.

    texts()    -> [(name, bytes), ...]   everything, at most MAX_BYTES of each
    sample(n)  -> [(name, bytes), ...]   the first n bytes (cut at a character) of each of SAMPLE:
                                         14 languages, code and XML; the same packages, the same
                                         texts
"""

import argparse
import gettext
import gzip
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

CACHE = Path(
    os.environ.get("NEPIT_CORPUS", Path(__file__).resolve().parent.parent / ".cache" / "corpus")
)
MAX_BYTES = 1_500_000

# name of the text -> Debian package, language folder or pattern of files
MANUALS = {
    "cs": "manpages-cs",
    "de": "manpages-de",
    "el": "manpages-el",
    "es": "manpages-es",
    "fr": "manpages-fr",
    "it": "manpages-it",
    "ja": "manpages-ja",
    "pl": "manpages-pl",
    "ru": "manpages-ru",
    "uk": "manpages-uk",
    "vi": "manpages-vi",
    "zh": "manpages-zh",
}
MESSAGES = {
    "ar": "apt",
    "dz": "apt",
    "km": "apt",
    "ko": "apt",
    "mr": "apt",
    "ne": "apt",
    "th": "apt",
}
FILES = {
    "xml": ("shared-mime-info", "usr/share/mime/packages/*.xml"),
    "python": ("python3-pygments", "usr/lib/python3/dist-packages/pygments/*.py"),
    "javascript": ("libjs-jquery", "usr/share/javascript/jquery/jquery.js"),
    "c": ("libpcre2-dev", "usr/include/*.h"),
}
SAMPLE = ("ar cs de es fr it ja ko pl ru th uk vi zh c javascript python xml").split()


def run(command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    return done.returncode == 0, (done.stderr or done.stdout).strip().splitlines()[-1:] or [""]


def download(package, folder):
    """Fetches one .deb into folder; returns its path, or None with the reason printed."""
    command = ["apt-get", "download", package]
    try:
        ok, why = run(command, folder)
        if not ok:  # no lists of packages yet, or old ones: lists of our own need no rights
            lists = CACHE / "lists"
            (lists / "partial").mkdir(parents=True, exist_ok=True)
            own = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={CACHE}"]
            run(["apt-get", *own, "update"], folder)
            ok, why = run(["apt-get", *own, "download", package], folder)
    except OSError as error:
        ok, why = False, [str(error)]
    found = sorted(folder.glob(f"{package}_*.deb"))
    if not ok or not found:
        print(f"corpus: {package} is left out: {why[0]}", file=sys.stderr)
        return None
    return found[-1]


def package_tree(package):
    """The unpacked package, or None."""
    tree = CACHE / "packages" / package
    if not tree.exists():
        folder = CACHE / "debs"
        folder.mkdir(parents=True, exist_ok=True)
        found = sorted(folder.glob(f"{package}_*.deb"))
        deb = found[-1] if found else download(package, folder)
        if not deb:
            return None
        partial = tree.with_suffix(".partial")
        partial.mkdir(parents=True, exist_ok=True)
        ok, why = run(["dpkg-deb", "-x", str(deb), str(partial)], folder)
        if not ok:
            print(f"corpus: {package} is left out: {why[0]}", file=sys.stderr)
            return None
        partial.rename(tree)
    return tree


ROFF_ESCAPES = [
    (re.compile(r"\\f(?:\[[^]]*\]|\(..|.)"), ""),
    (re.compile(r"\\-"), "-"),
    (re.compile(r"\\[&/,|^]"), ""),
    (re.compile(r"\\\(aq"), "'"),
    (re.compile(r"\\[e\\]"), r"\\"),
    (re.compile(r"\\s[+-]?\d+"), ""),
    (re.compile(r"\\ "), " "),
]


def manual_text(path):
    """A manual page without its typesetting, or "" if it is not UTF-8."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    lines = []
    for line in text.splitlines():
        if line.startswith(("'", '.\\"')):
            continue
        if line.startswith("."):
            if not re.match(r"\.\s*(B|I|SH|SS|IP|BR|IR|RB)\b", line):
                continue
            line = re.sub(r"^\.\s*[A-Za-z]+\s*", "", line)
        for pattern, replacement in ROFF_ESCAPES:
            line = pattern.sub(replacement, line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def manuals(language, package):
    tree = package_tree(package)
    pages = (
        sorted(p for p in tree.glob("usr/share/man/*/man*/*") if p.is_file() and not p.is_symlink())
        if tree
        else []
    )
    pages = [p for p in pages if p.parts[-3].split("_")[0].split(".")[0] == language]
    return collect(map(manual_text, pages))


def messages(language, package):
    tree = package_tree(package)
    if not tree:
        return b""
    texts = []
    for path in sorted(tree.glob(f"usr/share/locale/{language}/LC_MESSAGES/*.mo")):
        with path.open("rb") as file:
            catalogue = gettext.GNUTranslations(file)._catalog
        texts += [
            text + "\n"
            for key, text in sorted(catalogue.items(), key=lambda item: str(item[0]))
            if key and text
        ]
    return collect(texts)


def files(package, pattern):
    tree = package_tree(package)
    paths = sorted(p for p in tree.glob(pattern) if p.is_file()) if tree else []
    return collect(path.read_text(errors="ignore") for path in paths)


def collect(parts):
    out, size = [], 0
    for part in parts:
        out.append(part.encode())
        size += len(out[-1])
        if size >= MAX_BYTES:
            break
    return cut(b"".join(out), MAX_BYTES)


def cut(data, n_bytes):
    return data[:n_bytes].decode(errors="ignore").encode()


SOURCES = {name: (manuals, (name, package)) for name, package in MANUALS.items()}
SOURCES |= {name: (messages, (name, package)) for name, package in MESSAGES.items()}
SOURCES |= {name: (files, where) for name, where in FILES.items()}


def text(name):
    """One text, made of its package once; empty where that cannot be had."""
    made = CACHE / "texts" / f"{name}.txt"
    if not made.exists():
        make, arguments = SOURCES[name]
        data = make(*arguments)
        if not data:
            return b""
        made.parent.mkdir(parents=True, exist_ok=True)
        partial = made.with_suffix(f".{os.getpid()}")
        partial.write_bytes(data)
        partial.rename(made)
    return made.read_bytes()


def texts():
    return [(name, data) for name in sorted(SOURCES) if (data := text(name))]


def sample(n_bytes_each):
    return [(name, cut(data, n_bytes_each)) for name in SAMPLE if (data := text(name))]


def licences():
    packages = sorted(
        {*MANUALS.values(), *MESSAGES.values(), *(package for package, _ in FILES.values())}
    )
    for package in packages:
        tree = package_tree(package)
        notes = tree / "usr/share/doc" / package / "copyright" if tree else None
        if notes and notes.exists():
            names = re.findall(r"^Licen[cs]e:\s*(.+)$", notes.read_text(errors="ignore"), re.M)
            print(f"{package}: {', '.join(sorted(set(names))) or 'see its copyright file'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--licences", action="store_true")
    if parser.parse_args().licences:
        licences()
        return
    total = 0
    for name, data in texts():
        print(f"{name:11} {len(data):9} bytes")
        total += len(data)
    print(f"{'all':11} {total:9} bytes")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # "| head" ends it, without a traceback
    main()
