"""Batch normalization: the layers whose buffers move with each batch in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jax.typing import DTypeLike
from jaxtyping import Float

from nbmodule.base.kinds import DeviceLike, KeyLike
from nbmodule.core.structure.state import StateKey, update_state
from nbmodule.core.variables.frame import write_all
from nbmodule.errors import ArgumentTypeError
from nbmodule.nn.affine import Affine, channel_axis, check_has_axes, number, value_of
from nbmodule.nn.functional import normalization
from nbmodule.nn.initializers import InitializerLike, Ones, Zeros
from nbmodule.nn.kernel import plain
from nbmodule.nn.layer import DATA_FORMATS, ArrayLike, buffer, data_format_of, flag, size, unusual


class _BatchNorm(Affine):
    _axes: ClassVar[int]
    _state_names = ("running_mean", "running_var")
    running_mean: Any  # a Buffer, or its StateKey once exported
    running_var: Any

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        data_format: str | None = None,
        axis_name: Any = None,
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        key: KeyLike | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        name = type(self).__name__
        self.num_features = n = size(name, "num_features", num_features)
        self.eps, self.momentum = (
            number(name, "eps", eps),
            number(name, "momentum", momentum, most=1),
        )
        self.affine, self.axis_name = flag(name, "affine", affine), axis_name
        self.track_running_stats = flag(name, "track_running_stats", track_running_stats)
        self.data_format = data_format_of(name, self._axes, data_format)
        self._make(
            (n,), self.affine, True, weight_initializer, bias_initializer, key, device, dtype
        )
        if self.track_running_stats:
            self.running_mean = buffer(Zeros().create_variables((n,), device, dtype=dtype))
            self.running_var = buffer(Ones().create_variables((n,), device, dtype=dtype))
        super().__init__(device=device, dtype=dtype, v=v)

    def forward(self, x: Float[ArrayLike, "..."], state: Any = None) -> Any:
        x = plain(x)
        check_has_axes(type(self).__name__, x)
        vectors = self._axes == 1 and len(x.shape) <= 2  # (N, C) in both layouts
        axis = channel_axis(
            type(self).__name__, x, "NC" if vectors else self.data_format, self.num_features
        )
        weight, bias = value_of(self.weight), value_of(self.bias)
        if not self.track_running_stats:
            y, _, _ = normalization.batch_norm_train(
                x,
                None,
                None,
                weight,
                bias,
                momentum=self.momentum,
                eps=self.eps,
                axis=axis,
                axis_name=self.axis_name,
            )
            return y if state is None else (y, state)
        exported = isinstance(self.running_mean, StateKey)
        if exported != (state is not None):
            cure = (
                "its state was exported; call it as y, state = layer(x, state)"
                if exported
                else "it was given a state, and keeps its own; call nb.export_state first"
            )
            raise ArgumentTypeError(f"{type(self).__name__}: {cure}.")
        mean, var = (
            state[key] if exported else key.value for key in (self.running_mean, self.running_var)
        )
        if not self.training:
            y = normalization.batch_norm(x, mean, var, weight, bias, eps=self.eps, axis=axis)
            return (y, state) if exported else y
        y, mean, var = normalization.batch_norm_train(
            x,
            mean,
            var,
            weight,
            bias,
            momentum=self.momentum,
            eps=self.eps,
            axis=axis,
            axis_name=self.axis_name,
        )
        if exported:
            return y, update_state(state, {self.running_mean: mean, self.running_var: var})
        boxes = self.running_mean, self.running_var
        write_all(boxes, [box.admitted(value) for box, value in zip(boxes, (mean, var))])
        return y

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
            + unusual(self, data_format=DATA_FORMATS[self._axes][0], axis_name=None)
        )

    def brief(self) -> str:
        """For displays: the number of features."""
        return str(self.num_features)


class BatchNorm1d(_BatchNorm):
    _axes = 1


class BatchNorm2d(_BatchNorm):
    _axes = 2


class BatchNorm3d(_BatchNorm):
    _axes = 3


_DOC = """Normalizes each channel by its mean and variance over the batch, and remembers both for evaluation.

    In training the statistics of the batch normalize (the biased variance) and move the buffers `running_mean` and
    `running_var` on: `new = (1 - momentum) * old + momentum * batch`, with the unbiased variance. After `eval()` the
    buffers normalize. Once exported (`nb.export_state`) it is called as `y, state = layer(x, state)`.

    Args:
        num_features: Number of channels.
        eps: Added to the variance, in squared units of the input.
        momentum: Share of a batch in what is remembered.
        affine: Whether `weight` (gain) and `bias` (offset) are trained.
        track_running_stats: Whether statistics are remembered; without, the batch's own are always used.
        data_format: {formats}; channels are last by default.
        axis_name: A mapped axis over which statistics are shared too.
        weight_initializer: Of `weight`; ones by default.
        bias_initializer: Of `bias`; zeros by default.
        key: Key for the initial values.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Parameters to use instead of fresh ones, `{{'w': ..., 'b': ...}}`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> list(nb.{name}(3).state_dict())
        ['bias', 'running_mean', 'running_var', 'weight']

    Source: Ioffe and Szegedy (2015), arXiv:1502.03167.
    """
for _kind in (BatchNorm1d, BatchNorm2d, BatchNorm3d):
    _kind.__doc__ = _DOC.format(
        formats=" or ".join(map(repr, DATA_FORMATS[_kind._axes])), name=_kind.__name__
    )
