"""Every code block of the documentation is run."""

import subprocess

import pages
import pytest

# who runs the blocks of another kind
ELSEWHERE = {
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
    assert kinds <= {"python", "sh", "c", *ELSEWHERE}


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


def test_the_program_in_c(tmp_path):
    (code,) = [
        block.code for block in pages.blocks_of(pages.ROOT / "README.md") if block.language == "c"
    ]
    assert code.count("\n") <= 30
    (tmp_path / "example.c").write_text(code)
    command = ["cc", "-std=c11", "-Wall", "-Werror", "example.c", f"-I{pages.ROOT / 'include'}"]
    command += [f"-L{pages.BUILD}", "-lnepit", f"-Wl,-rpath,{pages.BUILD}", "-o", "example"]
    subprocess.run(command, cwd=tmp_path, check=True)
    printed = pages.run_shell('./example "$NEPIT_MODEL"', tmp_path).stdout
    assert printed.splitlines()[0].split() == ["row", "4,", "token", "7042:", "-0.2581"]
    assert len(printed.splitlines()) == 6
