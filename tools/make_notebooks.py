"""Write the lessons as `.ipynb` files, so that GitHub, Colab and Binder can open them.

    python tools/make_notebooks.py            # writes notebooks/*.ipynb
    python tools/make_notebooks.py --run      # also runs the first lesson and keeps its outputs
    python tools/make_notebooks.py --check    # exit status 1 if a file is out of date

The py:percent files are the source. The cell ids follow from the position of a cell, so the same
source gives the same bytes. Outputs are kept in the first lesson only: GitHub shows them.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = Path(__file__).parents[1] / "notebooks"
WITH_OUTPUTS = "01_first_model"


def convert(source: Path) -> NotebookNode:
    """Return the notebook of a py:percent file, without outputs and with stable cell ids."""
    import jupytext

    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
    return notebook


def keep_outputs(notebook: NotebookNode, previous: NotebookNode) -> None:
    """Copy the outputs of a previous version to the cells whose source is unchanged."""
    outputs = {cell.source: cell for cell in previous.cells if cell.cell_type == "code"}
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source in outputs:
            cell.outputs = outputs[cell.source].outputs
            cell.execution_count = outputs[cell.source].execution_count


def notebook_text(source: Path, *, run: bool = False) -> str:
    """Return the content of the `.ipynb` file that belongs to a lesson."""
    import nbformat

    notebook = convert(source)
    target = source.with_suffix(".ipynb")
    if source.stem == WITH_OUTPUTS:
        if run:
            from tools.make_page import run_notebook

            os.environ["NBMODULE_DISPLAY"] = "static"
            run_notebook(notebook, FOLDER)
            _drop_times(notebook)
        elif target.exists():
            keep_outputs(notebook, nbformat.read(target, as_version=4))
    return nbformat.writes(notebook, version=4) + "\n"  # pyright: ignore[reportArgumentType]


def _drop_times(notebook: NotebookNode) -> None:
    """Drop what differs from run to run: the times at which cells were executed."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata.pop("language_info", None)


def main() -> int:
    """Write or check the notebooks; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", action="store_true", help="run the lesson whose outputs are kept")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    stale = []
    for source in sorted(FOLDER.glob("*.py")):
        target = source.with_suffix(".ipynb")
        text = notebook_text(source, run=options.run)
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            stale.append(target.name)
            if not options.check:
                target.write_text(text, encoding="utf-8")
    print("\n".join(stale) or "all notebooks are up to date")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parent))
    sys.exit(main())
