"""Order the tests.

`pytest -n ... --dist loadfile --no-loadscope-reorder` assigns whole files to workers in this order, so
that the tests of a file share compiled programs and one JupyterLab, and the code blocks of a page run
in sequence. Files with the same compiler settings are adjacent, so that they share programs.
"""

from __future__ import annotations

import pytest

from compiler import is_quick

# The slowest folders come first; at the end they would leave the other workers idle.
FIRST = ("tests/notebooks/", "tests/browser/")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)  # stable: order within each part stays


def _rank(item: pytest.Item) -> tuple[bool, bool]:
    return not item.nodeid.startswith(FIRST), is_quick(item.nodeid)
