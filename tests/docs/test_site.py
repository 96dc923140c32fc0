"""The site is built without a warning, and its notebook gives what it shows."""

import ast
import os
import re
import subprocess
import sys

import nbformat
import notebook
import pages


def test_the_site_is_built_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    environment = {**os.environ, "NEPIT_LIBRARY": str(pages.BUILD / "libnepit.so")}
    done = subprocess.run(
        [*command, "-d", tmp_path / "doctrees", pages.ROOT / "docs", tmp_path / "site"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "log-probability" in (tmp_path / "site/api.html").read_text()


def test_every_public_name_is_on_the_page():
    tree = ast.parse((pages.ROOT / "python/nepit/__init__.py").read_text())
    (names,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    ]
    page = (pages.ROOT / "docs/api.md").read_text()
    told = set(re.findall(r"^\.\. auto\w+:: (\w+)$", page, re.M))
    assert told == set(names) - {"__version__"}


def test_the_notebook_prints_what_it_shows():
    stored = nbformat.read(notebook.NOTEBOOK, 4)
    assert notebook.outputs(notebook.run()) == notebook.outputs(stored)
