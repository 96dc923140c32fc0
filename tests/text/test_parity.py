"""Ids equal to those of `tokenizers`, `tiktoken` and llama.cpp: 0 differences.

Texts: 65 KB in each of 19 languages, of code and of XML (tools/corpus.py), whitespace runs,
emoji, digits, and random code points that Unicode 16.0 assigns. The reference pipelines are built
by hand in vocabularies.py."""

import json
import os
import random
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("gguf")
import corpus  # noqa: E402
import vocabularies as voc  # noqa: E402
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers  # noqa: E402

BYTES_OF_EACH = 65_000
CATEGORIES = (
    "Cc Cf Cn Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps "
    "Sc Sk Sm So Zl Zp Zs Cc Ll Lu"
).split()
SPACES = [
    9,
    10,
    11,
    12,
    13,
    32,
    0x85,
    0xA0,
    0x1680,
    *range(0x2000, 0x200B),
    0x2028,
    0x2029,
    0x202F,
    0x205F,
    0x3000,
]


def table():
    """code point -> number in src/text/unicode_tables.c."""
    source = (voc.ROOT / "src" / "text" / "unicode_tables.c").read_text()
    numbers = [
        list(map(int, re.findall(r"\d+", part)))
        for part in re.findall(r"= \{(.*?)\};", source, re.S)
    ]
    index, blocks = numbers
    return [value for block in index for value in blocks[block * 128 : block * 128 + 128]]


def category(c, numbers=table()):
    return CATEGORIES[numbers[c] & 0x3F]


ASSIGNED = [c for c in range(0x110000) if category(c) not in ("Cn", "Cs", "Co")]


def random_texts(rng, n):
    """Random characters: uniform, and clustered in the ways that rules care about."""
    blocks = [ASSIGNED[i : i + 200] for i in range(0, len(ASSIGNED), 200)]
    marks = [c for c in ASSIGNED if category(c).startswith("M")]
    digits = [c for c in ASSIGNED if category(c).startswith("N")]
    ascii_codes = list(range(32, 127)) + [9, 10, 13]
    for _ in range(n):
        pools = [ASSIGNED, rng.choice(blocks), marks, digits, SPACES, ascii_codes, ascii_codes]
        weights = [rng.random() for _ in pools]
        yield "".join(
            chr(rng.choice(rng.choices(pools, weights)[0])) for _ in range(rng.randrange(1, 120))
        )


def special_texts():
    rng = random.Random(7)
    yield from [
        "",
        " ",
        "\n",
        "\n\n  0.",
        "x" * 3000,
        "ab " * 1000,
        "=" * 777,
        "!\x85",
        "a\u2003b",
        "a\u00a0b",
    ]
    yield from (
        "".join(rng.choice(" \t\r\n\u00a0\u3000\u2028x1.") for _ in range(rng.randrange(1, 40)))
        for _ in range(300)
    )
    yield from (f"!{chr(c)}a{chr(c)}{chr(c)}b {chr(c)}\n{chr(c)}1" for c in SPACES)
    yield from (
        "".join(rng.choice("0123456789 ,.-\u0663\u096a\u00b2\u2167") for _ in range(40))
        for _ in range(100)
    )
    yield from [
        "👩‍👩‍👧‍👦 family",
        "🏳️‍🌈🇩🇪🇫🇷",
        "👍🏽👍🏿 ok",
        "e\u0301 \u1100\u1161\u11a8 \u212b \u2126",
        "ﬁ ſt K",
    ]
    contractions = [
        "'s",
        "'S",
        "'T",
        "'re",
        "'RE",
        "'Ve",
        "'lL",
        "'d",
        "'\u017f",
        "'\u212a",
        "\u2019s",
    ]
    yield from (f"it{c}x {c} {c}{c}" for c in contractions)


@pytest.fixture(scope="module")
def texts():
    found = [
        data.decode()
        for _, data in ((name, corpus.cut(data, BYTES_OF_EACH)) for name, data in corpus.texts())
    ]
    if sum(len(text.encode()) for text in found) < 1_000_000:
        pytest.skip("no texts: " + "tools/corpus.py could not fetch its packages")
    return found


@pytest.fixture(scope="module")
def odd_texts():
    rng = random.Random(20241116)
    return list(special_texts()) + list(random_texts(rng, 3000))


def compare(encode, model, expected, texts, *options):
    """expected: text -> ids. Every difference is reported; spans tile the bytes."""
    raw = [text.encode() for text in texts]
    found = encode(model, raw, *options)
    differences = []
    for text, data, got in zip(texts, raw, found):
        want = expected(text)
        if not isinstance(got, list) or list(got) != list(want):
            at = (
                next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), -1)
                if isinstance(got, list)
                else -1
            )
            differences.append((text[:200], at, str(got)[:300], str(want)[:300]))
            continue
        place = 0
        for begin, end in got.spans:
            assert begin == place and end >= begin, (text[:200], got.spans)
            place = end
        assert place == len(data)
    assert (
        not differences
    ), f"{len(differences)} of {len(texts)} differ, the first: {differences[0]}"


def by_tokenizers(reference):
    return lambda text: reference.encode(text).ids


def known_bytes(texts, vocab):
    """Texts whose bytes all have a token: a vocabulary may lack bytes."""
    lacking = {b for b in range(256) if voc.ALPHABET[b] not in vocab}
    return [text for text in texts if not lacking & set(text.encode())]


# ---- the classes of characters -----------------------------------------------------------------


EVERYTHING = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)


def check_class(regex, has):
    rest = set(normalizers.Replace(Regex(regex), "").normalize_str(EVERYTHING))
    wrong = [hex(ord(c)) for c in EVERYTHING if (c not in rest) != has(ord(c))]
    assert not wrong, (regex, wrong[:10])


def test_classes_equal_those_of_the_regex_engine():
    """C154: every code point, for the classes that the known rules name."""
    numbers = table()
    check_class(r"\p{L}", lambda c: category(c, numbers)[0] == "L")
    check_class(r"\p{N}", lambda c: category(c, numbers)[0] == "N")
    check_class(r"\s", set(SPACES).__contains__)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(CATEGORIES) - {"Cs"}))
def test_categories_equal_those_of_the_regex_engine(name):
    check_class(r"\p{%s}" % name, lambda c, numbers=table(): category(c, numbers) == name)


# ---- real vocabularies -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm():
    if not voc.SMOLLM.exists():
        pytest.skip(f"{voc.SMOLLM} is missing")
    return voc.smollm_reference()


def fetched(make):
    try:
        return make()
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the vocabulary cannot be fetched: {error}")


@pytest.fixture(scope="module")
def gpt2():
    return fetched(voc.gpt2_vocabulary)


@pytest.fixture(scope="module")
def qwen():
    return fetched(voc.qwen_vocabulary)


def test_smollm_gguf(encode, smollm, texts, odd_texts):
    """C147: all texts, no difference."""
    compare(encode, voc.SMOLLM, by_tokenizers(smollm), texts)
    odd = known_bytes(odd_texts, smollm.get_vocab())
    assert len(odd) > 2000
    compare(encode, voc.SMOLLM, by_tokenizers(smollm), odd)


def test_smollm_tokenizer_json(encode, smollm, odd_texts, tmp_path):
    """C152: the same tokenizer in both kinds of file."""
    folder = voc.json_folder(tmp_path, smollm)
    odd = known_bytes(odd_texts, smollm.get_vocab())
    compare(encode, folder, by_tokenizers(smollm), odd)


def test_a_byte_without_a_token_is_an_error_with_its_place(encode, smollm):
    [refused] = encode(voc.SMOLLM, [b"abc \x04 def"])
    assert str(refused) == "the vocabulary has no token for byte 0x04 (text, byte 4)"


def test_gpt2(encode, gpt2, texts, odd_texts, tmp_path):
    expected = by_tokenizers(voc.gpt2_reference())
    compare(encode, voc.pair_folder(tmp_path / "pair", *gpt2, "gpt2"), expected, texts + odd_texts)
    compare(
        encode,
        voc.pair_folder(tmp_path / "old", *gpt2, "gpt2", "encoder.json", "vocab.bpe"),
        expected,
        odd_texts,
    )
    compare(encode, voc.json_folder(tmp_path / "json", voc.gpt2_reference()), expected, odd_texts)
    compare(
        encode,
        voc.gguf_file(tmp_path / "g.gguf", "gpt-2", *gpt2, ["<|endoftext|>"]),
        expected,
        odd_texts,
    )


def test_gpt2_against_tiktoken(encode, gpt2, texts, odd_texts, tmp_path):
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {
        bytes(voc.BYTE_OF[c] for c in token): i
        for token, i in gpt2[0].items()
        if token != "<|endoftext|>"
    }
    reference = tiktoken.Encoding(
        "gpt2",
        pat_str=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": 50256},
    )
    model = voc.pair_folder(tmp_path, *gpt2, "gpt2")
    compare(encode, model, reference.encode_ordinary, texts + odd_texts, "no-special")


def test_qwen2(encode, qwen, texts, odd_texts, tmp_path):
    reference = voc.qwen_reference()
    expected = by_tokenizers(reference)
    compare(
        encode,
        voc.gguf_file(tmp_path / "q.gguf", "qwen2", *qwen, voc.QWEN_SPECIALS),
        expected,
        texts + odd_texts,
    )
    compare(encode, voc.json_folder(tmp_path / "json", reference), expected, odd_texts)
    folder = voc.pair_folder(
        tmp_path / "pair",
        *qwen,
        "qwen2",
        added_tokens_decoder={
            str(reference.token_to_id(t)): {"content": t, "special": True}
            for t in voc.QWEN_SPECIALS
        },
    )
    compare(encode, folder, expected, odd_texts)


def test_qwen2_against_tiktoken(encode, qwen, texts, odd_texts, tmp_path):
    tiktoken = pytest.importorskip("tiktoken")
    reference = tiktoken.Encoding(
        "qwen", pat_str=voc.QWEN2, mergeable_ranks=voc.qwen_ranks(), special_tokens={}
    )
    model = voc.gguf_file(tmp_path / "q.gguf", "qwen2", *qwen)

    nfc = normalizers.NFC()

    def expected(text):
        return reference.encode_ordinary(nfc.normalize_str(text))

    compare(encode, model, expected, texts + odd_texts)


def test_llama3_rule(encode, qwen, texts, odd_texts, tmp_path):
    """C146: with ignore_merges and without; BOS by the post-processor."""
    odd = odd_texts + [" Việt", "Việt"]
    for ignore_merges in (True, False):
        reference = voc.llama3_reference(ignore_merges)
        folder = voc.json_folder(
            tmp_path / str(ignore_merges), reference, {"bos_token": "<|begin_of_text|>"}
        )
        found = texts if ignore_merges else texts[::6]
        compare(encode, folder, by_tokenizers(reference), found + odd)
    specials = ["<|begin_of_text|>", "<|eot_id|>"]
    path = voc.gguf_file(
        tmp_path / "l.gguf", "llama-bpe", *qwen, specials, bos_token_id=len(qwen[0])
    )
    compare(encode, path, by_tokenizers(voc.llama3_reference()), odd)


# ---- added tokens ------------------------------------------------------------------------------


def test_added_tokens(encode, gpt2, tmp_path):
    """Every flag, alone and together, on random mixtures."""
    vocab, merges = gpt2
    reference = voc.byte_level(
        vocab, merges, [voc.gpt2_step()], nfc=True, specials=["<|endoftext|>"]
    )
    flags = [
        {},
        {"lstrip": True},
        {"rstrip": True},
        {"single_word": True},
        {"normalized": True},
        {"lstrip": True, "rstrip": True},
        {"normalized": True, "rstrip": True, "special": True},
    ]
    contents = ["<a>", "<ab>", "abc", "éa", "bc d", "<a", "ﬁn"]
    reference.add_tokens(
        [
            AddedToken(content, **({"normalized": False} | extra))
            for content, extra in zip(contents, flags)
        ]
    )
    folder = voc.json_folder(tmp_path, reference)
    rng = random.Random(3)
    parts = contents + [
        "<|endoftext|>",
        " ",
        "  ",
        "\n",
        "\u3000",
        "x",
        "e\u0301",
        "b",
        "c",
        "<",
        ">",
        "1",
        "_",
        "\u0301",
    ]
    texts = ["".join(rng.choice(parts) for _ in range(rng.randrange(1, 14))) for _ in range(4000)]
    compare(encode, folder, by_tokenizers(reference), texts)
    reference.encode_special_tokens = True
    compare(encode, folder, by_tokenizers(reference), texts, "no-special")


def test_add_prefix_space(encode, gpt2, tmp_path):
    vocab, merges = gpt2
    step = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    reference = voc.byte_level(vocab, merges, [step], specials=["<|endoftext|>"])
    texts = ["", "a", " a", "a<|endoftext|>b c<|endoftext|> d", "<|endoftext|>", "\n", "é 1"]
    compare(encode, voc.json_folder(tmp_path, reference), by_tokenizers(reference), texts)


# ---- llama.cpp ---------------------------------------------------------------------------------

PEER = """
import json, sys, llama_cpp
model = llama_cpp.Llama(sys.argv[1], vocab_only=True, verbose=False)
special = sys.argv[2] == "1"
texts = json.load(sys.stdin)
print(json.dumps([model.tokenize(t.encode(), add_bos=False, special=special) for t in texts]))
"""


def llama_cpp(model, texts, special=True):
    """Ids by llama.cpp, with the Python named by NEPIT_LLAMA_PYTHON or this one."""
    python = os.environ.get("NEPIT_LLAMA_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import llama_cpp"], capture_output=True).returncode:
        pytest.skip(
            "llama_cpp is not installed here (NEPIT_LLAMA_PYTHON names a Python that has it)"
        )
    done = subprocess.run(
        [python, "-c", PEER, str(model), str(int(special))],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(texts, json.loads(done.stdout)))


def test_smollm_against_llama_cpp(encode, smollm, texts, odd_texts):
    """Without what Unicode 16.0 added: llama.cpp's tables are older, as are Python 3.13's."""
    new = {c for c in ASSIGNED if unicodedata.category(chr(c)) == "Cn"}
    odd = [text for text in odd_texts if text and not new & set(map(ord, text))]
    odd = known_bytes(odd, smollm.get_vocab())
    assert len(odd) > 1000
    found = llama_cpp(voc.SMOLLM, texts + odd)
    compare(encode, voc.SMOLLM, found.__getitem__, texts + odd)
