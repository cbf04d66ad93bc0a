"""Rows of models: shapes in and out of the first call, what was returned when it was last tracked,
tied variables, and models of other frameworks.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.views import record_for
from nbmodule.views.display.show import mimebundle
from nbmodule.views.records.records import ModuleTree
from nbmodule.views.renderers.payload import payload_of
from nbmodule.views.renderers.plain_text import text_of


class Net(nb.Module):
    """Two layers in a list, and a part that never runs."""

    def __init__(self):
        self.layers, self.unused = [nb.Linear(3, 4), nb.Linear(4, 4)], nb.Linear(2, 2)

    def forward(self, x, scale=1.0):
        for layer in self.layers:
            x = nb.relu(layer(x))
        return {"y": x * scale}


def shapes(model):
    return {
        row.path: (row.input_shapes, row.output_shapes)
        for row in record_for(model).rows
        if row.kind == "module"
    }


@pytest.fixture
def model():
    return Net()


SEEN = {
    "layers.0": ("float32[5, 3]", "float32[5, 4]"),
    "layers.1": ("float32[5, 4]", "float32[5, 4]"),
    "unused": (None, None),
}


CALLS = {
    "bare": lambda model, x: model(x),
    "compiled": lambda model, x: nb.jit(lambda x: model(x))(x),
    "gradient": lambda model, x: nb.grad(lambda m: m(x)["y"].sum())(model),
}


@pytest.mark.parametrize("how", CALLS)
def test_a_first_call_is_enough_to_show_shapes_in_and_out(model, how):
    assert set(shapes(model).values()) == {(None, None)}
    CALLS[how](model, jnp.ones((5, 3)))
    assert shapes(model) == SEEN
    model(jnp.ones((7, 3)))
    assert shapes(model) == SEEN
    text = text_of(record_for(model), width=100, color=False)
    assert "float32[5, 3] → float32[5, 4]" in text and "float32[5, 4] → same" in text


def test_a_call_that_failed_leaves_the_next_one_to_be_seen(model):
    with pytest.raises(Exception, match="layers"):
        model(jnp.ones((5, 9)))
    with nb.track(model):
        model(jnp.ones((5, 3)))
    assert shapes(model)["layers.1"] == SEEN["layers.1"]


@pytest.mark.parametrize("how", ["track", "asked"])
def test_statistics_of_a_model_are_those_of_the_last_tracked_returns(model, how):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)), jnp.float32)
    expected = np.asarray(model.layers[0](x), np.float64)
    if how == "track":
        with nb.track(model) as calls:
            model(x)
        assert calls
    else:
        model(x, track_submod_rets=True)
    rows = {row.path: row.statistics for row in record_for(model).rows}
    found, room = rows["layers.0"], 1e-6 * np.abs(expected).max()  # the mean may be next to zero
    assert found.size == expected.size
    assert found.mean == pytest.approx(expected.mean(), abs=room)
    assert found.std == pytest.approx(expected.std(), rel=1e-5)
    assert rows["unused"] is None


def test_the_page_names_the_calls_of_shapes_and_histograms(model, open_view):
    model(jnp.ones((5, 3)))
    assert not record_for(model).notes
    with nb.track(model) as calls:
        model(jnp.ones((7, 3)))
    page = open_view(model, width=1100)
    said = "shapes are of the first call, histograms of the last tracked call"
    page.locator(".nbm-foot", has_text=said).wait_for()
    assert calls and said in mimebundle(model)["text/plain"]
    view = nb.inspect(model, jnp.ones((2, 3)))  # shows the shapes of its own call
    rows = {row.path: row.output_shapes for row in view.record.modules.rows}
    assert rows["layers.0"] == "float32[2, 4]" and rows["unused"] is None


def test_calls_that_nobody_has_any_more_are_not_shown(model):
    with nb.track(model) as calls:
        model(jnp.ones((5, 3)))
    del calls
    assert all(row.statistics is None for row in record_for(model).rows)


def test_a_line_of_several_modules_has_their_shapes_and_the_numbers_of_all_returns():
    model = nb.Sequential(nb.Linear(4, 3), *[nb.Linear(3, 3) for _ in range(4)])
    with nb.track(model) as calls:
        model(jnp.ones((3, 4)))
    data = payload_of(record_for(model))
    x, each = jnp.ones((3, 4)), []
    for layer in model:
        x = layer(x)
        each.append(np.asarray(x).ravel())
    returned = np.concatenate(each[1:])
    assert calls
    (line,) = (i for i, label in enumerate(data["label"]) if "…" in label)
    assert data["input_shapes"][line] == data["output_shapes"][line] == "float32[3, 3]"
    found = data["statistics"][line]
    assert (found["n"], sum(found["b"])) == (returned.size, returned.size)
    assert [found["m"], found["s"]] == pytest.approx([returned.mean(), returned.std()], rel=1e-3)
    assert [found["lo"], found["hi"]] == pytest.approx([returned.min(), returned.max()], rel=1e-3)


def test_a_tied_weight_names_the_first_module_that_holds_it():
    model = nb.Sequential(nb.Embedding(50, 8), nb.Linear(8, 50))
    assert [row.shared_with for row in record_for(model).rows] == [None, None]
    model[1].weight = model[0].weight
    assert [row.shared_with for row in record_for(model).rows] == [None, "0.weight"]


def test_an_equinox_model_has_no_mode():
    equinox = pytest.importorskip("equinox")
    tree = record_for(equinox.nn.MLP(4, 3, 8, 2, key=jax.random.key(0)))
    assert isinstance(tree, ModuleTree) and tree.mode == ""
