"""The order of the tests.

`pytest -n ... --dist loadfile` deals files to workers in this order: a file's tests stay in one process, so that they share what JAX
has compiled and one JupyterLab, and so that the code blocks of a page of the documentation follow each other.
"""

from __future__ import annotations

import pytest

# Folders whose tests take longest: begun last, they would leave the other workers idle.
FIRST = ("tests/notebooks/", "tests/browser/")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))  # stable: order within each part stays
