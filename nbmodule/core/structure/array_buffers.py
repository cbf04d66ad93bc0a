"""Arrays in lists, tuples and dicts of a module become buffers, as in attributes.

An array in a list becomes a `Buffer` when the list is assigned, one that is put into the list later
at the next traversal. A buffer of that shape and dtype that stood there before, and is nowhere else
in the list, gets the value, as with an attribute: `self.means[0] = x` keeps the variable, and a
compiled function sees another value and not another structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import is_tensor
from nbmodule.base.format import describe_shape
from nbmodule.core.variables.frame import write
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import TracerLeakError
from nbmodule.tree.leaf import without_torch


def is_numeric_array(value: object) -> bool:
    """Return True for an array that a variable can hold: no array of text or objects."""
    if isinstance(value, jax.Array):
        return True
    return isinstance(value, np.ndarray) and (
        value.dtype.kind in "biufc" or jnp.issubdtype(value.dtype, np.number)
    )


def has_array_items(value: object) -> bool:
    """Return True if arrays in `value` become buffers."""
    return isinstance(value, (list, tuple, dict))


def with_buffers(
    collection: Any,
    previous: object = (),
    *,
    deep: bool = True,
    is_local: bool = True,
    arguments: Sequence[Any] = (),
    ancestors: tuple[int, ...] = (),
) -> Any:
    """Make buffers of the arrays in a list, tuple or dict; lists and dicts are changed in place.

    A module that is built by its first call, while that is traced, may keep the arguments of the
    call (`self.inputs = args`): of those, shapes and dtypes stay instead of traced values.

    Args:
        collection: The list, tuple or dict.
        previous: Its content before.
        deep: Whether lists and dicts within it are changed as well.
        is_local: Whether the module was made in the current trace, and may hold traced values.
        arguments: Of the build that is under way, if the module is not local.
        ancestors: Ids of the collections around it.

    Returns:
        `collection`, or for a tuple that holds arrays a new one.
    """
    if id(collection) in ancestors:
        return collection
    changed = {}
    for key, value in _pairs(collection):
        old = _item_at(previous, key)
        if is_tensor(value):
            value = without_torch(value)
        if is_numeric_array(value):
            if isinstance(value, jax.core.Tracer) and any(value is x for x in arguments):
                changed[key] = jax.ShapeDtypeStruct(value.shape, value.dtype)
            else:
                changed[key] = _buffer_of(value, old, collection, is_local)
        elif has_array_items(value) and (deep or isinstance(value, tuple)):
            new = with_buffers(
                value,
                old if has_array_items(old) else (),
                deep=deep,
                is_local=is_local,
                arguments=arguments,
                ancestors=(*ancestors, id(collection)),
            )
            if new is not value:
                changed[key] = new
    if not isinstance(collection, tuple):
        for key, value in changed.items():
            collection[key] = value
        return collection
    if not changed:
        return collection
    parts = [changed.get(key, value) for key, value in enumerate(collection)]
    cls: Any = type(collection)
    return cls(*parts) if hasattr(cls, "_fields") else cls(parts)


def _pairs(collection: Any) -> Iterable[tuple[Any, Any]]:
    is_dict = isinstance(collection, dict)
    return list(collection.items()) if is_dict else enumerate(collection)


def _item_at(collection: object, key: Any) -> Any:
    if isinstance(collection, dict):
        return collection.get(key)
    if isinstance(collection, (list, tuple)) and type(key) is int and key < len(collection):
        return collection[key]
    return None


def _buffer_of(value: Any, old: Any, collection: Any, is_local: bool) -> Variable:
    """Return the buffer for an array: the former one, if it fits and has not moved, or a new
    one.
    """
    is_traced = isinstance(value, jax.core.Tracer)
    if isinstance(old, Buffer) and old.shape == value.shape and old.dtype == value.dtype:
        if not any(other is old for _, other in _pairs(collection)):
            write(old, old.admitted(value))
            return old
    if is_traced and not is_local:
        raise TracerLeakError(
            f"a traced value ({describe_shape(value)}) was put into a {type(collection).__name__} "
            "of a module inside a transform, where no buffer of its shape stood. Put an array "
            "there before, outside, or return the value."
        )
    if is_traced or is_local:
        return Buffer(value)
    # The buffer outlives the trace in which the array was put there.
    with jax.ensure_compile_time_eval():
        buffer = Buffer(value)
    buffer._home = None
    return buffer


def refuse_outlived(collection: Any) -> None:
    """Refuse a traced value in a list or dict outside of all transforms: its trace is over.

    Raises:
        TracerLeakError: There is one.
    """
    for _, content in _pairs(collection):
        value = _traced_value(content)
        if value is not None:
            raise TracerLeakError(
                f"a traced value ({describe_shape(value)}) was put into a "
                f"{type(collection).__name__} of a module inside a transform that is over. It was "
                "taken out again, and no variable was changed. Return the value from the "
                "transformed function, or put an array there before, outside: transforms of "
                "nbmodule write into that one."
            )


def _traced_value(value: Any) -> Any:
    """Return the traced value that `value` is, or that a tuple holds; else None."""
    parts = value if isinstance(value, tuple) else ()
    nested = (inner for part in parts if (inner := _traced_value(part)) is not None)
    return value if isinstance(value, jax.core.Tracer) else next(nested, None)


def put_back(collection: Any, previous: Any) -> None:
    """Restore the content of a list or dict; if it is unknown (None), remove traced values."""
    if previous is None:
        untraced = [(key, x) for key, x in _pairs(collection) if _traced_value(x) is None]
        previous = dict(untraced) if isinstance(collection, dict) else [x for _, x in untraced]
    collection.clear()
    (collection.update if isinstance(collection, dict) else collection.extend)(previous)
