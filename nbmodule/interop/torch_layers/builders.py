"""For each layer of PyTorch the layer of the library that computes the same, not yet with its
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nbmodule.interop.torch_layers import adapters
from nbmodule.nn import (
    activation,
    convolution,
    dropout,
    linear,
    normalization,
    pooling,
    recurrent,
    resizing,
)
from nbmodule.nn.functional.activations import gelu
from nbmodule.nn.functional.rectifiers import relu
from nbmodule.nn.normalization import BatchNorm2d, BatchNorm3d

if TYPE_CHECKING:
    from torch import nn
    from torch.nn.modules import batchnorm, instancenorm
    from torch.nn.modules import conv as convs
    from torch.nn.modules import pooling as pools

FORMATS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


class Unlike(Exception):
    """A layer has an option that the library's counterpart does not have."""


def only(layer: object, **usual: object) -> None:
    for name, value in usual.items():
        if getattr(layer, name, value) != value:
            raise Unlike(f"{name}={getattr(layer, name)!r}")


def conv(n: int, transposed: bool) -> Callable[[Any], Any]:
    layer_type = getattr(convolution, f"Conv{'Transpose' if transposed else ''}{n}d")

    def make(m: convs._ConvNd) -> Any:
        only(m, padding_mode="zeros")
        more = {"output_padding": m.output_padding} if transposed else {}
        return layer_type(
            m.in_channels,
            m.out_channels,
            m.kernel_size,
            stride=m.stride,
            padding=m.padding,
            dilation=m.dilation,
            groups=m.groups,
            with_bias=m.bias is not None,
            data_format=FORMATS[n],
            **more,
        )

    return make


def max_pool(n: int) -> Callable[[Any], Any]:
    def make(m: pools._MaxPoolNd) -> Any:
        only(m, return_indices=False)
        options = {
            "stride": m.stride,
            "padding": m.padding,
            "dilation": m.dilation,
            "ceil_mode": m.ceil_mode,
        }
        return getattr(pooling, f"MaxPool{n}d")(m.kernel_size, data_format=FORMATS[n], **options)

    return make


def avg_pool(n: int) -> Callable[[Any], Any]:
    def make(m: nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d) -> Any:
        options = {"stride": m.stride, "padding": m.padding, "ceil_mode": m.ceil_mode}
        options |= {
            "count_include_pad": m.count_include_pad,
            "divisor_override": getattr(m, "divisor_override", None),
        }
        return getattr(pooling, f"AvgPool{n}d")(m.kernel_size, data_format=FORMATS[n], **options)

    return make


def adaptive(n: int) -> Callable[[Any], Any]:
    return lambda m: getattr(resizing, f"AdaptiveAvgPool{n}d")(
        m.output_size, data_format=FORMATS[n]
    )


def batch_norm(n: int) -> Callable[[Any], Any]:
    def make(m: batchnorm._BatchNorm) -> Any:
        if m.momentum is None:
            raise Unlike("momentum=None")
        options = {
            "eps": m.eps,
            "momentum": m.momentum,
            "affine": m.affine,
            "track_running_stats": m.track_running_stats,
        }
        if n == 1:
            return adapters.TorchBatchNorm1d(m.num_features, **options)
        return {2: BatchNorm2d, 3: BatchNorm3d}[n](
            m.num_features, data_format=FORMATS[n], **options
        )

    return make


def instance_norm(n: int) -> Callable[[Any], Any]:
    def make(m: instancenorm._InstanceNorm) -> Any:
        only(m, track_running_stats=False)
        return normalization.InstanceNorm(
            m.num_features, eps=m.eps, affine=m.affine, data_format=FORMATS[n]
        )

    return make


def layer_norm(m: nn.LayerNorm) -> Any:
    has_bias = m.elementwise_affine and m.bias is not None
    return normalization.LayerNorm(
        tuple(m.normalized_shape), eps=m.eps, affine=m.elementwise_affine, with_bias=has_bias
    )


def rms_norm(m: nn.RMSNorm) -> Any:
    eps = float(np.finfo(np.float32).eps) if m.eps is None else m.eps
    return normalization.RMSNorm(tuple(m.normalized_shape), eps=eps, affine=m.elementwise_affine)


def recurrent_layer(name: str) -> Callable[[Any], Any]:
    def make(m: nn.RNNBase) -> Any:
        only(m, proj_size=0)
        layer_type = (
            getattr(recurrent, name) if m.batch_first else getattr(adapters, f"Torch{name}")
        )
        more = {"nonlinearity": m.nonlinearity} if name == "RNN" else {}
        return layer_type(
            m.input_size,
            m.hidden_size,
            num_layers=m.num_layers,
            bidirectional=m.bidirectional,
            dropout_rate=m.dropout if m.num_layers > 1 else 0.0,
            with_bias=m.bias,
            **more,
        )

    return make


def multihead(m: nn.MultiheadAttention) -> Any:
    only(m, bias_k=None, bias_v=None, add_zero_attn=False)
    our_layer = adapters.MultiheadAttention(
        m.embed_dim,
        m.num_heads,
        key_features=m.kdim,
        value_features=m.vdim,
        dropout_rate=m.dropout,
        with_bias=m.in_proj_bias is not None,
    )
    our_layer.batch_first = m.batch_first
    return our_layer


def options_of_transformer(
    m: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer,
) -> dict[str, Any]:
    """What the library's transformer layers are made with, besides their sizes."""
    name = getattr(m.activation, "__name__", type(m.activation).__name__).lower()
    functions = {"relu": relu, "gelu": gelu}
    if name not in functions or getattr(m.activation, "approximate", "none") != "none":
        raise Unlike(f"activation={m.activation!r}")
    return {
        "dropout_rate": m.dropout.p,
        "activation": functions[name],
        "norm_first": m.norm_first,
        "eps": m.norm1.eps,
        "with_bias": m.linear1.bias is not None,
    }


def sizes_of_transformer(
    m: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer,
) -> tuple[int, int, int]:
    return m.self_attn.embed_dim, m.self_attn.num_heads, m.linear1.out_features


def transformer_layer(name: str) -> Callable[[Any], Any]:
    def make(m: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> Any:
        our_layer = getattr(adapters, f"Torch{name}")(
            *sizes_of_transformer(m), **options_of_transformer(m)
        )
        our_layer.batch_first = m.self_attn.batch_first
        return our_layer

    return make


def transformer_encoder(m: nn.TransformerEncoder) -> Any:
    first: Any = m.layers[0]
    if type(first).__name__ != "TransformerEncoderLayer" or (
        m.norm is not None and type(m.norm).__name__ != "LayerNorm"
    ):
        raise Unlike(f"layers of {type(first).__name__}")
    our_layer = adapters.TorchTransformerEncoder(
        len(m.layers),
        *sizes_of_transformer(first),
        final_norm=m.norm is not None,
        **options_of_transformer(first),
    )
    our_layer.batch_first = first.self_attn.batch_first
    return our_layer


def upsample(m: nn.Upsample) -> Any:
    size, factor = m.size, m.scale_factor
    factor = tuple(factor) if isinstance(factor, (tuple, list)) else factor
    return resizing.Upsample(
        size,
        scale_factor=factor,
        mode=m.mode,
        align_corners=bool(m.align_corners),
        data_format="NCHW",
    )


def softmax(layer_type: type) -> Callable[[Any], Any]:
    def make(m: nn.Softmax | nn.LogSoftmax) -> Any:
        if m.dim is None:
            raise Unlike("dim=None")
        return layer_type(axis=m.dim)

    return make


def activation_builder(name: str, **options: str) -> Callable[[Any], Any]:
    """An activation, with the names that its options have in PyTorch."""
    layer_type = getattr(activation, name)
    return lambda m: layer_type(**{ours: getattr(m, theirs) for ours, theirs in options.items()})


BUILDERS: dict[str, Callable[[Any], Any]] = {
    "Linear": lambda m: linear.Linear(m.in_features, m.out_features, with_bias=m.bias is not None),
    "Bilinear": lambda m: linear.Bilinear(
        m.in1_features, m.in2_features, m.out_features, with_bias=m.bias is not None
    ),
    "Embedding": lambda m: linear.Embedding(
        m.num_embeddings,
        m.embedding_dim,
        padding_idx=m.padding_idx,
        max_norm=m.max_norm,
        norm_type=m.norm_type,
    ),
    "Identity": lambda m: linear.Identity(),
    "Flatten": lambda m: linear.Flatten(m.start_dim, m.end_dim),
    **{f"Conv{n}d": conv(n, False) for n in FORMATS},
    **{f"ConvTranspose{n}d": conv(n, True) for n in FORMATS},
    **{f"MaxPool{n}d": max_pool(n) for n in FORMATS},
    **{f"AvgPool{n}d": avg_pool(n) for n in FORMATS},
    **{f"AdaptiveAvgPool{n}d": adaptive(n) for n in FORMATS},
    **{f"BatchNorm{n}d": batch_norm(n) for n in FORMATS},
    **{f"InstanceNorm{n}d": instance_norm(n) for n in FORMATS},
    "LayerNorm": layer_norm,
    "RMSNorm": rms_norm,
    "GroupNorm": lambda m: adapters.TorchGroupNorm(
        m.num_groups, m.num_channels, eps=m.eps, affine=m.affine
    ),
    "Dropout": lambda m: dropout.Dropout(m.p),
    "Dropout1d": lambda m: dropout.Dropout1d(m.p, data_format="NCW"),
    "Dropout2d": lambda m: dropout.Dropout2d(m.p, data_format="NCHW"),
    "Dropout3d": lambda m: dropout.Dropout3d(m.p, data_format="NCDHW"),
    "AlphaDropout": lambda m: dropout.AlphaDropout(m.p),
    "Upsample": upsample,
    "RNN": recurrent_layer("RNN"),
    "LSTM": recurrent_layer("LSTM"),
    "GRU": recurrent_layer("GRU"),
    "MultiheadAttention": multihead,
    "TransformerEncoderLayer": transformer_layer("TransformerEncoderLayer"),
    "TransformerDecoderLayer": transformer_layer("TransformerDecoderLayer"),
    "TransformerEncoder": transformer_encoder,
    "LeakyReLU": activation_builder("LeakyReLU", negative_slope="negative_slope"),
    "ELU": activation_builder("ELU", alpha="alpha"),
    "CELU": activation_builder("CELU", alpha="alpha"),
    "GELU": lambda m: activation.GELU(approximate=m.approximate == "tanh"),
    "Softplus": activation_builder("Softplus", beta="beta"),
    "Softmax": softmax(activation.Softmax),
    "LogSoftmax": softmax(activation.LogSoftmax),
    "GLU": activation_builder("GLU", axis="dim"),
    "PReLU": lambda m: activation.PReLU(m.num_parameters, axis=1 if m.num_parameters > 1 else -1),
    **{
        name: activation_builder(name)
        for name in "ReLU ReLU6 SELU SiLU Mish Softsign Sigmoid LogSigmoid Hardsigmoid Hardswish "
        "Tanh".split()
    },
}
