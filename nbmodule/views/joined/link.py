"""The line between a kernel and the pages that show its outputs: an anywidget that is itself never shown.

A saved output holds HTML only, which draws itself. The script of the widget finds the views it is for in the page and
joins them to the kernel, so that a saved notebook never holds a widget view, and an exported page never goes blank.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any


def needs_second_output() -> bool:
    """Tell whether the page shows widgets in another document than HTML, as VS Code and Colab do."""
    return "google.colab" in sys.modules or "VSCODE_PID" in os.environ


@functools.cache
def link_class(script: str) -> type:
    """Make the class of widgets that bring one script.

    Args:
        script: An ES module whose default export has `initialize`, and `render` where the widget itself draws.

    Returns:
        A class of `(hear, run="", record="")`: `hear` is called with each message of a page, in whatever thread it arrives,
        and must only store it; `run` and `record` are traits that the script reads.
    """
    import anywidget
    import traitlets

    class Link(anywidget.AnyWidget):
        """Joins views in the page to the kernel."""

        _esm = script
        run = traitlets.Unicode().tag(sync=True)
        record = traitlets.Unicode().tag(sync=True)

        def __init__(self, hear: Callable[[dict[str, Any]], None], **traits: Any) -> None:
            self._hear = hear
            super().__init__(**traits)

        def open(self) -> None:
            # A page may answer, in another thread, as soon as it knows of the widget.
            self.on_msg(lambda _, content, __: self._hear(content) if isinstance(content, dict) else None)
            super().open()

    return Link
