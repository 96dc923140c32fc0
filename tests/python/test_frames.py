"""Tables and pictures by the real pandas, pyarrow and matplotlib."""

import numpy as np
import pytest
import nepit

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


def results(model):
    ids = [3, 5, 7, 11]
    score = model.score(ids, entropy=True, top=2)
    return [
        score,
        model.next(ids, top=3),
        model.gather(ids, candidates=[1, 2, 3], tail=True),
        model.choose([3, 5], [[7], [11, 4]]),
        nepit.diff(score.scored, score.scored * np.float32(1.01)),
    ]


def test_tables_have_the_bits_of_the_arrays(tiny):
    for result in results(tiny):
        frame, table = result.to_pandas(), result.to_arrow()
        assert list(frame.columns) == table.schema.names and len(frame) == table.num_rows > 0
    score, _, gathered, *_ = results(tiny)
    logprobs = score.to_pandas()["logprob"].to_numpy()
    assert logprobs.dtype == np.float32 and np.array_equal(logprobs, score.logprobs, equal_nan=True)
    cells = gathered.to_arrow()["logprob"].to_numpy().reshape(gathered.scores.shape)
    assert cells.tobytes() == gathered.scores.tobytes()


def test_pictures_are_drawn(tiny, tmp_path):
    for result in results(tiny)[:4]:
        figure = result.plot().figure
        figure.savefig(tmp_path / "picture.png")
        matplotlib.pyplot.close(figure)
        assert (tmp_path / "picture.png").stat().st_size > 2000


def test_an_axis_of_your_own(tiny):
    axes = matplotlib.pyplot.subplots()[1]
    assert tiny.score([3, 5, 7]).plot(axes) is axes
    matplotlib.pyplot.close(axes.figure)


def test_a_bar(tiny, capsys):
    tiny.score([[1, 2, 3]] * 5, progress=True)
    assert "5/5" in capsys.readouterr().err
