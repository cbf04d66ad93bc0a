"""The progress of a run where there is no notebook: one line in a terminal, a line now and then in
a job log.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any, Protocol

from nbmodule.base.format import format_number, plain
from nbmodule.live.run.progress import Progress
from nbmodule.views.renderers.text_layout import cut_end

LOG_EVERY = 60.0
"""Seconds between two lines of a job log; a tenth of the way also makes one."""
_REDRAW_EVERY = 0.1


class ProgressLine(Protocol):
    """Something that shows progress as text."""

    def show(self, progress: Progress, numbers: dict[str, float]) -> None:
        """Show where the run is, and its newest numbers."""

    def close(self, progress: Progress, numbers: dict[str, float]) -> None:
        """Show how it ended."""


def make_line(stream: object = None) -> ProgressLine:
    """Choose by what the stream (standard error) is: a tqdm bar, a line of our own, or a log."""
    stream = sys.stderr if stream is None else stream
    if not getattr(stream, "isatty", lambda: False)():
        return LogLines(stream)
    try:
        from tqdm import tqdm
    except ImportError:
        return TerminalLine(stream)
    return TqdmLine(tqdm, stream)


class TerminalLine:
    """One line that is written over."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._next = 0.0

    def show(self, progress: Progress, numbers: dict[str, float]) -> None:
        """Write the line anew, at most ten times a second."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _REDRAW_EVERY
            self._write(progress, numbers, "")

    def close(self, progress: Progress, numbers: dict[str, float]) -> None:
        """Write it a last time and end the line."""
        self._write(progress, numbers, "\n")

    def _write(self, progress: Progress, numbers: dict[str, float], end: str) -> None:
        text = cut_end(one_line(progress, numbers), shutil.get_terminal_size().columns - 1)
        self._stream.write(f"\r\x1b[K{_encodable(text, self._stream)}{end}")
        self._stream.flush()


class TqdmLine:
    """One bar of tqdm, moved by hand."""

    def __init__(self, tqdm: Any, stream: Any) -> None:
        self._make = lambda total: tqdm(
            total=total, file=stream, unit="step", dynamic_ncols=True, leave=True
        )
        self._bar: Any = None

    def show(self, progress: Progress, numbers: dict[str, float]) -> None:
        """Move the bar."""
        if self._bar is None:
            self._bar = self._make(progress.total)
        self._bar.total = progress.total
        self._bar.set_postfix(
            {name: format_number(value) for name, value in numbers.items()}, refresh=False
        )
        if progress.state != "running":
            self._bar.set_description_str(progress.state, refresh=False)
        self._bar.update(progress.done - self._bar.n)

    def close(self, progress: Progress, numbers: dict[str, float]) -> None:
        """Leave the bar as it ended."""
        self.show(progress, numbers)
        self._bar.set_description_str(
            progress.state + (f" ({progress.reason})" if progress.reason else "")
        )
        self._bar.close()


class LogLines:
    """A line for every tenth of the way, and at least one a minute."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._tenth = 0
        self._at: float | None = None

    def show(self, progress: Progress, numbers: dict[str, float]) -> None:
        """Write a line if one is due."""
        now = time.monotonic()
        if self._at is None:
            self._at = now
        tenth = 10 * progress.done // progress.total if progress.total else 0
        if tenth > self._tenth or now - self._at >= LOG_EVERY:
            self._tenth, self._at = tenth, now
            self._write(progress, numbers)

    def close(self, progress: Progress, numbers: dict[str, float]) -> None:
        """Write how it ended."""
        self._write(progress, numbers)

    def _write(self, progress: Progress, numbers: dict[str, float]) -> None:
        self._stream.write(_encodable(one_line(progress, numbers), self._stream) + "\n")
        self._stream.flush()


def one_line(progress: Progress, numbers: dict[str, float]) -> str:
    """Write progress and the newest numbers in one line.

    Example:
        >>> one_line(Progress('running', 12, 40, 1, 1, 21.5, 1.3), {'loss': 0.25})
        'running · step 12/40 · 21.5/s · 1.3 s left · loss 0.25'
    """
    return " · ".join(
        [str(progress), *(f"{plain(n)} {format_number(v)}" for n, v in numbers.items())]
    )


def _encodable(text: str, stream: object) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
