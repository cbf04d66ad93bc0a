"""The progress of a run outside a notebook: one line in a terminal, some lines in a job log."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable
from typing import Any

from nbmodule.base.format import format_count, format_number, plain
from nbmodule.live.run_data.messages import Message
from nbmodule.live.run_data.progress import ENDED, Progress
from nbmodule.views.renderers.text_layout import cut_end

LOG_EVERY = 60.0
"""Seconds between two lines of a job log; a tenth of the steps also makes one."""
_REDRAW_EVERY = 0.1


class ProgressLine:
    """Shows progress as text: one line that is written over in a terminal, otherwise a line for
    every tenth of the steps and at least one a minute. Warnings and errors are lines of their own.

    Args:
        stream: Where to write; standard error if not given.
    """

    def __init__(self, stream: Any = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = getattr(self._stream, "isatty", lambda: False)()
        self._tenth = self._reported = 0
        self._at = time.monotonic() - _REDRAW_EVERY

    def show(
        self, progress: Progress, numbers: dict[str, float], messages: Iterable[Message] = ()
    ) -> None:
        """Write new messages, and progress and the newest numbers if it is time or the end."""
        for message in messages:
            if message.number > self._reported and message.kind != "note":
                text = f"step {format_count(message.step)}: {plain(message.text, 600)}"
                self._write(f"{message.kind}, {text}", "\n")
            self._reported = max(self._reported, message.number)
        clock, is_over = time.monotonic(), progress.state in ENDED
        tenth = 10 * progress.done // progress.total if progress.total else 0
        every = _REDRAW_EVERY if self._is_terminal else LOG_EVERY
        is_next_tenth = tenth > self._tenth and not self._is_terminal
        if is_over or is_next_tenth or clock - self._at >= every:
            self._tenth, self._at = tenth, clock
            end = "" if self._is_terminal and not is_over else "\n"
            self._write(one_line(progress, numbers), end)

    def _write(self, text: str, end: str) -> None:
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            text = "\r\x1b[K" + (text if end else cut_end(text, width))
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
