"""The progress of a run outside a notebook: one line in a terminal, some lines in a job log."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

from nbmodule.base.format import format_number, plain
from nbmodule.live.run.progress import Progress
from nbmodule.views.renderers.text_layout import cut_end

LOG_EVERY = 60.0
"""Seconds between two lines of a job log; a tenth of the steps also makes one."""
_REDRAW_EVERY = 0.1


class ProgressLine:
    """Shows progress as text: one line that is written over in a terminal, otherwise a line for
    every tenth of the steps and at least one a minute.

    Args:
        stream: Where to write; standard error if not given.
    """

    def __init__(self, stream: Any = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = getattr(self._stream, "isatty", lambda: False)()
        self._tenth = 0
        self._at: float | None = None

    def show(self, progress: Progress, numbers: dict[str, float]) -> None:
        """Write progress and the newest numbers, if it is time."""
        clock = time.monotonic()
        if self._at is None:
            self._at = clock - _REDRAW_EVERY
        tenth = 10 * progress.done // progress.total if progress.total else 0
        every = _REDRAW_EVERY if self._is_terminal else LOG_EVERY
        if clock - self._at >= every or (tenth > self._tenth and not self._is_terminal):
            self._tenth, self._at = tenth, clock
            self._write(progress, numbers, "" if self._is_terminal else "\n")

    def close(self, progress: Progress, numbers: dict[str, float]) -> None:
        """Write how it ended."""
        self._write(progress, numbers, "\n")

    def _write(self, progress: Progress, numbers: dict[str, float], end: str) -> None:
        text = one_line(progress, numbers)
        if self._is_terminal:
            text = "\r\x1b[K" + cut_end(text, shutil.get_terminal_size().columns - 1)
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(text.encode(encoding, "replace").decode(encoding) + end)
        self._stream.flush()


def one_line(progress: Progress, numbers: dict[str, float]) -> str:
    """Write progress and the newest numbers in one line.

    Example:
        >>> one_line(Progress("running", 12, 40, 1, 1, 21.5, 1.3), {"loss": 0.25})
        'running · step 12/40 · 21.5/s · 1.3 s left · loss 0.25'
    """
    return " · ".join(
        [str(progress), *(f"{plain(n)} {format_number(v)}" for n, v in numbers.items())]
    )
