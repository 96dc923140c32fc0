"""The documentation as a site: `./run docs` makes it of these pages, with warnings as errors.

Pages stay plain Markdown that reads well without Sphinx; only index.md and api.md are Sphinx's.
"""

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("NEPIT_LIBRARY", str(ROOT / "build/libnepit.so"))
sys.path.insert(0, str(ROOT / "python"))

project = "nepit"
version = release = re.search(r"version: '(.*?)'", (ROOT / "meson.build").read_text())[1]
author = "the authors of nepit"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
root_doc = "index"
exclude_patterns = ["README.md"]  # the list of pages for who reads the folder; index.md is the site's
html_theme = "furo"
html_title = f"nepit {version}"
html_show_sourcelink = False

myst_heading_anchors = 3
nb_execution_mode = "off"  # its outputs are stored, and compared by a test that runs it
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures have them
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
