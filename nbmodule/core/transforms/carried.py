"""Run a function in a frame, and bring its outputs, writes and records out of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax

from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.frame import Effects, Frame, during, framed, now
from nbmodule.core.variables.variable import Variable


def is_stateful(obj: object) -> bool:
    """Return True for what has variables that a transform must carry: a module, an optimizer, a
    random stream, a variable.
    """
    cls = type(obj)  # and not `isinstance`, which asks a proxy for the class that it pretends to be
    return issubclass(cls, Variable) or hasattr(cls, "_is_stateful") or is_module(obj)


def variables_of(obj: Any) -> tuple[Variable, ...]:
    """Return the variables of a stateful object, each once."""
    return (obj,) if isinstance(obj, Variable) else plan_of(obj).variables


def values_of(variables: Iterable[Variable]) -> list[Any]:
    """Return the current values of variables."""
    return [variable.value for variable in variables]


def sharing_of(objects: Iterable[Any]) -> tuple[int, ...]:
    """Return for each variable of these objects the number of the first that is the same."""
    index: dict[Variable, int] = {}
    return tuple(
        index.setdefault(variable, len(index)) for obj in objects for variable in variables_of(obj)
    )


@jax.tree_util.register_static
@dataclass(frozen=True)
class ObjectPlaceholder:
    """Stands in arguments for the stateful object of that number."""

    number: int


def extract_objects(arguments: object) -> tuple[Any, list[Any]]:
    """Return arguments with holes, and the stateful objects that were there, each once."""
    leaves, tree = jax.tree.flatten(arguments, is_leaf=is_stateful)
    objects = {id(leaf): leaf for leaf in leaves if is_stateful(leaf)}
    if not objects:
        return arguments, []
    holes = {key: ObjectPlaceholder(i) for i, key in enumerate(objects)}
    leaves = [holes.get(id(leaf), leaf) for leaf in leaves]
    return jax.tree.unflatten(tree, leaves), list(objects.values())


def insert_objects(arguments: object, objects: list[Any]) -> Any:
    """Put the stateful objects back into their holes."""
    if not objects:
        return arguments
    leaves, tree = jax.tree.flatten(arguments, is_leaf=lambda x: type(x) is ObjectPlaceholder)
    return jax.tree.unflatten(
        tree, [objects[leaf.number] if type(leaf) is ObjectPlaceholder else leaf for leaf in leaves]
    )


@functools.partial(jax.tree_util.register_dataclass, data_fields=["leaves"], meta_fields=["tree"])
@dataclass
class Packed:
    """Outputs that hold variables or modules, as leaves: a closed frame cannot be read."""

    leaves: list[Any]
    tree: Any


def packed(outputs: object) -> Any:
    """Return outputs as plain arrays; to be called inside the frame."""
    leaves = jax.tree.leaves(outputs, is_leaf=is_stateful)
    if any(map(is_stateful, leaves)):
        return Packed(*jax.tree.flatten(outputs))
    return outputs


def unpacked(outputs: object) -> Any:
    """Return the user's outputs; modules and variables among them are copies."""
    return (
        jax.tree.unflatten(outputs.tree, outputs.leaves) if isinstance(outputs, Packed) else outputs
    )


def leaves_of_prefix(prefix: Any, tree: Any) -> list[Any]:
    """Return the item of a prefix of a tree, an axis or a sharding, for each leaf of the tree."""

    def is_leaf(x: Any) -> bool:
        return x is None or isinstance(x, (jax.sharding.Sharding, jax.sharding.PartitionSpec))

    full = jax.tree.broadcast(prefix, tree.unflatten(range(tree.num_leaves)), is_leaf=is_leaf)
    return jax.tree.leaves(full, is_leaf=is_leaf)


class Replaced(BaseException):
    """A step of a loop returned another object in place of a carried one."""


class Carry:
    """The carry of a loop, as arrays.

    Objects that each step returns are carried themselves: what a step writes into them is written
    for good. Where a step returns another object, both are carried as copies.
    """

    def __init__(self, init: object) -> None:
        self._init = init
        self.arrays, self.objects = extract_objects(init)

    def settled(self, trial: Callable[[], Any]) -> Any:
        """Return the result of `trial()`, which traces a step; again if it replaces an object."""
        try:
            return trial()
        except Replaced:
            self.arrays, self.objects = packed(self._init), []
            return trial()

    def opened(self, arrays: object) -> Any:
        """Return the user's carry."""
        return insert_objects(unpacked(arrays), self.objects)

    def closed(self, carry: object) -> Any:
        """Return the arrays of the carry that a step returns."""
        if not self.objects:
            return packed(carry)
        arrays, objects = extract_objects(carry)
        if list(map(id, objects)) != list(map(id, self.objects)):
            raise Replaced
        return arrays


def carried(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    values: Iterable[tuple[Variable, Any]] = (),
) -> tuple[Any, Effects]:
    """Run `fn` in a new frame; returns its outputs as plain arrays, and its effects."""

    def body(frame: Frame) -> tuple[Any, Effects]:
        outputs = packed(fn(*args, **kwargs))
        return outputs, frame.effects()

    return framed(body, values)


def output_shapes(fn: Callable[..., Any], *args: object) -> Any:
    """Return the outputs of `fn` as shapes; the calls of this trial are not counted."""
    # Paths of calls count repeats, and a trial is no call.
    with during(counts=tuple(map(dict, now.counts))):
        return jax.eval_shape(fn, *args)
