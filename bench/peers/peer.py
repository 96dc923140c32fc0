"""Talks to a peer: a long-lived process that scores ids, in its own Python environment or a
program of its own (build/bench/nepit_peer, which is ours).

One JSON object per line each way. First the peer says {"ready": name}. Asked: {"sequences":
[[ids]...], "first": row, "softmax": "own"|"float32"|"float64", "rows": bool, "decode": bool,
"out": "file.npy"}; answered: {"seconds": s}, from ids in memory to log-probabilities. The file
holds, sequence after sequence, the float64 log-probability of every token that rows first.. score;
with "rows" whole rows. With "decode" a sequence goes through one token at a time from row 0 on; a
peer that can only generate answers with the "sequences" that it took instead. {"error": line} ends
a peer.
"""

import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).parent
CACHE = HERE.parent.parent / ".cache" / "peers"
ENVIRONMENTS = pathlib.Path(os.environ.get("NEPIT_PEERS", CACHE))
MODULES = {"transformers": "transformers", "llama": "llama_cpp", "vllm": "vllm"}


def interpreter(name, given=None):
    """The Python of a peer's environment: as given, or where setup.sh put it; None if it is not
    there."""
    path = given or str(ENVIRONMENTS / name / "bin" / "python")
    find = f"import importlib.util as u, sys; sys.exit(not u.find_spec({MODULES[name]!r}))"
    try:
        done = subprocess.run([path, "-c", find], capture_output=True)
    except OSError:
        return None
    return path if done.returncode == 0 else None


class Peer:
    def __init__(self, program, script, *args, threads=2):
        """A script of this folder, or None where the program is itself the peer."""
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), TQDM_DISABLE="1")
        self._log = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            [str(program), *([str(HERE / script)] if script else []), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        self.name = self._read()["ready"]

    def _read(self):
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self._log.seek(0)
            said = [text.strip() for text in self._log if text.strip()] or ["nothing"]
            errors = [text for text in said if "Error" in text] or said
            raise RuntimeError(f"ended with status {status}, said: {errors[-1]}")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply

    def ask(self, sequences, keep=True, **options):
        """-> (values or None, seconds); self.taken: the sequences that it took instead, or None"""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.npy")
            request = dict(options, sequences=[list(map(int, ids)) for ids in sequences])
            if keep:
                request["out"] = out
            try:
                self.process.stdin.write(json.dumps(request) + "\n")
                self.process.stdin.flush()
            except BrokenPipeError:
                pass  # it has ended; the next line tells why
            reply = self._read()
            self.taken = reply.get("sequences")
            return (np.load(out) if keep else None), reply["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
