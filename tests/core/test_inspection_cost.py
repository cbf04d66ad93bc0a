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
