#!/usr/bin/env python3
"""Take pictures of the displays: real models, some with planted mistakes, at two widths, light, dark
and on paper; or the pictures of README and docs.

`python tools/make_gallery.py [FOLDER] [NAME ...]` writes `NAME-WIDTH-THEME.png` into FOLDER, by
default `build/gallery`, and an index of them; `python tools/make_gallery.py --docs` writes
docs/pictures. Needs Chromium and playwright (`pip install ".[test]"`). Each picture is of the page
that a saved notebook shows.
"""

from __future__ import annotations

import contextlib
import html
import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from nbmodule.views.display.show import mimebundle

FOLDER = Path(__file__).resolve().parents[1] / "build" / "gallery"
DOCS = Path(__file__).resolve().parents[1] / "docs" / "pictures"
WIDTHS, THEMES = (400, 1400), ("light", "dark")
PAPER = 794  # A4 at 96 dots to the inch
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
STYLE = """
body { margin: 12px; font: 14px sans-serif; background: #fff }
h3 { font: 600 13px monospace; margin: 18px 0 6px; color: #444 }
@media (prefers-color-scheme: dark) { body { background: #111418 } h3 { color: #bbb } }
@media print { body { background: #fff } }
"""


class Residual(nb.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int, stride: int = 1) -> None:
        before = channels if stride == 1 else channels // stride
        self.conv1 = nb.Conv2d(before, channels, 3, stride=stride, padding="SAME")
        self.norm1 = nb.BatchNorm2d(channels)
        self.conv2 = nb.Conv2d(channels, channels, 3, padding="SAME")
        self.norm2 = nb.BatchNorm2d(channels)
        self.act = nb.ReLU()
        self.around = nb.Conv2d(before, channels, 1, stride=stride) if stride > 1 else None

    def forward(self, x: Any) -> Any:
        y = self.norm2(self.conv2(self.act(self.norm1(self.conv1(x)))))
        return nb.relu(y + (self.around(x) if self.around else x))


class ResNet(nb.Module):
    """Eighteen layers, as narrow as a picture needs."""

    def __init__(self) -> None:
        self.stem, self.norm = nb.Conv2d(3, 8, 3, padding="SAME"), nb.BatchNorm2d(8)
        self.layers = [
            nb.Sequential(Residual(8 * 2**k, 1 if k == 0 else 2), Residual(8 * 2**k))
            for k in range(4)
        ]
        self.head = nb.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        x = nb.relu(self.norm(self.stem(x)))
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean((1, 2)))


def gpt(layers: int = 24) -> nb.Sequential:
    """A language model, as narrow as a picture needs."""
    return nb.Sequential(
        nb.Embedding(50, 32),
        nb.TransformerEncoder(layers, 32, 4, dropout_rate=0.0),
        nb.Linear(32, 50),
    )


def ported() -> Any:
    """The first look of the notebook that ports a network from PyTorch with planted mistakes."""
    lesson = FOLDER.parents[1] / "notebooks" / "08_porting_from_torch.py"
    text = lesson.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "porting"}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(
            compile(
                text[: text.index("\n", text.index("\nfirst_look = ") + 1)], str(lesson), "exec"
            ),
            names,
        )
    return names["first_look"]


def values() -> dict[str, Callable[[], Any]]:
    """What is shown, by name; made when it is asked for."""
    nb.seed(0)
    image = jax.random.normal(jax.random.key(1), (2, 16, 16, 3))
    tokens = jax.random.randint(jax.random.key(0), (2, 12), 0, 50)
    net, dead, language, wrong = ResNet().eval(), ResNet().eval(), gpt().eval(), gpt(6).eval()
    norm = getattr(dead.layers[2][0], "norm1")  # noqa: B009 - a checker sees a Module only
    norm.bias = norm.bias - 1e3
    dead.layers[3].train()

    def tracked(model: Any, x: Any) -> Any:
        with nb.track(model) as calls:
            model(x)
        return calls

    def compared() -> Any:
        right = tracked(wrong, tokens)
        encoder: Any = wrong[1]
        encoder.layers[4].norm1.weight = encoder.layers[4].norm1.weight * 1.5
        return nb.compare(tracked(wrong, tokens), right)

    def recorded() -> Any:
        model = nb.Sequential(nb.Linear(8, 16), nb.ReLU(), nb.Linear(16, 4))
        recorder = nb.Recorder(model, every=1)
        for step in range(6):
            with recorder:
                model(jnp.full((4, 8), 1.0 + step))
        return recorder

    def trained() -> Any:
        model = nb.Sequential(nb.Linear(8, 32), nb.ReLU(), nb.Linear(32, 1))
        optimizer, x = nb.Adam(1e-2), jax.random.normal(jax.random.key(2), (64, 8))
        with (
            contextlib.redirect_stdout(io.StringIO()),
            nb.Live(model, optimizer, name="regression") as live,
        ):
            for _ in live.steps(range(60)):
                loss, grads = nb.value_and_grad(lambda m: ((m(x)[:, 0] - x.sum(1)) ** 2).mean())(
                    model
                )
                optimizer.update(model, grads)
                live.log(loss=loss)
        return live

    def curve() -> Any:
        curve = nb.LossCurve("run", display=False)
        for step in range(40):
            curve.log(loss=1 / (step + 1), val_loss=0.1 + 1 / (step + 1), accuracy=step / 40)
        curve.close()
        return curve

    small = nb.Sequential(nb.Linear(24, 16), nb.ReLU(), nb.Linear(16, 3))
    features = jax.random.normal(jax.random.key(4), (1, 24))
    tokens_of = [f"token {k}" for k in range(24)]

    def steps() -> Any:
        model = ResNet()
        recorder = nb.Recorder(model, returns=True, every=1)
        for _ in range(6):
            with recorder:
                model(image)
            model.stem.weight.value = model.stem.weight.value * 1.5
        return nb.inspect(recorder)

    outlier = (
        jax.random.normal(jax.random.key(3), (300, 700))
        .at[100, 200]
        .set(40.0)
        .at[7, 9]
        .set(jnp.nan)
    )
    return {
        "model": lambda: (net(image), net)[1],
        "variables": lambda: net.v,
        "calls": lambda: tracked(dead, image),
        "deep": lambda: tracked(language, tokens),
        "inspect": lambda: nb.inspect(dead, image),
        "steps": steps,
        "compare": compared,
        "port": ported,
        "recorder": recorded,
        "live": trained,
        "array": lambda: outlier,
        "signal": lambda: np.sin(np.linspace(0, 15, 300)),
        "graph": lambda: nb.graph(net, image),
        "curve": curve,
        "attribution": lambda: nb.attribute(small, features, metric=0, labels=tokens_of),
        "sweep": lambda: nb.sweep(small, features, "units", metric=0),
        "text": lambda: np.array([["alpha", "beta"], ["gamma", "delta " * 20]]),
    }


class DigitReader(nb.Module):
    """A small convolutional network."""

    def __init__(self) -> None:
        self.strokes = nb.Sequential(
            nb.Conv2d(1, 8, 3, padding="SAME"), nb.BatchNorm2d(8), nb.ReLU(), nb.MaxPool2d(2)
        )
        self.flatten, self.scores = nb.Flatten(), nb.Linear(4 * 4 * 8, 10)

    def forward(self, x: Any) -> Any:
        return self.scores(self.flatten(self.strokes(x)))


def docs_cells() -> dict[str, dict[str, Any]]:
    """Return code and value of the cells of each picture of the docs."""
    nb.seed(0)
    model = DigitReader()
    rows, columns = np.mgrid[:8, :8]
    ring = np.exp(-((np.hypot(rows - 3.5, columns - 3.5) - 2.6) ** 2)).astype(np.float32)
    digit = ring[None, ..., None]
    model(jnp.asarray(np.repeat(digit, 4, 0)))
    model.eval()
    with nb.track(model) as calls:
        model(digit)
    return {
        "first": {
            "model": model,
            "model.v": model.v,
            "with nb.track(model) as calls: model(digit)": calls,
        },
        "graph": {"nb.graph(model, digit)": nb.graph(model, digit)},
        "array": {"nb.show(model.strokes(digit))": model.strokes(digit)},
    }


def page(value: Any, code: str = "") -> str:
    """Return one display as a page of its own, below its code if there is one."""
    bundle = value._repr_mimebundle_() if hasattr(value, "_repr_mimebundle_") else mimebundle(value)
    title = f"<h3>{html.escape(code)}</h3>" if code else ""
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{title}{bundle['text/html']}"


def take(
    out: Path, pages: Iterable[tuple[str, str]], looks: Sequence[tuple[str, int]], scale: float = 1
) -> list[str]:
    """Take a picture of each page in each look, a theme and a width; return their names."""
    from playwright.sync_api import sync_playwright

    out.mkdir(parents=True, exist_ok=True)
    taken: list[str] = []
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, text in pages:
            source = Path(folder) / f"{name}.html"
            source.write_text(text, encoding="utf-8")
            for theme, width in looks:
                tab = browser.new_page(
                    viewport={"width": width, "height": 200},
                    color_scheme="dark" if theme == "dark" else "light",
                    device_scale_factor=scale,
                )
                tab.goto(source.as_uri())
                tab.locator("nbm-view .nbm-body > *").first.wait_for()
                if theme == "paper":
                    tab.emulate_media(media="print")
                    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
                tab.wait_for_timeout(500)
                taken.append(f"{name}-{width}-{theme}.png" if scale == 1 else f"{name}-{theme}.png")
                tab.screenshot(path=out / taken[-1], full_page=True)
                tab.close()
            print(f"{name}: {len(looks)} pictures")
        browser.close()
    return taken


def main(folder: str = str(FOLDER), *names: str) -> None:
    """Take the pictures."""
    if folder == "--docs":
        shown = docs_cells().items()
        pages = (
            (name, "".join(page(value, code) for code, value in cells.items()))
            for name, cells in shown
        )
        take(DOCS, pages, [("light", 900), ("dark", 900)], scale=1.5)
        return
    out = Path(folder)
    chosen = {name: make for name, make in values().items() if not names or name in names}
    looks = [*((theme, width) for theme in THEMES for width in WIDTHS), ("paper", PAPER)]
    taken = take(out, ((name, page(make())) for name, make in chosen.items()), looks)
    figures = "".join(
        f"<figure><figcaption>{name}</figcaption><img src={name} style='max-width:100%'></figure>"
        for name in taken
    )
    (out / "index.html").write_text(
        f"<!doctype html><meta charset=utf-8><title>Gallery</title>{figures}", encoding="utf-8"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
