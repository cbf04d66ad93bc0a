"""Views restore the lists, dicts and sets of a model, whatever its forward adds to them."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import nbmodule as nb

X = jnp.ones((2, 3))
VIEWS = {
    "graph": lambda model: nb.graph(model, X),
    "inspect": lambda model: nb.inspect(model, X),
    "first_nonfinite": lambda model: nb.first_nonfinite(model, X),
    "summary": lambda model: nb.summary(model, X),
    "eval_shape": lambda model: nb.eval_shape(model, X),
    "make_jaxpr": lambda model: nb.make_jaxpr(model)(X),
    "lower": lambda model: nb.jit(model).lower(X),
    "profile": lambda model: nb.profile(model, X),
    "what_if": lambda model: nb.what_if(model, X, {"layer": nb.zero()}),
}
KEPT = {
    "nothing": list,
    "no key": dict,
    "an array": lambda: [jnp.zeros(2)],
    "a layer": lambda: [nb.Linear(3, 3)],
    "names": set,
}


class Keeping(nb.Module):
    def __init__(self, kept: object, *, layers: bool) -> None:
        self.layer, self.kept, self.layers = nb.Linear(3, 3), kept, layers

    def forward(self, x: object) -> object:
        y = self.layer(x)
        new = nb.Linear(3, 3) if self.layers else y
        if isinstance(self.kept, dict):
            self.kept["last"] = new
        elif isinstance(self.kept, set):
            self.kept.add(len(self.kept))
        else:
            self.kept.append(new)
        return y


def content(kept: object) -> list[int]:
    return [id(x) for x in (kept.values() if isinstance(kept, dict) else kept)]


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_leaves_lists_as_they_were(view: str, kept: str) -> None:
    model = Keeping(KEPT[kept](), layers=kept == "a layer")
    before = content(model.kept)
    try:
        VIEWS[view](model)
    except nb.TracerLeakError:  # compiled, the forward is refused
        assert view not in ("graph", "inspect", "first_nonfinite")
    assert content(model.kept) == before
