"""Layers that pool, or bring images to another size; see the functions of the same name."""

from __future__ import annotations

from typing import Any

from jax import Array
from jaxtyping import Float, Real

from nbmodule.base.kinds import as_flag
from nbmodule.nn.checks import check_number, for_each_axis, size, sizes
from nbmodule.nn.functional import pooling
from nbmodule.nn.functional.resize import check_resize, interpolate
from nbmodule.nn.functional.windows import Padding, Sizes
from nbmodule.nn.layer import ArrayLike, Layer, data_format_of, padding_of


class _Pool(Layer):
    _shown, _brief = "kernel_size= stride=", "{kernel_size}"

    def __init__(
        self,
        kernel_size: Sizes,
        *,
        stride: Sizes | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        data_format: str | None = None,
    ) -> None:
        self.kernel_size = sizes("kernel_size", kernel_size, self._axes)
        self.stride = self.kernel_size if stride is None else sizes("stride", stride, self._axes)
        self.padding = padding_of(padding, self._axes)
        self.ceil_mode = as_flag("ceil_mode", ceil_mode)
        self.data_format = data_format_of(self._axes, data_format)
        super().__init__()

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

    def __init__(self, kernel_size: Sizes, *, dilation: Sizes = 1, **options: Any) -> None:
        self.dilation = sizes("dilation", dilation, self._axes)
        super().__init__(kernel_size, **options)


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

    def __init__(
        self,
        kernel_size: Sizes,
        *,
        count_include_pad: bool = True,
        divisor_override: float | None = None,
        **options: Any,
    ) -> None:
        self.count_include_pad = as_flag("count_include_pad", count_include_pad)
        self.divisor_override = divisor_override
        if divisor_override is not None:
            check_number("divisor_override", divisor_override, above=0)
        super().__init__(kernel_size, **options)


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


class _AdaptivePool(Layer):
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

    def __init__(self, output_size: object, *, data_format: str | None = None) -> None:
        self.output_size = tuple(
            None if part is None else size("output_size", part)
            for part in for_each_axis("output_size", output_size, self._axes)
        )
        self.data_format = data_format_of(self._axes, data_format)
        super().__init__()

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        return self._call_function(x, self.output_size)


class AdaptiveAvgPool1d(_AdaptivePool):
    _axes, _function = 1, staticmethod(pooling.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptivePool):
    _axes, _function = 2, staticmethod(pooling.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptivePool):
    _axes, _function = 3, staticmethod(pooling.adaptive_avg_pool3d)


class Upsample(Layer):
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

    def __init__(
        self,
        size: Sizes | None = None,
        *,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool = False,
        data_format: str = "NHWC",
    ) -> None:
        self.align_corners = as_flag("align_corners", align_corners)
        check_resize(size, scale_factor, mode, align_corners, data_format)
        self.mode, self.data_format = mode, data_format
        axes = len(data_format) - 2
        self.size = None if size is None else sizes("size", size, axes)
        self.scale_factor = scale_factor
        if scale_factor is not None:
            for factor in for_each_axis("scale_factor", scale_factor, axes):
                check_number("scale_factor", factor, above=0)
        super().__init__()

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        return self._call_function(x, self.size)
