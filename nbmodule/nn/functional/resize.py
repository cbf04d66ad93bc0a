"""Images of another size: nearest, linear and cubic interpolation over one to three spatial
axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, SupportsIndex

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nbmodule.base.format import describe_shape
from nbmodule.errors import ArgumentError, ShapeError
from nbmodule.nn.checks import check_choice, check_number, for_each_axis, sizes
from nbmodule.nn.functional.windows import FORMATS, mix, spatial_axes
from nbmodule.nn.kernel import ArrayLike, kernel

_MODES = {
    "nearest": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "trilinear": (3,),
    "bicubic": (2,),
}
_SHARPNESS = -0.75  # of the cubic kernel, as in PyTorch and OpenCV


@kernel(static=("size", "scale_factor", "mode", "align_corners", "data_format"))
def interpolate(
    x: Float[ArrayLike, "..."],
    size: SupportsIndex | tuple[SupportsIndex, ...] | None = None,
    *,
    scale_factor: float | tuple[float, ...] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
    data_format: str = "NHWC",
) -> Float[Array, "..."]:
    """Resize images, also known as upsampling.

    Output pixel `i` looks at the input coordinate `(i + 0.5) * scale - 0.5`, with `scale` the ratio
    of input to output size (or `1 / scale_factor`); `nearest` takes pixel `floor(i * scale)`; with
    `align_corners` the coordinate is `i * (n_in - 1) / (n_out - 1)`. Beyond the edge the last pixel
    is used. There is no smoothing before an image is made smaller.

    Args:
        x: Images, with any number of leading axes.
        size: Size of the output, one number or one for each spatial axis.
        scale_factor: In place of `size`, the factor by which each axis grows; sizes are rounded
            down.
        mode: `nearest`; `linear`, `bilinear`, `trilinear` for one, two, three spatial axes;
            `bicubic` for two.
        align_corners: Whether the centers of the corner pixels stay where they are; not for
            `nearest`.
        data_format: `NWC`, `NHWC`, `NDHWC`, or `NCW`, `NCHW`, `NCDHW` with channels first.

    Raises:
        ArgumentError: if not exactly one of `size` and `scale_factor` is given, or the mode is for
            another number of axes.

    Example:
        >>> x = jnp.array([[1.0], [3.0]])
        >>> interpolate(x, 4, mode="linear", data_format="NWC")[:, 0]
        Array([1. , 1.5, 2.5, 3. ], dtype=float32)
        >>> interpolate(x, scale_factor=2.0, data_format="NWC")[:, 0]
        Array([1., 1., 3., 3.], dtype=float32)

    Source: Keys (1981), Cubic convolution interpolation for digital image processing.
    """
    size = check_resize(size, scale_factor, mode, align_corners, data_format)
    axes = spatial_axes(x, data_format, len(data_format) - 2)
    for axis, new, scale in _targets(x, axes, size, scale_factor):
        x = _resize(x, axis, new, scale, mode, align_corners)
    return x


def check_resize(
    size: object, scale_factor: object, mode: str, align_corners: bool, data_format: str
) -> tuple[int, ...] | None:
    """Refuse options that do not fit together; return the size for each axis, if it is given."""
    check_choice("mode", mode, tuple(_MODES))
    check_choice("data_format", data_format, FORMATS[1:])
    n = len(data_format) - 2
    if n not in _MODES[mode]:
        raise ArgumentError(f"mode {mode!r} is not for {n} spatial axes ({data_format}).")
    if align_corners and mode == "nearest":
        raise ArgumentError("align_corners is not for mode 'nearest'.")
    if (size is None) == (scale_factor is None):
        raise ArgumentError(
            f"give size or scale_factor, got size={size!r} and scale_factor={scale_factor!r}."
        )
    if size is not None:
        return sizes("size", size, n)
    for factor in for_each_axis("scale_factor", scale_factor, n):
        check_number("scale_factor", factor, above=0)
    return None


def _targets(
    x: Array, axes: tuple[int, ...], size: tuple[int, ...] | None, scale_factor: Any
) -> list[tuple[int, int, float]]:
    """For each axis the new size and how many old pixels one new pixel covers."""
    old = [x.shape[axis] for axis in axes]
    if 0 in old:
        raise ShapeError(f"x must have pixels, got {describe_shape(x)}.")
    if size is not None:
        return [(axis, m, n / m) for axis, n, m in zip(axes, old, size, strict=True)]
    factors = for_each_axis("scale_factor", scale_factor, len(axes))
    result = [
        (axis, math.floor(n * f), 1 / f) for axis, n, f in zip(axes, old, factors, strict=True)
    ]
    if any(m < 1 for _, m, _ in result):
        raise ShapeError(f"scale_factor {scale_factor!r} leaves nothing of x {describe_shape(x)}.")
    return result


def _resize(x: Array, axis: int, new: int, scale: float, mode: str, align_corners: bool) -> Array:
    old = x.shape[axis]
    if mode == "nearest":
        # in float32, as PyTorch does, whose rounding decides on ties
        source = np.minimum(
            np.floor(np.arange(new, dtype=np.float32) * np.float32(scale)).astype(int), old - 1
        )
        if new % old == 0 and (source == np.arange(new) // (new // old)).all():
            return jnp.repeat(x, new // old, axis)
        return mix(x, axis, np.eye(old)[source])
    if new == old and (align_corners or scale == 1):
        return x
    places = (
        np.arange(new) * ((old - 1) / (new - 1) if new > 1 else 0.0)
        if align_corners
        else (np.arange(new) + 0.5) * scale - 0.5
    )
    if mode == "bicubic":
        return mix(x, axis, _weights(places, old, (-1, 0, 1, 2), _cubic))
    return mix(x, axis, _weights(np.clip(places, 0, old - 1), old, (0, 1), lambda d: 1 - d))


def _weights(
    places: np.ndarray,
    size: int,
    offsets: tuple[int, ...],
    share: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return a row for each place: the shares of its neighbors, which depend on their distance."""
    weights = np.zeros((len(places), size))
    first = np.floor(places).astype(int)
    for offset in offsets:
        neighbors = np.clip(first + offset, 0, size - 1)
        np.add.at(weights, (np.arange(len(places)), neighbors), share(abs(places - first - offset)))
    return weights


def _cubic(distance: np.ndarray) -> np.ndarray:
    near = ((_SHARPNESS + 2) * distance - (_SHARPNESS + 3)) * distance**2 + 1
    far = (_SHARPNESS * distance - 5 * _SHARPNESS) * distance + 8 * _SHARPNESS
    return np.where(distance <= 1, near, far * distance - 4 * _SHARPNESS)
