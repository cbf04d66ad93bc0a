"""A kernel driven by `jupyter_client` alone: cells that run while widget messages are sent, with no
browser.

The installed ipykernel is always tested, the others of `VERSIONS` by the long tests: each gets a
small environment of its own, which needs a package index and half a minute. `make kernels
KERNELS="6.29.5 newest"` runs those that are named.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import nbmodule as nb

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0
VERSIONS = (os.environ.get("NBMODULE_KERNELS") or "6.17.1 6.29.5 6.31.0 7.0.1 7.3.0 newest").split()
"""Releases of ipykernel; `newest` is what the package index gives."""


@pytest.fixture
def compiled_step() -> Callable[..., Callable[..., Any]]:
    """Compile the training step of a model, an optimizer and a loss of model and batch."""

    def compiled(model: Any, optimizer: Any, loss_of: Callable[..., Any], **options: Any) -> Any:
        @nb.jit(**options)
        def step(*batch: Any) -> Any:
            loss, grads = nb.value_and_grad(lambda m: loss_of(m, *batch))(model)
            optimizer.update(model, grads)
            return loss

        return step

    return compiled


@pytest.fixture
def train_until() -> Callable[..., None]:
    """Make steps of a run until a condition holds, with time for what is compiled meanwhile."""

    def train(live: nb.Live, step: Callable[[int], object], condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 200
        for k in live.steps(itertools.count()):
            step(k)
            time.sleep(0.002)
            if condition():
                live.stop()
            assert time.monotonic() < deadline, live.notes()

    return train


@pytest.fixture
def start_python() -> Callable[..., subprocess.Popen[str]]:
    """Start a program with arguments in a Python of its own, which imports this package."""

    def start(program: str, *arguments: object) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", str(ROOT))])
        command = [sys.executable, "-c", program, *map(str, arguments)]
        env = os.environ | {"PYTHONPATH": path}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)

    return start


class Kernel:
    """One kernel and its client.

    `python` is the interpreter, and so the ipykernel, that it runs with.
    """

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        from jupyter_client import KernelManager
        from jupyter_client.kernelspec import KernelSpecManager

        spec = folder / "tested"
        spec.mkdir(parents=True, exist_ok=True)
        argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        described = {"argv": argv, "display_name": "tested", "language": "python"}
        (spec / "kernel.json").write_text(json.dumps(described))
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", str(ROOT))]),
            "JAX_PLATFORMS": "cpu",
            "IPYTHONDIR": str(folder / "ipython"),
        }
        specs = KernelSpecManager(kernel_dirs=[str(folder)])
        self.manager = KernelManager(kernel_name="tested", kernel_spec_manager=specs)
        self.manager.start_kernel(env=env)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=DEADLINE)
        self.seen: list[dict[str, Any]] = []
        self.replies: dict[str, dict[str, Any]] = {}
        self.reply_order: list[str] = []
        self.subshell: str | None = None

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    # Sending.

    def start(self, code: str) -> str:
        """Run a cell and do not wait for it."""
        return self.client.execute(code)

    def run(self, code: str) -> str:
        """Run a cell to its end; give what it printed.

        After a cell that failed a kernel refuses others for a moment.
        """
        while True:
            message = self.start(code)
            self.wait(lambda m=message: m in self.replies and self.is_idle(m))
            if self.replies[message]["status"] != "aborted":
                break
        assert self.replies[message]["status"] == "ok", self.replies[message]
        return self.printed(message)

    def send_comm(self, comm: str, content: dict[str, Any]) -> str:
        """Send a custom message to a widget, as a page does."""
        data = {"method": "custom", "content": content}
        return self.ask("comm_msg", {"comm_id": comm, "data": data})

    def ask(self, kind: str, content: dict[str, Any] | None = None) -> str:
        """Send a request and do not wait for the reply."""
        message = self.client.session.msg(kind, content or {})
        if self.subshell is not None and kind.startswith("comm"):
            message["header"]["subshell_id"] = self.subshell
        self.client.shell_channel.send(message)
        return message["header"]["msg_id"]

    def forget(self) -> None:
        """Drop what was seen, so that the next test sees its own."""
        self.look()
        self.seen.clear()
        self.replies.clear()
        self.reply_order.clear()

    def create_subshell(self) -> bool:
        """Send widget messages through a subshell from now on, as JupyterLab does; False where
        there is none.
        """
        message = self.client.session.msg("create_subshell_request", {})
        self.client.control_channel.send(message)
        try:
            reply = self.client.get_control_msg(timeout=3)
        except queue.Empty:
            return False
        self.subshell = reply["content"].get("subshell_id")
        return self.subshell is not None

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    # Looking.

    def look(self) -> None:
        """Take in what has come."""
        for get, store in (
            (self.client.get_iopub_msg, self.seen.append),
            (self.client.get_shell_msg, self._keep_reply),
        ):
            while True:
                try:
                    store(get(timeout=0))
                except queue.Empty:
                    break

    def _keep_reply(self, message: dict[str, Any]) -> None:
        parent = message["parent_header"]["msg_id"]
        self.replies[parent] = message["content"] | {"type": message["msg_type"]}
        self.reply_order.append(parent)

    def wait(self, condition: Callable[[], Any], timeout: float = DEADLINE) -> Any:
        """Look until a condition holds."""
        deadline = time.monotonic() + timeout
        while True:
            self.look()
            if found := condition():
                return found
            if time.monotonic() > deadline:
                texts = [(m["msg_type"], str(m["content"])[:300]) for m in self.seen[-12:]]
                pytest.fail(f"never happened within {timeout} s; the last messages: {texts}")
            time.sleep(0.005)

    def contents(self, kind: str, of: str = "") -> list[dict[str, Any]]:
        """Return the contents of the messages of one kind, of all requests or of one."""
        messages = [m for m in self.seen if m["msg_type"] == kind]
        return [m["content"] for m in messages if not of or m["parent_header"].get("msg_id") == of]

    def is_idle(self, message: str) -> bool:
        """Return True if the cell is over (a busy kernel is idle between widget messages)."""
        return any(c["execution_state"] == "idle" for c in self.contents("status", message))

    def displayed(self, message: str) -> list[dict[str, Any]]:
        """The outputs of a cell, display and updates, oldest first."""
        kinds = ("display_data", "update_display_data")
        return [content for kind in kinds for content in self.contents(kind, message)]

    def printed(self, message: str) -> str:
        return "".join(content["text"] for content in self.contents("stream", message))

    def comm(self) -> str:
        """Return the connection of the run that was begun last."""

        def opened() -> list[dict[str, Any]]:
            return [c for c in self.contents("comm_open") if "run" in c["data"]["state"]]

        return self.wait(opened)[-1]["comm_id"]

    def customs(self, comm: str) -> list[dict[str, Any]]:
        """Return the custom messages that a widget sent, oldest first."""
        sent = [c["data"] for c in self.contents("comm_msg") if c["comm_id"] == comm]
        return [data["content"] for data in sent if data.get("method") == "custom"]


class Page:
    """One page that watches a run, as the front end would: it greets, acknowledges, and remembers
    the progress.
    """

    def __init__(self, kernel: Kernel, comm: str, name: str = "page") -> None:
        self.kernel, self.comm, self.name = kernel, comm, name
        self.answered = 0
        self.progress: dict[str, Any] = {}
        self.snapshots: list[dict[str, Any]] = []
        self.details: list[dict[str, Any]] = []
        self.ticks: list[dict[str, Any]] = []
        self.greeted, self.heard = -2.0, time.monotonic()
        self.until(self.is_greeted)

    def send(self, kind: str, **content: Any) -> None:
        self.kernel.send_comm(self.comm, {"kind": kind, "page": self.name, **content})

    def greet_again(self) -> None:
        """As the front end does when it hears nothing: a kernel drops messages when a client is far
        behind.
        """
        if time.monotonic() - max(self.heard, self.greeted) > 8:
            self.greeted = time.monotonic()
            self.send("hello")

    def is_greeted(self) -> bool:
        """Greet every two seconds until there is an answer: the first may come before the kernel
        listens.
        """
        if not self.snapshots and time.monotonic() - self.greeted > 2:
            self.greeted = time.monotonic()
            self.send("hello")
        return bool(self.snapshots)

    def look(self) -> None:
        messages = self.kernel.customs(self.comm)
        if len(messages) > self.answered:
            self.heard = time.monotonic()
        for message in messages[self.answered :]:
            kind = message["kind"]
            if kind == "tick":
                self.ticks.append(message)
                self.send("ack", n=message["n"])
            elif kind == "snapshot" and message["page"] == self.name:
                self.snapshots.append(message)
            elif kind == "detail" and message["page"] == self.name:
                self.details.append(message)
            self.progress = message.get("record", message).get("progress", self.progress)
        self.answered = len(messages)

    def until(self, condition: Callable[[], Any], timeout: float = DEADLINE) -> Any:
        def seen() -> Any:
            self.look()
            self.greet_again()
            return condition()

        return self.kernel.wait(seen, timeout)

    def until_state(self, state: str) -> None:
        self.until(lambda: self.progress.get("state") == state)


def environment_of(version: str, folder: Path) -> str:
    """Build an environment whose only own package is this ipykernel; give its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.check_output([python, "-c", code], text=True).strip()
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", own]
    install.append("ipykernel" if version == "newest" else f"ipykernel=={version}")
    subprocess.run(install, check=True)
    Path(own, "zz_others.pth").write_text(sysconfig.get_path("purelib"))
    return str(python)


def _has_subshells(version: str) -> bool:
    """Whether a release of ipykernel takes widget messages in a thread of their own: since 7."""
    if version == "installed":
        version = "0" if find_spec("ipykernel") is None else metadata.version("ipykernel")
    return version == "newest" or int(version.partition(".")[0]) >= 7


def _settings() -> list[Any]:
    settings = [
        (version, way)
        for version in ("installed", *VERSIONS)
        for way in ("plain", "subshell")
        if way == "plain" or _has_subshells(version)
    ]
    marks = {"installed": ()}
    return [
        pytest.param(each, id="-".join(each), marks=marks.get(each[0], pytest.mark.long))
        for each in settings
    ]


@pytest.fixture(scope="module", params=_settings())
def shared_kernel(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kernel]:
    version, way = request.param
    python = sys.executable
    if version != "installed":
        python = environment_of(version, tmp_path_factory.mktemp(f"ipykernel_{version}"))
    started = Kernel(tmp_path_factory.mktemp("kernel"), python)
    try:
        if version != "installed":
            code = "import ipykernel; print(ipykernel.__version__, ipykernel.__file__)"
            found = started.run(code).split()
            assert found[0] == version or version == "newest"
            assert Path(found[1]).is_relative_to(Path(python).parents[1])
        if way == "subshell":
            assert started.create_subshell()
        started.run("import time\nfrom nbmodule import Live, steps")
        yield started
    finally:
        started.close()


@pytest.fixture
def kernel(shared_kernel: Kernel) -> Kernel:
    """A kernel of each version and each way of widget messages, with nothing seen yet."""
    shared_kernel.forget()
    return shared_kernel


@pytest.fixture
def watch_run() -> Callable[[Kernel, str], tuple[str, Page]]:
    """Start a cell with a run in it, and a page that watches it."""

    def start(kernel: Kernel, code: str) -> tuple[str, Page]:
        message = kernel.start(code)
        return message, Page(kernel, kernel.comm())

    return start
