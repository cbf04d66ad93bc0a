"""`nb.track` and `nb.inspect` on a model of Flax, Equinox or Haiku as it stands.

A module of the same parts stands in for the foreign model: it is what the tracker follows, and each call that is seen is logged as a
call of the part with that path.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from nbmodule.base.foreign import framework_of
from nbmodule.core.boxes.frame import now
from nbmodule.core.recording import tracker
from nbmodule.core.running.observing import observed
from nbmodule.errors import ArgumentTypeError
from nbmodule.interop.frameworks.function import Path
from nbmodule.interop.into import Wrapped, wrap
from nbmodule.interop.logged import logged
from nbmodule.interop.standing.seen import standing


class _Local(threading.local):
    def __init__(self) -> None:
        self.watched: list[StandIn] = []  # what is open in this thread


_local = _Local()


def watched(model: object) -> StandIn:
    """What watches a model: one for all who do so at the same time, since paths are those of its stand-in."""
    known = next((known for known in _local.watched if known.model is model), None)
    if known is not None:
        return known
    if framework_of(model) == "torch":
        from nbmodule.interop.torch_standing.watching import WatchedTorch

        return WatchedTorch(model)
    return StandIn(model)


class StandIn:
    """A foreign model that is watched while a block runs.

    Attributes:
        module: Stands for the model; its paths are those of the model.
    """

    module: Wrapped

    def __init__(self, model: object) -> None:
        self.model = model
        self._open: dict[object, None] = {}  # the blocks in which it is watched
        self._whole: Any = None  # for all of them
        self._entered: list[Generator[None, None, None]] = []
        self._prepare(model)

    def _prepare(self, model: object) -> None:
        """Find the parts of the model."""
        self.standing = standing(model)
        if self.standing is None:
            raise ArgumentTypeError(
                f"nb.track follows a module, or a model of Flax, Equinox, Haiku, Keras or PyTorch as it stands; found {type(model).__name__}. "
                "For any function, track the module that it calls."
            )
        self.module = wrap(self.standing, {})

    def watching(self) -> Generator[None, None, None]:
        """A generator: from its `next` on the model is watched, until it is closed, or nobody holds it any more."""
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
        with self._seen():
            try:
                _local.watched.append(self)
                yield
            finally:
                _local.watched[:] = [other for other in _local.watched if other is not self]

    @contextmanager
    def _seen(self) -> Iterator[None]:
        """Have the calls told while a block runs."""
        with jax.disable_jit(), self.standing.watch(self.told):
            yield

    def told(
        self, path: Path, instance: object, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """One call of the model or of a submodule."""
        __tracebackhide__ = True
        part = self.module if not path else self.module._wiring.part(self.module, path, instance)
        if now.tracker is None or part is None:
            return run(*args, **kwargs)
        if tracker.is_captured():
            return observed(part, lambda _, *args, **kwargs: run(*args, **kwargs), args, kwargs)
        return logged(part, run, args, kwargs)
