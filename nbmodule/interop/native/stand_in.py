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
from nbmodule.core.call.stages import observed
from nbmodule.core.recording import tracker
from nbmodule.core.variables.frame import now
from nbmodule.errors import ArgumentTypeError
from nbmodule.interop.frameworks import equinox, flax_linen, flax_nnx, haiku, keras
from nbmodule.interop.frameworks.function import Path
from nbmodule.interop.frameworks.interception import ModuleReporter
from nbmodule.interop.traced_calls import logged
from nbmodule.interop.wrapping import Wrapped, wrap

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
                local.watched[:] = [stand_in for stand_in in local.watched if stand_in is not self]

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
        return flax_linen.LinenReporter(model)
    if framework == "keras":
        return keras.KerasReporter(model)
    if framework == "haiku":
        return haiku.HaikuReporter()
    raise ArgumentTypeError(
        "nb.track follows a module, or an unconverted model of Flax, Equinox, Haiku, Keras or "
        f"PyTorch, got {type(model).__name__}. For any function, track the module that it calls."
    )
