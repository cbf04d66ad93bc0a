"""What holds what, and the ways through it: from a function by names, items and attributes to what it has captured.

Another thing that has come to stand at the end of such a way is noticed, wherever it is held. A way costs each compiled call
its steps, so ways are for what `captured.py` cannot compare in a list or a dict.
"""

from __future__ import annotations

import functools
import operator
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.transforms.functions import LIBRARIES
from nbmodule.core.transforms.methods import Method
from nbmodule.core.transforms.names import contents, global_names, inherited, is_users, settings_of

_MOST = 1000  # items of one list or dict that are looked at
_MOST_LOOKS = 5000  # things that are looked at in all
_DEEPEST = 8  # steps
_FEW = 16  # ways to places without a model
_FEW_LOOKS = 500
_LOST = (LookupError, AttributeError, TypeError, ValueError, ReferenceError)  # where a way has come to an end

Step = tuple[Callable[[Any, Any], Any], Any]


class AccessPath(NamedTuple):
    """A way to a thing, or to a place where no model stands yet; it holds the function where it begins, and nothing else."""

    root: Any
    steps: tuple[Step, ...]
    end: int = 0
    """The `id` of the thing."""
    kind: type | None = None
    """Of what stands there in place of a model; None if a thing does."""

    def leads(self) -> bool:
        """Whether the same thing still stands at its end, or one of the kind that it was."""
        value = self.root
        try:
            for fetch, key in self.steps:
                value = fetch(value, key)
        except _LOST:
            value = None
        return id(value) == self.end if self.kind is None else type(value) is self.kind

    def value(self) -> Any:
        """What stands at its end; None if it has come to an end before."""
        value = self.root
        with suppress(*_LOST):
            for fetch, key in self.steps:
                value = fetch(value, key)
            return value
        return None


def access_paths(things: Sequence[Any], roots: Iterable[Callable[..., Any]]) -> list[AccessPath]:
    """The shortest way to each of these things from one of these functions; none for what no way was found to.

    Example:
        >>> model = nb.Linear(2, 2)
        >>> named = [("first", model)]
        >>> (path,) = access_paths([model], [functools.partial(print, named)])
        >>> named[0] = ("first", nb.Linear(2, 2))
        >>> path.leads()
        False
    """
    wanted, found = {id(thing) for thing in things}, []
    waiting: deque[tuple[Any, Any, tuple[Step, ...]]] = deque((root, root, ()) for root in roots)
    seen: dict[int, Any] = {}  # and what is known by its `id` stays meanwhile
    while waiting and wanted and len(seen) < _MOST_LOOKS:
        root, value, steps = waiting.popleft()
        if id(value) in wanted:
            wanted.remove(id(value))
            found.append(AccessPath(root, steps, id(value)))
        if id(value) not in seen and len(steps) < _DEEPEST and not is_stateful(value):
            seen[id(value)] = value
            waiting.extend((root, part, (*steps, (fetch, key))) for fetch, key, part in _parts(value))
    return found


def open_paths(roots: Iterable[Callable[..., Any]], names: frozenset[str]) -> list[AccessPath]:
    """Ways to slots and context variables, by these names, in which no model stands: no list or dict is there to be watched."""
    waiting: deque[tuple[Any, Any, tuple[Step, ...]]] = deque((root, root, ()) for root in roots)
    found: list[AccessPath] = []
    seen: dict[int, Any] = {}
    while waiting and len(found) < _FEW and len(seen) < _FEW_LOOKS:
        root, value, steps = waiting.popleft()
        if id(value) in seen or len(steps) >= _DEEPEST or is_stateful(value):
            continue
        seen[id(value)] = value
        for fetch, key in _open_places(value, names):
            path = AccessPath(root, (*steps, (fetch, key)))
            if not is_stateful(now := path.value()):
                found.append(path._replace(kind=type(now)))
        for fetch, key, part in _parts(value):
            if isinstance(part, _SIMPLE) or (type(key) is str and fetch in _BY_NAME and key not in names):
                continue
            waiting.append((root, part, (*steps, (fetch, key))))
    return found


def _open_places(value: object, names: frozenset[str]) -> Iterator[Step]:
    if type(value) is ContextVar:
        yield _context_value, None
    elif not isinstance(value, (type, types.ModuleType, types.FunctionType)) and is_users(type(value)):
        yield from ((_slot, name) for name in _slots_of(value) if name in names)


def reached(value: object) -> list[int]:
    """The `id` of each model that data hold: lists, dicts, objects, as deep as a few steps."""
    found: list[int] = []
    waiting, seen = deque([(value, 0)]), {}
    while waiting and len(seen) < _FEW_LOOKS:
        value, depth = waiting.popleft()
        if is_stateful(value):
            found.append(id(value))
        elif depth < _DEEPEST and not isinstance(value, _NO_DATA) and id(value) not in seen:
            seen[id(value)] = value
            waiting.extend((part, depth + 1) for fetch, _, part in _parts(value) if fetch is not _kind)
    return found


def is_plain_object(value: object) -> bool:
    """Whether an object has a dict of attributes of its own; a proxy's, which it makes up or has elsewhere, is none."""
    kind = type(value)
    if issubclass(kind, (type, types.FunctionType, types.BuiltinFunctionType)):
        return False
    made = next((vars(base)["__dict__"] for base in kind.__mro__ if "__dict__" in vars(base)), None)
    return type(made) in _DESCRIPTORS


def is_plainly_listed(value: object) -> bool:
    """Whether a list, tuple, deque, dict or set, or one of a class below these, is counted and listed by Python and not by a user's code."""
    kind: Any = type(value)
    if kind is types.MappingProxyType:
        return True
    base: Any = next(
        (base for base in (list, tuple, deque, OrderedDict, dict, set, frozenset) if issubclass(kind, base)), None
    )
    return base is not None and kind.__len__ is base.__len__ and kind.__iter__ is base.__iter__


def is_settled(value: object) -> bool:
    """Whether it is a library that holds no model of the user's; the names it has grow as they are loaded."""
    return isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] in LIBRARIES


def _slots_of(value: object) -> list[str]:
    """The attributes of an object that has a place for each in its class."""
    return [
        name
        for base in type(value).__mro__
        if is_users(base)
        for name, each in vars(base).items()
        if type(each) is types.MemberDescriptorType
    ]


_SIMPLE = (int, float, complex, str, bytes, type(None), jax.Array, np.ndarray)
_NO_DATA = (*_SIMPLE, type, types.FunctionType, types.ModuleType)
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)


def _parts(value: Any) -> Iterator[tuple[Callable[[Any, Any], Any], Any, Any]]:
    """What is held: how it is fetched, under which key, and what it is now."""
    kind = type(value)
    if issubclass(kind, (list, tuple, deque)):
        short = is_plainly_listed(value) and len(value) <= _MOST
        yield from ((operator.getitem, i, part) for i, part in enumerate(value if short else ()))
    elif issubclass(kind, dict):
        short = is_plainly_listed(value) and len(value) <= _MOST
        yield from ((dict.get, key, part) for key, part in dict.items(value if short else {}))
    elif kind is types.MappingProxyType:
        yield from ((operator.getitem, key, part) for key, part in value.items() if len(value) <= _MOST)
    elif issubclass(kind, (set, frozenset)):
        yield from ((_member, id(part), part) for part in value if is_plainly_listed(value) and len(value) <= _MOST)
    elif kind is types.FunctionType:
        yield from _parts_of_function(value) if is_users(value) else ()
    elif kind in (types.MethodType, Method):
        yield from ((getattr, name, getattr(value, name)) for name in ("__func__", "__self__"))
    elif kind is functools.partial:
        yield from ((getattr, name, getattr(value, name)) for name in ("func", "args", "keywords"))
    elif issubclass(kind, type):
        yield from ((inherited, name, part) for name, part in settings_of(value).items())
    elif issubclass(kind, weakref.ref):
        yield _referent, None, value()
    elif kind is ContextVar:
        yield ContextVar.get, None, value.get(None)
    elif not is_settled(value):
        yield from _parts_of_object(value)


def _parts_of_function(fn: types.FunctionType) -> Iterator[Any]:
    yield from ((_cell, i, contents(cell)) for i, cell in enumerate(fn.__closure__ or ()))
    yield from ((_default, i, part) for i, part in enumerate(fn.__defaults__ or ()))
    yield from ((_named_default, name, part) for name, part in (fn.__kwdefaults__ or {}).items())
    names = dict.fromkeys(global_names(fn.__code__))
    yield from ((_global, name, fn.__globals__[name]) for name in names if name in fn.__globals__)
    yield from ((_own, name, part) for name, part in list(vars(fn).items()))


def _parts_of_object(value: object) -> Iterator[Any]:
    if is_plain_object(value):
        yield from ((_own, name, part) for name, part in list(vars(value).items()) if len(vars(value)) <= _MOST)
    for name in _slots_of(value):
        try:
            yield _slot, name, object.__getattribute__(value, name)
        except AttributeError:  # not set yet
            continue
    if is_users(type(value)):
        yield _kind, None, type(value)


def _own(value: object, name: str) -> Any:
    return vars(value)[name]


def _kind(value: object, _: None) -> type:
    return type(value)


def _member(things: Any, known: int) -> Any:
    for thing in things:
        if id(thing) == known:
            return thing
    raise KeyError(known)


def _slot(value: Any, name: str) -> Any:
    return object.__getattribute__(value, name)


def _context_value(variable: Any, _: None) -> Any:
    return variable.get(None)


def _referent(reference: Any, _: None) -> Any:
    return reference()


def _global(fn: types.FunctionType, name: str) -> Any:
    return fn.__globals__[name]


def _cell(fn: types.FunctionType, i: int) -> Any:
    return contents((fn.__closure__ or ())[i])


def _default(fn: types.FunctionType, i: int) -> Any:
    return (fn.__defaults__ or ())[i]


def _named_default(fn: types.FunctionType, name: str) -> Any:
    return (fn.__kwdefaults__ or {})[name]


_BY_NAME = (_own, _slot, inherited)  # attributes, which a function comes to by their names
