"""The harness itself, on displays that need nothing of nbmodule: what fails here fails everywhere."""

from __future__ import annotations

import pytest

FOLDING = '''
class Box:
    def __repr__(self):
        return "Box(text)"

    def _repr_html_(self):
        return """<details class="box"><summary>module</summary><b class="inner">weights</b></details>
        <div class="script">no script</div>
        <script>document.currentScript.previousElementSibling.textContent = "script ran"</script>"""

Box()
'''
CLICKER = '''
import anywidget, traitlets

class Clicker(anywidget.AnyWidget):
    _esm = """
    function render({ model, el }) {
      const button = document.createElement("button");
      const paint = () => { button.textContent = `clicked ${model.get("clicks")}`; };
      button.onclick = () => { model.set("clicks", model.get("clicks") + 1); model.save_changes(); };
      model.on("change:clicks", paint);
      paint();
      el.append(button);
    }
    export default { render };
    """
    clicks = traitlets.Int(0).tag(sync=True)

clicker = Clicker()
clicker
'''


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_cell_runs_and_its_value_can_be_asked_for(open_notebook, app):
    notebook = open_notebook(["# %% [markdown]\n# Title", "x = 6 * 7\nprint('hello', x)"], app=app)
    notebook.run_all()
    assert notebook.text(1) == "hello 42\n"
    assert notebook.kernel_eval("x") == 42
    assert notebook.cell_count == 2


def test_a_click_in_a_widget_reaches_the_kernel(open_notebook):
    notebook = open_notebook([CLICKER])
    notebook.run_all()
    button = notebook.outputs(0).get_by_role("button")
    button.click()
    assert notebook.kernel_wait("clicker.clicks") == 1
    button.get_by_text("clicked 1").wait_for()


def test_an_exported_page_folds_without_kernel_and_network(open_notebook, export, open_file):
    notebook = open_notebook([FOLDING])
    notebook.run_all()
    page = open_file(export(notebook))
    assert not page.locator("b.inner").is_visible()
    page.locator("details.box summary").click()
    page.locator("b.inner").wait_for(state="visible")
    assert page.locator(".script").text_content() == "script ran"


def test_a_notebook_reopened_with_a_fresh_kernel_shows_its_saved_outputs(open_notebook):
    notebook = open_notebook([FOLDING, "y = 1"])
    notebook.run_all()
    notebook.reopen()
    assert notebook.outputs(0).locator("details.box").is_visible()
    assert notebook.kernel_eval("'y' in globals()") is False


def test_a_busy_cell_can_be_interrupted(open_notebook):
    notebook = open_notebook(["import time\nprint('begun')\nwhile True:\n    time.sleep(0.01)"])
    notebook.run_cell(0, wait=False)
    notebook.wait_text(0, "begun")
    notebook.interrupt()
    notebook.wait_text(0, "KeyboardInterrupt")
    notebook.wait_idle()


def test_lab_can_be_switched_to_its_dark_theme(open_notebook):
    notebook = open_notebook(["1"])
    background = "getComputedStyle(document.body).getPropertyValue('--jp-layout-color0').trim()"
    light = notebook.page.evaluate(background)
    notebook.set_theme(dark=True)
    notebook.page.wait_for_function(f"light => {background} !== light", arg=light)


def test_a_request_to_another_machine_is_noticed_and_refused(open_html):
    page = open_html('<img src="https://example.invalid/pixel.png" alt="">')
    assert page.outside == ["https://example.invalid/pixel.png"]
    with pytest.raises(AssertionError, match=r"asked for .*example\.invalid/pixel\.png"):
        page.check()
    page.outside.clear()
    page.allow_console("example.invalid", "ERR_")


def test_an_exception_in_a_page_is_noticed(open_html):
    page = open_html("<script>missing.name</script>")
    with pytest.raises(AssertionError, match="missing is not defined"):
        page.check()
    page.allow_console("missing is not defined")
