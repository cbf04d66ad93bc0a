"""Sequences of records, indexed by position or path and printed as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from nbmodule.base.paths import hint
from nbmodule.base.sockets import Shown, socket
from nbmodule.errors import PathError

Row = TypeVar("Row")


class PathRows(Shown, Sequence[Row]):
    """A displayed sequence of records; `rows["blocks.0"]` is the first with that path."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self._rows[key]
        paths = [getattr(row, "path", None) for row in self._rows]
        if key not in paths:
            known = sorted({path for path in paths if path})
            raise PathError(f'{type(self).__name__} has no row "{key}"{hint(key, known)}')
        return self._rows[paths.index(key)]

    def __repr__(self) -> str:
        return socket("text")(self)
