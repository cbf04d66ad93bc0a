"""Each series of each plot is drawn: it has a stroke, and pixels of that color are on the screen."""

import io

import numpy as np
import pytest
from PIL import Image

import nbmodule as nb


def check_series(view, names):
    """Each name in the legend of a plot has a stroke of its own, and its pixels are on the page."""
    legend = view.locator(".nbm-legend :has(> svg > line.nbm-line)")
    legend.nth(len(names) - 1).wait_for()
    shown = [text.split()[0] for text in legend.all_inner_texts()]
    assert shown == names
    strokes = [
        line.evaluate("e => getComputedStyle(e).stroke")
        for line in view.locator(".nbm-legend line.nbm-line").all()
    ]
    assert all(stroke.startswith("rgb(") for stroke in strokes), strokes
    drawn = {
        path.evaluate("e => getComputedStyle(e).stroke")
        for path in view.locator("svg path.nbm-line").all()
    }
    assert drawn == set(strokes), (drawn, strokes)
    plots = [
        np.asarray(Image.open(io.BytesIO(plot.screenshot())).convert("RGB"), dtype=int)
        for plot in view.locator("svg:has(path.nbm-line)").all()
    ]
    for name, stroke in zip(names, strokes, strict=True):
        color = [int(part) for part in stroke.removeprefix("rgb(").rstrip(")").split(",")]
        pixels = sum((abs(plot - color).max(-1) <= 12).sum() for plot in plots)
        assert pixels >= 15, f"{name}: {pixels} pixels of {stroke}"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_draws_every_series_of_a_loss_curve(open_html, dark):
    names = [f"loss/{k}" for k in range(8)]
    curve = nb.LossCurve("run", display=False)
    for step in range(20):
        curve.log(**{name: k + 1 / (step + 1) for k, name in enumerate(names)})
    curve.close()
    page = open_html(curve._repr_mimebundle_()["text/html"], dark=dark)
    check_series(page.page.locator(".nbm-view"), names)
    page.screenshot(f"views/curve-{'dark' if dark else 'light'}")
