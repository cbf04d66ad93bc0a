"""What the functions of `torch.nn.functional` are here: weights in PyTorch's layout, channels first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nbmodule.core.numbers import random
from nbmodule.nn.functional import adaptive_pooling, pooling
from nbmodule.nn.functional.dropout import dropout as dropped
from nbmodule.nn.functional.dropout import dropout1d, dropout2d, dropout3d
from nbmodule.nn.functional.resize import interpolate as resized

Sizes: TypeAlias = int | list[int] | tuple[int, ...]
"""One number for each axis, or one for all."""
FORMATS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def linear(x: Array, weight: Array, bias: Array | None = None) -> Any:
    y = x @ weight.T
    return y if bias is None else y + bias


def dropout(x: Array, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return dropped(x, p, random.default.draw()) if training and p else x


def channel_dropout(function: Callable[..., Any], letters: str) -> Callable[..., Any]:
    def called(x: Array, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return function(x, p, random.default.draw(), data_format=letters) if training and p else x

    return called


def normalized(x: Array, axes: tuple[int, ...], eps: float) -> Any:
    mean = x.mean(axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.square(x - mean).mean(axes, keepdims=True) + eps)


def layer_norm(
    x: Array, normalized_shape: Sequence[int], weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Any:
    y = normalized(x, tuple(range(-len(normalized_shape), 0)), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def rms_norm(x: Array, normalized_shape: Sequence[int], weight: Array | None = None, eps: float | None = None) -> Any:
    axes = tuple(range(-len(normalized_shape), 0))
    eps = float(np.finfo(x.dtype).eps) if eps is None else eps
    y = x * jax.lax.rsqrt(jnp.square(x).mean(axes, keepdims=True) + eps)
    return y if weight is None else y * weight


def group_norm(
    x: Array, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Any:
    parts = x.reshape((x.shape[0], num_groups, -1))
    y = normalized(parts, (-1,), eps).reshape(x.shape)
    return along_channels(y, weight, bias)


def along_channels(y: Array, weight: Array | None, bias: Array | None) -> Array:
    shape = (1, -1, *(1,) * (y.ndim - 2))
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def convolved(n: int) -> Callable[..., Any]:
    def called(
        x: Array,
        weight: Array,
        bias: Array | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Any:
        each = lambda value: (value,) * n if isinstance(value, int) else (*value,) * (n if len(value) == 1 else 1)  # noqa: E731
        pads = padding.upper() if isinstance(padding, str) else [(size, size) for size in each(padding)]
        images, alone = (x, False) if x.ndim == n + 2 else (x[None], True)
        y = jax.lax.conv_general_dilated(
            images, weight, each(stride), pads, rhs_dilation=each(dilation), feature_group_count=groups
        )
        y = along_channels(y, None, bias)
        return y[0] if alone else y

    return called


def embedding(
    ids: Array,
    weight: Array,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    return jnp.take(weight, ids, axis=0)


def interpolate(
    x: Array,
    size: Sizes | None = None,
    scale_factor: float | list[float] | tuple[float, ...] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    if antialias or mode not in ("nearest", "linear", "bilinear", "trilinear", "bicubic"):
        raise NotImplementedError(f"interpolate with mode={mode!r}, antialias={antialias}")
    n = x.ndim - 2
    if recompute_scale_factor and scale_factor is not None:
        factors = scale_factor if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * n
        size, scale_factor = [math.floor(old * factor) for old, factor in zip(x.shape[2:], factors)], None
    size = tuple(size) if isinstance(size, list) else size
    factor = tuple(scale_factor) if isinstance(scale_factor, (tuple, list)) else scale_factor
    return resized(x, size, scale_factor=factor, mode=mode, align_corners=bool(align_corners), data_format=FORMATS[n])


def pad(x: Array, pad: Sequence[int], mode: str = "constant", value: float | None = 0) -> Any:
    """Pairs stand from the last axis on; a negative one cuts."""
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    widths = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    cut = x[tuple(slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in zip(widths, x.shape))]
    kept = [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode == "constant":
        return jnp.pad(cut, kept, constant_values=0 if value is None else value)
    return jnp.pad(cut, kept, mode={"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode])


def max_pool(n: int) -> Callable[..., Any]:
    function = getattr(pooling, f"max_pool{n}d")

    def called(
        x: Array,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        if return_indices:
            raise NotImplementedError(f"max_pool{n}d with return_indices=True")
        options = {"stride": stride or kernel_size, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
        return function(x, whole(kernel_size), data_format=FORMATS[n], **{k: whole(v) for k, v in options.items()})

    return called


def whole(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


def avg_pool(n: int) -> Callable[..., Any]:
    function = getattr(pooling, f"avg_pool{n}d")

    def called(
        x: Array,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        options: dict[str, bool | int] = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        if divisor_override is not None:
            options["divisor_override"] = divisor_override
        return function(
            x,
            whole(kernel_size),
            stride=whole(stride or kernel_size),
            padding=whole(padding),
            data_format=FORMATS[n],
            **options,
        )

    return called


def adaptive(n: int) -> Callable[..., Any]:
    function = getattr(adaptive_pooling, f"adaptive_avg_pool{n}d")
    return lambda x, output_size: function(x, whole(output_size), data_format=FORMATS[n])


def unflattened(x: Array, dim: int, sizes: Sequence[int]) -> Any:
    dim %= x.ndim
    return x.reshape((*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


def pixel_shuffled(x: Array, upscale_factor: int) -> Any:
    *batch, channels, height, width = x.shape
    r = upscale_factor
    x = x.reshape((*batch, channels // r**2, r, r, height, width))
    n = len(batch)
    x = x.transpose((*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return x.reshape((*batch, channels // r**2, height * r, width * r))


def cross_entropy(
    logits: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    if weight is not None or label_smoothing or target.dtype.kind == "f":
        raise NotImplementedError("cross_entropy with weight=, label_smoothing= or probabilities as targets")
    logs = jax.nn.log_softmax(logits, axis=1)
    counts = target != ignore_index
    places = jnp.where(counts, target, 0)
    losses = jnp.where(counts, -jnp.take_along_axis(logs, jnp.expand_dims(places, 1), axis=1).squeeze(1), 0)
    if reduction == "none":
        return losses
    return losses.sum() / counts.sum() if reduction == "mean" else losses.sum()


def mse_loss(
    x: Array, target: Array, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Any:
    losses = jnp.square(x - target)
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()


def one_hot(x: Array, num_classes: int) -> Any:
    return jax.nn.one_hot(x, num_classes, dtype=int)


FUNCTIONAL: dict[str, Callable[..., Any]] = {
    "linear": linear,
    "dropout": dropout,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "group_norm": group_norm,
    "embedding": embedding,
    "interpolate": interpolate,
    "pad": pad,
    "unflatten": unflattened,
    "pixel_shuffle": pixel_shuffled,
    "cross_entropy": cross_entropy,
    "mse_loss": mse_loss,
    "one_hot": one_hot,
    **{f"conv{n}d": convolved(n) for n in FORMATS},
    **{f"max_pool{n}d": max_pool(n) for n in FORMATS},
    **{f"avg_pool{n}d": avg_pool(n) for n in FORMATS},
    **{f"adaptive_avg_pool{n}d": adaptive(n) for n in FORMATS},
    **{
        f"dropout{n}d": channel_dropout(kind, FORMATS[n]) for n, kind in enumerate((dropout1d, dropout2d, dropout3d), 1)
    },
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0, inplace=False: jnp.clip(x, min_val, max_val),
    "_threshold": lambda x, threshold, value, inplace=False: jnp.where(x > threshold, x, value),
    "relu6": lambda x, inplace=False: jax.nn.relu6(x),
    "selu": lambda x, inplace=False: jax.nn.selu(x),
    "celu": lambda x, alpha=1.0, inplace=False: jax.nn.celu(x, alpha),
    "mish": lambda x, inplace=False: jax.nn.mish(x),
    "hardswish": lambda x, inplace=False: x * jnp.clip(x + 3, 0, 6) / 6,
    "hardsigmoid": lambda x, inplace=False: jnp.clip(x + 3, 0, 6) / 6,
    "logsigmoid": jax.nn.log_sigmoid,
    "softsign": jax.nn.soft_sign,
    "glu": lambda x, dim=-1: jax.nn.glu(x, axis=dim),
    "softmin": lambda x, dim, _stacklevel=3, dtype=None: jax.nn.softmax(-x, axis=dim),
    "tanhshrink": lambda x: x - jnp.tanh(x),
    "prelu": lambda x, weight: jnp.where(x > 0, x, along_channels(x, weight, None) if weight.size > 1 else x * weight),
    "cosine_similarity": lambda a, b, dim=1, eps=1e-8: (
        (a * b).sum(dim) / jnp.maximum(jnp.linalg.norm(a, axis=dim) * jnp.linalg.norm(b, axis=dim), eps)
    ),
}
