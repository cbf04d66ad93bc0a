"""Donated steps and readers of many variables at once.

A donated step overwrites the arrays of a model, and the new ones must reach its variables whatever
happens. In the steady state one call into C runs the program and places its results (see
`compiled/call.py`). The first call of its kind runs JAX's Python code on the way out; signals wait
meanwhile (`held_back`).

Rule for readers, such as pickles, copies and state dicts: no step of another thread overwrites an
array that a reader has. A donated step and a reader exclude each other by a lock, so a reader sees
the values between two steps. As long as an array that one thread has read exists, the steps of
other threads copy it before they give its memory away.
"""

from __future__ import annotations

import operator
import signal
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp

from nbmodule.base.jax_names import is_eager
from nbmodule.core.variables.frame import framed, now


class _Readers:
    """Readers of many variables at once."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held by a donated step, and by a reader until it has its values."""
        self.taken: dict[int, weakref.WeakValueDictionary[int, Any]] = {}
        """By thread and id the arrays that it has read and that still exist."""

    def take(self, variables: Sequence[Any]) -> list[Any]:
        """Return the arrays that variables hold between two steps of other threads."""
        with self.lock:
            arrays = list(map(_value, variables))
            self.taken = {thread: taken for thread, taken in self.taken.items() if taken}
            taken = self.taken.setdefault(threading.get_ident(), weakref.WeakValueDictionary())
            taken.update({id(x): x for x in arrays if isinstance(x, jax.Array)})
            return arrays

    def taken_by_others(self) -> set[int]:
        """Return the ids of arrays that other threads have read; to be called with the lock."""
        taken, own = self.taken, threading.get_ident()
        return {number for thread in taken if thread != own for number in taken[thread]}


readers = _Readers()
_value = operator.attrgetter("_value")
_NUMBERS = [
    number
    for name in "INT TERM ALRM HUP QUIT USR1 USR2 VTALRM PROF BREAK".split()
    if (number := getattr(signal, f"SIG{name}", None)) is not None
]


class NotCached(BaseException):
    """The compiled function is not in JAX's own cache for these arguments.

    The call takes the slow path, with signals held back.
    """


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
        with ExitStack() as handlers:  # which all run, also if one raises
            for number in reversed(self._waiting):
                handlers.callback(self._previous[number], number, None)

    def _restore(self, number: int) -> None:
        if signal.getsignal(number) == self._handle:
            signal.signal(number, self._previous[number])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._is_open:  # an interrupt has cut `__exit__` short
            self._restore(number)
        elif any(array.is_deleted() for array in self._arrays):  # given to another array
            if number not in self._waiting:
                self._waiting.append(number)
            return
        self._previous[number](number, frame)


def unaliased(values: list[Any], donated: tuple[int, ...]) -> list[Any]:
    """Return the same values, with copies of donated arrays that occur twice or that others
    have read.
    """
    count: dict[int, int] = {}
    for value in values:
        count[id(value)] = count.get(id(value), 0) + 1
    lent = readers.taken_by_others()
    if len(count) == len(values) and lent.isdisjoint(count):
        return values
    values = list(values)
    for i in donated:
        if count[id(values[i])] > 1 or id(values[i]) in lent:
            count[id(values[i])] -= 1
            values[i] = jnp.copy(values[i])
    return values


def at_one_moment(variables: Iterable[Any], read: Callable[[], Any]) -> Any:
    """Return `read()`, which sees a consistent snapshot of these variables."""
    if now.frame is not None or not is_eager():
        return read()
    own = own_values(variables)
    for variable in own:
        variable.settled()
    return framed(lambda _: read(), zip(own, readers.take(own)))


def own_values(variables: Iterable[Any]) -> list[Any]:
    """Return each variable once, of those that hold an array of their own."""
    return [
        variable
        for variable in dict.fromkeys(variables)
        if not hasattr(type(variable), "ask") and not variable.is_released
    ]
