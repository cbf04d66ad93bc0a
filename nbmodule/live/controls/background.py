"""A loop in a thread, for kernels that take no click while a cell runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from nbmodule.live.controls.pump import is_marimo
from nbmodule.live.run_data.state import RunState


class BackgroundRun:
    """A run that goes on after its cell has ended.

    Args:
        run: The run.
        function: Called with each item.
        steps: The items.
        stop: Requests the end of the loop.
        finish: Ends the run, with the exception that ended the loop if there was one.
    """

    def __init__(
        self,
        run: RunState,
        function: Callable[[Any], Any],
        steps: Iterator[Any],
        *,
        stop: Callable[[], None],
        finish: Callable[[BaseException | None], None],
    ) -> None:
        self._run, self._function, self._steps = run, function, steps
        self._stop, self._finish = stop, finish
        self._over = threading.Event()
        self.error: BaseException | None = None
        """The exception that ended it, if any."""

    @property
    def is_running(self) -> bool:
        """True if it is not over yet."""
        return not self._over.is_set()

    def start(self) -> None:
        """Start a thread; in marimo one whose outputs reach the cell."""
        make = sys.modules["marimo"].Thread if is_marimo() else threading.Thread
        make(target=self._work, name="nbmodule-live", daemon=True).start()

    def stop(self) -> None:
        """Request the end at the next step boundary."""
        self._stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over, and raise what ended it; return False if the time (in seconds) ran
        out first.

        The wait can be interrupted; the run goes on.
        """
        if not self._over.wait(timeout):
            return False
        if self.error is not None:
            raise self.error
        return True

    def _work(self) -> None:
        try:
            for item in self._steps:
                self._function(item)
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self.error = error
        finally:
            del self._function, self._steps
            self._finish(self.error)
            self._over.set()

    def __repr__(self) -> str:
        return f"BackgroundRun({self._run.progress})"
