"""Rows with depths: the one shape in which every tree is cut, grouped and sent to a page.

A tree is a list of lines in the order of reading, each with its depth, its label and the row it stands for (None for a
level that only holds others). Three or more neighbors of one structure become one line, `blocks 0…11 · 12 × Block`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

OPEN_ROWS = 30
SMALLEST_GROUP = 3


@dataclass
class Outline:
    """Lines of a tree, as columns.

    `row[i]` is the index of a row, or -1; `members[i]` says of a group how many it holds and from which to which.
    """

    depth: list[int] = field(default_factory=list)
    label: list[str] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    members: dict[int, tuple[int, str]] = field(default_factory=dict)
    _ends: list[int] = field(default_factory=list, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.depth)

    def display(self, i: int) -> str:
        """The label as it is read: a group with its range."""
        return f"{self.label[i]} {self.members[i][1]}".strip() if i in self.members else self.label[i]

    def ends(self) -> list[int]:
        """For each line, the first line after it that is not below it."""
        if len(self._ends) == len(self.depth):  # a tree that is built is read several times
            return self._ends
        end = [len(self.depth)] * len(self.depth)
        waiting: list[int] = []
        for i, d in enumerate(self.depth):
            while waiting and self.depth[waiting[-1]] >= d:
                end[waiting.pop()] = i
            waiting.append(i)
        self._ends = end
        return end


def outline_of_keys(keys: Sequence[tuple[str, ...]]) -> Outline:
    """Build the lines of a tree from the steps to its leaves; branches stand where their first leaf stands.

    Example:
        >>> tree = outline_of_keys([('a', 'w'), ('a', 'b'), ('c',)])
        >>> list(zip(tree.depth, tree.label, tree.row))
        [(0, 'a', -1), (1, 'w', 0), (1, 'b', 1), (0, 'c', 2)]
    """
    root: dict[str, Any] = {}
    for i, steps in enumerate(keys):
        level: dict[Any, Any] = root
        for step in steps[:-1]:
            below = level.get(step)
            if type(below) is not dict:
                below = level[step] = {} if below is None else {None: below}
            level = below
        name = steps[-1] if steps else ""
        if name in level:  # two leaves of one name, or a leaf that is also a branch: both are shown
            held = level[name]
            level = held if type(held) is dict else level
            name = _free(level, name)
        level[name] = i
    out = Outline()
    _write(root, 0, out)
    return out


def _free(level: dict[str, Any], name: str) -> str:
    return next(text for n in count(2) if (text := f"{name} ({n})") not in level)


def _write(level: dict[str, Any], depth: int, out: Outline) -> None:
    for label, below in level.items():
        out.depth.append(depth)
        out.label.append("" if label is None else label)
        if type(below) is dict:
            out.row.append(-1)
            _write(below, depth + 1, out)
        else:
            out.row.append(below)


def group_neighbors(tree: Outline, signature: Sequence[Hashable], *, leaves: bool = True) -> Outline:
    """Fold three or more neighbors of one structure into one line that holds them.

    A level all of whose members are alike takes the group into its own line.

    Args:
        tree: The lines.
        signature: For each line, what makes it equal to another, besides the names and structures below it.
        leaves: Whether lines with nothing below them are grouped too.

    Example:
        >>> tree = outline_of_keys([('blocks', str(i), 'w') for i in range(12)])
        >>> folded = group_neighbors(tree, [None] * len(tree))
        >>> folded.label[:3], folded.members, folded.display(0)
        (['blocks', '0', 'w'], {0: (12, '0…11')}, 'blocks 0…11')
    """
    ends = tree.ends()
    shape = _structures(tree, signature, ends)
    out = Outline()
    _Grouping(tree, ends, shape, leaves, out).children(0, len(tree), 0)
    return out


def _structures(tree: Outline, signature: Sequence[Hashable], ends: Sequence[int]) -> list[int]:
    """Number each line by its structure: its own signature, and the names and structures below."""
    known: dict[Any, int] = {}
    shape = [0] * len(tree)
    for i in range(len(tree) - 1, -1, -1):
        below, j = [], i + 1
        while j < ends[i]:
            below.append((tree.label[j], shape[j]))
            j = ends[j]
        shape[i] = known.setdefault((signature[i], tuple(below)), len(known))
    return shape


@dataclass
class _Grouping:
    tree: Outline
    ends: list[int]
    shape: list[int]
    leaves: bool
    out: Outline

    def children(self, start: int, stop: int, depth: int) -> None:
        """Copy the lines from `start` to `stop`, siblings at `depth` and what is below them."""
        i = start
        while i < stop:
            run = self._run(i, stop)
            if self._is_group(run):
                self._line("", -1, depth)
                self._members(run, depth)
            else:
                for j in run:
                    self._copy(j, depth)
            i = self.ends[run[-1]]

    def _run(self, i: int, stop: int) -> list[int]:
        run = [i]
        while (j := self.ends[run[-1]]) < stop and self.shape[j] == self.shape[i]:
            run.append(j)
        return run

    def _is_group(self, run: list[int]) -> bool:
        return len(run) >= SMALLEST_GROUP and (self.leaves or self.ends[run[0]] > run[0] + 1)

    def _copy(self, i: int, depth: int) -> None:
        start, stop = i + 1, self.ends[i]
        self._line(self.tree.label[i], self.tree.row[i], depth)
        if start == stop:
            return
        run = self._run(start, stop)
        if self.ends[run[-1]] == stop and self._is_group(run):
            self._members(run, depth)
        else:
            self.children(start, stop, depth + 1)

    def _members(self, run: list[int], depth: int) -> None:
        span = f"{self.tree.label[run[0]]}…{self.tree.label[run[-1]]}"
        self.out.members[len(self.out) - 1] = (len(run), span)
        for j in run:
            self._copy(j, depth + 1)

    def _line(self, label: str, row: int, depth: int) -> None:
        self.out.depth.append(depth)
        self.out.label.append(label)
        self.out.row.append(row)


def open_at_first(tree: Outline, limit: int = OPEN_ROWS) -> list[int]:
    """Choose the lines that stand open before anybody acted: breadth first until `limit` rows are visible.

    Example:
        >>> tree = outline_of_keys([('a', 'w'), ('a', 'b'), ('c',)])
        >>> open_at_first(tree), open_at_first(tree, limit=3)
        ([0], [])
    """
    ends = tree.ends()
    level = _siblings(0, len(tree), ends)
    seen, opened = len(level), []
    while level:
        below: list[int] = []
        for i in level:
            inner = _siblings(i + 1, ends[i], ends) if ends[i] > i + 1 else []
            if not inner or i in tree.members:
                continue
            if seen + len(inner) > limit:
                continue
            seen += len(inner)
            opened.append(i)
            below += inner
        level = below
    return sorted(opened)


def _siblings(start: int, stop: int, ends: Sequence[int]) -> list[int]:
    out = []
    while start < stop:
        out.append(start)
        start = ends[start]
    return out
