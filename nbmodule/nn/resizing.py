"""Layers that bring images to another size; see the functions of the same name for the rules."""

from __future__ import annotations

from typing import Any

from jax import Array
from jaxtyping import Float

from nbmodule.nn.checks import check_number, flag, for_each_axis, size, sizes
from nbmodule.nn.functional import pooling
from nbmodule.nn.functional.resize import check_resize, interpolate
from nbmodule.nn.functional.windows import Sizes
from nbmodule.nn.layer import ArrayLike, FunctionLayer, data_format_of


class _AdaptivePool(FunctionLayer):
    """Means over parts of an image of $axes, so that each has a given size.

    Args:
        output_size: A number, or one for each axis; None keeps the size of that axis.
        data_format: $formats; channels are last by default.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.resizing import $name
        >>> $name(4)(jnp.ones((2, *7, 3))).shape
        (2, *4, 3)

    Source: He, Zhang, Ren and Sun (2014), arXiv:1406.4729.
    """

    _options = ("data_format",)

    _shown, _brief = "output_size=", "→ {output_size}"

    def __init__(self, output_size: object, *, data_format: str | None = None) -> None:
        name = type(self).__name__
        self.output_size = tuple(
            None if part is None else size(name, "output_size", part)
            for part in for_each_axis(name, "output_size", output_size, self._axes)
        )
        self.data_format = data_format_of(name, self._axes, data_format)
        super().__init__()

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        return self._call_function(x, self.output_size)


class AdaptiveAvgPool1d(_AdaptivePool):
    _axes, _function = 1, staticmethod(pooling.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptivePool):
    _axes, _function = 2, staticmethod(pooling.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptivePool):
    _axes, _function = 3, staticmethod(pooling.adaptive_avg_pool3d)


class Upsample(FunctionLayer):
    """Resizes images, to a size or by a factor; `nb.interpolate` gives the rules.

    Args:
        size: Size of the outputs, a number or one for each spatial axis.
        scale_factor: In place of `size`, the factor by which each axis grows, a number or one for
            each.
        mode: `nearest`; `linear`, `bilinear`, `trilinear` for one, two, three spatial axes;
            `bicubic` for two.
        align_corners: Whether the centers of the corner pixels stay where they are; not for
            `nearest`.
        data_format: `NWC`, `NHWC`, `NDHWC`, or `NCW`, `NCHW`, `NCDHW` with channels first.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.resizing import Upsample
        >>> Upsample(scale_factor=2, mode="bilinear")(jnp.ones((5, 4, 6, 3))).shape
        (5, 8, 12, 3)

    Source: Keys (1981), Cubic convolution interpolation for digital image processing.
    """

    _function = staticmethod(interpolate)
    _options = ("scale_factor", "mode", "align_corners", "data_format")

    _shown = "mode="

    def __init__(
        self,
        size: Sizes | None = None,
        *,
        scale_factor: object = None,
        mode: str = "nearest",
        align_corners: bool = False,
        data_format: str = "NHWC",
    ) -> None:
        self.align_corners = flag("Upsample", "align_corners", align_corners)
        check_resize("Upsample", size, scale_factor, mode, align_corners, data_format)
        self.mode, self.data_format = mode, data_format
        axes = len(data_format) - 2
        self.size = None if size is None else sizes("Upsample", "size", size, axes)
        self.scale_factor = None if scale_factor is None else _factors(scale_factor, axes)
        super().__init__()

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        return self._call_function(x, self.size)


def _factors(passed: Any, axes: int) -> float | tuple[float, ...]:
    """Return one factor, or one for each axis."""
    factors = for_each_axis("Upsample", "scale_factor", passed, axes)
    for factor in factors:
        check_number("Upsample", "scale_factor", factor, above=0)
    return tuple(map(float, factors)) if isinstance(passed, (tuple, list)) else float(passed)


__all__ = ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "Upsample"]
