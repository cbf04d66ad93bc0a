"""The fixtures of browser tests. A test in any folder may use them.

    lab_server     one JupyterLab for all tests of the run; `lab_server.root` is its folder
    browser        one Chromium for the tests of a file
    open_notebook  open_notebook(cells, app="lab", dark=False, width=1280) -> NotebookPage,
                   kernel idle, nothing run yet
    open_file      open_file(path, dark=False, width=1280) -> Page, with the network cut off
    open_html      open_html(text, ...) -> Page: the same for a text, e.g. that of `_repr_html_`
    export         export(notebook_page) -> Path of the exported page of a notebook that has run

When the test ends, each page is checked (`Page.check`: no request to outside, no error on the
console), its kernel is ended, and, if the test failed, a picture goes to
`build/screenshots/failed/` and console and server log are printed. `page.allow_console("text")`
lets an expected error pass. A test that asks for one of these needs Chromium and is skipped without
it; no mark is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.browser import Browser
from harness.files import export_page, write_notebook
from harness.notebook import NotebookPage
from harness.page import Page
from harness.server import LabServer
from missing_tools import find_chromium

_failed = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    if "browser" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.chromium)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


@pytest.fixture(scope="session")
def _servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], LabServer]]:
    running: dict[str, LabServer] = {}

    def server(app: str) -> LabServer:
        if app not in running:
            running[app] = LabServer(tmp_path_factory.mktemp(app), app=app).__enter__()
        return running[app]

    yield server
    for started in running.values():
        started.__exit__()


@pytest.fixture(scope="session")
def lab_server(_servers: Callable[[str], LabServer]) -> LabServer:
    """One JupyterLab for all tests of the run."""
    return _servers("lab")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for a file of tests.

    Not for the whole run: while Playwright's loop lives, other code of the process cannot start an
    event loop.
    """
    with Browser(find_chromium() or "chromium") as started:
        yield started


@pytest.fixture
def _pages(request: pytest.FixtureRequest) -> Iterator[list[Page]]:
    """Pages that the test has opened; they are checked and closed when it ends."""
    pages: list[Page] = []
    yield pages
    failed = request.node.stash.get(_failed, False)
    try:
        for number, page in enumerate(pages):
            if failed:
                _tell(
                    page, f"failed/{re.sub(r'[^A-Za-z0-9_.-]+', '-', request.node.nodeid)}-{number}"
                )
            else:
                page.check()
    finally:
        for page in pages:
            page.close()


def _tell(page: Page, name: str) -> None:
    print(f"screenshot: {page.screenshot(name)}")
    for line in page.console:
        print(f"console {line.kind}: {line.text}")
    if isinstance(page, NotebookPage):
        print(page.server.log())


@pytest.fixture
def open_notebook(
    browser: Browser,
    _servers: Callable[[str], LabServer],
    _pages: list[Page],
    request: pytest.FixtureRequest,
) -> Callable[..., NotebookPage]:
    """Write cells into a new notebook, open it in Lab or Notebook 7, wait for its kernel."""

    def open_cells(cells: list[str], *, app: str = "lab", **options: Any) -> NotebookPage:
        server = _servers(app)
        name = f"{re.sub(r'[^A-Za-z0-9_]+', '_', request.node.name)}_{len(_pages)}.ipynb"
        write_notebook(server.root / name, cells)
        notebook = browser.open_notebook(server, name, **options)
        _pages.append(notebook)
        return notebook

    return open_cells


@pytest.fixture
def open_file(browser: Browser, _pages: list[Page]) -> Callable[..., Page]:
    """Open a page from disk, offline."""

    def open_path(path: Path, **options: Any) -> Page:
        page = browser.open_file(path, **options)
        _pages.append(page)
        return page

    return open_path


@pytest.fixture
def open_html(open_file: Callable[..., Page], tmp_path: Path) -> Callable[..., Page]:
    """Open a piece of HTML in a bare page, offline."""

    def open_text(text: str, **options: Any) -> Page:
        path = tmp_path / "page.html"
        path.write_text(
            f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>test</title><body>{text}</body></html>'
        )
        return open_file(path, **options)

    return open_text


@pytest.fixture
def export(tmp_path: Path) -> Callable[[NotebookPage], Path]:
    """Save an open notebook and export it with the outputs it has."""

    def export_open(notebook: NotebookPage) -> Path:
        notebook.save()
        return export_page(notebook.server.root / notebook.path, tmp_path / "exported.html")

    return export_open
