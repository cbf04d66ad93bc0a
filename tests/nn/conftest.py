"""What tests of layers share: PyTorch's module of the same kind as the independent answer, for
values and gradients.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


def close(found: Any, wanted: Any, rtol: float = 1e-5, atol: float = 1e-6, **options: Any) -> None:
    """Assert that numbers agree to the rounding of float32."""
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, **options)


def trees_close(found: Any, wanted: Any, **tolerance: float) -> None:
    """Assert that all arrays of two trees agree to rounding."""
    jax.tree.map(lambda a, b: close(a, b, **tolerance), found, wanted)


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


def agree(found: Any, wanted: Any, **tolerance: float) -> None:
    """Assert that arrays are those of torch, in shape and value."""
    for number, (mine, their) in enumerate(zip(found, wanted, strict=True)):
        assert mine.shape == tuple(their.shape)
        close(mine, their.detach().numpy(), err_msg=str(number), **tolerance)


def functions_agree(
    fn: Any, theirs: Any, *arrays: Any, rtol: float = 1e-5, atol: float = 1e-5
) -> None:
    """Compare a function, and its gradients by all floating inputs, with one of torch.

    The gradient is that of the inner product of all floating outputs with random weights.
    """
    found, gradients = of_ours(fn, arrays)
    wanted, by_torch = of_torch(theirs, arrays)
    agree([*found, *gradients], [*wanted, *by_torch], rtol=rtol, atol=atol)


def randomize(layer: Any) -> None:
    """Draw all parameters, so that no bias is zero and no gain is one."""
    rng = np.random.default_rng(5)
    for name, variable in layer.named_parameters():
        is_gain = name.endswith("weight") and variable.ndim == 1
        variable.value = (rng.normal(size=variable.shape) * 0.4 + is_gain).astype("f")


def state_for(theirs: Any, layer: Any, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The numbers of a layer for a module of torch; `names` gives ours where they differ."""
    numbers = layer.to_torch()
    return {name: numbers[(names or {}).get(name, name)] for name in theirs.state_dict()}


def layers_agree(
    layer: Any,
    theirs: Any,
    *inputs: Any,
    ours: Any = lambda layer, *inputs: layer(*inputs),
    call: Any = lambda module, *inputs: module(*inputs),
    names: Mapping[str, str] | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-4,
) -> None:
    """Compare a layer, and the gradients by its parameters and inputs, with a module of torch.

    Args:
        layer: the layer; its parameters are drawn first.
        theirs: a module of torch that gets the layer's numbers.
        inputs: arrays; integers and None are handed on.
        ours: how the layer is called.
        call: how torch is called.
        names: for each name in torch the name in the layer, where they differ.
    """
    randomize(layer)
    theirs.load_state_dict(state_for(theirs, layer, names))
    theirs = theirs.double()
    found, (by_layer, *by_inputs) = of_ours(ours, inputs, layer)
    wanted, gradients = of_torch(lambda *xs: call(theirs, *xs), inputs)
    twin = copy.deepcopy(layer)
    by_name = {name: by_layer[chain_of(name)] for name, _ in layer.named_parameters()}
    twin.load_state_dict({**layer.state_dict(), **by_name})
    by_name, parameters = state_for(theirs, twin, names), dict(theirs.named_parameters())
    found = [*found, *by_inputs, *(by_name[name] for name in parameters)]
    wanted = [*wanted, *gradients, *(parameter.grad for parameter in parameters.values())]
    agree(found, wanted, rtol=rtol, atol=atol)


def steps_agree(
    way: str, layer: Any, theirs: Any, buffers: Mapping[str, Any], inputs: Iterable[Any]
) -> None:
    """Compare the outputs and buffers of a layer in training, step by step, with torch.

    Args:
        way: eager, compiled or exported.
        layer: the layer.
        theirs: a function of torch.
        buffers: by name in the layer the tensor in torch.
        inputs: an array for each step.
    """
    torch = pytest.importorskip("torch")
    exported, state = nb.export_state(layer)
    call = nb.jit(layer) if way == "compiled" else layer
    functional = jax.jit(lambda model, x, state: model(x, state))
    for x in inputs:
        wanted = theirs(torch.tensor(x))
        if way == "exported":
            found, state = functional(exported, x, state)
            values = [state[nb.StateKey(f".{name}")] for name in buffers]
        else:
            found, values = call(x), [getattr(layer, name)() for name in buffers]
        agree([found, *values], [wanted, *buffers.values()], rtol=1e-4, atol=1e-5)
