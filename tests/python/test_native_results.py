"""What answers show, and what is computed from them."""

import dataclasses
import html.parser
import math
import sys
import types

import numpy as np
import pytest
from checkout import DEMO, MODELS
from nepit import NepitError
import nepit


TEXT = 'a <b onclick="x"> & "c"\n\tend <script>alert(1)</script> \x07'
OTHER = MODELS / "gpt2-plain.gguf"


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def answers(demo):
    return {
        "score": demo.score(TEXT, entropy=True),
        "next": demo.next("The", top=3),
        "flat": demo.gather("The cat", " sat down", [1, 2, 300]),
        "rows": demo.gather("The cat", " sat", [[1, -1]]),
        "choice": demo.choose("The <b>cat</b> ", ["<i>", "sat"]),
        "tokens": demo.tokenize(TEXT),
        "generation": demo.generate("The", max_tokens=2, top=0),
        "perplexity": demo.perplexity(b"The cat sat."),
        "comparison": demo.compare(["<b>x</b> y"], demo),
        "diff": nepit.diff([-1.0, -2.0], [-1.0, -2.5]),
    }


@pytest.mark.parametrize("name", ["score", "next", "flat", "rows", "choice", "comparison", "diff"])
def test_pictures_escape_what_texts_hold(answers, name):
    picture = Tags(answers[name]._repr_html_())
    known = {"div", "span", "table", "tr", "th", "td", "code", "p", "b"}
    assert {tag for tag, _ in picture.tags} <= known
    assert all(set(attributes) <= {"style", "title"} for _, attributes in picture.tags)
    styles = [attributes.get("style", "") for _, attributes in picture.tags]
    assert not any("color:#" in style for style in styles)  # dark pages keep their own colours


def test_the_picture_of_a_score_has_its_numbers_on_hover(answers):
    score = answers["score"]
    spans = [a for tag, a in Tags(score._repr_html_()).tags if tag == "span"]
    assert len(spans) == len(score) and "not scored" in spans[0]["title"]
    for i, span in enumerate(spans[1:], 1):
        assert f"{score.logprobs[i]:.4f} nats, rank {score.ranks[i]}" in span["title"]
        assert f"id {score.token_ids[i]}:" in span["title"] and "rgba" in span["style"]
    long = nepit._html.tokens([b"a"] * 9000, [1] * 9000, [-1.0] * 9000, [""] * 9000)
    assert long.count("<span") == 4000 and "5000 more" in long


def test_answers_print_in_a_line(answers):
    for name, answer in answers.items():
        assert 0 < len(repr(answer)) < 900 and "\n" not in repr(answer), name
        assert dataclasses.is_dataclass(answer)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(answer, dataclasses.fields(answer)[0].name, 1)
    assert repr(answers["flat"]).startswith("Gathered(scores=float32[2, 3]")


class Frame(dict):
    pass


def modules(monkeypatch):
    """pandas, pyarrow and matplotlib as far as they are needed, whatever is installed."""
    pandas, pyarrow, plots = (types.ModuleType(name) for name in ("pandas", "pyarrow", "plt"))
    pandas.DataFrame = pyarrow.table = Frame
    axes = type("Axes", (), {"__getattr__": lambda self, name: lambda *a, **k: self})()
    plots.subplots = lambda figsize: (None, axes)
    matplotlib = types.ModuleType("matplotlib")
    matplotlib.pyplot = plots
    for name, module in (
        ("pandas", pandas),
        ("pyarrow", pyarrow),
        ("matplotlib", matplotlib),
        ("matplotlib.pyplot", plots),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    return axes


def test_tables_and_plots(answers, monkeypatch):
    axes = modules(monkeypatch)
    for name, answer in answers.items():
        if name == "perplexity":
            continue
        frame = answer.to_pandas()
        assert frame.keys() == answer.to_arrow().keys()
        assert len({len(column) for column in frame.values()}) == 1, name
        if hasattr(answer, "plot"):
            assert answer.plot() is axes and answer.plot(ax=axes) is axes
    score, frame = answers["score"], answers["score"].to_pandas()
    assert frame["token_id"].tolist() == score.token_ids.tolist()
    assert np.array_equal(frame["logprob"], score.logprobs, equal_nan=True)
    assert np.array_equal(frame["entropy"][1:], score.entropies) and math.isnan(frame["entropy"][0])
    rows = answers["flat"].to_pandas()
    assert rows["row"].tolist() == [1, 1, 1, 2, 2, 2]
    assert rows["candidate_id"].tolist() == [1, 2, 300] * 2
    assert rows["logprob"].tolist() == answers["flat"].scores.ravel().tolist()
    assert answers["rows"].to_pandas()["candidate_id"].tolist() == [1]  # padding is no line


@pytest.mark.parametrize(
    ("module", "extra", "use"),
    [
        ("pandas", "frames", lambda m: m.score([1, 2]).to_pandas()),
        ("pyarrow", "frames", lambda m: m.score([1, 2]).to_arrow()),
        ("matplotlib.pyplot", "plot", lambda m: m.score([1, 2]).plot()),
        ("tqdm.auto", "progress", lambda m: m.score([[1, 2]], progress=True)),
    ],
)
def test_a_missing_companion_says_what_to_install(tiny, monkeypatch, module, extra, use):
    monkeypatch.setitem(sys.modules, module, None)
    name = module.split(".")[0]
    with pytest.raises(ImportError, match=rf"{name} .*pip install 'nepit\[{extra}\]'"):
        use(tiny)


# ---- diff ----------------------------------------------------------------------------------------


def test_diff_by_hand():
    a, b = [math.log(0.5), math.log(0.25), -1.0], [math.log(0.4), math.log(0.25), -2.0]
    found = nepit.diff(a, b)
    d = [x - y for x, y in zip(a, b)]
    relative = [abs(x) / (abs(y) + 1e-10) for x, y in zip(d, b)]
    probability = [abs(math.exp(x) - math.exp(y)) for x, y in zip(a, b)]
    ratio = [1.25, 1.0, math.e]
    for statistic, values in (
        (found.relative, relative),
        (found.probability, probability),
        (found.ratio, ratio),
    ):
        mean = sum(values) / 3
        spread = math.sqrt(sum((x - mean) ** 2 for x in values) / 3)
        right = max(values), mean, spread, sorted(values)[1], min(values)
        told = statistic.max, statistic.mean, statistic.stdev, statistic.median, statistic.min
        assert told == pytest.approx(right, rel=1e-12)
    assert (found.n, found.n_different, found.same) == (3, 2, False)
    assert found.k1 == pytest.approx(-sum(d) / 3)
    assert found.k2 == pytest.approx(sum(x * x for x in d) / 6)
    assert found.k3 == pytest.approx(sum(r - 1 - x for r, x in zip(ratio, d)) / 3)
    right = sum(ratio) ** 2 / sum(r * r for r in ratio)
    assert found.effective_sample_size == pytest.approx(right)
    assert found.clipped_fraction == pytest.approx(2 / 3)
    assert nepit.diff(a, b, eps=0.3).clipped_fraction == pytest.approx(1 / 3)
    assert [cell.place for cell in found.worst] == [(2,), (0,)]
    assert (found.worst[0].a, found.worst[0].b) == (-1.0, -2.0)
    assert nepit.diff(a, a).same and nepit.diff(a, a).worst == ()


def test_diff_of_shapes_and_kinds(tiny):
    score = tiny.score([7, 3, 9, 4, 1])
    assert (
        nepit.diff(score, score.scored).same and nepit.diff([score], [score.scored.tolist()]).same
    )
    assert nepit.diff(np.zeros((2, 3)), np.zeros((2, 3), np.float32)).n == 6
    gathered = tiny.gather([1, 2, 3], candidates=[[1, -1], [2, 3]])
    assert nepit.diff(gathered, gathered).n_both_impossible == 1
    ragged = nepit.diff([[-1.0], [-2.0, -3.0]], [[-1.0], [-2.0, -3.5]])
    assert ragged.worst[0].place == (1, 1)
    empty = nepit.diff([], [])
    assert empty.n == 0 and math.isnan(empty.k1) and math.isnan(empty.relative.max)
    huge = nepit.diff([0.0, -1.0], [-5000.0, -1.0])
    assert huge.effective_sample_size == pytest.approx(1) and huge.ratio.max == math.inf
    with pytest.raises(ValueError, match="shapes"):
        nepit.diff([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="inf"):
        nepit.diff([math.inf], [0.0])
    for wrong in ("text", None, tiny.generate([1], max_tokens=1)):
        with pytest.raises(TypeError):
            nepit.diff(wrong, wrong)


# ---- check ---------------------------------------------------------------------------------------


class Agrees:
    """A tokenizer in transformers' clothes."""

    def __init__(self, model):
        self.model = model

    def encode(self, text, add_special_tokens=True):
        return self.model.tokenize(text, add_special=add_special_tokens).token_ids.tolist()


class Boxed(Agrees):
    """And in those of tokenizers."""

    def encode(self, text, add_special_tokens=True):
        return types.SimpleNamespace(ids=super().encode(text, add_special_tokens))


class Differs(Agrees):
    def encode(self, text, add_special_tokens=True):
        ids = super().encode(text, add_special_tokens)
        return [*ids[:-1], 5] if text == "Paris is caf\u00e9 here" else ids


def test_check(demo):
    for tokenizer in (Agrees(demo), Boxed(demo)):
        found = nepit.check(demo, tokenizer, ["more", b"texts"])
        # Some of the texts hold bytes that this vocabulary lacks: both refuse.
        assert found or found.first.why
    found = nepit.check(demo, Differs(demo), ["Paris is caf\u00e9 here"])
    assert not found and found.n_different == 2
    first = found.first
    assert first.text == "Paris is caf\u00e9 here" and first.theirs[-1] == 5
    assert first.token == len(first.ours) - 1 and first.ours[: first.token] == first.theirs[:-1]
    assert first.offset == len("Paris is caf\u00e9".encode())


def test_check_against_tokenizers(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    folder = MODELS / "llama-tied-f32"
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    with nepit.open(folder) as model:
        assert nepit.check(model, theirs), nepit.check(model, theirs)


# ---- compare, pad, spans -------------------------------------------------------------------------


def test_compare(demo):
    texts = ["The cat sat.", "caf\u00e9 \U0001f600"]
    with nepit.open(OTHER) as other:
        found = demo.compare(texts, other, names=["big", "small"])
        alone = [demo.score(texts), other.score(texts)]
    assert found.models == ["big", "small"] and found.total.shape == (2, 2)
    for j, scores in enumerate(alone):
        for i, score in enumerate(scores):
            assert found.total[i, j] == score.total
            assert found.bits_per_byte[i, j] == score.bits_per_byte
            assert found.perplexity[i, j] == score.perplexity and found.mean[i, j] == score.mean
    assert not found.same_tokens and any("tokenizers differ" in x for x in found.warnings)
    for i, text in enumerate(texts):
        aligned = found.aligned(i)
        assert b"".join(aligned.texts) == text.encode()
        assert np.nansum(aligned.totals, axis=0) == pytest.approx(found.total[i])
    same = demo.compare("The cat", demo)
    assert same.same_tokens and same.warnings == () and (same.times_likelier == 1).all()
    with pytest.raises(ValueError, match="names"):
        demo.compare("x", names=["a", "b"])


def test_spans(demo):
    text = '{"a": "x y", "b": 12}'
    score = demo.score(text)
    whole = score.spans([(0, len(text))])[0]
    assert whole.total == score.total and whole.n_scored == score.n_scored
    for begin, end in [(7, 10), (18, 20), (5, 6)]:
        span = score.spans([(begin, end)])[0]
        touching = [
            k for k, (b, e) in enumerate(score.offsets.tolist()) if e > begin and b < end and e > b
        ]
        assert (span.first, span.last) == (touching[0], touching[-1] + 1)
        values = [x for x in score.logprobs[touching].tolist() if not math.isnan(x)]
        assert (span.total, span.min) == (sum(values), min(values))
        assert span.mean == sum(values) / len(values)
        assert span.straddles_begin == (score.offsets[span.first, 0] < begin)
        assert span.straddles_end == (score.offsets[span.last - 1, 1] > end)
    assert demo.score(score.token_ids).spans([(7, 10)])[0].total == score.spans([(7, 10)])[0].total
    for wrong in [(0, 0), (5, 3), (-1, 2), (0, len(text) + 1)]:
        with pytest.raises(NepitError, match=r"spans\[0\]"):
            score.spans([wrong])


def test_choose_of_lists_ids_and_spellings(demo):
    contexts, options = ["The capital of France is", "Two and two are"], [" Paris", " four"]
    alone = [demo.choose(context, options) for context in contexts]
    for found in (demo.choose(contexts, options), list(demo.choose(iter(contexts), options))):
        for one, two in zip(found, alone, strict=True):
            assert [x.total for x in one.options] == [x.total for x in two.options]
    own = demo.choose(contexts, [[" Paris"], [" five", " four"]])
    assert [len(choice.options) for choice in own] == [1, 2]
    ids = [demo.tokenize(option).token_ids for option in options]
    apart = demo.choose(contexts[0], ids)
    assert apart.encoded == "separately" and alone[0].encoded == "together"
    assert [x.total for x in apart.options] == [x.total for x in alone[0].options]
    spelled = demo.choose(contexts[0], [(" Paris", "Paris"), " four"]).options[0]
    parts = [x.total for x in demo.choose(contexts[0], [" Paris", "Paris"]).options]
    assert spelled.total == pytest.approx(np.logaddexp(*parts)) and len(spelled.spellings) == 2
    errors = demo.choose([contexts[0], "", contexts[1]], options, errors="return")
    assert [isinstance(x, NepitError) for x in errors] == [False, True, False]
    with pytest.raises(ValueError, match="options"):
        demo.choose(contexts, [[" a"]])


def test_perplexity_of_many_documents(demo, tmp_path):
    texts = [b"The cat sat on the mat.", b"caf\xc3\xa9 au lait, s'il vous pla\xc3\xaet"]
    paths = []
    for i, text in enumerate(texts):
        paths.append(tmp_path / str(i))
        paths[-1].write_bytes(text)
    right = [demo.score(text).total for text in texts]
    files = [path.open("rb") for path in paths]
    for found in (
        demo.perplexity(texts),
        demo.perplexity(paths),
        demo.perplexity([str(path) for path in paths]),
        demo.perplexity(files),
        list(demo.perplexity(iter(texts))),
        [demo.perplexity(text.decode(), text=True) for text in texts],
    ):
        assert [x.total for x in found] == right
    for file in files:
        file.close()
    mixed = demo.perplexity([paths[0], tmp_path / "missing", paths[1]], errors="return")
    assert [mixed[0].total, mixed[2].total] == right and mixed[1].code == "EIO"
    assert isinstance(mixed[1].__cause__, FileNotFoundError)
    with pytest.raises(NepitError, match="window"):
        demo.perplexity(b"x", window=10**6)
    with pytest.raises(TypeError, match="bytes"), paths[0].open() as file:
        demo.perplexity(file)
