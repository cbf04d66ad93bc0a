"""Exclude objects of earlier test files from garbage collection (`gc.freeze`).

A worker that has collected ten thousand tests holds millions of objects, and each collection would
traverse all of them. Objects that a test creates are collected as usual. Frozen cycles are freed at
every twentieth file.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Generator

import pytest

_files = itertools.count(1)


def freeze_objects() -> None:
    """Free garbage, then freeze the remaining objects."""
    if next(_files) % 20 == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    freeze_objects()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    yield
    if nextitem is not None and nextitem.path != item.path:
        freeze_objects()
