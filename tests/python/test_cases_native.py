"""Cases of the field (docs/CASES.md) on clients, helpers and what users expect, in Python."""

import math

import numpy as np
import pytest
from checkout import MODELS
from nepit import NepitError
import nepit


PROMPTS = [[5, 6], [7] * 9, [8] * 30]
RESPONSES = [[1], [2, 3, 4], list(range(10, 27))]


def test_C019_ragged_batches_are_lists_or_padded_with_a_mask_and_offsets(tiny):
    gathered = tiny.gather(PROMPTS, RESPONSES, candidates=[1, 2])
    assert [len(one) for one in gathered] == [1, 3, 17]
    padded = nepit.pad(gathered)
    assert padded.values.shape == (3, 17, 2) and padded.lengths.tolist() == [1, 3, 17]
    assert padded.mask.sum(axis=1).tolist() == [1, 3, 17] and padded.offsets.tolist() == [
        0,
        1,
        4,
        21,
    ]
    for i, one in enumerate(gathered):
        assert np.array_equal(padded.values[i, : len(one)], one.scores)
        assert np.isnan(padded.values[i, len(one) :]).all()
        assert np.array_equal(padded.flat[padded.offsets[i] : padded.offsets[i + 1]], one.scores)
    for wrong in ([], [np.zeros(2), np.zeros((2, 2))], [np.zeros(2), np.zeros(2, np.int32)]):
        with pytest.raises(ValueError, match="rows"):
            nepit.pad(wrong)


def test_C021_a_row_short_is_an_error_and_ids_per_row_make_the_check_one_comparison(tiny):
    gathered = tiny.gather(PROMPTS[1], RESPONSES[1], candidates=[[2], [3], [4]])
    assert gathered.row_token_ids.tolist() == RESPONSES[1] == gathered.candidate_ids[:, 0].tolist()
    with pytest.raises(ValueError, match="shapes"):
        nepit.diff(gathered, gathered.scores[:-1])
    with pytest.raises(NepitError, match="rows"):
        tiny.gather(PROMPTS[1], RESPONSES[1], candidates=[[2], [3]])


def test_C032_the_rows_of_a_response_need_no_slicing(tiny):
    """Row 3 scores token 4: context [0, 1, 2, 3], continuation [4, 5, 6]."""
    gathered = tiny.gather([0, 1, 2, 3], [4, 5, 6], candidates=[[4], [5], [6]])
    assert (gathered.start, len(gathered)) == (3, 3)
    score = tiny.score([0, 1, 2, 3, 4, 5, 6])
    assert np.array_equal(gathered.scores[:, 0], score.logprobs[4:])
    assert np.array_equal(tiny.score([0, 1, 2, 3, 4, 5, 6], start=3).scored, score.logprobs[4:])


def test_C034_padding_is_by_length_and_never_by_id(tiny):
    ids = [1, 2, 0, 3, 4]
    scores = tiny.score([ids, ids + [0, 0]])
    assert len(scores[0]) == 5 and np.isfinite(scores[0].scored).all()
    padded = nepit.pad([np.array(ids), np.array([7])])
    assert padded.values[0].tolist() == ids and padded.mask[0].all()


def test_C036_a_batch_equals_one_by_one_and_has_no_side_to_pad_on(tiny):
    texts = ["A", "A much longer text, which takes many more tokens than the other one."]
    for one, alone in zip(tiny.score(texts), [tiny.score(text) for text in texts], strict=True):
        assert np.array_equal(one.logprobs, alone.logprobs, equal_nan=True)


def test_C039_entry_i_belongs_to_token_i_and_sums_need_no_shift(demo):
    text = "The cat sat."
    score = demo.score(text, top=-1)
    for i in range(1, len(score)):
        row = dict(zip(score.top_ids[i - 1].tolist(), score.top_logprobs[i - 1].tolist()))
        assert row[int(score.token_ids[i])] == score.logprobs[i]
    spans = score.spans([tuple(pair) for pair in score.offsets.tolist()])
    for i, span in enumerate(spans):
        told = score.logprobs[i]
        assert (span.first, span.last) == (i, i + 1)
        assert span.total == told or (math.isnan(span.total) and math.isnan(told))


def test_C051_C052_two_engines_token_by_token(tiny):
    ours = tiny.score(list(range(40)), top=-1).top_logprobs
    theirs = ours.astype(np.float64)
    theirs[3, 7] += 1e-3
    theirs[5, -1] -= 30  # far below the top: nothing in probability
    found = nepit.diff(ours, theirs)
    assert found.n == ours.size and found.n_different == 2
    assert [cell.place for cell in found.worst] == [(5, ours.shape[1] - 1), (3, 7)]
    assert found.probability.max < 1e-2 < found.worst[0].relative


def test_C097_an_impossible_token_has_one_value(tiny):
    padded = tiny.gather([1, 2], candidates=[[1, -1]]).scores
    assert padded[0, 1] == -np.inf and nepit.IMPOSSIBLE == -9999.0
    theirs = np.where(np.isinf(padded), nepit.IMPOSSIBLE, padded)
    found = nepit.diff(padded, theirs)
    assert found.same and found.n_both_impossible == 1 and found.n == 1
    found = nepit.diff(padded, [[padded[0, 0], -20.0]])
    assert found.n_only_a_impossible == 1 and not found.same and found.worst[0].place == (0, 1)


def test_C112_every_token_of_a_prompt_has_a_row(tiny):
    for n in (1, 2, 17):
        score = tiny.score(list(range(n)))
        assert score.n_scored == n - 1 and np.isnan(score.logprobs[0])
        assert np.isfinite(score.scored).all() and (score.ranks[1:] > 0).all()


def test_C129_labels_of_any_length(demo):
    options = [" Yes", "Yes", " Yes, of course it is.", " No"]
    choice = demo.choose("Is water wet?", options)
    assert len({option.n_tokens for option in choice.options}) > 1
    assert sum(option.probability for option in choice.options) == pytest.approx(1)


def test_C131_spans_tile_the_text_and_added_tokens_have_none():
    text = "a \U0001f600 caf\u00e9"
    found = []
    for name in ("llama-tied-f32.gguf", "qwen2-tied-f32"):
        with nepit.open(MODELS / name) as model:
            for condition in (None, "bos") if model.info.bos_id >= 0 else (None,):
                found.append(model.score(text, condition=condition))
    for score in found:
        inside = [(b, e) for b, e in score.offsets.tolist() if e > b]
        assert inside[0][0] == 0 and inside[-1][1] == len(text.encode())
        assert all(left[1] == right[0] for left, right in zip(inside, inside[1:]))
        assert all(b == e for b, e in score.offsets.tolist() if (b, e) not in inside)
    assert len(found) >= 2


def test_C136_spellings_are_added_and_white_space_is_told(demo):
    plain, spaced = (
        demo.choose(context, [("positive", " positive", " Positive"), (" negative", "negative")])
        for context in ("Sentiment:", "Sentiment: ")
    )
    assert plain.warnings == () and "space" in spaced.warnings[0]
    for option in plain.options:
        total = np.logaddexp.reduce([spelling.total for spelling in option.spellings])
        assert option.total == pytest.approx(total)


def test_C137_sum_mean_per_byte_and_calibrated_stand_side_by_side(demo):
    context, neutral, options = "The capital of France is", "Answer:", [" Paris", " a big city"]
    rules = {
        by: demo.choose(context, options, by=by, neutral=neutral)
        for by in ("mean", "total", "bytes", "characters", "calibrated")
    }
    bases = demo.choose(neutral, options).options
    for by, choice in rules.items():
        values = []
        for option, base in zip(choice.options, bases, strict=True):
            assert option.mean == option.total / option.n_tokens
            assert option.per_byte == option.total / len(option.text.encode())
            assert option.per_character == option.total / len(option.text)
            assert option.calibrated == option.total - base.total
            value = {
                "mean": option.mean,
                "total": option.total,
                "bytes": option.per_byte,
                "characters": option.per_character,
                "calibrated": option.calibrated,
            }[by]
            values.append(value)
        assert choice.best == values.index(max(values))


def test_C139_spans_of_bytes_even_where_a_token_straddles_a_quote(demo):
    text = '{"a":"x y","b":12}'
    score = demo.score(text)
    first, second = score.spans([(5, 10), (15, 17)])
    raw = text.encode()
    for span in (first, second):
        begin, end = score.offsets[span.first, 0], score.offsets[span.last - 1, 1]
        assert raw[span.begin : span.end] in raw[begin:end]
        assert span.straddles_begin == (begin < span.begin)
        assert span.straddles_end == (end > span.end)
        values = score.logprobs[span.first : span.last].tolist()
        assert (span.total, span.min, span.n_scored) == (sum(values), min(values), len(values))
    assert first.straddles_begin  # '":"' is one token here


def test_C142_words_that_the_caller_cuts(demo):
    text = "She hasn't a well-known  double\u00a0space ."
    raw = text.encode()
    cut = [b"She", b"hasn't", b"a", b"well-known", b"double", b"space", b"."]
    places = [raw.index(word) for word in cut]
    spans = [(place, place + len(word)) for place, word in zip(places, cut)]
    plain = demo.word_scores(text, spans)
    told = demo.word_scores(text, spans, end_of_word=True)
    assert [word.text for word in told] == cut
    score = demo.score(text)
    whitespace = [
        i
        for i in range(demo.info.n_vocab)
        if demo.token_bytes(i)[:1].isspace() or i == demo.info.eos_id
    ]
    rows = demo.gather(np.append(score.token_ids, 0), candidates=whitespace).scores
    begins = np.logaddexp.reduce(rows.astype(np.float64), axis=1)
    for word, bare in zip(told, plain, strict=True):
        assert word.total == bare.total or math.isnan(word.total)
        assert bare.corrected is None
        first, last = word.span.first, word.span.last
        right = word.total
        end, begin = int(score.offsets[last - 1, 1]), int(score.offsets[first, 0])
        if raw[end : end + 1].isspace() or end == len(raw):
            right += begins[last - 1]
        if first and raw[begin : begin + 1].isspace():
            right -= begins[first - 1]
        assert word.corrected == pytest.approx(right, nan_ok=True)
