"""What normalization layers share: a gain and an offset for each feature, and checks of their
numbers.
"""

from __future__ import annotations

from typing import Any

from jax import Array
from jax.typing import DTypeLike

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import DeviceLike, KeyLike
from nbmodule.base.whole_numbers import is_real
from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeError
from nbmodule.nn.functional.checks import check_arrays, check_choice
from nbmodule.nn.initializers import Ones, Zeros
from nbmodule.nn.layer import DATA_FORMATS, Layer, initializer, keys


class Affine(Layer):
    """A layer with a gain and an offset for each feature; either may be None."""

    def _make(
        self,
        shape: tuple[int, ...],
        affine: bool,
        with_bias: bool,
        weights: object,
        biases: object,
        key: KeyLike | None,
        device: DeviceLike | None,
        dtype: DTypeLike | None,
    ) -> None:
        name, (first, second) = type(self).__name__, keys(key, 2)
        self.weight = self.bias = None
        if affine:
            made = initializer(name, "weight_initializer", weights, Ones())
            self.weight = made.create_variables(
                shape, device, shape[-1], shape[-1], dtype, key=first
            )
        if affine and with_bias:
            made = initializer(name, "bias_initializer", biases, Zeros())
            self.bias = made.create_variables(
                shape, device, shape[-1], shape[-1], dtype, key=second
            )


def value_of(box: Any) -> Any:
    """The array of a box, None for None."""
    return None if box is None else box.value


def check_has_axes(where: str, x: Array) -> None:
    """Refuse text, lists and dicts, and numbers, which have no axes."""
    check_arrays(where, x=x)
    if not hasattr(x, "shape"):
        raise ArgumentTypeError(f"{where}: x must be an array, got {type(x).__name__}.")


def channel_axis(where: str, x: Array, data_format: str | None, channels: int) -> int:
    """The axis of the channels, of which there must be as many as the layer was made for; without a
    format the last one.
    """
    check_has_axes(where, x)
    rank, letters = len(x.shape), data_format or "C"
    axis = rank - 1 if letters.endswith("C") else rank - len(letters) + 1
    if rank < len(letters) or x.shape[axis] != channels:
        names = {"N": "*batch", "C": str(channels)}
        wanted = (
            ", ".join(names.get(letter, letter) for letter in letters)
            if data_format
            else f"*batch, {channels}"
        )
        raise ShapeError(f"{where}: x must have axes ({wanted}), got {describe_shape(x)}.")
    return axis


def layout(where: str, given: str | None) -> str | None:
    """A layout of images, sequences or vectors, or None."""
    if given is not None:
        check_choice(
            where,
            "data_format",
            given,
            ("NC", *(name for names in DATA_FORMATS.values() for name in names)),
        )
    return given


def number(where: str, name: str, value: Any, *, most: float | None = None) -> float:
    """A number of at least 0, and of at most `most`."""
    if not is_real(value) or not value >= 0 or (most is not None and value > most):
        limit = "at least 0" if most is None else f"from 0 to {most:g}"
        raise ArgumentError(f"{where}: {name} must be a number {limit}, got {value!r}.")
    return float(value)
