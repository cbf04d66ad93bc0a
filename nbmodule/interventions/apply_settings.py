"""Apply settings to returns while a model runs: one intervention for each setting at a place.

The numbers of an intervention are buffers (`Dials`), kept on the module. They are inputs of
compiled functions, so the same kind of setting with another number or head reuses the program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.kinds import Args, Kwargs, Shaped
from nbmodule.core.recording.tracker import describe
from nbmodule.core.variables.frame import write_all
from nbmodule.core.variables.variable import Buffer
from nbmodule.errors import ArgumentError, ShapeError
from nbmodule.interventions.targets import PartAxis, Target, patch_point
from nbmodule.interventions.values import Setting


def numbers_of(setting: Setting, on: bool = True) -> list[Any]:
    """Return the numbers of a setting, in the order of `Dials.variables`."""
    indices = [np.asarray(at, np.int32) for _, at in setting.parts]
    number, seed = np.float32(setting.number), np.uint32(setting.seed)
    return [np.asarray(on), number, seed, *indices, *setting.values]


class Dials:
    """The numbers of one setting, as variables.

    Attributes:
        variables: All of them, in one order.
        on: Whether the setting applies.
        number: Its factor or deviation.
        seed: Of its noise.
        at: For each part the indices.
        values: Replacements of the return, one variable for each array.

    Args:
        setting: The setting, of which the number of parts counts.
        numbers: As `numbers_of` gives them.
    """

    def __init__(self, setting: Setting, numbers: list[Any]) -> None:
        self.variables = [Buffer(number) for number in numbers]
        self.on, self.number, self.seed, *others = self.variables
        count = len(setting.parts)
        self.at, self.values = others[:count], others[count:]
        self.is_taken = False
        self.met: set[tuple[int, ...]] = set()  # shapes of the arrays that they changed


def dials_for(setting: Setting, target: Target) -> Dials:
    """Return dials of a module with the numbers of a setting: unused ones, else new ones."""
    numbers = numbers_of(setting)
    shapes = [(tuple(x.shape), jnp.dtype(x.dtype)) for x in numbers]
    parts = [name for name, _ in setting.parts]
    key = (target.tap, target.receiver is None, setting.kind, *parts, *shapes)
    existing = target.module._nbm.dials.setdefault(key, [])
    free = next((dials for dials in existing if not dials.is_taken), None)
    if free is None:
        free = Dials(setting, numbers)
        existing.append(free)
    else:
        pairs = zip(free.variables, numbers, strict=True)
        write_all(free.variables, [variable.admitted(number) for variable, number in pairs])
    return free


class Intervention:
    """One setting at one place.

    Args:
        target: Where it applies.
        setting: The change.
        dials: Its numbers; by default new ones.
    """

    def __init__(self, target: Target, setting: Setting, dials: Dials | None = None) -> None:
        dials = Dials(setting, numbers_of(setting)) if dials is None else dials
        self.target, self.kind, self.dials = target, setting.kind, dials
        self.place, self.at_input, self.parts = patch_point(target, setting)
        self.largest = tuple(at[-1] for _, at in setting.parts)
        self.sent: Any = None
        """Of an edge: the return of the sender in this call, and the changed one; else None."""
        if dials.met:  # a compiled program does not check again
            check_parts(self.target.name, self.parts, self.largest, max(dials.met))

    @property
    def key(self) -> tuple[Any, ...]:
        """Its identity in the signature of compiled functions."""
        return self.kind, self.place, self.target.receiver, self.at_input, self.parts, self.dials

    def changed(self, old: object, given: object = None) -> Any:
        """Return the changed PyTree `old`; parts are those of its first floating array."""
        leaves, tree = jax.tree.flatten(old)
        floating = [i for i, leaf in enumerate(leaves) if is_floating(leaf)]
        if not floating:
            raise ArgumentError(
                f'"{self.target.name}" returns {describe(old)}: there is no floating-point array '
                "to change."
            )
        chosen = floating[:1] if self.parts or self.kind == "add" else floating
        for number, i in enumerate(chosen):
            new = self._new(leaves[i], number, given)
            leaves[i] = jnp.where(self._mask(leaves[i]), new.astype(leaves[i].dtype), leaves[i])
        return jax.tree.unflatten(tree, leaves)

    def _new(self, old: Any, number: int, supplied: object) -> Any:
        dials = self.dials
        if self.kind == "zero":
            return jnp.zeros_like(old)
        if self.kind == "scale":
            return old * dials.number.value
        if self.kind == "noise":
            key = jax.random.key(dials.seed.value)
            return old + dials.number.value * jax.random.normal(key, old.shape, jnp.float32)
        if self.kind == "skip":
            first = next(iter(jax.tree.leaves(supplied)), jnp.zeros(0))
            return self._fitting(first, old, "is given")
        if dials.values:
            value = dials.values[number].value
            return old + value if self.kind == "add" else self._fitting(value, old, "is to return")
        return jnp.broadcast_to(mean_of(old, self.parts), old.shape)

    def _fitting(self, value: Any, old: Any, verb: str) -> Any:
        try:
            if value.ndim <= old.ndim:
                return jnp.broadcast_to(value, old.shape)
        except ValueError:
            pass
        raise ShapeError(
            f'"{self.target.name}" returns {describe(old)}, and {verb} {describe(value)}: the '
            "shapes do not match."
        )

    def received(self, supplied: Any) -> Any:
        """Return the new input of the receiver: the changed return, or the sum that contains it
        plus the change.
        """
        old, new = self.sent
        if supplied is old:
            return new
        if jnp.shape(supplied) != jnp.shape(old):
            raise ShapeError(
                f'"{self.target.name}": the sender returns {describe(old)}, the receiver is given '
                f"{describe(supplied)}: an edge needs equal shapes."
            )
        return supplied + (new - old)

    def _mask(self, old: Any) -> Any:
        check_parts(self.target.name, self.parts, self.largest, old.shape)
        self.dials.met.add(tuple(old.shape))
        mask = self.dials.on.value
        for part, variable in zip(self.parts, self.dials.at):
            axis = part.axis % old.ndim
            index = jnp.arange(old.shape[axis], dtype=jnp.int32) // part.width
            chosen = (index[:, None] == variable.value).any(1)
            mask = mask & chosen.reshape([-1 if i == axis else 1 for i in range(old.ndim)])
        return mask


def check_parts(
    name: str, parts: Iterable[PartAxis], largest: Iterable[int], shape: tuple[int, ...]
) -> None:
    """Raise if an array of this shape lacks one of the parts."""
    for part, index in zip(parts, largest):
        if -part.axis > len(shape):
            raise ArgumentError(
                f'"{name}" returns {list(shape)}, which has no axis for {part.name}s.'
            )
        count = shape[part.axis] // part.width
        if index >= count:
            raise ArgumentError(
                f'"{name}" has {count} {part.name}s, counted from 0: there is no '
                f"{part.name} {index}."
            )


class Interventions:
    """The interventions at one place: what a tracker calls before and after a module."""

    def __init__(self) -> None:
        self.own: list[Intervention] = []
        self.received: list[Intervention] = []
        """Those on edges that end here."""

    @property
    def variables(self) -> list[Buffer]:
        """All variables of these interventions, in one order."""
        return [variable for each in self.own for variable in each.dials.variables]

    def before(self, args: Args, kwargs: Kwargs) -> tuple[tuple[Any, ...], dict[str, Any]]:
        for each in self.own:
            if each.at_input:
                args = (each.changed(args[0]), *args[1:])
        for edge in self.received:
            if edge.sent is not None and args:
                args = (edge.received(args[0]), *args[1:])
        return args, kwargs

    def after(self, args: Args, outputs: object) -> Any:
        returned = outputs
        for each in self.own:
            if each.target.receiver is not None:
                each.sent = returned, each.changed(returned, args)
            elif not each.at_input:
                outputs = each.changed(outputs, args)
        return outputs


def by_place(interventions: list[Intervention]) -> dict[Any, Interventions]:
    """Return the interventions of each place, for a tracker."""
    results: dict[Any, Interventions] = defaultdict(Interventions)
    for each in interventions:
        results[each.place].own.append(each)
        if each.target.receiver is not None:
            results[each.target.receiver].received.append(each)
    return results


def is_floating(leaf: Shaped) -> bool:
    """Return True for an array of floating or complex numbers."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


def mean_of(x: Any, parts: Iterable[PartAxis]) -> Any:
    """Return the mean of each unit, or channel where one is named, to be broadcast."""
    channel = next((part.axis for part in parts if part.name == "channel"), -1)
    axes = tuple(axis for axis in range(x.ndim) if axis != channel % x.ndim)
    return x.mean(axes, keepdims=channel != -1)
