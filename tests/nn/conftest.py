"""What tests of layers share: PyTorch's module of the same kind as the independent answer, for
values and gradients.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
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


def is_floating(x: Any) -> bool:
    return x is not None and np.asarray(x).dtype.kind == "f"


def of_ours(fn: Callable[..., Any], arrays: Sequence[Any], *layers: Any) -> tuple[Any, Any]:
    """Outputs of `fn(*layers, *arrays)`, and gradients by the layers and the floating arrays."""

    def loss(*values: Any) -> Any:
        changed = iter(values[len(layers) :])
        given = [next(changed) if is_floating(x) else x for x in arrays]
        outputs = jax.tree.leaves(fn(*values[: len(layers)], *given))
        floating = [y for y in outputs if jnp.issubdtype(y.dtype, jnp.floating)]
        return sum((y * jnp.asarray(weights_of(y.shape), y.dtype)).sum() for y in floating), outputs

    values = [*layers, *(jnp.asarray(x) for x in arrays if is_floating(x))]
    gradient = nb.value_and_grad(loss, argnums=tuple(range(len(values))), has_aux=True)
    (_, outputs), gradients = nb.jit(gradient)(*values)
    return outputs, gradients


def of_torch(fn: Callable[..., Any], arrays: Sequence[Any]) -> tuple[Any, Any]:
    """The same of a function of torch, which computes in float64."""
    torch = pytest.importorskip("torch")
    given = [None if x is None else torch.tensor(np.asarray(x)) for x in arrays]
    floating = [i for i, x in enumerate(arrays) if is_floating(x)]
    for i in floating:
        given[i] = given[i].double().requires_grad_()
    outputs = jax.tree.leaves(fn(*given))
    floats = [y for y in outputs if y.is_floating_point()]
    sum((y * torch.tensor(weights_of(y.shape))).sum() for y in floats).backward()
    gradients = [given[i].grad for i in floating]
    zeros = [torch.zeros_like(given[i]) for i in floating]
    return outputs, [zero if g is None else g for zero, g in zip(zeros, gradients)]


def agree(found: Any, wanted: Any, **options: Any) -> None:
    """Assert that arrays are those of torch, in shape and value."""
    for number, (mine, their) in enumerate(zip(found, wanted, strict=True)):
        assert mine.shape == tuple(their.shape)
        close(mine, their.detach().numpy(), err_msg=str(number), **options)


@pytest.fixture
def agrees_with_torch() -> Callable[..., None]:
    """Compare a layer, and the gradients by its parameters and inputs, with a module of torch,
    which computes in float64.

    Args:
        layer: the layer; its parameters are given fresh numbers first.
        theirs: a module of torch whose parameters are set from the layer's.
        inputs: arrays; integers and None are handed on.
        names: for each name in torch the name in the layer, where they differ.
        call: how torch is called, where that is more than `theirs(*inputs)`.
        ours: how the layer is called, where that is more than `layer(*inputs)`.
    """

    def check(
        layer: Any, theirs: Any, *inputs: Any, names: Mapping[str, str] | None = None, call: Any = None, ours: Any = None,
    ) -> None:  # fmt: skip
        randomize(layer)
        pairs = load(theirs, layer, names)
        theirs = theirs.double()
        call = call or (lambda module, *xs: module(*xs))
        found, (by_layer, *by_inputs) = of_ours(ours or (lambda m, *xs: m(*xs)), inputs, layer)
        wanted, gradients = of_torch(lambda *xs: call(theirs, *xs), inputs)
        parameters = {pairs[name]: x.grad for name, x in theirs.named_parameters()}
        own = [name for name, _ in layer.named_parameters()]
        by_parameters = [by_layer[chain_of(name)] for name in own]
        gradients += [parameters[name] for name in own]
        agree([*found, *by_inputs, *by_parameters], [*wanted, *gradients], rtol=1e-4, atol=1e-4)

    return check


def agree_by_state(
    layer: Any,
    theirs: Any,
    inputs: Sequence[Any],
    ours: Any,
    call: Callable[..., Any],
    **options: Any,
) -> None:
    """Compare a layer, and its gradients, with a module of torch that gets the numbers by
    `to_torch`; `ours` and `call` say how both are called.
    """
    randomize(layer)
    theirs.load_state_dict(layer.to_torch())
    theirs = theirs.double()
    found, (by_layer, *by_inputs) = of_ours(ours, inputs, layer)
    wanted, gradients = of_torch(lambda *xs: call(theirs, *xs), inputs)
    twin = copy.deepcopy(layer)
    twin.load_state_dict({name: by_layer[chain_of(name)] for name, _ in layer.named_parameters()})
    by_name, parameters = twin.to_torch(), dict(theirs.named_parameters())
    found = [*found, *by_inputs, *(by_name[name] for name in parameters)]
    wanted = [*wanted, *gradients, *(parameter.grad for parameter in parameters.values())]
    agree(found, wanted, **options)


def load(theirs: Any, layer: Any, names: Mapping[str, str] | None = None) -> dict[str, str]:
    """Set the parameters and buffers of a module of torch from a layer's; `names` as in
    `agrees_with_torch`.
    """
    own = layer.state_dict()
    tensors = theirs.state_dict()
    pairs = {
        name: (names or {}).get(name, name)
        for name in tensors
        if not name.endswith("num_batches_tracked")
    }
    for name, source in pairs.items():
        assert own[source].shape == tuple(tensors[name].shape), name
        tensors[name].copy_(pytest.importorskip("torch").tensor(np.array(own[source])))
    assert set(pairs.values()) == set(own)
    return pairs
