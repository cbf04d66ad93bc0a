"""Lines of code: which belong to this package, which to a user, and how views name them."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from nbmodule.base.jax_names import line_of_user, source_info_util

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
LAYERS = os.path.join(PACKAGE, "nn") + os.sep


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
    return (
        f"cell [{cells[file]}] line {line}" if file in cells else f"{os.path.basename(file)}:{line}"
    )


__all__ = ["LAYERS", "PACKAGE", "line_of_user", "place_in_code"]

source_info_util.register_exclusion(PACKAGE)
for _checker in ("jaxtyping", "beartype", "typeguard"):
    _found = find_spec(_checker)
    for _folder in (_found.submodule_search_locations or ()) if _found else ():
        source_info_util.register_exclusion(_folder + os.sep)
