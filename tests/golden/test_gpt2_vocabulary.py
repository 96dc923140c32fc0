"""GPT-2 from text to log-probability with its real vocabulary, in the forms that checkpoints come
in."""

import json

import numpy as np
import pytest

import gpt2_vocabulary as gpt2
import nprun

FORMS = {
    "plain": dict(prefix="", masks=False, form="vocab"),
    "prefix and masks": dict(prefix="transformer.", masks=True, form="json"),
    "masks alone": dict(prefix="", masks=True, form="json"),
    "prefix alone": dict(prefix="transformer.", masks=False, form="vocab"),
}
TEXTS = json.loads(gpt2.GOLDEN.read_text())["texts"]


@pytest.fixture(scope="module", params=FORMS)
def folder(request, tmp_path_factory):
    if not (gpt2.VOCABULARIES / "vocab.bpe").exists():
        pytest.skip(f"no GPT-2 vocabulary in {gpt2.VOCABULARIES}: ./run setup test fetches it")
    return gpt2.build(tmp_path_factory.mktemp("gpt2") / "model", **FORMS[request.param])


def test_ids_and_logprobs_of_texts(folder):
    requests = "".join(
        json.dumps({"id": str(i), "prompt": t["text"]}) + "\n" for i, t in enumerate(TEXTS)
    )
    answers = nprun.answers(nprun.run("score", folder, "--jsonl", "-", "--json", text=requests))
    worst_of_peer = max(
        np.abs(np.subtract(t["transformers_float32"], t["oracle"])).max() for t in TEXTS
    )
    for answer, golden in zip(answers, TEXTS, strict=True):
        assert answer["token_ids"] == golden["ids"]
        difference = np.abs(np.subtract(answer["logprobs"][1:], golden["oracle"]))
        assert difference.max() <= 2 * worst_of_peer


def test_every_form_has_the_same_bits(folder, tmp_path):
    plain = gpt2.build(tmp_path / "plain")
    ids = TEXTS[2]["ids"]
    a, b = (nprun.gather(where, ids, range(0, gpt2.N_VOCAB, 7)) for where in (folder, plain))
    assert a.tobytes() == b.tobytes()
