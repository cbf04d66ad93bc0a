"""What is there before a file's tests begin is not looked through again by Python's collector.

A worker that has collected ten thousand tests and run half of them holds millions of objects, and a
test that asks for `gc.collect()`, or makes enough objects for Python to begin by itself, would pay
for all of them. They are set aside (`gc.freeze`): what a test makes is collected as ever. What was
set aside and has become garbage since, in a circle, is found at every twentieth file.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Generator

import pytest

_files = itertools.count(1)


def set_aside() -> None:
    """First what can be freed is freed: afterwards the collector does not find it."""
    if next(_files) % 20 == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    set_aside()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    yield
    if nextitem is not None and nextitem.path != item.path:
        set_aside()
