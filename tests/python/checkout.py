"""Where this checkout has its parts; the package over the library of the build folder (NEPIT_BUILD,
or build).
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("NEPIT_BUILD", ROOT / "build")).resolve()
MODELS = ROOT / "tests/data/models"
DEMO = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"

os.environ.setdefault("NEPIT_LIBRARY", str(BUILD / "libnepit.so"))
sys.path.insert(0, str(ROOT / "python"))
