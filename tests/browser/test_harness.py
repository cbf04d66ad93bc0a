"""The harness itself, on displays that need nothing of nbmodule: what fails here fails everywhere."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_cell_runs_and_its_value_can_be_read(open_notebook, app):
    notebook = open_notebook(["# %% [markdown]\n# Title", "x = 6 * 7\nprint('hello', x)"], app=app)
    notebook.run_all()
    assert notebook.text(1) == "hello 42\n"
    assert notebook.kernel_eval("x") == 42
    assert notebook.cell_count == 2


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
