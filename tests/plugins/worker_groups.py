"""Deal tests to workers file by file, the long ones first.

A file's tests stay in one process, so that they share what JAX has compiled; all tests that drive JupyterLab share one
process and with it one server. Groups only matter under `pytest -n ... --dist loadgroup`.
"""

from __future__ import annotations

import pytest
from sybil.integration.pytest import SybilItem

# Folders whose tests take longest: begun last, they would leave the other workers idle.
FIRST = ("tests/notebooks/", "tests/browser/")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))  # stable: order within each part stays


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("xdist_group") is None:
        folder_or_file = "browser" if item.nodeid.startswith("tests/browser/") else item.nodeid.split("::")[0]
        item.add_marker(pytest.mark.xdist_group(folder_or_file))
    if isinstance(item, SybilItem):  # no fixture setup of its own to run again, and its page goes on from where it is
        item.add_marker(pytest.mark.flaky(reruns=0))
