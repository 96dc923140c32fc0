"""docs/reading.ipynb: run, and its outputs compared with those that it stores.

    .venv/bin/python tests/docs/notebook.py     runs it and stores what it prints
"""

import os
import sys

import nbformat
import pages
from nbclient import NotebookClient

NOTEBOOK = pages.ROOT / "docs/reading.ipynb"


def run():
    """The notebook with fresh outputs."""
    os.environ["NEPIT_LIBRARY"] = str(pages.BUILD / "libnepit.so")
    os.environ["PYTHONPATH"] = str(pages.ROOT / "python")
    notebook = nbformat.read(NOTEBOOK, 4)
    client = NotebookClient(
        notebook,
        timeout=120,
        coalesce_streams=True,
        resources={"metadata": {"path": NOTEBOOK.parent}},
    )
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times of day
    return notebook


def outputs(notebook):
    return [cell.get("outputs") for cell in notebook.cells]


if __name__ == "__main__":
    nbformat.write(run(), NOTEBOOK)
    sys.exit()
