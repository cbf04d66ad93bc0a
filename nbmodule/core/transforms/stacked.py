"""Stacks of modules: one module whose variables have an additional axis, a row for each member."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import is_whole
from nbmodule.core.numbers.random import as_key, wrapped
from nbmodule.core.recording.parcel import StaticLeaf
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.transforms.carried import leaves_of_prefix, variables_of
from nbmodule.core.transforms.options import check_function
from nbmodule.core.variables.frame import birthplace, slot_of
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentError, NotBuiltError, StructureError


def stack(make: Callable[..., Any], n: int = 0, *, key: Any = None) -> Any:
    """Make `n` modules and stack their variables into one module with a leading axis of length `n`.

    The members are made one after another and take keys from the random stream in that order.
    A stack is called by `nb.vmap` (an ensemble) or `nb.scan` (layers of one kind), and
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
    check_function(
        "nb.stack", make, "a function that makes a module first (jnp.stack stacks arrays)"
    )
    if not is_whole(n) or n < 1:
        raise ArgumentError(f"nb.stack(make, n): n must be an integer of at least 1, got {n!r}.")
    if key is None:
        members = [make() for _ in range(n)]
    else:
        members = list(map(make, jax.random.split(wrapped(jnp.asarray(as_key(key))), n)))
    for member in members:
        _check_member(member, members[0])
    leaves = [jax.tree.leaves(member) for member in members]
    return jax.tree.unflatten(
        jax.tree.structure(members[0]), [jnp.stack(row) for row in zip(*leaves)]
    )


def _check_member(member: Any, first: object) -> None:
    """Refuse a member that cannot be stacked with the first."""
    if not is_module(member):
        raise ArgumentError(f"nb.stack: make() must return a module, got {type(member).__name__}.")
    waiting = [part for part in (member, *plan_of(member).modules) if not part._nbm.built]
    if waiting:
        raise NotBuiltError(
            f"nb.stack: {type(waiting[0]).__name__} has no variables yet, it is built at its first "
            "call. Call the module once inside make(), with arguments of the right shapes."
        )
    for row, first_row in zip_longest(_rows(member), _rows(first), fillvalue="nothing"):
        if row != first_row:
            raise StructureError(
                f"nb.stack: the members differ in their variables: the first has {first_row}, "
                f"another {row}."
            )


def _rows(module: Any) -> list[str]:
    leaves = jax.tree_util.tree_leaves_with_path(module)
    return [f"{jax.tree_util.keystr(path)} {describe_shape(leaf)}" for path, leaf in leaves]


_COPIED = object()
"""In place of an axis: the variables are copies."""


def has_variables(obj: object) -> bool:
    """Return True for a module or a variable; both are nodes of a PyTree."""
    return isinstance(obj, Variable) or is_module(obj)


def stacked_variables(arguments: object) -> list[Variable]:
    """Return the variables of the modules among the arguments, in the order of their leaves."""
    objects = jax.tree.leaves(arguments, is_leaf=has_variables)
    return [variable for obj in objects if has_variables(obj) for variable in variables_of(obj)]


def stacked_modules(arguments: object) -> list[Any]:
    """Return the modules among the arguments and all their parts, in the order of the walk."""
    roots = filter(is_module, jax.tree.leaves(arguments, is_leaf=has_variables))
    return [module for root in roots for module in (root, *plan_of(root).modules)]


class Stacks:
    """The stacked modules among the arguments of a function, which get the writes of its rows.

    Args:
        arguments: Positional arguments.
        axes: For each of them its axis, or a tree of axes.
        kwargs: Arguments by name, whose axis is the first.
    """

    def __init__(self, arguments: Any, axes: Any, kwargs: dict[str, Any]) -> None:
        self.variables = stacked_variables((arguments, kwargs))
        self._modules = stacked_modules((arguments, kwargs))
        self.axes: list[Any] = []
        named = [(kwargs[name], 0) for name in sorted(kwargs)]
        for argument, axis in (*zip(arguments, axes), *named):
            objects, tree = jax.tree.flatten(argument, is_leaf=has_variables)
            try:
                axes_of = leaves_of_prefix(axis, tree)
            except ValueError:  # it goes on inside a module
                axes_of = [_COPIED] * len(objects)
            for obj, member in zip(objects, axes_of):
                self.axes += [member] * len(stacked_variables(obj))
        self.kinds = list(dict.fromkeys(self.axes))

    def row(self, arguments: object, kwargs: object) -> tuple[Any, list[tuple[Variable, Any]]]:
        """Return the arguments with copies of the modules, and their variables with the values.

        The copies are local to this frame: JAX has made the modules outside of it. Their calls are
        recorded as calls of the stack, so that tracking shows its layers by path.
        """
        member = jax.tree.map(lambda leaf: leaf, (arguments, kwargs))
        variables = stacked_variables(member)
        for variable in variables:  # under `jax.disable_jit` a scan opens no trace
            variable._home = variable._home or birthplace()
        for module, of_stack in zip(stacked_modules(member), self._modules):
            module._nbm.slot = slot_of(of_stack)
        return member, [(variable, variable._value) for variable in variables]

    @property
    def out_axes(self) -> list[Any]:
        """The axis of each list of new values, for `jax.vmap`."""
        return [axis if isinstance(axis, int) else None for axis in self.kinds]

    def written(self, before: list[tuple[Variable, Any]]) -> tuple[list[list[Any]], StaticLeaf]:
        """Return the new values of one row, a list for each axis, and the numbers of their
        variables in the same order.
        """
        changed = [
            (i, variable._value, axis)
            for i, ((variable, value), axis) in enumerate(zip(before, self.axes))
            if variable._value is not value and axis is not _COPIED
        ]
        rows = [[(i, value) for i, value, of in changed if of == axis] for axis in self.kinds]
        numbers = StaticLeaf(tuple(i for row in rows for i, _ in row))
        return [[value for _, value in row] for row in rows], numbers

    def written_by_all(
        self, numbers: tuple[int, ...], values: list[list[Any]]
    ) -> tuple[list[Variable], list[Any]]:
        """Return the variables of the stacks that rows have written, and their values."""
        return [self.variables[i] for i in numbers], [
            value for member in values for value in member
        ]
