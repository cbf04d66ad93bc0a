"""Where code stands, in the words that every view uses: `cell [3] line 25` of a notebook, `train.py:25` of a file."""

from __future__ import annotations

import os
import sys


def place_in_code(file: str, line: int) -> str:
    """Name a line of code: a cell by its number, since the name of its temporary file says nothing.

    Args:
        file: As a code object names it.
        line: Counted from 1.

    Example:
        >>> place_in_code("/home/ada/train.py", 25)
        'train.py:25'
    """
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    cells = getattr(getattr(shell, "compile", None), "_filename_map", {}) if shell else {}
    return f"cell [{cells[file]}] line {line}" if file in cells else f"{os.path.basename(file)}:{line}"
