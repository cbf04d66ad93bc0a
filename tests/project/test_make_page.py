"""The page that `make demo` writes asks no server for anything."""

from __future__ import annotations

import sys

import nbformat.v4
import pytest

from tests.project.conftest import run
from tools.make_page import loaded_from_outside, page_of


def notebook_with_output(data: dict[str, str]):
    output = nbformat.v4.new_output("display_data", data=data)
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("show()", outputs=[output])])


@pytest.mark.parametrize("shown", ["<b>bold</b>", "<script>const answer = 42;</script>"])
def test_a_page_holds_its_displays_and_loads_nothing_from_outside(shown):
    html = page_of(notebook_with_output({"text/html": shown}), "small")
    assert shown in html
    assert loaded_from_outside(html) == set()
    assert html.count("<script") == shown.count("<script")


def test_a_page_that_would_load_a_picture_from_a_server_is_refused():
    notebook = notebook_with_output({"text/html": '<img src="https://example.invalid/a.png">'})
    with pytest.raises(ValueError, match=r"the page of small would load .*example\.invalid/a\.png"):
        page_of(notebook, "small")


@pytest.mark.parametrize(
    ("html", "fetched"),
    [
        ('<link rel="stylesheet" href="https://example.invalid/a.css">', 1),
        ('<script src="//example.invalid/a.js"></script>', 1),
        ('<div style="background: url(https://example.invalid/a.png)"></div>', 1),
        ("<style>@import 'https://example.invalid/a.css';</style>", 1),
        ('<script type="module">import { a } from "https://example.invalid/a.js";</script>', 1),
        ('<script>const m = await import("https://example.invalid/a.js")</script>', 1),
        ('<script>fetch("https://example.invalid/a.json")</script>', 1),
        ('<img srcset="https://example.invalid/a.png 2x">', 1),
        ('<a href="https://example.invalid/">a link</a>', 0),
        ('<img src="data:image/png;base64,AAAA">', 0),
        ('<svg xmlns="http://www.w3.org/2000/svg"><use href="#a"/></svg>', 0),
        ("<p>see https://example.invalid/</p>", 0),
        ('<script>const NS = "http://www.w3.org/2000/svg";</script>', 0),
    ],
)
def test_addresses_that_a_browser_fetches_are_found_and_no_others(html, fetched):
    assert len(loaded_from_outside(html)) == fetched


def run_command(folder, source):
    (folder / "small.py").write_text(source)
    command = [sys.executable, "-m", "tools.make_page", folder / "small.py", folder / "small.html"]
    return run(*command)


def test_the_command_runs_a_notebook_and_leaves_its_widgets_out(tmp_path):
    source = "# %%\nimport ipywidgets\n\nipywidgets.IntSlider()\n\n# %%\nprint(6 * 7)\n"
    done = run_command(tmp_path, source)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "small.html").read_text()
    assert "<pre>42\n</pre>" in page
    assert "vnd.jupyter.widget-state" not in page
    assert f"{tmp_path / 'small.html'}: 0." in done.stdout


def test_a_cell_that_fails_is_shown_and_no_page_is_written(tmp_path):
    done = run_command(tmp_path, "# %%\nraise KeyError('no such thing')\n")
    assert done.returncode == 1
    assert "no such thing" in done.stderr
    assert "small.html was not written" in done.stderr
    assert not (tmp_path / "small.html").exists()
