"""The files of packaging/, as far as they can be tried without a running systemd or Docker."""

import json
import re
import shutil
import subprocess

import pytest
from clirun import NEPIT, ROOT

DOCKERFILE = (ROOT / "packaging" / "Dockerfile").read_text()
UNIT = (ROOT / "packaging" / "nepit.service").read_text()


def test_the_health_check_of_the_image(serve):
    command = json.loads(re.search(r"^HEALTHCHECK .*?CMD (\[.*?\])$", DOCKERFILE.replace(
        "\\\n", ""), re.M)[1])
    with serve() as server:
        def healthy():
            asked = [part.replace("/8000", f"/{server.port}") for part in command]
            return subprocess.run(asked, capture_output=True, timeout=10).returncode == 0

        assert healthy()
    assert not healthy()


def test_the_image_is_small_and_not_root():
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.M)[1:]
    assert len(stages) == 2 and all(stage.startswith("debian:bookworm-slim") for stage in stages)
    assert "-dev" not in stages[1] and "gcc" not in stages[1]
    user = re.search(r"^USER (\d+):(\d+)$", stages[1], re.M)
    assert int(user[1]) > 0 and int(user[2]) > 0
    packages = re.search(r"^build +(.*)$", (ROOT / "tools" / "packages.txt").read_text(), re.M)[1]
    libraries = {name for name in packages.split() if name.endswith("-dev")}
    assert libraries <= set(stages[0].split()), libraries - set(stages[0].split())


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
def test_the_unit_is_hardened(tmp_path):
    unit = tmp_path / "nepit.service"
    unit.write_text(UNIT.replace("/usr/bin/nepit", NEPIT))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True,
                              text=True)
    assert verified.returncode == 0 and "nepit.service" not in verified.stderr, verified.stderr
    judged = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20",
                             unit], capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout[-400:]
