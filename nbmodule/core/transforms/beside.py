"""What a call of a module is asked for by name, such as `track_submod_rets=True`, is no argument of
what is transformed.

A transform would trace it. So it goes past the transform: bound to the module for those that run
what they are given each time, and met around the call of what is compiled, where it tells one
program from another.
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


def module_of(fn: Any) -> Any:
    """The module that is called by `fn`, itself or a transform of it; None where that is not known."""
    if is_module(fn):
        return fn
    if isinstance(fn, types.MethodType):
        return (
            fn.__self__
            if is_module(fn.__self__) and fn.__func__ is type(fn.__self__).__call__
            else None
        )
    if isinstance(fn, types.FunctionType):
        return _made.get(fn, _none)()
    return module_of(fn.fn) if hasattr(type(fn), "_is_jit") else None


def _none() -> None:
    """Stands for a module where there is none."""


def made_of(fn: Callable[..., Any], made: Callable[..., Any]) -> Any:
    """Note that `made` is a transform of `fn`; gives `made`."""
    module = module_of(fn)
    if module is not None:
        _made[made] = weakref.ref(module)
    return made


def asked_of(fn: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """The module of whose call by `fn`, which is compiled, something is asked by name, around it;
    else None.

    Arrays alone, in place of returns, go through the transforms between: rows take theirs.
    """
    module = module_of(fn)
    if module is None or type(module)._asked_by_name.isdisjoint(kwargs):
        return None
    is_direct = not isinstance(fn, types.FunctionType)
    asked = type(module)._asked_by_name.intersection(kwargs)
    return (
        None
        if not is_direct and asked == {_REPLACE} and not _split(kwargs[_REPLACE])[0]
        else module
    )


def with_asked(
    fn: Callable[..., Any], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """`fn` with what is asked by name bound to it, and the arguments that are left: arrays in place
    of returns are among them.
    """
    module = module_of(fn) if kwargs else None
    if module is None or type(module)._asked_by_name.isdisjoint(kwargs):
        return fn, kwargs
    names = type(module)._asked_by_name
    asked = {name: value for name, value in kwargs.items() if name in names}
    left = {name: value for name, value in kwargs.items() if name not in names}
    bound, arrays = _split(asked.get(_REPLACE))
    if not arrays:
        return functools.partial(fn, **asked), left
    left[_REPLACE] = list(arrays.values())

    def called(*args: Any, **kwargs: Any) -> Any:
        replaced = bound | dict(zip(arrays, kwargs[_REPLACE], strict=True))
        return fn(*args, **(asked | kwargs | {_REPLACE: replaced}))

    return called, left


def _split(replaced: object) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Of what is to stand in place of returns: functions and single numbers, and arrays."""
    given = dict(replaced) if isinstance(replaced, Mapping) else {}
    arrays = {
        place: value
        for place, value in given.items()
        if not callable(value) and any(map(np.ndim, jax.tree.leaves(value)))
    }
    return {place: value for place, value in given.items() if place not in arrays}, arrays
