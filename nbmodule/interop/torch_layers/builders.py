"""For each layer of PyTorch the layer of the library that computes the same, not yet with its
numbers; and layers of the library that are called as PyTorch's are: channels first, time first,
PyTorch's names of masks.
"""

from __future__ import annotations

from collections.abc import Callable

# pyright: reportIncompatibleMethodOverride=false
# The point of the classes is to be called otherwise than the layers that they derive from.
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from nbmodule.nn import (
    activation,
    convolution,
    dropout,
    linear,
    normalization,
    pooling,
    recurrent,
)
from nbmodule.nn.attention import MultiHeadAttention as _MultiHeadAttention
from nbmodule.nn.normalization import BatchNorm1d as _BatchNorm1d
from nbmodule.nn.normalization import GroupNorm as _GroupNorm
from nbmodule.nn.recurrent import GRU as _GRU
from nbmodule.nn.recurrent import LSTM as _LSTM
from nbmodule.nn.recurrent import RNN as _RNN

if TYPE_CHECKING:
    from torch import nn


class TorchBatchNorm1d(_BatchNorm1d):
    """Called on `(batch, channels)` or `(batch, channels, length)`."""

    def forward(self, x: Array, *args: object) -> Any:
        if jnp.ndim(x) < 3:
            return super().forward(x, *args)
        return jnp.moveaxis(super().forward(jnp.moveaxis(jnp.asarray(x), 1, -1), *args), -1, 1)


class TorchGroupNorm(_GroupNorm):
    """Called on `(batch, channels, ...)`."""

    def forward(self, x: object) -> Any:
        return jnp.moveaxis(super().forward(jnp.moveaxis(jnp.asarray(x), 1, -1)), -1, 1)


class _TimeFirst:
    """Called on `(time, batch, features)`, or on `(time, features)`."""

    def forward(self, x: Array, state: object = None) -> Any:
        if jnp.ndim(x) < 3:
            return super().forward(x, state)  # type: ignore[misc]
        ys, state = super().forward(jnp.swapaxes(x, 0, 1), state)  # type: ignore[misc]
        return jnp.swapaxes(ys, 0, 1), state


class TorchRNN(_TimeFirst, _RNN):
    """Time first."""


class TorchLSTM(_TimeFirst, _LSTM):
    """Time first."""


class TorchGRU(_TimeFirst, _GRU):
    """Time first."""


TIME_FIRST = {"RNN": TorchRNN, "LSTM": TorchLSTM, "GRU": TorchGRU}


def mask_of(mask: Array | None) -> Any:
    """PyTorch marks with True what is left out; a floating mask is added in both."""
    return (
        None if mask is None else jnp.logical_not(mask) if jnp.asarray(mask).dtype == bool else mask
    )


class MultiheadAttention(_MultiHeadAttention):
    """Returns the output and the weights, which are averaged over heads, as PyTorch's does."""

    batch_first = True

    def forward(
        self,
        query: Array,
        key: object,
        value: object,
        key_padding_mask: Array | None = None,
        need_weights: bool = True,
        attn_mask: Array | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:
        turn = (
            (lambda x: jnp.swapaxes(x, 0, 1))
            if not self.batch_first and jnp.ndim(query) == 3
            else (lambda x: x)
        )
        masks = {"mask": mask_of(attn_mask), "key_mask": mask_of(key_padding_mask)}
        outputs = super().forward(
            turn(query), turn(key), turn(value), return_weights=need_weights, **masks
        )
        if not need_weights:
            return turn(outputs), None
        return turn(outputs[0]), outputs[1].mean(-3) if average_attn_weights else outputs[1]


# -- builders --
FORMATS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
Builder = Callable[[Any], Any]


class Unlike(Exception):
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
    """Return what makes a layer from attributes of PyTorch's.

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
                raise Unlike(f"{name}={getattr(m, name)!r}")
        given = {ours: getattr(m, theirs, None) for ours, theirs in names.items()}
        if "with_bias" in given:
            given["with_bias"] = given["with_bias"] is not None and given["with_bias"] is not False
        if axes:
            given["data_format"] = FORMATS[axes]
        return kind(*(getattr(m, name) for name in sizes.split()), **given)

    return make


def batch_norm(axes: int) -> Builder:
    options = "eps momentum affine track_running_stats"
    if axes == 1:  # it takes vectors and sequences
        return layer(TorchBatchNorm1d, "num_features", options)
    kind = getattr(normalization, f"BatchNorm{axes}d")
    return layer(kind, "num_features", options, axes=axes)


def rms_norm(m: nn.RMSNorm) -> Any:
    eps = float(np.finfo(np.float32).eps) if m.eps is None else m.eps
    return normalization.RMSNorm(tuple(m.normalized_shape), eps=eps, affine=m.elementwise_affine)


def recurrent_layer(name: str) -> Builder:
    def make(m: nn.RNNBase) -> Any:
        kind = getattr(recurrent, name) if m.batch_first else TIME_FIRST[name]
        more: dict[str, Any] = {"nonlinearity": "nonlinearity"} if name == "RNN" else {}
        if m.num_layers > 1:
            more["dropout_rate"] = "dropout"
        sizes, options = "input_size hidden_size", "num_layers bidirectional"
        return layer(kind, sizes, options, only={"proj_size": 0}, with_bias="bias", **more)(m)

    return make


def multihead(m: nn.MultiheadAttention) -> Any:
    made = layer(
        MultiheadAttention,
        "embed_dim num_heads",
        only={"bias_k": None, "bias_v": None, "add_zero_attn": False},
        key_features="kdim",
        value_features="vdim",
        dropout_rate="dropout",
        with_bias="in_proj_bias",
    )(m)
    made.batch_first = m.batch_first
    return made


def upsample(m: nn.Upsample) -> Any:
    factor = m.scale_factor
    factor = tuple(factor) if isinstance(factor, (tuple, list)) else factor
    options = {"mode": m.mode, "align_corners": bool(m.align_corners), "data_format": "NCHW"}
    return pooling.Upsample(m.size, scale_factor=factor, **options)


def softmax(kind: type) -> Builder:
    def make(m: nn.Softmax | nn.LogSoftmax) -> Any:
        if m.dim is None:
            raise Unlike("dim=None")
        return kind(axis=m.dim)

    return make


def per_axis(
    name: str, module: object, sizes: str, options: str = "", **more: Any
) -> dict[str, Any]:
    """Return the builders of a layer for one, two and three spatial axes."""
    names = {axes: name.format(axes) for axes in FORMATS}
    return {
        full: layer(getattr(module, full), sizes, options, axes=axes, **more)
        for axes, full in names.items()
    }


_CHANNELS = "in_channels out_channels kernel_size"
_STEPS = "stride padding dilation groups"
_PADDED: dict[str, Any] = {"only": {"padding_mode": "zeros"}, "with_bias": "bias"}

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
    **per_axis("Dropout{}d", dropout, "p"),
    **{f"BatchNorm{axes}d": batch_norm(axes) for axes in FORMATS},
    **{
        f"InstanceNorm{axes}d": layer(
            normalization.InstanceNorm,
            "num_features",
            "eps affine",
            axes=axes,
            only={"track_running_stats": False},
        )
        for axes in FORMATS
    },
    "LayerNorm": layer(
        normalization.LayerNorm,
        "normalized_shape",
        "eps",
        affine="elementwise_affine",
        with_bias="bias",
    ),
    "RMSNorm": rms_norm,
    "GroupNorm": layer(TorchGroupNorm, "num_groups num_channels", "eps affine"),
    "Dropout": layer(dropout.Dropout, "p"),
    "AlphaDropout": layer(dropout.AlphaDropout, "p"),
    "Upsample": upsample,
    **{name: recurrent_layer(name) for name in ("RNN", "LSTM", "GRU")},
    "MultiheadAttention": multihead,
    "LeakyReLU": layer(activation.LeakyReLU, "", "negative_slope"),
    "ELU": layer(activation.ELU, "", "alpha"),
    "CELU": layer(activation.CELU, "", "alpha"),
    "GELU": lambda m: activation.GELU(approximate=m.approximate == "tanh"),
    "Softplus": layer(activation.Softplus, "", "beta"),
    "Softmax": softmax(activation.Softmax),
    "LogSoftmax": softmax(activation.LogSoftmax),
    "GLU": layer(activation.GLU, axis="dim"),
    "PReLU": lambda m: activation.PReLU(m.num_parameters, axis=1 if m.num_parameters > 1 else -1),
    **{
        name: layer(getattr(activation, name))
        for name in "ReLU ReLU6 SELU SiLU Mish Softsign Sigmoid LogSigmoid Hardsigmoid Hardswish "
        "Tanh".split()
    },
}
