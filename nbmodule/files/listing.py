"""Weights files as plain text, for `python -m nbmodule show FILE` and `diff A B`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nbmodule.base.format import format_bytes, printable
from nbmodule.files.chains import BUFFERS, EMPTY, flatten_parts
from nbmodule.files.differences import TreeComparison, compare_rows, spell
from nbmodule.files.weights import read

Rows = Sequence[tuple[str, Any]]


def show_text(path: str | os.PathLike[str], *, check: bool = False) -> str:
    """Write the tree of a weights file as plain text.

    Args:
        path: Of the file.
        check: Read everything and test all checksums; otherwise arrays are not read.

    Raises:
        FileFormatError: If the file is damaged.

    Example:
        >>> import os, tempfile
        >>> from nbmodule.files import save
        >>> from nbmodule.files.listing import show_text
        >>> path = os.path.join(tempfile.mkdtemp(), "weights.h5")
        >>> save(path, {"linear": {"b": np.ones(3), "w": np.ones((2, 3))}}, metadata={"epoch": 4})
        >>> print(show_text(path).partition("weights.h5: ")[2])
        2 variables, 72 B; has checksums
        linear
          b  float64[3]     24 B
          w  float64[2, 3]  48 B
        metadata  {"epoch": 4}
    """
    contents = read(path, mmap=not check)
    rows = flatten_parts(contents.variables, contents.buffers or None)
    buffers = [row for row in rows if row[0].startswith(f"{BUFFERS}/")]
    if not contents.has_index:
        checksums = "no checksums"
    else:
        checksums = "all checksums are right" if check else "has checksums"
    counts = _count(rows[: len(rows) - len(buffers)], "variable")
    if buffers:
        counts += f"; {_count(buffers, 'buffer')}"
    lines = [f"{printable(os.fspath(path))}: {counts}; {checksums}", *_tree_lines(rows)]
    if contents.metadata is not None:
        lines.append(f"metadata  {printable(json.dumps(contents.metadata))[:1000]}")
    return "\n".join(lines)


def _bytes(leaf: Any) -> int:
    if isinstance(leaf, jax.Array) and not isinstance(leaf.dtype, np.dtype):
        return jax.random.key_data(leaf).nbytes
    return getattr(leaf, "nbytes", 0)


def _count(rows: Rows, noun: str) -> str:
    total = format_bytes(sum(_bytes(leaf) for _, leaf in rows))
    return f"{len(rows)} {noun}{'s' * (len(rows) != 1)}, {total}"


def _tree_lines(rows: Rows) -> list[str]:
    """Write one line for each level and leaf, with the columns of all leaves aligned."""
    lines: list[tuple[str, ...]] = []
    open_levels: list[str] = []
    for path, leaf in rows:
        *levels, name = path.split("/")
        pairs = zip(open_levels, levels, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        for depth, level in enumerate(levels[shared:], shared):
            lines.append(("  " * depth + printable(level),))
        open_levels = levels
        if hasattr(leaf, "shape"):
            value = format_bytes(_bytes(leaf))
        else:
            value = "" if leaf is None or leaf is EMPTY else printable(f"{leaf!r}"[:60])
        lines.append(("  " * len(levels) + printable(name), spell(leaf), value))
    widths = [max((len(line[i]) for line in lines if len(line) > 1), default=0) for i in (0, 1)]
    return [
        line[0]
        if len(line) == 1
        else f"{line[0].ljust(widths[0])}  {line[1].ljust(widths[1])}  {line[2]}".rstrip()
        for line in lines
    ]


def diff_files(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> TreeComparison:
    """Compare two weights files, numbers included; buffers stand below `__buffers__`.

    Example:
        >>> import os, tempfile
        >>> from nbmodule.files import save
        >>> from nbmodule.files.listing import diff_files
        >>> folder = tempfile.mkdtemp()
        >>> a, b = os.path.join(folder, "a.h5"), os.path.join(folder, "b.h5")
        >>> save(a, {"w": np.zeros(2)})
        >>> save(b, {"w": np.array([0.0, 3.0])})
        >>> print(diff_files(a, b))
        ~ w  float64[2]  1 of 2 elements differ, by up to 3
        0 of 1 places are equal
    """
    files = (read(path, mmap=True) for path in (first, second))
    one, two = (dict(flatten_parts(file.variables, file.buffers or None)) for file in files)
    return compare_rows(one, two, (Path(first).name, Path(second).name))
