"""Track unconverted models of Flax, Equinox, Haiku and Keras while they run.

A module with the same parts stands for the model in the tracker: each call that a framework reports
is logged as a call of the part at its path. Compiled programs report nothing, so `jax.jit` is off
while a model is tracked; a step then takes as long as it does uncompiled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import jax.core

from nbmodule.base.foreign import framework_of
from nbmodule.core.call.scopes import observed
from nbmodule.core.recording import tracker
from nbmodule.core.variables.frame import now
from nbmodule.errors import ArgumentTypeError
from nbmodule.interop.frameworks import equinox, flax_nnx, haiku, keras
from nbmodule.interop.frameworks.function import Path, need, text_of
from nbmodule.interop.frameworks.interception import intercepted, owner_of
from nbmodule.interop.traced_calls import concrete, logged
from nbmodule.interop.wrapping import Wrapped, wrap

Report = Callable[[Path, Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
EAGER_NOTE = "functions compiled by jax.jit ran uncompiled while the model was tracked"


class _Local(threading.local):
    def __init__(self) -> None:
        self.watched: list[Any] = []  # stand-ins that are open in this thread


local = _Local()


class StandIn:
    """A foreign model that is tracked while a block runs.

    Attributes:
        module: Stands for the model; its paths are those of the model.
        notes: Sentences about how the calls were recorded, as keys.
    """

    module: Wrapped

    def __init__(self, model: object) -> None:
        self.model = model
        self._open: dict[object, None] = {}  # the blocks in which it is tracked
        self._whole: Any = None  # for all of them
        self._entered: list[Generator[None, None, None]] = []
        self.notes: dict[str, None] = {}
        self._prepare(model)

    def _prepare(self, model: object) -> None:
        """Find the parts of the model."""
        self.reporter = reporter_of(model)
        self.module = wrap(self.reporter, {})

    def watching(self) -> Generator[None, None, None]:
        """Track the model from the generator's `next` until it is closed or collected."""
        block = object()
        try:
            try:
                self._open[block] = None
                if self._whole is None:
                    self._whole = self._watch()
                    next(self._whole)
                yield
            finally:
                self._end(block)
        finally:  # see `frame.calling`
            self._end(block)

    def __enter__(self) -> StandIn:
        watching = self.watching()
        next(watching)
        self._entered.append(watching)
        return self

    def __exit__(self, *exc: object) -> None:
        self._entered.pop().close()

    def _end(self, block: object) -> None:
        self._open.pop(block, None)
        if not self._open and self._whole is not None:
            self._whole.close()
            self._whole = None

    def _watch(self) -> Iterator[None]:
        with self._reporting():
            try:
                local.watched.append(self)
                yield
            finally:
                local.watched[:] = [other for other in local.watched if other is not self]

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Report calls while a block runs."""
        with ExitStack() as stack:
            if not jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
                self.notes[EAGER_NOTE] = None
            stack.enter_context(jax.disable_jit())
            stack.enter_context(self.reporter.watch(self._call))
            yield

    def _call(
        self,
        path: Path,
        instance: object,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run and log one call of the model or of a submodule."""
        __tracebackhide__ = True
        part = self.module if not path else self.module._wiring.part(self.module, path, instance)
        if now.tracker is None or part is None:
            return run(*args, **kwargs)
        if tracker.is_captured():
            return observed(part, lambda _, *args, **kwargs: run(*args, **kwargs), args, kwargs)
        return logged(part, run, args, kwargs)

    def expect(self, name: str) -> None:
        """Add a part that is not known before the model is applied, and all parts above it."""
        steps = tuple(name.split("."))
        for end in range(1, len(steps) + 1):
            if steps[:end] not in self.module._wiring.part_names:
                self.module._wiring.attach(self.module, steps[:end], "Module")


# -- one reporter for each framework --
class ModuleReporter:
    """Reports calls of Equinox and NNX models, whose classes define `__call__`.

    Submodules are known by identity. A framework's transforms call copies of the whole model; a
    copy is known by its class and the paths of its modules, its submodules while it is called.
    """

    def __init__(self, model: object, modules_of: Callable[[Any], dict[Path, Any]]) -> None:
        self.model, self.modules_of = model, modules_of
        modules = modules_of(model)
        self.name, self.paths = type(model).__name__, frozenset(modules)
        self.parts: dict[Path, Any] = {
            path: type(module)
            for path, module in modules.items()
            if path and owner_of(type(module))
        }
        self.known = {id(module): path for path, module in reversed(list(modules.items()))}
        self.copies: list[tuple[Any, dict[int, Path]]] = []
        self.depth = 0  # calls of the model that are running
        # Parts whose class was called on an object that is no part of the model, as `lax.scan` over
        # stacked layers does.
        self.copied: dict[str, None] = {}

    def path(self, instance: object) -> Path | None:
        for _, known in reversed(self.copies):
            if id(instance) in known:
                return known[id(instance)]
        return self.known.get(id(instance))

    @contextmanager
    def watch(self, report: Report) -> Iterator[None]:
        def called(
            instance: object, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            path = self.path(instance)
            if path is None and type(instance) is type(self.model):
                modules = self.modules_of(instance)
                if modules.keys() == self.paths:
                    depth = len(self.copies)
                    known = {id(module): path for path, module in modules.items()}
                    try:
                        self.copies.append((modules, known))
                        return report((), instance, run, args, kwargs)
                    finally:
                        del self.copies[depth:]
            if path is None:
                if self.depth:
                    names = [text_of(p) for p, cls in self.parts.items() if cls is type(instance)]
                    self.copied |= dict.fromkeys(names)
                return run(*args, **kwargs)
            self.depth += 1
            try:
                return report(path, instance, run, args, kwargs)
            finally:
                self.depth -= 1

        with intercepted({type(self.model), *self.parts.values()}, called):
            yield


class LinenReporter:
    """Reports calls of a linen module; submodules exist, and have names, while it is applied."""

    def __init__(self, module: object) -> None:
        self.module, self.name, self.parts = module, type(module).__name__, {}

    @contextmanager
    def watch(self, report: Report) -> Iterator[None]:
        thread, depth = threading.get_ident(), [0]

        def called(run: Any, args: tuple[Any, ...], kwargs: dict[str, Any], context: Any) -> Any:
            path = tuple(context.module.path)
            is_of_model = bool(depth[0]) if path else type(context.module) is type(self.module)
            is_entry = not path and context.method_name not in ("setup", "__post_init__")
            if threading.get_ident() != thread or not is_of_model:
                return run(*args, **kwargs)
            before = depth[0]
            try:
                depth[0] = before + (context.method_name == "__call__" or is_entry)
                if context.method_name != "__call__":
                    return run(*args, **kwargs)
                return report(path, context.module, run, args, kwargs)
            finally:
                depth[0] = before

        with need("flax.linen", "nb.track of a Flax model").intercept_methods(called):
            yield


class HaikuReporter:
    """Reports calls of the modules of a transformed function; the function itself is not seen."""

    def __init__(self) -> None:
        self.name, self.parts = "Transformed", {}

    @contextmanager
    def watch(self, report: Report) -> Iterator[None]:
        thread = threading.get_ident()

        def called(run: Any, args: tuple[Any, ...], kwargs: dict[str, Any], context: Any) -> Any:
            if context.method_name != "__call__" or threading.get_ident() != thread:
                return run(*args, **kwargs)
            path = haiku.place_of(context.module.module_name)
            return report(path, context.module, run, args, kwargs)

        with need("haiku", "nb.track of a Haiku model").intercept_methods(called):
            yield


class KerasReporter:
    """Reports calls of a built Keras layer or model."""

    def __init__(self, model: Any) -> None:
        function = keras.unpack(model, values=False)[0]
        self.model, self.name, self.parts = model, function.name, function.parts
        self.paths = {id(layer): path for path, layer in function.layers.values()}
        self.classes = {type(model), *(type(layer) for _, layer in function.layers.values())}

    @contextmanager
    def watch(self, report: Report) -> Iterator[None]:
        def called(
            layer: object, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            path = () if layer is self.model else self.paths.get(id(layer))
            if path is None or _is_symbolic(args, kwargs):
                return run(*args, **kwargs)
            return report(path, layer, run, args, kwargs)

        with intercepted(self.classes, called):
            yield


def _is_symbolic(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True for a call in which Keras only works out shapes: it has no values."""
    leaves = jax.tree.leaves((args, kwargs))
    return any(type(leaf).__name__ == "KerasTensor" for leaf in leaves) or any(
        isinstance(leaf, jax.core.Tracer) and concrete(leaf) is None for leaf in leaves
    )


def reporter_of(model: object) -> Any:
    """Return what reports the calls of a foreign model.

    Raises:
        ArgumentTypeError: It comes from no framework that can be tracked.
    """
    framework = framework_of(model)
    if framework == "equinox":
        return ModuleReporter(model, equinox.modules_of)
    if framework == "flax_nnx":
        return ModuleReporter(model, flax_nnx.modules_of)
    if framework == "flax_linen":
        return LinenReporter(model)
    if framework == "keras":
        return KerasReporter(model)
    if framework == "haiku":
        return HaikuReporter()
    raise ArgumentTypeError(
        "nb.track follows a module, or an unconverted model of Flax, Equinox, Haiku, Keras or PyTorch, "
        f"got {type(model).__name__}. For any function, track the module that it calls."
    )
