"""Which tests may be tried again: those that wait for a browser or a kernel, which a busy machine
can keep too long.

Continuous integration sets `NBMODULE_RERUNS=2`. All others run once: what fails there only at times
is a race, and must be seen.
"""

from __future__ import annotations

import os

import pytest

WAITING = {
    "browser",
    "lab_server",
    "shared_kernel",
}  # fixtures that start another program and wait for it
FOLDERS = ("tests/notebooks/",)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    waits = item.nodeid.startswith(FOLDERS) or WAITING & set(getattr(item, "fixturenames", ()))
    times = int(os.environ.get("NBMODULE_RERUNS", "0"))
    if waits and times:
        item.add_marker(pytest.mark.flaky(reruns=times, reruns_delay=1))
