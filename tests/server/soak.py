"""A mixed load: well-formed requests whose answers are known to the bit, and beside them what
breaks servers.

    python tests/server/soak.py PORT [--requests 10000] [--clients 64] [--bad 0.34] [--pid N]

Every well-formed answer is compared with what the same server answered when nothing else ran. What
differs from request to request (its id, the time, counts of cached tokens) is left out.
"""

import argparse
import collections
import http.client
import io
import json
import pathlib
import random
import re
import socket
import struct
import sys
import threading
import time

PATH = "/inference/v1/generate"
HOST = "127.0.0.1"
N_VOCAB = 301
VOLATILE = re.compile(rb'"(request_id|created|id|cached_tokens)":("[^"]*"|\d+),?')


# ---- well-formed --------------------------------------------------------------------------------


TEXTS = ["The quick brown fox", "Grüße, 世界!", "a\nb\tc", "1 2 3 4 5 6 7 8"]


def question_of(rng, i):
    """Each eighth asks another route."""
    text = TEXTS[i // 8 % len(TEXTS)]
    if i % 8 == 6:
        body = {"prompt": text, "max_tokens": 8, "seed": i, "stream": i % 16 == 6}
        return Question({**body, "ignore_eos": True}, path="/v1/completions")
    if i % 8 == 7 and i % 16 == 7:
        return Question({"prompt": text, "return_token_strs": True}, path="/tokenize")
    if i % 8 == 7:
        return Question({"prompt": [text, text[:3]], "max_tokens": 1, "seed": 1, "echo": True,
                         "logprobs": 2}, path="/v1/completions")
    return Question(body_of(rng, i))


def body_of(rng, i):
    ids = [rng.randrange(N_VOCAB) for _ in range(rng.choice([2, 5, 9, 30, 90]))]
    sampling = {"max_tokens": 0}
    body = {"token_ids": ids, "sampling_params": sampling}
    kind = i % 8
    if kind == 0:
        sampling["prompt_logprob_token_ids"] = [rng.randrange(N_VOCAB) for _ in range(8)]
    elif kind == 1:
        sampling["prompt_logprobs"] = rng.choice([0, 1, 20])
    elif kind == 2:
        sampling.update(max_tokens=6, seed=i, logprobs=3, ignore_eos=True)
    elif kind == 3:
        sampling["prompt_logprob_token_ids"] = [[i % N_VOCAB, -1, 7]] * (len(ids) - 1)
        sampling["prompt_logprob_tail"] = True
    elif kind == 4:
        sampling.update(max_tokens=12, seed=i, n=2, ignore_eos=True)
        body["output_mode"] = "text"
    else:
        sampling.update(prompt_logprobs=5, max_tokens=2, seed=1)
        body["stream"] = True
    return body


def known(answer, streamed):
    """The part of an answer that is the same each time. How a stream is cut into events depends on
    when its parts were ready, so it is what its events say together."""
    if not streamed:
        return VOLATILE.sub(b"", answer)
    events = answer.split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""], events[-2:]
    rows, tokens, texts, reasons = [], [], [], []
    for event in events[:-2]:
        part = json.loads(event.removeprefix(b"data: "))
        rows += part.get("prompt_logprobs") or []
        for choice in part["choices"]:
            tokens += choice.get("token_ids") or []
            texts.append(choice.get("text") or "")
            reasons.append(choice["finish_reason"])
    told = [rows, tokens, "".join(texts), [reason for reason in reasons if reason]]
    return json.dumps(told).encode()


class Question:
    def __init__(self, body, headers=None, path=PATH):
        self.path = path
        self.streamed = body.get("stream", False)
        self.body = json.dumps(body).encode()
        self.headers = {"Content-Type": "application/json", **(headers or {})}
        self.answer = None

    def ask(self, connection):
        connection.request("POST", self.path, self.body, self.headers)
        response = connection.getresponse()
        data = response.read()
        if response.status != 200:
            return response.status, data
        return 200, known(data, self.streamed)


def questions(port, n=64, seed=5):
    """With their answers, each asked alone."""
    rng = random.Random(seed)
    asked = [question_of(rng, i) for i in range(n)]
    scores = {"max_tokens": 0, "prompt_logprob_token_ids": [1, 2, 3]}
    npy = {"Accept": "application/octet-stream"}
    asked.append(Question({"token_ids": [5, 6, 7, 8], "sampling_params": scores}, npy))
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    for question in asked:
        status, question.answer = question.ask(connection)
        assert status == 200, (status, question.answer)
    connection.close()
    return asked


# ---- the others ---------------------------------------------------------------------------------


def post(body, *more, length=None, path=PATH):
    head = [f"POST {path} HTTP/1.1", "Host: localhost"]
    head += [f"Content-Length: {len(body) if length is None else length}", *more]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


LONG = json.dumps({"token_ids": [7] * 60, "stream": True,
                   "sampling_params": {"max_tokens": 100, "ignore_eos": True}}).encode()
PLAIN = LONG.replace(b"true", b"false", 1)
# (bytes, how many are sent before the client is gone, whether an answer is read)
REFUSED = [
    post(b"{"), post(b""), post(b"[]"), post(b"\xff\xfe"), post(b'{"token_ids":[1,2]'),
    post(b'{"token_ids":[301]}'), post(b'{"token_ids":[-1]}'), post(b'{"token_ids":[1.5]}'),
    post(b'{"token_ids":"no"}'), post(b'{"token_ids":[]}'), post(b"[" * 3000),
    post(b'{"token_ids":[1],"sampling_params":{"temperature":-1}}'),
    post(b'{"token_ids":[1],"sampling_params":{"prompt_logprob_token_ids":[[1],[2]]}}'),
    post(b'{"token_ids":' + b"[1" + b",1" * 5000 + b"]}"),
    post(b"x" * 400000), post(b"", length=10**15), post(b"{}", "Transfer-Encoding: chunked"),
    post(b"{}", "Content-Length: 3"), b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"DELETE /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    "zz\r\n{}\r\n0\r\n\r\n".encode(),
    post(b'{"token_ids":[1]}', "Host: other.example"),
    post(b'{"token_ids":[1]}', "Content-Encoding: gzip"),
]


def refuse(rng, port, seen):
    """Sends what is wrong and reads a 4xx, or nothing."""
    with socket.create_connection((HOST, port), timeout=60) as connection:
        try:
            connection.sendall(rng.choice(REFUSED))
            status = connection.recv(64)
        except ConnectionError:
            status = b""
    word = status.split(b" ")[1].decode() if status.startswith(b"HTTP/1.1 ") else "closed"
    assert word[0] in "4c", status
    seen[word] += 1


def abort(rng, port, seen):
    """Leaves in the middle: of the request, before the answer, in the answer; with a FIN or RST."""
    request = rng.choice([post(LONG), post(PLAIN), post(LONG) + post(PLAIN)])
    cut = rng.choice([0, 10, 100, len(request), len(request), len(request)])
    with socket.create_connection((HOST, port), timeout=60) as connection:
        connection.sendall(request[: cut or len(request) - 1])
        if cut == len(request):
            wait = rng.choice([0, 0, 0.002, 0.01, 0.05])
            if wait == 0.05:
                connection.recv(rng.choice([1, 5000]))
            elif wait:
                time.sleep(wait)
        if rng.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif rng.random() < 0.3:
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(rng.choice([0.001, 0.02]))
            try:
                while connection.recv(1 << 16):
                    pass
            except OSError:
                pass
    seen["left"] += 1


class Kept(io.BufferedReader):
    """A connection's bytes; http.client closes them behind each answer."""

    def close(self):
        pass


def pipeline(rng, port, asked, seen):
    """Several requests at once on one connection; the answers come in their order."""
    chosen = [q for q in rng.sample(asked, 4) if "Accept" not in q.headers]
    with socket.create_connection((HOST, port), timeout=60) as connection:
        connection.sendall(b"".join(post(question.body, path=question.path) for question in chosen))
        received = Kept(socket.SocketIO(connection, "r"))
        for question in chosen:
            response = http.client.HTTPResponse(connection)
            response.fp = received
            response.begin()
            data = response.read()
            assert response.status == 200, (response.status, data)
            assert known(data, question.streamed) == question.answer, question.body
            seen["pipelined"] += 1


# ---- all at once --------------------------------------------------------------------------------


def rss_bytes(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


class Soak:
    """seen: what became of how many requests; rss: (requests so far, bytes)."""

    def __init__(self, port, n_requests, n_clients=64, bad=0.34, pid=0, seed=1):
        self.port, self.n_left, self.bad, self.pid, self.seed = port, n_requests, bad, pid, seed
        self.lock = threading.Lock()
        self.seen, self.errors, self.rss = collections.Counter(), [], []
        self.asked = questions(port)
        self.n_done = 0
        self.threads = [
            threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(n_clients)
        ]

    def take(self):
        with self.lock:
            self.n_left -= 1
            self.n_done += 1
            if self.pid and self.n_done % 250 == 0:
                self.rss.append((self.n_done, rss_bytes(self.pid)))
            return self.n_left >= 0 and len(self.errors) < 5

    def client(self, i):
        rng = random.Random(self.seed * 1000 + i)
        connection = http.client.HTTPConnection(HOST, self.port, timeout=120)
        while self.take():
            seen = collections.Counter()
            try:
                self.one(rng, connection, seen)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                connection.close()
                with self.lock:
                    self.errors.append(repr(error)[:600] + repr(error)[-300:])
            with self.lock:
                self.seen.update(seen)
        connection.close()

    def one(self, rng, connection, seen):
        luck = rng.random()
        if luck < self.bad / 2:
            refuse(rng, self.port, seen)
        elif luck < self.bad:
            abort(rng, self.port, seen)
        elif luck < self.bad + 0.05:
            pipeline(rng, self.port, self.asked, seen)
        else:
            question = rng.choice(self.asked)
            status, answer = question.ask(connection)
            assert (status, answer) == (200, question.answer), (status, answer, question.body)
            seen["right"] += 1

    def run(self):
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()
        return self


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--bad", type=float, default=0.34)
    parser.add_argument("--pid", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began = time.monotonic()
    soak = Soak(args.port, args.requests, args.clients, args.bad, args.pid, args.seed).run()
    seconds = time.monotonic() - began
    print(json.dumps({"seconds": round(seconds, 1), "seen": dict(soak.seen), "rss": soak.rss[::4]}))
    for error in soak.errors:
        print(error, file=sys.stderr)
    return 1 if soak.errors else 0


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    sys.exit(main())
