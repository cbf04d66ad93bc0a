"""Give the variables of a file other names while they are loaded."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.files.chains import BUFFERS

Rename = Mapping[str, str | None] | Callable[[str], str | None] | None


def rename_rows(
    rows: list[tuple[str, Any]], rename: Rename, *, strict: bool = True, where: str = "the file"
) -> list[tuple[str, Any]]:
    """Rename chains.

    A dict maps a chain, or the beginning of chains (whole levels), to another one; of several that fit, the longest counts.
    None drops what it stands for. A function is asked for each chain and gives the new one, or None. Buffers are renamed by the
    same rules, without their prefix.

    Args:
        rows: (chain, leaf) as the file spells them: levels joined by `/`.
        rename: A dict or a function.
        strict: Whether an entry of the dict that fits no chain is an error; otherwise it is a warning.
        where: The file, for errors.

    Raises:
        PathError: if an entry fits nothing.
        ArgumentError: if two variables would get one name.

    Example:
        >>> from nbmodule.files.renaming import rename_rows
        >>> rename_rows([("enc/l0/w", 1), ("enc/l0/b", 2), ("head/w", 3)], {"enc": "encoder", "enc/l0/b": "bias", "head": None})
        [('encoder/l0/w', 1), ('bias', 2)]
    """
    if rename is None:
        return rows
    if not callable(rename) and not isinstance(rename, Mapping):
        raise ArgumentTypeError(f"rename: expected a dict or a function, found {type(rename).__name__}.")
    used: set[str] = set()
    renamed: list[tuple[str, Any]] = []
    origin: dict[str, str] = {}
    for path, leaf in rows:
        prefix = BUFFERS + "/" if path.startswith(BUFFERS + "/") else ""
        old = path[len(prefix) :]
        new = rename(old) if callable(rename) else _look_up(old, rename, used)
        if new is None:
            continue
        if not isinstance(new, str):
            raise ArgumentTypeError(f'rename: "{old}" became a {type(new).__name__}, expected a chain or None.')
        new = prefix + new.strip("/")
        if new in origin:
            raise ArgumentError(f'cannot load {where}: rename makes "{new}" of both "{origin[new]}" and "{path}".')
        origin[new] = path
        renamed.append((new, leaf))
    if isinstance(rename, Mapping):
        _report_unused([entry for entry in rename if entry not in used], [path for path, _ in rows], strict, where)
    return renamed


def _look_up(chain: str, rename: Mapping[str, str | None], used: set[str]) -> str | None:
    """Find the longest beginning of a chain that the dict names."""
    head, rest = chain, ""
    while True:
        if head in rename:
            used.add(head)
            new = rename[head]
            return None if new is None else f"{new}{rest}"
        head, slash, tail = head.rpartition("/")
        if not slash:
            return chain
        rest = f"/{tail}{rest}"


def _report_unused(unused: list[str], chains: list[str], strict: bool, where: str) -> None:
    if not unused:
        return
    close = get_close_matches(unused[0], chains, 1, 0.4)
    hint = f'; the closest chain is "{close[0]}"' if close else ""
    text = f"rename: {where} has no {', '.join(map(repr, unused[:5]))}{' ...' if len(unused) > 5 else ''}{hint}."
    if strict:
        raise PathError(f"{text} Nothing was loaded. Pass strict=False to leave such entries out.")
    warnings.warn(text, stacklevel=4)
