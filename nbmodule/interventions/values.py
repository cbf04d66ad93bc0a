"""Values for the returns of submodules: `nb.zero(head=2)`, `nb.scale_by(0.5)`,
`nb.from_example(x)`.

A mapping from targets to settings says where they apply (`nb.patch`, `nb.what_if`, `nb.sweep`). The
kind and the names of parts are static; the number, the indices and the values are inputs of the
compiled program, so that another number compiles nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.kinds import Args, is_whole
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError

PARTS = ("head", "channel", "unit", "token")
"""The parts of a return that a setting may name, in the order in which they are written."""
Part = int | Iterable[int] | None
"""Indices of a part: one, several, or None for all."""


class Setting(NamedTuple):
    """A change of the return of a submodule; made by `nb.zero`, `nb.scale_by` and others."""

    kind: str
    """`zero`, `mean`, `example`, `scale`, `noise`, `freeze` or `skip`."""
    parts: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Which heads, channels, units, tokens; the whole return if none is named."""
    number: float = 1.0
    """The factor of `scale`, the standard deviation of `noise`."""
    seed: int = 0
    example: Args | None = None
    """Arguments of the model that values or means are taken from."""
    example_name: str = "x_other"
    """Name of the example in code."""
    values: tuple[Any, ...] = ()
    """Arrays that replace the return, from a run of the model on the example."""

    @property
    def words(self) -> str:
        """Its effect in words: `set to zero`, `scale 0.5`."""
        return KINDS[self.kind][1].format(self.number)

    @property
    def where(self) -> str:
        """The parts in words: `head 3`, `tokens 0, 4`; empty for the whole return."""
        return ", ".join(
            f"{name}{'s' if len(at) > 1 else ''} {', '.join(map(str, at))}"
            for name, at in self.parts
        )

    def __repr__(self) -> str:
        """The call that makes it; an example is written `x_other` if its name is not known."""
        arguments = []
        if self.kind in ("scale", "noise"):
            arguments.append(f"{self.number:g}")
        if self.example is not None:
            arguments.append(self.example_name)
        if self.kind == "noise" and self.seed:
            arguments.append(f"seed={self.seed}")
        arguments += [f"{name}={at[0] if len(at) == 1 else list(at)}" for name, at in self.parts]
        return f"nb.{KINDS[self.kind][0]}({', '.join(arguments)})"


KINDS = {
    "zero": ("zero", "set to zero"),
    "mean": ("to_mean", "set to its mean"),
    "example": ("from_example", "set to its value for another example"),
    "scale": ("scale_by", "scale {:g}"),
    "noise": ("add_noise", "add noise {:g}"),
    "freeze": ("freeze", "frozen"),
    "skip": ("skip", "skipped"),
}
"""For each kind the function that makes it, and its effect in words."""


def zero(
    *, head: Part = None, channel: Part = None, unit: Part = None, token: Part = None
) -> Setting:
    """Set the return of a submodule to zero (zero ablation).

    Args:
        head: Heads of an attention layer: their part of the input of its output projection. A
            number, or several.
        channel: Channels of an image.
        unit: Indices of the last axis.
        token: Positions of a sequence, the axis before the last.

    Example:
        >>> model = nb.Sequential(nb.Linear(2, 2), nb.ReLU())
        >>> with nb.patch(model, {"0": nb.zero(unit=1)}):
        ...     y = model(jnp.ones((1, 2)))
        >>> float(y[0, 1])
        0.0
    """
    return _setting("zero", (head, channel, unit, token))


def to_mean(
    *example: object, head: Part = None, channel: Part = None, unit: Part = None, token: Part = None
) -> Setting:
    """Set the return of a submodule to its mean over rows and positions, for each unit or channel
    (mean ablation).

    Args:
        *example: Arguments of the model on which the mean is taken; by default those of the run
            itself.
        head: As in `nb.zero`.
        channel: As in `nb.zero`.
        unit: As in `nb.zero`.
        token: As in `nb.zero`.

    Example:
        >>> nb.to_mean(head=[0, 2])
        nb.to_mean(head=[0, 2])
    """
    return _setting("mean", (head, channel, unit, token), example=example or None)


def from_example(
    *example: object, head: Part = None, channel: Part = None, unit: Part = None, token: Part = None
) -> Setting:
    """Set the return of a submodule to its return for another example (activation patching).

    Args:
        *example: Arguments of the model; of the same shapes as those of the run, or with one row
            for all.
        head: As in `nb.zero`.
        channel: As in `nb.zero`.
        unit: As in `nb.zero`.
        token: As in `nb.zero`.

    Raises:
        ArgumentError: no example was given.

    Example:
        >>> model = nb.Sequential(nb.Linear(2, 2), nb.ReLU())
        >>> with nb.patch(model, {"0": nb.from_example(jnp.ones((1, 2)))}):
        ...     y = model(jnp.zeros((1, 2)))
        >>> bool((y == model(jnp.ones((1, 2)))).all())
        True
    """
    if not example:
        raise ArgumentError(
            "nb.from_example takes another input of the model, as in nb.from_example(x_other)."
        )
    return _setting("example", (head, channel, unit, token), example=example)


def scale_by(
    factor: float, *, head: Part = None, channel: Part = None, unit: Part = None, token: Part = None
) -> Setting:
    """Multiply the return of a submodule.

    Args:
        factor: 1 changes nothing; negative numbers change the sign.
        head: As in `nb.zero`.
        channel: As in `nb.zero`.
        unit: As in `nb.zero`.
        token: As in `nb.zero`.

    Example:
        >>> nb.scale_by(0.5, unit=3)
        nb.scale_by(0.5, unit=3)
    """
    number = _number("scale_by", "factor", factor)
    return _setting("scale", (head, channel, unit, token), number=number)


def add_noise(
    deviation: float,
    *,
    seed: int = 0,
    head: Part = None,
    channel: Part = None,
    unit: Part = None,
    token: Part = None,
) -> Setting:
    """Add Gaussian noise to the return of a submodule; the same noise at each run.

    Args:
        deviation: Standard deviation, in units of the return.
        seed: Another seed gives other noise.
        head: As in `nb.zero`.
        channel: As in `nb.zero`.
        unit: As in `nb.zero`.
        token: As in `nb.zero`.

    Example:
        >>> nb.add_noise(0.1, token=[0, 1])
        nb.add_noise(0.1, token=[0, 1])
    """
    number = _number("add_noise", "deviation", deviation)
    if number < 0:
        raise ArgumentError(f"nb.add_noise: deviation must be at least 0, got {deviation!r}.")
    if not is_whole(seed) or not 0 <= seed < 2**32:
        raise ArgumentError(
            f"nb.add_noise: seed must be an integer from 0 to 2**32 - 1, got {seed!r}."
        )
    return _setting("noise", (head, channel, unit, token), number=number, seed=int(seed))


def freeze(
    *example: object, head: Part = None, channel: Part = None, unit: Part = None, token: Part = None
) -> Setting:
    """Keep the return of a submodule as it is without any setting.

    So the effect of other settings on its input ends there.

    Args:
        *example: Arguments of the model for that run; in `nb.what_if` and `nb.sweep` by
            default those of the run.
        head: As in `nb.zero`.
        channel: As in `nb.zero`.
        unit: As in `nb.zero`.
        token: As in `nb.zero`.

    Example:
        >>> model = nb.Sequential(nb.Linear(2, 2), nb.ReLU())
        >>> found = nb.what_if(model, jnp.ones((1, 2)), {"0": nb.zero(), "1": nb.freeze()})
        >>> bool((found.result.after == found.result.before).all())
        True
    """
    if example and (hasattr(type(example[0]), "_is_module") or isinstance(example[0], Variable)):
        raise ArgumentTypeError(
            f"nb.freeze is a value for nb.patch and takes example inputs, got a "
            f"{type(example[0]).__name__}. To exclude it from training, call its "
            "requires_grad_(False)."
        )
    return _setting("freeze", (head, channel, unit, token), example=example or None)


def skip() -> Setting:
    """Replace the return of a submodule by its input: of a block with a shortcut only the shortcut
    is left.

    For a branch beside a shortcut, such as `x + attention(x)`, that is `nb.zero()`.

    Example:
        >>> model = nb.Sequential(nb.Linear(2, 2), nb.ReLU())
        >>> with nb.patch(model, {"0": nb.skip()}):
        ...     y = model(jnp.ones((1, 2)))
        >>> y
        Array([[1., 1.]], dtype=float32)
    """
    return Setting("skip")


def _setting(kind: str, indices: tuple[Part, ...], **fields: Any) -> Setting:
    """Return a setting with the indices of the parts that are named."""
    parts = tuple(
        (name, _indices(f"nb.{KINDS[kind][0]}: {name}", index))
        for name, index in zip(PARTS, indices)
        if index is not None
    )
    return Setting(kind, parts, **fields)


def _number(where: str, name: str, value: Any) -> float:
    """Return a number of Python, NumPy or JAX as a float."""
    try:
        if isinstance(value, (bool, str)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, jax.errors.ConcretizationTypeError):
        raise ArgumentTypeError(
            f"nb.{where}: {name} must be a number, got {type(value).__name__}."
        ) from None


def _indices(what: str, given: Any) -> tuple[int, ...]:
    try:
        if isinstance(given, bool):
            raise TypeError
        result = tuple(sorted(set(map(operator.index, np.ravel(given)))))
    except TypeError:
        raise ArgumentTypeError(f"{what} must be a number or several, got {given!r}.") from None
    if not result or result[0] < 0:
        raise ArgumentError(f"{what} must be at least 0, got {given!r}.")
    return result
