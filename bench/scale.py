"""What one machine does alone and under Ray, and what follows for a large corpus.

    PYTHONPATH=python python bench/scale.py measure [--case direct|ray1|ray2|bytes ...]
    python bench/scale.py plan [--rate TOKENS_PER_S_AND_CORE] [--tokens 1e12] [--cores 64] ...

`measure` needs Ray Data (but for direct and bytes) and prints one JSON object for each case:

    direct   Model.score on texts of 512 ids, 2 threads
    ray1     the same rows by nepit.ray.score: 1 engine of 2 threads
    ray2     2 engines of 1 thread
    bytes    what a token's answers take in Parquet, by columns

The engines start at rest and rows share nothing. "tokens_s" is from the first answer to the last,
"start_s" from the call to the first answer without its work, "cluster_s" the start of Ray.
"cpu_us" is what a token costs all processes together in that time, Ray's own included: the figure
to compare where other work runs on the machine; "own_cpu_us" is the engines' part of it.

`plan` is arithmetic alone: every line says what it follows from.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))
from processes import children, engines  # noqa: E402 - of the tests

MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
N_VOCAB, N_TEXT, BATCH = 49152, 512, 4
OPTIONS = {"context": 1024, "cache_memory": 0}


def tell(case, **values):
    print(json.dumps({"case": case, **values}), flush=True)


# ---- measure -------------------------------------------------------------------------------------


def texts(n, seed):
    import numpy as np

    return list(np.random.default_rng(seed).integers(100, N_VOCAB, (n, N_TEXT), np.int32))


class Meter:
    """Seconds that this process and all that it has started have used, the ended ones too."""

    def __init__(self):
        self.ticks, self.engines = {}, set()

    def read(self):
        """All of them, and the engines alone."""
        self.engines |= set(engines(os.getpid()))
        for pid in {os.getpid(), *children(os.getpid()), *self.engines}:
            try:
                stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
            except OSError:
                continue  # it has ended
            self.ticks[pid] = sum(map(int, stat.rpartition(")")[2].split()[11:13]))
        own = sum(self.ticks.get(pid, 0) for pid in self.engines)
        return [n / os.sysconf("SC_CLK_TCK") for n in (sum(self.ticks.values()), own)]


def direct(arguments):
    import nepit

    with nepit.open(arguments.model, threads=2, **OPTIONS) as model:
        rows = texts(arguments.rows, arguments.seed)
        model.score(rows[0][:64])
        meter = Meter()
        begin, used = time.monotonic(), meter.read()[0]
        for at in range(0, len(rows), BATCH):
            model.score(rows[at : at + BATCH])
        seconds, used = time.monotonic() - begin, meter.read()[0] - used
    n = len(rows) * N_TEXT
    tell("direct", tokens_s=n / seconds, cpu_us=used / n * 1e6, n_tokens=n)


def by_ray(arguments, case, n_engines, threads):
    import ray
    import ray.data

    import nepit.ray

    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="npray", dir="/tmp") as folder:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 << 20,
            _temp_dir=folder,
            log_to_driver=False,
        )
        cluster_s = time.monotonic() - begin
        try:
            rows = [{"ids": row} for row in texts(arguments.rows, arguments.seed)]
            dataset = ray.data.from_items(rows).materialize()
            begin, meter = time.monotonic(), Meter()
            scored = nepit.ray.score(
                dataset,
                model=str(arguments.model),
                column="ids",
                threads=threads,
                concurrency=n_engines,
                num_cpus=0.5,
                batch_size=BATCH,
                **OPTIONS,
            )
            ends = [
                (time.monotonic() - begin, *meter.read())
                for _ in scored.iter_batches(batch_size=None, prefetch_batches=0)
            ]
        finally:
            ray.shutdown()
    first, last = ends[n_engines - 1], ends[-1]  # every engine has answered about once
    seconds, used, own = (b - a for a, b in zip(first, last))
    n = (len(ends) - n_engines) * BATCH * N_TEXT
    start_s = first[0] - n_engines * BATCH * N_TEXT * seconds / n
    tell(
        case,
        tokens_s=n / seconds,
        cpu_us=used / n * 1e6,
        own_cpu_us=own / n * 1e6,
        n_tokens=n,
        start_s=start_s,
        cluster_s=cluster_s,
    )


def in_parquet(arguments):
    import nepit.ray
    from nepit import _checkpoint as kept
    from nepit import _tables as tables

    words = (ROOT / "README.md").read_text()
    with nepit.open(arguments.model, threads=2, **OPTIONS) as model:
        scores = model.score([words[at : at + 2000] for at in (0, 2000)], top=64)
    n = sum(len(score) for score in scores)
    for names in (
        ["logprobs"],
        ["token_ids"],
        ["ranks"],
        list(nepit.ray.SCORE_WANT),
        ["top_logprobs"],
        ["top_ids", "top_logprobs"],
    ):
        table = tables.table_of(scores, {name: tables.SCORE[name] for name in names})
        plain = sum(column.nbytes for column in table.columns) / n
        tell(
            "bytes", columns=names, n_tokens=n, per_token=len(kept.parquet(table)) / n, plain=plain
        )


CASES = {
    "direct": direct,
    "ray1": lambda arguments: by_ray(arguments, "ray1", 1, 2),
    "ray2": lambda arguments: by_ray(arguments, "ray2", 2, 1),
    "bytes": in_parquet,
}


def measure(arguments):
    for repeat in range(arguments.repeats):
        arguments.seed = repeat
        for case in arguments.case or CASES:
            CASES[case](arguments)


# ---- plan ----------------------------------------------------------------------------------------

HOUR = 3600


def plan(arguments):
    tokens, cores, rate = arguments.tokens, arguments.cores, arguments.rate
    core_hours = tokens / rate / HOUR
    machine_rate = rate * cores * arguments.efficiency
    hours = tokens / machine_rate / HOUR
    tell(
        "time",
        core_hours=core_hours,
        machine_tokens_s=machine_rate,
        machine_hours=hours,
        days_of_machines={n: hours / n / 24 for n in (1, 10, 100, 1000)},
    )
    for name, size in (
        ("logprob", 4),
        ("logprob, rank, id", 12),
        ("K=16", 64),
        ("K=64", 256),
        ("K=64 and ids per row", 512),
    ):
        tell(
            "output",
            columns=name,
            bytes_per_token=size,
            terabytes=tokens * size / 1e12,
            mb_s_per_machine=machine_rate * size / 1e6,
        )
    tell(
        "input",
        bytes_per_token=arguments.text_bytes,
        terabytes=tokens * arguments.text_bytes / 1e12,
        mb_s_per_machine=machine_rate * arguments.text_bytes / 1e6,
    )
    for label, parameters in (("135M", 134.5e6), ("1.5B", 1.54e9), ("8B", 8e9), ("70B", 70.6e9)):
        per_core = arguments.fraction * arguments.peak * 1e9 / (2 * parameters)
        tell(
            "model",
            parameters=label,
            flop_per_token=2 * parameters,
            tokens_s_per_core=per_core,
            core_hours=tokens / per_core / HOUR,
        )
    batch_s = arguments.batch * N_TEXT / machine_rate
    lost = batch_s / 2 + arguments.start
    tell(
        "faults",
        batch_s=batch_s,
        lost_s=lost,
        part_lost={per_hour: per_hour * lost / HOUR for per_hour in (0.0001, 0.01, 0.1)},
    )
    rows = tokens / N_TEXT
    tell(
        "checkpoint",
        rows=rows,
        index_gb=rows * 24 / 1e9,
        keys_gb=rows * 16 / 1e9,
        parts=rows / arguments.batch,
        shards=tokens / arguments.shard,
        shard_index_mb=arguments.shard / N_TEXT * 24 / 1e6,
        shard_parts=arguments.shard / N_TEXT / arguments.batch,
        shard_machine_hours=arguments.shard / machine_rate / HOUR,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    jobs = parser.add_subparsers(dest="job", required=True)
    job = jobs.add_parser("measure")
    job.add_argument("--case", nargs="+", choices=CASES)
    job.add_argument("--rows", type=int, default=24)
    job.add_argument("--repeats", type=int, default=1)
    job.add_argument("--model", type=pathlib.Path, default=MODEL)
    job.set_defaults(run=measure)
    job = jobs.add_parser("plan")
    job.add_argument("--tokens", type=float, default=1e12)
    job.add_argument("--rate", type=float, default=195, help="tokens/s of one core")
    job.add_argument("--cores", type=int, default=64, help="of a machine")
    job.add_argument("--efficiency", type=float, default=1.0, help="of all cores, over one")
    job.add_argument("--peak", type=float, default=91, help="GFLOP/s of a core, fma, float32")
    job.add_argument("--fraction", type=float, default=0.6, help="of the peak that is reached")
    job.add_argument("--text-bytes", type=float, default=4.5, help="bytes of text a token")
    job.add_argument("--batch", type=int, default=1024, help="rows")
    job.add_argument("--start", type=float, default=20, help="seconds until a new engine works")
    job.add_argument("--shard", type=float, default=1e8, help="tokens of one run and checkpoint")
    job.set_defaults(run=plan)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
