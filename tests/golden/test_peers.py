"""Other engines compute the same log-probabilities: those that bench/peers/setup.sh installed."""

import json
import subprocess
import sys

import pytest

import nprun


@pytest.mark.peers
def test_peers_agree():
    """Without turns, bench/peers/run.py only compares; its status says whether they agree."""
    if not nprun.DEMO.exists():
        pytest.skip(f"models/{nprun.DEMO.name} is not here: ./run demo gets it")
    command = [sys.executable, str(nprun.ROOT / "bench" / "peers" / "run.py"), "--repeats", "0"]
    command += ["--case", "s64", "decode"]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    print(done.stdout)
    assert done.returncode == 0, f"{lines}\n{done.stderr[-2000:]}"
    assert any(line.get("ours") == "nepit f32" for line in lines)
