"""Layers that pool, or bring images to another size; see the functions of the same name."""

from __future__ import annotations

from typing import Any

from jax import Array
from jaxtyping import Float, Real

from nbmodule.nn.checks import for_each_axis, size, sizes
from nbmodule.nn.functional import pooling
from nbmodule.nn.functional.resize import check_resize, interpolate
from nbmodule.nn.functional.windows import Sizes
from nbmodule.nn.layer import ArrayLike, FunctionLayer


class _Pool(FunctionLayer):
    _shown, _brief = "kernel_size= stride=", "{kernel_size}"

    def __init__(self, kernel_size: Sizes, **options: Any) -> None:
        self.kernel_size = sizes("kernel_size", kernel_size, self._axes)
        self._store(**options)
        self.stride = self.kernel_size if self.stride is None else self.stride

    def forward(self, x: Real[ArrayLike, "..."]) -> Real[Array, "..."]:
        return self._call_function(x, self.kernel_size)


class _MaxPool(_Pool):
    """The largest value of each window, over $axes.

    Args:
        kernel_size: Size of the windows: a number, or one for each axis.
        stride: Steps of the windows; by default the kernel's size, so that windows do not overlap.
        padding: Added at each side: a number, one for each axis, pairs, 'SAME' or 'VALID'.
        dilation: Steps between the values of a window.
        ceil_mode: Whether windows that hang over the end count.
        data_format: $formats; channels are last by default.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.$name(2)(jnp.ones((2, *8, 3))).shape
        (2, *4, 3)
    """


class _AvgPool(_Pool):
    """The mean of each window, over $axes.

    Args:
        kernel_size: Size of the windows: a number, or one for each axis.
        stride: Steps of the windows; by default the kernel's size, so that windows do not overlap.
        padding: Added at each side: a number, one for each axis, pairs, 'SAME' or 'VALID'.
        count_include_pad: Whether padding counts in the mean.
        divisor_override: A divisor instead of the window's size.
        ceil_mode: Whether windows that hang over the end count.
        data_format: $formats; channels are last by default.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.$name(2)(jnp.ones((2, *8, 3))).shape
        (2, *4, 3)
    """


class MaxPool1d(_MaxPool):
    _axes, _function = 1, staticmethod(pooling.max_pool1d)


class MaxPool2d(_MaxPool):
    _axes, _function = 2, staticmethod(pooling.max_pool2d)


class MaxPool3d(_MaxPool):
    _axes, _function = 3, staticmethod(pooling.max_pool3d)


class AvgPool1d(_AvgPool):
    _axes, _function = 1, staticmethod(pooling.avg_pool1d)


class AvgPool2d(_AvgPool):
    _axes, _function = 2, staticmethod(pooling.avg_pool2d)


class AvgPool3d(_AvgPool):
    _axes, _function = 3, staticmethod(pooling.avg_pool3d)


class _AdaptivePool(FunctionLayer):
    """Means over parts of an image of $axes, so that each has a given size.

    Args:
        output_size: A number, or one for each axis; None keeps the size of that axis.
        data_format: $formats; channels are last by default.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.pooling import $name
        >>> $name(4)(jnp.ones((2, *7, 3))).shape
        (2, *4, 3)

    Source: He, Zhang, Ren and Sun (2014), arXiv:1406.4729.
    """

    _shown, _brief = "output_size=", "→ {output_size}"

    def __init__(self, output_size: object, **options: Any) -> None:
        self.output_size = tuple(
            None if part is None else size("output_size", part)
            for part in for_each_axis("output_size", output_size, self._axes)
        )
        self._store(**options)

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
        >>> from nbmodule.nn.pooling import Upsample
        >>> Upsample(scale_factor=2, mode="bilinear")(jnp.ones((5, 4, 6, 3))).shape
        (5, 8, 12, 3)

    Source: Keys (1981), Cubic convolution interpolation for digital image processing.
    """

    _function = staticmethod(interpolate)

    _shown = "mode="

    def __init__(self, size: Sizes | None = None, **options: Any) -> None:
        self._store(**options)
        self.size = check_resize(size, **self._kept())

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        return self._call_function(x, self.size)
