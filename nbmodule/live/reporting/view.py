"""Displays of a run: its output in a notebook, the pages that show it, and a line in a terminal.

The output of a notebook begins and ends as static HTML; in between the pages get changes through a
widget. If no page ever answers (a run by nbclient, a front end without widgets) the HTML itself is
replaced now and then.

The widget is itself never shown. Its script finds the views of its run in the page and connects
them to the kernel, so that a saved notebook never holds a widget view, and an exported page never
goes blank. Where outputs and widgets are in separate documents (VS Code, Colab) the widget is a
second output that draws the view.

A message goes to all pages at once, so one count serves all; each page acknowledges what it has.
The fastest page sets the pace: with two unacknowledged messages nothing more is sent. A page that
stays silent for a while is taken to be asleep or gone and does not count; with no page awake
nothing is sent. Unsent changes are not stored: the next message is made from the history.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nbmodule.base.format import format_count, format_number, plain
from nbmodule.live.reporting.payload import Stream, detail_of, plain_form, record_of, text_form
from nbmodule.live.run_data.progress import ENDED
from nbmodule.live.run_data.state import RunState
from nbmodule.views.comm.live_views import link_class, needs_second_output
from nbmodule.views.display.show import chosen_form
from nbmodule.views.frontend.bundle import read_frontend, widget_module
from nbmodule.views.renderers.html import data_text, view_element
from nbmodule.views.renderers.text_layout import cut_end

if TYPE_CHECKING:
    from nbmodule.live.replay.replayed_step import ReplayedStep

Hear = Callable[[dict[str, Any]], None]

LINK_AFTER = 0.3
"""Seconds after which a run is connected to the pages; a shorter one needs no buttons."""
_FIRST_REFRESH, _LAST_REFRESH = 5.0, 120.0
"""Seconds between two replacements of the HTML while no page answers; they double."""
_FIRST_SAVE = 30.0
"""Seconds after which the HTML is replaced where a page answers: it remains if the kernel dies."""
_HEARTBEAT = 2.0
"""Seconds after which a message is sent although nothing has changed."""
MOST_UNACKNOWLEDGED = 2
SILENT_AFTER = 5.0
"""Seconds without an answer after which a page no longer counts."""
_INTERVAL = 0.1
"""Least seconds between two messages."""
BYTES_PER_SECOND = 20_000
ENVELOPE = 900
"""Bytes of a message besides its content: headers, signature, routing."""
_MOST_PAGES = 50
LOG_EVERY, _REDRAW_EVERY = 60.0, 0.1
"""Seconds between two lines of a job log, and between two updates of the line in a terminal."""
_NUMBERS_IN_A_LINE = 4


def bundle_of(run: RunState) -> dict[str, str]:
    """Return a run as `text/plain` and `text/html`."""
    bundle = {"text/plain": text_form(run)}
    if chosen_form() != "text":
        # A plain `str`: marimo writes a class derived from it as an empty object.
        bundle["text/html"] = str(view_element("live", data_text(record_of(run)), plain_form(run)))
    return bundle


class NotebookView:
    """Shows one run in the output of the running cell and in every page that displays it.

    Args:
        run: The run.
        kernel: The kernel that the cell runs in; None if unknown.
        at: Repeats a step, for a page that opens it.
        cell: The comparison of the runs of the cell.
    """

    def __init__(
        self, run: RunState, kernel: object = None, *, at: Callable[[int], ReplayedStep], cell: Any
    ) -> None:
        self.sender = Sender()
        self._run, self._at = run, at
        self._stream = Stream(run)
        self._loop = getattr(kernel, "io_loop", None)
        self._handle: Any = None
        self._cell = cell
        self._link: Any = None
        self._is_drawn = False
        self._link_at: float | None = None
        self._sent_state: Any = None
        self._sent_at = 0.0
        self._refresh, self._refresh_at = _FIRST_REFRESH, 0.0

    def open(self, clock: float) -> None:
        """Show the run, which has not begun."""
        from IPython.display import display

        bundle = self._cell.begin(self._run.run_id, bundle_of(self._run))
        self._handle = display(bundle, raw=True, display_id=True)
        self._refresh_at = clock + self._refresh
        if chosen_form() == "auto":
            self._link_at = clock + LINK_AFTER

    def _join(self, is_drawn: bool) -> None:
        """Open the connection to the pages; show the widget if it draws."""
        self._link, self._is_drawn = run_link(self._run, _receiver(self), is_drawn), is_drawn
        if is_drawn:
            self.show_widget()

    def show_widget(self) -> None:
        """Draw the run as a widget, which is then the connection to all pages."""
        from IPython.display import display

        if self._is_drawn:
            display(self._link)
            return
        before, self._link_at = self._link, None
        self._join(is_drawn=True)
        if before is not None:
            before.close()

    def flush(self, clock: float) -> None:
        """Send changes to the pages, if they keep up and the budget allows it."""
        if self._link_at is not None and clock >= self._link_at:
            self._link_at = None
            self._in_main(lambda: self._join(needs_second_output()))
        self._refresh_output(clock)
        self._in_main(lambda: self._cell.update(clock))
        self._run.updates_per_second = self.sender.rate(clock)
        if self._link is None or not self.sender.may_send(clock):
            return
        run = self._run
        state = (run.count.state, run.count.step, run.controls.version, run.messages.version)
        if state == self._sent_state and clock - self._sent_at < _HEARTBEAT:
            return
        self._sent_state, self._sent_at = state, clock
        self._send_tick(clock)

    def hear(self, message: dict[str, Any], clock: float) -> None:
        """Act on a message of a page to the view: a greeting, a receipt, a farewell, a request."""
        action, page = message.get("kind"), str(message.get("page", ""))[:64]
        if action == "hello":
            if self.sender.awake(clock):
                self._send_tick(clock)
            self.sender.hello(page)
            self._send_run(page)
        elif action == "ack" and isinstance(message.get("n"), int):
            self.sender.acknowledge(page, message["n"])
        elif action == "bye":
            self.sender.leave(page)
        elif action == "at":
            self._show_step(message.get("step"), page)
        elif action == "detail":
            path, quantity = message.get("path", ""), message.get("quantity", "weight")
            detail = detail_of(self._run, str(path), str(quantity))
            self._send({"kind": "detail", "page": page, **detail})

    def tell_all(self) -> None:
        """Send the whole run to all pages, after a rewind."""
        for page in list(self.sender.pages):
            self._send_run(page)

    def _show_step(self, step: Any, page: str) -> None:
        """Repeat a step and send it, or the error, to the page that requested it."""
        answer: dict[str, Any] = {"kind": "replay", "page": page, "step": step}
        try:
            answer["html"] = self._at(step)._repr_mimebundle_()["text/html"]
        except Exception as error:  # noqa: BLE001 - the page shows it
            answer["error"] = plain(str(error), 600)
        self._send(answer)

    def receive(self, message: dict[str, Any]) -> None:
        """Take a message of a page, in any thread: for the loop, or after the run to act on it when
        no cell runs.
        """
        if self._run.count.has_ended:
            clock = time.monotonic()
            _call_when_idle(
                self._loop, self._run.guard, "answering a page", self.hear, message, clock
            )
        else:
            self._run.commands.put(message)

    def close(self, clock: float) -> None:
        """Send the last changes, and leave the static form in the output."""
        if self._link is not None and self.sender.pages:
            self._send_tick(clock)
        bundle = self._cell.end(self._handle, self._run.run_id, bundle_of(self._run))
        self._in_main(lambda: self._finish(bundle))

    def _finish(self, bundle: dict[str, str]) -> None:
        """Leave the static form; the connection closes when nobody holds the run."""
        if self._handle is not None:
            self._handle.update(bundle, raw=True)
        link, self._link_at = self._link, None
        if link is not None:
            weakref.finalize(self._run, _call_when_idle, self._loop, link.close).atexit = False

    def _send_run(self, page: str) -> None:
        self._send(self._stream.snapshot(page) | {"n": self.sender.sent})

    def _send_tick(self, clock: float) -> None:
        content, size = self._stream.tick(self.sender.room(clock))
        content["n"] = self.sender.note_sent(size, clock)
        self._send(content)

    def _send(self, content: dict[str, Any]) -> None:
        link = self._link
        if link is not None:
            self._in_main(lambda: link.send(content))

    def _refresh_output(self, clock: float) -> None:
        if self._handle is None or clock < self._refresh_at:
            return
        is_early = self.sender.awake(clock) and self._refresh < _FIRST_SAVE
        self._refresh = _FIRST_SAVE if is_early else min(2 * self._refresh, _LAST_REFRESH)
        self._refresh_at = clock + self._refresh
        if is_early:
            return
        bundle = self._cell.form(self._run.run_id, bundle_of(self._run))
        self._in_main(lambda: self._handle.update(bundle, raw=True))

    def _in_main(self, act: Callable[[], object]) -> None:
        """Act in the main thread: kernels do not take messages from other threads reliably."""
        if threading.current_thread() is threading.main_thread():
            act()
        else:
            _call_when_idle(self._loop, act)


def _call_when_idle(loop: Any, act: Callable[..., object], *arguments: object) -> None:
    """Call a function in the main thread when no cell runs; at once where no kernel is known."""
    if loop is None:
        act(*arguments)
        return
    with contextlib.suppress(RuntimeError):  # the loop is closed: the kernel is going down
        loop.add_callback(act, *arguments)


class MarimoView(NotebookView):
    """Shows a background run in marimo, where the widget itself draws and stays in the output."""

    def open(self, clock: float) -> None:
        """Put the widget into the output of the cell."""
        import marimo  # pyright: ignore[reportMissingImports]

        self._link = run_link(self._run, _receiver(self), is_drawn=True)
        marimo.output.append(self._link)

    def show_widget(self) -> None:
        """Do nothing: the widget is shown already."""

    def close(self, clock: float) -> None:
        """Send the last changes."""
        self._send_tick(clock)


# -- the connection to the pages --
class Sender:
    """Keeps the pace of the messages.

    Example:
        >>> sender = Sender()
        >>> sender.may_send(clock=0.0)
        False
        >>> sender.hello("page 1")
        >>> sender.may_send(clock=0.0)
        True
    """

    def __init__(self, *, bytes_per_second: float = BYTES_PER_SECOND) -> None:
        self.bytes_per_second = bytes_per_second
        self.sent = 0
        """Number of the last message."""
        self.pages: dict[str, int] = {}
        """The last message that each page acknowledged; a page is one view in a browser tab."""
        self._next = 0.0
        self._times: deque[float] = deque(maxlen=int(2 * SILENT_AFTER / _INTERVAL))
        """When the last messages were sent."""

    def hello(self, page: str) -> None:
        """Note a page that begins or restarts: it gets the whole run, and counts from now."""
        self.pages.pop(page, None)
        self.pages[page] = self.sent
        if len(self.pages) > _MOST_PAGES:
            del self.pages[next(iter(self.pages))]

    def acknowledge(self, page: str, number: int) -> None:
        """Note that a message has arrived at a page."""
        if page in self.pages:
            self.pages[page] = max(self.pages[page], min(number, self.sent))

    def leave(self, page: str) -> None:
        """Note that a page was closed."""
        self.pages.pop(page, None)

    def awake(self, clock: float) -> list[int]:
        """Return what the pages that answer have acknowledged."""
        recent = sum(clock - time < SILENT_AFTER for time in self._times)
        return [number for number in self.pages.values() if self.sent - number <= recent]

    def may_send(self, clock: float) -> bool:
        """Return True if a message may be sent now."""
        newest = max(self.awake(clock), default=None)
        is_free = newest is not None and self.sent - newest < MOST_UNACKNOWLEDGED
        return is_free and clock >= self._next

    def room(self, clock: float) -> int:
        """Return the bytes that a message sent now may hold besides its envelope."""
        since = clock - self._times[-1] if self._times else 1.0
        return int(self.bytes_per_second * min(max(since, _INTERVAL), 1.0)) - ENVELOPE

    def note_sent(self, size: int, clock: float) -> int:
        """Note that a message of `size` bytes is sent; return its number."""
        self._next = clock + max(_INTERVAL, (size + ENVELOPE) / self.bytes_per_second)
        self._times.append(clock)
        self.sent += 1
        return self.sent

    def rate(self, clock: float) -> float:
        """Return the recent rate in messages per second."""
        return sum(clock - time < 2.0 for time in self._times) / 2.0


def _receiver(view: NotebookView) -> Hear:
    """Return a function that hands messages to a view while it exists: the connection holds it."""
    reference = weakref.ref(view)

    def hear(message: dict[str, Any]) -> None:
        alive = reference()
        if alive is not None:
            alive.receive(message)

    return hear


_DRAW = """
const show = ({ model, el }) => {
  const page = globalThis;
  const live = (page.nbmLive ??= { channels: new Map(), views: new Map() });
  const data = JSON.parse(model.get("record"));
  return render(el, data, live.channels.get(data.run) ?? null);
};
"""


@functools.cache
def _widget_class(shown: bool) -> type:
    link = read_frontend("live_link.js")
    if not shown:
        return link_class(link)
    body = link.replace("export default", "const joined =")
    module = widget_module("live", ("render",))
    return link_class(f"{module}\n{body}\n{_DRAW}\nexport default {{ ...joined, render: show }};")


def run_link(run: RunState, hear: Hear, is_drawn: bool) -> Any:
    """Return a widget that carries messages to and from the views of one run.

    Args:
        run: The run.
        hear: Called with each message of a page, in any thread; it must only store it.
        is_drawn: True if the widget itself draws.
    """
    record = json.dumps(record_of(run)) if is_drawn else ""
    return _widget_class(is_drawn)(hear, run=run.run_id, record=record)


# -- outside a notebook --
class TerminalView:
    """Shows a run as text: one line that is written over in a terminal, otherwise a line for every
    tenth of the steps and at least one a minute. Warnings and errors are lines of their own.

    Args:
        run: The run.
        stream: Where to write; standard error if not given.
    """

    def __init__(self, run: RunState, stream: Any = None) -> None:
        self._run, self._stream = run, sys.stderr if stream is None else stream
        self._is_terminal = getattr(self._stream, "isatty", lambda: False)()
        self._tenth = self._reported = 0
        self._at = 0.0

    def open(self, clock: float) -> None:
        """Begin to count the time."""
        self._at = clock - _REDRAW_EVERY

    def flush(self, clock: float) -> None:
        """Write new messages, and progress and the newest numbers if it is time or the end."""
        for message in self._run.messages:
            if message.number > self._reported and message.kind != "note":
                text = f"step {format_count(message.step)}: {plain(message.text, 600)}"
                self._write(f"{message.kind}, {text}", "\n")
            self._reported = max(self._reported, message.number)
        progress = self._run.count.progress
        is_over = progress.state in ENDED
        tenth = 10 * progress.done // progress.total if progress.total else 0
        every = _REDRAW_EVERY if self._is_terminal else LOG_EVERY
        is_next_tenth = tenth > self._tenth and not self._is_terminal
        if is_over or is_next_tenth or clock - self._at >= every:
            self._tenth, self._at = tenth, clock
            newest = list(self._run.history)[:_NUMBERS_IN_A_LINE]
            numbers = [f"{plain(series.name)} {format_number(series.last)}" for series in newest]
            end = "" if self._is_terminal and not is_over else "\n"
            self._write(" · ".join([str(progress), *numbers]), end)

    close = flush

    def hear(self, message: dict[str, Any], clock: float) -> None:
        """Do nothing: there are no pages."""

    def tell_all(self) -> None:
        """Do nothing."""

    def show_widget(self) -> None:
        """Do nothing."""

    def _write(self, text: str, end: str) -> None:
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            text = "\r\x1b[K" + (text if end else cut_end(text, width))
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(text.encode(encoding, "replace").decode(encoding) + end)
        self._stream.flush()
