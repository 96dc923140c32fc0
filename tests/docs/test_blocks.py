"""Every code block of the documentation is run."""

import pages
import pytest

# who runs the blocks of another kind
ELSEWHERE = {
    "c": "tests/cli/test_readme.py compiles it",
    "{include}": "Sphinx",
    "{toctree}": "Sphinx",
    "{eval-rst}": "Sphinx",
}
WITH_PYTHON = [
    page
    for page in pages.PAGES
    if any(block.language == "python" for block in pages.blocks_of(page))
]
SHELL = [
    pytest.param(block, id=f"{page.stem}-{i}")
    for page in pages.PAGES
    if page.name != "SERVER.md"  # tests/server/test_client_curl.py has a server for it
    for i, block in enumerate(pages.blocks_of(page))
    if block.language == "sh"
]


def test_every_block_is_of_a_kind_that_is_run():
    kinds = {block.language for page in pages.PAGES for block in pages.blocks_of(page)}
    assert kinds <= {"python", "sh", *ELSEWHERE}


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_python_prints_what_the_page_shows(page):
    blocks = [block for block in pages.blocks_of(page) if block.language == "python"]
    for block, printed in zip(blocks, pages.run_python(blocks), strict=True):
        assert block.output in (None, printed), block.code


@pytest.mark.parametrize("block", SHELL)
def test_commands_print_what_the_page_shows(block, tmp_path):
    done = pages.run_shell(block.code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert block.output in (None, done.stdout)
