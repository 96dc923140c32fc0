"""vLLM's /generative_scoring: the probability of a label behind a query and each item."""

import math

import pytest

ROUTE = "/generative_scoring"
BODY = {"query": "ab", "items": ["cd", "e"], "label_token_ids": [7, 9, 12]}


def expected(library, prompts, labels, softmax, **fields):
    scores = []
    for ids in prompts:
        row = [float(one) for one in library.gather([*ids, 1], labels, **fields)[len(ids) - 1]]
        if softmax:
            distinct = dict(zip(labels, row, strict=True))
            best = max(distinct.values())
            total = sum(math.exp(value - best) for value in distinct.values())
            scores.append(math.exp(row[0] - best) / total)
        else:
            scores.append(math.exp(row[0]))
    return scores


def scores(answer):
    assert answer["object"] == "list" and answer["id"].startswith("generative-scoring-")
    assert [one["index"] for one in answer["data"]] == list(range(len(answer["data"])))
    assert all(one["object"] == "score" for one in answer["data"])
    return [one["score"] for one in answer["data"]]


@pytest.mark.parametrize("softmax", [True, False])
@pytest.mark.parametrize("item_first", [True, False])
def test_scores(tiny, library, softmax, item_first):
    query = library.tokenize("ab")["token_ids"]
    items = [library.tokenize(item)["token_ids"] for item in BODY["items"]]
    prompts = [item + query if item_first else query + item for item in items]
    want = expected(library, prompts, [7, 9, 12], softmax)
    for body in (BODY, {**BODY, "query": query, "items": items}):
        answer = tiny.post(ROUTE, {**body, "apply_softmax": softmax,
                                   "item_first": item_first}).json
        assert scores(answer) == pytest.approx(want, rel=1e-14)
        assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))
    for one, ids in zip(answer["data"], prompts, strict=True):
        row = library.gather([*ids, 1], [7, 9, 12])[len(ids) - 1]
        assert one["label_logprobs"] == pytest.approx(list(map(float, row)), rel=1e-6)


def test_repeated_labels_and_temperature(tiny, library):
    query = [4, 5]
    body = {"query": query, "items": [[6]], "label_token_ids": [7, 9, 7]}
    assert scores(tiny.post(ROUTE, body).json) == pytest.approx(
        expected(library, [[4, 5, 6]], [7, 9], True), rel=1e-14)
    warm = tiny.post(ROUTE, {**body, "score_temperature": 2}).json
    assert scores(warm) == pytest.approx(
        expected(library, [[4, 5, 6]], [7, 9], True, score_temperature=2), rel=1e-14)


@pytest.mark.parametrize(("change", "param"), [
    ({"query": None}, "query"),
    ({"query": 5}, "query"),
    ({"query": ["a", "b"]}, "query"),
    ({"query": [1, 301]}, "query[1]"),
    ({"items": None}, "items"),
    ({"items": []}, "items"),
    ({"items": "ab"}, "items"),
    ({"items": ["a", [1]]}, "items[1]"),
    ({"items": [[1], [2, -1]]}, "items[1][1]"),
    ({"query": "", "items": ["a", ""]}, "items[1]"),
    ({"items": [[1] * 4096]}, "items[0]"),
    ({"label_token_ids": None}, "label_token_ids"),
    ({"label_token_ids": []}, "label_token_ids"),
    ({"label_token_ids": [1, 301]}, "label_token_ids[1]"),
    ({"label_token_ids": ["a"]}, "label_token_ids[0]"),
    ({"apply_softmax": "yes"}, "apply_softmax"),
])
def test_mistakes(tiny, change, param):
    tiny.refused(ROUTE, {**BODY, **change}, param)
