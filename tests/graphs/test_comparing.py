"""Two graphs are compared by structure: the marks stand where something was changed, and nowhere
else.
"""

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.errors import ArgumentTypeError
from nbmodule.views.builders.pytrees import record_for
from nbmodule.views.renderers.payload import payload_of

X = jnp.ones((2, 3))


class Block(nb.Module):
    def __init__(self, act=nb.relu):
        super().__init__()
        self.norm, self.lin, self.act = nb.LayerNorm(3), nb.Linear(3, 3), act

    def forward(self, x):
        return x + self.act(self.lin(self.norm(x)))


class Net(nb.Module):
    def __init__(self, *blocks):
        super().__init__()
        self.blocks, self.head = list(blocks), nb.Linear(3, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def compare(a, b):
    return nb.graph(a, X).compare(nb.graph(b, X))


def test_equal_models_have_no_difference():
    found = compare(Net(Block(), Block()), Net(Block(), Block()))

    assert list(found) == []
    assert str(found) == "Net and Net · no difference"


def test_another_function_is_marked_in_its_place():
    (change,) = compare(Net(Block(), Block()), Net(Block(), Block(nb.gelu)))

    assert (change.status, change.path) == ("changed", "blocks.1")
    assert change.a.startswith("relu ")
    assert change.b.startswith("gelu ")


def test_a_layer_that_was_put_in_is_one_difference():
    class Longer(Net):
        def forward(self, x):
            return jnp.tanh(super().forward(x))

    (change,) = compare(Net(Block()), Longer(Block()))

    assert (change.status, change.a, change.b, change.place_a) == ("unexpected", "", "tanh", None)


def test_the_same_operations_fed_by_others_differ():
    def wired(first, second):
        return nb.graph(lambda a, b: jnp.sin(a) - jnp.sin(first(a, b)) / second(a, b), X, X)

    found = wired(lambda a, b: a, lambda a, b: b).compare(wired(lambda a, b: b, lambda a, b: a))

    assert len(found) > 0


def test_only_graphs_are_compared():
    with pytest.raises(ArgumentTypeError, match="takes a graph from nb.graph.*got Linear"):
        nb.graph(nb.Linear(3, 2), X).compare(nb.Linear(3, 2))


def test_a_page_gets_both_graphs_with_the_differences_marked():
    found = compare(Net(Block(), Block()), Net(Block(), Block(nb.gelu)))
    payload = payload_of(record_for(found))

    assert payload["title"] == ["Net and Net", "1 difference"]
    assert payload["changes"][0][0] == "~"
    assert payload["a"]["highlight"] == [payload["changes"][0][2]]
    assert payload["b"]["highlight"] == [payload["changes"][0][3]]


def test_the_saved_form_shows_both_pictures_and_the_list():
    html = compare(Net(Block()), Net(Block(nb.gelu)))._repr_mimebundle_()["text/html"]

    assert html.count("data:image/svg+xml") == 2
    assert "relu" in html.split("<script")[0]
