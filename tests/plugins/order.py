"""The order of the tests.

`pytest -n ... --dist loadfile --no-loadscope-reorder` deals files to workers in this order: a
file's tests stay in one process, so that they share what JAX has compiled and one JupyterLab, and
so that the code blocks of a page of the documentation follow each other. Files that are compiled
alike follow each other, since what was compiled otherwise is of no use to them.
"""

from __future__ import annotations

import pytest

from compiler import is_quick

# Folders whose tests take longest: begun last, they would leave the other workers idle.
FIRST = ("tests/notebooks/", "tests/browser/")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)  # stable: order within each part stays


def _place(item: pytest.Item) -> tuple[bool, bool]:
    return not item.nodeid.startswith(FIRST), is_quick(item.nodeid)
