"""The pump on stand-ins for kernels: what it takes, what it gives back, and that it is off where a
name is missing.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import types

import pytest
import zmq

from nbmodule.live.controls.pump import CommPump


class Frame:
    def __init__(self, data):
        self.bytes = data


class Session:
    """Reads messages as jupyter_client does, and refuses one that it reads twice."""

    def __init__(self):
        self.read = set()

    def feed_identities(self, frames, copy):
        return [frames[0]], frames[1:]

    def unpack(self, data):
        if data == b"broken":
            raise ValueError(data)
        return {"msg_type": data.decode()}

    def deserialize(self, rest, content, copy):
        if rest[4].bytes in self.read:
            raise ValueError("Duplicate Signature")
        if rest[0].bytes == b"forged":
            raise ValueError("Invalid Signature")
        self.read.add(rest[4].bytes)
        return {"msg_type": rest[1].bytes.decode(), "content": rest[4].bytes.decode()}


class Socket:
    def __init__(self):
        self.messages = []

    def recv_multipart(self, flags, copy):
        if not self.messages:
            raise zmq.Again
        return self.messages.pop(0)


class Kernel:
    """ipykernel 6 as the pump sees it."""

    def __init__(self):
        self.session, self.socket, self.log_lines, self.events = Session(), Socket(), [], []
        self.msg_queue = queue.Queue()
        self.count = 0
        self.shell_stream = types.SimpleNamespace(
            socket=self.socket,
            _recv_callback=lambda frames: self.schedule_dispatch(self.dispatch_shell, frames),
            flush=lambda flags: self.events.append("flushed"),
        )
        self.log = types.SimpleNamespace(
            error=lambda text, **_: self.log_lines.append(text),
            warning=lambda text, **_: self.log_lines.append(text),
        )
        self.shell_handlers = dict.fromkeys(("comm_open", "comm_msg", "comm_close"), self.handle)
        self.shell_handlers["kernel_info_request"] = self.answer

    def schedule_dispatch(self, dispatch, *arguments):
        self.count += 1
        self.msg_queue.put_nowait((self.count, dispatch, arguments))

    def dispatch_shell(self, frames):
        raise AssertionError("the queue is read by the kernel, not by the pump")

    def handle(self, stream, idents, message):
        self.events.append(message["content"])
        if message["content"] == "fails":
            raise ValueError("in a callback")

    async def answer(self, stream, idents, message):
        self.events.append("answered")

    def _publish_status(self, status, channel, parent=None):
        self.events.append(f"{status} {parent['content'] if parent else 'cell'}")

    def arrive(self, kind, content, signature="good"):
        self.socket.messages.append(
            [
                Frame(b"page"),
                Frame(signature.encode()),
                Frame(kind.encode()),
                Frame(b"{}"),
                Frame(b"{}"),
                Frame(content.encode()),
            ]
        )

    def queued(self):
        items = [self.msg_queue.get_nowait() for _ in range(self.msg_queue.qsize())]
        for item in items:
            self.msg_queue.put_nowait(item)
        return [frames[5].bytes.decode() for _, _, (frames,) in items]


@pytest.fixture
def kernel():
    return Kernel()


def test_widget_messages_are_handled_between_busy_and_idle_of_their_own(kernel):
    pump = CommPump(kernel)
    kernel.arrive("comm_msg", "click")
    assert pump.look() == 1
    assert kernel.events == ["busy click", "click", "flushed", "idle click", "busy cell"]


def test_other_requests_are_given_back_in_order(kernel):
    pump = CommPump(kernel)
    for kind, content in [
        ("execute_request", "a"),
        ("comm_msg", "click"),
        ("complete_request", "b"),
        ("execute_request", "c"),
    ]:
        kernel.arrive(kind, content)
    assert pump.look() == 1
    assert kernel.queued() == ["a", "b", "c"]
    assert pump.look() == 0
    assert kernel.queued() == ["a", "b", "c"]


def test_messages_that_came_before_the_cell_are_taken_out_of_the_queue(kernel):
    for kind, content in [
        ("execute_request", "a"),
        ("comm_msg", "early"),
        ("execute_request", "b"),
    ]:
        kernel.arrive(kind, content)
        kernel.shell_stream._recv_callback(kernel.socket.messages.pop())
    pump = CommPump(kernel)
    kernel.arrive("comm_msg", "late")
    assert pump.look() == 2
    assert [e for e in kernel.events if e in ("early", "late")] == ["early", "late"]
    assert kernel.queued() == ["a", "b"]


def test_a_reloaded_page_is_answered_at_once(kernel):
    kernel.arrive("kernel_info_request", "who")
    assert CommPump(kernel).look() == 1
    assert kernel.events == ["busy who", "answered", "flushed", "idle who", "busy cell"]


def test_a_callback_that_fails_is_logged_and_the_next_message_is_handled(kernel):
    kernel.arrive("comm_msg", "fails")
    kernel.arrive("comm_msg", "click")
    assert CommPump(kernel).look() == 2
    assert kernel.log_lines == ["Exception in message handler:"]
    assert "idle fails" in kernel.events


def test_a_forged_message_is_dropped_as_the_kernel_drops_it(kernel):
    kernel.arrive("comm_msg", "click", signature="forged")
    assert CommPump(kernel).look() == 1
    assert kernel.log_lines == ["Invalid Message"]
    assert "click" not in kernel.events


def test_what_cannot_be_read_is_left_to_the_kernel(kernel):
    kernel.arrive("broken", "x")
    kernel.socket.messages.append([Frame(b"stop aborting")])
    assert CommPump(kernel).look() == 0
    assert kernel.msg_queue.qsize() == 2


def test_a_flood_is_handled_in_parts(kernel):
    for k in range(500):
        kernel.arrive("comm_msg", str(k))
    pump = CommPump(kernel)
    assert pump.look() == 200
    assert len(kernel.socket.messages) == 300


@pytest.mark.parametrize(
    "name",
    ["session", "shell_handlers", "_publish_status", "log", "shell_stream"]
    + ["shell_stream._recv_callback", "shell_stream.socket"],
)
def test_where_a_name_is_missing_the_pump_is_off_and_does_nothing(kernel, name):
    *owners, name = name.split(".")
    setattr(kernel.shell_stream if owners else kernel, name, None)
    pump = CommPump(kernel)
    assert not pump.active
    assert pump.look() == 0


def test_a_socket_that_breaks_switches_the_pump_off_and_the_loop_goes_on(kernel):
    pump = CommPump(kernel)

    def broken(flags, copy):
        raise zmq.ZMQError(zmq.ENOTSOCK)

    kernel.socket.recv_multipart = broken
    assert pump.look() == 0
    assert not pump.active
    assert kernel.log_lines == ["widget messages are no longer handled between steps"]


class SubshellKernel(Kernel):
    """ipykernel 7 as the pump sees it: the messages of the main shell come through a pair of
    sockets.
    """

    def __init__(self, started):
        super().__init__()
        del self.msg_queue, self.shell_stream
        stream = types.SimpleNamespace(
            socket=self.socket,
            _recv_callback=lambda frames: started.append(frames) or self.shell_main(frames),
        )
        manager = types.SimpleNamespace(
            _shell_channel_to_main=types.SimpleNamespace(to_stream=stream),
            _cache={},
            get_subshell_to_shell_channel_socket=lambda name: f"socket {name}",
        )
        self.shell_channel_thread = types.SimpleNamespace(
            manager=manager, parent_thread=threading.main_thread()
        )
        self.ran = []

    async def shell_main(self, frames):
        self.ran.append(frames[5].bytes.decode())


def test_in_ipykernel_7_requests_go_back_through_the_event_loop_in_order():
    started = []
    kernel = SubshellKernel(started)

    async def cell():
        for content in "abc":
            kernel.arrive("execute_request", content)
        kernel.arrive("comm_msg", "click")
        pump = CommPump(kernel)
        assert pump.look() == 1
        assert kernel.ran == []

    async def main():
        await cell()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert kernel.ran == ["a", "b", "c"]
    assert "click" in kernel.events


def test_in_ipykernel_7_a_subshell_has_messages_of_its_own():
    kernel = SubshellKernel([])
    found = []
    inner = types.SimpleNamespace(socket=Socket(), _recv_callback=lambda frames: None)

    def work():
        here = threading.current_thread()
        here.shell_channel_to_subshell = types.SimpleNamespace(to_stream=inner)
        kernel.shell_channel_thread.manager._cache["one"] = here
        pump = CommPump(kernel)
        found.append((pump.active, pump._inbox.stream is inner, pump._inbox.reply))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(True, True, "socket one")]
