#!/usr/bin/env python3
"""Builds what PyPI gets: the sdist and, from the sdist, one wheel for every Python of a platform.

    .venv/bin/python tools/build_wheel.py [FOLDER]     default: dist; `./run wheel` calls it

The sdist is the last commit. meson-python compiles it for the Python at hand, auditwheel adds the
shared libraries, and `finish` makes the rest: tags for every Python (the package loads its library
by ctypes), and the licences of what was added. Times are those of the commit, so that the same
commit gives the same bytes. Nothing is compiled when FOLDER has the wheel of this sdist already.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_WHEEL_BYTES = 8_000_000
COMMON_LICENCES = Path("/usr/share/common-licenses")

# Debian's package of an added library -> its licence as an SPDX expression; the texts go along.
GNU = "(LGPL-3.0-or-later OR GPL-2.0-or-later)"
LICENCES = {
    "libffi8": "MIT",
    "libgmp10": GNU,
    "libgnutls30": "LGPL-2.1-or-later",
    "libhogweed6": GNU,
    "libidn2-0": GNU,
    "libjansson4": "MIT",
    "libmicrohttpd12": "LGPL-2.1-or-later",
    "libnettle8": GNU,
    "libp11-kit0": "BSD-3-Clause",
    "libpcre2-8-0": "BSD-3-Clause WITH PCRE2-exception",
    "libtasn1-6": "LGPL-2.1-or-later",
    "libunistring2": GNU,
    "libutf8proc2": "MIT AND Unicode-DFS-2015",
    "libxxhash0": "BSD-2-Clause",
    "libzstd1": "BSD-3-Clause",
}


def fail(text):
    sys.exit(f"build_wheel: {text}")


def quietly(*command, **options):
    """Runs a command; its output is shown only when it fails."""
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **options)
    if done.returncode:
        fail(f"{' '.join(map(str, command))} failed:\n{done.stdout}")
    return done.stdout


def environment():
    """The tools beside this Python are found first; every time is that of the commit."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    epoch = quietly("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    return {**os.environ, "PATH": path, "SOURCE_DATE_EPOCH": epoch}


def build(kind, source, folder, env):
    """The build folder is a temporary one: nothing is left in the checkout."""
    quietly(sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", folder,
            f"--config-setting=build-dir={folder}/build", source, env=env)
    (made,) = folder.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return made


def repaired(wheel, folder, env):
    quietly("auditwheel", "repair", "--strip", "--wheel-dir", folder, wheel, env=env)
    (made,) = folder.glob("*.whl")
    return made


# ---- licences ------------------------------------------------------------------------------------


def added_packages(files, libraries):
    """(package, version) of every library that was added, from the list that auditwheel leaves."""
    (bill,) = [data for name, data in files.items() if name.endswith("auditwheel.cdx.json")]
    parts = [part for part in json.loads(bill)["components"] if "pkg:deb/" in part["purl"]]
    packages = sorted({(part["name"], part["version"]) for part in parts})
    if len(packages) != len(libraries):
        fail(f"{len(libraries)} libraries were added, from these packages: {packages}")
    return packages


def licence_texts(packages):
    """name -> text: what Debian says of each package, and each licence that is named there."""
    texts = {}
    for package, _ in packages:
        text = Path(f"/usr/share/doc/{package}/copyright").read_bytes()
        texts[f"{package}.txt"] = text
        for name in re.findall(rf"{COMMON_LICENCES}/([\w.-]*[\w])", text.decode()):
            texts[f"{name}.txt"] = (COMMON_LICENCES / name).read_bytes()
    return texts


def notice(packages):
    lines = ["This wheel holds these libraries, as Debian builds them; their sources are at",
             "https://snapshot.debian.org. Each licence's text lies beside this file.", ""]
    lines += [f"{name} {version}: {LICENCES[name]}" for name, version in packages]
    return ("\n".join(lines) + "\n").encode()


def with_licences(metadata, packages, names):
    terms = ["MIT", *sorted({LICENCES[name] for name, _ in packages} - {"MIT"})]
    for old, new in {
        "License-Expression: MIT\n": f"License-Expression: {' AND '.join(terms)}\n",
        "License-File: LICENSE\n": "".join(f"License-File: {name}\n" for name in names),
    }.items():
        if metadata.count(old) != 1:
            fail(f"the metadata should have one line {old!r}")
        metadata = metadata.replace(old, new)
    return metadata


# ---- the wheel -----------------------------------------------------------------------------------


def record(files, at):
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{at},,\n"]).encode()


def finish(wheel, folder, epoch):
    """The wheel for every Python, with the licences of what it holds; its path."""
    with zipfile.ZipFile(wheel) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        files = {entry.filename: archive.read(entry) for entry in entries}
        modes = {entry.filename: entry.external_attr for entry in entries}
    (info,) = {name.split("/")[0] for name in files if name.endswith(".dist-info/WHEEL")}
    del files[f"{info}/RECORD"]
    packages = added_packages(files, [name for name in files if name.startswith("nepit.libs/")])
    for package, _ in packages:
        if package not in LICENCES:
            fail(f"{package} was added: which licence has it? (LICENCES)")
    texts = {"LICENSES.txt": notice(packages), **licence_texts(packages)}
    files |= {f"{info}/licenses/bundled/{name}": text for name, text in texts.items()}
    names = ["LICENSE", *(f"bundled/{name}" for name in sorted(texts))]
    metadata = with_licences(files[f"{info}/METADATA"].decode(), packages, names)
    files[f"{info}/METADATA"] = metadata.encode()
    old = re.search(r"-(cp\d+-cp\d+t?)-", wheel.name)[1]
    for name in (f"{info}/WHEEL", f"{info}/sboms/auditwheel.cdx.json"):
        files[name] = files[name].replace(old.encode(), b"py3-none")
    files = dict(sorted(files.items()))
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD")
    made = folder / wheel.name.replace(old, "py3-none")
    date = time.gmtime(int(epoch))[:6]
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = modes.get(name, 0o100644 << 16)
            archive.writestr(entry, data)
    return made


def make_wheel(sdist, place, env):
    """The finished wheel of an sdist, somewhere in the folder `place`."""
    shutil.unpack_archive(sdist, place)
    source = place / sdist.name.removesuffix(".tar.gz")
    plain = build("wheel", source, place / "wheel", env)
    made = finish(repaired(plain, place / "repaired", env), place, env["SOURCE_DATE_EPOCH"])
    if made.stat().st_size > MAX_WHEEL_BYTES:
        fail(f"{made.name} has {made.stat().st_size} bytes, at most {MAX_WHEEL_BYTES}")
    quietly("twine", "check", "--strict", sdist, made, env=env)
    return made


def main(folder):
    env = environment()
    if quietly("git", "status", "--porcelain", cwd=ROOT):
        print("build_wheel: what is not committed is left out", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        sdist = build("sdist", ROOT, Path(place) / "sdist", env)
        kept = folder / sdist.name
        has_wheel = len(list(folder.glob("nepit-*.whl"))) == 1
        if not has_wheel or not kept.exists() or kept.read_bytes() != sdist.read_bytes():
            wheel = make_wheel(sdist, Path(place), env)
            for old in folder.glob("nepit-*"):
                old.unlink()
            for made in (wheel, sdist):
                shutil.copy(made, folder)
    for made in sorted(folder.glob("nepit-*")):
        print(f"{made}  ({made.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve())
