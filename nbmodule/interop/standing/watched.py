"""`nb.track` and `nb.inspect` on a model of Flax, Equinox or Haiku as it stands.

A module of the same parts stands in for the foreign model: it is what the tracker follows, and each call that is seen is logged as a
call of the part with that path. Compiled code cannot be asked what happened inside it, so `jax.jit` is off while somebody watches, but
for functions that can be compiled once more with what is recorded among their outputs, see `compiled.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax

from nbmodule.base.answering import answering, can_answer
from nbmodule.core.boxes.frame import now
from nbmodule.core.boxes.record import CallInfo
from nbmodule.core.recording import tracker
from nbmodule.core.running.observing import observed
from nbmodule.errors import ArgumentTypeError
from nbmodule.interop.frameworks.function import Path
from nbmodule.interop.into import Wrapped, wrap
from nbmodule.interop.logged import logged
from nbmodule.interop.standing.compiled import CalledPart, Same, answer, local, meet, with_parts
from nbmodule.interop.standing.seen import standing


class StandIn:
    """A foreign model that is watched while a block runs.

    Attributes:
        module: Stands for the model; its paths are those of the model.
        ways: How compiled functions that were called have run, in sentences.
        signature: What models have in common of which a compiled function calls the same parts.
        identity: Which one of these it is.
    """

    module: Wrapped
    signature: Any = None
    identity: Any = None

    def __init__(self, model: object) -> None:
        self.model = model
        self._open: dict[object, None] = {}  # the blocks in which it is watched
        self._whole: Any = None  # for all of them
        self._entered: list[Generator[None, None, None]] = []
        self.ways: dict[str, None] = {}
        self._found: dict[
            int, tuple[Any, Any, Any]
        ] = {}  # calls of programs, with the parts of the models that are watched
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
        self.signature, self.identity = self.standing.signature, _identity(model)

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
                local.watched.append(self)
                yield
            finally:
                local.watched[:] = [other for other in local.watched if other is not self]

    @contextmanager
    def _seen(self) -> Iterator[None]:
        """Have the calls told while a block runs."""
        with ExitStack() as stack:
            if not jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
                if can_answer():
                    stack.enter_context(answering(answer))
                else:
                    self.ways[
                        f"JAX {jax.__version__} does not tell of calls of compiled functions: jax.jit was off"
                    ] = None
            stack.enter_context(jax.disable_jit())
            stack.enter_context(self.standing.watch(self.told))
            yield

    def told(
        self, path: Path, instance: object, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """One call of the model or of a submodule."""
        __tracebackhide__ = True
        part = self.module if not path else self.module._wiring.part(self.module, path, instance)
        if now.tracker is None or part is None:
            return run(*args, **kwargs)
        meet(self, part, path, type(instance).__name__, is_copy=self.standing.knows_copies)
        if tracker.is_captured() and local.tracing is None:
            return observed(part, lambda _, *args, **kwargs: run(*args, **kwargs), args, kwargs)
        return logged(part, run, args, kwargs)

    def expect(self, name: str) -> None:
        """Have a part that is not known before the model is applied, by its path; what stands above it too."""
        steps = tuple(name.split("."))
        for end in range(1, len(steps) + 1):
            if steps[:end] not in self.module._wiring.part_names:
                self.module._wiring.attach(self.module, steps[:end], "Module")

    def found(self, infos: tuple[CallInfo, ...], models: tuple[Any, ...]) -> tuple[CallInfo, ...]:
        """The calls of a program, as those of the parts of the models that are watched; the same object for the same ones."""
        known = self._found.get(id(infos))
        if known is None or known[0] is not infos or known[1] != models:
            known = self._found[id(infos)] = (infos, models, with_parts(infos, models, _part_at))
        return known[2]


def _part_at(stand_in: StandIn, place: CalledPart) -> Any:
    model = stand_in.module
    return model._wiring.part_of_kind(model, place.path, place.kind) if place.path else model


def _identity(model: object) -> Any:
    try:
        return Same(model)
    except TypeError:  # it cannot be referred to weakly: a pair of functions, which is nowhere known by itself
        return None
