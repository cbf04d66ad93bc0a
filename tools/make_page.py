"""Run a notebook without a screen and write one HTML page that needs neither a kernel nor a
network.

    python tools/make_page.py notebooks/01_first_model.py build/01_first_model.html

No widget state is saved: a page that holds one shows widgets fetched from a server instead of the
HTML that the displays bring along. The template of nbconvert also asks servers for scripts (for
modules, formulas and diagrams); nothing here uses them, and a page that would still load anything
from outside is refused. A cell with the tag `solution` runs like any other and is folded.
"""

from __future__ import annotations

import argparse
import copy
import os
import re
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

BADGE = re.compile(r"\[!\[Open in \w+\]\([^)]*\)\]\([^)]*\)\n?")
TEMPLATE = """
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js_requirejs -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block codecell -%}
{%- if 'solution' in cell.metadata.get('tags', []) -%}
<details style="margin: 0.5em 0 0.5em 76px"><summary>Solution</summary><div style="margin-left: -76px">{{ super() }}</div></details>
{%- else -%}{{ super() }}{%- endif -%}
{%- endblock -%}
"""
LOADING_ATTRIBUTES = {"src", "srcset", "poster", "data", "background", "href", "xlink:href"}
LOADED_BY_CSS = re.compile(
    r"""(?:url\(|@import)\s*["']?\s*((?:https?:)?//[^\s"')]+)""", re.IGNORECASE
)
LOADED_BY_SCRIPT = re.compile(r"""(?:import|from|fetch\()\s*\(?\s*["'`]((?:https?:)?//[^\s"'`]+)""")


def read_notebook(path: Path) -> NotebookNode:
    """Read a notebook from an `.ipynb` file or from the py:percent file it is paired with."""
    import jupytext

    return jupytext.read(path)


def run_notebook(notebook: NotebookNode, folder: Path, *, timeout: float = 300.0) -> None:
    """Run all cells in a fresh kernel whose working folder is `folder`; the outputs are put into
    `notebook`.

    Args:
        notebook: Changed in place, also if a cell fails.
        folder: Where the kernel works.
        timeout: Seconds that one cell may take.

    Raises:
        CellExecutionError: if a cell raises; its traceback is in the message.
    """
    from nbclient import NotebookClient

    kernel = notebook.metadata.get("kernelspec", {}).get("name", "python3")
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(
        notebook, timeout=timeout, kernel_name=kernel, store_widget_state=False, resources=resources
    ).execute()


def page_of(notebook: NotebookNode, title: str) -> str:
    """Render a notebook with its outputs as one HTML page.

    Raises:
        ValueError: if the page would load something from a network.
    """
    from nbconvert import HTMLExporter

    # Badges are images from a network; a page needs none.
    page = copy.deepcopy(notebook)
    for cell in page.cells:
        cell.source = BADGE.sub("", cell.source)
    exporter = HTMLExporter(raw_template=TEMPLATE, embed_images=True)
    html, _ = exporter.from_notebook_node(page, {"metadata": {"name": title}})
    outside = loaded_from_outside(html)
    if outside:
        raise ValueError(
            f"the page of {title} would load from a network: {', '.join(sorted(outside))}. Nothing was written. "
            "Which output of the notebook names that address?"
        )
    return html


def loaded_from_outside(html: str) -> set[str]:
    """Addresses that a browser would fetch on opening the page; a link that a reader may follow is
    none.

    Example:
        >>> loaded_from_outside('<a href="https://a.org/">a</a><img src="https://b.org/b.png">')
        {'https://b.org/b.png'}
        >>> loaded_from_outside("<style>p { background: url(//c.org/c.png) }</style>")
        {'//c.org/c.png'}
    """
    finder = _OutsideFinder()
    finder.feed(html)
    finder.close()
    return finder.found


class _OutsideFinder(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._within = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within = tag if tag in ("style", "script") else ""
        for name, value in attrs:
            if name == "style":
                self.found.update(LOADED_BY_CSS.findall(value or ""))
            elif name in LOADING_ATTRIBUTES and not (
                tag in ("a", "area") and name.endswith("href")
            ):
                self.found.update(
                    part
                    for part in re.split(r"[\s,]+", value or "")
                    if re.match(r"(https?:)?//", part)
                )

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._within = ""

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == "style":
            self.found.update(LOADED_BY_CSS.findall(data))
        elif self._within == "script":
            self.found.update(LOADED_BY_SCRIPT.findall(data))


def main(arguments: list[str]) -> int:
    """Write the page; 1 if a cell fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebook", type=Path, help="an .ipynb file or a py:percent file")
    parser.add_argument("page", type=Path, help="the HTML file to write")
    parser.add_argument(
        "--keep", type=Path, help="also write the notebook with its outputs to this .ipynb file"
    )
    options = parser.parse_args(arguments)

    import nbformat
    from nbclient.exceptions import CellExecutionError

    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    started = time.monotonic()
    notebook = read_notebook(options.notebook)
    print(f"running {options.notebook} ...", flush=True)
    try:
        run_notebook(notebook, options.notebook.resolve().parent)
    except CellExecutionError as error:
        print(error, file=sys.stderr)
        print(f"{options.notebook} failed; {options.page} was not written.", file=sys.stderr)
        return 1
    for path, text in (
        (options.page, page_of(notebook, options.notebook.stem)),
        (options.keep, nbformat.writes(notebook)),
    ):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    seconds = time.monotonic() - started
    print(
        f"{options.page}: {options.page.stat().st_size / 1e6:.1f} MB, {seconds:.0f} s. Open it in any browser."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
