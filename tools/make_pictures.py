#!/usr/bin/env python3
"""Draw the pictures of README and docs from the real displays, light and dark: a model, its
numbers, what one call returned, its graph.

Needs Chromium and playwright (`pip install ".[test]"`). The picture is taken of the page that a
notebook would show.
"""

from __future__ import annotations

import html
import shutil
import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from nbmodule.views.display.show import mimebundle

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
STYLE = """
body { margin: 16px 20px; font: 14px sans-serif; background: #fff }
h3 { font: 600 13px monospace; margin: 18px 0 6px; color: #444 }
@media (prefers-color-scheme: dark) { body { background: #111418 } h3 { color: #bbb } }
"""


class DigitReader(nb.Module):
    """A small convolutional network."""

    def __init__(self):
        self.strokes = nb.Sequential(
            nb.Conv2d(1, 8, 3, padding="SAME"), nb.BatchNorm2d(8), nb.ReLU(), nb.MaxPool2d(2)
        )
        self.flatten, self.scores = nb.Flatten(), nb.Linear(4 * 4 * 8, 10)

    def forward(self, x):
        return self.scores(self.flatten(self.strokes(x)))


def cells() -> dict[str, list[tuple[str, object]]]:
    """The code and the value of the cells of each picture."""
    nb.seed(0)
    model = DigitReader()
    rows, columns = np.mgrid[:8, :8]
    digit = np.exp(-((np.hypot(rows - 3.5, columns - 3.5) - 2.6) ** 2)).astype(np.float32)[
        None, ..., None
    ]
    model.train()
    model(jnp.asarray(np.repeat(digit, 4, 0)))
    model.eval()
    with nb.track(model) as calls:
        model(digit)
    return {
        "first": [
            ("model", model),
            ("model.v", model.v),
            ("with nb.track(model) as calls: model(digit)", calls),
        ],
        "graph": [("nb.graph(model, digit)", nb.graph(model, digit))],
        "array": [("nb.show(model.strokes(digit))", model.strokes(digit))],
    }


def page(shown: list[tuple[str, object]]) -> str:
    """The displays of some cells, below their code."""
    parts = "".join(
        f"<h3>{html.escape(code)}</h3>{mimebundle(value)['text/html']}" for code, value in shown
    )
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{parts}"


def main() -> None:
    """Take the pictures."""
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, shown in cells().items():
            source = Path(folder) / f"{name}.html"
            source.write_text(page(shown))
            for theme in ("light", "dark"):
                tab = browser.new_page(
                    viewport={"width": 900, "height": 200},
                    device_scale_factor=1.5,
                    color_scheme=theme,
                )
                tab.goto(source.as_uri())
                tab.locator("nbm-view").last.wait_for()
                tab.wait_for_timeout(500)
                picture = PICTURES / f"{name}-{theme}.png"
                tab.screenshot(path=picture, full_page=True)
                print(f"wrote {picture.name}, {picture.stat().st_size / 1024:.0f} KiB")
        browser.close()


if __name__ == "__main__":
    main()
