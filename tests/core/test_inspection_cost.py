"""Inspecting a compiled function walks no model again."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.core.structure import walk


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Collect the roots of later walks."""
    roots: list[object] = []
    init = walk.Plan.__init__

    def noted(plan: walk.Plan, root: object) -> None:
        roots.append(root)
        init(plan, root)

    monkeypatch.setattr(walk.Plan, "__init__", noted)
    return roots


@pytest.mark.parametrize("stage", ["eval_shape", "lower", "trace"])
def test_a_second_inspection_does_not_walk_the_model(walks: list[object], stage: str) -> None:
    model = nb.Sequential(*[nb.Sequential(nb.Linear(2, 2), nb.Tanh()) for _ in range(5)])
    run = nb.jit(lambda m, x: m(x))
    look, x = getattr(run, stage), jnp.ones((3, 2))
    look(model, x)
    walks.clear()
    look(model, x)
    assert walks == []


def test_an_inspection_restores_the_structure_and_counts_a_change() -> None:
    class Switching(nb.Module):
        def __init__(self) -> None:
            self.layer = nb.Linear(2, 2)

        def forward(self, x: object) -> object:
            y = self.layer(x)
            self.layer.eval()
            return y

    model = Switching()
    version = model.layer._nbm.version
    nb.jit(lambda m, x: m(x)).eval_shape(model, jnp.ones((3, 2)))
    assert model.layer.training and model.layer._nbm.version > version


def test_a_module_added_during_an_inspection_is_removed_unchanged() -> None:
    outside = nb.BatchNorm1d(2)

    class Adopting(nb.Module):
        def forward(self, x: object) -> object:
            self.layers = [outside]
            return self.layers[0](x)

    model = Adopting()
    nb.jit(lambda m, x: m(x)).eval_shape(model, jnp.ones((3, 2)))
    assert not hasattr(model, "layers")
    assert outside._nbm.first_arguments is None
