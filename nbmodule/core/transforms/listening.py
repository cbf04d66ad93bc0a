"""Who hears of calls of compiled functions: a run that keeps what is needed to repeat a step.

Nobody listens as a rule, and then a call asks nobody. While one listens, its thread's outermost calls are told to it, with
their arguments and what they returned. A call inside of another is a part of that one and is not told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from nbmodule.core.boxes.clock import clock
from nbmodule.core.boxes.frame import now
from nbmodule.core.transforms.binding import SLOW
from nbmodule.core.transforms.carried import is_stateful


class Listener(Protocol):
    """What is told of calls."""

    thread: int
    """The thread whose calls are wanted."""

    def prepare(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called before a call that takes the long way: what it will use may still be looked at. Gives a note."""

    def note(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called before each other call; gives a note of it."""

    def heard(self, note: Any, outputs: Any) -> None:
        """Called after a call that succeeded."""


class _Ears:
    """The one that listens now, if any."""

    __slots__ = ("is_deaf", "listener")

    def __init__(self) -> None:
        self.listener: Listener | None = None
        self.is_deaf = False

    def __reduce__(self) -> str:
        return "ears"


ears = _Ears()


def listen(listener: Listener | None) -> None:
    """Tell calls to a listener from now on, in place of any other; None ends it."""
    ears.listener = listener
    clock.structure_changed()  # what calls have at hand for their shortest way knows nothing of listeners


def is_heard() -> bool:
    """Whether a call that is made here and now is to be told."""
    listener = ears.listener
    if listener is None or ears.is_deaf:
        return False
    return listener.thread == threading.get_ident() and now.frame is None


def call_heard(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call on the long way, and tell of it; nothing that is called inside is told."""
    __tracebackhide__ = True
    listener = ears.listener
    assert listener is not None
    with deaf():
        note = listener.prepare(function, args, kwargs)
        outputs = function(*args, **kwargs)
    listener.heard(note, outputs)
    return outputs


class Told:
    """A step that is taken outside of compiled functions, and told as one call.

    Args:
        function: A method, called with the arguments of the call.
        owner: What it uses and changes beside them.
    """

    def __init__(self, function: Callable[..., Any], owner: object) -> None:
        self.function, self._owner = function, owner

    def __call__(self, *args: object) -> Any:
        return self.function(*args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Told) and self.function == other.function

    def __hash__(self) -> int:
        return hash(self.function)

    def things(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Modules and optimizers that it uses."""
        return [self._owner, *filter(is_stateful, args)]


class deaf:
    """Calls in this block are not told."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before, ears.is_deaf = ears.is_deaf, True

    def __exit__(self, *_: object) -> None:
        ears.is_deaf = self._before


def told(function: Callable[..., Any], steady: Callable[[tuple[Any, ...]], Any]) -> Callable[..., Any]:
    """The shortest way of a call, which tells of itself as long as the same one listens as now."""
    listener = ears.listener
    if listener is None or listener.thread != threading.get_ident():
        return steady

    def call(args: tuple[Any, ...]) -> Any:
        __tracebackhide__ = True
        if ears.listener is not listener or ears.is_deaf or listener.thread != threading.get_ident():
            return steady(args)
        note = listener.note(function, args, {})
        outputs = steady(args)
        if outputs is not SLOW:
            listener.heard(note, outputs)
        return outputs

    return call
