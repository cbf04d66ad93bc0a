"""The pump on stand-ins for kernels: messages that it handles and returns, and missing names."""

from __future__ import annotations

import json
import queue
import types

import pytest
import zmq
from jupyter_client.session import Session

from nbmodule.live.controls.pump import CommPump


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
        self.session, self.socket, self.log_lines, self.events = Session(key=b"0"), Socket(), [], []
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
        self.events.append(message["content"]["said"])
        if message["content"]["said"] == "fails":
            raise ValueError("in a callback")

    async def answer(self, stream, idents, message):
        self.events.append("answered")

    def _publish_status(self, status, channel, parent=None):
        self.events.append(f"{status} {parent['content']['said'] if parent else 'cell'}")

    def arrive(self, kind, content, key=b"0"):
        sender = Session(key=key)
        parts = sender.serialize(sender.msg(kind, {"said": content}), ident=b"page")
        self.socket.messages.append([zmq.Frame(part) for part in parts])

    def queued(self):
        items = [self.msg_queue.get_nowait() for _ in range(self.msg_queue.qsize())]
        for item in items:
            self.msg_queue.put_nowait(item)
        return [json.loads(frames[-1].bytes)["said"] for _, _, (frames,) in items]


@pytest.fixture
def kernel():
    return Kernel()


@pytest.mark.parametrize(
    ("messages", "events", "logged"),
    [
        (
            [("kernel_info_request", "who")],
            ["busy who", "answered", "flushed", "idle who", "busy cell"],
            [],
        ),
        ([("comm_msg", "click", b"forged")], [], ["Invalid Message"]),
        (
            [("comm_msg", "fails"), ("comm_msg", "click")],
            ["busy fails", "fails", "idle fails", "busy cell"]
            + ["busy click", "click", "flushed", "idle click", "busy cell"],
            ["Exception in message handler:"],
        ),
    ],
    ids=["reload", "forged", "callback fails"],
)
def test_messages_of_pages_are_handled_between_busy_and_idle(kernel, messages, events, logged):
    for message in messages:
        kernel.arrive(*message)
    assert CommPump(kernel).look() == len(messages)
    assert (kernel.events, kernel.log_lines) == (events, logged)


def test_other_requests_are_given_back_in_order_also_those_that_came_before_the_cell(kernel):
    for kind, content in [
        ("execute_request", "a"),
        ("comm_msg", "early"),
        ("history_request", "b"),
    ]:
        kernel.arrive(kind, content)
        kernel.shell_stream._recv_callback(kernel.socket.messages.pop())
    pump = CommPump(kernel)
    for kind, content in [("complete_request", "c"), ("comm_msg", "late"), ("debug_request", "d")]:
        kernel.arrive(kind, content)
    assert pump.look() == 2
    assert [e for e in kernel.events if e in ("early", "late")] == ["early", "late"]
    for _ in range(2):
        assert kernel.queued() == ["a", "b", "c", "d"]
        assert pump.look() == 0


def test_a_message_without_parts_is_left_to_the_kernel(kernel):
    kernel.socket.messages.append([zmq.Frame(b"stop aborting")])
    assert CommPump(kernel).look() == 0
    assert kernel.msg_queue.qsize() == 1


def test_a_flood_is_handled_in_parts(kernel):
    for k in range(500):
        kernel.arrive("comm_msg", str(k))
    assert CommPump(kernel).look() == 200
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
