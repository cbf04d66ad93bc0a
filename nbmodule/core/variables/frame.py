"""The one effect mechanism: a frame maps boxes to values while a function runs.

A box reads through the frames of its thread from the innermost outwards and writes into the
innermost. When the function ends, the frame's writes and records leave it as one PyTree node,
`Effects`, whose static part names them, and are repeated in the frame outside; with no frame left
they reach the boxes. So `v=`, the transforms, BatchNorm's statistics, random streams and tracking
are all carried out in one way.

Four marks keep this honest:

* a *wall* (the frame of `jit`): a box that is absent there must become an input, so reading it
  raises `Missed`;
* the *trace* a frame was opened in: a write from another trace could not come out and is refused;
* the *token*, part of JAX's cache keys: a raw `jax.jit` inside never reuses a trace that holds an
  older value. It also sets aside JAX's caches for every other function, so a frame outside of `jit`
  takes one only if a box turns out to be read in an inner trace (`Unguarded`);
* the *home* of a box that was born inside a trace: it is local there, read and written in place.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any

import jax
import jax.core

from nbmodule.base.jax_names import (
    check_jax,
    here,
    is_eager,
    is_jit_being_traced,
    is_only_looked_at,
    make_user_context,
)
from nbmodule.base.sockets import socket
from nbmodule.core.variables.call_log import Log, uncaptured
from nbmodule.core.variables.commit import NOTHING, Also, commit
from nbmodule.core.variables.traceback import level_of_user_code
from nbmodule.errors import TracerLeakError

if TYPE_CHECKING:
    from nbmodule.core.variables.variable import Variable


EAGER = check_jax()
_token = make_user_context(None)
_tickets = count(1)


class _Gate:
    """The frames and trackers that are open in all threads: while there is none, nobody needs to
    ask for their own.
    """

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: dict[Any, None] = {}

    def settle(self) -> None:
        """Let go of what has ended."""
        for obj in list(self.open):
            if not obj.is_open:
                self.open.pop(obj, None)

    def __reduce__(self) -> str:
        return "gate"


gate = _Gate()


_tracker: ContextVar[Any] = ContextVar("nbmodule_tracker", default=None)


class Now(threading.local):
    """What is going on in this thread, and in this context.

    A tracker may stay open while a task waits, so it belongs to the context, where other tasks do
    not see it. A frame is open while one function runs, which never waits, and belongs to the
    thread as JAX's own traces do.
    """

    frame: Frame | None = None
    taps: Any = None  # who gives the zeros for gradients by returns, see `taps.py`
    outside = False  # a module from outside of all traces is being built
    # while a model is looked at: a module is handed to it before it builds or is first called
    keep: Any = None
    cold: Any = None  # the program that may be traced, see `transforms/program.py`
    lent: list[Any] | None = None  # modules whose `v` was read while variables are being created

    def __init__(self) -> None:
        self.stack: list[Any] = []  # modules whose calls (or reads of `v`) are open on the long way
        self.counts: list[
            dict[str, int]
        ] = []  # for each of them, how often it has called each name
        self.programs: list[
            Any
        ] = []  # compiled functions that are being called, see `transforms/program.py`

    def __reduce__(self) -> str:
        """Pickle by name: there is one, also where cloudpickle copies a function."""
        return "now"

    @property
    def tracker(self) -> Any:
        """What is to be recorded, see `tracker.py`: the innermost tracker of this context that is
        still open, in its thread.
        """
        tracker = _tracker.get()
        if tracker is None:
            if gate.open:
                gate.settle()
            return None
        if not tracker.is_open:
            gate.settle()
            tracker = tracker.around()
            _tracker.set(tracker)
        return tracker if tracker is not None and tracker.thread == threading.get_ident() else None

    @tracker.setter
    def tracker(self, tracker: object) -> None:
        _tracker.set(tracker)

    @property
    def guarded(self) -> bool:
        """Whether the innermost frame has a token."""
        return self.frame is not None and self.frame.guarded

    @property
    def busy(self) -> bool:
        """Whether a frame or a tracker is there: calls of modules take the long way."""
        return self.frame is not None or self.tracker is not None


now = Now()


def let_go() -> None:
    """Hold the trackers that have ended no longer, with the interventions in them: they may have
    come from a trace that ends now.
    """
    if _tracker.get() is not None:
        _ = now.tracker  # who asks for it leaves behind what has ended


@contextmanager
def calling(module: object) -> Iterator[None]:
    """While a call of `module`, or a read of its variables, is open on the long way.

    What is put back is put back twice, here and wherever else this thread's notes are changed for a
    while: an interrupt may come before the first time, and the second is there for that.
    """
    depth = len(now.stack)
    try:
        try:
            now.stack.append(module)
            now.counts.append({})
            yield
        finally:
            del now.stack[depth:], now.counts[depth:]
    finally:
        del now.stack[depth:], now.counts[depth:]


class Missed(BaseException):
    """A box was read behind a wall without having been an input.

    Only the call that owns the frame catches it.
    """

    def __init__(self, box: Variable, frame: Frame, modules: Iterable[Any] = ()) -> None:
        super().__init__("a variable was met that is not yet an input")
        self.variable, self.frame, self.modules = box, frame, tuple(modules)


class Unguarded(BaseException):
    """A box was read in an inner trace, in a frame without a token.

    The frame is entered again, with one.
    """

    def __init__(self, frame: Frame) -> None:
        super().__init__("a frame needs a token")
        self.frame = frame


class Slot:
    """The name of a box, or of a module, in static data: compared by identity, and weak, so that no
    cache keeps it.
    """

    __slots__ = ("_ref",)

    def __init__(self, obj: object) -> None:
        self._ref = weakref.ref(obj)

    def __call__(self) -> Any:
        return self._ref()


def slot_of(module: Any) -> Slot:
    """Return the weak name of a module in static data."""
    inner = module._nbm
    if inner.slot is None:
        inner.slot = Slot(module)
    return inner.slot


class Home:
    """Where a box was born inside a trace; the frame by its name, so that a box that outlives it
    keeps nothing that was traced.
    """

    __slots__ = ("frame", "trace")

    def __init__(self, frame: Frame | None, trace: object) -> None:
        self.frame, self.trace = None if frame is None else frame.name, trace


def birthplace() -> Home | None:
    """Return the home of a box made now; None outside of traces.

    Under `jax.disable_jit` nothing is traced, and the frame alone tells.
    """
    trace = here()
    if trace == EAGER and (now.frame is None or not jax.config.jax_disable_jit):  # pyright: ignore
        return None
    return Home(now.frame, trace)


class Effects:
    """Writes and records on their way out of a transformed function: arrays, with static names."""

    __slots__ = ("names", "records", "values")

    def __init__(self, names: tuple[Any, tuple[Any, ...]], values: list[Any], records: Any) -> None:
        self.names, self.values, self.records = names, values, records


jax.tree_util.register_pytree_node(
    Effects, lambda e: ((e.values, e.records), e.names), lambda names, parts: Effects(names, *parts)
)


class Frame:
    """Values of boxes, writes and records while one function runs."""

    is_open = True  # until it is closed, when it leaves the gate

    __slots__ = (
        "__weakref__",
        "_context",
        "axes",
        "base",
        "closing",
        "guarded",
        "log",
        "name",
        "outside",
        "seen",
        "touched",
        "trace",
        "values",
        "views",
        "wall",
        "written",
    )

    def __init__(
        self,
        values: Iterable[tuple[Variable, Any]] = (),
        *,
        wall: bool = False,
        log: Log | None = None,
        guarded: bool = False,
    ) -> None:
        self.name = object()  # what a `Home` knows it by
        self.values: dict[Variable, Any] = dict(values)
        self.wall, self.guarded = wall, guarded
        self.axes: tuple[Any, ...] = ()  # mapped axes over which random streams are split
        self.log = Log() if log is None else log
        self.written: dict[Variable, None] = {}
        self.seen: set[Slot] = (
            set()
        )  # no more than names: a box of an inner trace holds what was traced
        self.touched: dict[
            Any, None
        ] = {}  # outermost modules from outside of all traces that were called, in order
        self.views: dict[Any, Any] = {}  # the container `v` of each module, as seen in this frame
        self._context: Any = None
        self.closing: list[Callable[[], None]] = []  # called when the frame closes

    def __enter__(self) -> Frame:
        self.outside, self.trace = now.frame, here()
        self.base = len(now.stack)
        self.guarded = self.guarded or (self.outside is not None and self.outside.guarded)
        try:
            gate.open[self] = None
            if self.guarded:
                self._context = _token(next(_tickets))
                self._context.__enter__()
            now.frame = self
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
        error = exc[1] if exc else None
        if isinstance(error, Exception):
            self.ask_again(error)
            if self.log.infos:
                self.salvage()

    def ask_again(self, error: BaseException) -> None:
        """Raise what asks for another run of this frame, where another exception has been raised
        while it came up.

        Under `jax_check_tracer_leaks` JAX looks for leaks while any exception leaves a trace, and
        tells of those that its traceback holds.
        """
        child: BaseException | None = error
        visited: set[int] = set()
        while child is not None and id(child) not in visited:
            if isinstance(child, (Missed, Unguarded)) and child.frame is self:
                raise child from None
            visited.add(id(child))
            child = child.__cause__ or child.__context__

    def run(self, body: Callable[[Frame], Any]) -> Any:
        """Run `body` in this frame, which is closed afterwards: twice, since an interrupt may cut
        the first time short.
        """
        with closing(self), self:
            return body(self)

    def close(self) -> None:
        """Put back what was there before the frame; again is fine."""
        if self not in gate.open:
            return
        now.frame = self.outside
        if self._context is not None:
            with suppress(AttributeError):  # an interrupt has come before it was entered
                self._context.__exit__(None, None, None)
        del now.stack[self.base :], now.counts[self.base :]
        for call in self.closing:
            call()
        gate.open.pop(self, None)
        let_go()

    def salvage(self) -> None:
        """An exception ends the frame: what was called, without the values that were traced, is
        known outside.
        """
        log = current_log()
        if log is not None and log is not self.log:
            log.merge(tuple(self.log.infos), [{} for _ in self.log.infos])

    # -- boxes --
    def read(self, box: Variable) -> Any:
        home, frame = box._home, self
        while frame is not None:
            if box in frame.values:
                self.note(box)
                return frame.values[box]
            if home is not None and home.frame is frame.name:
                break
            if frame.wall:
                raise Missed(box, frame, now.stack)
            frame = frame.outside
        self.note(box)
        # A raw jax.jit inside the frame is traced anew by its token; one around it is not.
        if home is None and not is_eager() and self.trace == here():
            warn_of_constant(box)
        return box.settled()

    def note(self, box: Variable) -> None:
        """Remember that `box` was read in an inner trace, whose value JAX may keep; what was born
        in that trace is traced with it.
        """
        trace = here()
        if self.trace != trace and (box._home is None or box._home.trace != trace):
            if not self.guarded:
                raise Unguarded(self)
            self.seen.add(box.slot)

    def write_all(self, boxes: Sequence[Variable], values: Sequence[Any]) -> None:
        trace = here()
        local, carried = {}, {}
        for box, value in zip(boxes, values):
            home = box._home
            attrs, into = (
                (home.trace, local)
                if home is not None and home.frame is self.name
                else (self.trace, carried)
            )
            if attrs != trace:
                raise leak(box)
            into[box] = value
        if local:
            commit(tuple(local), tuple(local.values()))
        self.values.update(carried)
        self.written.update(dict.fromkeys(carried))
        if self.seen and not self.seen.isdisjoint(box.slot for box in boxes):
            self.renew()

    def writes(self) -> tuple[tuple[Variable, ...], tuple[Any, ...]]:
        """Return the boxes that were written, and their values."""
        return tuple(self.written), tuple(self.values[box] for box in self.written)

    def renew(self) -> None:
        """Enter a fresh token: traces that were cached with an older value are not used again."""
        self._context.__exit__(None, None, None)
        self._context = _token(next(_tickets))
        self._context.__enter__()
        self.seen.clear()

    # -- going out --
    def effects(self) -> Effects:
        names = tuple(box.slot for box in self.written)
        values = [self.values[box] for box in self.written]
        return Effects((names, tuple(self.log.infos)), values, list(self.log.values))


def framed(
    body: Callable[[Frame], Any],
    values: Iterable[tuple[Variable, Any]] = (),
    *,
    log: Log | None = None,
    axes: tuple[Any, ...] = (),
    wall: bool = False,
) -> Any:
    """Run `body(frame)` in a frame; once more, with a token, if that turns out to be needed.

    Behind a wall it is needed, unless nothing is compiled: then a fresh token would only make JAX
    compile each operation anew.
    """
    values = list(values)
    mark = log.mark() if log is not None else None
    taps = now.taps
    requested = taps.mark() if taps is not None else None
    if not wall or jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        frame = Frame(values, wall=wall, log=log)
        frame.axes = axes
        try:
            return frame.run(body)
        except Unguarded as error:
            if error.frame is not frame:
                raise
        if log is not None and mark is not None:
            log.rewind(mark)
        if taps is not None:
            taps.rewind(requested)
    frame = Frame(values, wall=wall, log=log, guarded=True)
    frame.axes = axes
    return frame.run(body)


def leak(box: Variable) -> TracerLeakError:
    name = socket("named")(box, now.stack)
    return TracerLeakError(
        f"cannot write {name} inside a raw JAX transform (jax.jit, grad, vmap, scan, cond, ...): "
        "the new value "
        "could not come out of it. The variable was left unchanged. Use the transform of the same "
        "name from nbmodule "
        f"(nb.jit, nb.grad, nb.vmap, nb.scan, nb.cond, ...), or {box.remedy}. To look at what "
        "would "
        "run: nb.eval_shape(fn, x), nb.make_jaxpr(fn)(x), nb.jit(fn).lower(x)."
    )


_has_warned = False


def warn_of_constant(read: Any) -> None:
    """Warn once that a raw `jax.jit` turns what is read now into a constant.

    Called where a variable, or all variables of a module, made outside of every trace are read
    while something is traced and no transform of ours makes them inputs.

    Args:
        read: The variable, or the module whose variables are read.
    """
    global _has_warned
    if _has_warned or not is_jit_being_traced() or is_only_looked_at():
        return
    _has_warned = True
    is_variable = hasattr(type(read), "_is_variable")
    name = socket("named")(read, now.stack) if is_variable else f"the model {type(read).__name__}"
    warnings.warn(
        f"{name} is read inside a raw jax.jit without being an argument of it: its value becomes a "
        "constant of the compiled function, which later changes do not reach. Use nb.jit, or pass "
        "the model in. (This warning is shown once.)",
        stacklevel=level_of_user_code(),
    )


def write(box: Variable, value: object) -> None:
    """Give `box` a value that already has its shape and dtype, through the frame where there is
    one.
    """
    write_all((box,), (value,))


def write_all(
    boxes: Sequence[Variable],
    values: Sequence[Any],
    waiting: Sequence[Variable] = (),
    draws: Sequence[Any] = (),
    also: Also = NOTHING,
) -> None:
    """Give boxes values that already have their shapes and dtypes, all of them or none, through the
    frame where there is one.

    Args:
        boxes: Each once.
        values: One for each.
        waiting: Pending boxes, which get another draw at the same moment; these are seen in all
            frames.
        draws: One for each of these.
        also: What else is set at that moment; this too is seen in all frames.
    """
    if now.frame is not None:
        now.frame.write_all(boxes, values)
        commit((), (), waiting, draws, also)
        return
    trace = here()
    for box, value in zip(boxes, values):
        is_local = trace != EAGER and box._home is not None and box._home.trace == trace
        if not is_local and (trace != EAGER or isinstance(value, jax.core.Tracer)):
            raise leak(box)
    commit(boxes, values, waiting, draws, also)


def gathered(body: Callable[[], Any]) -> tuple[tuple[Variable, ...], tuple[Any, ...]]:
    """Run `body()`; gives the boxes that it writes and their new values, for one commit of them
    all. None has changed yet.
    """

    def run(frame: Frame) -> Any:
        body()
        return frame.writes()

    return framed(run)


def replay(
    effects: Effects, also: tuple[Sequence[Variable], Sequence[Any]] = ((), ()), *, lifted: str = ""
) -> None:
    """Repeat here what happened inside a transformed function: its writes (and with them `also`,
    boxes and values), then its records.
    """
    slots, infos = effects.names
    alive = [
        (box, value) for slot, value in zip(slots, effects.values) if (box := slot()) is not None
    ]
    write_all([*(box for box, _ in alive), *also[0]], [*(value for _, value in alive), *also[1]])
    if infos:
        take_over(infos, effects.records, lifted)


def take_over(infos: tuple[Any, ...], values: Any, lifted: str = "", *, asked: bool = True) -> None:
    """Merge the calls of a transformed function into the log outside; `asked` if one of them may
    carry a request.
    """
    log = current_log()
    if log is not None:
        if not is_captured():
            infos, values, asked = uncaptured(infos), [{} for _ in infos], False
        log.merge(infos, values, lifted=lifted)
    if now.frame is None and asked:
        for deliver in deliveries:
            deliver(infos, values)


def current_log() -> Log | None:
    """Return the log that takes records now; None when nobody is tracking."""
    if now.frame is not None:
        return now.frame.log
    return now.tracker.log if now.tracker is not None else None


def is_captured() -> bool:
    """Return True if values that are recorded here can be brought out: no raw JAX transform lies
    between here and the frame.
    """
    return is_eager() if now.frame is None else here() == now.frame.trace


deliveries: list[
    Any
] = []  # functions of (infos, values) that are told what came out of compiled code


def apart() -> Any:
    """Enter a fresh token for a while: what is traced meanwhile is not used again."""
    return _token(next(_tickets))


class quiet:
    """Enter JAX's default token for a while, so that the trace of a kernel is shared between
    frames.
    """

    __slots__ = ("_context",)

    def __enter__(self) -> None:
        self._context = _token(None)
        self._context.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._context.__exit__(None, None, None)
