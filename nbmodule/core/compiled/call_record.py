"""Public records of calls of compiled functions: for whoever replays, watches or explains a step.

`record_call(function, args, kwargs)` describes a call before it is made; nothing is run. A
`CallListener` is notified of the calls that a thread makes, see `set_listener`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from nbmodule.core.compiled.call import SLOW
from nbmodule.core.compiled.key import cells, take_apart
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.variables.commit import clock
from nbmodule.core.variables.frame import now
from nbmodule.core.variables.variable import Variable


@dataclass(frozen=True)
class CallRecord:
    """One call of a compiled function: what it is given, what it reads and what it writes.

    A record holds the objects it names. Keep one for a call, or take from it what is needed.

    Attributes:
        function: The compiled function (`nb.jit`).
        args: Positional arguments, as given by the caller.
        kwargs: Keyword arguments.
        arguments: Modules, optimizers, random streams and variables among the arguments, each once.
        captured: Those from the surrounding code, found while tracing.
        variables: All variables that are inputs of the program, in its order: those of `arguments`,
            then those of `captured`. Values that the call reads are among theirs.
        written: Those of them that the call writes. Variables created by the call are not listed.
        donates: Whether the arrays of `written` are deleted by the call (`donate=True`).
        program: Identifies the program: equal for two calls exactly if they run the same one.
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arguments: tuple[Any, ...]
    captured: tuple[Any, ...]
    variables: tuple[Variable, ...]
    written: tuple[Variable, ...]
    donates: bool
    program: Hashable


def record_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallRecord:
    """Describe the call `function(*args, **kwargs)` of a function of `nb.jit`, without running it.

    The function is traced if no program fits yet; that may build a module at its first call, and
    give an optimizer its state, as the call itself does. No value of a variable changes.

    Raises:
        Whatever the function raises while it is traced.

    Example:
        >>> import nbmodule as nb
        >>> count = nb.Buffer(0)
        >>> @nb.jit
        ... def add(n):
        ...     count.value = count + n
        >>> record = record_call(add, (2,), {})
        >>> record.written[0] is count, int(count)
        (True, 0)
    """
    cells.follow()
    binding = function.bound(take_apart(args, kwargs, function.static))
    variables, program = tuple(binding.variables), binding.program
    return CallRecord(
        function,
        args,
        kwargs,
        arguments=tuple(reference() for reference in binding.objects),
        captured=tuple(reference() for reference in binding.captured),
        variables=variables,
        written=tuple(variables[i] for i in binding.facts.targets if type(i) is int),
        donates=bool(program.donated),
        program=id(program),
    )


# -- notification of calls -------------------------------------------------------------------------
class CallListener(Protocol):
    """Is notified of the outermost calls of compiled functions that one thread makes.

    A call inside another is part of that one.
    """

    thread: int
    """Identifier of the thread whose calls are reported."""

    def prepare(self, function: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return a note for a call that may trace; `record_call` may be used here."""

    def note(self, function: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return a note for a call in the steady state: this is on the path of every step."""

    def finish(self, note: object, outputs: object) -> None:
        """Take the note and the outputs of a call that has succeeded."""


class _Recording(threading.local):
    """The listener of this thread, if any, and whether it is paused."""

    listener: CallListener | None = None
    is_paused = False

    def __reduce__(self) -> str:
        return "recording"


recording = _Recording()


def set_listener(listener: CallListener | None) -> None:
    """Notify a listener of this thread's calls, in place of any other; None ends it."""
    recording.listener = listener
    clock.structure_changed()  # steady calls were made for the listener before


def is_recorded() -> bool:
    """Return True if a call made here and now is reported to a listener."""
    listener = recording.listener
    if listener is None or recording.is_paused:
        return False
    return listener.thread == threading.get_ident() and now.frame is None


@contextmanager
def recording_paused() -> Iterator[None]:
    """Report no calls made inside the block."""
    before, recording.is_paused = recording.is_paused, True
    try:
        yield
    finally:
        recording.is_paused = before


def call_recorded(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    steady: Callable[[tuple[Any, ...]], Any] | None = None,
) -> Any:
    """Call `function` and report the call; calls inside it are not reported.

    `steady` is its call in the steady state, which may return `SLOW`.
    """
    listener = recording.listener
    assert listener is not None
    note, outputs = None, SLOW
    with recording_paused():
        if steady is not None and not kwargs:
            note = listener.note(function, args, {})
            outputs = steady(args)
        if outputs is SLOW:
            note = listener.prepare(function, args, kwargs)
            outputs = function(*args, **kwargs)
    listener.finish(note, outputs)
    return outputs


@dataclass(frozen=True)
class RecordedMethod:
    """A method whose uncompiled call is reported as one call: an optimizer's eager update.

    Attributes:
        function: The method.
        owner: The stateful object it belongs to.
    """

    function: Callable[..., Any]
    owner: object

    def __call__(self, *args: object) -> Any:
        return self.function(*args)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the stateful objects that a call uses."""
        return [self.owner, *filter(is_stateful, args)]
