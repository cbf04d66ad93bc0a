"""Arrays in lists, tuples and dicts of a module: buffers, as in attributes.

An array that is assigned within a list becomes a `Buffer` at once, one that is put into the list
later when the model is walked next. Where a buffer of that shape and dtype stood before and is
nowhere else in the list, it gets the value, as an attribute would: so `self.means[0] = x` keeps the
variable, and a compiled function sees another value and not another structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import is_tensor
from nbmodule.base.format import describe_shape
from nbmodule.core.variables.frame import write
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import TracerLeakError
from nbmodule.tree.leaves import without_torch

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull


def is_array(value: object) -> bool:
    """Return True if `value` is an array that a variable can hold; arrays of text or objects are
    not.
    """
    if isinstance(value, jax.Array):
        return True
    return isinstance(value, np.ndarray) and (
        value.dtype.kind in "biufc" or jnp.issubdtype(value.dtype, np.number)
    )


def is_holder(value: object) -> bool:
    """Return True if arrays in `value` are made buffers."""
    return isinstance(value, (list, tuple, dict))


def boxed(
    holder: Any,
    before: object = (),
    *,
    deep: bool = True,
    local: bool = True,
    arguments: Sequence[Any] = (),
    seen: tuple[int, ...] = (),
) -> Any:
    """Make the arrays in a list, tuple or dict, and in those within it, buffers. Lists and dicts
    are changed in place.

    A module that is built by its first call, while that is traced, may keep the arguments of the
    call (`self.seen = args`): their values belong to the trace, so that their shapes and dtypes
    stay instead.

    Args:
        holder: The list, tuple or dict.
        before: What stood at its places before.
        deep: Whether lists and dicts within it are looked into as well.
        local: Whether the module was made where we are, so that it may hold what is traced.
        arguments: Of the build that is under way, where `local` is false.
        seen: Ids of the holders around it.

    Returns:
        `holder`, or for a tuple that holds arrays a new one.
    """
    if id(holder) in seen:
        return holder
    changed = {}
    for key, value in _places(holder):
        old = _at(before, key)
        if is_tensor(value):
            value = without_torch(value)
        if is_array(value):
            changed[key] = (
                _shape_of(value)
                if _is_one_of(arguments, value)
                else _box_of(value, old, holder, local)
            )
        elif is_holder(value) and (deep or isinstance(value, tuple)):
            child, outer = old if is_holder(old) else (), (*seen, id(holder))
            created = boxed(value, child, deep=deep, local=local, arguments=arguments, seen=outer)
            if created is not value:
                changed[key] = created
    if not isinstance(holder, tuple):
        for key, value in changed.items():
            holder[key] = value
        return holder
    if not changed:
        return holder
    parts = [changed.get(key, value) for key, value in enumerate(holder)]
    cls: Any = type(holder)
    return cls(*parts) if hasattr(cls, "_fields") else cls(parts)


def _places(holder: Any) -> Iterable[tuple[Any, Any]]:
    return list(holder.items()) if isinstance(holder, dict) else enumerate(holder)


def _at(before: object, key: object) -> Any:
    if isinstance(before, dict):
        return before.get(key)
    return (
        before[key]
        if isinstance(before, list | tuple) and isinstance(key, int) and key < len(before)
        else None
    )


def _is_one_of(arguments: Sequence[Any], value: object) -> bool:
    return isinstance(value, jax.core.Tracer) and any(value is argument for argument in arguments)


def _shape_of(value: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


def _box_of(value: Any, old: Any, holder: Hull, local: bool) -> Variable:
    """Return the buffer for an array: that which stood at its place, where it fits and has not
    moved, or a new one.
    """
    traced = isinstance(value, jax.core.Tracer)
    if isinstance(old, Buffer) and old.shape == value.shape and old.dtype == value.dtype:
        if not any(second is old for _, second in _places(holder)):
            write(old, old.admitted(value))
            return old
    if traced and not local:
        raise TracerLeakError(
            f"a traced value ({describe_shape(value)}) was put into a {type(holder).__name__} of a "
            "module inside a "
            "transform, where no buffer of its shape stood: it cannot stay there. Put an array "
            "there before, outside, or "
            "return the value."
        )
    if traced or local:
        return Buffer(value)
    # The buffer outlives the trace in which the array was put there.
    with jax.ensure_compile_time_eval():
        box = Buffer(value)
    box._home = None
    return box


def refuse_outlived(holder: Any) -> None:
    """Outside of all transforms: refuse a traced value in a list or dict, since the transform that
    it belonged to is over.

    Raises:
        TracerLeakError: there is one.
    """
    for _, content in _places(holder):
        value = _traced_in(content)
        if value is not None:
            raise TracerLeakError(
                f"a traced value ({describe_shape(value)}) was put into a {type(holder).__name__} "
                "of a module inside a transform that "
                "is over, and no computation can read it any more. It was taken out again, and no "
                "variable was changed. Return the "
                "value from the transformed function, or put an array there before, outside: "
                "nb.jit and its like write into that one."
            )


def _traced_in(value: Any) -> Any:
    """Return the traced value that `value` is, or that a tuple holds; None if there is none."""
    if isinstance(value, tuple):
        return next((result for part in value if (result := _traced_in(part)) is not None), None)
    return value if isinstance(value, jax.core.Tracer) else None


def restored(holder: Any, before: Any) -> None:
    """Put back into a list or dict what it held; where that is not known (None), take out what is
    traced.
    """
    if before is None:
        retained = [(key, value) for key, value in _places(holder) if _traced_in(value) is None]
        before = dict(retained) if isinstance(holder, dict) else [value for _, value in retained]
    holder.clear()
    if isinstance(holder, dict):
        holder.update(before)
    else:
        holder.extend(before)
