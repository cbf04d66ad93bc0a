"""A run in JupyterLab and Notebook: clicks in a busy cell, reload, saved and exported forms."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP = f"import sys, time\nsys.path.insert(0, {str(ROOT)!r})\nfrom nbmodule.live.live import Live\nseen = []"
TRAIN = """
with Live(name='digits') as live:
    lr = live.controls.slider('learning rate', 0.1, low=0.001, high=1.0, log=True)
    for i in live.steps(range(1_000_000)):
        time.sleep(0.004)
        seen.append(lr.value)
        live.log(loss=1 / (i + 1), val_loss=2 / (i + 1))
print('ended', live.progress.state)
"""


def running(notebook, index=1):
    out = notebook.outputs(index)
    out.locator(".nbm-run-mark[data-state=running]").first.wait_for()
    out.get_by_text("buttons act between two steps").first.wait_for()
    return out


def start(open_notebook, **options):
    cells = [SETUP, TRAIN, "print('next cell', live.step == len(seen))"]
    notebook = open_notebook(cells, **options)
    notebook.run_cell(0)
    notebook.run_cell(1, wait=False)
    return notebook, running(notebook)


CLICKED = """
def moved(value):
    seen.append(time.time())

with Live() as live:
    live.controls.toggle('flag', False, moved)
    for i in live.steps(range(1_000_000)):
        time.sleep(0.004)
"""


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_click_reaches_the_busy_loop_within_a_tenth_of_a_second_and_a_step(open_notebook, app):
    """The quickest of several: on a busy machine the others wait for the browser, or for their
    turn.
    """
    notebook = open_notebook([SETUP, CLICKED], app=app)
    notebook.run_cell(0)
    notebook.run_cell(1, wait=False)
    out = running(notebook)
    click, clicked = "(node) => { node.click(); return Date.now() / 1000; }", []
    for _ in range(8):
        clicked.append(out.locator("input[type=checkbox]").evaluate(click))
        time.sleep(0.4)
    out.get_by_role("button", name="Stop").click()
    notebook.wait_idle()
    seen = notebook.kernel_eval("seen")
    assert len(seen) == len(clicked)
    assert min(at - begun for at, begun in zip(seen, clicked, strict=True)) < 0.1 + 0.005


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_buttons_and_sliders_work_in_a_busy_cell_and_the_next_cell_runs(open_notebook, app):
    notebook, out = start(open_notebook, app=app)
    notebook.run_cell(2, wait=False)

    pause = out.get_by_role("button", name="Pause")
    pause.evaluate("(node) => { globalThis.nbmBegun = performance.now(); node.click(); }")
    out.locator(".nbm-run-mark[data-state=paused]").wait_for(timeout=5000)
    # To the kernel, to the boundary, back and drawn; on a busy machine the browser is the slow
    # part.
    assert notebook.page.evaluate("performance.now() - globalThis.nbmBegun") < 2000
    done = int(out.locator("[role=progressbar]").get_attribute("aria-valuenow"))
    out.get_by_role("button", name="▸| Step").click()
    out.locator(f"[role=progressbar][aria-valuenow='{done + 1}']").wait_for(timeout=5000)
    out.get_by_role("button", name="Resume").click()
    out.locator(".nbm-run-mark[data-state=running]").wait_for(timeout=5000)

    slider = out.locator(".nbm-run-slider")
    slider.focus()
    for _ in range(60):
        slider.press("ArrowRight")
    value = float(slider.get_attribute("aria-valuetext"))
    assert value > 0.1
    time.sleep(0.5)

    out.get_by_role("button", name="Stop").click()
    notebook.wait_text(1, "ended stopped")
    notebook.wait_text(2, "next cell True")
    assert notebook.kernel_eval("seen[-1]") == pytest.approx(value)
    moves = notebook.kernel_eval("list(dict.fromkeys(seen))")
    assert moves == sorted(moves)
    assert len(moves) > 3
    notebook.outputs(1).locator(".nbm-run-mark[data-state=stopped]").wait_for()


def test_the_saved_output_is_html_only_after_a_cold_start_and_in_an_exported_page(
    open_notebook, export, open_file
):
    notebook, out = start(open_notebook)
    time.sleep(1)
    out.get_by_role("button", name="Stop").click()
    notebook.wait_text(1, "ended stopped")
    saved = notebook.save()
    data = [output["data"] for output in saved["cells"][1]["outputs"] if "data" in output]
    assert [set(d) for d in data] == [{"text/plain", "text/html"}]

    notebook.reopen()
    out = notebook.outputs(1)
    out.locator(".nbm-run-mark[data-state=stopped]").wait_for()
    assert out.locator(".nbm-curve").count() == 1
    assert out.get_by_role("button", name="▸| Step").count() == 0

    page = open_file(export(notebook))
    page.locator(".nbm-run-mark[data-state=stopped]").wait_for()
    before = page.locator(".nbm-run-key b").first.text_content()
    page.locator("button[aria-label='Previous step ([)']").click()
    page.locator(".nbm-run-key b").first.get_by_text(before, exact=True).wait_for(state="detached")


def test_a_page_that_is_reloaded_in_the_middle_of_a_run_comes_back_with_its_history(open_notebook):
    notebook, _ = start(open_notebook)
    notebook.save()
    before = notebook.outputs(1).locator("[role=progressbar]").get_attribute("aria-valuenow")
    notebook.reload()
    out = running(notebook)
    label = out.locator(".nbm-curve").first.get_attribute("aria-label")
    assert "loss from 1 to" in label
    out.locator("[role=progressbar]").first.wait_for()
    assert int(out.locator("[role=progressbar]").first.get_attribute("aria-valuenow")) > int(before)
    out.get_by_role("button", name="Stop").first.click()
    out.locator(".nbm-run-mark[data-state=stopped]").first.wait_for(timeout=10_000)


def test_the_view_shows_an_interrupt_an_exception_and_a_lost_kernel(open_notebook):
    notebook, out = start(open_notebook)
    notebook.interrupt()
    notebook.wait_idle()
    out.locator(".nbm-run-mark[data-state=interrupted]").wait_for()
    time.sleep(1)  # after a cell that failed a kernel refuses others for a moment

    raising = "if i == 3: raise ValueError('bad batch')"
    notebook.set_source(2, f"with Live() as live:\n  for i in live.steps(range(9)):\n    {raising}")
    notebook.run_cell(2, wait=False)
    failed = notebook.outputs(2)
    failed.locator(".nbm-run-mark[data-state=failed]").wait_for()
    assert "ValueError: bad batch" in failed.locator(".nbm-facts").first.text_content()
    assert raising in failed.locator(".nbm-foot").first.text_content()
    time.sleep(1)

    notebook.run_cell(1, wait=False)
    out = running(notebook)
    notebook.allow_console("Comm not found")
    notebook.restart()
    out.get_by_text("its kernel is gone").wait_for(timeout=15_000)
    assert out.get_by_role("button", name="Pause").is_disabled()


def test_nbclient_leaves_the_final_form_in_the_notebook(tmp_path):
    import nbclient
    import nbformat

    code = (
        SETUP
        + "\nwith Live(name='digits') as live:\n    for i in live.steps(range(50)):\n        live.log(loss=1 / (i + 1))\n        time.sleep(0.002)\n"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [o for o in notebook.cells[0].outputs if o.output_type == "display_data"]
    assert len(shown) == 1
    assert set(shown[0]["data"]) == {"text/plain", "text/html"}
    assert "done · step 50/50" in shown[0]["data"]["text/plain"]
    assert json.dumps(notebook).count("application/vnd.jupyter.widget-view") == 0


AGAIN = """
import numpy as np, nbmodule as nb
nb.seed(0)
model, optimizer = nb.Sequential(nb.Linear(4, 8), nb.ReLU(), nb.Linear(8, 1)), nb.SGD(0.01)
@nb.jit
def step(x):
    loss, grads = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
    optimizer.update(model, grads)
    return loss
data = list(np.random.default_rng(0).normal(size=(100_000, 8, 4)).astype("float32"))
with nb.Live(model, optimizer, None, journal=False) as live:
    for x in live.steps(data):
        time.sleep(0.01)
        live.log(loss=step(x))
        if live.step == 120:
            live.pause()
"""


def click_at(view, share):
    """Click on the first curve of a view, at a share of its steps."""
    plot = view.locator(".nbm-run-plots svg.nbm-curve").first
    width = plot.evaluate("(node) => node.getBoundingClientRect().width")
    plot.click(position={"x": 52 + (width - 64) * share, "y": 80})


def test_a_click_on_the_curve_opens_the_step_and_rewind_goes_back_to_it(open_notebook):
    notebook = open_notebook([SETUP, AGAIN])
    notebook.run_cell(0)
    notebook.run_cell(1, wait=False)
    out = notebook.outputs(1)
    out.locator(".nbm-run-mark[data-state=paused]").first.wait_for()
    out.locator("[role=progressbar][aria-valuenow='120']").first.wait_for()
    click_at(out, 1 / 2)
    opened = out.locator(".nbm-run-replayed nbm-view")
    opened.wait_for()
    out.get_by_text("repeated bit for bit").locator("visible=true").first.wait_for()
    tree = opened.get_by_role("tree")  # drawn, not the plain form
    opened.get_by_role("tab").or_(tree).first.wait_for()
    step = int(out.locator(".nbm-run-replay-text").inner_text().split()[-1])
    assert 55 <= step <= 66
    out.get_by_title("Go back to the beginning of this step and go on from there").click()
    notebook.page.wait_for_function(
        "n => [...document.querySelectorAll('nbm-view')].some(v => (v.shadowRoot ?? v).querySelector('[role=progressbar]')?.ariaValueNow == n)",
        arg=str(step - 1),
    )
    out.locator(".nbm-event").first.wait_for(state="attached")
    out.get_by_title("Try the next 20 steps with other learning rates, beside the run").click()
    out.get_by_title("Go on with x 0.3").wait_for()
    out.locator("nbm-view").evaluate_all("views => views.map((v) => (v.dataset.old = '1'))")
    out.get_by_role("button", name="Stop").click()
    final = out.locator("nbm-view:not([data-old])")  # it takes the place of the view
    final.locator(".nbm-run-mark[data-state=stopped]").first.wait_for()
    final.get_by_title("Replay this step and open its batch").first.wait_for()  # it is connected
    assert notebook.kernel_eval("live.step") == step - 1
    click_at(final, 1 / 4)  # the run is over, and its steps are still there
    early = final.locator(
        ".nbm-run-replay-text", has_text="replay of", has_not_text=f"step {step}"
    ).first
    early.wait_for()
    final.get_by_text("repeated bit for bit").locator("visible=true").first.wait_for()
    assert int(early.inner_text().split()[-1]) < step
