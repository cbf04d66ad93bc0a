"""The views in JupyterLab: a live kernel, a closed and reopened notebook, the running cell."""

SHOW = """
import numpy as np
import nbmodule.views as views
tree = {"encoder": {"w": np.float32([[1, -1], [0, 2]]), "b": np.zeros(2, "float32")}}
views.show(tree)
"""
CURVE = """
import time
import nbmodule.views as views
curve = views.LossCurve("run")
for i in range(60):
    curve.log(loss=1 / (i + 1))
    time.sleep(0.01)
"""


def test_views_live_in_lab_are_saved_exported_and_come_back(open_notebook, export, open_file):
    """One notebook, one kernel start: folding, keys, the theme, the saved file, the exported page,
    a cold reopen.
    """
    notebook = open_notebook([SHOW, CURVE, "1 + 1"])
    notebook.run_all()
    rows = notebook.outputs(0).locator(".nbm-row")
    rows.first.wait_for()
    assert rows.count() == 3
    notebook.screenshot("views/lab-light")

    cells = notebook.cell_count
    rows.nth(1).click()
    for key in ("b", "x", "d", "d", "a"):
        notebook.page.keyboard.press(key)
    notebook.page.keyboard.press("/")
    notebook.page.keyboard.type("bxdd")
    assert notebook.cell_count == cells

    saved = notebook.save()
    outputs = [output for cell in saved["cells"][:2] for output in cell["outputs"]]
    assert [sorted(output["data"]) for output in outputs] == [["text/html", "text/plain"]] * 2
    assert outputs[1]["data"]["text/plain"][0].startswith("run  step 59  done")

    page = open_file(export(notebook))
    row = page.locator(".nbm-row").first
    row.wait_for()
    row.locator(".nbm-fold").click()
    assert page.locator(".nbm-row").count() == 1
    page.screenshot("views/exported")

    notebook.set_theme(dark=True)
    notebook.outputs(0).locator(".nbm-view[data-theme=dark]").wait_for()
    notebook.page.locator("#jupyterlab-splash").wait_for(state="detached")
    notebook.screenshot("views/lab-dark")

    notebook.reopen()
    notebook.outputs(0).locator(".nbm-row").first.wait_for()
    assert notebook.outputs(1).locator(".nbm-curve").count() == 1
    shown = notebook.outputs(0)
    assert shown.locator(".nbm-kernel").count() == 0  # the new kernel knows nothing of it
    shown.locator(".nbm-row", has_text="float32[2, 2]").click()
    assert shown.locator("button[title='needs the kernel: run the cell again']").is_disabled()
