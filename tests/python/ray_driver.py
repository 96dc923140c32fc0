"""A driver for the tests of nepit.ray: does what a JSON document on its command line says, on a
cluster of this machine, and prints what happened as JSON on its last line.

    ray_driver.py '{"temp": FOLDER, "runs": [RUN, ...]}'

RUN: verb, input and output (folders of Parquet), options (the keywords of the verb), kill (ends an
engine by SIGKILL when so many files are written).
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import ray
import ray.data

import nepit.ray
from processes import engines

VERBS = {"score": nepit.ray.score, "gather": nepit.ray.gather}


def written(folder):
    return len(list(Path(folder).glob("*.parquet")))


def kill_one(run, told, over):
    """Waits for the middle of the run, and ends an engine there."""
    all_there = run["options"]["concurrency"]
    before = []
    while not over.is_set() and len(before) < all_there:
        time.sleep(0.01)
        before = engines(os.getpid()) if written(run["output"]) >= run["kill"] else []
    os.kill(before[0], signal.SIGKILL)
    told.update(killed=before[0], engines=before, written=written(run["output"]))
    seen = set()
    while not over.is_set():
        time.sleep(0.05)
        seen |= set(engines(os.getpid()))
    told["engines_after"] = sorted(seen)


def one(run):
    dataset = ray.data.read_parquet(run["input"])
    told, over = {}, threading.Event()
    result = VERBS[run["verb"]](dataset, **run["options"])
    killer = threading.Thread(target=kill_one, args=(run, told, over))
    if run.get("kill"):
        killer.start()
    begin = time.monotonic()
    result.write_parquet(run["output"])
    told["seconds"] = time.monotonic() - begin
    over.set()
    if run.get("kill"):
        killer.join()
    told["files"] = written(run["output"])
    return told


def main(spec):
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 << 20,
        _temp_dir=spec["temp"],
        log_to_driver=False,
    )
    try:
        told = [one(run) for run in spec["runs"]]
    finally:
        ray.shutdown()
    print(json.dumps(told))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
