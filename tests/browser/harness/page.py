"""A browser page that remembers what went wrong on it and whom it asked for something."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Locator
    from playwright.sync_api import Page as PlaywrightPage

SCREENSHOTS = Path(__file__).parents[3] / "build" / "screenshots"
# Loopback is the server under test; everything else is outside.
INSIDE = re.compile(
    r"^(?:file|data|blob|about|chrome-error):|^(?:https?|wss?)://(?:127\.0\.0\.1|localhost)[:/]"
)
OUTSIDE = re.compile(r"^(?:https?|wss?)://(?!(?:127\.0\.0\.1|localhost)[:/])")
# What JupyterLab itself writes to the console and what says nothing about our own front end.
# A page that is left or loaded again gives up its own requests: ERR_ABORTED (one to outside is
# noted all the same).
CONSOLE_NOISE = ("favicon", "service-worker", "net::ERR_ABORTED")


@dataclasses.dataclass(frozen=True)
class ConsoleLine:
    """One line of the console.

    `kind` is error, warning, log, ..., pageerror (uncaught) or requestfailed.
    """

    kind: str
    text: str


class Page:
    """A page of the browser.

    `page.page` is Playwright's own object, for all that is not wrapped here.
    """

    def __init__(self, page: PlaywrightPage) -> None:
        self.page = page
        self.console: list[ConsoleLine] = []
        self.outside: list[str] = []
        self._allowed: tuple[str, ...] = CONSOLE_NOISE
        page.on("console", lambda message: self._write(message.type, message.text))
        page.on("pageerror", lambda error: self._write("pageerror", str(error)))
        page.on(
            "requestfailed", lambda r: self._write("requestfailed", f"{r.url} {r.failure or ''}")
        )
        page.on("request", lambda request: self._note(request.url))
        page.on("websocket", lambda socket: self._note(socket.url))

    def _write(self, kind: str, text: str) -> None:
        self.console.append(ConsoleLine(kind, text))

    def _note(self, url: str) -> None:
        if not INSIDE.match(url):
            self.outside.append(url)

    def locator(self, selector: str, **options: Any) -> Locator:
        """Playwright's locator; it looks into open shadow roots by itself."""
        return self.page.locator(selector, **options)

    def allow_console(self, *texts: str) -> None:
        """Let pass console errors that hold one of these texts, for a test that provokes them."""
        self._allowed += texts

    def errors(self) -> list[ConsoleLine]:
        """Errors on the console, uncaught exceptions and failed requests, without what was allowed."""
        return [
            line
            for line in self.console
            if line.kind in ("error", "pageerror", "requestfailed")
            and not any(text in line.text for text in self._allowed)
        ]

    def check(self) -> None:
        """Fail if the page asked another machine for anything or wrote an error to the console."""
        asked = sorted(set(self.outside))
        assert not asked, f"the page asked for {asked}; nothing may come from outside"
        errors = [f"{line.kind}: {line.text}" for line in self.errors()]
        assert not errors, "\n".join(["errors on the console:", *errors])

    def screenshot(self, name: str, locator: Locator | None = None) -> Path:
        """Save a picture of the page, or of one element, as `build/screenshots/<name>.png`."""
        path = SCREENSHOTS / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        (locator or self.page).screenshot(path=str(path))
        return path

    def resize(self, width: int, height: int = 1000) -> None:
        """Give the page another size, in CSS pixels."""
        self.page.set_viewport_size({"width": width, "height": height})

    def emulate(self, **media: Any) -> None:
        """Change what media queries see: `color_scheme="dark"`, `forced_colors="active"`,
        `media="print"`.
        """
        self.page.emulate_media(**media)

    def close(self) -> None:
        """Close the page and its context."""
        self.page.context.close()
