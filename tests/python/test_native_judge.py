"""Any input against the C library asked by hand: the same bits, or the same refusal."""

import ctypes as c

import nepit._bridge as layout
import numpy as np
import pytest
from checkout import MODELS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judge import Judge
from nepit import NepitError


TINY = MODELS / "llama-tied-f32.gguf"
DTYPES = ["<i4", ">i4", "<i8", ">i8", "u1", "<u2", ">u2", "<u4", "<u8", ">u8", "<i2", ">i2"]
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
# Of these a vocabulary has none: as far as any integer goes.
WRONG = st.sampled_from([-1, -2, 10**6, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**63, 2**64, -(2**70)])


@pytest.fixture(scope="module")
def judge():
    with Judge(TINY) as made:
        yield made


def asked(judge, ids, start=0, candidates=None, want=0, top=0, following=0):
    """np_run of one request: an answer, or (code, where, given)."""
    array, address = judge.array(ids, np.int32)
    request = layout.Request(token_ids=address, n_tokens=len(array), start=start, want=want)
    request.top, request.next = top, following
    if candidates is not None:
        table, request.candidate_ids = judge.array(candidates, np.int32)
        request.n_candidates = table.shape[-1]
        request.n_candidate_rows = table.shape[0] if table.ndim == 2 else 0
    result, error = layout.Result(), layout.Error()
    one = c.c_size_t(1)
    out = c.byref(result), None, None, c.byref(error)
    assert judge.lib.np_run(judge.engine, c.byref(request), one, *out) == 0
    judge.keeps.clear()
    told = result.error
    if told.status:
        return layout.CODES[told.status], told.where.decode(), told.given.decode()
    n, rows, k = result.n_scored, result.n_rows, result.n_candidates

    def floats(pointer, *shape):
        count = int(np.prod(shape)) if pointer else 0
        return np.array(pointer[:count] if count else [], np.float32).reshape(
            shape if count else -1
        )

    answer = {
        "scores": floats(result.scores, rows, k),
        "logprobs": floats(result.logprobs, n),
        "ranks": np.array(result.ranks[:n] if n and result.ranks else [], np.int32),
        "top": floats(result.top_logprobs, rows, result.n_top),
        "entropies": floats(result.entropies, rows if result.entropies else 0),
        "mass": floats(result.mass, rows if result.mass else 0),
        "tail": floats(result.tail, rows if result.tail else 0),
    }
    judge.lib.np_result_free(c.byref(result))
    return answer


class Tensor:
    """What only knows DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Wrapped:
    """What only knows __array__."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)


@st.composite
def forms(draw, values):
    """The same ids in any dress: type, byte order, stride, order of memory, tensor, read-only."""
    array = np.array(values)
    kind = draw(st.sampled_from(DTYPES))
    info = np.iinfo(kind)
    if array.size and (array.min() < info.min or array.max() > info.max):
        kind = "<i8"
    array = array.astype(kind)
    dress = draw(st.integers(0, 7))
    if dress == 0:
        return array.tolist()
    if dress == 1:
        return np.repeat(array, 2, axis=-1)[..., ::2]
    if dress == 2:
        return np.asfortranarray(array)
    if dress == 3:
        array.flags.writeable = False
        return array
    if dress == 4:
        return Tensor(np.ascontiguousarray(array, array.dtype.newbyteorder("=")))
    if dress == 5:
        return Wrapped(array)
    if dress == 6 and array.ndim == 1:
        return tuple(array.tolist())
    return array[..., ::-1].copy()[..., ::-1]


@QUICK
@given(data=st.data())
def test_gather_is_the_librarys(tiny, judge, data):
    ids = data.draw(st.lists(st.integers(0, 100), min_size=1, max_size=24))
    start = data.draw(st.integers(0, len(ids) + 2))
    rows, width = max(len(ids) - 1 - start, 0), data.draw(st.integers(1, 5))
    flat = data.draw(st.booleans()) or rows == 0
    shape = (width,) if flat else (rows, width)
    low = 0 if flat else -1
    cells = st.integers(low, 100)
    n_cells = int(np.prod(shape))
    table = data.draw(st.lists(cells, min_size=n_cells, max_size=n_cells))
    table = np.array(table).reshape(shape)
    right = asked(judge, ids, start, table, want=8)
    prompt, candidates = data.draw(forms(ids)), data.draw(forms(table))
    try:
        found = tiny.gather(prompt, candidates=candidates, start=start, tail=True)
    except NepitError as error:
        assert (error.code, error.where, error.given) == right
        return
    assert isinstance(right, dict), right
    assert found.scores.size == right["scores"].size == rows * width
    assert (
        np.array_equal(found.scores.ravel(), right["scores"].ravel())
        and found.scores.dtype == np.float32
    )
    assert np.array_equal(found.tail, right["tail"])
    assert found.token_ids.tolist() == ids


@QUICK
@given(data=st.data())
def test_score_and_next_are_the_librarys(tiny, judge, data):
    ids = data.draw(st.lists(st.integers(0, 255), min_size=1, max_size=24))
    start, top = data.draw(st.integers(0, len(ids) + 1)), data.draw(st.integers(-1, 6))
    right = asked(judge, ids, start, want=1 | 2 | 4, top=top)
    prompt = data.draw(forms(ids))
    try:
        found = tiny.score(prompt, start=start, top=top, entropy=True)
    except NepitError as error:
        assert (error.code, error.where, error.given) == right
    else:
        assert np.array_equal(found.scored, right["logprobs"])
        assert np.array_equal(found.ranks[found.start + 1 :], right["ranks"])
        assert found.entropies is None or np.array_equal(found.entropies, right["entropies"])
        assert found.top_logprobs is None or np.array_equal(
            found.top_logprobs.ravel(), right["top"].ravel()
        )
    if top:
        right = asked(judge, ids, 2**62, want=4 | 16, top=top, following=1)
        found = tiny.next(prompt, top=top)
        assert np.array_equal(found.logprobs, right["top"].ravel())
        assert np.float32(found.mass) == right["mass"][0]
        assert np.float32(found.entropy) == right["entropies"][0]


@QUICK
@given(data=st.data())
def test_a_wrong_id_is_refused_with_its_place(tiny, judge, data):
    ids = data.draw(st.lists(st.integers(0, 100), min_size=2, max_size=12))
    wrong, place = data.draw(WRONG), data.draw(st.integers(0, len(ids) - 1))
    ids[place] = wrong
    fits = -(2**31) <= wrong < 2**31
    with pytest.raises(NepitError) as caught:
        tiny.score(ids)
    error = caught.value
    if fits:
        assert (error.code, error.where, error.given) == asked(judge, ids, want=1)
    assert error.code == "EINPUT" and error.where.endswith(f"[{place}]")
    assert error.given == str(wrong)
    with pytest.raises(NepitError) as caught:
        tiny.gather([1, 2, 3], candidates=ids)
    assert caught.value.where.endswith(f"[{place}]") and caught.value.given == str(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        [True, False],
        np.array([True]),
        [1, True],
        [1.0],
        np.array([1.0], np.float16),
        np.array([1 + 0j]),
        ["1"],
        [None],
        [b"1"],
        np.array(["a"]),
        np.array([1], "datetime64[s]"),
        Tensor(np.array([1.0])),
        Wrapped(np.array([0.5])),
        [[1], 2],
        range(0),
        np.array([], np.int32),
    ],
)
def test_what_is_no_id_is_refused(tiny, wrong):
    with pytest.raises((TypeError, NepitError)):
        tiny.gather([1, 2, 3], candidates=wrong)
    with pytest.raises((TypeError, NepitError)):
        tiny.gather([1, 2, 3], [1], wrong)


def test_a_tensor_elsewhere_is_named():
    class Far(Tensor):
        def __dlpack_device__(self):
            return 2, 0

    with pytest.raises(TypeError, match="CPU"):
        __import__("nepit")._arrays.ids_array(Far(np.array([1])), "prompt")


def test_int32_arrays_are_lent_and_not_copied(tiny):
    from nepit import _arrays

    ids = np.array([1, 2, 3], np.int32)
    assert _arrays.ids_array(ids, "prompt") is ids
    assert tiny.gather(ids, candidates=ids).candidate_ids is ids
