"""Join the saved views of a notebook to the kernel that made them, to ask it for more.

A view is shown as static HTML. Where a notebook front end is there, one widget for all views of the
kernel, itself never shown, brings the renderer with all that needs a kernel; it finds the elements
of its views in the page and draws them again with a channel. Nothing of it is in the output but a
key: a digest of the data of the view, and a number where several views of one notebook show the
same. So the same notebook gives the same bytes, a saved notebook never holds a widget, and a page
without a kernel shows the static form.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import count
from typing import Any

from nbmodule.base.format import plain
from nbmodule.base.notebook import names_of_notebook, running_cell_id, running_kernel, running_shell
from nbmodule.views.comm.retention import at_rerun, keep_view
from nbmodule.views.comm.sources import LiveSource, ValueGone, left_out, source_for
from nbmodule.views.frontend.bundle import widget_module
from nbmodule.views.records.records import ViewRecord

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


# Seconds after which the widget is opened: when the cell is over, so that its import holds up no
# output.
AFTER = 0.05
SETTLE_AFTER = 0.5


class Views:
    """All live views of one kernel, and the line to the pages that show them."""

    def __init__(self, kernel: object) -> None:
        self._loop: Any = getattr(kernel, "io_loop", None)
        self._views: dict[str, LiveSource] = {}
        self._link: Any = None
        self._is_asked = False

    def admit(self, value: object, record: ViewRecord, text: str) -> str | None:
        """Take a view up; gives the key under which the page will ask, or None where it has nothing
        to ask.
        """
        source = source_for(value, record, left_out(record) > 0)
        if source is None:
            return None
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
        key = next(key for n in count() if (key := f"{digest}-{n}") not in self._views)
        source.left, source.made = left_out(record), time.monotonic()
        self._views[key] = source
        at_rerun(functools.partial(self._views.pop, key, None))
        if source.nbytes:
            name = plain(getattr(record, "name", type(value).__name__))
            keep_view(source, lambda _: name)
            self._later(SETTLE_AFTER, source.settle)
        if not self._is_asked:
            self._is_asked = True
            self._later(AFTER, self._open)
        return key

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call_later(seconds, act)

    def _open(self) -> None:
        self._link = link_class(_script())(self.hear, run="views")

    def send(self, content: dict[str, Any]) -> None:
        """Send a message to all pages, from the main thread."""
        if self._link is not None:
            self._in_main_thread(self._link.send, content)

    def hear(self, message: dict[str, Any]) -> None:
        """Answer a question of a page, in the main thread: a kernel may hand it over in another."""
        self._in_main_thread(self._answer, message)

    def _in_main_thread(self, act: Callable[[dict[str, Any]], None], content: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            act(content)
        else:
            self._loop.add_callback(act, content)

    def _answer(self, message: dict[str, Any]) -> None:
        key, kind = str(message.get("view")), str(message.get("kind"))
        source = self._views.get(key)
        if kind == "hello":
            if source is not None:
                self.send(self._welcome(key, source))
            return
        if "kind" not in message:
            if source is not None:
                source.hear(message)
            return
        head = {"kind": "answer", "page": message.get("page"), "n": message.get("n")}
        try:
            if source is None:
                raise ValueGone("the cell has run again since: see its new output")
            self.send(head | source.answer(kind, message))
        except ValueGone as gone:
            self.send(head | {"error": str(gone)})
        except Exception as error:  # noqa: BLE001 - a view shows what went wrong, in its place
            self.send(head | {"error": plain(f"{type(error).__name__}: {error}", 500)})

    def _welcome(self, key: str, source: LiveSource) -> dict[str, Any]:
        source.is_open, steps = True, source.steps()
        source.joined(lambda content: self.send(content | {"kind": "told", "view": key}))
        return {
            "kind": "welcome",
            "view": key,
            "steps": steps if len(steps) > 1 else [],
            "age": time.monotonic() - source.made,
            "changed": source.has_changed(),
            "left": source.left,
        }

    def look_for_changes(self, *_: object) -> None:
        """After a cell: tell each open view, once, that what it shows has changed."""
        for key, source in list(self._views.items()):
            if source.is_open and not source.is_reported and source.has_changed():
                source.is_reported = True
                self.send({"kind": "changed", "view": key})


@functools.cache
def _script() -> str:
    return widget_module(
        "views_link", ("initialize",), "export default { initialize, render() {} };"
    )


@functools.cache
def _views_of(kernel: object) -> Views:
    views = Views(kernel)
    running_shell().events.register("post_run_cell", views.look_for_changes)
    return views


def live_views() -> Views | None:
    """Return the live views of the running kernel; None where no page could answer: no notebook,
    or one run without a screen.

    A front end names the cell that it runs; nbclient, papermill and the like do not.
    """
    kernel = running_kernel()
    if kernel is None or running_cell_id() is None or needs_second_output():
        return None
    # without anywidget the static form is all there is
    return _views_of(kernel) if find_spec("anywidget") is not None else None
