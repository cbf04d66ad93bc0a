"""Pooling layers; see the functions of the same name for the rules."""

from __future__ import annotations

from typing import Any

from jax import Array
from jaxtyping import Real

from nbmodule.nn.checks import check_number, flag, sizes
from nbmodule.nn.functional import pooling
from nbmodule.nn.functional.windows import Padding, Sizes
from nbmodule.nn.layer import ArrayLike, FunctionLayer, data_format_of, padding_of


class _Pool(FunctionLayer):
    _options = ("stride", "padding", "ceil_mode", "data_format")
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
        name = type(self).__name__
        self.kernel_size = sizes(name, "kernel_size", kernel_size, self._axes)
        self.stride = (
            self.kernel_size if stride is None else sizes(name, "stride", stride, self._axes)
        )
        self.padding = padding_of(name, padding, self._axes)
        self.ceil_mode = flag(name, "ceil_mode", ceil_mode)
        self.data_format = data_format_of(name, self._axes, data_format)
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

    _options = (*_Pool._options, "dilation")

    def __init__(self, kernel_size: Sizes, *, dilation: Sizes = 1, **options: Any) -> None:
        self.dilation = sizes(type(self).__name__, "dilation", dilation, self._axes)
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

    _options = (*_Pool._options, "count_include_pad", "divisor_override")

    def __init__(
        self,
        kernel_size: Sizes,
        *,
        count_include_pad: bool = True,
        divisor_override: float | None = None,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        self.count_include_pad = flag(name, "count_include_pad", count_include_pad)
        self.divisor_override = divisor_override
        if divisor_override is not None:
            self.divisor_override = check_number(
                name, "divisor_override", divisor_override, above=0
            )
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
