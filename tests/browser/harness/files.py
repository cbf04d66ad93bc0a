"""Notebooks and exported pages that tests open."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MARKDOWN = "# %% [markdown]\n"


def write_notebook(path: Path, cells: list[str]) -> Path:
    """Write a notebook from the text of its cells; one that begins with `# %% [markdown]` is
    Markdown.
    """
    import nbformat.v4

    built = [
        nbformat.v4.new_markdown_cell(cell.removeprefix(MARKDOWN))
        if cell.startswith(MARKDOWN)
        else nbformat.v4.new_code_cell(cell)
        for cell in cells
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=built, metadata={"kernelspec": kernel})
    nbformat.write(notebook, path)
    return path


def export_page(notebook: Path, page: Path) -> Path:
    """Export a saved notebook, with the outputs it has, as `make demo` does."""
    from tools.make_page import page_of, read_notebook

    page.write_text(page_of(read_notebook(notebook), notebook.stem), encoding="utf-8")
    return page
