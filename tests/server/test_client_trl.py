"""TRL's own client class, unchanged, against the server.

    NEPIT_TRL_PYTHON=/new/python:/old/python      environments with trl and vllm, by colons

TRL 1.5 and later ask /v1/completions for prompt_logprobs, 1.4 and before their own server's route.
The class cannot be imported where vllm is not installed.
"""

import json
import os
import subprocess

import pytest
from serverrun import floats, same_bits

PYTHONS = [path for path in os.environ.get("NEPIT_TRL_PYTHON", "").split(os.pathsep) if path]
SEQUENCES = [[5, 9, 17, 200, 31, 7, 44], [44, 3, 12], [12, 13, 14, 15], [8, 9]]
LENGTHS = [2, 1, 1, 2]
TOP = 4

# What runs there: every way in which the client asks.
SCRIPT = """
import inspect, json, sys
from trl.generation.vllm_client import VLLMClient
url, sequences, lengths, top = json.loads(sys.argv[1])
client = VLLMClient(base_url=url, connection_timeout=5)
old = "use_binary" in inspect.signature(client.get_sequence_logprobs).parameters
answers = []
for binary in (False, True) if old else (None,):
    for chunk in (0, 3):
        more = {} if binary is None else {"use_binary": binary}
        answers.append(client.get_sequence_logprobs(
            sequences=sequences, prompt_lengths=lengths, top_logprobs=top, chunk_size=chunk,
            **more))
try:
    client.get_sequence_logprobs(sequences=sequences, prompt_lengths=[99] * 4, top_logprobs=top)
    refused = None
except Exception as error:
    refused = str(error)
print(json.dumps({"old": old, "answers": answers, "refused": refused,
                  "world": None if old else client.get_world_size()}))
"""


def ask(python, url):
    wanted = json.dumps([url, SEQUENCES, LENGTHS, TOP])
    done = subprocess.run([python, "-W", "ignore", "-c", SCRIPT, wanted], capture_output=True,
                          text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
@pytest.mark.parametrize("python", PYTHONS or [None])
def test_the_client_gets_the_commands_numbers(library, serve, python):
    if python is None:
        pytest.skip("NEPIT_TRL_PYTHON names no Python with trl and vllm")
    # The options that TRL's page gives to vLLM.
    options = ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]
    with serve(*options) as server:
        found = ask(python, server.url)
    assert len(found["answers"]) == (4 if found["old"] else 2)
    for answer in found["answers"]:
        for i, (ids, length) in enumerate(zip(SEQUENCES, LENGTHS, strict=True)):
            score = library.score(ids, top=TOP)
            best = score["top_logprobs"][length:]
            assert answer["logprob_token_ids"][i] == [
                [one["token_id"] for one in row] for row in best]
            assert same_bits(floats(answer["logprobs"][i]),
                             floats([[one["logprob"] for one in row] for row in best]))
            if "actual_logprobs" in answer:
                own = [[value] for value in score["logprobs"][length:]]
                assert same_bits(floats(answer["actual_logprobs"][i]), floats(own))
                assert answer["actual_token_ids"][i] == [[one] for one in ids[length:]]
    if found["old"]:
        assert "Request failed: 400" in found["refused"]
        assert "prompt_lengths[0]" in found["refused"]
    else:
        assert found["world"] == 1
