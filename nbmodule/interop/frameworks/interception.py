"""See the calls of submodules of a foreign model, while it runs, by putting a function around
`__call__` of their classes.

The classes are as they were once the last block is left. Only calls of known instances, in the
thread that opened the block, are told; all others go straight through.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from nbmodule.base.kinds import Args, Kwargs
from nbmodule.interop.frameworks.function import Around, Path

Told = Callable[[Any, Callable[..., Any], Args, Kwargs], Any]


class _Local(threading.local):
    def __init__(self) -> None:
        self.listeners: dict[object, Told] = {}  # by the block that has them, innermost last
        self.open: list[Any] = []  # instances whose calls are running


_local = _Local()
_lock = threading.Lock()
_known: dict[
    type, tuple[dict[object, None], Any]
] = {}  # the blocks that are open on a class, and what it had before


@contextmanager
def intercepted(classes: Iterable[type], told: Told) -> Iterator[None]:
    """While the block runs, `told(instance, run, args, kwargs)` is called in place of the instances
    of these classes.

    Args:
        classes: Classes whose instances are called.
        told: Returns what `run(*args, **kwargs)` returned.
    """
    owners = {owner for kind in classes if (owner := owner_of(kind)) is not None}
    block = object()
    try:
        try:
            for owner in owners:
                _enter(owner, block)
            _local.listeners[block] = told
            yield
        finally:
            _end(owners, block)
    finally:  # again: an interrupt may have come before the first time
        _end(owners, block)


def parts_told(parts: Iterable[tuple[Path, Any]], around: Around) -> AbstractContextManager[None]:
    """While the block runs, `around(path, module, run, args, kwargs)` is called in place of each of
    these modules.
    """
    known = {id(module): (path, module) for path, module in parts}

    def told(module: object, run: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        path, _ = known.get(id(module), (None, None))
        return run(*args, **kwargs) if path is None else around(path, module, run, args, kwargs)

    return intercepted({type(module) for _, module in known.values()}, told)


def _end(owners: Iterable[type], block: object) -> None:
    _local.listeners.pop(block, None)
    for owner in owners:
        _leave(owner, block)


def owner_of(kind: type) -> type | None:
    """The class that defines `__call__` for a class."""
    return next(
        (each for each in kind.__mro__ if "__call__" in vars(each) and each is not object), None
    )


def _enter(owner: type, block: object) -> None:
    with _lock:
        if owner in _known:
            _known[owner][0][block] = None
            return
        original = vars(owner)["__call__"]
        _known[owner] = ({block: None}, original)
        setattr(owner, "__call__", _around(original))  # noqa: B010 - attributes of classes of other packages


def _leave(owner: type, block: object) -> None:
    with _lock:
        blocks, original = _known.get(owner, ({}, None))
        blocks.pop(block, None)
        if owner in _known and not blocks:
            setattr(owner, "__call__", original)  # noqa: B010
            del _known[owner]


def _around(original: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, *args: object, **kwargs: object) -> Any:
        __tracebackhide__ = True
        run = original.__get__(self, type(self))
        if not _local.listeners or (
            _local.open and _local.open[-1] is self
        ):  # reached again through super()
            return run(*args, **kwargs)
        depth = len(_local.open)
        try:
            try:
                _local.open.append(self)
                return next(reversed(_local.listeners.values()))(self, run, args, kwargs)
            finally:
                del _local.open[depth:]
        finally:
            del _local.open[depth:]

    return call
