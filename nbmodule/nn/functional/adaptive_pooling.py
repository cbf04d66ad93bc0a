"""Pooling to a given size: each output is the mean of its part of the image."""

from __future__ import annotations

from typing import SupportsIndex

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from nbmodule.base.format import describe_shape
from nbmodule.errors import ShapeError
from nbmodule.nn.functional.checks import check_floating
from nbmodule.nn.functional.windows import Sizes, mix, sizes, spatial_axes
from nbmodule.nn.kernel import kernel


@kernel(static=("output_size", "data_format"))
def adaptive_avg_pool1d(
    x: Float[Array, "*batch _width _channels"], output_size: Sizes, *, data_format: str = "NWC"
) -> Float[Array, "*batch _new_width _channels"]:
    """Take means over parts of a sequence; as `adaptive_avg_pool2d`, with one spatial axis.

    Example:
        >>> adaptive_avg_pool1d(jnp.array([[1.0], [2.0], [6.0]]), 2)[:, 0]
        Array([1.5, 4. ], dtype=float32)
    """
    return _adaptive("adaptive_avg_pool1d", x, 1, output_size, data_format)


@kernel(static=("output_size", "data_format"))
def adaptive_avg_pool2d(
    x: Float[Array, "*batch _height _width _channels"],
    output_size: Sizes | tuple[SupportsIndex | None, ...],
    *,
    data_format: str = "NHWC",
) -> Float[Array, "*batch _new_height _new_width _channels"]:
    """Take means over parts of an image, so that the output has a given size.

    On an axis of size `n`, output `i` of `m` is the mean of pixels `floor(i * n / m)` to `ceil((i +
    1) * n / m) - 1`.

    Args:
        x: Images, with any number of leading axes.
        output_size: One size or one for each axis; None keeps the size of that axis; 1 takes the
            mean of the whole image.
        data_format: `NHWC`, or `NCHW` with channels before height and width.

    Example:
        >>> adaptive_avg_pool2d(jnp.arange(16.0).reshape(4, 4, 1), (1, 2))
        Array([[[6.5],
                [8.5]]], dtype=float32)

    Source: He, Zhang, Ren and Sun (2014), arXiv:1406.4729.
    """
    return _adaptive("adaptive_avg_pool2d", x, 2, output_size, data_format)


@kernel(static=("output_size", "data_format"))
def adaptive_avg_pool3d(
    x: Float[Array, "*batch _depth _height _width _channels"],
    output_size: Sizes | tuple[SupportsIndex | None, ...],
    *,
    data_format: str = "NDHWC",
) -> Float[Array, "*batch _new_depth _new_height _new_width _channels"]:
    """Take means over parts of a volume; as `adaptive_avg_pool2d`, with three spatial axes.

    Example:
        >>> adaptive_avg_pool3d(jnp.ones((4, 5, 6, 2)), 2).shape
        (2, 2, 2, 2)
    """
    return _adaptive("adaptive_avg_pool3d", x, 3, output_size, data_format)


def _adaptive(name: str, x: Array, n: int, output_size: object, data_format: str) -> Array:
    check_floating(name, x=x)
    axes = spatial_axes(name, x, data_format, n)
    if isinstance(output_size, tuple) and len(output_size) == n:
        output_size = tuple(
            x.shape[a] if size is None else size for a, size in zip(axes, output_size, strict=True)
        )
    new = sizes(name, "output_size", output_size, n)
    if any(x.shape[axis] == 0 for axis in axes):
        raise ShapeError(f"{name}: x must have pixels, got {describe_shape(x)}.")
    for axis, size in zip(axes, new, strict=True):
        if x.shape[axis] % size == 0:
            parts = lax.reshape(
                x, (*x.shape[:axis], size, x.shape[axis] // size, *x.shape[axis + 1 :])
            )
            x = jnp.mean(parts, axis + 1)
        else:
            x = mix(x, axis, _shares(x.shape[axis], size))
    return x


def _shares(size: int, parts: int) -> np.ndarray:
    """The share of each pixel in each mean; neighboring parts may overlap by a pixel."""
    shares = np.zeros((parts, size))
    for i in range(parts):
        first, last = i * size // parts, -(-(i + 1) * size // parts)
        shares[i, first:last] = 1 / (last - first)
    return shares
