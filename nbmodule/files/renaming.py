"""Give the variables of a file other names while they are loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.files.chains import BUFFERS
from nbmodule.files.differences import PlaceDifference, TreeComparison, spell

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
        >>> from nbmodule.files.renaming import rename_rows
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
    renamed: list[tuple[str, Any]] = []
    report: list[PlaceDifference] = []
    origin: dict[str, str] = {}
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
        if new in origin:
            raise ArgumentError(
                f'cannot load {where}: rename makes "{new}" of both "{origin[new]}" and "{path}".'
            )
        origin[new] = path
        renamed.append((new, leaf))
        change = "equal" if new == path else "renamed"
        report.append(
            PlaceDifference(new, change, spell(leaf) if new == path else path, spell(leaf))
        )
    unused = [entry for entry in rename if entry not in used] if isinstance(rename, Mapping) else []
    if unused and strict:
        close = get_close_matches(unused[0], [path for path, _ in rows], 1, 0.4)
        hint = f'; the closest chain is "{close[0]}"' if close else ""
        raise PathError(
            f"rename: {where} has no "
            f"{', '.join(map(repr, unused[:5]))}{' ...' if len(unused) > 5 else ''}{hint}. "
            "Pass strict=False to leave such entries out and to see what matched."
        )
    report += [
        PlaceDifference(entry, "only in second", second="named by rename, not in the file")
        for entry in unused
    ]
    return renamed, TreeComparison(tuple(report), (os.path.basename(where), "renamed"))


def rows_below(rows: list[tuple[str, Any]], prefix: str, where: str) -> list[tuple[str, Any]]:
    """Keep the rows below one level, without it; dots make levels as slashes do.

    Raises:
        PathError: If nothing is below it.

    Example:
        >>> from nbmodule.files.renaming import rows_below
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
