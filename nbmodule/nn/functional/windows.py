"""Shared by convolution and pooling: the forms of strides, paddings and layouts, and sliding
windows.

`data_format` names the axes of an image: N all leading (batch) axes, D, H and W the spatial ones, C
the channels.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import string
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, SupportsIndex, TypeAlias, TypeVar

import jax
import numpy as np
from jax import Array, lax

from nbmodule.base.format import describe_shape
from nbmodule.errors import ArgumentError, ShapeError
from nbmodule.nn.checks import size, sizes
from nbmodule.nn.kernel import kernel

P = ParamSpec("P")
R = TypeVar("R")

Sizes: TypeAlias = SupportsIndex | tuple[SupportsIndex, ...]
Padding: TypeAlias = str | Sizes | tuple[tuple[SupportsIndex, SupportsIndex], ...]
Pairs: TypeAlias = tuple[tuple[int, int], ...]

DATA_FORMATS = {
    1: ("NWC", "NCW"),
    2: ("NHWC", "NCHW"),
    3: ("NDHWC", "NCDHW"),
}  # channels last, channels first, by the number of spatial axes
FORMATS = ("NC", *(name for names in DATA_FORMATS.values() for name in names))


def for_axes(
    stem: str,
    function: Callable[Concatenate[int, P], R],
    *,
    static: Sequence[str] = (),
    numbers: Sequence[str] = (),
) -> tuple[Callable[P, R], Callable[P, R], Callable[P, R]]:
    """Compile a function for one, two and three spatial axes: `conv1d`, `conv2d` and `conv3d`.

    Args:
        stem: The public name without the number of axes.
        function: Takes the number of axes, and then the public arguments. Its
            docstring is a template, see `documented`.
        static: As in `kernel`.
        numbers: As in `kernel`.
    """
    generic: Any = function
    template, generic.__doc__ = generic.__doc__ or "", None  # its example is no code by itself
    signature = inspect.signature(function)

    def with_axes(n: int) -> Callable[P, R]:
        name, usual = f"{stem}{n}d", {"data_format": DATA_FORMATS[n][0]}

        @functools.wraps(function)
        def with_n_axes(*args: Any, **kwargs: Any) -> Any:
            return generic(n, *args, **(usual | kwargs))

        public: Any = with_n_axes
        public.__name__ = public.__qualname__ = name
        public.__doc__ = documented(template, name, n)
        _, *parameters = (
            each.replace(default=usual.get(each.name, each.default))
            for each in signature.parameters.values()
        )
        public.__signature__ = signature.replace(parameters=parameters)
        return kernel(static=static, numbers=numbers)(public)

    return with_axes(1), with_axes(2), with_axes(3)


def documented(template: str, name: str, axes: int, **words: str) -> str:
    """Fill in a docstring: `$name`, `$axes`, `$images`, `$formats`, and `*9` as `9, 9` for two
    spatial axes.
    """
    words["name"] = name
    if axes:
        words["axes"] = "1 spatial axis" if axes == 1 else f"{axes} spatial axes"
        words["images"] = ("sequences", "images", "volumes")[axes - 1]
        words["formats"] = " or ".join(map(repr, DATA_FORMATS[axes]))
    text = string.Template(template).substitute(words)
    return re.sub(r"\*(\d+)", lambda size: ", ".join([size[1]] * axes), text)


def spatial_axes(x: Array, data_format: str, n: int) -> tuple[int, ...]:
    """The spatial axes of `x`, checked; the channel axis is the one before them or after them."""
    if data_format not in DATA_FORMATS[n]:
        last, first = DATA_FORMATS[n]
        raise ArgumentError(f"data_format must be {last!r} or {first!r}, got {data_format!r}.")
    if x.ndim < n + 1:
        axes = f"*batch, {', '.join(data_format[1:])}"
        raise ShapeError(f"x must have axes ({axes}), got {describe_shape(x)}.")
    first = x.ndim - n if data_format[1] == "C" else x.ndim - n - 1
    return tuple(range(first, first + n))


def channel_axis(ndim: int, data_format: str) -> int:
    """The axis of the channels."""
    return ndim - 1 if data_format.endswith("C") else ndim - len(data_format) + 1


def pairs(padding: object, n: int) -> str | Pairs:
    """Padding before and after each spatial axis, or one of the words SAME and VALID."""
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise ArgumentError(f"padding must be 'SAME', 'VALID' or numbers, got {padding!r}.")
        return padding.upper()
    if not isinstance(padding, tuple) or not any(isinstance(pair, tuple) for pair in padding):
        return tuple((p, p) for p in sizes("padding", padding, n, least=0))
    if len(padding) != n or any(not isinstance(pair, tuple) or len(pair) != 2 for pair in padding):
        raise ArgumentError(
            f"padding must hold {n} pairs (before, after), one for each spatial "
            f"axis, got {padding!r}."
        )
    return tuple(
        (size("padding", before, least=0), size("padding", after, least=0))
        for before, after in padding
    )


def resolve(
    padding: str | Pairs, lengths: tuple[int, ...], window: tuple[int, ...], stride: tuple[int, ...]
) -> Pairs:
    """The numbers behind SAME (as many outputs as inputs, divided by the stride and rounded up) and
    VALID (none).
    """
    if padding == "VALID":
        return ((0, 0),) * len(lengths)
    if padding == "SAME":
        total = [
            max((-(-s // t) - 1) * t + w - s, 0)
            for s, w, t in zip(lengths, window, stride, strict=True)
        ]
        return tuple((t // 2, t - t // 2) for t in total)
    assert not isinstance(padding, str)
    return padding


def check_fit(
    x: Array,
    axes: tuple[int, ...],
    padding: Pairs,
    window: tuple[int, ...],
    named: tuple[int, ...] | None = None,
) -> None:
    """Refuse a window that is larger than the padded input; the message may name another, of which
    `window` is what must fit.
    """
    padded = [x.shape[axis] + sum(pair) for axis, pair in zip(axes, padding, strict=True)]
    if any(w > p for w, p in zip(window, padded, strict=True)):
        raise ShapeError(
            f"a window of {list(named or window)} does not fit into x "
            f"{describe_shape(x)}, padded to {padded}."
        )


def flat_batch(x: jax.Array, rank: int) -> tuple[jax.Array, tuple[int, ...]]:
    """Join all axes but the last `rank` into one, which may be new; and the axes that were
    joined.
    """
    batch = x.shape[: x.ndim - rank]
    if len(batch) == 1:
        return x, batch
    return lax.reshape(x, (math.prod(batch), *x.shape[x.ndim - rank :])), batch


def pad(x: jax.Array, axes: tuple[int, ...], padding: Pairs, value: float) -> jax.Array:
    """Surround the axes with a value."""
    config = [(0, 0, 0)] * x.ndim
    for axis, (before, after) in zip(axes, padding, strict=True):
        config[axis] = (before, after, 0)
    return lax.pad(x, lax.full((), value, x.dtype), config) if any(sum(c) for c in config) else x


def slide(
    x: jax.Array,
    axis: int,
    window: int,
    stride: int,
    dilation: int,
    combine: Callable[[jax.Array, jax.Array], jax.Array],
) -> jax.Array:
    """Combine the values under a window that slides along one axis.

    One strided slice for each place in the window: XLA fuses them into one loop, and their gradient
    is ten to a hundred times faster on the CPU than that of `lax.reduce_window`.
    """
    count = (x.shape[axis] - dilation * (window - 1) - 1) // stride + 1
    taps = [
        lax.slice_in_dim(x, i * dilation, i * dilation + (count - 1) * stride + 1, stride, axis)
        for i in range(window)
    ]
    result = taps[0]
    for tap in taps[1:]:
        result = combine(result, tap)
    return result


def mix(x: jax.Array, axis: int, weights: np.ndarray) -> jax.Array:
    """Replace the values along one axis by weighted sums of them, one for each row of `weights`."""
    matrix = weights.astype(x.dtype)
    mixed = lax.dot_general(x, matrix, (((axis,), (1,)), ((), ())), precision=lax.Precision.HIGHEST)
    order = [*range(axis), x.ndim - 1, *range(axis, x.ndim - 1)]
    return lax.transpose(mixed, order)
