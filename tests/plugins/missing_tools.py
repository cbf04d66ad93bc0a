"""Skip a test whose program is missing and say how to get it; fail it where nothing may be missing.

A test asks for a program with `@pytest.mark.chromium`, `@pytest.mark.node` or
`@pytest.mark.graphviz`. Continuous integration sets `NBMODULE_REQUIRE_ALL=1`: there a skip for such
a reason, or for any other, is a failure.
"""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROOT = Path(__file__).parents[2]


@functools.cache
def find_chromium() -> str | None:
    """The Chromium to drive: `$CHROMIUM`, one on the PATH, or one that Playwright has fetched."""
    names = "chromium chromium-browser google-chrome google-chrome-stable".split()
    for name in filter(None, (os.environ.get("CHROMIUM"), *names)):
        if found := shutil.which(name):
            return found
    cache = Path.home() / ".cache" / "ms-playwright"
    folder = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH", cache))
    fetched = sorted(folder.glob("chromium-*/chrome-linux*/chrome"))
    return str(fetched[-1]) if fetched else None


def _lacks_chromium() -> str:
    if find_chromium():
        return ""
    return "Chromium is missing: `sudo apt-get install chromium`, or set CHROMIUM to a Chromium or Chrome program"


def _lacks_graphviz() -> str:
    return "" if shutil.which("dot") else "Graphviz is missing: `sudo apt-get install graphviz`"


def _lacks_node() -> str:
    if not (shutil.which("node") and shutil.which("npm")):
        return "node or npm is missing: `sudo apt-get install nodejs npm`, then `npm ci`"
    if not (ROOT / "node_modules" / "typescript").is_dir():
        return "the packages of package-lock.json are missing: `npm ci`"
    return ""


LACKS: dict[str, Callable[[], str]] = {
    "chromium": _lacks_chromium,
    "node": _lacks_node,
    "graphviz": _lacks_graphviz,
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for tool, lacks in LACKS.items():
        if item.get_closest_marker(tool) is None:
            continue
        if reason := lacks():
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and _nothing_may_be_missing():
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} was skipped, and NBMODULE_REQUIRE_ALL is set: {report.longrepr}"
        )
    return report


def _nothing_may_be_missing() -> bool:
    return os.environ.get("NBMODULE_REQUIRE_ALL", "0") != "0"
