"""The line between a kernel and the pages that show its outputs: an anywidget that is itself never
shown.

A saved output holds HTML only, which draws itself. The script of the widget finds the views it is
for in the page and joins them to the kernel, so that a saved notebook never holds a widget view,
and an exported page never goes blank.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from nbmodule.base.notebook import names_of_notebook, running_kernel

# Closed lines for which messages are still taken.
MOST_CLOSED = 50


def needs_second_output() -> bool:
    """Return True if the page shows widgets in another document than HTML (VS Code, Colab)."""
    if "google.colab" in sys.modules or "VSCODE_PID" in os.environ:
        return True
    # by VS Code; its kernels do not always have its environment
    return "__vsc_ipynb_file__" in names_of_notebook()


class ClosedLine:
    """Takes what pages send on a line that is closed.

    Receipts and farewells are on their way when the kernel closes it; of messages to a line that it
    does not know a kernel writes `No such comm` in red below whatever cell comes next.
    """

    target_name = "nbmodule.closed"
    _closed = False

    def __init__(self, number: str) -> None:
        self.number = number

    def handle_msg(self, message: object) -> None:
        """Take a message."""

    def handle_close(self, message: object) -> None:
        """Take a page's own end of the line, which the kernel then forgets."""
        hush(self.number)


def hush(number: str) -> None:
    """Take what still comes for a line that was closed."""
    lines = getattr(getattr(running_kernel(), "comm_manager", None), "comms", None)
    if isinstance(lines, dict):
        lines.setdefault(number, ClosedLine(number))
        old = [key for key, line in lines.items() if isinstance(line, ClosedLine)]
        for key in old[:-MOST_CLOSED]:
            del lines[key]


@functools.cache
def link_class(script: str) -> type:
    """Make the class of widgets that bring one script.

    Args:
        script: An ES module whose default export has `initialize`, and `render` where the widget
            itself draws.

    Returns:
        A class of `(hear, run="", record="")`: `hear` is called with each message of a page, in
        whatever thread it arrives, and must only store it; `run` and `record` are traits that the
        script reads.
    """
    import anywidget
    import traitlets

    class Link(anywidget.AnyWidget):
        """Joins views in the page to the kernel."""

        _esm = script
        run = traitlets.Unicode().tag(sync=True)
        record = traitlets.Unicode().tag(sync=True)

        def __init__(self, hear: Callable[[dict[str, Any]], None], **traits: object) -> None:
            self._hear = hear
            super().__init__(**traits)

        def close(self) -> None:
            number = getattr(self.comm, "comm_id", "")
            super().close()
            if number:
                hush(number)

        def open(self) -> None:
            # A page may answer, in another thread, as soon as it knows of the widget.
            self.on_msg(
                lambda _, content, __: self._hear(content) if isinstance(content, dict) else None
            )
            super().open()

    return Link
