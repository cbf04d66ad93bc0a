"""What a weights file holds, as records and as plain text: for `python -m nbmodule show FILE` and
`diff A B`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nbmodule.base.format import format_bytes, printable
from nbmodule.errors import NbModuleError
from nbmodule.files.chains import BUFFERS, EMPTY, flatten
from nbmodule.files.compare import TreeComparison, compare_parts, spell
from nbmodule.files.contents import read


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One leaf of a file.

    Attributes:
        path: Levels joined by `/`, without the prefix of buffers.
        what: Dtype and shape, as `float32[3, 2]`.
        nbytes: Of the numbers.
        value: The value itself of a number or text, as text; empty for arrays.
        is_buffer: Whether it is one of the buffers.
    """

    path: str
    what: str
    nbytes: int
    value: str
    is_buffer: bool


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What a file is and holds.

    Attributes:
        path: Of the file.
        nbytes: Of the file.
        is_sealed: Whether it has checksums.
        is_checked: Whether all of them were tested.
        metadata: What was saved as such.
        entries: All leaves.
    """

    path: str
    nbytes: int
    is_sealed: bool
    is_checked: bool
    metadata: Any
    entries: tuple[FileEntry, ...]


def summarize(path: str | os.PathLike[str], *, check: bool = False) -> FileSummary:
    """List what a weights file holds.

    Args:
        path: Of the file.
        check: Read everything and test all checksums; otherwise arrays are not read.

    Raises:
        FileFormatError: if the file is damaged.

    Example:
        >>> import os, tempfile
        >>> from nbmodule.files import save, summarize
        >>> path = os.path.join(tempfile.mkdtemp(), "weights.h5")
        >>> save(path, {"linear": {"w": np.ones((2, 3), np.float32)}})
        >>> summarize(path).entries
        (FileEntry(path='linear/w', what='float32[2, 3]', nbytes=24, value='', is_buffer=False),)
    """
    contents = read(path, mmap=not check)
    entries = [
        _entry(path, leaf, False) for path, leaf in flatten(contents.variables, what="variables")
    ]
    entries += [
        _entry(path, leaf, True) for path, leaf in flatten(contents.buffers or {}, what="buffers")
    ]
    size = os.stat(path).st_size
    return FileSummary(
        os.fspath(path),
        size,
        contents.is_sealed,
        check and contents.is_sealed,
        contents.metadata,
        tuple(entries),
    )


def _entry(path: str, leaf: Any, is_buffer: bool) -> FileEntry:
    value = "" if hasattr(leaf, "shape") or leaf is None or leaf is EMPTY else f"{leaf!r}"[:60]
    if isinstance(leaf, jax.Array) and not isinstance(leaf.dtype, np.dtype):
        leaf_bytes = jax.random.key_data(leaf).nbytes
    else:
        leaf_bytes = getattr(leaf, "nbytes", 0)
    return FileEntry(path, spell(leaf), leaf_bytes, value, is_buffer)


def show_text(path: str | os.PathLike[str], *, check: bool = False) -> str:
    """Write the tree of a weights file as plain text.

    Example:
        >>> import os, tempfile
        >>> from nbmodule.files import save, show_text
        >>> path = os.path.join(tempfile.mkdtemp(), "weights.h5")
        >>> save(path, {"linear": {"b": np.ones(3), "w": np.ones((2, 3))}}, metadata={"epoch": 4})
        >>> print(show_text(path).partition("weights.h5: ")[2])
        2 variables, 72 B; has checksums
        linear
          b  float64[3]     24 B
          w  float64[2, 3]  48 B
        metadata  {"epoch": 4}
    """
    summary = summarize(path, check=check)
    variables = [entry for entry in summary.entries if not entry.is_buffer]
    buffers = [entry for entry in summary.entries if entry.is_buffer]
    seal = (
        "all checksums are right"
        if summary.is_checked
        else "has checksums"
        if summary.is_sealed
        else "no checksums"
    )
    counts = _count(variables, "variable")
    if buffers:
        counts += f"; {_count(buffers, 'buffer')}"
    lines = [f"{printable(summary.path)}: {counts}; {seal}", *_tree_lines(variables, 0)]
    if buffers:
        lines += [BUFFERS, *_tree_lines(buffers, 1)]
    if summary.metadata is not None:
        lines.append(f"metadata  {printable(json.dumps(summary.metadata))[:1000]}")
    return "\n".join(lines)


def _count(entries: Sequence[FileEntry], noun: str) -> str:
    total = format_bytes(sum(entry.nbytes for entry in entries))
    return f"{len(entries)} {noun}{'s' * (len(entries) != 1)}, {total}"


def _tree_lines(entries: Sequence[FileEntry], indent: int) -> list[str]:
    """One line for each level and leaf; the columns of all leaves stand below each other."""
    rows: list[tuple[str, FileEntry | None]] = []
    open_levels: list[str] = []
    for entry in entries:
        *levels, name = entry.path.split("/")
        shared = sum(
            1
            for _ in takewhile(
                lambda pair: pair[0] == pair[1], zip(open_levels, levels, strict=False)
            )
        )
        for depth, level in enumerate(levels[shared:], shared + indent):
            rows.append(("  " * depth + printable(level), None))
        open_levels = levels
        rows.append(("  " * (len(levels) + indent) + printable(name), entry))
    width = max((len(text) for text, entry in rows if entry), default=0)
    what = max((len(entry.what) for _, entry in rows if entry), default=0)
    return [
        text if entry is None else _leaf_line(text.ljust(width), entry, what)
        for text, entry in rows
    ]


def _leaf_line(text: str, entry: FileEntry, width: int) -> str:
    last = printable(entry.value) or (format_bytes(entry.nbytes) if "[" in entry.what else "")
    return f"{text}  {entry.what.ljust(width)}  {last}".rstrip()


def diff_files(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> TreeComparison:
    """Compare two weights files, numbers included; buffers stand below `__buffers__`.

    Example:
        >>> import os, tempfile
        >>> from nbmodule.files import diff_files, save
        >>> folder = tempfile.mkdtemp()
        >>> a, b = os.path.join(folder, "a.h5"), os.path.join(folder, "b.h5")
        >>> save(a, {"w": np.zeros(2)})
        >>> save(b, {"w": np.array([0.0, 3.0])})
        >>> print(diff_files(a, b))
        ~ w  float64[2]  1 of 2 elements differ, by up to 3
        0 of 1 places are equal
    """
    one, two = read(first, mmap=True), read(second, mmap=True)
    names = (Path(first).name, Path(second).name)
    return compare_parts(
        (one.variables, one.buffers or {}), (two.variables, two.buffers or {}), names
    )


def run_show(path: str | os.PathLike[str], *, check: bool = False) -> int:
    """Print the tree of a weights file; return the exit status, 2 for an error."""
    try:
        print(show_text(path, check=check))
    except (NbModuleError, OSError) as error:
        print(_printable_lines(str(error)), file=sys.stderr)
        return 2
    return 0


def run_diff(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> int:
    """Print how two weights files differ; return the exit status, 1 if they do, 2 for an error."""
    try:
        comparison = diff_files(first, second)
    except (NbModuleError, OSError) as error:
        print(_printable_lines(str(error)), file=sys.stderr)
        return 2
    print(_printable_lines(str(comparison)))
    return 0 if comparison.is_equal else 1


def _printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
