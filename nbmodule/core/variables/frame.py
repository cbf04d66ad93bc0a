"""Frames: the one mechanism for effects. A frame maps variables to values while a function runs.

A variable is read through the frames of its thread, from the innermost outwards, and written in the
innermost. When the function ends, the frame's writes and records leave it as one PyTree node,
`Effects`, whose static part names them, and are repeated in the frame outside; with no frame left
they reach the variables. So `v=`, the transforms, BatchNorm's statistics, random streams and
tracking all leave a function in one way.

Four marks keep this sound:

* a *wall* (the frame of `jit`): a variable that is absent there must become an input, so reading it
  raises `Missed`;
* the *trace* a frame was opened in: a write from another trace could not come out and is refused;
* the *token*, part of JAX's cache keys: a raw `jax.jit` inside never reuses a trace that holds an
  older value. It also sets aside JAX's caches for every other function, so a frame outside of `jit`
  takes one only if a variable turns out to be read in an inner trace (`Unguarded`);
* the *home* of a variable made inside a trace: it is local there, read and written in place.
"""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.core

from nbmodule.base.jax_names import (
    check_jax,
    here,
    is_eager,
    is_jit_being_traced,
    is_only_looked_at,
    trace_token,
)
from nbmodule.base.sockets import socket
from nbmodule.core.variables.call_log import Log, uncaptured
from nbmodule.core.variables.commit import Call, commit
from nbmodule.core.variables.traceback import level_of_user_code
from nbmodule.errors import TracerLeakError

if TYPE_CHECKING:
    from nbmodule.core.variables.variable import Variable


EAGER = check_jax()
_tickets = count(1)


class _Gate:
    """The frames and trackers that are open in all threads.

    While there is none, no call needs to look for those of its thread, which takes longer.
    """

    def __init__(self) -> None:
        self.open: dict[Any, None] = {}

    def settle(self) -> None:
        """Release those that have ended."""
        for obj in list(self.open):
            if not obj.is_open:
                self.open.pop(obj, None)

    def __reduce__(self) -> str:
        return "gate"


gate = _Gate()


_tracker: ContextVar[Any] = ContextVar("nbmodule_tracker", default=None)


class ContextState(threading.local):
    """The state of this thread, and of this context.

    A tracker may stay open while a task waits, so it belongs to the context, where other tasks do
    not see it. A frame is open while one function runs, which never waits, and belongs to the
    thread as JAX's own traces do.
    """

    frame: Frame | None = None
    taps: Any = None  # the source of zeros for gradients by returns, see `taps.py`
    outside = False  # a module from outside of all traces is being built
    # while a model is inspected: is called with each module that builds or has its first call
    keep: Any = None
    lent: list[Any] | None = None  # modules whose `v` was read while variables are being created
    job: Any = None  # of the compiled function that is being called inside another transform
    objects: Any = ()  # those that JAX does not know, of the compiled module that is being called
    stack: tuple[Any, ...] = ()  # modules whose calls, or reads of `v`, are open on the slow path
    counts: tuple[dict[str, int], ...] = ()  # for each of them, how often it has called each name

    def __reduce__(self) -> str:
        """Pickle by name: there is one, also where cloudpickle copies a function."""
        return "now"

    @property
    def tracker(self) -> Any:
        """The innermost tracker of this context that is still open, in its thread; or None."""
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
        """True if the innermost frame has a token."""
        return self.frame is not None and self.frame.guarded

    @property
    def busy(self) -> bool:
        """True if a frame or a tracker is there: calls of modules take the long way."""
        return self.frame is not None or self.tracker is not None


now = ContextState()


def let_go() -> None:
    """Release ended trackers: their interventions may hold values of a trace that ends."""
    if _tracker.get() is not None:
        _ = now.tracker  # the property drops those that have ended


def calling(module: object) -> AbstractContextManager[None]:
    """Keep a call of `module`, or a read of its variables, open on the slow path."""
    return during(stack=(*now.stack, module), counts=(*now.counts, {}))


@contextmanager
def during(**values: object) -> Iterator[None]:
    """Set attributes of `now` for a while.

    They are restored twice: an interrupt may come before the first `finally` has run, and the
    second is there for that.
    """
    before = {name: getattr(now, name) for name in values}
    try:
        try:
            vars(now).update(values)
            yield
        finally:
            vars(now).update(before)
    finally:
        vars(now).update(before)


class Missed(BaseException):
    """A variable was read behind a wall without having been an input.

    Only the call that owns the frame catches it.
    """

    def __init__(self, variable: Variable, frame: Frame) -> None:
        super().__init__("a variable is read that is not yet an input")
        self.variable, self.frame = variable, frame


class Unguarded(BaseException):
    """A variable was read in an inner trace, in a frame without a token.

    The frame is entered again, with one.
    """

    def __init__(self, frame: Frame) -> None:
        super().__init__("a frame needs a token")
        self.frame = frame


class Slot(weakref.ref[Any]):
    """The name of a variable or a module in static data: compared by identity, and weak, so that no
    cache of JAX keeps the object.
    """

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def slot_of(module: Any) -> Slot:
    """Return the weak name of a module in static data."""
    inner = module._nbm
    if inner.slot is None:
        inner.slot = Slot(module)
    return inner.slot


class Birthplace(NamedTuple):
    """The trace and frame in which a variable was made.

    The frame stands there by its name, so that a variable that outlives it keeps no traced value.
    """

    frame: object
    trace: object


def birthplace() -> Birthplace | None:
    """Return the home of a variable made now; None outside of traces.

    Under `jax.disable_jit` nothing is traced, and the frame alone tells.
    """
    trace = here()
    if trace == EAGER and (now.frame is None or not jax.config.jax_disable_jit):  # pyright: ignore
        return None
    return Birthplace(None if now.frame is None else now.frame.name, trace)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["values", "records"], meta_fields=["names"]
)
@dataclass
class Effects:
    """Writes and records on their way out of a transformed function: arrays, with static names."""

    names: tuple[Any, tuple[Any, ...]]
    values: list[Any]
    records: Any


class Frame:
    """Values of variables, writes and records while one function runs."""

    is_open = True  # until it is closed, when it leaves the gate

    def __init__(
        self,
        values: Iterable[tuple[Variable, Any]] = (),
        *,
        wall: bool = False,
        log: Log | None = None,
        guarded: bool = False,
        axes: tuple[Any, ...] = (),
    ) -> None:
        self.name = object()  # a `Birthplace` knows the frame by it
        self.values: dict[Variable, Any] = dict(values)
        self.wall, self.guarded = wall, guarded
        self.axes = axes  # mapped axes over which random streams are split
        self.log = Log() if log is None else log
        self.written: dict[Variable, None] = {}
        # Read in an inner trace. Names only: a variable of that trace holds traced values.
        self.seen: set[Slot] = set()
        # Outermost modules from outside of all traces that were called, in order.
        self.called: dict[Any, None] = {}
        self.views: dict[Any, Any] = {}  # the container `v` of each module in this frame
        self._context: Any = None
        self.closing: list[Callable[[], None]] = []  # called when the frame closes

    def __enter__(self) -> Frame:
        self.outside, self.trace = now.frame, here()
        self.stack, self.counts = now.stack, now.counts
        self.guarded = self.guarded or (self.outside is not None and self.outside.guarded)
        try:
            gate.open[self] = None
            if self.guarded:
                self._context = trace_token(next(_tickets))
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
            log = current_log()
            if log is not None and log is not self.log:  # calls are known outside, but no values
                log.merge(tuple(self.log.infos), [{} for _ in self.log.infos])

    def ask_again(self, error: BaseException) -> None:
        """Raise the request for another run of this frame, if another exception hides it.

        Under `jax_check_tracer_leaks` JAX looks for leaks while any exception leaves a trace, and
        reports those that its traceback holds.
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
        now.stack, now.counts = self.stack, self.counts
        if self.outside is not None and not self.wall:
            self.outside.add_called(self.called)
        for call in self.closing:
            call()
        gate.open.pop(self, None)
        let_go()

    def add_called(self, modules: Iterable[Any]) -> None:
        """Note that modules from outside of all traces are called, unless a module calls them."""
        if len(now.stack) == len(self.stack):
            self.called.update(dict.fromkeys(modules))

    # -- variables --
    def read(self, variable: Variable) -> Any:
        home, frame = variable._home, self
        while frame is not None:
            if variable in frame.values:
                self.note(variable)
                return frame.values[variable]
            if home is not None and home.frame is frame.name:
                break
            if frame.wall:
                raise Missed(variable, frame)
            frame = frame.outside
        self.note(variable)
        # A raw jax.jit inside the frame is traced anew by its token; one around it is not.
        if home is None and not is_eager() and self.trace == here():
            warn_of_constant(variable)
        return variable.settled()

    def note(self, variable: Variable) -> None:
        """Remember that `variable` was read in an inner trace, whose value JAX may keep.

        A variable that was made in that trace is traced with it.
        """
        trace = here()
        if self.trace != trace and (variable._home is None or variable._home.trace != trace):
            if not self.guarded:
                raise Unguarded(self)
            self.seen.add(variable.slot)

    def write_all(self, variables: Sequence[Variable], values: Sequence[Any]) -> None:
        trace = here()
        local, carried = {}, {}
        for variable, value in zip(variables, values):
            home = variable._home
            if home is not None and home.frame is not self.name:
                home = None
            if trace != (self.trace if home is None else home.trace):
                raise leak(variable)
            (carried if home is None else local)[variable] = value
        if local:
            commit(tuple(local), tuple(local.values()))
        self.values.update(carried)
        self.written.update(dict.fromkeys(carried))
        if self.seen and not self.seen.isdisjoint(variable.slot for variable in variables):
            self.renew()

    def writes(self) -> tuple[tuple[Variable, ...], tuple[Any, ...]]:
        """Return the variables that were written, and their values."""
        return tuple(self.written), tuple(map(self.values.__getitem__, self.written))

    def renew(self) -> None:
        """Enter a fresh token: traces that were cached with an older value are not used again."""
        self._context.__exit__(None, None, None)
        self._context = trace_token(next(_tickets))
        self._context.__enter__()
        self.seen.clear()

    # -- going out --
    def effects(self) -> Effects:
        variables, values = self.writes()
        names = tuple(variable.slot for variable in variables)
        return Effects((names, tuple(self.log.infos)), list(values), list(self.log.values))


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
        frame = Frame(values, wall=wall, log=log, axes=axes)
        try:
            return frame.run(body)
        except Unguarded as error:
            if error.frame is not frame:
                raise
        if log is not None and mark is not None:
            log.rewind(mark)
        if taps is not None:
            taps.rewind(requested)
    return Frame(values, wall=wall, log=log, guarded=True, axes=axes).run(body)


def leak(variable: Variable) -> TracerLeakError:
    """Make the error for a write that could not leave the current trace."""
    name = socket("named")(variable, now.stack)
    return TracerLeakError(
        f"cannot write {name} inside a raw JAX transform (jax.jit, grad, vmap, scan, cond, ...): "
        "the new value would be lost. The variable is unchanged. Use the transform of the same "
        "name from nbmodule (nb.jit, nb.grad, nb.vmap, nb.scan, nb.cond, ...), or "
        f"{variable.remedy}. To inspect the program: nb.eval_shape(fn, x), nb.make_jaxpr(fn)(x), "
        "nb.jit(fn).lower(x)."
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
        f"{name} is read inside a raw jax.jit without being an argument of it: its value becomes "
        "a constant of the compiled function, and later changes have no effect. Use nb.jit, or "
        "pass the model in. (This warning is shown once.)",
        stacklevel=level_of_user_code(),
    )


def write_all(
    variables: Sequence[Variable], values: Sequence[Any], calls: Sequence[Call] = ()
) -> None:
    """Write values that already have the shapes and dtypes, in the frame where there is one; all of
    them or none.

    Args:
        variables: Each once.
        values: One for each.
        calls: Further calls to make with the commit; what they set is seen in all frames.
    """
    if now.frame is not None:
        now.frame.write_all(variables, values)
        commit((), (), calls)
        return
    trace = here()
    for variable, value in zip(variables, values):
        is_local = trace != EAGER and variable._home is not None and variable._home.trace == trace
        if not is_local and (trace != EAGER or isinstance(value, jax.core.Tracer)):
            raise leak(variable)
    commit(variables, values, calls)


def gathered(body: Callable[[], Any]) -> tuple[tuple[Variable, ...], tuple[Any, ...]]:
    """Run `body()`; return the variables that it writes and their new values.

    None has changed yet: the caller commits them all as one act.
    """

    def run(frame: Frame) -> Any:
        body()
        return frame.writes()

    return framed(run)


def replay(
    effects: Effects, also: tuple[Sequence[Variable], Sequence[Any]] = ((), ()), *, lifted: str = ""
) -> None:
    """Repeat here what happened inside a transformed function: its writes (and with them `also`,
    variables and values), then its records.
    """
    slots, infos = effects.names
    pairs = [*zip([slot() for slot in slots], effects.values), *zip(*also)]
    pairs = [pair for pair in pairs if pair[0] is not None]  # of those that are still alive
    write_all([variable for variable, _ in pairs], [value for _, value in pairs])
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
    """Return the log that takes records now; None when nothing is tracked."""
    if now.frame is not None:
        return now.frame.log
    return now.tracker.log if now.tracker is not None else None


def is_captured() -> bool:
    """Return True if values that are recorded here can be brought out: no raw JAX transform lies
    between here and the frame.
    """
    return is_eager() if now.frame is None else here() == now.frame.trace


deliveries: list[Any] = []
"""Functions of (infos, values) that are called with the records that left compiled code."""


def apart() -> Any:
    """Enter a fresh token for a while: what is traced meanwhile is not used again."""
    return trace_token(next(_tickets))
