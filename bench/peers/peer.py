"""Talks to a peer: a long-lived process in its own Python environment that scores ids.

One JSON object per line each way. Asked: {"sequences": [[ids]...], "first": row, "softmax":
"own"|"float64", "rows": bool, "out": "file.npy"}; answered: {"seconds": s}. The file holds,
sequence after sequence, the float64 log-probability of every token that rows first.. score; with
"rows" whole rows.
"""

import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).parent
ENVIRONMENTS = HERE.parent.parent / ".cache" / "peers"


def interpreter(name, given=None):
    """The Python of a peer's environment: as given, or where setup.sh put it; None if it is not
    there."""
    path = given or str(ENVIRONMENTS / name / "bin" / "python")
    module = {"transformers": "transformers", "llama": "llama_cpp"}[name]
    try:
        done = subprocess.run([path, "-c", f"import {module}"], capture_output=True)
    except OSError:
        return None
    return path if done.returncode == 0 else None


class Peer:
    def __init__(self, python, script, *args):
        environment = dict(os.environ, OMP_NUM_THREADS="2", TQDM_DISABLE="1")
        self.process = subprocess.Popen(
            [python, str(HERE / script), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.name = self._read()["ready"]

    def _read(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"peer ended with status {self.process.wait()}")
        return json.loads(line)

    def ask(self, sequences, keep=True, **options):
        """-> (values or None, seconds)"""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.npy")
            request = dict(options, sequences=[list(map(int, ids)) for ids in sequences])
            if keep:
                request["out"] = out
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            seconds = self._read()["seconds"]
            return (np.load(out) if keep else None), seconds

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
