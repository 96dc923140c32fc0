"""Puts the events of a stream together again, as clients do."""

import base64
import io

import numpy as np

COLUMNS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
MORE_COLUMNS = ("token_ids", "ranks", "bytes", "top_tokens")


def array(text):
    return np.load(io.BytesIO(base64.b64decode(text)))


def file_of(rows):
    file = io.BytesIO()
    np.save(file, rows)
    return base64.b64encode(file.getvalue()).decode()


def extend(target, name, value):
    """Lists, objects of lists, texts and parts of a .npy grow; whatever else stands is last."""
    if value is None:
        target.setdefault(name, None)
    elif name == "prompt_token_id_logprobs" and target.get(name):
        target[name] = file_of(np.concatenate([array(target[name]), array(value)]))
    elif isinstance(value, list) and target.get(name) is not None:
        target[name] = target[name] + value
    elif isinstance(value, dict):
        target[name] = target.get(name) or {}
        for key, inner in value.items():
            extend(target[name], key, inner)
    elif isinstance(value, str) and name in ("text", "content"):
        target[name] = target.get(name, "") + value
    else:
        target[name] = value


def together(events):
    """What the plain answer would say: its members, and its choices in order."""
    whole, choices = {}, {}
    for event in events:
        for choice in event.get("choices", []):
            mine = choices.setdefault(choice["index"], {})
            for name, value in choice.items():
                extend(mine, "message" if name == "delta" else name, value)
        for name, value in event.items():
            if name != "choices":
                extend(whole, name, value)
    whole["choices"] = [choices[index] for index in sorted(choices)]
    return whole


def same(plain, streamed, *names):
    """Each of the names has the same value in both; absent and null are the same."""
    for name in names:
        assert streamed.get(name) == plain.get(name), name
