"""What code names: the globals, attributes and helpers that a function mentions, and what the classes of a user hold.

A name in code is the one sign, before it runs, of what it may use. Code of libraries is settled and is not read.
"""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

from nbmodule.core.transforms.functions import LIBRARIES

_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_OF_CLASSES = (types.FunctionType, classmethod, staticmethod, property, *_DESCRIPTORS)
_INNER = ("__func__", "func", "__wrapped__")


def is_users(fn: object) -> bool:
    """Whether a function or class is code that a user may be editing, not part of a library that is settled."""
    return (getattr(fn, "__module__", None) or "__main__").partition(".")[0] not in LIBRARIES


# -- functions --------------------------------------------------------------------------------------
def function_below(fn: Any) -> Any:
    """The function below methods, partials and decorators; a proxy that answers any name leads nowhere."""
    while not isinstance(fn, types.FunctionType):
        name = next((each for each in _INNER if inspect.getattr_static(fn, each, None) is not None), None)
        if name is None:
            return fn
        fn = getattr(fn, name)
    return fn


def contents(cell: types.CellType) -> Any:
    """What a closure's cell holds; None for a name that is not bound yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function, and of those defined inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def global_names(code: types.CodeType) -> Iterator[str]:
    """Names that the code, or a function inside it, mentions: of globals and of attributes, which it does not tell apart."""
    return (name for each in _codes(code) for name in each.co_names)


def names_in(code: types.CodeType) -> frozenset[str]:
    """Those, and the texts in it that may be names, as in `getattr(holder, "model")`."""
    constants = (constant for each in _codes(code) for constant in each.co_consts)
    return frozenset(
        (*global_names(code), *(text for text in constants if isinstance(text, str) and text.isidentifier()))
    )


def globals_read(fn: types.FunctionType) -> set[str]:
    """Names of globals that a function, or one inside it, reads; those of builtins are left out."""
    known = fn.__builtins__ if isinstance(fn.__builtins__, dict) else vars(fn.__builtins__)
    steps = (step for code in _codes(fn.__code__) for step in dis.get_instructions(code))
    found = {step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return {name for name in found if name in fn.__globals__ or name not in known}


def names_set(code: types.CodeType) -> set[str]:
    """Attributes that the code sets: what it leaves on an object differs after each call, and is no setting."""
    return {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"}


# -- classes ----------------------------------------------------------------------------------------
dict_of: Callable[[type], Any] = type.__dict__["__dict__"].__get__
"""A view of the attributes of a class that follows it; that of a class of modules leaves out what is derived, and is a copy."""


def settings_of(kind: type) -> dict[str, Any]:
    """What a user's class has beside its methods."""
    return {
        name: value
        for base in reversed(kind.__mro__)
        if is_users(base)
        for name, value in vars(base).items()
        if not (name.startswith("__") or isinstance(value, _OF_CLASSES))
    }


def inherited(kind: type, name: str) -> Any:
    """What stands under a name in a class or in those above it, as attributes are looked up; None if nothing does."""
    return next((dict_of(base)[name] for base in kind.__mro__ if name in dict_of(base)), None)


class Inherited:
    """The names of a class and of those above it, read as from a dict."""

    __slots__ = ("kind",)

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def get(self, name: str) -> Any:
        return inherited(self.kind, name)


def methods_by(kind: type, names: Collection[str]) -> list[types.FunctionType]:
    """The methods and properties of a user's class by these names, and those that they name in turn."""
    own: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        own.update(dict_of(base) if is_users(base) else {})
    found: dict[str, types.FunctionType] = {}
    waiting = [name for name in own if name in names]
    while waiting:
        name = waiting.pop()
        fn = own[name]  # a proxy would answer any name
        fn = fn.fget if isinstance(fn, property) else fn.__func__ if isinstance(fn, (classmethod, staticmethod)) else fn
        if isinstance(fn, types.FunctionType) and name not in found:
            found[name] = fn
            waiting += [name for name in global_names(fn.__code__) if name in own]
    return list(found.values())
