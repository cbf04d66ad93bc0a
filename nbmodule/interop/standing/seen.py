"""Watch a foreign model as it stands, without converting it: which of its submodules is called, by path.

Each says by its `signature` what models have in common whose calls are told alike, and by `knows_copies` whether the call that is told
now was known as one of a copy of the model, or of whichever model is applied, and not as one of the very object that is watched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nbmodule.base.foreign import framework_of
from nbmodule.interop.frameworks import equinox, flax_nnx, haiku, keras
from nbmodule.interop.frameworks.function import Path, need
from nbmodule.interop.frameworks.interception import intercepted, owner_of

Told = Callable[[Path, Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Standing:
    """A model whose class defines calls: Equinox and NNX.

    Submodules are known by identity. A copy of the whole model, such as the framework's own transforms make of it, is known by its
    class and the paths of its modules; the copy's submodules are then known while it is called.
    """

    def __init__(self, model: object, modules_of: Callable[[Any], dict[Path, Any]]) -> None:
        self.model, self.modules_of = model, modules_of
        modules = modules_of(model)
        self.name, self.paths = type(model).__name__, frozenset(modules)
        self.parts: dict[Path, Any] = {
            path: type(module) for path, module in modules.items() if path and owner_of(type(module))
        }
        self.known = {id(module): path for path, module in reversed(list(modules.items()))}
        self.copies: list[tuple[Any, dict[int, Path]]] = []
        self.signature, self.knows_copies = (type(model), self.paths), False

    def path(self, instance: object) -> Path | None:
        self.knows_copies = True
        for _, known in reversed(self.copies):
            if id(instance) in known:
                return known[id(instance)]
        path = self.known.get(id(instance))
        self.knows_copies = path is None
        return path

    @contextmanager
    def watch(self, told: Told) -> Iterator[None]:
        def seen(instance: object, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            path = self.path(instance)
            if path is None and type(instance) is type(self.model):
                modules = self.modules_of(instance)
                if modules.keys() == self.paths:
                    depth = len(self.copies)
                    try:
                        self.copies.append((modules, {id(module): path for path, module in modules.items()}))
                        return told((), instance, run, args, kwargs)
                    finally:
                        del self.copies[depth:]
            return run(*args, **kwargs) if path is None else told(path, instance, run, args, kwargs)

        with intercepted({type(self.model), *self.parts.values()}, seen):
            yield


class StandingLinen:
    """A linen module: its submodules exist while it is applied, and are named then."""

    knows_copies = True

    def __init__(self, module: object) -> None:
        self.module, self.name, self.parts = module, type(module).__name__, {}
        self.signature = type(module)

    @contextmanager
    def watch(self, told: Told) -> Iterator[None]:
        thread, depth = threading.get_ident(), [0]

        def seen(following: Any, args: tuple[Any, ...], kwargs: dict[str, Any], context: Any) -> Any:
            path, is_call = tuple(context.module.path), context.method_name == "__call__"
            if not is_call or threading.get_ident() != thread:
                return following(*args, **kwargs)
            if not path and type(context.module) is not type(self.module):
                return following(*args, **kwargs)
            if path and not depth[0]:
                return following(*args, **kwargs)
            before = depth[0]
            try:
                depth[0] = before + 1
                return told(path, context.module, following, args, kwargs)
            finally:
                depth[0] = before

        with need("flax.linen", "nb.track of a Flax model").intercept_methods(seen):
            yield


class StandingHaiku:
    """A transformed function: its modules exist while it is applied. The function itself cannot be seen, its outermost modules can."""

    knows_copies, signature = True, "haiku"

    def __init__(self) -> None:
        self.name, self.parts = "Transformed", {}

    @contextmanager
    def watch(self, told: Told) -> Iterator[None]:
        thread = threading.get_ident()

        def seen(following: Any, args: tuple[Any, ...], kwargs: dict[str, Any], context: Any) -> Any:
            if context.method_name != "__call__" or threading.get_ident() != thread:
                return following(*args, **kwargs)
            return told(haiku.place_of(context.module.module_name), context.module, following, args, kwargs)

        with need("haiku", "nb.track of a Haiku model").intercept_methods(seen):
            yield


class StandingKeras:
    """A built Keras layer or model, whose layers hold their variables."""

    knows_copies = False

    def __init__(self, model: Any) -> None:
        function = keras.unpack(model, values=False)[0]
        self.model, self.name, self.parts = model, function.name, function.parts
        self.paths = {id(layer): path for path, layer in function.layers.values()}
        self.classes = {type(model), *(type(layer) for _, layer in function.layers.values())}
        self.signature = (type(model), frozenset(self.parts))

    @contextmanager
    def watch(self, told: Told) -> Iterator[None]:
        def seen(layer: object, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            path = () if layer is self.model else self.paths.get(id(layer))
            return run(*args, **kwargs) if path is None else told(path, layer, run, args, kwargs)

        with intercepted(self.classes, seen):
            yield


def standing(model: object) -> Any:
    """What watches a foreign model; None if it comes from no framework that can be watched."""
    kind = framework_of(model)
    if kind == "equinox":
        return Standing(model, equinox.modules_of)
    if kind == "flax_nnx":
        return Standing(model, flax_nnx.modules_of)
    if kind == "flax_linen":
        return StandingLinen(model)
    if kind == "keras":
        return StandingKeras(model)
    return StandingHaiku() if kind == "haiku" else None
