"""`nb.inspect` in JupyterLab: what is selected in the page is data in the next cell, and the other
way round.
"""

MODEL = """
import jax.numpy as jnp
import nbmodule as nb

class Net(nb.Module):
    def _build(self):
        self.stem = nb.Linear(4, 4)
        self.norm = nb.BatchNorm1d(4)

    def _forward(self, x):
        return self.stem(self.norm(self.stem(x)))

view = nb.inspect(Net(), jnp.ones((8, 4)))
view
"""


def test_a_selection_goes_both_ways_and_the_saved_output_is_static(open_notebook):
    notebook = open_notebook([MODEL, "view.selected = 'norm'"])
    notebook.run_cell(0)
    output = notebook.outputs(0)
    output.locator("section[aria-label=calls] .nbm-row", has_text="stem (2nd)").click()
    notebook.kernel_wait(
        "view.selected is not None"
    )  # also where the kernel joined after the click
    assert notebook.kernel_eval("[view.selected.path, view.selected.order]") == ["stem", 3]
    assert notebook.kernel_eval("view.record.sources[''].place").startswith("cell [1] line ")

    notebook.run_cell(1)
    output.locator("section[aria-label=calls] .nbm-selected", has_text="norm").wait_for()
    output.get_by_role("tab", name="modules").click()
    output.locator("section[aria-label=modules] .nbm-selected", has_text="norm").wait_for()

    notebook.screenshot("views/inspect-lab")

    saved = notebook.save()
    (shown,) = saved["cells"][0]["outputs"]
    assert sorted(shown["data"]) == ["text/html", "text/plain"]
    notebook.reopen()
    output = notebook.outputs(0)
    output.locator(
        "section[aria-label=modules] .nbm-row"
    ).first.wait_for()  # what was open is open again
    output.get_by_role("tab", name="calls").click()
    output.locator("section[aria-label=calls] .nbm-row").first.wait_for()
