"""Programs that need several devices or hosts run in processes of their own; each is run once for
many tests.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def settings(devices: int) -> dict[str, str]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": path, "XLA_FLAGS": flags}


@pytest.fixture(scope="session")
def trained(run_python):
    """Return the results of `device_program.py`."""
    program = (FOLDER / "device_program.py").read_text()
    return json.loads(run_python(program, devices=8, timeout=600).splitlines()[-1])


@pytest.fixture
def hosts(tmp_path):
    """Run `host_program.py` as several processes on this machine; gives output and exit code of
    each.
    """

    def run(
        processes: int,
        devices: int,
        *,
        steps: int = 8,
        dies_at: int = -1,
        folder=tmp_path / "checkpoints",
    ):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            coordinator = f"localhost:{free.getsockname()[1]}"
        started = []
        for process in range(processes):
            arguments = [coordinator, processes, process, folder, steps, dies_at]
            command = [sys.executable, FOLDER / "host_program.py", *map(str, arguments)]
            started.append(
                subprocess.Popen(
                    command,
                    env=settings(devices),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        ended = [(*process.communicate(), process.returncode) for process in started]
        lines = [line for line in ended[0][0].splitlines() if line.startswith("{")]
        facts = [json.loads(line) for line in lines]
        losses = {fact["step"]: fact["loss"] for fact in facts if "step" in fact}
        return losses, facts, ended

    return run
