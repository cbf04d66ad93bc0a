"""Handle widget messages between the steps of a loop that keeps its cell busy.

While a cell runs, a kernel reads no further request, so a click in a view waits until the cell is
over. The pump reads what has arrived: messages of widgets, and the two requests of a reloaded page,
are answered in the thread of the loop; every other request goes back to the kernel, which handles
it, in order, once the cell is over.

The public interface of ipykernel cannot do this. Its private names are used in this file only and
checked before use; where one is missing the pump is off (`CommPump.active`) and the kernel runs as
usual. Tried with ipykernel 6.17.1, 6.31, 7.0.1, 7.3 and 7.4.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from nbmodule.live.controls.interrupt import shield
from nbmodule.live.run_data.control import Route

_HANDLED = ("comm_open", "comm_msg", "comm_close", "kernel_info_request", "comm_info_request")
"""Messages of widgets, and the requests of a reloaded page."""
_MOST_PER_LOOK = 200
"""Messages handled at once: a front end that floods the kernel cannot stop the loop."""

_returning: set[asyncio.Future[Any]] = set()
"""Requests on their way back: the event loop holds its tasks weakly."""

_PUMP = Route("pump", "buttons act between two steps")
_THREAD = Route("thread", "the loop runs in the background; buttons act between two steps")
_SUBSHELL = Route(
    "subshell", "the kernel takes clicks in a thread of its own; buttons act between two steps"
)
_KERNEL = Route(
    "none",
    "this kernel takes no clicks while a cell runs: use its interrupt button (once: stop after "
    "this step, twice: at once)",
)
_MARIMO = Route(
    "none",
    "marimo takes no clicks while a cell runs: use its interrupt button, or "
    "live.run(..., background=True)",
)
_TERMINAL = Route("none", "Ctrl+C stops after this step; pressed twice it interrupts at once")


def find_route(pump: CommPump, kernel: object, *, delivered_by: str = "") -> Route:
    """Return how a click reaches the loop, from this kernel and from how the last click came.

    Args:
        pump: The pump of the loop's thread.
        kernel: The kernel, None outside a notebook.
        delivered_by: Name of the thread that delivered the last command, '' if none came yet.

    Example:
        >>> find_route(CommPump(), None).text
        'Ctrl+C stops after this step; pressed twice it interrupts at once'
    """
    thread = threading.current_thread()
    if pump.active:
        return _PUMP
    if thread is not threading.main_thread():
        return _THREAD
    if delivered_by and delivered_by != thread.name:
        return _SUBSHELL
    if is_marimo():
        return _MARIMO
    return _TERMINAL if kernel is None else _KERNEL


def is_marimo() -> bool:
    """Return True in a cell of marimo."""
    running = getattr(sys.modules.get("marimo"), "running_in_notebook", None)
    return bool(running and running())


class CommPump:
    """Handles messages for the kernel thread it is made in.

    Several pumps may exist at once, also nested: a pump keeps no request.

    Example:
        >>> CommPump(kernel=None).active
        False
    """

    def __init__(self, kernel: Any = None) -> None:
        self.seconds = 0.0
        self._kernel = kernel
        self._inbox = _find_inbox(kernel) if kernel is not None else None

    @property
    def active(self) -> bool:
        """True if messages can be handled here."""
        return self._inbox is not None

    def look(self) -> int:
        """Handle what has arrived; return the number of handled messages."""
        if self._inbox is None:
            return 0
        handled, begun = 0, time.thread_time()
        with shield():
            try:
                for frames in self._inbox.waiting():
                    if self._handle(frames):
                        handled += 1
                    else:
                        self._inbox.give_back(frames)
            except Exception:
                self._inbox = None
                self._kernel.log.warning(
                    "widget messages are no longer handled between steps", exc_info=True
                )
        self.seconds += time.thread_time() - begun
        return handled

    def take_seconds(self) -> float:
        """Return how long messages were handled since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    def _handle(self, frames: Any) -> bool:
        kernel, inbox = self._kernel, self._inbox
        message_type = _type_of(kernel.session, frames)
        if message_type not in _HANDLED or inbox is None:
            return False
        try:
            idents, rest = kernel.session.feed_identities(frames, copy=False)
            message = kernel.session.deserialize(rest, content=True, copy=False)
        except Exception:
            kernel.log.error("Invalid Message", exc_info=True)
            return True
        # The front end sends the next change of a widget only after an idle status that names this
        # message.
        kernel._publish_status("busy", "shell", parent=message)
        try:
            result = kernel.shell_handlers[message_type](inbox.reply, idents, message)
            if inspect.iscoroutine(result):
                _run_without_waiting(result)
            inbox.flush()
        except Exception:
            kernel.log.error("Exception in message handler:", exc_info=True)
        finally:
            kernel._publish_status("idle", "shell", parent=message)
            kernel._publish_status("busy", "shell")
        return True


def _type_of(session: Any, frames: Any) -> str | None:
    """Read the type of a message from its header alone: a full reading marks its signature as
    seen.
    """
    if len(frames) < 5:
        return None
    try:
        _, rest = session.feed_identities(frames, copy=False)
        return session.unpack(rest[1].bytes).get("msg_type")
    except Exception:  # noqa: BLE001 - what cannot be read is the kernel's to refuse
        return None


def _run_without_waiting(coroutine: Any) -> None:
    """Run a handler that is a coroutine only in form."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise RuntimeError("the handler waits for something that cannot happen while the cell runs")


def _find_inbox(kernel: Any) -> _Inbox | None:
    """Return where messages for this thread arrive; None where a private name is missing."""
    thread = threading.current_thread()
    queue: Any = None
    try:
        if getattr(kernel, "shell_channel_thread", None) is not None:
            stream, reply = _streams_of_subshell(kernel.shell_channel_thread, thread)
        elif thread is threading.main_thread():
            stream = reply = kernel.shell_stream
            queue = getattr(kernel, "msg_queue", None)
        else:
            return None
        needed = (kernel.session, kernel.log, kernel._publish_status, stream._recv_callback)
        needed += (stream.socket, kernel.shell_handlers["comm_msg"])
    except (AttributeError, LookupError, TypeError, StopIteration):
        return None
    return None if None in needed else _Inbox(kernel.session, stream, reply, queue)


def _streams_of_subshell(channel: Any, thread: Any) -> tuple[Any, Any]:
    """Return where messages arrive and replies go in ipykernel 7, where a thread passes messages on
    through a pair of sockets for each shell.
    """
    manager = channel.manager
    if thread is getattr(channel, "parent_thread", threading.main_thread()):
        name, pair = None, manager._shell_channel_to_main
    else:
        name = next(name for name, shell in list(manager._cache.items()) if shell is thread)
        pair = thread.shell_channel_to_subshell
    return pair.to_stream, manager.get_subshell_to_shell_channel_socket(name)


class _Inbox:
    """Queue of requests for one shell, and destination of replies.

    Args:
        session: Reads messages.
        stream: The stream on which requests arrive.
        reply: Takes the replies.
        queue: The queue that the stream of ipykernel 6 fills, which may hold messages that came
            before the cell began.
    """

    def __init__(self, session: Any, stream: Any, reply: Any, queue: Any) -> None:
        self.stream, self.reply = stream, reply
        self._session, self._queue, self._seen = session, queue, -1

    def waiting(self) -> Iterator[Any]:
        """Yield each message that has arrived."""
        import zmq

        yield from self._from_queue()
        for _ in range(_MOST_PER_LOOK):
            try:
                yield self.stream.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return

    def flush(self) -> None:
        """Send the reply now: a stream would wait for the event loop, which stands still."""
        import zmq

        if hasattr(self.reply, "flush"):
            self.reply.flush(zmq.POLLOUT)

    def give_back(self, frames: Any) -> None:
        """Do what the stream would have done with a message: it waits for the running cell."""
        result = self.stream._recv_callback(frames)
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(result)
            _returning.add(task)
            task.add_done_callback(_returning.discard)

    def _from_queue(self) -> Iterator[Any]:
        """Take widget messages out of the queue; all others keep their places."""
        if self._queue is None:
            return
        items = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        try:
            for position, (number, dispatch, arguments) in enumerate(items):
                is_request = getattr(dispatch, "__name__", "") == "dispatch_shell"
                is_new, self._seen = number > self._seen, max(self._seen, number)
                if is_new and is_request and _type_of(self._session, arguments[0]) in _HANDLED:
                    items[position] = None
                    yield arguments[0]
        finally:
            for item in items:
                if item is not None:
                    self._queue.put_nowait(item)
