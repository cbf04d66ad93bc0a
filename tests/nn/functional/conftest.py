"""What tests of the functions share: PyTorch as the independent answer, and a look at the program a
function leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest

from tests.nn.conftest import agree, of_ours, of_torch


@pytest.fixture(autouse=True, scope="module")
def _quick_compiles() -> Iterator[None]:
    """Hundreds of small programs run once each: most of the time would go into optimizing them."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def agrees_with_torch() -> Callable[..., None]:
    """Compare a function and its gradients by all floating inputs with PyTorch's, which computes in
    float64.

    The gradient is that of the inner product of all floating outputs with random weights.
    """

    def check(
        fn: Callable[..., Any],
        torch_fn: Callable[..., Any],
        *arrays: Any,
        rtol: float = 1e-5,
        atol: float = 1e-5,
    ) -> None:
        found, gradients = of_ours(fn, arrays)
        wanted, by_torch = of_torch(torch_fn, arrays)
        agree([*found, *gradients], [*wanted, *by_torch], rtol=rtol, atol=atol)

    return check


@pytest.fixture
def operations() -> Callable[..., list[str]]:
    """The names of all operations a function leaves in a program, with those of nested calls."""

    def names(fn: Callable[..., Any], *args: Any) -> list[str]:
        return [equation.primitive.name for equation in jax.make_jaxpr(fn)(*args).eqns]

    return names
