"""`nb.plot`: a figure for each kind of record, in files too, without a backend and without
`pyplot`.
"""

import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.views.arrays.pictures import picture_of
from nbmodule.views.arrays.values import statistics_of
from nbmodule.views.panels.figures import bytes_of
from nbmodule.views.records.records import ArrayCard, VariableRow, VariableTree
from nbmodule.views.renderers.drawing import palette


def texts(figure):
    return [axes.get_title(loc="left") for axes in figure.axes]


@pytest.mark.parametrize(
    ("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_every_record_is_written_in_every_format_and_twice_the_same(records, tmp_path, kind, start):
    for name in ("variables", "calls", "returns", "history"):
        file = tmp_path / f"{name}.{kind}"
        assert nb.plot(records[name](), file).axes
        assert file.read_bytes().startswith(start)
    if kind != "pdf":  # which holds its date
        first, second = (bytes_of(nb.plot(records["history"]()), kind) for _ in range(2))
        assert first == second


def test_a_variable_tree_is_drawn_as_histograms_that_count_every_element():
    x = np.random.default_rng(0).normal(size=500).astype("float32")
    (axes,) = nb.plot({"w": x}).axes
    assert axes.get_title(loc="left") == "w"
    counts = axes.patches[0].get_data().values
    assert counts.sum() == 500
    np.testing.assert_array_equal(counts, np.histogram(x, len(counts), (x.min(), x.max()))[0])
    (axes,) = nb.plot({"w": np.float32([1, 2, np.nan])}).axes
    assert "NaN 1" in axes.get_xlabel() and axes.xaxis.label.get_color() == "#b3261e"


def test_a_heat_map_has_the_pixels_of_the_page_and_maps_and_heads_are_grids():
    def image(picture):
        return np.asarray(nb.plot(picture).axes[0].get_images()[0].get_array())

    picture = picture_of(np.float32([[1, -1], [np.nan, 0]]))
    codes = np.frombuffer(picture.data, np.uint8).reshape(2, 2)
    np.testing.assert_allclose(image(picture), np.array(palette(picture))[codes] / 255)
    maps = picture_of(np.random.default_rng(0).normal(size=(1, 4, 4, 6)))
    assert image(maps).shape == (4 * 2 + 1, 4 * 4 + 3, 3)
    heads = picture_of(np.random.default_rng(0).uniform(size=(1, 2, 5, 5)))
    assert image(heads).shape == (5, 11, 3)


def test_bars_carry_their_names():
    picture = picture_of(np.float32([0.1, 0.7, 0.2]), labels=["cat", "dog", "$\\alpha"])
    axes = nb.plot(picture).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["cat", "dog", "$\\alpha"]
    np.testing.assert_allclose(
        [bar.get_height() for bar in axes.patches], [0.1, 0.7, 0.2], rtol=1e-6
    )


def test_calls_show_time_mean_and_range():
    model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
    with nb.track(model) as calls:
        model(jnp.ones((2, 3)))
    times, spreads = calls.plot().axes
    assert [label.get_text() for label in times.get_yticklabels()] == ["Sequential", "  0", "  1"]
    np.testing.assert_allclose(
        [bar.get_width() for bar in times.patches], [call.seconds for call in calls]
    )
    means = [line.get_xdata()[0] for line in spreads.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(means, [np.mean(call.returns) for call in calls], rtol=1e-5)


def test_a_comparison_shows_expected_actual_and_difference():
    model, x = nb.Sequential(nb.Linear(3, 4), nb.ReLU()), jnp.ones((2, 3))
    with nb.track(model) as first:
        model(x)
    model[0].weight = model[0].weight + 1
    with nb.track(model) as second:
        model(x)
    figure = nb.compare(second, first).plot()
    assert texts(figure)[:3] == ["0: expected", "0: actual", "0: difference"]


def test_a_curve_is_drawn_from_what_was_logged(tmp_path):
    curve = nb.LossCurve("run", display=False)
    for k in range(5):
        curve.log(loss=1 / (k + 1), val_loss=2 / (k + 1), rate=0.1)
    figure = curve.plot(tmp_path / "loss.svg", log=True)
    assert [len(axes.lines) for axes in figure.axes] == [2, 1]
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert figure.axes[0].get_yscale() == "log"
    assert b"val_loss" in (tmp_path / "loss.svg").read_bytes()


def test_hostile_names_are_drawn_as_they_stand(tmp_path):
    names = ["$\\frac{", "<script>", "a\nb", "\u202eright", "x" * 10_000]
    nb.plot({name: np.arange(4.0) for name in names}, tmp_path / "x.png")
    row = VariableRow("$^", statistics=statistics_of([np.arange(3.0)])[0])
    assert texts(nb.plot(VariableTree("$_", [row]), tmp_path / "y.svg")) == ["$^"]


def test_plot_names_the_reason_where_nothing_can_be_drawn(tmp_path):
    with pytest.raises(nb.ArgumentError, match=r"saved as .svg, .png, .pdf, got .*x.jpg"):
        nb.plot(np.zeros(3), tmp_path / "x.jpg")
    assert not list(tmp_path.iterdir())
    with pytest.raises(nb.ArgumentError, match="nothing to draw of float32.*: deleted"):
        nb.plot(ArrayCard("", (3,), "float32", 12, error="deleted"))
    with pytest.raises(nb.ArgumentTypeError, match="there is no figure of Linear; nb.show"):
        nb.plot(nb.Linear(2, 2))
    with pytest.raises(nb.ArgumentError, match="nothing was logged"):
        nb.LossCurve(display=False).plot()


def test_a_notebook_shows_a_figure_without_a_backend_and_without_pyplot():
    code = (
        "import sys, json, numpy as np, nbmodule as nb; nb.show({'a': np.zeros(3)}, form='text');"
        "before = 'matplotlib' in sys.modules; fig = nb.plot(np.arange(3.0));"
        "assert fig._repr_png_()[:4] == b'\\x89PNG';"
        "print(json.dumps([before, 'matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules]))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(out.splitlines()[-1]) == [False, True, False]
