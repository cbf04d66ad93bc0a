"""A small model whose gradients are anything one likes, and optax beside it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb

from jax_settings import with_mixed_dtypes

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = {"bias": (3,), "layers/v0/weight": (2, 3), "layers/v1/weight": (2, 3), "scale": ()}


class Net(nb.Module):
    """Four parameters, on two levels; not used for anything but their values."""

    def __init__(self, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self.bias = nb.Parameter(draw.normal(size=3).astype("f"))
        self.layers = [
            nb.Module(weight=nb.Parameter(draw.normal(size=(2, 3)).astype("f"))) for _ in range(2)
        ]
        self.scale = nb.Parameter(np.float32(draw.normal()))
        self.seen = nb.Buffer(0)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = jnp.tanh(x @ layer.weight()) @ layer.weight().T
        return x.sum(-1, keepdims=True) * self.scale + self.bias


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture
def make_net() -> type[Net]:
    return Net


@pytest.fixture
def gradients() -> Callable[..., nb.Container]:
    """Gradients like `net.v`, other ones for each seed."""

    def draw(seed: int, size: float = 1.0) -> nb.Container:
        numbers = np.random.default_rng(1000 + seed)
        container = nb.Container()
        for chain, shape in SHAPES.items():
            container[chain] = jnp.asarray(size * numbers.normal(size=shape), jnp.float32)
        return container

    return draw


@pytest.fixture
def reference() -> Callable[..., dict[str, Any]]:
    """Variables after steps of plain optax, as nested dicts."""

    def run(
        transformation: Any, v: nb.Container, grads: list[nb.Container], extra: Any = ()
    ) -> Any:
        params = jax.tree.map(jnp.array, v.cont_to_dict())
        update = jax.jit(with_mixed_dtypes(transformation.update))
        state = transformation.init(params)
        for each, more in itertools.zip_longest(grads, extra, fillvalue={}):
            updates, state = update(each.cont_to_dict(), state, params, **more)
            params = optax.apply_updates(params, updates)
        return params

    return run


@pytest.fixture
def train() -> Callable[..., list[int]]:
    """Steps of an optimizer on a model, one for each gradient: by `step`, by `update`, compiled,
    donated, or in one compiled scan; the later one begins with the second step. Returns one item for each trace.
    """

    def run(how: str, optimizer: Any, model: Net, grads: list[nb.Container]) -> list[int]:
        traces: list[int] = []

        def update(each: nb.Container) -> None:
            traces.append(1)
            if how == "step":
                model.v = optimizer.step(model.v, each)
            else:
                optimizer.update(model, each)

        if how in ("scan", "later scan"):
            first, *rest = grads if how == "later scan" else (None, *grads)
            if first is not None:
                update(first)
            stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *rest)
            scan = lambda: nb.scan(lambda carry, each: (carry, update(each)), 0, stacked)
            (scan if how == "later scan" else nb.jit(scan))()
            return traces
        step = nb.jit(update, donate=how == "donate") if how in ("jit", "donate") else update
        for each in grads:
            step(each)
        return traces

    return run


@pytest.fixture
def agree() -> Callable[..., None]:
    """Two nested structures hold the same numbers under the same chains."""

    def check(
        actual: Any, expected: Any, *, exactly: bool = False, rtol: float = 2e-5, atol: float = 1e-6
    ) -> None:
        plain = lambda x: x.cont_to_dict() if isinstance(x, nb.Container) else x
        actual, expected = plain(actual), plain(expected)
        assert jax.tree.structure(actual) == jax.tree.structure(expected)
        for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected)):
            if exactly:
                np.testing.assert_array_equal(one, other)
            else:
                np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)

    return check
