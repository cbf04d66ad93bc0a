"""What all transforms share: run a function in a frame, and bring outputs, writes and records out
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from nbmodule.base.foreign import as_read, as_read_or_left, is_native
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.frame import Effects, Frame, framed, now
from nbmodule.core.variables.variable import Variable


def is_stateful(thing: object) -> bool:
    """Whether `thing` has variables that a transform must carry: a module, an optimizer, a random
    stream, a box.
    """
    kind = type(
        thing
    )  # and not `isinstance`, which asks a proxy for the class that it pretends to be
    return issubclass(kind, Variable) or hasattr(kind, "_is_stateful") or is_module(thing)


def boxes_of(thing: Any) -> tuple[Variable, ...]:
    """Return the variables of a stateful object, each once."""
    return (thing,) if isinstance(thing, Variable) else plan_of(thing).boxes


def sharing_of(things: Iterable[Any]) -> tuple[int, ...]:
    """Return which variables of these objects are the same: for each the number of its first."""
    index: dict[Variable, int] = {}
    return tuple(index.setdefault(box, len(index)) for thing in things for box in boxes_of(thing))


class Hole:
    """Stands in arguments for the stateful object of that number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hole) and self.number == other.number

    def __hash__(self) -> int:
        return self.number


jax.tree_util.register_static(Hole)


def split(arguments: object) -> tuple[Any, list[Any]]:
    """Return arguments with holes, and the stateful objects that were there, each once.

    Arrays of NumPy are converted where JAX does not take them as they are.
    """
    leaves, tree = jax.tree.flatten(arguments, is_leaf=is_stateful)
    numbers: dict[int, int] = {}
    things: list[Any] = []
    is_same = True
    for i, leaf in enumerate(leaves):
        if is_stateful(leaf):
            if id(leaf) not in numbers:
                numbers[id(leaf)] = len(things)
                things.append(leaf)
            leaves[i] = Hole(numbers[id(leaf)])
        elif isinstance(leaf, np.ndarray) and not is_native(leaf):
            leaves[i], is_same = as_read(leaf), False
    if not things and is_same:
        return arguments, []
    return jax.tree.unflatten(tree, leaves), things


def fill(arguments: object, things: list[Any]) -> Any:
    """Put the stateful objects back into their holes."""
    if not things:
        return arguments
    leaves, tree = jax.tree.flatten(arguments, is_leaf=lambda x: type(x) is Hole)
    return jax.tree.unflatten(
        tree, [things[leaf.number] if type(leaf) is Hole else leaf for leaf in leaves]
    )


class Packed:
    """Outputs that hold boxes or modules, as leaves: a box cannot be read any more once its frame
    is closed.
    """

    __slots__ = ("leaves", "tree")

    def __init__(self, leaves: list[Any], tree: object) -> None:
        self.leaves, self.tree = leaves, tree


jax.tree_util.register_pytree_node(
    Packed, lambda p: (p.leaves, p.tree), lambda tree, leaves: Packed(list(leaves), tree)
)


def packed(outputs: object) -> Any:
    """Outputs as plain arrays; to be called inside the frame."""
    leaves = jax.tree.leaves(outputs, is_leaf=is_stateful)
    if any(map(is_stateful, leaves)):
        return Packed(*jax.tree.flatten(outputs))
    if any(isinstance(leaf, np.ndarray) and not is_native(leaf) for leaf in leaves):
        return jax.tree.map(as_read_or_left, outputs)
    return outputs


def unpacked(outputs: object) -> Any:
    """The user's outputs again; modules and boxes among them are copies."""
    return (
        jax.tree.unflatten(outputs.tree, outputs.leaves) if isinstance(outputs, Packed) else outputs
    )


class Replaced(BaseException):
    """A step of a loop returned another object in place of a carried one."""


class Carry:
    """The carry of a loop, as arrays.

    Objects that each step returns are carried themselves: what a step writes into them is written
    for good. Where a step returns another object, both are carried as copies.
    """

    def __init__(self, init: object) -> None:
        self._init = init
        self.arrays, self.objects = split(init)

    def settled(self, trial: Callable[[], Any]) -> Any:
        """Return the result of `trial()`, which traces a step; again if it replaces an object."""
        try:
            return trial()
        except Replaced:
            self.arrays, self.objects = packed(self._init), []
            return trial()

    def opened(self, arrays: object) -> Any:
        """Return the user's carry."""
        return fill(unpacked(arrays), self.objects)

    def closed(self, carry: object) -> Any:
        """Return the arrays of the carry that a step returns."""
        if not self.objects:
            return packed(carry)
        arrays, objects = split(carry)
        if list(map(id, objects)) != list(map(id, self.objects)):
            raise Replaced
        return arrays


def carried(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    values: Iterable[tuple[Variable, Any]] = (),
) -> tuple[Any, Effects]:
    """Run `fn` in a frame of its own; gives its outputs as plain arrays, and its effects."""

    def body(frame: Frame) -> tuple[Any, Effects]:
        outputs = packed(fn(*args, **kwargs))
        return outputs, frame.effects()

    return framed(body, values)


def shapes_of(fn: Callable[..., Any], *args: object) -> Any:
    """What `fn` would return, as shapes.

    The calls of this trial are none of the program: the next one is not numbered after them.
    """
    known = dict(now.counts[-1]) if now.counts else None
    try:
        return jax.eval_shape(fn, *args)
    finally:
        if known is not None:
            now.counts[-1] = known
