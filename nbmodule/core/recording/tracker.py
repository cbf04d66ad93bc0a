"""Who is recording, and what: the seam between the core, which meets the calls, and the room that
makes sense of them.

A tracker says for each module whether its values are wanted, and what is kept of them. Calls are
logged whole while any tracker is there; the values of a call are kept if any of the nested trackers
wants them.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.base.compiling import compiled_seconds
from nbmodule.base.format import describe_shape
from nbmodule.core.recording import taps
from nbmodule.core.variables.call_log import Log
from nbmodule.core.variables.frame import EAGER, current_log, gate, here, is_captured, now, slot_of

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull


@contextmanager
def untracked() -> Iterator[None]:
    """Let no tracker of this context see what runs."""
    before = now.tracker
    try:
        now.tracker = None
        yield
    finally:
        now.tracker = before


class Ending:
    """`__exit__` of what ends with the release of its lock: one call into C, which no interrupt can
    divide or forestall.

    Whether it is open, and what follows from that, is asked of the lock.
    """

    def __get__(self, obj: Any, cls: object = None) -> Any:
        if obj is not None:
            return obj.ending()
        result = _OfClass()
        _asked.ending = weakref.ref(result)
        return result


class _OfClass:
    """An `__exit__` that was asked of the class, as `contextlib.ExitStack` asks before it enters;
    then the stack alone holds it.
    """

    __slots__ = ("__weakref__", "close")

    def __init__(self) -> None:
        self.close: Callable[[], Any] = int

    def __call__(self, obj: Any, *exc: object) -> Any:
        try:
            return obj.ending()(*exc)
        finally:
            self.close()


class _Asked(threading.local):
    ending: Any = None
    """The last that was asked of a class."""


_asked = _Asked()


def over_with_its_stack(close: Callable[[], Any]) -> None:
    """Called when a block is about to begin: if an `ExitStack` enters it, `close()` follows when
    that holds its end no more.

    So nothing stays open where an interrupt comes after the block has begun and before the stack
    has noted its end. Where the interrupt is held by a cycle, as stacks make them, that is when
    Python collects it.
    """
    reference, _asked.ending = _asked.ending, None
    ending = None if reference is None else reference()
    if ending is not None:
        ending.close = close
        weakref.finalize(ending, close).atexit = False


def wants_none(module: object) -> bool:
    """Of a tracker to which only matters who calls whom, or what is changed: the values of no
    module are kept.
    """
    return False


def keeps_nothing(module: object, inputs: object, outputs: object) -> dict[str, Any]:
    """Likewise."""
    return {}


class Tracker:
    """One request to record.

    Args:
        wants: Whether the values of a module's calls are to be kept.
        keep: What is kept of a call, from (module, inputs, outputs): a dict of PyTrees. It must be
            a module-level function, since it runs while tracing and is part of the signature of
            compiled functions.
        key: What distinguishes this request from others, for the signature of compiled functions.
        replacements: Interventions: for a module, a function from its return to what it shall
            return instead.
        changes: Interventions of another kind, which add up: for a module, or (module, name) of a
            tap, what has `before(args, kwargs)`, which gives the arguments of its call, and
            `after(args, outputs)`, which gives its return.
        keep_gradient: What is kept, from (gradient, `return` or `variables`): a dict of PyTrees;
            None if gradients are not asked for.
        keep_before: What is kept of a module before it is called.
        timed: Whether eager calls are to be timed, which waits for their arrays.
        log: Where the calls of eager code are logged.
        span: The lock that is held while it is open; by default one of its own.
    """

    __slots__ = (
        "changes",
        "keep",
        "keep_before",
        "keep_gradient",
        "key",
        "log",
        "outer",
        "ready",
        "replacements",
        "span",
        "thread",
        "timed",
        "wants",
    )

    def __init__(
        self,
        wants: Callable[[Any], bool],
        keep: Callable[..., dict[str, Any]],
        key: Hashable,
        replacements: dict[Any, Callable[[Any], Any]] | None = None,
        *,
        changes: dict[Any, Any] | None = None,
        keep_gradient: Callable[[Any, str], dict[str, Any]] | None = None,
        keep_before: Callable[[Any], dict[str, Any]] | None = None,
        timed: bool = False,
        log: Log | None = None,
        span: Any = None,
    ) -> None:
        self.wants, self.keep, self.replacements = wants, keep, replacements or {}
        self.changes = changes or {}
        # Part of the signature of compiled functions: another request needs another program.
        self.key: Hashable = key
        self.keep_gradient, self.keep_before, self.timed = keep_gradient, keep_before, timed
        self.log = Log() if log is None else log
        self.ready: Callable[[Any, tuple[Any, ...], dict[str, Any]], bool] | None = None
        """Called with the arguments of an outermost compiled function before it runs.

        If it returns False, the function runs untracked. A tracker that is entered inside takes
        the place of such a tracker.
        """
        self.outer: Tracker | None = None
        self.span = threading.Lock() if span is None else span

    __exit__ = Ending()

    def ending(self) -> Any:
        """What ends it."""
        return self.span.__exit__

    @property
    def is_open(self) -> bool:
        """Whether its block is still running."""
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
        over_with_its_stack(self.close)
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
        """End it; again is fine."""
        if self.span.locked():
            self.span.release()

    def around(self) -> Tracker | None:
        """Return the tracker around this one, of those that are still open."""
        tracker = self.outer
        while tracker is not None and not tracker.is_open:
            tracker = tracker.outer
        return tracker

    def kept_by_any(self, module: Hull) -> list[Tracker]:
        """Return the trackers, this one and those around it, that want the values of `module`."""
        result, tracker = [], self
        while tracker is not None:
            if tracker.wants(module):
                result.append(tracker)
            tracker = tracker.around()
        return result

    def variables(self) -> list[Any]:
        """Return the variables that the interventions in force read, here and further out.

        A compiled function captures them through its tracker, which is part of its key.
        """
        variables: list[Any] = []
        tracker: Tracker | None = self
        while tracker is not None:
            for change in (*tracker.replacements.values(), *tracker.changes.values()):
                variables += getattr(change, "variables", ())
            tracker = tracker.around()
        return variables

    def replaces(self, module: Hull) -> bool:
        """Return True if an intervention changes what `module` returns."""
        tracker: Tracker | None = self
        while tracker is not None and module not in tracker.replacements:
            tracker = tracker.around()
        return tracker is not None or bool(self.changes_of(module))

    def changes_of(self, location: Any) -> list[Any]:
        """What changes the calls of a module, or a tap: the outermost first."""
        location = location if isinstance(location, tuple) else slot_of(location)()
        result, tracker = [], self
        while tracker is not None:
            if location in tracker.changes:
                result.append(tracker.changes[location])
            tracker = tracker.around()
        return result[::-1]

    def given(
        self, module: Hull, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the call of `module` is to be given instead of these arguments."""
        for change in self.changes_of(module):
            args, kwargs = change.before(args, kwargs)
        return args, kwargs

    def replaced(self, module: Hull, args: tuple[Any, ...], outputs: object) -> Any:
        """What the call of `module` is to return instead of `outputs`: the innermost intervention
        decides.
        """
        tracker: Tracker | None = self
        while tracker is not None:
            if tracker.replacements and (replaced := slot_of(module)()) in tracker.replacements:
                outputs = tracker.replacements[replaced](outputs)
                break
            tracker = tracker.around()
        for change in self.changes_of(module):
            outputs = change.after(args, outputs)
        return self.tapped(module, outputs)

    def tapped(self, module: Hull, outputs: object) -> Any:
        """Return the return, passed through taps if its gradient is asked for."""
        if is_captured() and any(
            tracker.keep_gradient is not None for tracker in self.kept_by_any(module)
        ):
            log: Any = current_log()
            outputs, log.values[log.open]["gradient"] = taps.tapped(outputs)
        return outputs

    def gradient_kept(self, gradient: object, of: str = "return") -> dict[str, Any]:
        """What all trackers keep of the gradient by one return, or (`of="variables"`) by variables,
        a dict by name.
        """
        result: dict[str, Any] = {}
        tracker: Tracker | None = self
        while tracker is not None:
            if tracker.keep_gradient is not None:
                result |= tracker.keep_gradient(gradient, of)
            tracker = tracker.around()
        return result


def nobody() -> None:
    """Stands for the module where a record belongs to none."""


def begin(module: Hull, inputs: tuple[Any, dict[str, Any]]) -> int:
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


def end(index: int, module: Hull, inputs: tuple[Any, dict[str, Any]], outputs: object) -> None:
    """Log that the call returned."""
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
    first = str(error).splitlines()[0] if str(error) else ""
    log: Any = current_log()
    log.end(
        index, "", {}, error=f"{type(error).__name__}: {first}" if first else type(error).__name__
    )


def describe(tree: Any) -> str:
    """Return shapes of a PyTree's arrays in one line: `float32[2, 3]`, `(float32[2], int32[])`."""
    if isinstance(tree, dict):  # first, since a Container has the shapes of its leaves
        return "{" + ", ".join(f"{key}: {describe(value)}" for key, value in tree.items()) + "}"
    if hasattr(tree, "shape") and hasattr(tree, "dtype"):
        return describe_shape(tree)
    if isinstance(tree, (tuple, list)):
        inside = ", ".join(map(describe, tree))
        return (
            f"[{inside}]"
            if isinstance(tree, list)
            else f"({inside}{',' if len(tree) == 1 else ''})"
        )
    if tree is None or isinstance(tree, (bool, int, float, complex)):
        return repr(tree)
    if isinstance(tree, str):
        return repr(tree if len(tree) < 40 else tree[:36] + "...")
    # Flattening a module would draw its values.
    try:
        leaves = jax.tree.leaves(tree) if not hasattr(type(tree), "_is_module") else []
    except Exception:  # noqa: BLE001 - an object that refuses to be flattened is opaque
        leaves = []
    return (
        f"{type(tree).__name__}({', '.join(map(describe, leaves))})"
        if leaves and leaves[0] is not tree
        else type(tree).__name__
    )


def describe_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Arguments of a call in one line, by shape."""
    return ", ".join(
        [*map(describe, args), *(f"{name}={describe(value)}" for name, value in kwargs.items())]
    )
