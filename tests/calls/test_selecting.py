"""Wherever submodules are selected, a shared one goes by each of its names, and what is no part of
the model is refused.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


class Shared(nb.Module):
    """One block under two names; `b` is the second."""

    def __init__(self):
        self.a = nb.Sequential(nb.Linear(3, 3, key=0), nb.Tanh())
        self.b, self.last = self.a, nb.Linear(3, 2, key=1)

    def forward(self, x):
        return self.last(self.b(x))


def recorded(model, x, **options):
    with nb.track(model, **options) as calls:
        model(x)
    return calls


def patched(model, x, entry):
    with nb.patch(model, {entry: nb.zero()}):
        return model(x)


def tracked(model, x, **options):
    model(x, track_submod_rets=True, **options)
    return dict(model.submod_rets)


SELECTED = {
    "submods_to_track": lambda model, x, entry: tracked(model, x, submods_to_track=[entry]),
    "replace_submod_rets": lambda model, x, entry: tracked(
        model, x, replace_submod_rets={entry: 0.0}
    ),
    "expected_submod_rets": lambda model, x, entry: differing(model, x, entry),
    "only": lambda model, x, entry: [call.path for call in recorded(model, x, only=entry)],
    "operations": lambda model, x, entry: [
        call.path for call in recorded(model, x, operations=entry).operations
    ],
    "nb.patch of settings": patched,
    "nb.patch": lambda model, x, entry: nb.patch(model, x, -x, entry).patched,
    "nb.what_if": lambda model, x, entry: nb.what_if(model, x, {entry: nb.zero()}).code,
    "nb.sweep": lambda model, x, entry: (
        nb.sweep(model, x, "layers", only=entry, metric=lambda y: y.sum()).rows
    ),
    "nb.Recorder": lambda model, x, entry: nb.Recorder(model, only=entry) and 0,
}


def differing(model, x, entry):
    with pytest.raises(nb.SubmoduleReturnError) as error:
        model(x, expected_submod_rets={entry: 9.0})
    return str(error.value)


@pytest.fixture
def model():
    return Shared()


@pytest.fixture
def x():
    return jnp.linspace(-1, 1, 6).reshape(2, 3)


@pytest.mark.parametrize("way", SELECTED)
@pytest.mark.parametrize(("first", "other"), [("a", "b"), ("a.0", "b.0"), ("a.0", "b__0")])
def test_a_shared_module_is_selected_by_each_of_its_names(way, first, other, model, x):
    one, two = SELECTED[way](model, x, first), SELECTED[way](model, x, other)
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("way", [way for way in SELECTED if way != "expected_submod_rets"])
@pytest.mark.parametrize("given", [3, 2.5])
def test_an_entry_that_names_no_module_is_refused(way, given, model, x):
    with pytest.raises(
        nb.ArgumentTypeError, match=f"(module|place).*(found|got) {type(given).__name__}"
    ):
        SELECTED[way](model, x, given)


def test_calls_graphs_and_summaries_are_indexed_by_each_name_of_a_shared_module(model, x):
    calls, graph, table = recorded(model, x), nb.graph(model, x), nb.summary(model, x)
    assert calls["b"] is calls["a"] and calls["b.0", 0] is calls["a.0"]
    assert list(calls["b.*"]) == list(calls["a.*"])
    assert graph.find("b.0") is graph.find("a.0") and graph.glob("b.*") == graph.glob("a.*")
    assert table["b.0"] is table["a.0"]
    with pytest.raises(nb.PathError, match=r'no row "lost".*closest name is "last"'):
        table["lost"]


def test_a_tracked_submodule_may_be_replaced_while_tracking(model, x):
    layer = model.last
    with nb.track(model, only=["a", layer]) as calls:
        model(x)
        model.last = nb.Linear(3, 4, key=2)
        model(x)
    assert [call.path for call in calls] == ["a", "last", "a"]
