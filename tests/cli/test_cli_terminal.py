"""Pipes, terminals, signals, files: where results go and how a run ends."""

import json
import os
import pty
import select
import signal
import stat
import subprocess
import time

import pytest
from clirun import DEMO, NEPIT, environment, nepit, refused

ENDLESS = b'{"token_ids":[%s]}\n' % b",".join(b"%d" % (i % 300) for i in range(120))


def on_terminal(arguments, seconds=60, stdin=subprocess.DEVNULL, until=None, **env):
    """What the command writes on a terminal that is its stdout and stderr, and its status."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [NEPIT, *map(str, arguments)],
        stdin=stdin,
        stdout=side,
        stderr=side,
        env=environment(TERM="xterm", **env),
    )
    os.close(side)
    seen, deadline = b"", time.monotonic() + seconds
    while time.monotonic() < deadline and not (until and until in seen):
        if not select.select([main], [], [], 0.1)[0]:
            continue
        try:
            seen += os.read(main, 65536)
        except OSError:  # the other side is closed
            break
    if until:
        process.kill()
    status = process.wait(30)
    os.close(main)
    return seen, status


def test_a_terminal_gets_colour_and_a_pipe_does_not():
    assert b"\x1b[3" in on_terminal(["score", "hello"])[0]
    assert b"\x1b" not in on_terminal(["score", "hello"], NO_COLOR="1")[0]
    assert b"\x1b[3" in on_terminal(["score", "hello"], NO_COLOR="")[0]
    assert b"\x1b" not in on_terminal(["score", "hello", "--json"])[0]
    assert b"\x1b" not in nepit("score", "hello", TERM="xterm").out


@pytest.mark.skipif(not DEMO.exists(), reason="the demo model is not there; ./run demo gets it")
def test_a_bar_on_a_terminal_after_a_second(tmp_path):
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b'{"token_ids":[%s]}\n' % b",".join([b"7"] * 500) * 30)
    arguments = ["score", "-m", DEMO, "--jsonl", path, "-o", "/dev/null", "--threads", "1"]
    seen, _ = on_terminal(arguments, until=b"score [")
    assert seen.split(b"\r")[-1].startswith(b"score [")
    never, _ = on_terminal(["info", "-m", DEMO, "--progress", "never", "-o", "/dev/null"])
    assert never == b""


def test_no_bar_for_short_work_nor_without_a_terminal():
    assert b"[" not in on_terminal(["score", "hello"], NO_COLOR="1")[0]
    assert nepit("score", "hello").err == b""


def endless(*arguments):
    """A command that is fed without end; returns the process and what feeds it."""
    process = subprocess.Popen(
        [NEPIT, *arguments, "--jsonl", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    feed = "import sys\nwhile True: sys.stdout.buffer.write(%r)" % (ENDLESS * 50)
    import sys

    feeder = subprocess.Popen(
        [sys.executable, "-c", feed], stdout=process.stdin, stderr=subprocess.DEVNULL
    )
    process.stdin.close()
    return process, feeder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_complete_lines_and_ends_within_a_second(number):
    process, feeder = endless("score")
    first = process.stdout.readline()
    began = time.monotonic()
    process.send_signal(number)
    rest = process.stdout.read()
    assert process.wait(10) == 128 + number
    assert time.monotonic() - began < 5  # one second, and a busy machine
    feeder.kill()
    feeder.wait()
    assert all(json.loads(line)["n_tokens"] == 120 for line in (first + rest).splitlines())
    assert rest == b"" or rest.endswith(b"\n")
    assert process.stderr.read() == b""
    process.stdout.close()
    process.stderr.close()


def test_ctrl_c_while_waiting_for_input():
    with subprocess.Popen(
        [NEPIT, "score", "--jsonl", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    ) as process:
        process.stdin.write(b'{"token_ids":[1,2]}\n')
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130


def test_a_closed_pipe_ends_quietly():
    process, feeder = endless("score")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()
    feeder.kill()
    feeder.wait()


def test_a_pipe_closed_before_the_first_byte():
    for arguments in (["score", "hello"], ["--help"], ["info"], ["--version"]):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [NEPIT, *arguments], stdout=writer, stderr=subprocess.PIPE, env=environment()
        )
        os.close(writer)
        assert done.returncode == 0 and done.stderr == b""


@pytest.mark.parametrize(
    "arguments",
    [
        ["score", "hello"],
        ["info"],
        ["next", "x"],
        ["tokenize", "x"],
        ["--help"],
        ["score", "hello", "-o", "/dev/full"],
    ],
)
def test_a_full_disk_is_an_error(arguments):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [NEPIT, *arguments], stdout=full, stderr=subprocess.PIPE, env=environment()
        )
    assert (
        done.returncode == 1 and done.stderr.count(b"\n") == 1 and b"No space left" in done.stderr
    )


def test_output_goes_to_a_file_that_is_whole_or_not_there(tmp_path):
    out = tmp_path / "out"
    done = nepit("score", "hello", "--json", "-o", out)
    assert done.out == b"" and out.read_bytes() == nepit("score", "hello", "--json").out
    assert stat.S_IMODE(out.stat().st_mode) == 0o666 & ~current_umask()
    process = subprocess.Popen(
        [NEPIT, "score", "--jsonl", "-", "-o", str(out)], stdin=subprocess.PIPE, env=environment()
    )
    process.stdin.write(b'{"token_ids":[1,2]}\n')
    process.stdin.flush()
    while len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    process.stdin.close()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert out.read_bytes() == nepit("score", "hello", "--json").out


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_output_through_a_link_replaces_the_file_it_names(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    nepit("score", "hello", "--json", "-o", tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text().startswith("{")


def test_output_to_a_device_does_not_replace_it(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    process = subprocess.Popen(["cat", str(tmp_path / "fifo")], stdout=subprocess.PIPE)
    nepit("score", "hello", "--json", "-o", tmp_path / "fifo")
    assert process.communicate(timeout=10)[0] == nepit("score", "hello", "--json").out
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)


@pytest.mark.parametrize(
    "arguments",
    [
        ["tokenize", "a"],
        ["score", "a"],
        ["next", "a"],
        ["gather", "a", "--candidates", "5"],
        ["generate", "a"],
        ["perplexity", "a"],
        ["info"],
    ],
)
def test_output_that_cannot_be_written_is_told_before_the_model_is_read(tmp_path, arguments):
    ends = [".npy", ".npz", ""] if arguments[0] == "gather" else [""]
    for end in ends:
        out = f"{tmp_path}/no/out{end}"
        line = refused(*arguments, "-o", out, "-m", "/nonexistent", status=1)
        assert line == f"nepit: {out}: No such file or directory"
    assert "directory" in refused(*arguments, "-o", tmp_path, status=1)
    assert list(tmp_path.iterdir()) == []
    refused(*arguments, "-o", tmp_path / "out", "-m", "/nonexistent", status=3)
    assert list(tmp_path.iterdir()) == []
