"""Layers by name that the panel of `nb.what_if` offers for insertion between others."""

from __future__ import annotations

from collections.abc import Callable

from nbmodule.nn.activation import activations
from nbmodule.nn.dropout import Dropout
from nbmodule.nn.layer import Layer
from nbmodule.nn.linear import Identity, Linear
from nbmodule.nn.normalization import LayerNorm, RMSNorm

FIRST = ("ReLU", "GELU", "SiLU", "Tanh", "Sigmoid")


def insertable_layers() -> dict[str, Callable[[int, int], Layer]]:
    """Return by name functions of the numbers of input and output features that make a layer.

    Example:
        >>> layers = insertable_layers()
        >>> layers["LayerNorm"](4, 4), layers["Linear"](4, 2)
        (LayerNorm((4,), eps=1e-05, affine=True), Linear(in_features=4, out_features=2,
        with_bias=True))
    """
    factories = {
        name: lambda inputs, outputs, kind=kind: kind() for name, kind in activations().items()
    }
    common = {name: factories.pop(name) for name in FIRST}
    others: dict[str, Callable[[int, int], Layer]] = {
        "Identity": lambda inputs, outputs: Identity(),
        "LayerNorm": lambda inputs, outputs: LayerNorm(inputs),
        "RMSNorm": lambda inputs, outputs: RMSNorm(inputs),
        "Dropout": lambda inputs, outputs: Dropout(),
        "Linear": Linear,
    }
    return common | others | dict(sorted(factories.items()))
