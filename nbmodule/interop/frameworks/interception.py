"""Report the calls of a foreign model and its submodules by wrapping `__call__` of their classes.

The classes are restored when the last block ends. Only calls of instances of the model, in the
thread that opened the block, are reported.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.core
import jax.numpy as jnp

from nbmodule.base.kinds import Args, Kwargs
from nbmodule.core.variables.traceback import shortened
from nbmodule.interop.frameworks.function import Around, Path, Run, text_of

Report = Callable[[Any, Run, Args, Kwargs], Any]


class _Local(threading.local):
    def __init__(self) -> None:
        self.listeners: dict[object, Report] = {}  # by the block that has them, innermost last
        self.open: list[Any] = []  # instances whose calls are running


_local = _Local()
_lock = threading.Lock()
_open: dict[object, set[type]] = {}  # the classes of each open block
_originals: dict[type, Any] = {}  # the methods of the classes that are wrapped


@contextmanager
def intercepted(classes: Iterable[type], report: Report) -> Iterator[None]:
    """While the block runs, `report(instance, run, args, kwargs)` is called in place of the
    instances of these classes.

    Args:
        classes: Classes whose instances are called.
        report: Returns what `run(*args, **kwargs)` returned.
    """
    owners = {owner for called_class in classes if (owner := owner_of(called_class)) is not None}
    block = object()
    try:
        try:
            _wrap_classes(block, owners)
            _local.listeners[block] = report
            yield
        finally:
            _end(block)
    finally:  # again: an interrupt may have come before the first time
        _end(block)


@contextmanager
def reported_modules(
    model: object, modules_of: Callable[[Any], dict[Path, Any]], report: Around
) -> Iterator[set[str]]:
    """Report calls of an Equinox or NNX model, whose classes define `__call__`, in a block.

    Submodules are known by identity. A framework's transforms call copies of the whole model; a
    copy is known by its class and the paths of its modules, its submodules while it is called.

    Yields:
        Paths of the parts whose class was called on an object outside of the model, as `lax.scan`
        over stacked layers does.
    """
    own = modules_of(model)
    parts = callable_parts(own)
    # Paths by identity: of the model, then of each copy whose call is running.
    known = [{id(module): path for path, module in reversed(list(own.items()))}]
    depth, copied = 0, set[str]()  # calls of the model that are running

    def called(instance: object, run: Run, args: Args, kwargs: Kwargs) -> Any:
        nonlocal depth
        count = len(known)
        path = next(
            (paths[id(instance)] for paths in reversed(known) if id(instance) in paths), None
        )
        if path is None and type(instance) is type(model):
            modules = modules_of(instance)
            if modules.keys() == own.keys():
                path = ()
                known.append({id(module): at for at, module in modules.items()})
        if path is None:
            if depth:
                copied.update(text_of(p) for p, cls in parts.items() if cls is type(instance))
            return run(*args, **kwargs)
        depth += 1
        try:
            return report(path, instance, run, args, kwargs)
        finally:
            del known[count:]
            depth -= 1

    with intercepted({type(model), *parts.values()}, called):
        yield copied


def callable_parts(modules: dict[Path, Any]) -> dict[Path, Any]:
    """Return the classes of the submodules that can be called, by path."""
    return {
        path: type(module) for path, module in modules.items() if path and owner_of(type(module))
    }


def _end(block: object) -> None:
    _local.listeners.pop(block, None)
    _wrap_classes(block, set())


def owner_of(called_class: type) -> type | None:
    """The class that defines `__call__` for a class."""
    bases = called_class.__mro__
    return next((base for base in bases if "__call__" in vars(base) and base is not object), None)


def _wrap_classes(block: object, owners: set[type]) -> None:
    """Wrap `__call__` of the classes of all open blocks, and restore it in other classes."""
    with _lock:
        _open[block] = owners
        if not owners:
            del _open[block]
        needed = set[type]().union(*_open.values())
        # Attributes of classes of other packages
        for owner in needed - _originals.keys():
            original = _originals[owner] = vars(owner)["__call__"]
            setattr(owner, "__call__", _around(original))  # noqa: B010
        for owner in _originals.keys() - needed:
            setattr(owner, "__call__", _originals[owner])  # noqa: B010
            del _originals[owner]


def _around(original: Any) -> Callable[..., Any]:
    @shortened
    @functools.wraps(original)
    def call(self: Any, *args: object, **kwargs: object) -> Any:
        run = original.__get__(self, type(self))
        is_super = bool(_local.open) and _local.open[-1] is self  # reached again through super()
        if not _local.listeners or is_super:
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


# -- arrays behind traced values --
@contextmanager
def eager_arrays() -> Iterator[None]:
    """Compute with concrete arrays at once, whatever JAX traces outside."""
    with jax.ensure_compile_time_eval(), jax.disable_jit(False):
        yield


def concrete(tree: object) -> tuple[Any, tuple[str, ...]] | None:
    """Return a PyTree with the arrays behind its traced values, and the transforms that stacked
    them; None if these are unknown.
    """
    lifted: list[str] = []
    try:
        with eager_arrays():
            arrays = jax.tree.map(lambda leaf: _concrete(leaf, lifted), tree)
    except Exception:  # noqa: BLE001 - an object that refuses to be flattened is not recorded
        return None
    return arrays, tuple(dict.fromkeys(lifted))


def _concrete(leaf: Any, lifted: list[str]) -> Any:
    rows: list[int] = []
    while isinstance(leaf, jax.core.Tracer):
        if hasattr(leaf, "batch_dim"):
            if leaf.batch_dim is not None:
                rows.append(operator.index(leaf.batch_dim))  # pyright: ignore
            leaf = leaf.val
        else:
            leaf = leaf.primal  # an error where there is none, since the array is not known
    for position, axis in enumerate(reversed(rows)):
        leaf = jnp.moveaxis(leaf, position + axis, position)
    if rows:
        lifted.extend(f"vmap {leaf.shape[i]}" for i in reversed(range(len(rows))))
    return leaf
