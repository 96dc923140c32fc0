"""examples/distil_trl.py, shortened, as a user calls it.

NEPIT_TRL_PYTHON=/one/python:/another/python      environments by colons; those are used that have
                                                  gguf, and trl with its trainer for served teachers
"""

import os
import re
import subprocess

import pytest
from checkout import BUILD, DEMO, ROOT

PYTHONS = [path for path in os.environ.get("NEPIT_TRL_PYTHON", "").split(os.pathsep) if path]
NEEDS = "import gguf, requests, trl.experimental.server_distillation"


@pytest.mark.long
@pytest.mark.parametrize("python", PYTHONS or [None])
def test_the_loss_goes_down_and_the_teachers_values_are_gathers(python):
    if python is None:
        pytest.skip("NEPIT_TRL_PYTHON names no Python with trl")
    if subprocess.run([python, "-W", "ignore", "-c", NEEDS], capture_output=True).returncode:
        pytest.skip(f"{python} cannot: {NEEDS}")
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    command = os.environ.get("NEPIT", str(BUILD / "nepit"))
    done = subprocess.run(
        [python, "-W", "ignore", "examples/distil_trl.py", "--steps", "4", "--model", str(DEMO)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "NEPIT_COMMAND": command},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    losses = [float(loss) for loss in re.findall(r"^step +\d+  loss (\S+)", done.stdout, re.M)]
    assert len(losses) == 4
    assert losses[-1] < 0.8 * losses[0]
    assert re.search(r"^\d+00 values of the teacher are gather's, bit for bit$", done.stdout, re.M)
