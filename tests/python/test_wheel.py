"""The package as it is installed: the list of its modules, its version, its command; and the wheel
and the sdist, in environments that have neither this checkout nor a compiler.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from pathlib import Path

import pytest
from checkout import BUILD, DEMO, ROOT
from nepit import _bridge

COMMAND = os.environ.get("NEPIT", str(BUILD / "nepit"))
VERSION = re.search(r"version: '(.*?)'", (ROOT / "meson.build").read_text())[1]


def run(*command, status=0, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == status, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    return done


# ---- what needs no wheel -------------------------------------------------------------------------


def test_every_module_is_installed():
    listed = re.findall(r"^  '(nepit/.*?)',$", (ROOT / "python/meson.build").read_text(), re.M)
    package = ROOT / "python/nepit"
    there = [path for path in package.rglob("*") if path.suffix in (".py", ".typed")]
    assert listed == sorted(str(path.relative_to(package.parent)) for path in there)


def test_the_version_has_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"] and "version" not in project
    assert VERSION == _bridge.VERSION == _bridge.lib.np_version().decode()


def python_m(*arguments, command=COMMAND, **options):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "NEPIT_COMMAND": command}
    return run(sys.executable, "-m", "nepit", *arguments, env=env, **options)


def test_python_m_nepit_is_the_command():
    assert python_m("--version").stdout == run(COMMAND, "--version").stdout
    wrong = run(COMMAND, "nothing", status=2)
    assert python_m("nothing", status=2).stderr == wrong.stderr
    gone = python_m("--version", command="/nowhere/nepit", status=1)
    assert "/nowhere/nepit: No such file" in gone.stderr and "NEPIT_COMMAND" in gone.stderr


def test_the_command_has_the_signals_of_any_program(tmp_path):
    """Python ignores SIGPIPE; its child must not."""
    told = tmp_path / "ignored"
    told.write_text("#!/bin/sh\nsed -n 's/^SigIgn:\\t//p' /proc/self/status\n")
    told.chmod(0o755)
    ignored = int(python_m(command=str(told)).stdout, 16)
    assert not ignored >> (signal.SIGPIPE - 1) & 1 and not ignored >> (signal.SIGXFSZ - 1) & 1


# ---- the wheel -----------------------------------------------------------------------------------


def pythons():
    """One of each version from 3.10 on that this machine has."""
    places = [Path(sys.executable), *map(Path, filter(None, map(shutil.which, NAMES)))]
    places += sorted(Path.home().glob(".pyenv/versions/*/bin/python"))
    found = {}
    for place in places:
        code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
        told = subprocess.run([place, "-c", code], capture_output=True, text=True).stdout.strip()
        if told and tuple(map(int, told.split("."))) >= (3, 10):
            found.setdefault(told, place)
    return found


NAMES = [f"python3.{minor}" for minor in range(10, 16)]
PYTHONS = pythons()
# what manylinux promises of every machine (the command alone needs zlib, as Python does)
SYSTEM = {"libc.so.6", "libm.so.6", "libz.so.1", "ld-linux-x86-64.so.2"}


@pytest.fixture(scope="session")
def dist():
    if not (ROOT / ".git").exists():
        pytest.skip("an sdist is made of a commit: this is no git checkout")
    run(sys.executable, ROOT / "tools/build_wheel.py")
    return ROOT / "dist"


@pytest.fixture(scope="session")
def wheel(dist):
    (wheel,) = dist.glob("nepit-*.whl")
    return wheel


@pytest.fixture(scope="session")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def environment(place, python, *install):
    """An environment with those packages, and the variables that its programs see: a PATH without
    a compiler, nothing of this checkout."""
    run(python, "-m", "venv", place)
    done = subprocess.run(
        [place / "bin/python", "-m", "pip", "install", "-q", *install],
        capture_output=True,
        text=True,
    )
    if done.returncode and "No matching distribution found for numpy" in done.stderr:
        pytest.skip("numpy cannot be had: no package index")
    assert done.returncode == 0, done.stderr[-3000:]
    return {"PATH": f"{place}/bin", "HOME": str(place)}


@pytest.fixture(scope="session", params=sorted(PYTHONS))
def installed(request, wheel, tmp_path_factory):
    """(folder of an environment with the wheel, its variables)"""
    place = tmp_path_factory.mktemp("venv") / "venv"
    return place, environment(place, PYTHONS[request.param], "--only-binary=:all:", wheel)


@pytest.mark.long
def test_the_wheel_is_for_every_python(wheel, unpacked):
    assert re.fullmatch(rf"nepit-{VERSION}-py3-none-manylinux_\d+_\d+_x86_64.whl", wheel.name)
    assert wheel.stat().st_size < 8_000_000
    info = unpacked / f"nepit-{VERSION}.dist-info"
    tags = re.findall("^Tag: (.*)$", (info / "WHEEL").read_text(), re.M)
    assert tags == [wheel.stem.split("-", 2)[2]]
    metadata = (info / "METADATA").read_text()
    assert "Requires-Python: >=3.10" in metadata
    for name in re.findall("^License-File: (.*)$", metadata, re.M):
        assert (info / "licenses" / name).stat().st_size > 0
    told = (info / "licenses/bundled/LICENSES.txt").read_text()
    assert told.count("\nlib") == len(list((unpacked / "nepit.libs").iterdir())) > 4


def needed(path):
    return set(re.findall(r"\(NEEDED\).*\[(.*?)\]", run("readelf", "-d", path).stdout))


@pytest.mark.long
def test_nothing_of_the_machine_is_needed(unpacked):
    libraries = {path.name for path in (unpacked / "nepit.libs").iterdir()}
    library, command = unpacked / "nepit/libnepit.so.0", unpacked / "nepit/bin/nepit"
    for path in (library, command, *(unpacked / "nepit.libs").iterdir()):
        assert needed(path) <= SYSTEM | libraries, path
    for word in ("microhttpd", "curl", "zstd", "libz", "gnutls"):
        assert not [name for name in needed(library) if word in name]


@pytest.mark.long
def test_every_instruction_set_is_inside(unpacked):
    for path in (unpacked / "nepit/libnepit.so.0", unpacked / "nepit/bin/nepit"):
        code = run("objdump", "-d", "--no-show-raw-insn", path).stdout
        for instruction in ("vfmadd231ps .*%ymm", "vfmadd231ps .*%zmm", "vdpbf16ps"):
            assert re.search(instruction, code), (path, instruction)


@pytest.mark.long
def test_the_command_of_the_wheel(installed, tmp_path):
    place, env = installed
    text = "The capital of France is Paris."
    options = {"cwd": tmp_path, "env": env}
    assert run("nepit", "--version", **options).stdout == run(COMMAND, "--version").stdout
    expected = run(COMMAND, "score", "-m", DEMO, "--json", text).stdout
    assert run("nepit", "score", "-m", DEMO, "--json", text, **options).stdout == expected
    python = place / "bin/python"
    info = run(python, "-m", "nepit", "info", "-m", DEMO, **options).stdout
    assert "SmolLM2" in info
    assert run("nepit", "nothing", status=2, **options).stderr.startswith("nepit: ")


@pytest.mark.long
def test_the_server_of_the_wheel(installed, tmp_path):
    _, env = installed
    command = ["nepit", "serve", "-m", DEMO, "--port", "0"]
    server = subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    with server:
        url = next(found[0] for line in server.stderr if (found := re.search(r"http://\S+", line)))
        with urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=60) as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGTERM)
        server.stderr.read()
        assert server.wait(60) == 0


@pytest.mark.long
def test_the_quick_starts_of_the_readme(installed, tmp_path):
    place, env = installed
    (tmp_path / "models").symlink_to(DEMO.parent)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert blocks
    for block in blocks:
        run(place / "bin/python", "-W", "error", "-c", block, env=env, cwd=tmp_path)


@pytest.mark.long
def test_importing_the_wheel_is_quick(installed, tmp_path):
    place, env = installed
    code = (
        "import time\nbegan = time.process_time()\nimport numpy\nmiddle = time.process_time()\n"
        "import nepit\nprint(middle - began, time.process_time() - middle)\n"
    )
    command = (place / "bin/python", "-c", code)
    told = [run(*command, env=env, cwd=tmp_path).stdout.split() for _ in range(7)]
    numpy_s, own_s = (min(map(float, times)) for times in zip(*told, strict=True))
    print(f"numpy {numpy_s * 1e3:.0f} ms, nepit {own_s * 1e3:.0f} ms more")
    assert own_s < 0.1


@pytest.mark.long
def test_the_same_commit_gives_the_same_bytes(dist, tmp_path):
    run(sys.executable, ROOT / "tools/build_wheel.py", tmp_path)
    for first in dist.glob("nepit-*"):
        assert (tmp_path / first.name).read_bytes() == first.read_bytes(), first.name


# ---- the sdist -----------------------------------------------------------------------------------


@pytest.mark.long
def test_the_sdist_holds_the_commit_and_no_more(dist):
    (sdist,) = dist.glob("nepit-*.tar.gz")
    assert sdist.stat().st_size < 5_000_000
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = run("git", "ls-tree", "-r", "--name-only", "HEAD", cwd=ROOT).stdout.split()
    assert names == {*listed, "PKG-INFO"}


@pytest.mark.long
def test_the_sdist_installs_from_source(dist, tmp_path):
    (sdist,) = dist.glob("nepit-*.tar.gz")
    env = environment(tmp_path / "venv", sys.executable, sdist)
    code = f"import nepit; print(nepit.open({str(DEMO)!r}).score('A scored text.').total)"
    run(tmp_path / "venv/bin/python", "-c", code, env=env, cwd=tmp_path)
    assert VERSION in run("nepit", "--version", env=env, cwd=tmp_path).stdout


@pytest.mark.long
def test_the_sdist_names_the_packages_that_are_missing(dist, tmp_path):
    (sdist,) = dist.glob("nepit-*.tar.gz")
    run(sys.executable, "-m", "venv", tmp_path)
    env = {**os.environ, "PKG_CONFIG_LIBDIR": "/nowhere"}
    done = run(tmp_path / "bin/python", "-m", "pip", "install", sdist, status=1, env=env)
    assert "apt-get install pkg-config libjansson-dev libpcre2-dev" in done.stdout + done.stderr
