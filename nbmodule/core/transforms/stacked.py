"""Stacks of modules: one module whose variables have one axis more, a row for each member, and what
each row writes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import KeyLike
from nbmodule.base.whole_numbers import is_whole
from nbmodule.core.numbers.random import as_key
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.transforms.carried import boxes_of
from nbmodule.core.transforms.options import check_function
from nbmodule.core.variables.frame import Home, here, now, slot_of
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError, NotBuiltError, StructureError


def stack(make: Callable[..., Any], n: int = 0, *, key: Any = None) -> Any:
    """Make `n` modules and stack their variables: one module, each of whose variables has a leading
    axis of length `n`.

    The members are those of `n` calls one after another: they take keys from the random stream in
    their turn. A stack is called by `nb.vmap` (an ensemble) or `nb.scan` (layers of one kind), and
    trained, saved and shown like any module.

    Args:
        make: Makes one module; with `key` it is called with a key of its own.
        n: How many.
        key: Seed or key that is split for the members.

    Raises:
        ArgumentError: `n` is less than one.
        NotBuiltError: a member builds at its first call; let `make` call it once.
        StructureError: the members differ in their variables.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> ensemble = nb.stack(lambda: nb.Linear(3, 2), 5)
        >>> nb.vmap(lambda m, x: m(x), in_axes=(0, None))(ensemble, jnp.ones(3)).shape
        (5, 2)
        >>> layers = nb.stack(lambda key: nb.Linear(3, 3, key=key), 8, key=0)
        >>> nb.scan(lambda x, layer: (layer(x), None), jnp.ones(3), layers)[0].shape
        (3,)
    """
    arrays: Any = make
    if (
        isinstance(arrays, (list, tuple))
        and arrays
        and all(hasattr(each, "dtype") for each in arrays)
    ):
        raise ArgumentTypeError(
            f"nb.stack takes a function that makes a module first, as in nb.stack(lambda: nb.Linear(3, 2), 5); found {type(arrays).__name__}. "
            "Nothing was made. Arrays are stacked by jnp.stack."
        )
    check_function("nb.stack", make, "a function that makes a module first")
    if not is_whole(n) or n < 1:
        raise ArgumentError(
            f"nb.stack(make, n): n must be a whole number of at least 1, found {n!r}. Nothing was made."
        )
    given = [()] * n if key is None else [(own,) for own in jax.random.split(_typed(key), n)]
    members = [make(*own) for own in given]
    for member in members:
        _check_member(member, members[0])
    leaves = [jax.tree.leaves(member) for member in members]
    return jax.tree.unflatten(
        jax.tree.structure(members[0]), [jnp.stack(row) for row in zip(*leaves)]
    )


def _typed(key: KeyLike) -> Any:
    words = as_key(key)
    return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


def _check_member(member: Any, first: object) -> None:
    """Refuse what cannot stand in one stack with the first member."""
    if not is_module(member):
        raise ArgumentError(
            f"nb.stack: make() must give a module, it gave {type(member).__name__}. No stack was made."
        )
    waiting = [below for below in (member, *plan_of(member).modules) if not below._nbm.built]
    if waiting:
        raise NotBuiltError(
            f"nb.stack: {type(waiting[0]).__name__} has no variables yet, it builds at its first call. No stack was made. Let "
            "make() call its module once, with arguments of the shapes it is for, before it returns it."
        )
    found, wanted = (
        [
            f"{jax.tree_util.keystr(path)} {describe_shape(leaf)}"
            for path, leaf in jax.tree_util.tree_leaves_with_path(each)
        ]
        for each in (member, first)
    )
    if found != wanted:
        differing = next(
            pair for pair in zip_longest(wanted, found, fillvalue="nothing") if pair[0] != pair[1]
        )
        raise StructureError(
            f"nb.stack: the members differ in their variables: the first has {differing[0]}, another {differing[1]}. "
            "No stack was made."
        )


_COPIED, _WHOLE = (
    object(),
    object(),
)  # in place of an axis: the boxes are copies; all rows have the same


def has_boxes(thing: object) -> bool:
    """Whether `thing` is a module or a variable; both are nodes of a PyTree."""
    return isinstance(thing, Variable) or is_module(thing)


def stacked_boxes(arguments: object) -> list[Variable]:
    """The boxes of the modules among the arguments, in the order of their leaves."""
    things = jax.tree.leaves(arguments, is_leaf=has_boxes)
    return [box for thing in things if has_boxes(thing) for box in boxes_of(thing)]


def stacked_modules(arguments: object) -> list[Any]:
    """The modules among the arguments and all below them, in the order of the walk."""
    roots = filter(is_module, jax.tree.leaves(arguments, is_leaf=has_boxes))
    return [module for root in roots for module in (root, *plan_of(root).modules)]


class Rows:
    """The boxes that one row, or one step, has of stacked modules, to see which of them it writes."""

    __slots__ = ("_before", "_boxes")

    def __init__(self, arguments: object) -> None:
        self._boxes = stacked_boxes(arguments)
        self._before = [box._value for box in self._boxes]

    def written(self, axes: list[Any]) -> dict[Any, dict[int, Any]]:
        """The new values, by number of the box, apart for each axis along which they are to be
        stacked.
        """
        found: dict[Any, dict[int, Any]] = {axis: {} for axis in axes}
        for i, (box, value, axis) in enumerate(zip(self._boxes, self._before, axes)):
            if box._value is not value and axis is not _COPIED:
                found[axis][i] = box._value
        return found


class Stacks:
    """The stacked modules among the arguments of a function: where what its rows write is put.

    Args:
        arguments: Positional arguments.
        axes: For each of them its axis, or a tree of axes.
        kwargs: Arguments by name, whose axis is the first.
    """

    def __init__(self, arguments: Any, axes: Any, kwargs: dict[str, Any]) -> None:
        self.boxes, self._modules = (
            stacked_boxes((arguments, kwargs)),
            stacked_modules((arguments, kwargs)),
        )
        self.axes: list[Any] = []
        for argument, axis in (
            *zip(arguments, axes),
            *((kwargs[name], 0) for name in sorted(kwargs)),
        ):
            things, tree = jax.tree.flatten(argument, is_leaf=has_boxes)
            for thing, own in zip(things, _spread(axis, tree, len(things))):
                self.axes += [own] * len(stacked_boxes(thing))
        self.kinds = list(dict.fromkeys(self.axes))

    def row(self, arguments: object, kwargs: object) -> Any:
        """Copies of the modules among them, born in this frame: JAX has made them outside of it.

        What is recorded of them is recorded of the stack, so that tracking shows its layers under
        its paths.
        """
        own = jax.tree.map(lambda leaf: leaf, (arguments, kwargs))
        for box in stacked_boxes(own):
            box._home = box._home or Home(now.frame, here())  # without `jit` a scan opens no trace
        for module, of_stack in zip(stacked_modules(own), self._modules):
            module._nbm.slot = slot_of(of_stack)
        return own

    @property
    def out_axes(self) -> list[Any]:
        """For `jax.vmap`: the axis of each list of new values."""
        return [kind if isinstance(kind, int) else None for kind in self.kinds]

    def written(self, rows: Rows) -> tuple[list[list[Any]], tuple[int, ...]]:
        """The new values of one row, a list for each axis, and the numbers of their boxes in the
        same order.
        """
        by_axis = rows.written(self.axes)
        return [list(by_axis[kind].values()) for kind in self.kinds], tuple(
            i for kind in self.kinds for i in by_axis[kind]
        )

    def written_by_all(
        self, numbers: tuple[int, ...], values: list[list[Any]]
    ) -> tuple[list[Variable], list[Any]]:
        """The boxes of the stacks that rows have written, and their values."""
        return [self.boxes[i] for i in numbers], [value for own in values for value in own]


def _spread(axis: object, tree: Any, count: int) -> list[Any]:
    """The axis of each of `count` things in an argument, from one for all or a tree of them."""
    if isinstance(axis, int):
        return [axis] * count
    marked = jax.tree.map(
        lambda own: _WHOLE if own is None else own, axis, is_leaf=lambda own: own is None
    )
    try:
        return jax.tree.leaves(jax.tree.broadcast(marked, tree.unflatten(range(count))))
    except ValueError:  # it goes on inside a module
        return [_COPIED] * count
