#!python
"""The script `nepit`: finds the package without importing it, and becomes its command."""

import os
import runpy
import sys
from importlib.util import find_spec

spec = find_spec("nepit")
if spec is None or not spec.submodule_search_locations:
    sys.exit("nepit: this Python does not have the package nepit")
runpy.run_path(os.path.join(spec.submodule_search_locations[0], "__main__.py"), run_name="__main__")
