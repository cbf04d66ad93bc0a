"""The graph on real pages: in Lab, with the keyboard alone, and of a trace that failed."""

import jax.numpy as jnp
from playwright.sync_api import expect

import nbmodule as nb

MODEL = """
import jax.numpy as jnp
import nbmodule as nb
nb.seed(0)
model = nb.Sequential(nb.Linear(4, 8), nb.BatchNorm1d(8), nb.ReLU(), *(nb.Residual(nb.Linear(8, 8)) for _ in range(4)), nb.Linear(8, 2))
x = jnp.linspace(-1, 1, 12).reshape(3, 4)
with nb.track(model) as calls:
    model(x)
"""
SHOW = "graph = model.show_graph(highlight_subgraph='2')\ngraph"
DRAWN = "nb.graph(model, x).drawn(values=calls, color='flops', depth=1)"
PICTURE = ".nbm-gport"
BOX = ".nbm-gbox"


def transformer():
    """Twelve blocks of a transformer, 768 wide, in shapes alone."""
    return nb.Sequential(
        nb.TransformerEncoder(12, 768, 12, norm_first=True, dropout_rate=0.0), nb.Linear(768, 1000)
    )


def active(page):
    """Label of the box that the keyboard is on."""
    return page.locator(PICTURE).evaluate(
        "port => port.getRootNode().getElementById(port.getAttribute('aria-activedescendant'))?.getAttribute('aria-label') ?? ''"
    )


def test_a_notebook_shows_the_graph_once_and_keeps_it_open_when_the_cell_runs_again(open_notebook):
    notebook = open_notebook([MODEL, SHOW, DRAWN])
    notebook.run_all()
    shown, drawn = notebook.outputs(1), notebook.outputs(2)
    shown.locator(BOX).first.wait_for()
    assert shown.locator(PICTURE).count() == 1  # not once more for `graph` at the end of the cell
    assert shown.locator(".nbm-gmarked").count() == 1
    assert drawn.locator(".nbm-gthumb").count() > 0
    assert drawn.locator(".nbm-legend").text_content().startswith("flops")
    notebook.screenshot("graph/lab")

    cells = notebook.cell_count
    shown.locator(BOX).filter(has_text="4 ×").click()
    run = notebook.outputs(1).locator(BOX).filter(has_text="4 ×")
    expect(run).to_have_attribute("aria-expanded", "true")
    notebook.page.keyboard.type("dd")  # keys that would delete the cell
    assert notebook.cell_count == cells
    notebook.run_cell(1)
    expect(run).to_have_attribute("aria-expanded", "true")


def test_the_keyboard_alone_walks_folds_searches_fills_the_picture_and_shows_the_source(
    tmp_path, open_file
):
    path = tmp_path / "transformer.html"
    nb.graph(transformer(), jnp.zeros((1, 64, 768))).save(path)
    page = open_file(path)
    page.locator(BOX).first.wait_for()
    assert 5 <= page.locator(BOX).count() <= 30
    keys = page.page.keyboard
    keys.press("Tab")
    assert page.locator(PICTURE).evaluate("port => port.getRootNode().activeElement === port")

    keys.press("Home")
    assert active(page).startswith("x")
    seen = [active(page)]
    for _ in range(4):
        keys.press("ArrowDown")
        seen.append(active(page))
    assert len(set(seen)) == 5

    keys.press("/")
    keys.type("attention")
    keys.press("Enter")
    keys.press("Escape")
    assert "attention" in active(page)
    before = page.locator(BOX).count()
    keys.press(" ")
    expect(page.locator(BOX)).not_to_have_count(before)
    assert "attention" in active(page)

    keys.press("Enter")  # it fills the picture, with the way back above
    expect(page.locator(".nbm-gway button")).not_to_have_count(0)
    page.screenshot("graph/keyboard-focus")
    keys.press("Escape")
    keys.press("Escape")

    for key in ("/", *"dot_general", "Enter", "Escape"):
        keys.press(key)
    page.locator(PICTURE).press("d")
    detail = page.locator(".nbm-detail")
    expect(detail).to_be_visible()
    assert "linear.py:" in detail.text_content()  # of the layer, not of a function that it calls
    page.screenshot("graph/keyboard-detail")


def test_a_failed_trace_is_drawn_up_to_the_failing_line(tmp_path, open_file):
    model = nb.Sequential(nb.Linear(4, 8), nb.ReLU(), nb.Linear(7, 2))
    nb.graph(lambda x: model(x) + 1, jnp.ones((3, 4))).save(tmp_path / "failed.html")

    page = open_file(tmp_path / "failed.html")
    page.locator(".nbm-gfailed").first.wait_for()

    assert "linear: x must have 7 features" in page.locator(".nbm-foot").text_content()
    page.screenshot("graph/failed")
