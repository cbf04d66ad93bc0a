#!/usr/bin/env python3
"""Take the moving picture of the README from a real JupyterLab, light and dark, as animated WebP.

A training runs in a cell; a hand presses Pause, lowers the learning rate, goes on, clicks the step
where the loss jumped, and the step is there again with the module at fault. Needs what `make test`
installs (Chromium, playwright, JupyterLab) and Pillow.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser"), str(ROOT / "tests" / "plugins")]

from PIL import Image  # noqa: E402

from harness.browser import Browser  # noqa: E402  # pyright: ignore[reportMissingImports]
from harness.files import write_notebook  # noqa: E402  # pyright: ignore[reportMissingImports]
from harness.server import LabServer  # noqa: E402  # pyright: ignore[reportMissingImports]
from missing_tools import find_chromium  # noqa: E402  # pyright: ignore[reportMissingImports]

PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT, SCALE = 960, 760, 0.75
MOST = 2_000_000  # bytes

SETUP = """
import numpy as np, jax.numpy as jnp, nbmodule as nb
from sklearn.datasets import load_digits

nb.seed(0)
digits = load_digits()
images, labels = (digits.images / 16).astype("float32")[..., None], digits.target
model = nb.Sequential(nb.Conv2d(1, 8, 3), nb.BatchNorm2d(8), nb.ReLU(), nb.Flatten(), nb.Linear(288, 10))
optimizer = nb.Adam(3e-3)
images[700] *= 80  # one broken scan

@nb.jit
def step(x, y):
    loss, grads = nb.value_and_grad(lambda m: nb.cross_entropy(m(x), y))(model)
    optimizer.update(model, grads)
    return loss
""".strip()
TRAINING = """
with nb.Live(model, optimizer) as live:
    for epoch in live.epochs(20):
        for x, y in live.steps(nb.batches((images, labels), 32, shuffle=True, key=epoch)):
            live.log(loss=step(x, y))
            time.sleep(0.02)
""".strip()
CURSOR = """
([x, y, down]) => {
  let hand = document.getElementById("motion-hand");
  if (!hand) {
    hand = document.createElement("div"); hand.id = "motion-hand";
    hand.style.cssText = "position:fixed;z-index:99999;width:18px;height:18px;margin:-9px;border-radius:50%;border:2px solid #e4572e;pointer-events:none";
    document.body.append(hand);
  }
  hand.style.left = x + "px"; hand.style.top = y + "px"; hand.style.background = down ? "#e4572e88" : "#e4572e22";
}
"""


class Film:
    """Frames, each with the time it is shown."""

    def __init__(self, page: Any) -> None:
        self.page, self.frames = page, []
        self.at = (WIDTH * 0.7, HEIGHT * 0.8)

    def shoot(self, seconds: float) -> None:
        """Film what happens for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            picture = Image.open(io.BytesIO(self.page.screenshot(type="jpeg", quality=90))).convert(
                "RGB"
            )
            size = (int(picture.width * SCALE), int(picture.height * SCALE))
            took = time.monotonic() - began
            time.sleep(max(0.0, 0.16 - took))
            self.frames.append(
                (
                    picture.resize(size, Image.Resampling.LANCZOS),
                    int(1000 * (time.monotonic() - began)),
                )
            )

    def press(self, locator: Any, where: dict[str, float] | None = None) -> None:
        """Move the hand to something and press it."""
        locator.scroll_into_view_if_needed()
        box = locator.bounding_box()
        x = box["x"] + (where["x"] if where else box["width"] / 2)
        y = box["y"] + (where["y"] if where else box["height"] / 2)
        for k in range(1, 6):
            self.hand(self.at[0] + (x - self.at[0]) * k / 5, self.at[1] + (y - self.at[1]) * k / 5)
            self.shoot(0.08)
        self.at = (x, y)
        self.hand(x, y, down=True)
        self.shoot(0.15)
        locator.click(position=where) if where else locator.click()
        self.hand(x, y)

    def pull(self, slider: Any, share: float) -> None:
        """Take a slider by its knob and draw it to a share of its way."""
        box, mouse = slider.bounding_box(), self.page.mouse
        here = slider.evaluate("node => (node.value - node.min) / (node.max - node.min)")
        knob = 16  # pixels; its middle is never nearer than half of it to an end
        begin, end = (box["x"] + knob / 2 + (box["width"] - knob) * part for part in (here, share))
        y = box["y"] + box["height"] / 2
        self.hand(begin, y)
        self.shoot(0.3)
        mouse.move(begin, y)
        mouse.down()
        for k in range(1, 9):
            x = begin + (end - begin) * k / 8
            mouse.move(x, y)
            self.hand(x, y, down=True)
            self.shoot(0.08)
        mouse.up()
        self.hand(end, y)
        self.at = (end, y)

    def hand(self, x: float, y: float, *, down: bool = False) -> None:
        """Draw the hand."""
        self.page.evaluate(CURSOR, [x, y, down])

    def save(self, path: Path) -> None:
        """Write the film; frames that equal the one before prolong it."""
        kept: list[list[Any]] = []
        for picture, duration in self.frames:
            if kept and kept[-1][0].tobytes() == picture.tobytes():
                kept[-1][1] += duration
            else:
                kept.append([picture, duration])
        kept[-1][1] += 2500
        for quality in (60, 45, 30, 20):
            kept[0][0].save(
                path,
                save_all=True,
                append_images=[picture for picture, _ in kept[1:]],
                duration=[ms for _, ms in kept],
                loop=0,
                quality=quality,
                method=6,
                minimize_size=False,
            )
            if path.stat().st_size < MOST:
                break
        print(f"wrote {path.name}: {len(kept)} frames, {path.stat().st_size / 1024:.0f} KiB")


def act(film: Film, notebook: Any) -> None:
    """What happens in the film."""
    out = notebook.outputs(1)
    notebook.run_cell(0)
    notebook.run_cell(1, wait=False)
    film_from(out, 5)  # what a first step compiles is the same wait everywhere, and shows nothing
    out.evaluate("node => node.closest('.jp-Cell').scrollIntoView({ block: 'start' })")
    film.shoot(4)
    film.press(out.get_by_role("button", name="Pause"))
    out.locator(".nbm-run-mark[data-state=paused]").first.wait_for()
    film.shoot(1.2)
    film.pull(out.get_by_label("learning rate").first, 0.25)
    out.get_by_text("learning rate: 0.003 → 0.0003").first.wait_for()
    film.shoot(1)
    film.press(
        out.get_by_role("button", name="Go on").or_(out.get_by_role("button", name="Resume")).first
    )
    film.shoot(3)
    film_from(out, 60)  # the broken scan has been seen by then
    film.press(
        out.get_by_role("button", name="Pause")
    )  # so that the curve stays where the hand will click
    out.locator(".nbm-run-mark[data-state=paused]").first.wait_for()
    film.shoot(1)
    plot = out.locator(".nbm-run-plots svg.nbm-curve").first
    highest = plot.evaluate(
        """svg => { let best = null;
        for (const path of svg.querySelectorAll('path')) { const n = path.getTotalLength ? path.getTotalLength() : 0;
          for (let k = 0; k < 600 && n > 50; k++) { const p = path.getPointAtLength(n * k / 600); if (p.x > 90 && (!best || p.y < best.y)) best = { x: p.x, y: p.y }; } }
        return best; }"""
    )
    film.press(plot, {"x": highest["x"], "y": 60} if highest else None)
    opened = out.locator(".nbm-run-replayed nbm-view")
    opened.wait_for()
    opened.scroll_into_view_if_needed()
    film.shoot(2)
    film.press(opened.get_by_role("row").filter(has_text="[32, 6, 6, 8]").first)
    film.shoot(2)


def film_from(out: Any, step: int) -> None:
    """Wait until the run is at a step."""
    title = out.locator(
        ".nbm-facts"
    ).first  # within a shadow root, which the text of the output leaves out
    while (
        int((re.search(r"step ([\d,]+)/", title.inner_text()) or ["", "0"])[1].replace(",", ""))
        < step
    ):
        time.sleep(0.2)


def main() -> None:
    """Film both themes."""
    with tempfile.TemporaryDirectory() as folder, LabServer(Path(folder), app="lab") as server:
        for theme in ("light", "dark"):
            write_notebook(server.root / f"{theme}.ipynb", ["import time\n" + SETUP, TRAINING])
            with Browser(find_chromium() or "chromium") as browser:
                notebook = browser.open_notebook(
                    server, f"{theme}.ipynb", dark=theme == "dark", width=WIDTH, height=HEIGHT
                )
                notebook.set_theme(dark=theme == "dark")
                notebook.js("app.commands.execute('application:toggle-left-area'); return null;")
                film = Film(notebook.page)
                act(film, notebook)
                film.save(PICTURES / f"motion-{theme}.webp")
                notebook.interrupt()
                notebook.shutdown()


if __name__ == "__main__":
    main()
