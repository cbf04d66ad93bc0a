"""Fixtures that tests of several packages use."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nbmodule as nb

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def seed() -> None:
    """Start each test with the seed of a fresh process, whatever an earlier test has set."""
    nb.seed(0)


@pytest.fixture(scope="session")
def run_python() -> Callable[..., str]:
    """Run code in a fresh Python and hand back what it printed.

    For what must be set before JAX starts (several virtual devices) and for what an import does to
    a clean interpreter:

        def test_shards_lie_on_all_devices(run_python):
            assert run_python("import jax; print(jax.device_count())", devices=8) == "8"

    Args:
        code: Dedented before it runs.
        devices: How many virtual CPU devices JAX shows.
        env: Further variables of the environment.
        timeout: Seconds after which it is ended.

    A non-zero exit fails the test with the whole output.
    """

    def run(
        code: str, *, devices: int = 1, env: dict[str, str] | None = None, timeout: float = 120.0
    ) -> str:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        settings = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": path} | (env or {})
        if devices > 1:
            settings["XLA_FLAGS"] = (
                f"{settings.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
            )
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            env=settings,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"exit code {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)
        return done.stdout.strip()

    return run
