#!/usr/bin/env python3
"""Writes src/text/unicode_tables.c: what tokenizers have to know of every code point.

    pip install unicodedata2==16.0.0
    python tools/unicode/make_tables.py > src/text/unicode_tables.c     (perl with its modules too)

The classes are those of the regex engine that `tokenizers` 0.23 uses: Oniguruma with Unicode 16.0;
tests/text/test_parity.py compares them with it, code point by code point. Its normaliser knows
Unicode 9.0 only: characters that are newer stay as they are in NFC, here as there. Which those are,
perl knows.
"""

import subprocess
import sys

import unicodedata2 as ud

VERSION = "16.0.0"
BLOCK = 128
CATEGORIES = (
    "Cc Cf Cn Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps " "Sc Sk Sm So Zl Zp Zs"
).split()
# Code points that a rule may tell from the rest of their category; numbers follow the categories.
SINGLES = {0x85: 30, 0x17F: 31, 0x212A: 32}
NFC_UNSAFE, NFC_STARTS = 0x40, 0x80
NFC_VERSION = "9.0"


def known_to_normaliser():
    known = f"chr($c) =~ /\\p{{Present_In={NFC_VERSION}}}/"
    script = f"for my $c (0..0x10ffff) {{ print qq($c ) if {known} }}"
    done = subprocess.run(["perl", "-e", script], check=True, capture_output=True)
    return set(map(int, done.stdout.split()))


def compositions(known):
    """(first code points, second code points) of all pairs that NFC joins."""
    firsts = set(range(0x1100, 0x1113)) | set(range(0xAC00, 0xD7A4, 28))
    seconds = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    for c in known:
        parts = ud.decomposition(chr(c)).split()
        if (
            len(parts) == 2
            and not parts[0].startswith("<")
            and ud.normalize("NFC", chr(c)) == chr(c)
        ):
            firsts.add(int(parts[0], 16))
            seconds.add(int(parts[1], 16))
    return firsts, seconds


def nfc_flags():
    """code point -> NFC_UNSAFE (may change, or join what stands before), NFC_STARTS."""
    known = known_to_normaliser()
    firsts, seconds = compositions(known)
    flags = {}
    for c in known:
        char = chr(c)
        if not 0xD800 <= c <= 0xDFFF:
            unsafe = ud.combining(char) or c in seconds or ud.normalize("NFC", char) != char
            flags[c] = (NFC_UNSAFE if unsafe else 0) | (NFC_STARTS if c in firsts else 0)
    return flags


def main():
    if ud.unidata_version != VERSION:
        sys.exit(f"unicodedata2 {VERSION} is needed, this is {ud.unidata_version}")
    flags = nfc_flags()
    info = bytearray(
        SINGLES.get(c, CATEGORIES.index(ud.category(chr(c)))) | flags.get(c, 0)
        for c in range(0x110000)
    )
    blocks, index = {}, []
    for i in range(0, len(info), BLOCK):
        index.append(blocks.setdefault(bytes(info[i : i + BLOCK]), len(blocks)))
    out = [
        "/* Made by tools/unicode/make_tables.py from Unicode " + VERSION + "; do not edit. */",
        '#include "text/unicode.h"',
        "",
        f'const char unicode_version[] = "{VERSION}";',
        "",
        f"const uint16_t unicode_block_of[{len(index)}] = {{",
    ]
    out += rows(index)
    out += ["};", "", f"const uint8_t unicode_info_of[{len(blocks)}][UNICODE_BLOCK] = {{"]
    for block in blocks:
        out.append("    {")
        out += rows(block, "     ")
        out.append("    },")
    out.append("};")
    print("\n".join(out))


def rows(values, indent="    "):
    lines, line = [], indent
    for value in values:
        text = f"{value}," if line == indent else f" {value},"
        if len(line) + len(text) > 100:
            lines.append(line)
            line, text = indent, text.lstrip()
        line += text
    return lines + [line]


if __name__ == "__main__":
    main()
