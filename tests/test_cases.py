"""docs/CASES.md: every test that it names exists, and the numbers of the tests stand in it."""

import pathlib
import re

TESTS = pathlib.Path(__file__).resolve().parent
PAGE = (TESTS.parent / "docs" / "CASES.md").read_text()
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines()
        if re.match(r"\| C\d", line)]
SOURCES = {path.stem: path.read_text() for path in TESTS.rglob("test_*")
           if path.suffix in (".py", ".c") and path.name != "test_cases.py"}


def test_the_table_is_whole():
    numbers = [row[0] for row in ROWS]
    assert len(ROWS) == 117 and numbers == sorted(set(numbers))
    for number, asked, tests, later in ROWS:
        assert asked and (tests or later), number
        assert not later or later.startswith("later: "), number


def test_every_named_test_exists():
    for number, _, tests, _ in ROWS:
        for file, name in re.findall(r"`(\w+)\.(\w+)`", tests):
            definition = rf"^(?:def|static void) {name}\("
            assert re.search(definition, SOURCES[file], re.M), (number, file, name)
            assert number.lower() in SOURCES[file].lower(), f"{number} does not stand in {file}"


def test_every_number_of_the_tests_is_in_the_table():
    tested = {number for number, _, tests, _ in ROWS if tests}
    for file, source in SOURCES.items():
        found = re.findall(r"(?<![a-z0-9])c\d{3}(?=\b|_)", source, re.I)
        unknown = {number.upper() for number in found} - tested
        assert not unknown, (file, unknown)
