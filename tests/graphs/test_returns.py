"""What calls returned stands at the edges of the graph of the same model, and colors its boxes."""

import base64
import re

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.graphs import Options, data
from nbmodule.graphs.writing.options import prepare
from nbmodule.views import mimebundle

pytestmark = pytest.mark.not_under("nans", reason="takes logarithms of negative numbers")
X = jnp.linspace(-1.0, 2.0, 12).reshape(4, 3)


class Twice(nb.Module):
    def __init__(self):
        self.inner, self.log = nb.Linear(3, 3), nb.Lambda(jnp.log)

    def forward(self, x):
        return self.log(self.inner(self.inner(x)))


@pytest.fixture
def model():
    nb.seed(1)
    return Twice()


@pytest.fixture
def calls(model):
    with nb.track(model) as calls:
        model(X)
    return calls


def test_each_call_of_a_submodule_has_its_own_statistics(model, calls):
    found = Options(values=calls).returns
    means = [float(x.mean()) for x in (model.inner(X), model.inner(model.inner(X)))]

    assert [float(c["text"].split(" ± ")[0]) for c in found["inner"]] == pytest.approx(means, 5e-3)
    assert found["log"][0]["bad"] == int((~jnp.isfinite(model(X))).sum()) > 0


def test_the_outline_has_the_statistics_of_returns(model, calls):
    mean, deviation = float(model.inner(X).mean()), float(model.inner(X).std())
    text = str(nb.graph(model, X).drawn(values=calls, depth=0))

    assert f"inner  Linear  3 ops · 84 FLOP  {mean:.3g} ± {deviation:.3g}\n" in text
    assert re.search(r"├─ log  Lambda  .*  NaN \d+\n", text)


def test_the_page_has_a_small_picture_of_each_return(model, calls):
    bundle = mimebundle(nb.graph(model, X).drawn(values=calls))
    from nbmodule.views.panels.graph_view import GraphRecord
    from nbmodule.views.renderers.payload import payload_of

    returns = payload_of(GraphRecord(nb.graph(model, X).drawn(values=calls)))["returns"]

    assert [len(returns[path]) for path in ("inner", "log")] == [2, 1]
    picture = returns["inner"][0]["picture"]
    assert base64.b64decode(picture.removeprefix("data:image/png;base64,"))[:4] == b"\x89PNG"
    assert len(bundle["text/html"]) < 80_000


@pytest.mark.parametrize("color", ["time", "non-finite"])
def test_calls_color_the_boxes(model, calls, color):
    drawing = prepare(nb.graph(model, X), Options(values=calls, color=color, depth=0))

    scene = drawing.scene()

    assert sum(bool(box.fill) for box in scene.boxes) == 3  # both calls of inner, and log
    assert scene.legend[0].startswith(color)


def test_values_of_another_model_are_refused(model, returned):
    with pytest.raises(
        nb.PathError,
        match=r'none of the values belongs to a submodule of this graph: they begin with "away"',
    ):
        nb.graph(model, X).drawn(values=[returned("away", [1.0])])


def test_a_color_without_values_names_the_missing_argument(model):
    graph = nb.graph(model, X)

    with pytest.raises(
        nb.ArgumentError, match=r'color="non-finite" needs what was returned: pass values=calls'
    ):
        graph.drawn(color="non-finite")
    with pytest.raises(nb.ArgumentError, match=r'color="time" needs measured times'):
        graph.drawn(color="time")
    with pytest.raises(nb.ArgumentTypeError, match="values must be the calls of nb.track"):
        graph.drawn(values=3)


def test_drawn_leaves_the_graph_unchanged(model):
    graph = nb.graph(model, X)
    text = str(graph)

    again = graph.drawn(depth=0, highlight_subgraph="log")

    assert str(graph) == text != str(again)
    assert again.nodes is graph.nodes
    assert data(again)["highlight"] != []
    assert data(again, highlight_subgraph=None)["highlight"] == []


def test_the_outline_marks_a_highlighted_member_of_a_run():
    model = nb.Sequential(*(nb.Linear(3, 3) for _ in range(6)))
    text = str(nb.graph(model, X).drawn(highlight_subgraph="4", depth=0))

    assert [line for line in text.splitlines() if "highlighted" in line] == [
        "│  └─ 4  Linear  3 ops · 84 FLOP  <- highlighted"
    ]


def test_the_outline_begins_at_the_focus(model):
    assert "log" not in str(nb.graph(model, X).drawn(focus="inner"))


def test_a_graph_is_saved_as_it_is_drawn_or_by_other_options(model, calls, tmp_path):
    graph = nb.graph(model, X).drawn(values=calls)

    assert "<nbm-view" in graph.save(tmp_path / "g.html").read_text()
    graph.save(tmp_path / "g.txt")
    assert "±" in (tmp_path / "g.txt").read_text()
    graph.save(tmp_path / "folded.txt", depth=0)
    assert len((tmp_path / "folded.txt").read_text()) < len((tmp_path / "g.txt").read_text())
