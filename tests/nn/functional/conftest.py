"""What tests of the functions share: PyTorch as the independent answer, and a look at the program a
function leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture(autouse=True, scope="module")
def _quick_compiles() -> Iterator[None]:
    """Hundreds of small programs run once each: most of the time would go into optimizing them."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def draws() -> np.random.Generator:
    """Random numbers, the same in each test."""
    return np.random.default_rng(7)


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
        torch = pytest.importorskip("torch")
        floating = [
            i for i, x in enumerate(arrays) if x is not None and np.asarray(x).dtype.kind == "f"
        ]

        def outputs(inputs: list[Any]) -> list[Any]:
            given = list(arrays)
            for i, x in zip(floating, inputs, strict=True):
                given[i] = x
            return jax.tree.leaves(fn(*given))

        inputs = [jnp.asarray(arrays[i]) for i in floating]
        ours, gradients = jax.jit(lambda xs: _with_gradients(outputs, xs))(inputs)

        given = [None if x is None else torch.tensor(np.asarray(x)) for x in arrays]
        for i in floating:
            given[i] = given[i].double().requires_grad_()
        theirs = jax.tree.leaves(torch_fn(*given))
        sum(
            (out * torch.tensor(_weights(out.shape))).sum()
            for out in theirs
            if out.is_floating_point()
        ).backward()

        assert len(ours) == len(theirs)
        for mine, out in zip(ours, theirs, strict=True):
            assert mine.shape == tuple(out.shape)
            np.testing.assert_allclose(mine, out.detach().numpy(), rtol=rtol, atol=atol)
        for i, mine in zip(floating, gradients, strict=True):
            wanted = given[i].grad
            wanted = np.zeros(mine.shape) if wanted is None else wanted.numpy()
            np.testing.assert_allclose(
                mine, wanted, rtol=rtol, atol=atol, err_msg=f"gradient by argument {i}"
            )

    return check


def _weights(shape: Any) -> np.ndarray:
    return np.random.default_rng(11).normal(size=tuple(shape))


def _with_gradients(
    outputs: Callable[[list[Any]], list[Any]], inputs: list[Any]
) -> tuple[list[Any], list[Any]]:
    ours, pull = jax.vjp(outputs, inputs)
    cotangents = [
        jnp.asarray(_weights(out.shape), out.dtype)
        if jnp.issubdtype(out.dtype, jnp.floating)
        else np.zeros(out.shape, jax.dtypes.float0)
        for out in ours
    ]
    return ours, pull(cotangents)[0]


@pytest.fixture
def operations() -> Callable[..., list[str]]:
    """The names of all operations a function leaves in a program, with those of nested calls."""

    def names(fn: Callable[..., Any], *args: Any) -> list[str]:
        return [equation.primitive.name for equation in jax.make_jaxpr(fn)(*args).eqns]

    return names
