"""How long a reader waits in a saved page: from the click, or the last letter of a filter, to the
next paint, in a headless Chromium.

The times are wall times of the page's own clock, medians over rounds; `worst ms` is the longest of
them. Without Chromium or playwright there is no table.
"""

from __future__ import annotations

import importlib.util
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp

import nbmodule as nb
from benchmarks.cases.views import tree_of
from benchmarks.models import Transformer
from benchmarks.timing import Row, Table
from nbmodule.views import mimebundle

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
TO_PAINT = """([kind, k]) => new Promise(done => {
  const root = document.querySelector("nbm-view").shadowRoot, rows = [...root.querySelectorAll(".nbm-row")], field = root.querySelector(".nbm-filter");
  const begin = performance.now();
  if (kind === "click") rows[k % rows.length].click();
  else if (kind === "filter") { field.value = k % 2 ? "block_99" : "block_9998 p3"; field.dispatchEvent(new Event("input")); }
  requestAnimationFrame(() => { const after = new MessageChannel();  // its message comes when the frame has been painted
    after.port1.onmessage = () => done(performance.now() - begin); after.port2.postMessage(0); });
})"""


def run(quick: bool = False) -> list[Table]:
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None or not importlib.util.find_spec("playwright"):
        print("no table of clicks: Chromium and playwright are needed")
        return []
    from playwright.sync_api import sync_playwright

    model = Transformer(layers=2, width=128, heads=4, vocabulary=500, context=64)
    tokens = jnp.zeros(64, jnp.int32)
    with nb.track(model) as calls:
        model(tokens)
    cases = {
        "an idle frame": (calls, "idle", None),
        "detail of a call, with its picture": (calls, "click", 50),
        "detail of a variable, with its picture": (model.v, "click", 50),
        "filter over 100,000 leaves": (tree_of(100_000), "filter", 100),
    }
    rows = []
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        browser = play.chromium.launch(executable_path=program, args=FLAGS)
        for name, (value, kind, most) in cases.items():
            page = browser.new_page(viewport={"width": 1100, "height": 900})
            file = Path(folder) / "page.html"
            file.write_text(
                f"<!doctype html><meta charset=utf-8>{mimebundle(value)['text/html']}",
                encoding="utf-8",
            )
            page.goto(file.as_uri())
            page.locator("nbm-view .nbm-row").nth(1).wait_for()
            rows.append(_row(page, name, kind, most, 9 if quick else 31))
            page.close()
        browser.close()
    note = "Wall times of the page's clock, to the message after the next frame; a frame alone takes what the first row says."
    return [Table("From a click to the next paint", rows, None, note=note)]


def _row(page: Any, name: str, kind: str, most: float | None, rounds: int) -> Row:
    waits = [page.evaluate(TO_PAINT, [kind, k]) for k in range(rounds + 2)][2:]
    middle = statistics.median(waits)
    more: dict[str, Any] = {"worst ms": max(waits)}
    if most is not None:
        more["target ms"] = f"{most:g}" + (" **missed**" if middle > most else "")
    return Row(name, 1e3 * middle, 1e3 * middle, None, more=more)
