"""For usual layers of PyTorch the layer of the library that computes the same, not yet with its
numbers. All other layers run their own forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

# pyright: reportIncompatibleMethodOverride=false
# The point of the classes is to be called otherwise than the layers that they derive from.
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import Array

from nbmodule.nn import activation, convolution, dropout, linear, normalization, pooling, recurrent
from nbmodule.nn.functional.windows import DATA_FORMATS

if TYPE_CHECKING:
    from torch import nn


class _TimeFirst:
    """Called on `(time, batch, features)`, or on `(time, features)`."""

    def forward(self, x: Array, state: object = None) -> Any:
        if jnp.ndim(x) < 3:
            return super().forward(x, state)  # type: ignore[misc]
        ys, state = super().forward(jnp.swapaxes(x, 0, 1), state)  # type: ignore[misc]
        return jnp.swapaxes(ys, 0, 1), state


class TorchRNN(_TimeFirst, recurrent.RNN):
    """Time first."""


class TorchLSTM(_TimeFirst, recurrent.LSTM):
    """Time first."""


class TorchGRU(_TimeFirst, recurrent.GRU):
    """Time first."""


TIME_FIRST = {"RNN": TorchRNN, "LSTM": TorchLSTM, "GRU": TorchGRU}


# -- builders --
Builder = Callable[[Any], Any]


class OptionMismatch(Exception):
    """A layer has an option that the library's counterpart does not have."""


def layer(
    kind: type,
    sizes: str = "",
    options: str = "",
    *,
    axes: int = 0,
    only: dict[str, object] | None = None,
    **renamed: str,
) -> Builder:
    """Return a function that makes a layer from attributes of PyTorch's.

    Args:
        kind: The class of the layer here.
        sizes: Attributes that it takes by position.
        options: Attributes that it takes under the same name.
        axes: Number of spatial axes, for a layer of images: their channels are first.
        only: Values of other attributes without which there is no counterpart.
        **renamed: Attributes that it takes under another name. `with_bias` is whether there is one.
    """
    names = {name: name for name in options.split()} | renamed

    def make(m: nn.Module) -> Any:
        for name, usual in (only or {}).items():
            if getattr(m, name, usual) != usual:
                raise OptionMismatch(f"{name}={getattr(m, name)!r}")
        given = {ours: getattr(m, theirs, None) for ours, theirs in names.items()}
        if "with_bias" in given:
            given["with_bias"] = given["with_bias"] is not None and given["with_bias"] is not False
        if axes:
            given["data_format"] = DATA_FORMATS[axes][1]
        return kind(*(getattr(m, name) for name in sizes.split()), **given)

    return make


def recurrent_layer(name: str) -> Builder:
    def make(m: nn.RNNBase) -> Any:
        kind = getattr(recurrent, name) if m.batch_first else TIME_FIRST[name]
        more: dict[str, Any] = {"nonlinearity": "nonlinearity"} if name == "RNN" else {}
        if m.num_layers > 1:
            more["dropout_rate"] = "dropout"
        sizes, options = "input_size hidden_size", "num_layers bidirectional"
        return layer(kind, sizes, options, only={"proj_size": 0}, with_bias="bias", **more)(m)

    return make


def per_axis(
    name: str,
    module: object,
    sizes: str,
    options: str = "",
    *,
    axes: Sequence[int] = (1, 2, 3),
    **more: Any,
) -> dict[str, Any]:
    """Return the builders of a layer by its number of spatial axes."""
    return {
        name.format(n): layer(getattr(module, name.format(n)), sizes, options, axes=n, **more)
        for n in axes
    }


_CHANNELS = "in_channels out_channels kernel_size"
_STEPS = "stride padding dilation groups"
_PADDED: dict[str, Any] = {"only": {"padding_mode": "zeros"}, "with_bias": "bias"}
_ACTIVATIONS = "ReLU ReLU6 SELU SiLU Mish Softsign Sigmoid LogSigmoid Hardsigmoid Hardswish Tanh"

BUILDERS: dict[str, Builder] = {
    "Linear": layer(linear.Linear, "in_features out_features", with_bias="bias"),
    "Bilinear": layer(linear.Bilinear, "in1_features in2_features out_features", with_bias="bias"),
    "Embedding": layer(
        linear.Embedding, "num_embeddings embedding_dim", "padding_idx max_norm norm_type"
    ),
    "Identity": layer(linear.Identity),
    "Flatten": layer(linear.Flatten, "start_dim end_dim"),
    **per_axis("Conv{}d", convolution, _CHANNELS, _STEPS, **_PADDED),
    **per_axis("ConvTranspose{}d", convolution, _CHANNELS, f"{_STEPS} output_padding", **_PADDED),
    **per_axis(
        "MaxPool{}d",
        pooling,
        "kernel_size",
        "stride padding dilation ceil_mode",
        only={"return_indices": False},
    ),
    **per_axis(
        "AvgPool{}d",
        pooling,
        "kernel_size",
        "stride padding ceil_mode count_include_pad divisor_override",
    ),
    **per_axis("AdaptiveAvgPool{}d", pooling, "output_size"),
    **per_axis(
        "BatchNorm{}d",
        normalization,
        "num_features",
        "eps momentum affine track_running_stats",
        axes=(2, 3),
    ),
    "LayerNorm": layer(
        normalization.LayerNorm,
        "normalized_shape",
        "eps",
        affine="elementwise_affine",
        with_bias="bias",
    ),
    "Dropout": layer(dropout.Dropout, "p"),
    **{name: recurrent_layer(name) for name in ("RNN", "LSTM", "GRU")},
    "LeakyReLU": layer(activation.LeakyReLU, "", "negative_slope"),
    "GELU": lambda m: activation.GELU(approximate=m.approximate == "tanh"),
    **{name: layer(getattr(activation, name)) for name in _ACTIVATIONS.split()},
}
