"""Handles widget messages between the steps of a loop that keeps its cell busy.

While a cell runs, a kernel reads no further request, so a click in a view waits until the cell is
over. The pump looks at what has already arrived: messages of widgets, and the two questions that a
reloaded page asks, are answered here and now in the thread of the loop; every other request is
given straight back to the kernel, which takes it up, in order, once the cell is over.

Nothing in the public interface of ipykernel can do this. The private names it takes are used in
this file only, are looked for before use, and where one is missing the pump is off
(`CommPump.active`) and the kernel runs as it always did. Seen at work with ipykernel 6.17.1, 6.31,
7.0.1, 7.3 and 7.4.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

from nbmodule.live.controls.interrupt import shield

_WIDGET = frozenset({"comm_open", "comm_msg", "comm_close"})
_QUESTIONS = frozenset({"kernel_info_request", "comm_info_request"})
_TAKEN = _WIDGET | _QUESTIONS
_MOST_PER_LOOK = 200
"""Messages handled in one look: a front end that floods the kernel slows the loop down but cannot stop it."""

_given_back: set[asyncio.Future[Any]] = set()
"""Requests on their way back: the event loop itself holds its tasks weakly."""


def running_kernel() -> Any:
    """Give the kernel that runs this code, or None outside a notebook."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return getattr(get_ipython(), "kernel", None)


class CommPump:
    """Looks for messages at the kernel this thread belongs to.

    Make it in the thread whose loop is to call `look`. Several pumps may live at once, also nested:
    a pump keeps no request for itself.

    Example:
        >>> CommPump(kernel=None).active
        False
    """

    def __init__(self, kernel: Any = None) -> None:
        self.handled = 0
        self._kernel = kernel
        self._inbox = _find_inbox(kernel) if kernel is not None else None

    @property
    def active(self) -> bool:
        """Whether messages can be handled here."""
        return self._inbox is not None

    def look(self) -> int:
        """Handle what has arrived; give the number of messages that were handled."""
        if self._inbox is None:
            return 0
        before = self.handled
        with shield():
            try:
                for frames, give_back in self._inbox.waiting():
                    if self._handle(frames):
                        self.handled += 1
                    else:
                        give_back()
            except Exception:
                self._inbox = None
                self._kernel.log.warning(
                    "widget messages are no longer handled between steps", exc_info=True
                )
        return self.handled - before

    def _handle(self, frames: Any) -> bool:
        kernel, inbox = self._kernel, self._inbox
        kind = _kind_of(kernel.session, frames)
        if kind not in _TAKEN or inbox is None:
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
            result = kernel.shell_handlers[kind](inbox.reply, idents, message)
            if inspect.iscoroutine(result):
                _run_without_waiting(result)
            inbox.flush()
        except Exception:
            kernel.log.error("Exception in message handler:", exc_info=True)
        finally:
            kernel._publish_status("idle", "shell", parent=message)
            kernel._publish_status("busy", "shell")
        return True


def _kind_of(session: Any, frames: Any) -> str | None:
    """Read the kind of a message from its header alone; a full reading would mark its signature as
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
    """Find where messages for this thread arrive; None where this kernel is not one we know."""
    needed = ("session", "shell_handlers", "_publish_status", "log")
    if any(getattr(kernel, name, None) is None for name in needed):
        return None
    if not {"comm_msg", "kernel_info_request"} <= set(kernel.shell_handlers):
        return None
    here = threading.current_thread()
    channel = getattr(kernel, "shell_channel_thread", None)
    if channel is not None:
        return _find_subshell_inbox(channel, here)
    stream = getattr(kernel, "shell_stream", None)
    if here is not threading.main_thread() or not _is_stream(stream):
        return None
    queue = getattr(kernel, "msg_queue", None)
    if queue is None:
        return _Inbox(stream, reply=stream)
    if not callable(getattr(kernel, "schedule_dispatch", None)) or not hasattr(queue, "get_nowait"):
        return None
    return _QueueInbox(kernel, stream, queue)


def _find_subshell_inbox(channel: object, here: threading.Thread) -> _Inbox | None:
    """Find it in ipykernel 7, where a thread hands messages on through a pair of sockets for each
    shell.
    """
    manager, pair, name = getattr(channel, "manager", None), None, None
    if here is getattr(channel, "parent_thread", threading.main_thread()):
        pair = getattr(manager, "_shell_channel_to_main", None)
    else:
        for key, thread in list(getattr(manager, "_cache", {}).items()):
            if thread is here:
                pair, name = getattr(thread, "shell_channel_to_subshell", None), key
    socket_for = getattr(manager, "get_subshell_to_shell_channel_socket", None)
    stream = getattr(pair, "to_stream", None)
    if not callable(socket_for) or not _is_stream(stream):
        return None
    return _Inbox(stream, reply=socket_for(name))


def _is_stream(stream: object) -> bool:
    return callable(getattr(stream, "_recv_callback", None)) and hasattr(
        getattr(stream, "socket", None), "recv_multipart"
    )


class _Inbox:
    """The stream on which requests for one shell arrive, and the socket that takes the replies."""

    def __init__(self, stream: Any, *, reply: Any) -> None:
        self.stream, self.reply = stream, reply

    def waiting(self) -> Any:
        """Yield each message that has arrived, with a function that gives it back to the kernel."""
        import zmq

        for _ in range(_MOST_PER_LOOK):
            try:
                frames = self.stream.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            yield frames, self._give_back(frames)

    def flush(self) -> None:
        """Send the reply now: a stream would wait for the event loop, which stands still."""
        import zmq

        if hasattr(self.reply, "flush"):
            self.reply.flush(zmq.POLLOUT)

    def _give_back(self, frames: Any) -> Callable[[], None]:
        return lambda: _schedule(self.stream._recv_callback, frames)


def _schedule(callback: Callable[[Any], Any], frames: object) -> None:
    """Do what the stream would have done with a message: it waits for the cell that is running."""
    result = callback(frames)
    if inspect.isawaitable(result):
        task = asyncio.ensure_future(result)
        _given_back.add(task)
        task.add_done_callback(_given_back.discard)


class _QueueInbox(_Inbox):
    """ipykernel 6: the stream fills a queue, which may hold messages that came before the cell
    began.
    """

    def __init__(self, kernel: Any, stream: Any, queue: Any) -> None:
        super().__init__(stream, reply=stream)
        self._kernel, self._queue, self._seen = kernel, queue, -1

    def waiting(self) -> Any:
        yield from self._from_queue()
        yield from super().waiting()

    def _from_queue(self) -> Any:
        """Take widget messages out of the queue; all others keep their places."""
        size = self._queue.qsize()
        if not size:
            return
        items = [self._queue.get_nowait() for _ in range(size)]
        try:
            for position, (number, dispatch, arguments) in enumerate(items):
                is_new = (
                    number > self._seen and getattr(dispatch, "__name__", "") == "dispatch_shell"
                )
                self._seen = max(self._seen, number)
                if is_new and _kind_of(self._kernel.session, arguments[0]) in _TAKEN:
                    items[position] = None
                    yield arguments[0], lambda: None
        finally:
            for item in items:
                if item is not None:
                    self._queue.put_nowait(item)

    def _give_back(self, frames: Any) -> Callable[[], None]:
        return lambda: self.stream._recv_callback(frames)
