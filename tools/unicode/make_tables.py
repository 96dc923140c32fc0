#!/usr/bin/env python3
"""Writes src/text/unicode_tables.c: the class of every code point, from one Unicode version.

    pip install unicodedata2==16.0.0
    python tools/unicode/make_tables.py > src/text/unicode_tables.c

The version is that of the regex engine which `tokenizers` 0.23 uses (Oniguruma with Unicode 16.0);
tests/text/test_parity.py compares the classes with that engine, code point by code point.
"""
import sys

import unicodedata2 as ud

VERSION = "16.0.0"
BLOCK = 128
CATEGORIES = ("Cc Cf Cn Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps "
              "Sc Sk Sm So Zl Zp Zs").split()
# Code points that a rule may tell from the rest of their category; numbers follow the categories.
SINGLES = {0x85: 30, 0x17F: 31, 0x212A: 32}
NFC_UNSAFE = 0x40


def seconds_of_compositions():
    """Code points that NFC may join to the one before them (NFC_QC=Maybe)."""
    seconds = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    for c in range(0x110000):
        parts = ud.decomposition(chr(c)).split()
        if len(parts) == 2 and not parts[0].startswith("<") and ud.normalize("NFC", chr(c)) == chr(c):
            seconds.add(int(parts[1], 16))
    return seconds


def main():
    if ud.unidata_version != VERSION:
        sys.exit(f"unicodedata2 {VERSION} is needed, this is {ud.unidata_version}")
    seconds = seconds_of_compositions()
    info = bytearray()
    for c in range(0x110000):
        char = chr(c)
        value = SINGLES.get(c, CATEGORIES.index(ud.category(char)))
        surrogate = 0xD800 <= c <= 0xDFFF
        if not surrogate and (ud.combining(char) or c in seconds or ud.normalize("NFC", char) != char):
            value |= NFC_UNSAFE
        info.append(value)
    blocks, index = {}, []
    for i in range(0, len(info), BLOCK):
        index.append(blocks.setdefault(bytes(info[i:i + BLOCK]), len(blocks)))
    out = ["/* Made by tools/unicode/make_tables.py from Unicode " + VERSION + "; do not edit. */",
           '#include "text/unicode.h"', "",
           f'const char unicode_version[] = "{VERSION}";', "",
           f"const uint16_t unicode_block_of[{len(index)}] = {{"]
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
