"""Takes logged values without waiting for the device, and reads them when they have come.

`log` only keeps references and, off the CPU, starts the copy to the host. `drain`, called between steps, reads those
whose computation is over, in order; it stops at the first that is not, so that no step ever waits for a number.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nbmodule.errors import ArgumentTypeError, TracerLeakError
from nbmodule.live.run.history import History
from nbmodule.live.steering.interrupt import shield

_NUMBERS = (float, int, bool)
_READ_EVERY = 64
"""Calls of `log` after which what is ready is read at once: the device's memory can be used again while it is warm."""


class Intake:
    """The way from `log` into a history.

    Example:
        >>> intake = Intake(History())
        >>> intake.put(1, {'loss': 0.5})
        >>> intake.drain()
        1
        >>> intake.history.loss.last
        0.5
    """

    def __init__(self, history: History, on_error: Callable[[str], None] | None = None) -> None:
        self.history = history
        self.newest: dict[str, float] = {}
        """The newest number of each name."""
        self._on_error = on_error
        self._waiting: deque[tuple[int, dict[str, Any]]] = deque()
        self._array: type | None = None
        self._copies = False
        self._draining = threading.Lock()

    def put(self, step: int, values: Mapping[str, Any]) -> None:
        """Keep values to be read later.

        Raises:
            TracerLeakError: if a value is a tracer: the call stands inside a transformed function.
            ArgumentTypeError: if a value is neither number, text, array nor picture.
        """
        array = self._array
        kept = None
        for name, value in values.items():
            kind = type(value)
            if kind is array or kind in _NUMBERS:
                if kind is array and self._copies:
                    value.copy_to_host_async()
                continue
            if kept is None:
                kept = dict(values)
            kept[name] = self._accept(name, value)
        self._waiting.append((step, dict(values) if kept is None else kept))
        if len(self._waiting) % _READ_EVERY == 0:
            self.drain()

    def drain(self) -> int:
        """Move what has been computed into the history; give the number of `log` calls that were read."""
        with shield():  # a value that was taken out and not yet put in would be lost
            if not self._draining.acquire(blocking=False):
                return 0
            try:
                return self._drain()
            finally:
                self._draining.release()

    def settle(self, timeout: float | None = None, until: Callable[[], bool] | None = None) -> bool:
        """Wait until everything is computed and read; give False if the time (in seconds) ran out or `until` came first."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self.drain()
            if not self._waiting:
                return True
            if (end is not None and time.monotonic() >= end) or (until is not None and until()):
                return False
            time.sleep(0.002)

    def _drain(self) -> int:
        waiting, read = self._waiting, 0
        points: dict[str, tuple[list[int], list[float], set[Any]]] = {}
        while waiting:
            step, values = waiting[0]
            if not self._all_ready(values):
                break
            waiting.popleft()
            read += 1
            for name, value in values.items():
                number, dtype = self._read(name, step, value)
                if number is None:
                    continue
                found = points.get(name)
                if found is None:
                    found = points[name] = ([], [], set())
                found[0].append(step)
                found[1].append(number)
                found[2].add(dtype)
        for name, (steps, numbers, dtypes) in points.items():
            narrow = all(dtype is not None and dtype.kind in "fV" and dtype.itemsize <= 4 for dtype in dtypes)
            self.history.extend(name, steps, np.array(numbers, np.float32 if narrow else np.float64))
            self.newest[name] = numbers[-1]
        return read

    def __len__(self) -> int:
        return len(self._waiting)

    def _all_ready(self, values: dict[str, Any]) -> bool:
        # A deleted array is asked nothing else: `is_ready()` of one ends the process (jaxlib 0.10.2).
        array = self._array
        return all(type(v) is not array or v.is_deleted() or v.is_ready() for v in values.values())

    def _read(self, name: str, step: int, value: Any) -> tuple[float | None, Any]:
        """Give a number and its dtype (None for a Python number), or put anything else on the shelf."""
        if type(value) in _NUMBERS:
            return float(value), None
        try:
            if type(value) is self._array:
                value = np.asarray(value)
            if isinstance(value, (np.ndarray, np.generic)) and value.size == 1 and value.dtype.kind in "biufV":
                return float(value.item()), value.dtype
            # A view of the device's memory would keep later steps from reusing it.
            self.history.shelf.put(name, step, value.copy() if isinstance(value, np.ndarray) else value)
        except Exception as error:  # noqa: BLE001 - one value must not take the others with it
            if self._on_error is not None:
                self._on_error(f"{name!r} of step {step:,} could not be read: {_reason(error)}")
        return None, None

    def _accept(self, name: str, value: Any) -> Any:
        """Give a value that will still be the same when it is read."""
        if isinstance(value, (str, np.generic)):
            return value
        if isinstance(value, np.ndarray):
            return value.copy()
        jax = sys.modules.get("jax")
        if jax is not None:
            if isinstance(value, jax.core.Tracer):
                raise TracerLeakError(
                    f"cannot log {name!r} from inside a transformed function: there it is a tracer "
                    f"({value.aval.str_short()}), which has no value yet. Nothing was logged. "
                    f"Return the value from the step, and log what the step returns."
                )
            if isinstance(value, jax.Array):
                return self._accept_array(jax, value)
            if hasattr(value, "__jax_array__"):
                return self._accept(name, value.__jax_array__())
        if hasattr(value, "savefig") or hasattr(value, "getbands") or hasattr(value, "__array__"):
            return _copy_of(value)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ArgumentTypeError(
                f"cannot log {name!r}: expected a number, a text, an array or a picture, found {type(value).__name__}. "
                f"Nothing was logged."
            ) from None

    def _accept_array(self, jax: Any, value: Any) -> Any:
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            raise ArgumentTypeError(
                "a random key cannot be logged; log jax.random.key_data(key) if its words are meant"
            )
        if not value.is_fully_addressable:
            value = value.addressable_data(0) if value.is_fully_replicated else _refuse_elsewhere()
        self._array, self._copies = type(value), jax.default_backend() != "cpu"
        if self._copies:
            value.copy_to_host_async()
        return value


def _refuse_elsewhere() -> Any:
    raise ArgumentTypeError(
        "an array that lies partly on other hosts cannot be logged; reduce it to one number within the step"
    )


def _copy_of(value: Any) -> Any:
    if hasattr(value, "savefig"):
        return value
    if hasattr(value, "getbands"):
        return value.copy()
    return np.array(value)


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return "its memory was donated to a later step; log a value the step returns" if "deleted" in text else text
