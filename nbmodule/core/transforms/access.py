"""The way from a function to what it has captured, by names, items and attributes.

Another thing that has come to stand at the end of such a way is noticed, wherever it is held.
"""

from __future__ import annotations

import functools
import operator
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.transforms.functions import LIBRARIES
from nbmodule.core.transforms.methods import Method

_MOST = 1000  # items of one list or dict that are looked at
_MOST_LOOKS = 5000  # things that are looked at in all
_DEEPEST = 8  # steps
_FEW = 16  # ways to places without a model
_FEW_LOOKS = 500
_LOST = (LookupError, AttributeError, TypeError, ValueError, ReferenceError)  # where a way has come to an end

Step = tuple[Callable[[Any, Any], Any], Any]


class AccessPath(NamedTuple):
    """A way to a thing; it holds the function where it begins, and nothing else."""

    root: Any
    steps: tuple[Step, ...]
    end: int
    """The `id` of the thing."""

    def leads(self) -> bool:
        """Whether the same thing still stands at its end."""
        value = self.root
        try:
            for fetch, key in self.steps:
                value = fetch(value, key)
        except _LOST:
            return False
        return id(value) == self.end


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


class OpenPath(NamedTuple):
    """A way to a place where no model stands yet."""

    root: Any
    steps: tuple[Step, ...]
    kind: type | None
    """Of what stands there; None if it is empty."""

    def value(self) -> Any:
        """What stands at its end; None if it has come to an end before."""
        value = self.root
        try:
            for fetch, key in self.steps:
                value = fetch(value, key)
        except _LOST:
            return None
        return value

    def leads(self) -> bool:
        """Whether what stands at its end is of the kind that it was."""
        return type(self.value()) is self.kind


def open_paths(roots: Iterable[Callable[..., Any]], names: frozenset[str]) -> list[OpenPath]:
    """Ways to slots and context variables, by these names, in which no model stands: no list or dict is there to be watched."""
    waiting: deque[tuple[Any, Any, tuple[Step, ...]]] = deque((root, root, ()) for root in roots)
    found: list[OpenPath] = []
    seen: dict[int, Any] = {}
    while waiting and len(found) < _FEW and len(seen) < _FEW_LOOKS:
        root, value, steps = waiting.popleft()
        if id(value) in seen or len(steps) >= _DEEPEST or is_stateful(value):
            continue
        seen[id(value)] = value
        for fetch, key in _open_places(value, names):
            path = OpenPath(root, (*steps, (fetch, key)), type(None))
            now = path.value()
            if not is_stateful(now):
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


def global_names(code: types.CodeType) -> Iterator[str]:
    """Names that the code, or a function inside it, mentions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from global_names(constant)


def is_users(fn: object) -> bool:
    """Whether a function or class is code that a user may be editing, not part of a library that is settled."""
    return (getattr(fn, "__module__", None) or "__main__").partition(".")[0] not in LIBRARIES


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


dict_of: Callable[[type], Any] = type.__dict__["__dict__"].__get__
"""A view of the attributes of a class that follows it; that of a class of modules leaves out what is derived, and is a copy."""


def _slots_of(value: object) -> list[str]:
    """The attributes of an object that has a place for each in its class."""
    return [
        name
        for base in type(value).__mro__
        if is_users(base)
        for name, each in vars(base).items()
        if type(each) is types.MemberDescriptorType
    ]


def settings_of(kind: type) -> dict[str, Any]:
    """What a user's class has beside its methods."""
    return {
        name: value
        for base in reversed(kind.__mro__)
        if is_users(base)
        for name, value in vars(base).items()
        if not (name.startswith("__") or isinstance(value, _OF_CLASSES))
    }


def contents(cell: types.CellType) -> Any:
    """What a closure's cell holds; None for a name that is not bound yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


_SIMPLE = (int, float, complex, str, bytes, type(None), jax.Array, np.ndarray)
_NO_DATA = (*_SIMPLE, type, types.FunctionType, types.ModuleType)
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_OF_CLASSES = (types.FunctionType, classmethod, staticmethod, property, *_DESCRIPTORS)


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
        yield from ((_inherited, name, part) for name, part in settings_of(value).items())
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


def _own(value: Any, name: str) -> Any:
    return vars(value)[name]


def _kind(value: Any, _: None) -> type:
    return type(value)


def _member(things: Any, known: int) -> Any:
    for thing in things:
        if id(thing) == known:
            return thing
    raise KeyError(known)


def _inherited(kind: type, name: str) -> Any:
    return next(dict_of(base)[name] for base in kind.__mro__ if name in dict_of(base))


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


_BY_NAME = (_own, _slot, _inherited)  # attributes, which a function comes to by their names
