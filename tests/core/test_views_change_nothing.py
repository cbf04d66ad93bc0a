"""Views restore attributes, modes, lists, dicts and sets that a forward changes."""

from __future__ import annotations

from collections.abc import Callable

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
OUTSIDE = nb.BatchNorm1d(3)
# The attribute of the model, and the change by its forward.
CHANGES = {
    "a list": (list, lambda model, y: model.kept.append(y)),
    "a dict": (dict, lambda model, y: model.kept.update(last=y)),
    "arrays": (lambda: [jnp.zeros(2)], lambda model, y: model.kept.append(y)),
    "layers": (lambda: [nb.Linear(3, 3)], lambda model, y: model.kept.append(nb.Linear(3, 3))),
    "a set": (set, lambda model, y: model.kept.add(len(model.kept))),
    "a mode": (list, lambda model, y: model.layer.eval()),
    "an attribute": (list, lambda model, y: setattr(model, "new", [OUTSIDE])),
}


class Changing(nb.Module):
    def __init__(self, kept: object, change: Callable[..., object]) -> None:
        self.layer, self.kept, self.change = nb.Linear(3, 3), kept, change

    def forward(self, x: object) -> object:
        y = self.layer(x)
        self.change(self, y)
        return y


def state(model: Changing) -> object:
    kept = model.kept.values() if isinstance(model.kept, dict) else model.kept
    modes = [module.training for module in model.modules()]
    return [id(x) for x in kept], sorted(vars(model)), modes


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_leaves_a_model_as_it_was(view: str, change: str) -> None:
    make, act = CHANGES[change]
    model = Changing(make(), act)
    before = state(model)
    try:
        VIEWS[view](model)
    except nb.TracerLeakError:  # compiled, the forward is refused
        assert view not in ("graph", "inspect", "first_nonfinite")
    assert state(model) == before
