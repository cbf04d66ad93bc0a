"""`@nb.jit` above a method of a plain class: the object it belongs to is part of the surroundings, as in a closure."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

import jax

from nbmodule.core.transforms.options import is_traceable


class Method:
    """A function with the object that it is called on, held weakly: who holds the compiled form does not keep the object."""

    def __init__(self, fn: Callable[..., Any], owner: object) -> None:
        self.__func__, self._owner = fn, weakref.ref(owner)
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)
        self.__qualname__, self.__doc__ = getattr(fn, "__qualname__", self.__name__), fn.__doc__
        self.__module__ = getattr(fn, "__module__", None)  # pyright: ignore[reportAttributeAccessIssue] - as functools.wraps does
        self.__signature__ = _without_self(fn)

    @property
    def __self__(self) -> Any:
        return self._owner()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        __tracebackhide__ = True
        return self.__func__(self._owner(), *args, **kwargs)


def _without_self(fn: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(fn)
    listed = list(signature.parameters.values())
    taken = listed[:1] and listed[0].kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    return signature.replace(parameters=listed[1:] if taken else listed)


class Methods:
    """The compiled forms of one method, one for each object, gone with it."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def of(self, owner: object, make: Callable[[], Any]) -> Any:
        """The compiled form for `owner`, made by `make` when it is first asked for."""
        known = self._known.get(id(owner))
        if known is not None and known[0]() is owner:
            return known[1]
        number, forms = id(owner), self._known
        forms[number] = weakref.ref(owner, lambda _: forms.pop(number, None)), make()
        return forms[number][1]


def is_given_class(fn: Callable[..., Any], given: tuple[Any, ...]) -> bool:
    """Whether `classmethod` put its class in front of these arguments of `fn`; since Python 3.13 it no longer asks `__get__` of `fn`."""
    if not given or not isinstance(given[0], type):
        return False
    members = [each for kind in given[0].__mro__ for each in list(vars(kind).values())]
    return any(isinstance(each, classmethod) and each.__func__ is fn for each in members)


def is_plain(owner: object) -> bool:
    """Whether an object stands for itself: it is no tree of arrays, nothing that is traced, and can be held weakly."""
    try:
        weakref.ref(owner)
    except TypeError:
        return False
    return jax.tree_util.all_leaves([owner]) and not is_traceable(owner)
