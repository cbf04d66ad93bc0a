"""Trackers: the interface between the core, which meets the calls, and `calls`, which records them.

A tracker decides for each module whether its values are wanted, and which part of them is kept.
Calls are logged whole while any tracker is open; the values of a call are kept if any of the nested
trackers wants them.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.base.compiling import compiled_seconds
from nbmodule.base.format import describe_shape
from nbmodule.core.recording import taps
from nbmodule.core.variables.call_log import Log
from nbmodule.core.variables.frame import EAGER, current_log, gate, here, is_captured, now, slot_of

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import BareModule


@contextmanager
def untracked() -> Iterator[None]:
    """Let no tracker of this context see what runs."""
    before = now.tracker
    try:
        now.tracker = None
        yield
    finally:
        now.tracker = before


class BlockExit:
    """`__exit__` of a block that ends with the release of its lock.

    `with` fetches it when the block begins, and the release is one call into C: no interrupt can
    divide or forestall the end. Whether the block is open is asked of the lock.
    """

    def __get__(self, obj: Any, cls: object = None) -> Any:
        if obj is None:  # `contextlib.ExitStack` asks the class
            return lambda obj, *exc: obj.ending()(*exc)
        return obj.ending()


class TrackedBlock:
    """A `with` block with an open tracker, in which a model of another framework may be watched.

    Attributes:
        foreign: The watcher of such a model, or None.
    """

    foreign: Any
    _span: Any  # the lock that is held while the block runs
    _watching: Any = None  # the open watcher

    __exit__ = BlockExit()

    def ending(self) -> Any:
        """Return the function that ends the block.

        An interrupt may come before its first line. Only `with` refers to the function, so its
        finalizer closes the block in that case.
        """
        leave = functools.partial(self._leave)
        if not self._span.locked():  # it is about to be entered
            weakref.finalize(leave, self._close).atexit = False
        return leave

    def _leave(self, category: object, error: BaseException | None, trace: object) -> None:
        self._close()

    def _watch(self) -> None:
        """Begin to watch the foreign model, if there is one."""
        if self.foreign is not None:
            self._watching = self.foreign.watching()
            next(self._watching)

    def _close(self) -> None:
        """Close the block; a second call does nothing."""
        watching, self._watching = self._watching, None
        try:
            if watching is not None:
                watching.close()
        finally:
            if self._span.locked():
                self._span.release()


def wants_none(module: object) -> bool:
    """Keep the values of no module: for trackers of the order of calls, or of interventions."""
    return False


def keeps_nothing(module: object, inputs: object, outputs: object) -> dict[str, Any]:
    """Keep nothing of a call."""
    return {}


@dataclass(eq=False)
class Tracker:
    """One request to record.

    Args:
        wants: Return True if the values of a module's calls are to be kept.
        keep: Return the values to keep of a call (module, inputs, outputs), a dict of PyTrees. It
            must be a module-level function, since it runs while tracing and is part of the
            signature of compiled functions.
        key: Distinguishes this request from others, for the signature of compiled functions.
        changes: Interventions: for a module, or (module, name) of a tap, an object with
            `before(args, kwargs)`, which gives the arguments of its call, and
            `after(args, outputs)`, which gives its return. Those of nested trackers add up, the
            outermost first.
        keep_gradient: Return the values to keep of (gradient, `return` or `variables`), a dict of
            PyTrees; None if gradients are not recorded.
        keep_before: Return the values to keep of a module before it is called.
        timed: Whether eager calls are timed, which waits for their arrays.
        log: The calls of eager code.
        span: The lock that is held while the tracker is open.
        ready: Called with the arguments of an outermost compiled function before it runs; if it
            returns False, the function runs untracked. A tracker that is entered inside takes the
            place of such a tracker.
    """

    wants: Callable[[Any], bool]
    keep: Callable[..., dict[str, Any]]
    key: Hashable
    _: KW_ONLY
    changes: dict[Any, Any] = field(default_factory=dict)
    keep_gradient: Callable[[Any, str], dict[str, Any]] | None = None
    keep_before: Callable[[Any], dict[str, Any]] | None = None
    timed: bool = False
    log: Log = field(default_factory=Log)
    span: Any = field(default_factory=threading.Lock)
    ready: Callable[[Any, tuple[Any, ...], dict[str, Any]], bool] | None = None
    outer: Tracker | None = None

    __exit__ = BlockExit()

    def ending(self) -> Any:
        """Return the function that ends the block."""
        return self.span.__exit__

    @property
    def is_open(self) -> bool:
        """True if its block is still running."""
        return self.span.locked()

    def __enter__(self) -> Tracker:
        self.outer = now.tracker
        # A tracker that only looks on gives way to one that wants values.
        while self.outer is not None and self.outer.ready is not None:
            self.outer = self.outer.outer
        if self.outer is not None:
            self.key = (self.key, self.outer.key)
            self.timed = self.timed or self.outer.timed
            self.keep_gradient = self.keep_gradient or self.outer.keep_gradient
        self.thread = threading.get_ident()
        try:
            self.span.acquire()
            # Calls of modules ask for trackers only while the gate holds one.
            gate.open[self] = None
            now.tracker = self
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Close the tracker; a second call does nothing."""
        if self.span.locked():
            self.span.release()

    def around(self) -> Tracker | None:
        """Return the tracker around this one, of those that are still open."""
        tracker = self.outer
        while tracker is not None and not tracker.is_open:
            tracker = tracker.outer
        return tracker

    def chain(self) -> Iterator[Tracker]:
        """Yield this tracker and the open ones around it, the innermost first."""
        tracker: Tracker | None = self
        while tracker is not None:
            yield tracker
            tracker = tracker.around()

    def kept_by_any(self, module: BareModule) -> list[Tracker]:
        """Return the trackers, this one and those around it, that want the values of `module`."""
        return [tracker for tracker in self.chain() if tracker.wants(module)]

    def variables(self) -> list[Any]:
        """Return the variables that the interventions in force read, here and further out.

        A compiled function captures them through its tracker, which is part of its key.
        """
        return [
            variable
            for tracker in self.chain()
            for change in tracker.changes.values()
            for variable in getattr(change, "variables", ())
        ]

    def changes_of(self, location: Any) -> list[Any]:
        """Return the interventions on the calls of a module, or on a tap: the outermost first."""
        location = location if isinstance(location, tuple) else slot_of(location)()
        changes = [tracker.changes.get(location) for tracker in self.chain()]
        return [change for change in reversed(changes) if change is not None]

    def given(
        self, module: BareModule, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments that interventions give the call of `module` instead of these."""
        for change in self.changes_of(module):
            args, kwargs = change.before(args, kwargs)
        return args, kwargs

    def replaced(self, module: BareModule, args: tuple[Any, ...], outputs: object) -> Any:
        """Return the outputs that interventions give the call of `module` instead of these."""
        for change in self.changes_of(module):
            outputs = change.after(args, outputs)
        return self.tapped(module, outputs)

    def tapped(self, module: BareModule, outputs: object) -> Any:
        """Return the return, passed through taps if its gradient is asked for."""
        if is_captured() and any(
            tracker.keep_gradient is not None for tracker in self.kept_by_any(module)
        ):
            log: Any = current_log()
            outputs, log.values[log.open]["gradient"] = taps.tapped(outputs)
        return outputs

    def gradient_kept(self, gradient: object, of: str = "return") -> dict[str, Any]:
        """Return all that trackers keep of the gradient by one return, or (`of="variables"`) of a
        dict of gradients by variables.
        """
        result: dict[str, Any] = {}
        for tracker in self.chain():
            if tracker.keep_gradient is not None:
                result |= tracker.keep_gradient(gradient, of)
        return result


def nobody() -> None:
    """Return None: the slot of a record that belongs to no module."""


def begin(module: BareModule, inputs: tuple[Any, dict[str, Any]]) -> int:
    """Log that a call of `module` begins; returns its index in the current log."""
    log: Any = current_log()
    args, kwargs = inputs
    trackers = now.tracker.kept_by_any(module)
    index = log.begin(
        slot_of(module),
        describe_arguments(args, kwargs),
        name=type(module).__name__,
        kept=bool(trackers),
    )
    for tracker in trackers:
        if tracker.keep_before is not None and is_captured():
            log.values[index] |= tracker.keep_before(module)
    # JAX returns before arrays are computed: without waiting, a later call would be charged.
    if now.tracker.timed and here() == EAGER:
        jax.block_until_ready(inputs)
        log.values[index]["compiled"] = compiled_seconds()
        log.values[index]["start"] = time.perf_counter()
    return index


def end(
    index: int, module: BareModule, inputs: tuple[Any, dict[str, Any]] | None, outputs: object
) -> None:
    """Log that the call returned, or a value named by `nb.tap`, which has no inputs."""
    log: Any = current_log()
    values: dict[str, Any] = {}
    captured = is_captured()
    if captured:
        start = log.values[index].get("start")
        if start is not None:
            jax.block_until_ready(outputs)
            values["seconds"] = time.perf_counter() - start
            values["compiling"] = compiled_seconds() - log.values[index]["compiled"]
        for tracker in now.tracker.kept_by_any(module):
            values |= tracker.keep(module, inputs, outputs)
    log.end(index, describe(outputs), values, captured=captured)


def fail(index: int, error: BaseException) -> None:
    """Log that the call ended with an exception."""
    log: Any = current_log()
    first, *_ = f"{type(error).__name__}: {error}".splitlines()
    log.end(index, "", {}, error=first.removesuffix(": "))


def describe(tree: Any) -> str:
    """Return shapes of a PyTree's arrays in one line: `float32[2, 3]`, `(float32[2], int32[])`."""
    if isinstance(tree, dict):  # first, since a Container has the shapes of its leaves
        return "{" + ", ".join(f"{key}: {describe(value)}" for key, value in tree.items()) + "}"
    if hasattr(tree, "shape") and hasattr(tree, "dtype"):
        return describe_shape(tree)
    if isinstance(tree, (tuple, list)):
        inside = ", ".join(map(describe, tree))
        if isinstance(tree, list):
            return f"[{inside}]"
        return f"({inside},)" if len(tree) == 1 else f"({inside})"
    if tree is None or isinstance(tree, (bool, int, float, complex)):
        return repr(tree)
    if isinstance(tree, str):
        return repr(tree if len(tree) < 40 else tree[:36] + "...")
    # Flattening a module would draw its values.
    try:
        leaves = jax.tree.leaves(tree) if not hasattr(type(tree), "_is_module") else []
    except Exception:  # noqa: BLE001 - an object that refuses to be flattened is opaque
        leaves = []
    if not leaves or leaves[0] is tree:
        return type(tree).__name__
    return f"{type(tree).__name__}({', '.join(map(describe, leaves))})"


def describe_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the shapes of the arguments of a call in one line."""
    return ", ".join(
        [*map(describe, args), *(f"{name}={describe(value)}" for name, value in kwargs.items())]
    )
