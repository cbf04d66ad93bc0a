"""What tests of layers share: PyTorch's module of the same kind as the independent answer, for
values and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


def close(found: Any, wanted: Any, rtol: float = 1e-5, atol: float = 1e-6, **options: Any) -> None:
    """Assert that numbers agree to the rounding of float32."""
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, **options)


@pytest.fixture
def draws() -> np.random.Generator:
    """Random numbers, the same in each test."""
    return np.random.default_rng(7)


def chain_of(name: str) -> str:
    """The chain in `v` of a dotted name: `layers.0.weight` is `layers/v0/w`."""
    short = {"weight": "w", "bias": "b"}
    parts = name.split(".")
    return "/".join(short.get(part, f"v{part}" if part.isdigit() else part) for part in parts)


def weights_of(shape: Any) -> np.ndarray:
    """Random weights of outputs, so that each of them counts in the gradient."""
    return np.random.default_rng(11).normal(size=tuple(shape))


def randomize(layer: Any, seed: int = 5) -> Any:
    """Fresh numbers for all parameters, so that no bias is zero and no gain is one."""
    rng = np.random.default_rng(seed)
    for name, variable in layer.named_parameters():
        variable.value = (
            rng.normal(size=variable.shape) * 0.4
            + (1 if name.endswith("weight") and variable.ndim == 1 else 0)
        ).astype("f")
    return layer


@pytest.fixture
def agrees_with_torch() -> Callable[..., None]:
    """Compare a layer, and the gradients by its parameters and inputs, with a module of torch,
    which computes in float64.

    Args:
        layer: the layer; its parameters are given fresh numbers first.
        theirs: a module of torch whose parameters are set from the layer's.
        inputs: arrays; integers and None are handed on.
        names: for each name in torch the name in the layer, and a function that lays our array out
            as torch's.
        call: how torch is called, where that is more than `theirs(*inputs)`.
    """

    def check(
        layer: Any, theirs: Any, *inputs: Any, names: Mapping[str, Any] | None = None, call: Any = None, ours: Any = None,
        rtol: float = 1e-4, atol: float = 1e-4,
    ) -> None:  # fmt: skip
        torch = pytest.importorskip("torch")
        randomize(layer)
        ours = ours or (lambda layer, *xs: layer(*xs))
        call = call or (lambda module, *xs: module(*xs))
        floating = [
            i for i, x in enumerate(inputs) if x is not None and np.asarray(x).dtype.kind == "f"
        ]

        def loss(layer: Any, xs: list[Any]) -> Any:
            given = list(inputs)
            for i, x in zip(floating, xs, strict=True):
                given[i] = x
            outputs = jax.tree.leaves(ours(layer, *given))
            return sum(
                (y * jnp.asarray(weights_of(y.shape), y.dtype)).sum() for y in outputs
            ), outputs

        xs = [jnp.asarray(inputs[i]) for i in floating]
        (_, outputs), (by_layer, by_inputs) = nb.jit(
            nb.value_and_grad(loss, argnums=(0, 1), has_aux=True)
        )(layer, xs)

        pairs = load(theirs, layer, names)
        given = [None if x is None else torch.tensor(np.asarray(x)) for x in inputs]
        for i in floating:
            given[i] = given[i].double().requires_grad_()
        wanted = jax.tree.leaves(call(theirs.double(), *given))
        sum((y * torch.tensor(weights_of(y.shape))).sum() for y in wanted).backward()

        assert len(outputs) == len(wanted)
        for mine, their in zip(outputs, wanted, strict=True):
            assert mine.shape == tuple(their.shape)
            np.testing.assert_allclose(mine, their.detach().numpy(), rtol=rtol, atol=atol)
        for i, mine in zip(floating, by_inputs, strict=True):
            np.testing.assert_allclose(
                mine, given[i].grad.numpy(), rtol=rtol, atol=atol, err_msg=f"gradient by input {i}"
            )
        parameters = dict(theirs.named_parameters())
        for name, (own, laid_out) in pairs.items():
            if own in dict(layer.named_parameters()):
                mine = laid_out(np.asarray(by_layer[chain_of(own)]))
                np.testing.assert_allclose(
                    mine,
                    parameters[name].grad.numpy(),
                    rtol=rtol,
                    atol=atol,
                    err_msg=f"gradient by {name}",
                )

    return check


def load(theirs: Any, layer: Any, names: Mapping[str, Any] | None) -> dict[str, tuple[str, Any]]:
    """Set the parameters and buffers of a module of torch from a layer's; `names` as in
    `agrees_with_torch`.
    """
    import torch

    own = layer.state_dict()
    pairs = {}
    for name, tensor in theirs.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        entry = (names or {}).get(name, name)
        source, laid_out = entry if isinstance(entry, tuple) else (entry, lambda array: array)
        array = laid_out(np.asarray(own[source]))
        assert array.shape == tuple(tensor.shape), (
            f"{name}: {array.shape} for {tuple(tensor.shape)}"
        )
        with torch.no_grad():
            tensor.copy_(torch.tensor(np.array(array)))
        pairs[name] = (source, laid_out)
    used = {source for source, _ in pairs.values()}
    assert used == set(own), f"variables that torch was not given: {sorted(set(own) - used)}"
    return pairs


@pytest.fixture
def loads() -> Callable[..., dict[str, tuple[str, Any]]]:
    """See `load`."""
    return load
