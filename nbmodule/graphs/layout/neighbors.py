"""Find equal neighbors in a row of children."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nbmodule.graphs.layout.forms import Child, Form

LONGEST_PERIOD = 4
SHORTEST_RUN = 3

_NUMBERED = re.compile(r"^(.*?)(\d+)(\D*)$", re.DOTALL)


def run_name(names: Sequence[str]) -> str:
    """One name for equal neighbors.

    >>> run_name(["blocks.0", "blocks.1", "blocks.2"])
    'blocks 0…2'
    >>> run_name(["norm", "norm", "norm"]), run_name(["v9_w", "v10_w", "v11_w"])
    ('norm', 'v 9…11_w')
    """
    if len(set(names)) == 1:
        return names[0]
    first, last = _NUMBERED.match(names[0]), _NUMBERED.match(names[-1])
    if first is None or last is None:
        return f"{names[0]} … {names[-1]}"
    prefix = first[1].rstrip("._")
    return f"{prefix} {first[2]}…{last[2]}{first[3]}".strip()


def goes_on(earlier: str, later: str) -> bool:
    """Return True if two names belong to one row: equal, or with last numbers that differ by one.

    >>> goes_on("blocks.1", "blocks.2"), goes_on("norm", "norm"), goes_on("q", "k")
    (True, True, False)
    """
    if earlier == later:
        return True
    a, b = _NUMBERED.match(earlier), _NUMBERED.match(later)
    if a is None or b is None:
        return False
    return (a[1], a[3]) == (b[1], b[3]) and abs(int(a[2]) - int(b[2])) == 1


def longest_run(children: Sequence[Child], start: int) -> tuple[int, int]:
    """The longest repetition that begins at a position and has more than one operation in a period,
    as its period and the number of repeats; (0, 0) for none.

    >>> from nbmodule.graphs.layout.forms import Record
    >>> longest_run(
    ...     [Child(Record("sin", "operation", "", (), None, 0, 0, False), "sin")] * 5, 0
    ... )
    (0, 0)
    """
    best = (0, 0)
    for period in range(1, LONGEST_PERIOD + 1):
        end = start + period
        while end < len(children) and _follows(children[end], children[end - period]):
            end += 1
        repeats = (end - start) // period
        if repeats >= SHORTEST_RUN and repeats * period > best[0] * best[1]:
            inner = (child.content for child in children[start : start + period])
            if any(isinstance(form, Form) and form.operations > 1 for form in inner):
                best = (period, repeats)
    return best


def _follows(child: Child, earlier: Child) -> bool:
    """Return True if a child goes on with the row of another that is equal to it."""
    is_equal = child.content is earlier.content and child.phase == earlier.phase
    return is_equal and goes_on(earlier.name, child.name)
