"""What any view must satisfy, in every view of the gallery: light and dark, wide and narrow.

Every series is drawn, no number is cut, no text lies on a button, no two rows of one level have one
label, statistics are NumPy's, the console is empty, and axe finds nothing critical or serious.
"""

from pathlib import Path

import numpy as np
import pytest

import nbmodule as nb
from nbmodule.base.format import format_number
from nbmodule.live.runs.run_views import report_page
from nbmodule.views import html_of
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
    assert not (found := axe_faults(page, "nbm-view", is_graph=name == "graph")), found


def axe_faults(page, selector, *, is_graph):
    """List what axe finds critical or serious; nothing where it is not installed."""
    if not AXE.exists():
        return ""
    page.page.add_script_tag(path=AXE)
    return page.page.evaluate(
        "async ([at, rules]) => (await axe.run(at, { rules })).violations"
        ".filter(v => ['critical', 'serious'].includes(v.impact)).map(v => `${v.impact} ${v.id}: "
        "${v.nodes.map(n => n.html.slice(0, 120)).slice(0, 3).join(' | ')}`).join('\\n')",
        # The name of a box in a graph has its words in another order than the drawing.
        [selector, {"label-content-name-mismatch": {"enabled": not is_graph}}],
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Six runs of which one diverges, in a folder."""
    folder = tmp_path_factory.mktemp("runs")
    for k in range(6):
        config = {"rate": 0.1 * k}
        with nb.Live(display=False, journal=folder, name=f"run {k}", config=config) as live:
            for step in live.steps(range(50)):
                live.log(loss=3.0**step if k == 5 else 1 / (step + 1 + k))
    return nb.runs(folder)


def small():
    nb.seed(0)
    return nb.Sequential(nb.Linear(8, 16), nb.ReLU(), nb.Linear(16, 4))


def returns():
    model = small()
    model(X, track_submod_rets=True)
    return model.submod_rets


X = np.random.default_rng(0).normal(size=(5, 8)).astype("float32")
OTHERS = {
    "returns": lambda runs: html_of(returns()),
    "summary": lambda runs: html_of(nb.summary(small(), X)),
    "profile": lambda runs: html_of(nb.profile(nb.jit(lambda model, x: model(x)), small(), X)),
    "difference": lambda runs: html_of(nb.diff({"a": X, "b": X}, {"a": X + 1, "c": X})),
    "what if": lambda runs: html_of(nb.what_if(small(), X, {"0": nb.zero()}, metric=0)),
    "two graphs": lambda runs: html_of(nb.graph(small(), X).compare(nb.graph(small()[0], X))),
    "runs": lambda runs: runs._repr_mimebundle_()["text/html"],
    "runs compared": lambda runs: runs.compare()._repr_mimebundle_()["text/html"],
    "report": lambda runs: report_page(runs[0]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_axe_finds_nothing_serious_in_the_other_views(open_html, recorded, name):
    page = open_html(OTHERS[name](recorded))
    page.locator("nbm-view .nbm-body > *").first.wait_for()
    for scheme in ("light", "dark"):
        page.emulate(color_scheme=scheme)
        page.page.locator(f".nbm-view[data-theme={scheme}]").first.wait_for()
        selector = "html" if name == "report" else "nbm-view"
        assert not (found := axe_faults(page, selector, is_graph="graph" in name)), found
    page.screenshot(f"gallery/{name.replace(' ', '-')}-dark")


def test_a_run_that_diverged_makes_no_other_run_flat(open_html, recorded):
    page = open_html(OTHERS["runs compared"](recorded))
    plot = page.locator(".nbm-plotbox", has_text="beyond this axis: run 5")
    lines = plot.locator("path.nbm-line[d]")
    lines.nth(5).wait_for(state="attached")
    assert sorted(lines.evaluate_all("nodes => nodes.map(n => n.getBBox().height)"))[1] > 30


@pytest.fixture(scope="module")
def sample():
    """A model, its calls and an array, and one page that shows them with a curve of two series."""
    nb.seed(0)
    model = nb.Sequential(nb.Linear(7, 5), nb.ReLU(), nb.Linear(5, 3))
    x = np.random.default_rng(1).normal(3, 2, size=(13, 7)).astype("float32")
    with nb.track(model) as calls:
        model(x)
    curve = nb.LossCurve(display=False)
    for step in range(9):
        curve.log(loss=1 / (step + 1), val_loss=0.2 + step)
        curve.log(step, **{f"loss/{k}": k + step for k in range(6)})
    curve.close()
    return model, calls, x, "".join(map(page_of, (model.v, calls, x, curve)))


def wrong_statistics(page, model, calls, x):
    """List the statistics of the page that differ from those of NumPy."""

    def spread(a):
        return f"{format_number(np.mean(a), 2)} ± {format_number(np.std(a), 2)}"

    def rows(view):
        texts = page.locator("nbm-view").nth(view).locator(".nbm-number").all_inner_texts()
        return [text for text in texts if "±" in text]

    layers = [layer for layer in model if list(layer.named_parameters())]
    arrays = [np.asarray(a) for layer in layers for a in (layer.bias, layer.weight)]
    card = page.locator("nbm-view").nth(2)
    names, values = (card.locator(tag).all_inner_texts() for tag in ("dt", "dd"))
    low, high = (list(map(int, np.unravel_index(k, x.shape))) for k in (x.argmin(), x.argmax()))
    shown = {
        "variables": sorted(rows(0)),
        "calls": [text for text in rows(1) if "mean" not in text],
        **dict(zip(names, values, strict=True)),
        "corner": card.locator(".nbm-corner td").all_inner_texts(),
    }
    expected = {
        "variables": sorted(map(spread, arrays)),
        "calls": [spread(np.asarray(call.returns)) for call in calls],
        "mean ± std": spread(x),
        "lowest": f"{format_number(float(x.min()))} at {low}",
        "highest": f"{format_number(float(x.max()))} at {high}",
        "corner": [format_number(float(v)) for v in x[:6, :6].ravel()],
    }
    return [name for name, value in expected.items() if shown[name] != value]


def test_every_statistic_on_the_page_is_that_of_numpy(sample, open_html):
    *values, html = sample
    page = open_html(html)
    page.locator("dd").first.wait_for()
    assert wrong_statistics(page, *values) == []


PLANTED = {
    "stroke": ("a series without a stroke", "style('.nbm-c1 { stroke: none }')"),
    "series": ("a series of the legend is not drawn", "all('path.nbm-c1')[0].remove()"),
    "points": ("a series without points", "all('path.nbm-c1')[0].setAttribute('d', '')"),
    "number": ("a number is cut", "style('.nbm-number { max-width: 30px; overflow: hidden }')"),
    "button": ("lies on the button", "style('.nbm-button { position: relative; left: -90px }')"),
    "text": ("lies on", "style('.nbm-row { height: 9px }')"),
    "label": ("two rows are called", "all('[aria-posinset]:not([aria-expanded]) .nbm-cut').slice(0, 2).forEach(node => (node.textContent = 'b'))"),
    "failed": ("failed: no", "const node = all('.nbm-body')[0]; node.className = 'nbm-failed'; node.textContent = 'no'"),
    "wide": ("wider than its place", "style('.nbm-view { min-width: 4000px; max-width: none }')"),
    "empty": ("a view was not drawn", "all('.nbm-view')[0].remove()"),
}  # fmt: skip
PLANT = """
const roots = [...document.querySelectorAll('nbm-view')].map(view => view.shadowRoot);
const all = query => roots.flatMap(root => [...root.querySelectorAll(query)]);
const style = text => roots.forEach(root => root.append(Object.assign(document.createElement('style'), { textContent: text })));
"""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name, sample, open_html):
    page = open_html(sample[-1])
    page.locator("nbm-view .nbm-curve").first.wait_for()
    assert page.page.evaluate(CHECKS) == []
    words, plant = PLANTED[name]
    page.page.evaluate(f"() => {{ {PLANT} {plant} }}")
    assert any(words in fault for fault in page.page.evaluate(CHECKS))


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
