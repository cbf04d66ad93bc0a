"""Handing over: a donated step overwrites the arrays of a model, and the new ones must reach its
boxes whatever happens.

The steady state calls the compiled function and places what it returns in one call into C
(`handed_over`), so there is no moment at which an interrupt could take the place of the new arrays.
The first call of its kind runs JAX's Python code on the way out; signals wait meanwhile
(`held_back`). Who reads many boxes at once while another thread trains asks `consistent_values`.
"""

from __future__ import annotations

import operator
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, tee
from types import FrameType
from typing import Any

import jax.numpy as jnp

from nbmodule.base.jax_names import is_eager
from nbmodule.core.variables.clock import ticks
from nbmodule.core.variables.frame import framed, now


class _Readers:
    """Whether somebody reads the arrays of many boxes at once, which no donated step may overwrite
    meanwhile.
    """

    __slots__ = ("lock", "reading", "writers")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.reading = False
        self.writers: set[int] = set()  # threads that have run donated steps

    def have_rivals(self) -> bool:
        """Return True if another thread than this one may overwrite arrays at any time."""
        others = self.writers - {threading.get_ident()}
        return bool(others) and not others.isdisjoint(
            thread.ident for thread in threading.enumerate()
        )

    def wait(self) -> None:
        """Before a donated step: let those who read come to their end."""
        with self.lock:
            pass


readers = _Readers()
new_values = operator.itemgetter(1)
_value = operator.attrgetter("_value")
_NUMBERS = [
    number
    for name in "INT TERM ALRM HUP QUIT USR1 USR2 VTALRM PROF BREAK".split()
    if (number := getattr(signal, f"SIG{name}", None)) is not None
]
_PATIENCE, _AGAIN_AFTER = 5.0, 0.001
"""Seconds."""


class Cold(BaseException):
    """The compiled function is not in JAX's own cache for these arguments: take the long way, with
    signals held back.
    """


def handed_over(
    compiled: Any,
    donated: Any,
    retained: Any,
    args: tuple[Any, ...],
    targets: Sequence[Any],
    names: Sequence[str],
) -> Any:
    """Run a compiled function and place the values that it returns as its second item; gives all
    that it returned.

    One call into C does both: the placing pulls the values, and with the first of them the function
    is called. If it raises, nothing was placed. No Python may run in the function once it has begun
    to compute.

    Args:
        compiled: The function.
        donated: Its first argument.
        retained: Its second.
        args: The others, a tuple of tuples of one.
        targets: What is set: boxes, and at last the clock.
        names: The attribute of each.
    """
    created, again = tee(map(compiled, (donated,), (retained,), *args))
    any(map(setattr, targets, names, chain(chain.from_iterable(map(new_values, created)), ticks)))
    return next(again)


class held_back:
    """Let signals wait while some of these arrays are gone; they take effect when the block ends.

    Before that, while a function is traced and compiled, they take effect as ever.

    Example:
        >>> with held_back([]):
        ...     pass
    """

    __slots__ = ("_arrays", "_is_open", "_previous", "_waiting")

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._arrays, self._is_open = arrays, False
        self._previous: dict[int, Any] = {}
        self._waiting: list[int] = []

    def __enter__(self) -> None:
        if (
            threading.current_thread() is not threading.main_thread()
        ):  # signals are handled in that one alone
            return
        self._is_open = True
        for number in _NUMBERS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._previous[number] = handler
                signal.signal(number, self._handle)

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        for number in self._previous:
            self._restore(number)
        self._deliver()

    def _restore(self, number: int) -> None:
        if signal.getsignal(number) == self._handle:
            signal.signal(number, self._previous[number])

    def _deliver(self) -> None:
        while self._waiting:
            number = self._waiting.pop(0)
            try:
                self._previous[number](number, None)
            finally:
                self._deliver()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._is_open:  # an interrupt has cut `__exit__` short
            self._restore(number)
        elif any(map(is_gone, self._arrays)):
            if number not in self._waiting:
                self._waiting.append(number)
            return
        self._previous[number](number, frame)


def is_gone(value: object) -> bool:
    """Return True if the memory of an array was given to another."""
    return getattr(value, "is_deleted", bool)()


def consistent_values(boxes: Sequence[Any]) -> list[Any]:
    """Return the arrays that boxes hold at one moment, between two steps of whoever trains; no
    later step can overwrite them.

    They are copies only where another thread runs donated steps.
    """
    boxes = list(boxes)
    for box in boxes:
        box.settled()
    until = time.monotonic() + _PATIENCE
    with readers.lock:
        outer, readers.reading = readers.reading, True
        try:
            while True:
                values = list(map(_value, boxes))
                try:
                    return list(map(jnp.copy, values)) if readers.have_rivals() else values
                except (RuntimeError, ValueError):
                    if not any(map(is_gone, values)) or time.monotonic() > until:
                        raise
                time.sleep(_AGAIN_AFTER)  # a step that had begun before places its values soon
        finally:
            readers.reading = outer


def at_one_moment(objects: Sequence[Any], read: Callable[[], Any]) -> Any:
    """`read()`, for which all boxes of `objects` hold what they held at one moment."""
    if now.frame is not None or not is_eager():
        return read()
    boxes = own_values(box for boxes in objects for box in boxes)
    return framed(lambda _: read(), zip(boxes, consistent_values(boxes)))


def own_values(boxes: Iterable[Any]) -> list[Any]:
    """Return each box once, of those that hold an array of their own."""
    return [
        box for box in dict.fromkeys(boxes) if not hasattr(type(box), "ask") and not box.is_released
    ]
