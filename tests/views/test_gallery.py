"""What any view must satisfy, in every view of the gallery: light and dark, wide and narrow.

Every series is drawn, no number is cut, no text lies on a button, no two rows of one level have one
label, statistics are NumPy's, the console is empty, and axe finds nothing critical or serious.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nbmodule as nb
from nbmodule.base.format import format_number
from tools.make_gallery import page as page_of
from tools.make_gallery import values

CHECKS = (Path(__file__).parent / "view_checks.js").read_text()
AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
WIDTHS = (1400, 720, 400)
NAMES = ["model", "variables", "calls", "inspect", "steps", "compare", "recorder", "live"]
NAMES += ["array", "signal", "graph", "curve", "attribution", "sweep", "text"]
LAB = """
import numpy as np, nbmodule as nb
from nbmodule.views import show
nb.seed(0)
model = nb.Sequential(nb.Linear(8, 16), nb.ReLU(), nb.Linear(16, 4))
x = np.random.default_rng(0).normal(size=(5, 8)).astype("float32")
with nb.track(model) as calls:
    model(x)
"""
LAB_VIEWS = [
    *("show(model)", "show(model.v)", "show(calls)", "show(x)", "show(nb.graph(model, x))"),
    "nb.inspect(model, x)",
    "c = nb.LossCurve()\nfor k in range(9): c.log(loss=1 / (k + 1), val_loss=k)\nc.close()",
]


@pytest.fixture(scope="module")
def gallery():
    return values()


def settle(page):
    """Wait until the views have drawn the size and the theme that they have now."""
    page.page.evaluate(
        "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_page_of_the_gallery_can_be_read(gallery, open_html, name):
    page = open_html(page_of(gallery[name]()))
    page.locator("nbm-view .nbm-body > *").first.wait_for()
    faults = []
    for scheme in ("light", "dark"):
        page.emulate(color_scheme=scheme)
        page.page.locator(f".nbm-view[data-theme={scheme}]").first.wait_for()
        for width in WIDTHS:
            page.resize(width)
            settle(page)
            faults += [f"{scheme} {width}: {fault}" for fault in page.page.evaluate(CHECKS)]
    page.screenshot(f"gallery/{name}-400-dark")
    assert not faults, "\n".join(faults)
    assert page.console == []
    if AXE.exists():
        page.page.add_script_tag(path=AXE)
        found = page.page.evaluate(
            # The name of a box in a graph has its words in another order than the drawing.
            "async rules => (await axe.run('nbm-view', { rules })).violations.filter(v => ['critical', 'serious'].includes(v.impact))"
            ".map(v => `${v.impact} ${v.id}: ${v.nodes.map(n => n.html.slice(0, 120)).slice(0, 3).join(' | ')}`)",
            {"label-content-name-mismatch": {"enabled": name != "graph"}},
        )
        assert not found, "\n".join(found)


def test_every_statistic_on_the_page_is_that_of_numpy(open_html):
    model = nb.Sequential(nb.Linear(7, 5), nb.Linear(5, 3))
    x = np.random.default_rng(1).normal(3, 2, size=(13, 17)).astype("float32")
    page = open_html(page_of(model.v) + page_of(x))
    page.locator("dd").first.wait_for()
    rows = page.page.locator(".nbm-row:has(.nbm-number)").all_inner_texts()
    shown = {
        row.split("±")[0].split()[-1] + " ± " + row.split("±")[1].split()[0]
        for row in rows
        if "±" in row
    }
    arrays = [np.asarray(a) for layer in (model[0], model[1]) for a in (layer.bias, layer.weight)]
    spread = {f"{format_number(a.mean(), 2)} ± {format_number(a.std(), 2)}" for a in arrays}
    assert shown == spread
    pairs = dict(
        zip(
            page.page.locator("dt").all_inner_texts(),
            page.page.locator("dd").all_inner_texts(),
            strict=True,
        )
    )
    low, high = np.unravel_index(x.argmin(), x.shape), np.unravel_index(x.argmax(), x.shape)
    assert pairs["mean ± std"] == f"{format_number(x.mean(), 2)} ± {format_number(x.std(), 2)}"
    assert pairs["lowest"] == f"{format_number(float(x.min()))} at [{low[0]}, {low[1]}]"
    assert pairs["highest"] == f"{format_number(float(x.max()))} at [{high[0]}, {high[1]}]"
    cells = page.page.locator(".nbm-corner td").all_inner_texts()
    assert cells == [format_number(float(v)) for v in x[:6, :6].ravel()]


def test_views_in_lab_can_be_read(open_notebook, export, open_file):
    notebook = open_notebook([LAB, *LAB_VIEWS])
    notebook.run_all()
    notebook.page.locator("nbm-view .nbm-body > *").nth(len(LAB_VIEWS) - 1).wait_for()
    notebook.js(
        "app.shell.collapseLeft(); return null;"
    )  # else 400 pixels have no room for the notebook
    faults = []
    for dark in (False, True):
        notebook.set_theme(dark=dark)
        for width in WIDTHS:
            notebook.resize(width)
            settle(notebook)
            theme = "dark" if dark else "light"
            faults += [f"{theme} {width}: {fault}" for fault in notebook.page.evaluate(CHECKS)]
    assert not faults, "\n".join(faults)
    page = open_file(export(notebook))
    page.locator("nbm-view .nbm-body > *").first.wait_for()
    assert page.page.evaluate(CHECKS) == []
