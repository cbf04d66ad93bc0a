#!/usr/bin/env python3
"""Draw docs/pictures/first.png from the real displays: a model, its numbers, and what one call returned.

Needs Chromium and playwright (`pip install ".[test]"`). The picture is taken of the page that a notebook would show.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from nbmodule.views.show import mimebundle

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "first.png"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
STYLE = "body{margin:16px 20px;font:14px sans-serif} h3{font:600 13px monospace;margin:18px 0 6px;color:#444}"


class DigitReader(nb.Module):
    """A small convolutional network."""

    def __init__(self):
        self.strokes = nb.Sequential(nb.Conv2d(1, 8, 3, padding="SAME"), nb.BatchNorm2d(8), nb.ReLU(), nb.MaxPool2d(2))
        self.flatten, self.scores = nb.Flatten(), nb.Linear(4 * 4 * 8, 10)

    def forward(self, x):
        return self.scores(self.flatten(self.strokes(x)))


def page() -> str:
    """The displays of three cells, below their code."""
    nb.seed(0)
    model = DigitReader()
    rows, columns = np.mgrid[:8, :8]
    digit = np.exp(-((np.hypot(rows - 3.5, columns - 3.5) - 2.6) ** 2)).astype(np.float32)[None, ..., None]
    model.train()
    model(jnp.asarray(np.repeat(digit, 4, 0)))
    model.eval()
    parts = [("model", model), ("model.v", model.v)]
    with nb.track(model) as calls:
        model(digit)
    parts.append(("with nb.track(model) as calls: model(digit)", calls))
    cells = "".join(f"<h3>{code}</h3>{mimebundle(value)['text/html']}" for code, value in parts)
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{cells}"


def main() -> None:
    """Take the picture."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        source = Path(folder) / "page.html"
        source.write_text(page())
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        tab = browser.new_page(viewport={"width": 900, "height": 600}, device_scale_factor=1.5)
        tab.goto(source.as_uri())
        tab.locator("nbm-view").last.wait_for()
        tab.wait_for_timeout(500)
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=PICTURE, full_page=True)
        browser.close()
    print(f"wrote {PICTURE.name}, {PICTURE.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
