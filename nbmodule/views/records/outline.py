"""Rows with depths: the one shape in which every tree is cut, grouped and sent to a page.

A tree is a list of lines in the order of reading, each with its depth, its label and the row it
stands for (None for a level that only holds others). Three or more neighbors of one structure
become one line, `blocks 0…11 · 12 × Block`, and so do neighbors that alternate, `layers 0…249 · 125
× (A, B)`.
"""

from __future__ import annotations

import collections
from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from nbmodule.base.format import ordinal

# As many as are seen in a view before anybody scrolls.
OPEN_ROWS = 18
SMALLEST_GROUP = 3
# Times that two or more neighbors come again before they are one line.
SMALLEST_PATTERN = 4
LONGEST_PERIOD = 4
# Rows from which neighbors are not grouped: such a tree is searched, not read.
MOST_GROUPED = 20_000


def occurrences(keys: Iterable[Hashable]) -> list[int]:
    """Return for each key how often it came before.

    Example:
        >>> occurrences(["a", "b", "a"])
        [0, 0, 1]
    """
    counts: collections.Counter[Hashable] = collections.Counter()
    before = []
    for key in keys:
        before.append(counts[key])
        counts[key] += 1
    return before


def numbered(names: Iterable[str], keys: Iterable[Hashable]) -> list[str]:
    """Add to the name of a repeated call that it is the second, the third ...

    Example:
        >>> numbered(["cell", "head", "cell"], ["cell", "head", "cell"])
        ['cell', 'head', 'cell (2nd)']
    """
    return [
        f"{name} ({ordinal(n + 1)})" if n else name
        for name, n in zip(names, occurrences(keys), strict=True)
    ]


@dataclass
class Outline:
    """Lines of a tree, as columns.

    `row[i]` is the index of a row, or -1; by default each line is a row. `members[i]` says of a
    group how many it holds and from which to which.

    Attributes:
        period: Of a group whose members alternate: after how many they come again.
        joined: Of a level that holds one level and nothing else, and shares its line: the names
            further down.
    """

    depth: list[int] = field(default_factory=list)
    label: list[str] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    members: dict[int, tuple[int, str]] = field(default_factory=dict)
    period: dict[int, int] = field(default_factory=dict)
    joined: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _ends: list[int] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.row:
            self.row = list(range(len(self.depth)))

    def append(self, depth: int, label: str, row: int) -> None:
        """Add a line."""
        self.depth.append(depth)
        self.label.append(label)
        self.row.append(row)

    def __len__(self) -> int:
        return len(self.depth)

    def display(self, i: int) -> str:
        """The label as it is read: joined levels with their names, a group with its range."""
        name = "/".join((self.label[i], *self.joined.get(i, ())))
        return f"{name} {self.members[i][1]}".strip() if i in self.members else name

    def children(self, i: int | None = None) -> list[int]:
        """The lines directly below a line, or those at the top."""
        ends = self.ends()
        return _siblings(0, len(self), ends) if i is None else _siblings(i + 1, ends[i], ends)

    def pattern(self, i: int) -> list[int]:
        """The members of a group that differ, which come again after that."""
        return self.children(i)[: self.period.get(i, 1)]

    def kinds(self, i: int, names: Sequence[str]) -> str:
        """Say what a group holds, as `12 × Block` or `125 × (A, B)`.

        Args:
            i: The line of the group.
            names: The names of the members of its pattern.
        """
        pattern = names[0] if len(names) == 1 else f"({', '.join(names)})"
        return f"{self.members[i][0] // len(names)} × {pattern}"

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
    """Build the lines of a tree from the steps to its leaves.

    Branches stand where their first leaf stands. A level that holds one level and nothing else
    shares its line.

    Example:
        >>> tree = outline_of_keys([("a", "w"), ("a", "b"), ("c", "0", "w")])
        >>> [(tree.depth[i], tree.display(i), tree.row[i]) for i in range(len(tree))]
        [(0, 'a', -1), (1, 'w', 0), (1, 'b', 1), (0, 'c/0', -1), (1, 'w', 2)]
    """
    root: dict[str, Any] = {}
    for i, steps in enumerate(keys):
        level: dict[Any, Any] = root
        for step in steps[:-1]:
            branch = level.get(step)
            if type(branch) is not dict:
                branch = level[step] = {} if branch is None else {None: branch}
            level = branch
        name = steps[-1] if steps else ""
        if name in level:  # two leaves of one name, or a leaf that is also a branch: both are shown
            level = level[name] if type(level[name]) is dict else level
            name = next(text for n in count(2) if (text := f"{name} ({n})") not in level)
        level[name] = i
    out = Outline()
    _write(root, 0, out)
    return out


def _write(level: dict[str, Any], depth: int, out: Outline) -> None:
    for label, item in level.items():
        is_level = type(item) is dict
        out.append(depth, label or "", -1 if is_level else item)
        if is_level:
            names = []
            while len(item) == 1 and type(only := next(iter(item.values()))) is dict:
                names += [name for name in item if name is not None]
                item = only
            if names:
                out.joined[len(out) - 1] = tuple(names)
            _write(item, depth + 1, out)


def group_neighbors(
    tree: Outline,
    signature: Sequence[Hashable],
    *,
    leaves: bool = True,
    longest: int = LONGEST_PERIOD,
) -> Outline:
    """Fold three or more neighbors of one structure into one line that holds them, and so patterns
    that come again.

    A level all of whose members are alike takes the group into its own line.

    Args:
        tree: The lines.
        signature: For each line, what makes it equal to another, besides the names and structures
            below it.
        leaves: True groups lines with nothing below them too.
        longest: How many neighbors may make up a pattern; 1 groups only those that are alike.

    Example:
        >>> tree = outline_of_keys([("blocks", str(i), "w") for i in range(12)])
        >>> folded = group_neighbors(tree, [None] * len(tree))
        >>> folded.label[:3], folded.members, folded.display(0)
        (['blocks', '0', 'w'], {0: (12, '0…11')}, 'blocks 0…11')
    """
    shape, out = _structures(tree, signature), Outline()

    def add(line: list[int], depth: int, is_whole: bool = False) -> None:
        """Copy siblings; a group of all of them is that of the line above if there is one."""
        at = 0
        while at < len(line):
            count, period = count_alike(line, at)
            if period:
                has_own = not is_whole or count < len(line)
                if has_own:
                    out.append(depth, "", -1)
                run, group = line[at : at + count], len(out) - 1
                out.members[group] = (count, f"{tree.label[run[0]]}…{tree.label[run[-1]]}")
                if period > 1:
                    out.period[group] = period
                for i in run:
                    copy(i, depth + has_own)
            else:
                copy(line[at], depth)
            at += count

    def count_alike(line: list[int], at: int) -> tuple[int, int]:
        """Count the neighbors from here on that are a group, and the length of their pattern; 1 and
        0: no group.
        """
        if leaves or tree.children(line[at]):
            for period in range(1, longest + 1):
                end = at + period
                while end < len(line) and shape[line[end]] == shape[line[end - period]]:
                    end += 1
                count = (end - at) // period * period
                if count >= period * (SMALLEST_GROUP if period == 1 else SMALLEST_PATTERN):
                    return count, period
        return 1, 0

    def copy(i: int, depth: int) -> None:
        if i in tree.joined:
            out.joined[len(out)] = tree.joined[i]
        out.append(depth, tree.label[i], tree.row[i])
        add(tree.children(i), depth + 1, is_whole=True)

    add(tree.children(), 0)
    return out


def _structures(tree: Outline, signature: Sequence[Hashable]) -> list[int]:
    """Number each line by its structure: its own signature, and the names and structures below."""
    numbers: dict[Any, int] = {}
    shape = [0] * len(tree)
    for i in range(len(tree) - 1, -1, -1):
        children = tuple([(tree.label[j], shape[j]) for j in tree.children(i)])
        structure = (signature[i], tree.joined.get(i), children)
        shape[i] = numbers.setdefault(structure, len(numbers))
    return shape


def open_at_first(tree: Outline, limit: int = OPEN_ROWS, *, groups: bool = False) -> list[int]:
    """Choose the lines that stand open before anybody acted: level by level, each only if all of it
    is seen at once.

    Args:
        tree: The lines.
        limit: How many rows are seen at once.
        groups: True opens groups too where there is room for them.

    Example:
        >>> tree = outline_of_keys([("a", "w"), ("a", "b"), ("c",)])
        >>> open_at_first(tree), open_at_first(tree, limit=3)
        ([0], [])
    """
    level = tree.children()
    rows, opened = len(level), []
    while level:
        inner = {i: tree.children(i) for i in level if groups or i not in tree.members}
        # one wide level keeps no other shut
        fits = {i: lines for i, lines in inner.items() if lines and rows + len(lines) <= limit}
        more = sum(map(len, fits.values()))
        if rows + more > limit:
            break
        rows += more
        opened += fits
        level = [j for lines in fits.values() for j in lines]
    return sorted(opened)


def visible(tree: Outline, folded: Container[int]) -> list[int]:
    """The lines that are seen while these are folded.

    Example:
        >>> visible(outline_of_keys([("a", "w"), ("b",)]), {0})
        [0, 2]
    """
    ends, out, i = tree.ends(), [], 0
    while i < len(tree):
        out.append(i)
        i = ends[i] if i in folded else i + 1
    return out


def _siblings(start: int, stop: int, ends: Sequence[int]) -> list[int]:
    out = []
    while start < stop:
        out.append(start)
        start = ends[start]
    return out
