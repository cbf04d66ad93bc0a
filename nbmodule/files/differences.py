"""Compare nested mappings of arrays place by place, and rename the places of a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from nbmodule.base.format import describe_shape, printable_repr
from nbmodule.base.paths import hint
from nbmodule.base.sockets import Displayed
from nbmodule.base.trees import ABSENT, kind_apart, numbers_apart, paired
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.files.chains import BUFFERS, EMPTY
from nbmodule.files.stored_leaf import to_host

_SLAB = 1 << 20  # elements compared at a time, so that large arrays are not copied as a whole


@dataclass(frozen=True, slots=True)
class PlaceDifference:
    """One place of two trees.

    Attributes:
        path: Levels joined by `/`.
        kind: `equal`, `only in first`, `only in second`, `shape`, `dtype`, `values` or `renamed`.
        first: What stands there in the first tree, as `float32[3, 2]`; empty if nothing. Of a
            renamed place, its old path.
        second: The same for the second tree.
        detail: How far values differ; empty otherwise.
    """

    path: str
    kind: str
    first: str = ""
    second: str = ""
    detail: str = ""

    @printable_repr
    def __str__(self) -> str:
        if self.kind == "only in first":
            return f"- {self.path}  {self.first}"
        if self.kind == "only in second":
            return f"+ {self.path}  {self.second}"
        if self.kind == "renamed":
            return f"> {self.path}  {self.second}  was {self.first}"
        sides = self.first if self.first == self.second else f"{self.first} -> {self.second}"
        detail = f"  {self.detail}" if self.detail else ""
        return f"{'=' if self.kind == 'equal' else '~'} {self.path}  {sides}{detail}"


@dataclass(frozen=True, slots=True, repr=False)
class TreeComparison(Displayed):
    """All places of two trees, in the order of the first, then those that only the second has.

    Attributes:
        rows: One for each place.
        names: What the two trees are.
    """

    rows: tuple[PlaceDifference, ...]
    names: tuple[str, str] = ("a", "b")

    @property
    def is_equal(self) -> bool:
        """True if nothing differs, but for names that were changed on purpose."""
        return all(row.kind in ("equal", "renamed") for row in self.rows)

    @printable_repr
    def __str__(self) -> str:
        lines = [str(row) for row in self.rows if row.kind != "equal"]
        count = len(self.rows) - len(lines)
        return "\n".join([*lines, f"{count} of {len(self.rows)} places are equal"])

    __repr__ = __str__


def compare_rows(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    names: tuple[str, str] = ("a", "b"),
    *,
    values: bool = True,
) -> TreeComparison:
    """Compare the leaves of two trees, given by path.

    Args:
        first: From path to array, number or text.
        second: The one to compare with.
        names: Titles of the two trees.
        values: Whether numbers are compared, or only which places there are, with which shapes and
            dtypes. NaN equals NaN.

    Example:
        >>> from nbmodule.files.differences import compare_rows
        >>> first = {"w": np.zeros(3), "old": 1}
        >>> print(compare_rows(first, {"w": np.array([0, 0, 0.5]), "new": np.ones((2, 2))}))
        ~ w  float64[3]  1 of 3 elements differ, by up to 0.5
        - old  int
        + new  float64[2, 2]
        0 of 3 places are equal
    """
    rows = (_compare(path, a, b, values) for path, a, b in paired(first, second))
    return TreeComparison(tuple(rows), names)


def spell(leaf: Any) -> str:
    """Say what a leaf is in a word: `float32[3, 2]`, `key<fry>[]`, `int`.

    Example:
        >>> from nbmodule.files.differences import spell
        >>> spell(np.zeros((3, 2), np.float32)), spell(jax.random.key(0)), spell(4), spell(None)
        ('float32[3, 2]', 'key<fry>[]', 'int', 'None')
    """
    if leaf is ABSENT:
        return ""
    if leaf is EMPTY:
        return "{}"
    return "None" if leaf is None else describe_shape(leaf)


_KINDS = {"missing": "only in first", "unexpected": "only in second"}


def _compare(path: str, a: Any, b: Any, values: bool) -> PlaceDifference:
    first, second = spell(a), spell(b)
    # "shape" also where one is no array, or of another Python type
    category = kind_apart(a, b) or ("shape" if first != second else "")
    if category:
        return PlaceDifference(path, _KINDS.get(category, category), first, second)
    detail = _difference_of_values(a, b) if values else ""
    return PlaceDifference(path, "values" if detail else "equal", first, second, detail)


def _difference_of_values(a: Any, b: Any) -> str:
    if not hasattr(a, "dtype"):
        return "" if a == b or a is b else f"{str(a)[:40]} -> {str(b)[:40]}"
    if not isinstance(a.dtype, np.dtype):
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    differing, largest = 0, 0.0
    x, y = to_host(a).reshape(-1), to_host(b).reshape(-1)
    for begin in range(0, a.size, _SLAB):
        slab = slice(begin, begin + _SLAB)
        gap, agree = numbers_apart(x[slab], y[slab], 0.0, 0.0)
        differing += int((~agree).sum())
        largest = max(largest, float(gap[~agree].max(initial=0.0)))
    if not differing:
        return ""
    return f"{differing} of {a.size} element{'s' * (a.size != 1)} differ, by up to {largest:.3g}"


Rename = Mapping[str, str | None] | Callable[[str], str | None] | None


def rename_rows(
    rows: list[tuple[str, Any]], rename: Rename, *, strict: bool = True, where: str = "the file"
) -> tuple[list[tuple[str, Any]], TreeComparison]:
    """Rename chains, and report what became of each.

    A dict maps a chain, or the beginning of chains (whole levels), to another one, with `/` or `.`
    between levels; the longest that fits counts, and None drops its variables. A function takes
    each chain and returns the new one, or None. Buffers are renamed by the same rules, without
    their prefix.

    Args:
        rows: (chain, leaf) as the file spells them: levels joined by `/`.
        rename: A dict or a function.
        strict: Whether an entry of the dict that fits no chain is an error; otherwise the report
            lists it.
        where: The file, for errors and for the report.

    Raises:
        PathError: if an entry fits nothing.
        ArgumentError: if two variables would get one name.

    Example:
        >>> from nbmodule.files.differences import rename_rows
        >>> rows = [("enc/l0/w", 1), ("enc/l0/b", 2), ("head/w", 3)]
        >>> names = {"enc": "encoder", "enc/l0/b": "bias", "head": None}
        >>> renamed, report = rename_rows(rows, names)
        >>> renamed
        [('encoder/l0/w', 1), ('bias', 2)]
        >>> print(report)
        > encoder/l0/w  int  was enc/l0/w
        > bias  int  was enc/l0/b
        - head/w  int
        0 of 3 places are equal
    """
    if not callable(rename) and not isinstance(rename, Mapping):
        raise ArgumentTypeError(
            f"rename: expected a dict or a function, got {type(rename).__name__}."
        )
    used: set[str] = set()
    table = {} if callable(rename) else {old.replace(".", "/"): old for old in rename}
    renamed: dict[str, tuple[str, Any]] = {}  # the old path and the leaf, by new path
    report: list[PlaceDifference] = []
    for path, leaf in rows:
        prefix = BUFFERS + "/" if path.startswith(BUFFERS + "/") else ""
        old = path[len(prefix) :]
        new = rename(old) if callable(rename) else _look_up(old, rename, table, used)
        if new is None:
            report.append(PlaceDifference(path, "only in first", spell(leaf)))
            continue
        if not isinstance(new, str):
            raise ArgumentTypeError(
                f'rename: "{old}" became a {type(new).__name__}, expected a chain or None.'
            )
        new = prefix + new.strip("/")
        if new in renamed:
            raise ArgumentError(
                f'cannot load {where}: rename makes "{new}" of both "{renamed[new][0]}" and '
                f'"{path}".'
            )
        renamed[new] = path, leaf
        kind, first = ("equal", spell(leaf)) if new == path else ("renamed", path)
        report.append(PlaceDifference(new, kind, first, spell(leaf)))
    unused = [] if callable(rename) else [entry for entry in rename if entry not in used]
    if unused and strict:
        more = " ..." if len(unused) > 5 else ""
        raise PathError(
            f"rename: {where} has no {', '.join(map(repr, unused[:5]))}{more}"
            f"{hint(unused[0], [path for path, _ in rows])} "
            "Pass strict=False to leave such entries out and to see what matched."
        )
    note = "named by rename, not in the file"
    report += [PlaceDifference(entry, "only in second", second=note) for entry in unused]
    leaves = [(new, leaf) for new, (_, leaf) in renamed.items()]
    return leaves, TreeComparison(tuple(report), (os.path.basename(where), "renamed"))


def rows_below(rows: list[tuple[str, Any]], prefix: str, where: str) -> list[tuple[str, Any]]:
    """Keep the rows below one level, without it; dots make levels as slashes do.

    Raises:
        PathError: If nothing is below it.

    Example:
        >>> from nbmodule.files.differences import rows_below
        >>> rows = [("net/backbone/w", 1), ("__buffers__/net/backbone/m", 2)]
        >>> rows_below(rows, "net.backbone", "w.h5")
        [('w', 1), ('__buffers__/m', 2)]
    """
    if not isinstance(prefix, str):
        raise ArgumentTypeError(f"prefix must be a str, got {type(prefix).__name__}.")
    level = prefix.strip("/.").replace(".", "/") + "/"

    def below(chain: str) -> str | None:
        return chain[len(level) :] if chain.replace(".", "/").startswith(level) else None

    kept_rows, _ = rename_rows(rows, below, where=where)
    if not kept_rows:
        levels = sorted({path.partition("/")[0] for path, _ in rows} - {BUFFERS})
        raise PathError(
            f'cannot load {where}: nothing is below "{prefix}". Its first levels are '
            f"{', '.join(levels[:10])}{' ...' if len(levels) > 10 else ''}."
        )
    return kept_rows


def _look_up(
    chain: str, rename: Mapping[str, str | None], table: Mapping[str, str], used: set[str]
) -> str | None:
    """Find the longest beginning of a chain that the dict names; dots end levels as slashes do."""
    head = chain.replace(".", "/")
    while head:
        if head in table:
            used.add(table[head])
            new = rename[table[head]]
            if new is None:
                return None
            return f"{new if '/' in new else new.replace('.', '/')}{chain[len(head) :]}"
        head = head.rpartition("/")[0]
    return chain
