"""A Jupyter server for tests: free loopback port, throw-away settings, ended by its own process id."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[3]
STARTS_WITHIN = 90.0  # seconds
SETTINGS: dict[str, dict[str, Any]] = {
    # Without this, cells off screen are not drawn, and a test would not find their outputs.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
EXPOSE = {
    "lab": "--LabApp.expose_app_in_browser=True",
    "notebook": "--JupyterNotebookApp.expose_app_in_browser=True",
}
# On Linux the kernel ends the server when the tests are killed (1 is PR_SET_PDEATHSIG, 15 SIGTERM);
# `exec` keeps that.
END_WITH_PARENT = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 15)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
# Python's own default would send loopback requests through a proxy where one is set.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class HarnessError(RuntimeError):
    """The server, the browser or the kernel did not do what a test may take for granted."""


def stop_process(process: subprocess.Popen[bytes], grace: float = 10.0) -> None:
    """End one process that we started, politely first."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(grace)


class LabServer:
    """JupyterLab (`app="lab"`) or Notebook 7 (`app="notebook"`) over a folder; a context manager.

    Args:
        root: The folder that it shows; notebooks of tests lie there.
        app: Which front end `Browser.open_notebook` opens.
    """

    def __init__(self, root: Path, *, app: str = "lab") -> None:
        self.root, self.app = root.resolve(), app
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.token = secrets.token_hex(16)
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._home = Path(tempfile.mkdtemp(prefix="nbmodule-lab-"))
        self._write_settings()
        self._log = (self._home / "server.log").open("wb")
        self.process = subprocess.Popen(
            self._command(),
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self._environment(),
            cwd=self.root,
        )
        try:
            self._wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(
            OSError, ValueError
        ):  # kernels first, so that none outlives the server
            for kernel in self.api("GET", "/api/kernels"):
                self.api("DELETE", f"/api/kernels/{kernel['id']}")
        stop_process(self.process)
        self._log.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def api(self, method: str, path: str) -> Any:
        """Ask the server's REST interface; returns the parsed answer."""
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(self.url + path, method=method, headers=headers)
        with _direct.open(request, timeout=30) as reply:
            data = reply.read()
        return json.loads(data) if data else None

    def log(self, tail: int = 4000) -> str:
        """The last characters that the server and its kernels wrote."""
        return (self._home / "server.log").read_text(errors="replace")[-tail:]

    def _write_settings(self) -> None:
        for plugin, values in SETTINGS.items():
            package, _, name = plugin.partition(":")
            path = self._home / "user-settings" / package / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values))

    def _environment(self) -> dict[str, str]:
        own = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "user-settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        folders = {variable: str(self._home / folder) for variable, folder in own.items()}
        for folder in folders.values():
            Path(folder).mkdir(exist_ok=True)
        more = {"JUPYTER_PLATFORM_DIRS": "1", "PYTHONUNBUFFERED": "1", "JAX_PLATFORMS": "cpu"}
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", str(ROOT))])
        return os.environ | folders | more | {"PYTHONPATH": path}

    def _command(self) -> list[str]:
        module = {"lab": "jupyterlab", "notebook": "notebook"}[self.app]
        return [
            sys.executable, "-c", END_WITH_PARENT, "-m", module, "--no-browser", "--allow-root",
            f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0", "--ServerApp.ip=127.0.0.1",
            f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={self.root}",
            "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
            "--LabApp.news_url=None", EXPOSE[self.app],
        ]  # fmt: skip

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.api("GET", "/api/status")
                return
            except (urllib.error.URLError, OSError):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(0.1)  # returns at once if the process ends
        code = self.process.poll()
        state = f"was not up in {STARTS_WITHIN} s" if code is None else f"ended with code {code}"
        raise HarnessError(f"the server {state}:\n{self.log()}")
