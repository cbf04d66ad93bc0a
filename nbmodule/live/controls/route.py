"""Tells by which way a click reaches a loop that is running, and what works where none does."""

from __future__ import annotations

import sys
import threading

from nbmodule.live.controls.pump import CommPump
from nbmodule.live.run.control import Route

_PUMP = Route("pump", "buttons act between two steps")
_THREAD = Route("thread", "the loop runs in the background; buttons act between two steps")
_SUBSHELL = Route(
    "subshell", "the kernel takes clicks in a thread of its own; buttons act between two steps"
)
_KERNEL = Route(
    "none",
    "this kernel takes no clicks while a cell runs: use its interrupt button (once: stop after this step, twice: at once)",
)
_MARIMO = Route(
    "none",
    "marimo takes no clicks while a cell runs: use its interrupt button, or live.run(..., background=True)",
)
_TERMINAL = Route("none", "Ctrl+C stops after this step; pressed twice it interrupts at once")


def find_route(pump: CommPump, kernel: object, *, delivered_by: str = "") -> Route:
    """Find the way of a click, from what this kernel has and from how the last click came.

    Args:
        pump: The pump of the loop's thread.
        kernel: The kernel, None outside a notebook.
        delivered_by: Name of the thread that delivered the last command, '' if none came yet.

    Example:
        >>> find_route(CommPump(), None).text
        'Ctrl+C stops after this step; pressed twice it interrupts at once'
    """
    here = threading.current_thread()
    if pump.active:
        return _PUMP
    if here is not threading.main_thread():
        return _THREAD
    if delivered_by and delivered_by != here.name:
        return _SUBSHELL
    if "marimo" in sys.modules and is_marimo():
        return _MARIMO
    return _TERMINAL if kernel is None else _KERNEL


def is_marimo() -> bool:
    """Tell whether this code runs in a cell of marimo."""
    marimo = sys.modules.get("marimo")
    running = getattr(marimo, "running_in_notebook", None)
    return bool(running and running())
