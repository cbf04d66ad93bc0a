"""A curve that grows in the running cell: `LossCurve().log(loss=loss)` in any loop.

The output is the static view, sent again at most every `every` seconds under one display id; in a
terminal it is one line that is written over, in a job log a line now and then. Values of JAX are
kept as they are and read a step late, so that logging never waits for the device.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections import deque
from types import TracebackType
from typing import Any

import jax
import jax.core
import numpy as np

from nbmodule.base.curves import Curve, reduce_curve
from nbmodule.base.format import format_count, format_number, plain, printable_repr
from nbmodule.base.notebook import running_kernel, running_shell
from nbmodule.base.sockets import Displayed, socket
from nbmodule.errors import ArgumentTypeError
from nbmodule.views.builders.pytrees import register_record
from nbmodule.views.records.records import HistoryRecord, SeriesRecord

# Values that may wait for the device before the oldest is read whatever it takes.
MOST_WAITING = 256
KEPT_POINTS = 8192
LOG_EVERY = 60.0


class LossCurve(Displayed):
    """Draw numbers over steps while a cell runs.

    Args:
        name: The title.
        every: Seconds between two updates of the display, 0.1 at least; a job log has a line a
            minute.
        axis: The name of a step.

    Example:
        >>> with LossCurve("digits", display=False) as curve:
        ...     for i in range(3):
        ...         curve.log(loss=1 / (i + 1))
        >>> curve.record().series[0].values
        (1.0, 0.5, 0.3333333333333333)
    """

    def __init__(
        self,
        name: str = "training",
        *,
        every: float = 0.5,
        axis: str = "step",
        display: bool = True,
    ) -> None:
        self.name, self.axis, self.state = name, axis, ""
        self._place = _place() if display else ""
        self.every = LOG_EVERY if self._place == "log" else max(float(every), 0.1)
        self._points: dict[str, tuple[list[float], list[float]]] = {}
        self._waiting: deque[tuple[str, float, Any]] = deque()
        self._step = 0
        self._shown_at = float("-inf")
        self._handle: Any = None
        if self._place == "notebook":
            _at_end_of_cell(self)

    def log(self, step: float | None = None, **values: Any) -> None:
        """Add one number to each named series; returns at once, also when the device is still
        computing it.

        Args:
            step: Where on the axis; one more than the last by default.
            values: Numbers, or arrays with one element.
        """
        step = self._step if step is None else float(step)
        self._step = step + 1
        for name, value in values.items():
            if getattr(value, "size", 1) != 1:
                raise ArgumentTypeError(
                    f"cannot log {name!r}: expected one number, got shape {tuple(value.shape)}. "
                    "Take a mean, or log one series for each element."
                )
            if isinstance(value, jax.core.Tracer):
                raise ArgumentTypeError(
                    f"cannot log {name!r} inside a compiled function: its value is not known "
                    "there. Return it and log it outside."
                )
            self._waiting.append((name, step, value))
        self._read()
        if time.monotonic() - self._shown_at >= self.every:
            self._show()

    def _read(self, *, wait: bool = False) -> None:
        """Take in the values that are ready; the newest ones may still be on their way."""
        while self._waiting:
            name, step, value = self._waiting[0]
            late = wait or len(self._waiting) > MOST_WAITING
            if not late and hasattr(value, "is_ready") and not value.is_ready():
                return
            self._waiting.popleft()
            steps, values = self._points.setdefault(name, ([], []))
            steps.append(step)
            values.append(float(np.asarray(value).reshape(())))
            if len(values) > KEPT_POINTS:
                curve = reduce_curve(Curve(np.array(steps), np.array(values)), KEPT_POINTS // 4)
                self._points[name] = (curve.steps.tolist(), curve.values.tolist())

    def record(self) -> HistoryRecord:
        """Give what is ready as a record."""
        self._read()
        series = tuple(
            SeriesRecord(name, tuple(steps), tuple(values))
            for name, (steps, values) in self._points.items()
        )
        return HistoryRecord(plain(self.name), series, self.state, self.axis)

    def _show(self, *, last: bool = False) -> None:
        if not self._place:
            return
        self._shown_at = time.monotonic()
        history = self.record()
        if self._place == "notebook":
            self._update(history)
        elif self._place == "terminal":
            print(f"\r\x1b[K{one_line(history)}", end="\n" if last else "", flush=True)
        else:
            print(one_line(history), flush=True)

    def _update(self, history: HistoryRecord) -> None:
        from IPython.display import display

        from nbmodule.views.display.show import mimebundle

        bundle = mimebundle(history)
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def close(self, state: str = "done") -> None:
        """Read the last values and draw the final form; further calls do nothing."""
        if self.state:
            return
        self._read(wait=True)
        self.state = state
        self._show(last=True)

    def __enter__(self) -> LossCurve:
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if cls is None:
            self.close()
        elif issubclass(cls, KeyboardInterrupt):
            self.close(f"stopped at {format_count(int(self._step))}")
        else:
            self.close(f"failed: {cls.__name__}: {plain(str(error), 100)}")

    @printable_repr
    def __repr__(self) -> str:
        from nbmodule.views.renderers.plain_text import text_of

        return text_of(self.record(), color=False)

    def plot(self, file: object = None, *, log: bool = False) -> Any:
        """Draw the series as a matplotlib figure, and write that to a file if one is named; see
        `nb.plot`.
        """
        return socket("plot")(self, file, log=log)


def _place() -> str:
    """Return where updates go: a notebook's display, a terminal's last line, or a log."""
    if running_kernel() is not None:
        return "notebook"
    return "terminal" if sys.stdout.isatty() else "log"


def one_line(history: HistoryRecord) -> str:
    """Write the last values in one line.

    Example:
        >>> one_line(
        ...     HistoryRecord("digits", (SeriesRecord("loss", (0.0, 1.0), (2.0, 0.5)),), "done")
        ... )
        'digits  step 1  loss 0.5  done'
    """
    last = max((s.steps[-1] for s in history.series if s.steps), default=0)
    values = [f"{plain(s.name)} {format_number(s.values[-1])}" for s in history.series if s.values]
    at = f"{history.axis} {format_count(int(last))}"
    return "  ".join(filter(None, [history.name, at, *values, history.state]))


def _at_end_of_cell(curve: LossCurve) -> None:
    """Close a curve when the cell that made it ends, so that the saved output is the final form."""
    events = running_shell().events
    reference = weakref.ref(curve)

    def end(result: object = None) -> None:
        events.unregister("post_run_cell", end)
        error = getattr(result, "error_in_exec", None)
        alive = reference()
        if alive is not None:
            alive.__exit__(None if error is None else type(error), error, None)

    events.register("post_run_cell", end)


register_record(LossCurve, lambda curve: curve.record())
