"""What a function may use from its surroundings: a guess at its modules, and a watch on the code that it runs."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from nbmodule.core.transforms.carried import is_stateful

_SETTLED = sys.stdlib_module_names | {
    "jax",
    "jaxlib",
    "numpy",
    "optax",
    "nbmodule",
    "flax",
    "equinox",
    "haiku",
    "scipy",
    "einops",
}


def guess(fn: Any) -> list[Any]:
    """Modules, optimizers, streams and boxes that `fn` can reach through itself, its closure, its defaults and globals."""
    found: dict[int, Any] = {}
    for thing in _surroundings(fn, set()):
        for item in _inside(thing):
            found.setdefault(id(item), item)
    return list(found.values())


def _inside(thing: Any) -> Iterator[Any]:
    if is_stateful(thing):
        yield thing
    elif type(thing) in (list, tuple) and len(thing) < 1000:
        yield from (item for item in thing if is_stateful(item))
    elif type(thing) is dict and len(thing) < 1000:
        yield from (item for item in thing.values() if is_stateful(item))


def _surroundings(fn: Any, seen: set[int]) -> Iterator[Any]:
    if id(fn) in seen:
        return
    seen.add(id(fn))
    yield fn
    if isinstance(fn, functools.partial):
        yield from (*fn.args, *fn.keywords.values())
        yield from _surroundings(fn.func, seen)
    elif isinstance(fn, types.MethodType):
        yield fn.__self__
        yield from _surroundings(fn.__func__, seen)
    elif isinstance(fn, types.FunctionType):
        for thing in _names(fn):
            yield thing
            if isinstance(thing, (types.FunctionType, types.MethodType, functools.partial)) and is_users(thing):
                yield from _surroundings(thing, seen)


def _names(fn: types.FunctionType) -> Iterator[Any]:
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue
    yield from fn.__defaults__ or ()
    for name in _global_names(fn.__code__):
        if name in fn.__globals__:
            yield fn.__globals__[name]


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def is_users(fn: Any) -> bool:
    """Whether `fn` is code that a user may be editing, not part of a library that is settled."""
    return (getattr(fn, "__module__", None) or "__main__").partition(".")[0] not in _SETTLED


class CodeWatch:
    """Notices that a function, or a global helper that it names, was redefined or reloaded."""

    __slots__ = ("bindings", "codes")

    def __init__(self, functions: list[Callable[..., Any]]) -> None:
        codes: dict[int, tuple[Any, Any]] = {}
        bindings: dict[tuple[int, str], tuple[dict[str, Any], str, Any]] = {}
        waiting = [_function(fn) for fn in functions]
        while waiting:
            fn = waiting.pop()
            if not isinstance(fn, types.FunctionType) or id(fn) in codes or not is_users(fn):
                continue
            codes[id(fn)] = (fn, fn.__code__)
            for name in _global_names(fn.__code__):
                helper = fn.__globals__.get(name)
                if isinstance(helper, types.FunctionType) and is_users(helper):
                    bindings[id(fn.__globals__), name] = (fn.__globals__, name, helper)
                    waiting.append(helper)
            waiting += [
                inner for inner in map(_contents, fn.__closure__ or ()) if isinstance(inner, types.FunctionType)
            ]
        self.codes, self.bindings = tuple(codes.values()), tuple(bindings.values())

    def is_fresh(self) -> bool:
        for fn, code in self.codes:
            if fn.__code__ is not code:
                return False
        for names, name, helper in self.bindings:
            if names.get(name) is not helper:
                return False
        return True


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _function(fn: Any) -> Any:
    while not isinstance(fn, types.FunctionType):
        inner = getattr(fn, "__func__", None) or getattr(fn, "func", None) or getattr(fn, "__wrapped__", None)
        if inner is None:
            return fn
        fn = inner
    return fn
