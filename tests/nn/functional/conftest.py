"""What tests of the functions share: quick compiles, and a look at the program a function leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def _quick_compiles() -> Iterator[None]:
    """Hundreds of small programs run once each: most of the time would go into optimizing them."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def operations() -> Callable[..., list[str]]:
    """The names of all operations a function leaves in a program, with those of nested calls."""

    def names(fn: Callable[..., Any], *args: Any) -> list[str]:
        return [equation.primitive.name for equation in jax.make_jaxpr(fn)(*args).eqns]

    return names
