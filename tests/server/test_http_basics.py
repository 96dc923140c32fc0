"""HTTP itself: methods, doors, keys, bounds, encodings, connections, the log, and how it ends."""

import concurrent.futures
import gzip
import json
import re
import signal
import socket
import threading
import time

import pytest
from serverrun import DEMO, Server

PATH = "/inference/v1/generate"
SMALL = {"token_ids": [7, 3, 9], "sampling_params": {"max_tokens": 0, "prompt_logprobs": 1}}
LARGE = {"token_ids": [7] * 64, "sampling_params": {"max_tokens": 0, "prompt_logprobs": 40}}
# some tenths of a second: long enough to be met while it runs
SLOW = {"token_ids": [7] * 100, "stream": False, "sampling_params": {
    "max_tokens": 400, "n": 32, "ignore_eos": True, "logprobs": 0, "seed": 1}}


def as_bytes(body, *headers, method="POST", path=PATH, host="127.0.0.1"):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(content)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + content


def statuses(received):
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d+) ", received)]


# ---- routes of the server itself ----------------------------------------------------------------


def test_health_and_ping(tiny):
    for method, path in (("GET", "/health"), ("GET", "/health/"), ("GET", "/ping"),
                         ("POST", "/ping")):
        answer = tiny.request(method, path)
        assert answer.status == 200 and answer.json == {"status": "ok"}, (method, path)


def free_port():
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


def test_health_while_the_model_is_read():  # C144
    if not DEMO.exists():
        pytest.skip(f"{DEMO.name} is not here")
    server = Server(model=DEMO, port=free_port(), wait=False)
    try:
        seen, end = [], time.monotonic() + 60
        while (not seen or seen[-1] != 200) and time.monotonic() < end:
            try:
                answer = server.request("GET", "/health")
            except ConnectionError:
                assert not seen  # once it listens it answers
                continue
            seen.append(answer.status)
            if answer.status == 503:
                assert answer.json == {"status": "loading"}
                assert answer.headers["retry-after"] == "1"
                refused = server.request("POST", PATH, SMALL)
                assert refused.status == 200 or "loaded" in refused.error["message"]
                assert server.request("GET", "/version").status == 200
        assert 503 in seen and seen[-1] == 200
        server.wait()
        server.stop()
    finally:
        server.kill()


def test_version_and_models(tiny):
    version = tiny.get("/version").json
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", version["version"]) and version["numerics"]
    answer = tiny.get("/v1/models").json
    (model,) = answer["data"]
    assert answer["object"] == "list" and model["object"] == "model"
    assert model["id"] == "llama-tied-f32.gguf" and model["owned_by"] == "nepit"
    assert model["root"] == str(tiny.model) and model["max_model_len"] == 512
    assert abs(model["created"] - time.time()) < 3600


METRICS = [
    "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
    "prefix_cache_queries_total", "prefix_cache_hits_total", "prompt_tokens_total",
    "generation_tokens_total", 'request_success_total{finished_reason="stop"}',
    'request_success_total{finished_reason="length"}', "time_to_first_token_seconds_count",
    "e2e_request_latency_seconds_count", "request_queue_time_seconds_count"]


def test_metrics(tiny):
    before = tiny.metrics()
    assert {f"nepit:{name}" for name in METRICS} <= set(before)
    answer = tiny.post(PATH, {"token_ids": [7] * 9, "cache_salt": "of this test alone",
                                "sampling_params": {"max_tokens": 5, "ignore_eos": True}})
    tiny.log(answer.headers["x-request-id"])
    after = tiny.metrics()

    def grown(name):
        return after.get(f"nepit:{name}", 0) - before.get(f"nepit:{name}", 0)

    assert grown("prompt_tokens_total") == 9 and grown("generation_tokens_total") == 5
    assert grown("prefix_cache_hits_total") == 0
    scored = {"token_ids": [7] * 9, "cache_salt": "of this test alone",
              "sampling_params": {"max_tokens": 0, "prompt_logprobs": 0}}
    for _ in range(2):
        again = tiny.post(PATH, scored)
        tiny.log(again.headers["x-request-id"])
    assert again.json["usage"]["prompt_tokens_details"]["cached_tokens"] == 8
    hits = "nepit:prefix_cache_hits_total"
    assert tiny.metrics()[hits] >= before[hits] + 8
    assert grown('request_success_total{finished_reason="length"}') == 1
    assert grown("e2e_request_latency_seconds_count") == 1
    assert grown("time_to_first_token_seconds_count") == 1
    text = tiny.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = set()
    for line in text.text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in names and kind in ("gauge", "counter", "histogram")
            names.add(name)
        elif not line.startswith("#"):
            assert re.fullmatch(r'nepit:\w+(\{\w+="[^"]*"\})? [0-9.e+-]+', line), line
    for name in names:
        counts = [value for key, value in after.items() if key.startswith(name + "_bucket")]
        assert counts == sorted(counts) and (not counts or counts[-1] == after[name + "_count"])


# ---- methods and doors --------------------------------------------------------------------------


def test_paths_and_methods(tiny):
    for path in ("/", "/v2", "/inference/v1/generate/", "/%2e%2e/etc/passwd", "//health",
                 "/Health", "/health%c3%a4"):
        answer = tiny.request("GET", path)
        assert answer.status == 404 and answer.error["type"] == "NotFoundError"
    for method, path, allowed in (("GET", PATH, "POST"), ("DELETE", "/health", "GET"),
                                  ("PUT", "/ping", "GET, POST")):
        answer = tiny.request(method, path)
        assert answer.status == 405 and answer.error["type"] == "MethodNotAllowedError"
        assert allowed in answer.headers["allow"]
    assert tiny.request("GET", "/health?x=1").status == 200


def test_head_has_the_headers_of_get(tiny):
    received = tiny.raw(b"HEAD /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, _, rest = received.partition(b"\r\n\r\n")
    assert statuses(received) == [200] and rest == b""
    length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
    assert length == len(tiny.get("/version").body)


def test_names_of_the_host(tiny, serve):
    for host in ("localhost", "localhost:80", "127.0.0.1", "127.0.0.1:9", "[::1]:8000"):
        assert tiny.request("GET", "/health", headers={"Host": host}).status == 200, host
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", ""):
        answer = tiny.request("GET", "/health", headers={"Host": host})
        assert answer.status == 403 and "--allowed-hosts" in answer.error["message"], host
    with serve("--allowed-hosts", "scores.example, other.example") as server:
        for host, status in (("scores.example:80", 200), ("OTHER.example", 200), ("x.a", 403)):
            assert server.request("GET", "/health", headers={"Host": host}).status == status, host


def test_pages_of_other_origins(tiny, serve):
    page = {"Origin": "https://page.example"}
    answer = tiny.request("POST", PATH, SMALL, page)
    assert answer.status == 403 and "access-control-allow-origin" not in answer.headers
    assert tiny.request("GET", "/v1/models", headers={"Origin": tiny.url}).status == 200
    with serve("--allowed-origins", "https://page.example") as server:
        answer = server.request("POST", PATH, SMALL, page)
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == page["Origin"]
        before = server.request("OPTIONS", PATH, headers={
            **page, "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, content-type"})
        assert before.status in (200, 204) and before.body == b""
        assert "POST" in before.headers["access-control-allow-methods"]
        assert "authorization" in before.headers["access-control-allow-headers"]
        other = server.request("OPTIONS", PATH, headers={"Origin": "https://other.example"})
        assert other.status == 403 and "access-control-allow-origin" not in other.headers
        assert server.request("GET", "/health", headers={"Origin": "null"}).status == 403


def test_options_tells_the_methods(tiny):
    answer = tiny.request("OPTIONS", PATH)
    assert answer.status in (200, 204) and "POST" in answer.headers["allow"]
    assert tiny.request("OPTIONS", "/nowhere").status == 404


# ---- keys ---------------------------------------------------------------------------------------


def test_keys(serve, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# of the trainers\nfirst-key\n\n  second key  \r\nthird-key # of Mary")
    with serve("--api-key-file", keys) as server:
        for headers, status in (
                ({}, 401), ({"Authorization": "Bearer first-key"}, 200),
                ({"Authorization": "bearer third-key"}, 200), ({"X-Api-Key": "second key"}, 200),
                ({"Authorization": "Bearer first-ke"}, 401),
                ({"Authorization": "Bearer first-key2"}, 401), ({"Authorization": "Bearer "}, 401),
                ({"Authorization": "Basic first-key"}, 401), ({"X-Api-Key": ""}, 401),
                ({"X-Api-Key": "# of the trainers"}, 401), ({"X-Api-Key": "x" * 5000}, 401)):
            answer = server.request("POST", PATH, SMALL, headers)
            assert answer.status == status, headers
            if status == 401:
                assert answer.error["type"] == "AuthenticationError"
                assert answer.headers["www-authenticate"] == "Bearer"
            assert server.request("GET", "/v1/models", headers=headers).status == status
            assert server.request("GET", "/health", headers=headers).status == 200
        assert server.request("GET", "/nowhere").status == 401  # tells a stranger no paths
        answer = server.post(PATH, SMALL, {"Authorization": "Bearer third-key"})
        assert server.log(answer.headers["x-request-id"])["key"] == 3
        assert "third-key" not in open(server.log_file.name).read()
    (tmp_path / "none").write_text("# nobody\n")
    with pytest.raises(AssertionError), serve("--api-key-file", tmp_path / "none"):
        pass


def test_requests_of_one_key_at_a_time(serve, tmp_path):
    (tmp_path / "keys").write_text("a\nb\n")
    with serve("--api-key-file", tmp_path / "keys", "--max-per-key", "1") as server:
        key_a, key_b = ({"Authorization": f"Bearer {key}"} for key in "ab")
        with running(server, key_a):
            refused = server.request("POST", PATH, SMALL, key_a)
            assert refused.status == 429 and refused.headers["retry-after"] == "1"
            assert "--max-per-key" in refused.error["message"]
            assert server.request("POST", PATH, SMALL, key_b).status == 200
        assert server.request("POST", PATH, SMALL, key_a).status == 200


class running:
    """A slow request runs meanwhile; .answer is its answer, afterwards."""

    def __init__(self, server, headers=None, body=SLOW):
        self.server, self.headers, self.body, self.answer = server, headers, body, None
        self.thread = threading.Thread(target=self._ask)

    def _ask(self):
        self.answer = self.server.request("POST", PATH, self.body, self.headers)

    def __enter__(self):
        self.thread.start()
        headers = self.headers
        end = time.monotonic() + 30
        while time.monotonic() < end:
            text = self.server.get("/metrics", headers).text
            if re.search(r"^nepit:http_requests_open [1-9]", text, re.M):
                return self
        raise AssertionError("the slow request did not begin")

    def __exit__(self, *_):
        self.thread.join(60)


# ---- bounds -------------------------------------------------------------------------------------


def test_a_full_queue(serve):  # C194
    with serve("--max-concurrency", "1") as server:
        with running(server) as slow:
            refused = server.request("POST", PATH, SMALL)
            assert refused.status == 429 and refused.error["type"] == "RateLimitError"
            assert refused.headers["retry-after"] == "1"
            assert server.get("/v1/models").status == 200  # asks no engine
        assert slow.answer.status == 200
        assert server.request("POST", PATH, SMALL).status == 200


def chunked(*parts):
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


CHUNKED = (f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
           "Connection: close\r\n\r\n").encode()


def test_bodies_that_are_too_large(serve):  # C189
    with serve("--max-body", "2K") as server:
        large = json.dumps(SMALL).encode().ljust(2048)
        assert server.post(PATH, large).status == 200
        assert server.post(PATH, large + b" ", status=413).error["type"] == "PayloadTooLargeError"
        assert statuses(server.raw(CHUNKED + chunked(large[:1000], large[1000:]))) == [200]
        assert statuses(server.raw(CHUNKED + chunked(large, b" " * 4096, b" " * 70000))) == [413]
        received = server.raw(f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\n"
                              f"Content-Length: 99999999999\r\n\r\n".encode())
        assert statuses(received) == [413]  # before a byte of it came
        assert server.post(PATH, SMALL).status == 200


def test_headers_that_are_too_large(tiny):
    received = tiny.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * 200000)
    assert statuses(received) in ([431], [413], [])
    assert tiny.get("/health").status == 200


def test_framing_that_can_be_read_in_two_ways(tiny):  # C189
    body = json.dumps(SMALL).encode()
    length = f"Content-Length: {len(body)}\r\n"
    for headers in (length + "Content-Length: 5\r\n", length + length,
                    length + "Transfer-Encoding: chunked\r\n",
                    "Transfer-Encoding: gzip, chunked\r\n", "Content-Length: -1\r\n",
                    "Content-Length: 1e3\r\n", "Content-Length: 18446744073709551617\r\n"):
        received = tiny.raw(f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()
                            + body, timeout=5)
        assert all(status in (400, 413) for status in statuses(received)), (headers, received)
    for junk in (b"\x16\x03\x01\x02\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\n", b"junk\r\n\r\n",
                 b"GET /health\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        with tiny.connect(timeout=5) as connection:
            connection.sendall(junk)
            connection.shutdown(socket.SHUT_WR)
            assert all(status >= 400 for status in statuses(connection.recv(65536)))
    assert tiny.post(PATH, SMALL).status == 200


def test_compressed_bodies_are_refused(tiny):
    body = gzip.compress(json.dumps(SMALL).encode())
    assert tiny.post(PATH, body, {"Content-Encoding": "gzip"}, status=415).error["code"] == 415


# ---- connections --------------------------------------------------------------------------------


def test_keep_alive_and_pipelining(tiny):
    with tiny.connect() as connection:
        connection.sendall(as_bytes(SMALL) * 2 + as_bytes({"token_ids": []}) + as_bytes(SMALL)
                           + as_bytes(b"", "Connection: close", method="GET", path="/health"))
        received = b""
        while more := connection.recv(65536):
            received += more
    assert statuses(received) == [200, 200, 400, 200, 200]
    bodies = re.findall(rb"\r\n\r\n(\{.*?\})(?=HTTP/1\.1|$)", received, re.S)
    first, second = (json.loads(body)["prompt_logprobs"] for body in bodies[:2])
    assert first == second


def test_one_connection_after_errors(tiny):
    with tiny.connect() as connection:
        for sent, status in ((as_bytes(b"{"), 400), (as_bytes(SMALL, path="/nowhere"), 404),
                             (as_bytes(SMALL), 200)):
            connection.sendall(sent)
            received = connection.recv(1 << 20)
            assert statuses(received) == [status]


def test_a_body_in_chunks_and_byte_by_byte(tiny):  # C186
    body = json.dumps(SMALL).encode()
    expected = tiny.post(PATH, SMALL).json["prompt_logprobs"]
    for sent in (CHUNKED + chunked(body), CHUNKED + chunked(*(bytes([byte]) for byte in body))):
        answer = tiny.raw(sent)
        assert statuses(answer) == [200]
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["prompt_logprobs"] == expected
    with tiny.connect() as connection:
        for byte in as_bytes(SMALL, "Connection: close"):
            connection.sendall(bytes([byte]))
        assert statuses(connection.recv(65536)) == [200]


def test_expect_100_continue_does_not_stall(tiny):  # C186
    with tiny.connect(timeout=5) as connection:
        head, _, body = as_bytes(SMALL, "Expect: 100-continue", "Connection: close").partition(
            b"\r\n\r\n")
        begin = time.monotonic()
        connection.sendall(head + b"\r\n\r\n")
        assert statuses(connection.recv(65536)) == [100] and time.monotonic() - begin < 0.5
        connection.sendall(body)
        assert statuses(connection.recv(1 << 20)) == [200]
    with tiny.connect(timeout=5) as connection:
        connection.sendall(as_bytes(b"", "Expect: 100-continue", path="/nowhere"))
        assert statuses(connection.recv(65536)) == [404]


def test_answers_in_fewer_bytes(tiny):
    def told(answer):
        return json.loads(answer)["prompt_logprobs"]

    plain = tiny.post(PATH, LARGE)
    zipped = tiny.post(PATH, LARGE, {"Accept-Encoding": "gzip, deflate"})
    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in zipped.headers["vary"]
    assert told(gzip.decompress(zipped.body)) == told(plain.body)
    assert len(zipped.body) < len(plain.body) / 2
    zstd = tiny.post(PATH, LARGE, {"Accept-Encoding": "zstd, gzip"})
    assert zstd.headers["content-encoding"] == "zstd" and zstd.body[:4] == b"\x28\xb5\x2f\xfd"
    try:
        import zstandard
    except ImportError:
        pass
    else:
        assert told(zstandard.decompress(zstd.body)) == told(plain.body)
    for refused in ("identity", "gzip;q=0", "zstd;q=0, gzip;q=0.0", "br", ""):
        answer = tiny.post(PATH, LARGE, {"Accept-Encoding": refused})
        assert "content-encoding" not in answer.headers, refused
    stream = tiny.post(PATH, {**LARGE, "stream": True}, {"Accept-Encoding": "gzip"})
    assert "content-encoding" not in stream.headers  # events come one by one


# ---- the log, and the end -----------------------------------------------------------------------


def test_the_access_log_has_no_texts(serve):
    secret = {"token_ids": [7, 3], "request_id": "shown", "sampling_params": {
        "max_tokens": 2, "stop": "a-secret-text", "ignore_eos": True}}
    with serve() as server:
        answer = server.post(PATH, secret)
        line = server.log(answer.headers["x-request-id"])
        assert {"time", "request_id", "peer", "method", "path", "status", "request_bytes",
                "answer_bytes", "prompt_tokens", "computed_tokens", "generated_tokens", "ms"
                } <= set(line)
        assert (line["method"], line["path"], line["status"]) == ("POST", PATH, 200)
        assert line["peer"] == "127.0.0.1" and line["ms"] > 0
        assert line["request_bytes"] == len(json.dumps(secret))
        assert line["answer_bytes"] == len(answer.body)
        assert (line["prompt_tokens"], line["generated_tokens"]) == (2, 2)
        wrong = server.post(PATH, {**secret, "token_ids": [-1]}, status=400)
        assert "error" in server.log(wrong.headers["x-request-id"])
        assert "secret" not in open(server.log_file.name).read()
    with serve("--log-texts") as server:
        answer = server.post(PATH, secret)
        assert "a-secret-text" in server.log(answer.headers["x-request-id"])["body"]


def test_lines_of_the_log_are_whole(serve):
    with serve() as server:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: server.post(PATH, SMALL, {"X-Request-Id": f"r{i}"}), range(64)))
        server.log("r63")
        assert {line["request_id"] for line in server.log()} >= {f"r{i}" for i in range(64)}


def test_a_client_that_leaves_is_cancelled(serve):  # C191
    with serve() as server:
        with server.connect() as connection:
            connection.sendall(as_bytes(SLOW, "X-Request-Id: left"))
            time.sleep(0.05)
        line = server.log("left")
        assert line["aborted"] and line["generated_tokens"] < 400 * 32
        end = time.monotonic() + 10
        while server.metrics()["nepit:num_requests_running"] and time.monotonic() < end:
            time.sleep(0.01)
        assert server.metrics()["nepit:num_requests_running"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_requests_end_and_new_ones_do_not_begin(number):
    server = Server()
    try:
        with server.connect() as kept, running(server) as slow:
            kept.sendall(as_bytes(SMALL))
            assert statuses(kept.recv(1 << 20)) == [200]
            server.process.send_signal(number)
            end = time.monotonic() + 10
            while len(server.lines) < 2 and time.monotonic() < end:
                time.sleep(0.005)
            assert server.process.poll() is None
            kept.sendall(as_bytes(SMALL))
            received = kept.recv(1 << 20)
            assert statuses(received) in ([503], []), received
            with pytest.raises(OSError):
                server.connect(timeout=5)
        assert slow.answer.status == 200
        assert len(slow.answer.json["choices"]) == 32
        assert server.process.wait(20) == 0
        assert len(server.lines) == 2
    finally:
        server.kill()
