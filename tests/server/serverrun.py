"""Runs `nepit serve` for the tests of this folder, and asks the command for what it must answer.

The command is found as in tests/cli (clirun.py): $NEPIT, or nepit in the build folder.
"""

import base64
import contextlib
import http.client
import io
import json
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

import numpy as np
from clirun import DEMO, LLAMA, NEPIT, answers, environment

START = re.compile(r"nepit: serving (.*) at http://(\S+):(\d+) \(fingerprint .*\)$")
STOP = "nepit: stopping; requests that run are answered"


class Answer:
    """What came back: .status, .headers (names in lower case), .body, .text, .json."""

    def __init__(self, status, headers, body):
        self.status, self.body = status, body
        self.headers = {name.lower(): value for name, value in headers}

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The error object, whose shape is checked."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["code"] == self.status
        assert error["message"] and error["type"]
        return error


class Server:
    """One process. `with serve(...) as server:` starts and ends it; each request has its own
    connection, so that threads may share a server."""

    def __init__(self, *arguments, model=LLAMA, port=0, wait=True, **env):
        self.log_file = tempfile.NamedTemporaryFile(prefix="nepit-access-", suffix=".jsonl")
        command = [NEPIT, "serve", "-m", str(model), "--port", str(port)]
        command += ["--access-log", self.log_file.name, *map(str, arguments)]
        self.lines, self.model = [], model
        self.host, self.port = "127.0.0.1", port
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment(**env))
        self.started = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if wait:
            self.wait()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.decode().rstrip("\n"))
            found = START.match(self.lines[-1])
            if found:
                self.host, self.port = found[2].strip("[]"), int(found[3])
                self.started.set()
        self.started.set()

    def wait(self, seconds=60):
        """Until it answers requests."""
        assert self.started.wait(seconds) and self.port, self.lines
        return self

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    # -- plain requests

    def request(self, method, path, body=None, headers=None, timeout=60):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            sent = {"Content-Type": "application/json"} if body is not None else {}
            if isinstance(body, dict | list):
                body = json.dumps(body)
            body = body.encode() if isinstance(body, str) else body
            connection.request(method, path, body, {**sent, **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()

    def get(self, path, headers=None, status=200):
        answer = self.request("GET", path, None, headers)
        assert status is None or answer.status == status, (answer.status, answer.body[:2000])
        return answer

    def post(self, path, body, headers=None, status=200):
        """body: an object, or bytes as they are. status: what is expected; None: any."""
        answer = self.request("POST", path, body, headers)
        assert status is None or answer.status == status, (answer.status, answer.body[:2000])
        return answer

    def refused(self, path, body, param=None, status=400, headers=None):
        """The message of an error whose field path is `param`."""
        error = self.post(path, body, headers, status).error
        assert error["param"] == param, error
        return error["message"]

    def stream(self, path, body, headers=None, status=200):
        """The events of a stream, without the last one, which must be [DONE]."""
        answer = self.post(path, {**body, "stream": True}, headers, status)
        assert answer.headers["content-type"] == "text/event-stream"
        events = answer.text.split("\n\n")
        assert events.pop() == "" and events.pop() == "data: [DONE]", answer.text[-2000:]
        assert all(event.startswith("data: ") and "\n" not in event for event in events)
        return [json.loads(event[6:]) for event in events]

    # -- bytes

    def connect(self, timeout=30):
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def raw(self, sent, timeout=30):
        """Sends bytes as they are and reads until the other side closes."""
        with self.connect(timeout) as connection:
            connection.sendall(sent)
            received = b""
            while more := connection.recv(1 << 16):
                received += more
            return received

    # -- what it leaves

    def log(self, request_id=None, seconds=10):
        """The access log; with an id, the one line of it, which may come after the answer."""
        end = time.monotonic() + seconds
        while True:
            with open(self.log_file.name) as file:
                lines = [json.loads(line) for line in file if line.endswith("\n")]
            if request_id is None:
                return lines
            found = [line for line in lines if line["request_id"] == request_id]
            if found:
                (line,) = found
                return line
            assert time.monotonic() < end, f"{request_id} is not in the access log"
            time.sleep(0.01)

    def metrics(self):
        """name{labels} -> number."""
        lines = self.get("/metrics").text.splitlines()
        values = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in values}

    def stop(self, number=signal.SIGTERM):
        """Ends it; what it wrote to standard error must be its two lines and nothing else."""
        self.process.send_signal(number)
        status = self.process.wait(60)
        self.reader.join(10)
        self.process.stderr.close()
        self.log_file.close()
        assert status == 0, (status, self.lines[-40:])
        assert [bool(START.match(line)) for line in self.lines] == [True, False], self.lines
        assert self.lines[1] == STOP

    def kill(self):
        """For a test that has failed already, or whose server never became ready."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        self.reader.join(10)
        self.process.stderr.close()
        self.log_file.close()


@contextlib.contextmanager
def serve(*arguments, **options):
    """serve("--max-body", "1K", model=DEMO): a server of its own, which must end well."""
    server = Server(*arguments, **options)
    try:
        yield server
    except BaseException:
        server.kill()
        raise
    server.stop()


class Library:
    """The same numbers by another way: the command's JSON lines."""

    def __init__(self, model=LLAMA):
        self.model = model

    def ask(self, word, requests, *arguments):
        return answers(word, requests, *arguments, NEPIT_MODEL=str(self.model))

    def score(self, ids, **fields):
        """logprobs, ranks, top_logprobs, ... as `nepit score` tells them."""
        return self.ask("score", [{"token_ids": ids, **fields}])[0]

    def gather(self, ids, candidates, **fields):
        """float32 [rows, K], -inf as it is."""
        fields = {"token_ids": ids, "prompt_logprob_token_ids": candidates, **fields}
        return floats(self.ask("gather", [fields])[0]["scores"])

    def generate(self, ids, **fields):
        """The objects of all choices."""
        return self.ask("generate", [{"token_ids": ids, **fields}])

    def tokenize(self, text, **fields):
        return self.ask("tokenize", [{"prompt": text, **fields}])[0]


def floats(lists):
    """Numbers of a JSON as float32; -9999.0 is minus infinity."""
    array = np.array(lists, dtype=np.float32)
    return np.where(array == np.float32(-9999), np.float32(-np.inf), array)


def npy(text):
    """base64 of a .npy file, or its bytes -> the array."""
    content = base64.b64decode(text, validate=True) if isinstance(text, str) else text
    return np.load(io.BytesIO(content), allow_pickle=False)


def base64_npy(array):
    """The array as base64 of a .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return base64.b64encode(file.getvalue()).decode()


def same_bits(left, right):
    left, right = np.asarray(left), np.asarray(right)
    return left.dtype == right.dtype and left.shape == right.shape and \
        left.tobytes() == right.tobytes()


__all__ = ["DEMO", "LLAMA", "Answer", "Library", "Server", "base64_npy", "floats", "npy",
           "same_bits", "serve"]
