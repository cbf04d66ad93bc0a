"""The rows of variables and PyTrees, stored as columns.

A PyTree of 100,000 leaves creates no object per leaf: what arrays of one type and device have in
common is stored once, and a `VariableRow` is created when it is read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, overload

from nbmodule.base.format import format_array
from nbmodule.views.records.outline import (
    MOST_GROUPED,
    Outline,
    group_neighbors,
    join_levels,
    outline_of_keys,
)
from nbmodule.views.records.records import Picture, ShownStatistics, ViewRecord


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
    statistics: ShownStatistics | None = None
    values: str | Picture | None = None
    error: str | None = None
    keys: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps from the root."""
        return self.keys or tuple(self.chain.split("/") if self.chain else self.path.split("."))


@dataclass(frozen=True, eq=False)
class VariableRows(Sequence[VariableRow]):
    """Rows stored as columns.

    Attributes:
        outline: The lines of the tree, levels included.
        keys: The steps from the root to each row.
        metadata: The distinct metadata of the rows.
        codes: The index into `metadata` of each row.
        shared: By row: the path of another row or name that has the same array.
        values: By row: short texts of leaves that are no arrays, and pictures.
        statistics: By row, of those that were measured.
        frozen: The rows that are not trained.
        paths: Attribute paths, where they differ from the steps; then the steps are the chain.
    """

    outline: Outline
    keys: list[tuple[str, ...]]
    metadata: list[LeafMetadata]
    codes: list[int]
    shared: Mapping[int, str] = field(default_factory=dict)
    values: Mapping[int, Any] = field(default_factory=dict)
    statistics: Mapping[int, ShownStatistics | None] = field(default_factory=dict)
    frozen: frozenset[int] = frozenset()
    paths: Sequence[str] | None = None

    @staticmethod
    def of(rows: Iterable[VariableRow]) -> VariableRows:
        """Store rows as columns.

        Example:
            >>> rows = VariableRows.of([VariableRow("0.weight", "v0/w", shape=(2,), dtype="int8")])
            >>> rows[0].path, rows.keys, rows.metadata[0].text
            ('0.weight', [('v0', 'w')], 'int8[2]')
        """
        rows = list(rows)
        steps = [row.steps for row in rows]
        codes: dict[LeafMetadata, int] = {}
        metadata = [LeafMetadata(*row[2:8], None, row.error) for row in rows]

        def column(name: str) -> dict[int, Any]:
            return {i: x for i, row in enumerate(rows) if (x := getattr(row, name)) is not None}

        return VariableRows(
            outline_of_keys(steps),
            steps,
            metadata=list(dict.fromkeys(metadata)),
            codes=[codes.setdefault(one, len(codes)) for one in metadata],
            shared=column("shared_with"),
            values=column("values"),
            statistics=column("statistics"),
            frozen=frozenset(i for i, row in enumerate(rows) if row.frozen),
            paths=[row.path for row in rows],
        )

    def __len__(self) -> int:
        return len(self.codes)

    def path(self, i: int) -> str:
        """Return the attribute path of a row, or its steps joined by dots."""
        return ".".join(self.keys[i]) if self.paths is None else self.paths[i]

    def spellings(self, i: int) -> tuple[str, ...]:
        """Return the names by which a reader may refer to a row."""
        keys = self.keys[i]
        return self.path(i), "/".join(keys), ".".join(keys)

    @overload
    def __getitem__(self, i: int) -> VariableRow: ...
    @overload
    def __getitem__(self, i: slice) -> list[VariableRow]: ...
    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        i = range(len(self))[i]
        about, keys = self.metadata[self.codes[i]], self.keys[i]
        return VariableRow(
            self.path(i),
            "" if self.paths is None else "/".join(keys),
            *about[:6],
            frozen=i in self.frozen,
            shared_with=self.shared.get(i),
            statistics=self.statistics.get(i),
            values=self.values.get(i),
            error=about.error,
            keys=keys,
        )

    def __iter__(self) -> Iterator[VariableRow]:
        return (self[i] for i in range(len(self)))

    def first(self, count: int) -> VariableRows:
        """Return the first rows."""
        if count >= len(self):
            return self
        paths = None if self.paths is None else self.paths[:count]
        keys = self.keys[:count]
        return replace(
            self, outline=outline_of_keys(keys), keys=keys, codes=self.codes[:count], paths=paths
        )

    def with_values(
        self, values: Mapping[int, Any], statistics: Mapping[int, Any] | None = None
    ) -> VariableRows:
        """Return the rows with other short values and pictures, and with additional statistics."""
        return replace(self, values=values, statistics={**self.statistics, **(statistics or {})})

    @functools.cached_property
    def bytes(self) -> int:
        """Bytes of all arrays, each counted once."""
        total = self.total(lambda about: about.bytes)
        if not self.shared:
            return total
        listed = {name for i in range(len(self)) for name in self.spellings(i)}
        twice = [i for i, path in self.shared.items() if path in listed]
        return total - sum(self.metadata[self.codes[i]].bytes for i in twice)

    def total(self, number: Callable[[LeafMetadata], int]) -> int:
        """Return the sum of a number of the metadata over all rows."""
        numbers = [number(about) for about in self.metadata]
        return sum([numbers[code] for code in self.codes])

    @functools.cached_property
    def lines(self) -> Outline:
        """The lines with single-child levels joined, and neighbors of one structure grouped."""
        if len(self) > MOST_GROUPED:
            return join_levels(self.outline)
        alike = [(*about[:3], about.error) for about in self.metadata]
        signatures = [
            None if row < 0 else (alike[self.codes[row]], row in self.frozen)
            for row in self.outline.row
        ]
        return join_levels(group_neighbors(self.outline, signatures, leaves=False, longest=1))


@dataclass(frozen=True)
class VariableTree(ViewRecord):
    """The numbers of a model, of a Container, of any PyTree.

    Attributes:
        rows: Stored as `VariableRows`, whatever is passed.
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

    def __post_init__(self) -> None:
        if not isinstance(self.rows, VariableRows):
            object.__setattr__(self, "rows", VariableRows.of(self.rows))

    @property
    def columns(self) -> VariableRows:
        """The rows, as columns."""
        assert isinstance(self.rows, VariableRows)
        return self.rows


def mapped_pictures(record: Any, fn: Callable[[Picture], Picture | None]) -> Any:
    """Return a record with other pictures: `fn(picture)`, or none where that is None.

    The record itself is returned where nothing changes.
    """
    if isinstance(record, VariableTree):
        rows = record.columns
        pictures = {i: p for i, p in rows.values.items() if isinstance(p, Picture)}
        new = {i: fn(p) for i, p in pictures.items()}
        if all(new[i] is p for i, p in pictures.items()):
            return record
        values = {**rows.values, **new}
        rows = rows.with_values({i: v for i, v in values.items() if v is not None})
        return replace(record, rows=rows)
    if isinstance(getattr(record, "picture", None), Picture):
        new = fn(record.picture)
        return record if new is record.picture else replace(record, picture=new)
    rows, is_same = list(getattr(record, "rows", ())), True
    for i, row in enumerate(rows):
        old = getattr(row, "pictures", ())
        new = tuple(map(fn, old))
        if any(a is not b for a, b in zip(old, new, strict=True)):
            rows[i], is_same = row._replace(pictures=tuple(filter(None, new))), False
    return record if is_same else replace(record, rows=rows)
