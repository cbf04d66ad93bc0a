"""Options of a call of a module, such as `track_submod_rets=True`, under a transform.

They are no arguments of the transformed function, which would trace them. A transform that runs its
function at each call binds them to the module. For a compiled function they are applied around the
call, where they are part of the key of the program.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from nbmodule.core.structure.walk import is_module

_REPLACE = "replace_submod_rets"
_made: weakref.WeakKeyDictionary[Callable[..., Any], Callable[[], Any]] = (
    weakref.WeakKeyDictionary()
)
"""The module, weakly, of each function that a transform has made of one."""


def called_module(fn: Any) -> Any:
    """Return the module that `fn` calls, itself or a transform of it; None if unknown."""
    if is_module(fn):
        return fn
    if isinstance(fn, types.MethodType):
        is_call = is_module(fn.__self__) and fn.__func__ is type(fn.__self__).__call__
        return fn.__self__ if is_call else None
    if isinstance(fn, types.FunctionType):
        return _made.get(fn, lambda: None)()
    return called_module(fn.fn) if hasattr(type(fn), "_is_jit") else None


def made_of(fn: Callable[..., Any], transformed: Callable[..., Any]) -> Any:
    """Note that `transformed` is a transform of `fn`; returns it."""
    module = called_module(fn)
    if module is not None:
        _made[transformed] = weakref.ref(module)
    return transformed


def asked_of(fn: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """Return the module to whose call these arguments give options, if `fn` is compiled; else None.

    Arrays that replace returns go through the transforms between instead: each row takes its own.
    """
    module = called_module(fn)
    if module is None or type(module)._asked_by_name.isdisjoint(kwargs):
        return None
    is_direct = not isinstance(fn, types.FunctionType)
    options = type(module)._asked_by_name.intersection(kwargs)
    if not is_direct and options == {_REPLACE} and not _split(kwargs[_REPLACE])[0]:
        return None
    return module


def with_asked(
    fn: Callable[..., Any], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return `fn` with the options bound to it, and the remaining arguments: arrays that replace
    returns are among them.
    """
    module = called_module(fn) if kwargs else None
    if module is None or type(module)._asked_by_name.isdisjoint(kwargs):
        return fn, kwargs
    names = type(module)._asked_by_name
    options = {name: value for name, value in kwargs.items() if name in names}
    arguments = {name: value for name, value in kwargs.items() if name not in names}
    bound, arrays = _split(options.get(_REPLACE))
    if not arrays:
        return functools.partial(fn, **options), arguments
    arguments[_REPLACE] = list(arrays.values())

    def called(*args: Any, **kwargs: Any) -> Any:
        replaced = bound | dict(zip(arrays, kwargs[_REPLACE], strict=True))
        return fn(*args, **(options | kwargs | {_REPLACE: replaced}))

    return called, arguments


def _split(replaced: object) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Separate functions and single numbers that replace returns from arrays that do."""
    values = dict(replaced) if isinstance(replaced, Mapping) else {}
    arrays = {
        path: value
        for path, value in values.items()
        if not callable(value) and any(map(np.ndim, jax.tree.leaves(value)))
    }
    return {path: value for path, value in values.items() if path not in arrays}, arrays
