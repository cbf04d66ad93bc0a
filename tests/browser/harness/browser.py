"""A headless Chromium that can reach this machine only."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from harness.notebook import TIMEOUT, NotebookPage
from harness.page import OUTSIDE, Page

if TYPE_CHECKING:
    from playwright.sync_api import Page as PlaywrightPage

    from harness.server import LabServer

FLAGS = [
    "--no-sandbox",  # Chromium's own sandbox does not start for root or in most containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    # No name but loopback's is resolved: a display that needs a server elsewhere fails here,
    # loudly.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]


class Browser:
    """A context manager; each page it opens has a context (cookies, cache, storage) of its own.

    Args:
        program: Path of Chromium or Chrome.
    """

    def __init__(self, program: str) -> None:
        self.program = program

    def __enter__(self) -> Self:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        try:
            self._browser = self._playwright.chromium.launch(
                executable_path=self.program,
                args=FLAGS,
                env=dict(os.environ) | {"TMPDIR": tempfile.gettempdir()},
            )
        except BaseException:
            self._playwright.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.close()
        self._playwright.stop()

    def open_notebook(self, server: LabServer, path: str, **options: Any) -> NotebookPage:
        """Open a notebook of the server and wait until its kernel is idle; `path` is relative to
        the server's root.

        `options` are those of `new_page`.
        """
        page = self.new_page(**options)
        notebook = NotebookPage(page, server, path)
        route = f"/lab/tree/{path}?reset&" if server.app == "lab" else f"/notebooks/{path}?"
        page.goto(f"{server.url}{route}token={server.token}", wait_until="domcontentloaded")
        notebook.wait_ready()
        return notebook

    def open_file(self, path: Path, **options: Any) -> Page:
        """Open a page from disk, with the network cut off; `options` are those of `new_page`."""
        page = self.new_page(offline=True, **options)
        wrapped = Page(page)
        page.goto(path.resolve().as_uri(), wait_until="load")
        return wrapped

    def new_page(
        self, *, dark: bool = False, width: int = 1280, height: int = 1000, **options: Any
    ) -> PlaywrightPage:
        """A blank page. `dark` is what the system prefers; `options` go to Playwright's
        `new_context`.
        """
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            **options,
        )
        context.route(OUTSIDE, lambda route: route.abort("blockedbyclient"))
        page = context.new_page()
        page.set_default_timeout(1000 * TIMEOUT)
        return page
