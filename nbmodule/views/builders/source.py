"""The code of a module's forward as lines: where it was written, in a file or in a cell, and what
it says.
"""

from __future__ import annotations

import functools
import inspect
import textwrap
from typing import Any, NamedTuple

from nbmodule.graphs import Source

MOST_LINES = 60


class Lines(NamedTuple):
    """A stretch of code.

    Attributes:
        place: `model.py:12`, or `cell [3] line 12`.
        first: Number of its first line.
        left_out: Lines that do not fit.
    """

    place: str
    first: int
    text: str
    left_out: int = 0


@functools.lru_cache(512)
def source_of(cls: Any) -> Lines | None:
    """Give the code that a call of a module runs; None where it cannot be read.

    Example:
        >>> lines = source_of(nb.ReLU)
        >>> lines.place.partition(":")[0], lines.text.startswith("def ")
        ('activation.py', True)
    """
    run = inspect.unwrap(getattr(cls, "_run", cls))
    code = getattr(run, "__code__", None)
    if code is None:
        return None
    place = Source(code.co_filename, code.co_firstlineno).place
    try:
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError):
        return Lines(place, code.co_firstlineno, "")
    text = textwrap.dedent("".join(lines)).splitlines()
    return Lines(place, first, "\n".join(text[:MOST_LINES]), max(0, len(text) - MOST_LINES))
