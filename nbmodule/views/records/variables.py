"""The rows of variables and PyTrees."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from nbmodule.base.format import format_array
from nbmodule.base.statistics import Statistics
from nbmodule.views.records.outline import (
    MOST_GROUPED,
    Outline,
    group_neighbors,
    join_levels,
    outline_of_keys,
)
from nbmodule.views.records.records import Picture, ViewRecord


class LeafMetadata(NamedTuple):
    """Properties of a leaf that need no reading of its values.

    Attributes:
        kind: 'parameter', 'buffer', 'array', or the type name of a leaf that is no array.
        unreadable: Why the values cannot be shown: a random key, a shape, a tracer.
        error: Why values that existed are gone: a buffer that was deleted.
    """

    kind: str
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int = 0
    device: str = ""
    sharding: str | None = None
    unreadable: str | None = None
    error: str | None = None

    @property
    def is_readable(self) -> bool:
        """Return True for an array whose values can be read."""
        return self.shape is not None and not self.unreadable and not self.error

    @property
    def text(self) -> str:
        """The type, as `float32[64, 3]`."""
        return format_array(self.shape, self.dtype)


class VariableRow(NamedTuple):
    """One variable, or one leaf of any PyTree.

    Attributes:
        keys: The steps from the root. Empty: `chain` split at `/`, or `path` split at `.`
    """

    path: str
    chain: str = ""
    kind: str = "parameter"
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    bytes: int = 0
    device: str = ""
    sharding: str | None = None
    frozen: bool = False
    shared_with: str | None = None
    statistics: Statistics | None = None
    value: str | None = None
    pictures: tuple[Picture, ...] = ()
    error: str | None = None
    keys: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps from the root."""
        return self.keys or tuple(self.chain.split("/") if self.chain else self.path.split("."))

    @property
    def spellings(self) -> tuple[str, ...]:
        """The names by which a reader may refer to the row."""
        return self.path, "/".join(self.steps), ".".join(self.steps)

    @property
    def is_readable(self) -> bool:
        """Return True for an array whose values can be read."""
        return self.shape is not None and not self.error and self.value is None


@dataclass(frozen=True)
class VariableTree(ViewRecord):
    """The numbers of a model, of a Container, of any PyTree.

    Attributes:
        spelled: How a step is written in Python where that is not `.name` or `[0]`, as `{"a":
            "['a']"}`.
        color: A number for paths, by which rows are tinted.
    """

    name: str
    rows: Sequence[VariableRow]
    root: str = "v"
    noun: str = "variable"
    spelled: Mapping[str, str] = field(default_factory=dict)
    color: Mapping[str, float] = field(default_factory=dict)

    @functools.cached_property
    def bytes(self) -> int:
        """Bytes of all arrays, each counted once."""
        shared = any(row.shared_with for row in self.rows)
        listed = {name for row in self.rows for name in row.spellings} if shared else ()
        return sum(row.bytes for row in self.rows if row.shared_with not in listed)

    @functools.cached_property
    def lines(self) -> Outline:
        """The lines with single-child levels joined, and neighbors of one structure grouped."""
        rows = self.rows
        outline = outline_of_keys([row.steps for row in rows])
        if len(rows) > MOST_GROUPED:
            return join_levels(outline)
        alike = [(row.kind, row.shape, row.dtype, row.error, row.frozen) for row in rows]
        signatures = [None if row < 0 else alike[row] for row in outline.row]
        return join_levels(group_neighbors(outline, signatures, leaves=False, longest=1))


def mapped_pictures(record: Any, fn: Callable[[Picture], Picture | None]) -> Any:
    """Return a record with other pictures: `fn(picture)`, or none where that is None.

    The record itself is returned where nothing changes.
    """
    if isinstance(getattr(record, "picture", None), Picture):
        new = fn(record.picture)
        return record if new is record.picture else replace(record, picture=new)
    rows, is_same = list(getattr(record, "rows", ())), True
    for i, row in enumerate(rows):
        old = getattr(row, "pictures", ())
        new = tuple(filter(None, map(fn, old)))
        if len(new) != len(old) or any(a is not b for a, b in zip(old, new, strict=True)):
            is_same = False
            rows[i] = row._replace(pictures=new)
    return record if is_same else replace(record, rows=rows)
