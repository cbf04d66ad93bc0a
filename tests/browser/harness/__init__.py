"""Drive JupyterLab, Notebook 7 and exported pages in a headless Chromium.

A test asks for a fixture (`fixtures.py` describes them) and gets a page object:

    def test_a_button_reaches_the_kernel(open_notebook):
        notebook = open_notebook(["import nbmodule as nb", "nb.show(model)"])
        notebook.run_all()
        notebook.outputs(1).get_by_role("button", name="show all").click()
        assert notebook.kernel_eval("model.training") is True

Three rules hold for each page without a word in the test: it asks nothing of any other machine,
nothing is written to the console as an error, and no wait is a sleep; each is for a condition and
has a deadline.
"""

from harness.browser import Browser
from harness.files import export_page, write_notebook
from harness.notebook import NotebookPage
from harness.page import ConsoleLine, Page
from harness.server import HarnessError, LabServer

__all__ = [
    "Browser", "ConsoleLine", "HarnessError", "LabServer", "NotebookPage", "Page", "export_page", "write_notebook",
]  # fmt: skip
