"""Find equal neighbors in a row of children, and cut a long row into stretches.

Knows names and equality only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

LONGEST_PERIOD = 4
SHORTEST_RUN = 3
LONGEST_PROGRAM = 80  # steps that can be read at once; more are cut into stretches
SHORTEST_STRETCH = 16
STRETCHES = 20

_NUMBERED = re.compile(r"^(.*?)(\d+)(\D*)$", re.DOTALL)


def run_name(names: Sequence[str]) -> str:
    """One name for equal neighbors.

    >>> run_name(["blocks.0", "blocks.1", "blocks.2"])
    'blocks 0…2'
    >>> run_name(["norm", "norm", "norm"])
    'norm'
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


def longest_run(
    keys: Sequence[object],
    same_row: Callable[[int, int], bool],
    is_worth: Callable[[int], bool],
    start: int,
) -> tuple[int, int]:
    """The longest repetition that begins at a position, as its period and the number of repeats;
    (0, 0) for none.

    Args:
        keys: What must be equal for two items to be the same.
        same_row: Whether the items at two positions may belong to one row.
        is_worth: Whether the item at a position is worth folding; one in a period must be.
        start: Where the repetition begins.

    >>> longest_run("abababc", lambda i, j: True, lambda i: True, 0)
    (2, 3)
    """
    best = (0, 0)
    for period in range(1, LONGEST_PERIOD + 1):
        end = start + period
        while end < len(keys) and keys[end] == keys[end - period] and same_row(end - period, end):
            end += 1
        repeats = (end - start) // period
        longer = repeats >= SHORTEST_RUN and repeats * period > best[0] * best[1]
        if longer and any(map(is_worth, range(start, start + period))):
            best = (period, repeats)
    return best


def stretches(count: int) -> list[tuple[int, int]]:
    """Cut so many steps into stretches of equal length, as first and last-but-one positions; one if
    they are few.

    >>> stretches(10), len(stretches(1000))
    ([(0, 10)], 20)
    """
    if count <= LONGEST_PROGRAM:
        return [(0, count)]
    length = max(SHORTEST_STRETCH, -(-count // STRETCHES))
    return [(start, min(start + length, count)) for start in range(0, count, length)]
