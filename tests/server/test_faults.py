"""What breaks servers: clients that are slow, leave, read nothing or come all at once; bodies that
are deep, no text or endless. Each leaves the others' answers as they are, and the server as it was.
"""

import contextlib
import json
import re
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from serverrun import Library

PATH = "/inference/v1/generate"
IDS = [7, 3, 9, 4, 1]
SMALL = {"token_ids": IDS, "sampling_params": {"max_tokens": 0, "prompt_logprobs": 0}}
# Some seconds of work, all choices one after another.
LONG = {"token_ids": IDS, "sampling_params": {
    "max_tokens": 400, "n": 128, "ignore_eos": True, "temperature": 2, "seed": 1}}


def as_bytes(body, *headers, path=PATH):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def statuses(received):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def running(server):
    return server.metrics()["nepit:num_requests_running"]


def p99(numbers):
    return sorted(numbers)[int(len(numbers) * 0.99)]


# ---- bodies -------------------------------------------------------------------------------------

FIELDS = ("request_id", "model", "cache_salt", "user", "metadata", "kv_transfer_params", "nobody",
          "token_ids", "sampling_params")


@pytest.mark.parametrize("field", FIELDS)
def test_deep_values(tiny, field):  # C181
    deep = b"[" * 3000 + b"]" * 3000
    body = json.dumps({**SMALL, field: 0}).encode().replace(b": 0}", b": " + deep + b"}")
    assert body.count(b"[[[") > 100
    assert "within each other" in tiny.refused(PATH, body, "body")
    objects = b'{"a":' * 3000 + b"1" + b"}" * 3000
    assert tiny.refused(PATH, body.replace(deep, objects), "body")
    assert tiny.refused(PATH, body.replace(deep, b"[" * 1000000), "body")


TEXTS = [rb'"\ud83d"', rb'"\ude00"', rb'"\ud83d\ud83d"', rb'"\ude00\ud83d"', b'"\xff\xfe"',
         b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xc3"', b'"a\x00b"',
         b'"a\nb"', rb'"\u00"', rb'"\x41"']


@pytest.mark.parametrize("text", TEXTS)
def test_texts_that_are_none(tiny, text):  # C182
    for body in (b'{"token_ids":[1],"cache_salt":%b}', b'{"token_ids":[1],"nobody":%b}',
                 b'{"token_ids":[1],%b:1}', b'{"token_ids":[1],"sampling_params":{"stop":%b}}'):
        assert tiny.refused(PATH, body % text, "body")
        answer = tiny.post("/v1/completions", b'{"prompt":%b,"max_tokens":1}' % text, status=400)
        assert answer.error["param"] == "body"


def test_nul_is_a_byte(tiny):  # C182
    answer = tiny.post("/tokenize", rb'{"prompt":"a\u0000b"}').json
    assert answer["count"] == 3
    assert tiny.post("/detokenize", {"tokens": answer["tokens"]}).json["prompt"] == "a\0b"
    tiny.refused(PATH, rb'{"token_ids":[1],"cache_salt":"a\u0000b"}', "cache_salt")


def test_lists_that_would_fill_memory(tiny):
    body = b'{"token_ids":[' + b"1," * (23 << 20) + b"1]}"
    assert tiny.post(PATH, body, status=413).error["param"] == "body"
    body = b'{"token_ids":[' + b"[]," * (7 << 20) + b"[]]}"
    assert tiny.post(PATH, body, status=413).error["param"] == "body"


# ---- framing ------------------------------------------------------------------------------------

BODY = json.dumps(SMALL).encode()
NEXT = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def framed(server, headers, body):
    """Statuses of a request with these headers, and of one right behind it, until the server closes
    or nothing comes any more."""
    head = "\r\n".join([f"POST {PATH} HTTP/1.1", "Host: localhost", *headers]).encode()
    received = b""
    with server.connect(timeout=1) as connection, contextlib.suppress(TimeoutError,
                                                                       ConnectionError):
        connection.sendall(head + b"\r\n\r\n" + body + NEXT)
        while more := connection.recv(1 << 16):
            received += more
            if statuses(received) == [200, 200]:
                break
    return statuses(received)


@pytest.mark.parametrize("size", [b"10000000000000000", b"-1", b"0x%x" % len(BODY),
                                  b"+%x" % len(BODY), b" %x" % len(BODY), b"%x " % len(BODY), b"",
                                  b"%xg" % len(BODY), b"ffffffffffffffff"])
def test_chunk_sizes(tiny, size):  # C189
    body = size + b"\r\n" + BODY + b"\r\n0\r\n\r\n"
    received = framed(tiny, ["Transfer-Encoding: chunked"], body)
    assert received in ([400], [413], []), received  # and nothing behind it


def test_chunks_then_another_request(tiny):  # C189
    whole = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    parts = b"".join(b"%x;a=b\r\n%c\r\n" % (1, byte) for byte in BODY) + b"0\r\nX: y\r\n\r\n"
    for body in (whole, parts):
        assert framed(tiny, ["Transfer-Encoding: chunked"], body) == [200, 200]
    assert framed(tiny, ["Transfer-Encoding: chunked"],
                  whole.replace(b"\r\n0", b"XX0")) == [400]


LENGTH = f"Content-Length: {len(BODY)}"


@pytest.mark.parametrize("headers", [
    [LENGTH.replace(":", " :")], [LENGTH, " X: 1"], [LENGTH, "Transfer-Encoding : chunked"],
    [LENGTH, "Content-Length: 5"], [LENGTH, "Transfer-Encoding: chunked"], [LENGTH + ",5"],
    [LENGTH, "Host: other"], [LENGTH, "X: a\rContent-Length: 5"], [LENGTH, "X: a\x01b"],
    ["Content-Length: +5"], ["Content-Length:"], ["Content-Length: 0x5"], [LENGTH, "no colon"],
    ["Transfer-Encoding: \x0bchunked"], ["Transfer-Encoding: gzip"]])
def test_headers_that_can_be_read_in_two_ways(tiny, headers):  # C186, C189
    received = framed(tiny, headers, BODY)
    # what follows is no request of its own; libmicrohttpd writes some of its refusals twice
    assert set(received) <= {400}, received


def test_no_length(tiny):  # C186
    assert framed(tiny, [], BODY) == [411]
    assert framed(tiny, ["Content-Length: 0"], b"") == [400, 200]


def test_expect_is_answered_at_once(tiny):  # C186
    with tiny.connect() as connection:
        began = time.monotonic()
        connection.sendall(as_bytes(b"", "Expect: 100-continue").replace(
            b"Content-Length: 0", b"Content-Length: %d" % len(BODY)))
        assert statuses(connection.recv(1000)) == [100]
        connection.sendall(BODY)
        assert statuses(connection.recv(1 << 16)) == [200]
        assert time.monotonic() - began < 0.9
    with tiny.connect() as connection:  # no body is asked for that will not be taken
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n"
                           b"Expect: 100-continue\r\n\r\n")
        received = b""
        while more := connection.recv(1 << 16):
            received += more
        assert statuses(received) == [404]


# ---- slow ones ----------------------------------------------------------------------------------


def times(server, seconds):
    """Seconds of small requests, one after another on one connection."""
    found = []
    request = as_bytes(SMALL)
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            connection.sendall(request)
            received = connection.recv(1 << 16)
            assert statuses(received) == [200], received
            found.append(time.monotonic() - began)
    return found


@contextlib.contextmanager
def drip(server, starts, seconds_per_byte):
    """Connections that send what they have byte by byte."""
    done = threading.Event()
    connections = [server.connect() for _ in starts]

    def send():
        sent = 0
        while not done.wait(seconds_per_byte):
            for connection, bytes_ in zip(connections, starts, strict=True):
                with contextlib.suppress(OSError):
                    connection.send(bytes_[sent : sent + 1])
            sent += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield connections
    finally:
        done.set()
        thread.join()
        for connection in connections:
            connection.close()


def test_a_request_has_a_deadline(serve):  # C187
    head = as_bytes(b"", "X: " + "y" * 500)
    with serve("--receive-timeout", "1") as server:
        began = time.monotonic()
        with server.connect(10) as slow, server.connect(10) as half, server.connect(10) as quiet:
            half.sendall(as_bytes(BODY)[:-1])
            slow.settimeout(0.1)
            ended = {}
            for i in range(60):
                with contextlib.suppress(TimeoutError):
                    try:
                        slow.send(head[i : i + 1])
                        if slow.recv(100) == b"":
                            ended["slow"] = True
                    except ConnectionError:
                        ended["slow"] = True
                if ended:
                    break
            assert ended and 0.9 < time.monotonic() - began < 4
            with contextlib.suppress(ConnectionError):
                assert half.recv(100) == b""
            assert time.monotonic() - began < 4
            quiet.sendall(as_bytes(SMALL))  # who had sent nothing has not begun
            assert statuses(quiet.recv(1 << 16)) == [200]
        until(lambda: server.metrics()["nepit:http_requests_open"] == 0)


def test_a_request_that_ends_in_the_middle_is_over(serve):
    with serve() as server:
        gone = []
        for cut in (10, 150, len(as_bytes(BODY)) - 1):
            gone.append(server.connect())
            gone[-1].sendall(as_bytes(BODY)[:cut])
            gone[-1].shutdown(socket.SHUT_WR)  # the FIN may come with the last byte
        until(lambda: server.metrics()["nepit:http_requests_open"] == 0, 5)
        until(lambda: server.metrics()["nepit:http_connections"] == 1, 5)
        for connection in gone:
            connection.close()


@pytest.mark.long
@pytest.mark.parametrize("what", ["headers", "bodies", "half-open", "idle"])
def test_slow_clients_cost_the_others_nothing(serve, what):  # C187
    head = as_bytes(b"", "X: " + "y" * 5000)
    starts = {"headers": [head] * 200, "bodies": [], "half-open": [], "idle": [b""] * 1000}[what]
    with serve() as server, contextlib.ExitStack() as stack:
        times(server, 1)
        alone, beside = [], []
        for _ in range(5):  # interleaved: a busy machine is busy for both
            alone += times(server, 2)
            if what in ("bodies", "half-open"):
                open_ = [stack.enter_context(server.connect()) for _ in range(200)]
                for connection in open_:
                    connection.sendall(as_bytes(b"x" * 5000)[:-4990])
                slow = drip(server, [], 1)
            else:
                slow = drip(server, starts, 1 if what == "headers" else 3600)
            with slow:
                beside += times(server, 2)
                if what == "bodies":
                    for connection in open_:
                        connection.send(b"x")
        assert p99(beside) <= 1.2 * p99(alone) + 0.0005, (p99(alone), p99(beside))


# ---- those that leave ---------------------------------------------------------------------------


def leave(connection, how):
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif how == "half":
        connection.shutdown(socket.SHUT_WR)
        return
    connection.close()


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("when", ["prefill", "decode", "unread"])
def test_work_for_nobody_ends(serve, when, stream, how):  # C191
    body = {**LONG, "stream": stream}
    if when == "prefill":
        prompts = [[(i * 7 + k) % 301 for k in range(400)] for i in range(200)]
        body = {"token_ids": prompts, "stream": stream,
                "sampling_params": {"max_tokens": 0, "prompt_logprobs": 0}}
    with serve() as server:
        connection = server.connect()
        connection.sendall(as_bytes(body, "X-Request-Id: left"))
        if when == "unread":  # some of the answer is there, and not read
            time.sleep(0.3)
        else:
            until(lambda: running(server) > 0)
        leave(connection, how)
        until(lambda: running(server) == 0, 5)
        computed = server.metrics()["nepit:computed_tokens_total"]
        line = server.log("left")
        assert line["aborted"], line
        assert server.metrics()["nepit:computed_tokens_total"] == computed
        assert computed < (200 * 400 if when == "prefill" else 128 * 400)
        metrics = server.metrics()
        assert metrics["nepit:http_requests_open"] == 0
        assert metrics['nepit:request_success_total{finished_reason="abort"}'] == 1
        connection.close()


def test_time_is_up(serve):  # C192
    with serve("--timeout", "0.3") as server:
        began = time.monotonic()
        error = server.post(PATH, LONG, status=408).error
        assert error["type"] == "RequestTimeoutError" and time.monotonic() - began < 3
        answer = server.post(PATH, {**LONG, "stream": True}).text
        last, done, rest = answer.split("\n\n")[-3:]
        assert (done, rest) == ("data: [DONE]", "")
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == 408
        assert running(server) == 0 and server.metrics()["nepit:http_requests_open"] == 0
        assert server.post(PATH, SMALL).status == 200
    with serve() as server:
        assert server.post(PATH, {**LONG, "timeout_ms": 100}, status=408)


WHOLE = {"token_ids": list(range(300)), "sampling_params": {
    "max_tokens": 0, "prompt_logprobs": -1}}  # 300 rows of 301 tokens


def test_a_client_that_reads_nothing(serve):
    body = {**WHOLE, "token_ids": [WHOLE["token_ids"]] * 8}
    with serve("--receive-timeout", "1.5") as server:
        for stream in (False, True):
            with server.connect() as stuck:
                stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                stuck.sendall(as_bytes({**body, "stream": stream}, f"X-Request-Id: stuck{stream}"))
                for _ in range(20):  # the others
                    assert server.post(PATH, SMALL).status == 200
                line = server.log(f"stuck{stream}")
                assert line["aborted"]
            assert server.metrics()["nepit:http_requests_open"] == 0


def test_a_client_that_reads_slowly_gets_everything(serve):
    with serve("--receive-timeout", "1") as server:
        for stream in (False, True):
            with server.connect() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                slow.sendall(as_bytes({**WHOLE, "stream": stream}, "Connection: close"))
                received = b""
                while more := slow.recv(1 << 18):
                    received += more
                    time.sleep(0.02)
                assert statuses(received) == [200]
                assert received.count(b'"rank":') > 300 * 299


# ---- all at once --------------------------------------------------------------------------------


def test_two_thousand_on_sixteen_connections(tiny):  # C194
    request = as_bytes(SMALL)
    expected = tiny.post(PATH, SMALL).json["prompt_logprobs"]

    def client(_):
        found = []
        with tiny.connect(120) as connection:
            sender = threading.Thread(target=connection.sendall, args=(request * 125,))
            sender.start()
            received = b""
            while len(statuses(received)) < 125 or not received.endswith(b"}"):
                more = connection.recv(1 << 16)
                assert more
                received += more
            sender.join()
            found = re.findall(rb"\r\n\r\n(\{.*?\})(?=HTTP/1\.1|$)", received, re.S)
        return [json.loads(answer)["prompt_logprobs"] == expected for answer in found]

    with ThreadPoolExecutor(16) as pool:
        right = [answer for answers in pool.map(client, range(16)) for answer in answers]
    assert right == [True] * 2000


@pytest.mark.long
def test_two_thousand_connections(serve):  # C194
    seen, lock = {200: 0, 429: 0}, threading.Lock()

    def client(server):
        with server.connect(120) as connection:
            connection.sendall(as_bytes(SMALL, "Connection: close"))
            received = b""
            while more := connection.recv(1 << 16):
                received += more
        (status,) = statuses(received)
        assert status == 200 or b"Retry-After: 1\r\n" in received
        with lock:
            seen[status] += 1

    with serve("--max-concurrency", "32") as server:
        with ThreadPoolExecutor(400) as pool:
            for future in [pool.submit(client, server) for _ in range(2000)]:
                future.result()
        assert sum(seen.values()) == 2000 and seen[200] > 100
        assert server.metrics()["nepit:http_requests_open"] == 0


@pytest.mark.long
def test_more_connections_than_allowed_wait(serve):
    with serve("--max-connections", "20") as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(server.connect()) for _ in range(40)]
        waiting = idle[-1]
        waiting.sendall(as_bytes(SMALL))
        waiting.settimeout(1)
        with pytest.raises(TimeoutError):
            waiting.recv(100)
        for connection in idle[:-1]:
            connection.close()
        waiting.settimeout(20)
        assert statuses(waiting.recv(1 << 16)) == [200]


@pytest.mark.long
def test_a_small_request_beside_two_large_ones(demo):  # C099
    rng = [(i * 7919) % 49152 for i in range(8000)]

    def large(i):
        ids = rng[i:] + rng[:i]
        return demo.request("POST", PATH, {"token_ids": ids, "sampling_params": {
            "max_tokens": 0, "prompt_logprobs": 64}}, timeout=600)

    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(large, i) for i in range(2)]
        until(lambda: running(demo) == 2, 60)
        took = []
        while not all(answer.done() for answer in answers) and len(took) < 10:
            before = demo.metrics()["nepit:steps_total"]
            demo.post(PATH, SMALL)
            took.append(demo.metrics()["nepit:steps_total"] - before)
        for answer in answers:
            assert answer.result().status == 200
    # It waits for the step that runs, and has the next one: not for their prefill, nor their JSON.
    assert len(took) > 3 and max(took) <= 3, took


def test_stopping_does_not_wait_for_who_dawdles(serve):
    with serve("--receive-timeout", "1") as server, server.connect() as half:
        half.sendall(as_bytes(BODY)[:-1])
        with server.connect() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.sendall(as_bytes({**WHOLE, "token_ids": [WHOLE["token_ids"]] * 8}))
            time.sleep(0.3)
            began = time.monotonic()
            server.process.send_signal(15)
            server.process.wait(20)
            assert time.monotonic() - began < 6


def test_the_numbers_are_the_librarys(tiny):
    """What the load of test_soak.py is compared with."""
    (line,) = Library().ask("score", [{"token_ids": IDS}])
    rows = tiny.post(PATH, SMALL).json["prompt_logprobs"]
    told = [row[str(token)]["logprob"] for row, token in zip(rows[1:], IDS[1:], strict=True)]
    assert told == [value for value in line["logprobs"] if value is not None]
