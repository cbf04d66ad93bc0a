"""Queue logged values without waiting for the device, and read them once they are computed.

`log` only keeps references and, off the CPU, starts the copy to the host. `drain`, called between
steps, moves values whose computation is over into the history, in order; it stops at the first that
is not, so that no step ever waits for a number.

Nothing that is logged raises: a number is no reason to lose a training. A value that cannot be
kept is reported once for each name.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.core
import numpy as np

from nbmodule.base.interpreter import is_of_signal
from nbmodule.errors import ArgumentTypeError, TracerLeakError
from nbmodule.live.controls.interrupt import shield
from nbmodule.live.run_data.history import normalize_media
from nbmodule.live.run_data.series import is_training_loss
from nbmodule.live.run_data.state import RunState
from nbmodule.tree.leaf import without_torch

_NUMBERS = (float, int, bool)
MOST_ITEMS = 1000
"""Of one list; each is a curve."""
_LEAST_AHEAD, _FEW_AHEAD, _MOST_AHEAD = 2, 32, 512
"""Steps that may be begun and not yet computed: of long ones, of those whose duration is unknown,
of short ones. JAX bounds short ones earlier (jaxlib 0.10 at 32 programs on a CPU)."""
_TIME_AHEAD = 0.05
"""Seconds of work that may be begun and not yet computed: less than a hand notices, more than a
thread takes to wake up on a busy machine."""
_READ_EVERY = 64
"""Calls of `log` after which ready values are read at once, to free device memory."""


def steps_ahead(rate: float | None, before: int = _LEAST_AHEAD) -> int:
    """Return how many steps may be begun and not yet computed, at a rate in steps per second.

    While the rate is not known, as at the beginning of each epoch that is a loop of its own, it is
    as many as `before`, up to a few.

    Example:
        >>> steps_ahead(None), steps_ahead(20.0), steps_ahead(200.0), steps_ahead(1e5)
        (2, 2, 10, 512)
        >>> steps_ahead(None, before=400)
        32
    """
    if rate is None:
        return min(before, _FEW_AHEAD)
    return min(max(int(rate * _TIME_AHEAD), _LEAST_AHEAD), _MOST_AHEAD)


def logged_values(name: object, value: object) -> Iterator[tuple[str, Any]]:
    """Yield the values below a name: `{'loss': 1}` under `train` is `train/loss`, a list under `lr`
    is `lr/0`, `lr/1`; None is nothing.

    Example:
        >>> dict(logged_values("train", {"loss": 1.0, "lr": [0.1, 0.2], "norm": None}))
        {'train/loss': 1.0, 'train/lr/0': 0.1, 'train/lr/1': 0.2}
    """
    name = str(name)
    if isinstance(value, Mapping):
        parts: Any = value.items()
    elif isinstance(value, (list, tuple)):
        if len(value) > MOST_ITEMS:
            raise ArgumentTypeError(
                f"cannot log {name!r}: the list has {len(value):,} items, at most {MOST_ITEMS:,} "
                "are curves. Log an array."
            )
        parts = zip(getattr(value, "_fields", range(len(value))), value, strict=True)
    else:
        if value is not None:
            yield name, value
        return
    for key, part in parts:
        yield from logged_values(f"{name}/{key}", part)


class LogQueue:
    """The queue between `log` and the history of a run.

    Example:
        >>> queue = LogQueue(RunState("training"))
        >>> queue.put(1, {"loss": 0.5})
        >>> queue.drain()
        >>> queue.history.loss.last
        0.5
    """

    def __init__(self, run: RunState) -> None:
        self.history, self.scanned = run.history, run.scanned
        self._run = run
        self._reported: set[str] = set()
        self._ahead: deque[tuple[int, Any]] = deque()
        """Iterations that may not be computed yet, each with an array of its own."""
        self._first: int | None = None
        self._waiting: deque[tuple[int, dict[str, Any], bool]] = deque()
        """Step, values by name, and True for a vector whose numbers begin at the step."""
        self._array: type | None = None
        """The class of arrays, known once one was logged."""
        self._copies = jax.default_backend() != "cpu"
        self._draining = threading.Lock()
        run.drain = self.drain

    def put(self, step: int, values: Mapping[Any, Any], *, exactly: bool = False) -> None:
        """Keep values to be read later; report and leave out what cannot be logged.

        Args:
            step: The iteration of the loop.
            values: Values by name; dicts and lists hold several.
            exactly: True if `step` is a step, also where an iteration makes several.
        """
        is_flat = all(map(self._is_scalar, values, values.values()))
        flat = dict(values) if is_flat else self._flat(step, values, exactly)
        arrays = self._begun([value for value in flat.values() if type(value) is self._array])
        if not exactly:
            if arrays:
                self._ahead.append((step, arrays[0]))
            step = self.scanned.at(step)
            self._first = step if self._first is None else self._first
        self._waiting.append((step, flat, False))
        if len(self._waiting) % _READ_EVERY == 0:
            self.drain()

    def _begun(self, arrays: list[Any]) -> list[Any]:
        """Begin to copy arrays to the host, where that is elsewhere; return them."""
        if self._copies:
            for array in arrays:
                with contextlib.suppress(RuntimeError):  # a deleted one is reported when it is read
                    array.copy_to_host_async()
        return arrays

    def _is_scalar(self, name: object, value: Any) -> bool:
        """Return True for a number under a name, which needs no look inside."""
        is_number = type(value) in _NUMBERS or (type(value) is self._array and not value.shape)
        return is_number and type(name) is str

    def _flat(self, step: int, values: Mapping[Any, Any], exactly: bool) -> dict[str, Any]:
        """Return the values under flat names, each as it will still be when it is read; keep those
        of several steps.
        """
        flat: dict[str, Any] = {}
        vectors = [name for name, value in values.items() if not _is_one_number(value)]
        has_loss = any(isinstance(name, str) and is_training_loss(name) for name in vectors)
        # a vector that is logged with a number of the same step is an array
        may_spread = self.scanned or has_loss or len(vectors) == len(values)
        for key, value in values.items():
            try:
                for name, leaf in logged_values(key, value):
                    accepted = self._accept(name, leaf)
                    first = self._first_step(name, step, accepted, exactly) if may_spread else None
                    if first is None:
                        flat[name] = accepted
                    else:
                        self._waiting.append((first, {name: accepted}, True))
            except Exception as error:  # whatever was logged: the training goes on
                if is_of_signal(error):
                    raise
                name = type(key).__name__
                self.report(f"{name} {key!r}" if isinstance(key, str) else name, str(error))
        return flat

    def _first_step(self, name: str, step: int, value: Any, exactly: bool) -> int | None:
        """Return the first of the steps that the numbers of a vector belong to; None if to one."""
        if getattr(value, "ndim", None) != 1 or value.size < 2 or value.dtype.kind not in "fV":
            return None
        may_begin = self._first is None or self._first == step
        return step if exactly else self.scanned.first(name, step, value.size, may_begin=may_begin)

    def report(self, topic: str, text: str) -> None:
        """Report something that could not be kept, the first time."""
        if topic not in self._reported:
            self._reported.add(topic)
            self._run.messages.add(self._run.count.step, "warning", text)

    def drain(self) -> None:
        """Move computed values into the history."""
        with shield():  # a value that was taken out and not yet put in would be lost
            if self._draining.acquire(blocking=False):
                try:
                    self._drain()
                finally:
                    self._draining.release()

    def in_flight(self) -> int:
        """Return how many of the newest iterations are begun and not computed."""
        for count, (_, array) in enumerate(reversed(self._ahead)):
            if _is_ready(array):
                return count
        return len(self._ahead)

    def hold_back(self, done: int, most: int = 0) -> None:
        """Wait where more than `most` iterations are begun and not computed, until half of them
        are, so that the loop does not run far ahead.

        A wait costs that the thread sleeps and wakes up, and the device needs work meanwhile: of
        short steps it gets several, and one wait serves for half of those.

        Args:
            done: Iterations that were made.
            most: How many of them may not be computed yet; 0 waits for all.
        """
        ahead = self._ahead
        if not ahead or ahead[0][0] > done - most:
            return
        last, awaited = done - most + most // 4 * 2, []
        while ahead and ahead[0][0] <= last:
            awaited.append(ahead.popleft()[1])
        for array in reversed(awaited):  # when the newest is ready, most others are
            if not _is_ready(array):
                with contextlib.suppress(Exception):  # the loop meets the error where it reads it
                    array.block_until_ready()

    def settle(self, timeout: float | None = None, until: Callable[[], bool] = bool) -> None:
        """Wait until everything is computed and read, or the time (in seconds) ran out, or `until`
        came first.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        self.drain()
        while self._waiting and time.monotonic() < end and not until():
            time.sleep(0.002)
            self.drain()

    def _drain(self) -> None:
        steps: dict[str, list[int]] = {}
        numbers: dict[str, list[float]] = {}
        wide = set()
        while self._waiting and self._all_ready(self._waiting[0][1]):
            step, values, is_vector = self._waiting.popleft()
            for name, value in values.items():
                new, is_narrow = self._read(name, step, value, is_vector)
                steps.setdefault(name, []).extend(range(step, step + len(new)))
                numbers.setdefault(name, []).extend(new)
                if not is_narrow:
                    wide.add(name)
        for name in [name for name in numbers if numbers[name]]:
            dtype = np.float64 if name in wide else np.float32
            self.history.extend(name, steps[name], np.array(numbers[name], dtype))

    def _all_ready(self, values: dict[str, Any]) -> bool:
        return all(_is_ready(v) for v in values.values() if type(v) is self._array)

    def _read(self, name: str, step: int, value: Any, is_vector: bool) -> tuple[list[float], bool]:
        """Return the numbers, and True if they are float32 or smaller; put anything else into
        media.
        """
        try:
            if type(value) in _NUMBERS:
                return [float(value)], False
            if type(value) is self._array:
                value = np.asarray(value)
            is_numeric = isinstance(value, np.ndarray) and value.dtype.kind in "biufV"
            if is_numeric and (is_vector or value.size == 1):
                is_narrow = value.dtype.kind in "fV" and value.dtype.itemsize <= 4
                return value.astype(np.float64).ravel().tolist(), is_narrow
            self.history.media.put(name, step, value)
        except Exception as error:  # one value must not take the others with it
            if is_of_signal(error):
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            if "deleted" in reason:
                reason = "its memory was donated to a later step; log a value the step returns"
            text = f"{name!r} of step {step:,} could not be read: {reason}"
            self.report(f"reading {name}", text)
        return [], False

    def _accept(self, name: str, value: Any) -> Any:
        """Return a value that will still be the same when it is read."""
        if hasattr(value, "__jax_array__") and not isinstance(value, jax.Array):
            value = value.__jax_array__()
        if isinstance(value, jax.core.Tracer):
            raise TracerLeakError(
                f"cannot log {name!r} from inside a transformed function: there it is a tracer "
                f"({value.aval.str_short()}), which has no value yet. Return the value from the "
                "step, and log what the step returns."
            )
        if isinstance(value, jax.Array):
            return self._accept_array(value)
        if type(value) in _NUMBERS:
            return value
        return normalize_media(name, without_torch(value))

    def _accept_array(self, value: Any) -> Any:
        if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
            raise ArgumentTypeError("a random key cannot be logged; log jax.random.key_data(key).")
        if not value.is_fully_addressable:
            if not value.is_fully_replicated:
                raise ArgumentTypeError(
                    "an array that is partly on other hosts cannot be logged; reduce it to one "
                    "number within the step."
                )
            value = value.addressable_data(0)
        self._array = type(value)
        return self._begun([value])[0]


def _is_one_number(value: object) -> bool:
    return isinstance(value, _NUMBERS) or getattr(value, "shape", None) == ()


def _is_ready(array: jax.Array) -> bool:
    # `is_ready` of a deleted array ends the process (jaxlib 0.10.2)
    return array.is_deleted() or array.is_ready()  # pyright: ignore[reportAttributeAccessIssue]
