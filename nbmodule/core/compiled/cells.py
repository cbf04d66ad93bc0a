"""The clock of notebook cells: a trace is trusted within the cell in which it was made.

The cell is the unit of change in a notebook. Running one may change numbers, flags, code, classes or
libraries, so each compiled function traces again in the first call of a later cell. In scripts the
clock stands still.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from nbmodule.core.variables.clock import clock


class CellClock:
    """Counts the cells that have begun, and other acts of the user.

    Example:
        >>> cells = CellClock()
        >>> cells.advance()
        >>> cells.tick
        1
    """

    def __init__(self) -> None:
        self.tick = 0
        self._shell: Any = None
        self._lock = threading.Lock()

    def advance(self, *_: object) -> None:
        """Begin a cell: what was traced before is traced again at its next call."""
        self.tick += 1
        clock.structure_changed()

    def follow(self) -> None:
        """Follow the cells of IPython, if this runs in IPython."""
        if "IPython" not in sys.modules:
            return
        shell = getattr(sys.modules["IPython"], "get_ipython", lambda: None)()
        if shell is None or shell is self._shell:
            return
        with self._lock:
            if shell is not self._shell:
                self._shell = shell
                shell.events.register("pre_run_cell", self.advance)


cells = CellClock()
