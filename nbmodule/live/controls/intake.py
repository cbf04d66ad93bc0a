"""Takes logged values without waiting for the device, and reads them when they have come.

`log` only keeps references and, off the CPU, starts the copy to the host. `drain`, called between
steps, reads those whose computation is over, in order; it stops at the first that is not, so that
no step ever waits for a number.

Nothing that is logged raises: a number is no reason to lose a training. What cannot be kept is
told, once for each name.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jax import Array

from nbmodule.base.signals import is_of_signal
from nbmodule.errors import ArgumentTypeError, TracerLeakError
from nbmodule.live.controls.interrupt import shield
from nbmodule.live.run.history import History
from nbmodule.live.run.logged import Scanned, ScannedSteps, leaves_of
from nbmodule.live.run.media import Media
from nbmodule.live.run.outliers import is_training_loss
from nbmodule.tree.leaf import without_torch

if TYPE_CHECKING:
    from jax.typing import DTypeLike

_NUMBERS = (float, int, bool)
_LEAST_AHEAD, _FEW_AHEAD, _MOST_AHEAD = 2, 32, 512
"""Steps that may be begun and not yet computed: of long ones, of those whose length is not known yet, of short ones. JAX itself bounds
short ones earlier (jaxlib 0.10 at 32 programs on a CPU), at no cost of a thread that is woken."""
_TIME_AHEAD = 0.05
"""Seconds of work that may be begun and not yet computed: less than a hand notices, more than a thread takes to be woken on a busy machine."""
_READ_EVERY = 64
"""Calls of `log` after which what is ready is read at once: the device's memory can be used again while it is warm."""


def steps_ahead(rate: float | None, before: int = _LEAST_AHEAD) -> int:
    """Give how many steps may be begun and not yet computed, at so many steps a second.

    Where the rate is not known yet, as at the beginning of each epoch that is a loop of its own, it
    is as many as `before`, up to a few.

    Example:
        >>> steps_ahead(None), steps_ahead(20.0), steps_ahead(200.0), steps_ahead(1e5), steps_ahead(None, before=400)
        (2, 2, 10, 512, 32)
    """
    if rate is None:
        return min(before, _FEW_AHEAD)
    return min(max(int((rate or 0.0) * _TIME_AHEAD), _LEAST_AHEAD), _MOST_AHEAD)


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

    def __init__(
        self,
        history: History,
        on_error: Callable[[str], None] | None = None,
        *,
        scanned: ScannedSteps | None = None,
    ) -> None:
        self.history = history
        self.newest: dict[str, float] = {}
        """The newest number of each name."""
        self.scanned = ScannedSteps() if scanned is None else scanned
        self._on_error = on_error
        self._told: set[str] = set()
        self._ahead: deque[tuple[int, Any]] = deque()
        self._first: int | None = None
        self._waiting: deque[tuple[int, dict[str, Any]]] = deque()
        self._array: type | None = None
        self._copies = False
        self._draining = threading.Lock()

    def put(self, step: int, values: Mapping[Any, Any], *, exactly: bool = False) -> None:
        """Keep values to be read later; what is no number, text, array or picture is told and left
        out.

        Args:
            step: The turn of the loop.
            values: Values by name; dicts and lists hold several.
            exactly: Whether `step` is the step that is meant, even where a turn makes several.
        """
        array = self._array
        kept = newest = None
        turn = step
        for name, value in values.items():
            kind = type(value)
            if type(name) is str and (kind in _NUMBERS or (kind is array and not value.shape)):
                if kind is array:
                    newest = value if newest is None else newest
                    if self._copies:
                        _begin_copy(value)
                continue
            kept = self._flat(step, values, exactly)
            newest = next((value for value in kept.values() if type(value) is self._array), None)
            break
        if self.scanned.turns and not exactly:
            step = self.scanned.at(step)
        if self._first is None and not exactly:
            self._first = step
        self._waiting.append((step, dict(values) if kept is None else kept))
        if newest is not None and not exactly:
            self._ahead.append((turn, newest))
        if len(self._waiting) % _READ_EVERY == 0:
            self.drain()

    def _flat(self, step: int, values: Mapping[Any, Any], exactly: bool) -> dict[str, Any]:
        """Give the values under flat names, each as it will still be when it is read."""
        kept: dict[str, Any] = {}
        is_one_step = any(map(_is_one_number, values.values())) and not any(
            isinstance(name, str) and is_training_loss(name) and not _is_one_number(value)
            for name, value in values.items()
        )
        for key, value in values.items():
            try:
                for name, leaf in leaves_of(key, value):
                    accepted = self._accept(name, leaf)
                    if self.scanned or not is_one_step:  # beside a number a vector is an array
                        accepted = self._spread(name, step, accepted, exactly)
                    kept[name] = accepted
            except Exception as error:  # whatever was logged: the training goes on
                if is_of_signal(error):
                    raise
                self.tell(
                    f"{type(key).__name__} {key!r}" if isinstance(key, str) else type(key).__name__,
                    str(error),
                )
        return kept

    def _spread(self, name: str, step: int, value: Any, exactly: bool) -> Any:
        """Several numbers of one turn belong to as many steps."""
        if getattr(value, "ndim", None) != 1 or value.size < 2 or not is_floating(value.dtype):
            return value
        may_begin = self._first is None or self._first == step
        first = step if exactly else self.scanned.first(name, step, value.size, may_begin=may_begin)
        return value if first is None else Scanned(first, value)

    def tell(self, what: str, text: str) -> None:
        """Tell of something that could not be kept, the first time."""
        if what not in self._told and self._on_error is not None:
            self._told.add(what)
            self._on_error(text)

    def drain(self) -> int:
        """Move what has been computed into the history; give the number of `log` calls that were
        read.
        """
        with shield():  # a value that was taken out and not yet put in would be lost
            if not self._draining.acquire(blocking=False):
                return 0
            try:
                return self._drain()
            finally:
                self._draining.release()

    def hold_back(self, done: int, most: int = 0) -> None:
        """Where more than `most` turns are begun and not computed, wait until half of them are, so
        that the loop does not run far ahead.

        What a wait costs is that the thread sleeps and is woken, and the device must have something
        to do until then: with steps that are short it is given several of them, and one wait serves
        for half of those.

        Args:
            done: Turns that are made.
            most: How many of them may be on their way; with 0 all are waited for.
        """
        ahead = self._ahead
        if not ahead or ahead[0][0] > done - most:
            return
        last, awaited = done - most + most // 4 * 2, []
        while ahead and ahead[0][0] <= last:
            awaited.append(ahead.popleft()[1])
        for array in reversed(awaited):  # when the newest is there, most others are
            if not array.is_deleted() and not array.is_ready():
                with contextlib.suppress(
                    Exception
                ):  # the loop meets the same error where it reads the value
                    array.block_until_ready()

    def settle(self, timeout: float | None = None, until: Callable[[], bool] | None = None) -> bool:
        """Wait until everything is computed and read; give False if the time (in seconds) ran out
        or `until` came first.
        """
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
                numbers, dtype = self._read(name, step, value)
                if numbers is None:
                    continue
                found = points.get(name)
                if found is None:
                    found = points[name] = ([], [], set())
                if type(numbers) is float:
                    found[0].append(step)
                    found[1].append(numbers)
                else:
                    found[0].extend(range(value.first, value.first + len(numbers)))
                    found[1].extend(numbers)
                found[2].add(dtype)
        for name, (steps, numbers, dtypes) in points.items():
            narrow = all(
                dtype is not None and dtype.kind in "fV" and dtype.itemsize <= 4 for dtype in dtypes
            )
            self.history.extend(
                name, steps, np.array(numbers, np.float32 if narrow else np.float64)
            )
            self.newest[name] = numbers[-1]
        return read

    def __len__(self) -> int:
        return len(self._waiting)

    def _all_ready(self, values: dict[str, Any]) -> bool:
        array = self._array
        for value in values.values():
            if type(value) is Scanned:
                value = value.values
            # A deleted array is asked nothing else: `is_ready()` of one ends the process (jaxlib
            # 0.10.2).
            if type(value) is array and not value.is_deleted() and not value.is_ready():
                return False
        return True

    def _read(self, name: str, step: int, value: Any) -> tuple[Any, Any]:
        """Give a number, or those of several steps, and the dtype (None for a Python number); all
        else goes on the shelf.
        """
        try:
            if type(value) in _NUMBERS:
                return float(value), None
            if type(value) is Scanned:
                numbers = np.asarray(value.values)
                return numbers.astype(np.float64).tolist(), numbers.dtype
            if type(value) is self._array:
                value = np.asarray(value)
            if (
                isinstance(value, (np.ndarray, np.generic))
                and value.size == 1
                and value.dtype.kind in "biufV"
            ):
                return float(value.item()), value.dtype
            # A view of the device's memory would keep later steps from reusing it.
            self.history.shelf.put(
                name, step, value.copy() if isinstance(value, np.ndarray) else value
            )
        except Exception as error:  # one value must not take the others with it
            if is_of_signal(error):
                raise
            self.tell(
                f"reading {name}", f"{name!r} of step {step:,} could not be read: {_reason(error)}"
            )
        return None, None

    def _accept(self, name: str, value: Any) -> Any:
        """Give a value that will still be the same when it is read."""
        if isinstance(value, (str, np.generic, Media)):
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
        if hasattr(value, "detach") and hasattr(value, "cpu"):
            return np.array(without_torch(value))
        if hasattr(value, "savefig") or hasattr(value, "getbands") or hasattr(value, "__array__"):
            return _copy_of(value)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ArgumentTypeError(
                f"cannot log {name!r}: expected a number, a text, an array or a picture, found {type(value).__name__}. "
                f"It is left out."
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
            _begin_copy(value)
        return value


def _is_one_number(value: object) -> bool:
    return isinstance(value, _NUMBERS) or getattr(value, "shape", None) == ()


def is_floating(dtype: DTypeLike) -> bool:
    """Whether numbers of a dtype are measured rather than counted, those of half precision
    included.
    """
    return np.dtype(dtype).kind in "fV"


def _begin_copy(value: Array) -> None:
    with contextlib.suppress(RuntimeError):  # a deleted array is told of when it is read
        value.copy_to_host_async()


def _refuse_elsewhere() -> Any:
    raise ArgumentTypeError(
        "an array that lies partly on other hosts cannot be logged; reduce it to one number within the step"
    )


def _copy_of(value: Array) -> Any:
    if hasattr(value, "savefig"):
        return value
    if hasattr(value, "getbands"):
        return value.copy()
    return np.array(value)


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return (
        "its memory was donated to a later step; log a value the step returns"
        if "deleted" in text
        else text
    )
