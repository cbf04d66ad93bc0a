"""Shapes of the inputs and the output of a module's first call, for its graph and its rows.

Only the first call, which is never a bare method call, comes here. Arrays are kept as shapes, other
objects weakly.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.base.foreign import Unconvertible, reader_of
from nbmodule.core.recording.tracker import describe, describe_arguments
from nbmodule.core.structure.building import settle
from nbmodule.core.structure.walk import is_module
from nbmodule.core.variables.variable import Variable

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

_PLAIN = (str, bytes, int, float, complex, bool, type(None))


def remember(module: CoreModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Keep the shapes of these arguments; later calls may be bare method calls."""
    inner = module._nbm
    if not kwargs and all(isinstance(arg, jax.Array) for arg in args):  # most calls
        inner.shown = (
            [_array_like(arg.shape, arg.dtype) for arg in args],
            _tree_of_positions(len(args)),
        )
    else:
        leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=_is_whole)
        inner.shown = ([_reference(leaf) for leaf in leaves], tree)
    if inner.config is not None:
        settle(module)


def remember_return(module: Any, outputs: Any) -> None:
    """Keep the shapes of the output."""
    module._nbm.returned = describe(outputs)


def first_shapes(module: Any) -> tuple[str | None, str | None]:
    """Return the shapes of the arguments and of the return of the first call, as text; None before
    it.

    Example:
        >>> model = nb.Linear(3, 2)
        >>> _ = model(jnp.ones((5, 3)))
        >>> first_shapes(model)
        ('float32[5, 3]', 'float32[5, 2]')
    """
    provided = remembered(module)
    return None if provided is None else describe_arguments(*provided) or None, module._nbm.returned


def remembered(module: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments of the first call, arrays as shapes; None before it, or if one is
    gone.
    """
    if module._nbm.shown is None:
        return None
    leaves, tree = module._nbm.shown
    leaves = [leaf() if isinstance(leaf, weakref.ref) else leaf for leaf in leaves]
    if any(leaf is None for leaf in leaves):
        return None
    return jax.tree.unflatten(tree, leaves)


@functools.lru_cache(1024, typed=True)
def _array_like(shape: tuple[Any, ...], dtype: object) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


@functools.cache
def _tree_of_positions(count: int) -> Any:
    return jax.tree.structure(((0,) * count, {}))


def _is_whole(obj: object) -> bool:
    return isinstance(obj, Variable) or hasattr(type(obj), "_is_stateful") or is_module(obj)


def _reference(leaf: Any) -> Any:
    """Return a shape, a plain value or a weak reference."""
    reader = reader_of(type(leaf))
    if reader is not None:
        try:
            leaf = reader(leaf)
        except Unconvertible:  # the layer that meets it says so
            return None
    if not _is_whole(leaf) and hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return _array_like(tuple(leaf.shape), leaf.dtype)
    if isinstance(leaf, _PLAIN):
        return leaf
    try:
        return weakref.ref(leaf)
    except TypeError:
        return leaf
