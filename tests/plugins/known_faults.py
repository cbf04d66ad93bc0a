"""Tests that failed when the compiled functions, the optimizers and the views were redesigned on
2026-11-23, and were not yet judged: a fault of the package, or a promise of the old design.

Each is to be mended or deleted, and its line with it. They run, and may fail; those that took the
whole worker with them do not run.
"""

from __future__ import annotations

import pytest

MAY_FAIL = ()
DO_NOT_RUN: tuple[str, ...] = ()


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    if item.nodeid.startswith(MAY_FAIL):
        item.add_marker(pytest.mark.xfail(reason="see tests/plugins/known_faults.py", strict=False))
    if item.nodeid.startswith(DO_NOT_RUN):
        item.add_marker(pytest.mark.xfail(reason="see tests/plugins/known_faults.py", run=False))
