"""Speed of `nepit serve`, beside the library's own and, where it is there, beside vLLM's server.

    python bench/server.py [--case batch16 ...] [--repeats 3] [--threads 2] [--model M.gguf]
                           [--profile f32] [--vllm-python P --vllm-model FOLDER]

One JSON object per case on standard output. Sides of a case take turns, each with ids that are new,
and the medians are compared. "ok": the goal is reached.

    ready     from the start of the process to the first 200 of /health: seconds
    batch16   16 clients, a prompt of 512 ids each, 64 candidates per row, against the library's
              batch of such requests (nepit gather --jsonl): tokens/s
    g8        8 clients, responses of 128 on one prompt of 512, the responses' rows scored: rows/s
    json100   512 rows x 100 top tokens: what part of the request its JSON costs
    npy       512 rows x 64 candidates as .npy: what part of the request it costs
    tiny      a model of nothing: requests/s of keep-alive clients, by wrk and by Python
    vllm      batch16's prompts with 64 likeliest tokens per row, and g8's with none, beside vLLM's
              server, both by /v1/completions with prompt_logprobs: requests/s
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).parent.parent
NEPIT = os.environ.get("NEPIT") or str(ROOT / os.environ.get("NEPIT_BUILD", "build") / "nepit")
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
TINY = ROOT / "tests" / "data" / "models" / "llama-tied-f32.gguf"
PATH = "/inference/v1/generate"
N_VOCAB, N_PROMPT, N_CANDIDATES, N_RESPONSE = 49152, 512, 64, 128


# ---- servers ------------------------------------------------------------------------------------


class Server:
    """A process that answers on a port of its own."""

    def __init__(self, command, port, env=None, patience_s=180):
        self.port = port
        self.log = tempfile.TemporaryFile()
        began = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=env,
                                        start_new_session=True)
        while not self.healthy():
            late = time.monotonic() - began > patience_s
            if late or self.process.poll() is not None:
                self.close()
                self.log.seek(0)
                raise RuntimeError(self.log.read()[-400:].decode(errors="replace"))
            time.sleep(0.005)
        self.ready_s = time.monotonic() - began

    def healthy(self):
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        return False

    def rest(self, resting):
        """vLLM's threads spin between requests: who is not measured is stopped."""
        os.killpg(self.process.pid, signal.SIGSTOP if resting else signal.SIGCONT)

    def close(self):
        self.rest(False)
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.process.kill()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def nepit_server(args, model=None):
    port = free_port()
    command = [NEPIT, "serve", "-m", str(model or args.model), "--port", str(port)]
    return Server([*command, "--threads", str(args.threads), "--profile", args.profile], port)


def vllm_server(args):
    port = free_port()
    command = [args.vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model",
               str(args.vllm_model), "--port", str(port), "--dtype", "float32", "--enforce-eager",
               "--max-model-len", "1024", "--max-num-seqs", "64", "--max-logprobs", "128",
               "--served-model-name", "m", "--skip-tokenizer-init"]
    env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1",
           "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1",
           "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": str(args.threads)}
    return Server(command, port, env, 300)


# ---- traffic ------------------------------------------------------------------------------------


def together(server, bodies, path=PATH):
    """Seconds until all have their answers, each asked by a client of its own."""
    failed = []

    def client(body):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=900)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            failed.append(data[:300])

    threads = [threading.Thread(target=client, args=(json.dumps(body),)) for body in bodies]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError(failed[0])
    return time.monotonic() - began


def prompts(n, seed):
    rng = random.Random(seed)
    return [[rng.randrange(N_VOCAB) for _ in range(N_PROMPT)] for _ in range(n)]


def candidates(seed):
    rng = random.Random(-1 - seed)
    return [[rng.randrange(N_VOCAB) for _ in range(N_CANDIDATES)] for _ in range(N_PROMPT - 1)]


def scored(ids, **sampling):
    return {"token_ids": ids, "sampling_params": {"max_tokens": 0, **sampling}}


def responses(seed, n=8):
    """One prompt, n continuations."""
    rng = random.Random(seed)
    shared = [rng.randrange(N_VOCAB) for _ in range(N_PROMPT)]
    return [shared + [rng.randrange(N_VOCAB) for _ in range(N_RESPONSE)] for _ in range(n)]


def of_the_library(args, requests):
    """Seconds that the command needs for the same requests, the model loaded."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    command = [NEPIT, "gather", "-m", str(args.model), "--jsonl", "-", "--timing", "--threads",
               str(args.threads), "--profile", args.profile]
    done = subprocess.run(command, input=lines.encode(), capture_output=True, check=True)
    return json.loads(done.stderr.splitlines()[-1])["timing"]["compute_s"]


def turns(args, sides):
    """{name: seconds of every turn}; each second turn goes backwards."""
    found = {name: [] for name in sides}
    for turn in range(args.repeats):
        for name in list(sides)[:: -1 if turn % 2 else 1]:
            found[name].append(sides[name](1000 + turn))
    return found


def medians(found, count):
    return {name: round(count / statistics.median(times), 2) for name, times in found.items()}


# ---- cases --------------------------------------------------------------------------------------


def ready(args):
    times = []
    for _ in range(max(args.repeats, 3)):
        server = nepit_server(args)
        times.append(server.ready_s)
        server.close()
    median = statistics.median(times)
    return {"seconds": round(median, 3), "goal": 2, "ok": median <= 2}


def batch16(args):
    with contextlib.closing(nepit_server(args)) as server:
        sides = {
            "server": lambda turn: together(server, [
                scored(ids, prompt_logprob_token_ids=candidates(turn))
                for ids in prompts(16, turn)]),
            "library": lambda turn: of_the_library(args, [
                {"token_ids": ids, "candidates": candidates(turn)}
                for ids in prompts(16, turn + 500)]),
        }
        speeds = medians(turns(args, sides), 16 * N_PROMPT)
    ratio = speeds["server"] / speeds["library"]
    return {**speeds, "unit": "tokens/s", "ratio": round(ratio, 3), "goal": 0.95,
            "ok": ratio >= 0.95}


def g8(args):
    with contextlib.closing(nepit_server(args)) as server:
        found = turns(args, {"server": lambda turn: together(server, [
            scored(ids, prompt_logprobs=0, prompt_logprob_start=N_PROMPT - 1)
            for ids in responses(turn)])})
    return {**medians(found, 8 * N_RESPONSE), "unit": "rows/s",
            "requests_per_s": medians(found, 8)["server"]}


def busy_ns(pid):
    """Nanoseconds that each thread has run."""
    tasks = pathlib.Path(f"/proc/{pid}/task")
    return {int(task.name): int((task / "schedstat").read_text().split()[0])
            for task in tasks.iterdir()}


def writing(args, body, headers=None):
    """What part of the time of one request the threads have had that read, write and send: all
    that ran before the model was there, but the first. (seconds, part, bytes)"""
    with contextlib.closing(nepit_server(args)) as server:
        parts = []
        for turn in range(max(args.repeats, 3)):
            text = json.dumps(body(prompts(1, turn)[0]))
            before = busy_ns(server.process.pid)
            began = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
            connection.request("POST", PATH, text, headers or {})
            n_bytes = len(connection.getresponse().read())
            seconds = time.monotonic() - began
            after = busy_ns(server.process.pid)
            servers = sorted(after)[1:7]  # four workers, the watcher, libmicrohttpd's
            spent = sum(after[task] - before.get(task, 0) for task in servers) * 1e-9
            parts.append((spent / seconds, seconds, n_bytes))
    return sorted(parts)[len(parts) // 2]


def json100(args):
    part, seconds, n_bytes = writing(args, lambda ids: scored([*ids, 1], prompt_logprobs=100))
    return {"part": round(part, 4), "seconds": round(seconds, 3), "bytes": n_bytes, "goal": 0.1,
            "ok": part <= 0.1}


def npy(args):
    ids = [i * 700 for i in range(N_CANDIDATES)]
    part, seconds, n_bytes = writing(
        args, lambda prompt: scored([*prompt, 1], prompt_logprob_token_ids=ids),
        {"Accept": "application/octet-stream"})
    return {"part": round(part, 4), "seconds": round(seconds, 3), "bytes": n_bytes, "goal": 0.01,
            "ok": part <= 0.01}


def python_clients(server, body, n_clients, seconds):
    done = []

    def client():
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        n, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            connection.request("POST", PATH, body)
            connection.getresponse().read()
            n += 1
        done.append(n)

    threads = [threading.Thread(target=client) for _ in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return round(sum(done) / seconds)


def wrk(server, method, path, body, connections=16):
    """Requests/s; None without wrk."""
    if not shutil.which("wrk"):
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(f"wrk.method = '{method}'\nwrk.body = '{body}'\n")
        script.flush()
        command = ["wrk", "-t1", f"-c{connections}", "-d3", "-s", script.name]
        done = subprocess.run([*command, f"http://127.0.0.1:{server.port}{path}"],
                              capture_output=True, text=True, check=True)
    assert "Non-2xx" not in done.stdout, done.stdout
    return round(float(re.search(r"Requests/sec: *([\d.]+)", done.stdout)[1]))


def tiny(args):
    body = json.dumps(scored([7, 3, 9, 4], prompt_logprobs=0))
    with contextlib.closing(nepit_server(args, TINY)) as server:
        return {"unit": "requests/s", "wrk_health": wrk(server, "GET", "/health", ""),
                "wrk_score": wrk(server, "POST", PATH, body),
                "wrk_score_1": wrk(server, "POST", PATH, body, 1),
                "python_1": python_clients(server, body, 1, 2),
                "python_16": python_clients(server, body, 16, 2)}


def with_prompt_logprobs(ids, k):
    """vLLM always generates a token."""
    return {"prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": k,
            "ignore_eos": True}


def vllm(args):
    if not args.vllm_python:
        return {"skipped": "--vllm-python and --vllm-model are needed"}
    # name: bodies of a turn, goal, the first row that is wanted: vLLM has no word for it
    traffic = {
        "batch16": (lambda turn: [with_prompt_logprobs(ids, N_CANDIDATES)
                                  for ids in prompts(args.vllm_clients, turn)], 2, 0),
        "g8": (lambda turn: [with_prompt_logprobs(ids, 0) for ids in responses(turn)], 5,
               N_PROMPT - 1),
    }
    found = {}
    with contextlib.closing(vllm_server(args)) as theirs, \
         contextlib.closing(nepit_server(args)) as ours:
        for name in args.vllm_case:
            bodies, goal, start = traffic[name]
            sides = {"nepit": (ours, {"prompt_logprob_start": start}, 0),
                     "vllm": (theirs, {"model": "m"}, 500)}

            def ask(turn, side, n=None, bodies=bodies, sides=sides):
                server, more, shift = sides[side]
                for other, _, _ in sides.values():
                    other.rest(other is not server)
                chosen = [{**body, **more} for body in bodies(turn + shift)[:n]]
                return together(server, chosen, "/v1/completions")

            for side in sides:
                ask(1, side, 1)  # warm
            times = turns(args, {side: lambda turn, side=side: ask(turn, side) for side in sides})
            speeds = medians(times, len(bodies(0)))
            ratio = round(speeds["nepit"] / speeds["vllm"], 2)
            found[name] = {**speeds, "ratio": ratio, "goal": goal}
    reached = all(one["ratio"] >= one["goal"] for one in found.values())
    return {**found, "unit": "requests/s", "ok": reached}


CASES = {case.__name__: case for case in (ready, batch16, g8, json100, npy, tiny, vllm)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--profile", default="f32")
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--vllm-python")
    parser.add_argument("--vllm-model", help="the same weights as a folder, in float32")
    parser.add_argument("--vllm-case", nargs="+", choices=["batch16", "g8"],
                        default=["batch16", "g8"])
    parser.add_argument("--vllm-clients", type=int, default=16)
    args = parser.parse_args()
    failed = False
    for name in args.case:
        try:
            line = {"case": name, **CASES[name](args)}
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            line = {"case": name, "error": str(error)[-600:]}
        failed = failed or "error" in line or line.get("ok") is False
        print(json.dumps(line), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
